"""The settings with which the options of `jaxrl train` and `jaxrl search` start: a preset, or the defaults."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tyro

from jaxrl.cli.dataclass_options import option
from jaxrl.cli.parsing import CommandError, option_words
from jaxrl.presets import registry as presets
from jaxrl.presets.preset import Preset

__all__ = ["beginning", "preset_of", "starting_options"]


def starting_options() -> list[tuple[str, Any, dataclasses.Field[Any]]]:
    """The options that select the settings, for the class of a command's options."""
    return [
        option("no_preset", tyro.conf.FlagCreatePairsOff[bool], False, "Flag to start from defaults, not the preset."),
        option(
            "tuned",
            str | None,
            None,
            "Name of tuned settings in place of the preset: careful for a crowd that avoids contacts, or frame and "
            "dynamics of a crowd.",
        ),
    ]


def preset_of(algorithm: str, environment: str, args: Sequence[str]) -> Preset | None:
    """The preset with which the options start: the one that `--tuned` names, or else the usual one.

    Args:
      algorithm: Name of the algorithm.
      environment: Name of the environment, or its id in Gymnasium.
      args: Options; without a preset under `--no-preset`, whose result is None.

    Raises:
      CommandError: There are `--no-preset` and `--tuned`.
      ValueError: There are no tuned settings of that name.
    """
    name = next(iter(option_words(args, "tuned") or ()), None)  # no value is reported where all options are parsed
    if option_words(args, "no_preset") is not None:
        if name is not None:
            raise CommandError(f"--no-preset starts from defaults, so that --tuned {name} has no effect; leave out one")
        return None
    return presets.find(algorithm, environment) if name is None else presets.preset(algorithm, environment, tuned=name)


def beginning(
    algorithm: str, environment: str, preset: Preset | None, args: Sequence[str], env_steps: int
) -> str | None:
    """Sentences on the preset and the number of environment steps, so far as `args` leave them to defaults."""
    is_default = option_words(args, "env_steps") is None
    steps = f"Each run takes {env_steps:,} environment steps (--env-steps changes this)." if is_default else ""
    if preset is None:
        return steps or None
    tuned = option_words(args, "tuned")
    which = "preset" if tuned is None else f"tuned settings {tuned[0]!r}"
    start = f"Starting from the {which} for {algorithm} on {environment} (--no-preset starts from the defaults)."
    return f"{start} {steps}".rstrip()
