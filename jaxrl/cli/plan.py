"""`jaxrl plan`: what `jaxrl train` with the same arguments would take."""

from collections.abc import Sequence
from typing import Any

from jaxrl.cli.options import run_options
from jaxrl.cli.parsing import CommandError
from jaxrl.cli.shards import shard_and_directory
from jaxrl.cli.train import asked
from jaxrl.runtime.options import PlanOptions
from jaxrl.runtime.planning import plan

HEADING = "Say what training {} on {} would take: blocks, parts, memory, time. Nothing is trained or written."
# What begins or shares a run in another way than a plan foresees, and what each is where nobody asks for it.
REFUSED = {
    "shard_environments": False,
    "distributed": False,
    "coordinator": None,
    "num_processes": None,
    "process_id": None,
    "resume": False,
    "start": None,
}


def run_plan(args: Sequence[str]) -> int:
    """Print the plan; nothing is trained.

    Args:
      args: what follows `jaxrl plan`, as `jaxrl train` takes it, but for what goes on with a run or
        shares one between devices.

    Returns:
      The exit status, 0.

    Raises:
      CommandError: an option that a plan has no answer to.
    """
    algo, sweep, seeds, options = asked(args, "plan", HEADING)
    _refuse(options)
    shard, out = shard_and_directory(options.shard, options.out)
    chosen = run_options(PlanOptions, options)
    chosen["shard"] = shard
    planned = plan(
        algo,
        sweep,
        seeds=seeds,
        env_steps=options.env_steps,
        evals=options.evals,
        eval_episodes=options.eval_episodes,
        checkpoints=out is not None and options.checkpoint_minutes > 0,
        **chosen,
    )
    print(planned)
    return 0


def _refuse(options: Any) -> None:
    """Refuses what would change the answer unseen."""
    given = vars(options)
    named = [f"--{name.replace('_', '-')}" for name, default in REFUSED.items() if given[name] != default]
    if named:
        raise CommandError(
            f"plan takes no {', '.join(named)}: it is of runs that begin anew, each on one device; leave that out"
        )
