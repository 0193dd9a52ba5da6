"""The two words before the options: an algorithm and an environment."""

import itertools
from collections.abc import Callable, Sequence

from jaxrl.algorithms import registry as algorithms
from jaxrl.cli.parsing import CommandError
from jaxrl.presets import registry as presets


def algorithm_and_environment(
    args: Sequence[str], command: str, show_help: Callable[[str, str, str], object]
) -> tuple[str, str]:
    """Algorithm and environment from the beginning of the arguments.

    If one is missing and help is requested, shows the help of the algorithm, PPO if missing or unknown, on the first
    environment for which it has a preset.

    Args:
      args: Arguments after the command.
      command: Name of the command.
      show_help: Function of algorithm, environment and program that prints their help and exits.

    Raises:
      CommandError: The algorithm or the environment is missing.
    """
    named = list(itertools.takewhile(lambda arg: not arg.startswith("-"), args[:2]))
    if len(named) == 2:
        return named[0], named[1]
    algorithm = named[0] if named and named[0] in algorithms.ROWS else "ppo"
    environment = next((task for name, task in presets.names() if name == algorithm), "cartpole")
    if {"-h", "--help"} & set(args):
        print(
            "The algorithm and the environment come first (see jaxrl algorithms and jaxrl envs); the options below are "
            f"those of: jaxrl {command} {algorithm} {environment}\n"
        )
        show_help(algorithm, environment, f"jaxrl {command} ALGORITHM ENVIRONMENT")
    raise CommandError(
        f"{command} takes an algorithm and an environment first, such as: jaxrl {command} {algorithm} {environment}"
    )
