"""`jaxrl plan`: what `jaxrl train` with the same arguments would take."""

from collections.abc import Sequence

from jaxrl.command_train import asked
from jaxrl.planning import plan


def run_plan(args: Sequence[str]) -> int:
    """Print the plan; nothing is trained.

    Args:
      args: what follows `jaxrl plan`, as `jaxrl train` takes it.

    Returns:
      The exit status, 0.
    """
    algo, sweep, seeds, options = asked(args, "plan")
    planned = plan(
        algo,
        sweep,
        seeds=seeds,
        env_steps=options.env_steps,
        evals=options.evals,
        eval_episodes=options.eval_episodes,
        block=options.block,
        devices=options.devices or None,
        memory=options.memory,
        checkpoints=options.out is not None,
        precision=options.precision,
    )
    print(planned)
    return 0
