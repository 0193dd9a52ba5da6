"""`jaxrl plan`: memory and time of `jaxrl train` with the same arguments."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from jaxrl.cli.options import run_options
from jaxrl.cli.parsing import CommandError
from jaxrl.cli.shards import shard_and_directory
from jaxrl.cli.trackers import tracking_options
from jaxrl.cli.train import asked
from jaxrl.runtime.accelerators.targets import TARGETS, named_target
from jaxrl.runtime.options import PlanOptions
from jaxrl.runtime.plan_call import plan

HEADING = "Estimate memory and time of training {} on {}, and show its blocks and parts. Nothing is written."
# Options that start or distribute a run in a way that a plan does not cover, with their defaults.
REFUSED = {
    "shard_environments": False,
    "distributed": False,
    "coordinator": None,
    "num_processes": None,
    "process_id": None,
    "resume": False,
    "warm_start": None,
}
# Options of `jaxrl train` that the help does not list: the above, and those that are accepted without effect on a plan.
UNLISTED = (
    *REFUSED,
    *("eval_at_start", "force", "trust", "schedules", "join_timeout", "no_progress"),
    *(name for name, *_ in tracking_options()),
)
TARGET: tuple[str, Any, Any] = (
    "for_",
    Annotated[
        str | None,
        tyro.conf.arg(
            name="for",
            help=f"Accelerator to plan for, which this machine need not have: {', '.join(TARGETS)}. Shows the runs "
            "that fit into its memory and a lower bound on the time, from programs compiled for it.",
        ),
    ],
    dataclasses.field(default=None),
)


def run_plan(args: Sequence[str]) -> int:
    """Print the plan; nothing is trained.

    Args:
      args: Arguments after `jaxrl plan`: those of `jaxrl train`, except the options that resume a run or
        distribute one over devices.

    Returns:
      Exit status, 0.

    Raises:
      CommandError: An option is not supported by plans.
      ValueError, ImportError: There is no such accelerator, or its compiler is not installed.
    """
    algo, sweep, options = asked(args, "plan", HEADING, UNLISTED, [TARGET])
    named = [f"--{name.replace('_', '-')}" for name in REFUSED if vars(options)[name] != REFUSED[name]]
    if named:
        raise CommandError(
            f"plan does not take {', '.join(named)}: it covers new runs, each on one device; leave that out"
        )
    if options.for_ is not None:
        named_target(options.for_, "--for")
        if options.devices:
            raise CommandError("--devices has no effect with --for, which plans for another device; leave it out")
    shard, out = shard_and_directory(options.shard, options.out)
    chosen = run_options(PlanOptions, options, "seeds", "env_steps", "evals", "eval_episodes")
    chosen |= {"shard": shard, "checkpoints": out is not None and options.checkpoint_minutes > 0}
    planned = plan(algo, sweep, target=options.for_, **chosen)
    print(planned)
    return 0
