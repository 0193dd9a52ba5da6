"""The settings with which the options of `jaxrl train` and `jaxrl sweep` start: a preset, or the defaults."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tyro

from jaxrl.cli.dataclass_options import option
from jaxrl.cli.parsing import CommandError
from jaxrl.presets import registry as presets
from jaxrl.presets.preset import Preset

__all__ = ["beginning", "preset_of", "starting_options"]

NO_PRESET = ("--no-preset", "--no_preset")


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
    name = _tuned(args)
    if set(NO_PRESET) & set(args):
        if name is not None:
            raise CommandError(f"--no-preset starts from defaults, so that --tuned {name} has no effect; leave out one")
        return None
    return presets.find(algorithm, environment) if name is None else presets.preset(algorithm, environment, tuned=name)


def beginning(
    algorithm: str, environment: str, preset: Preset | None, args: Sequence[str], env_steps: int
) -> str | None:
    """Sentences on the preset and the number of environment steps, so far as `args` leave them to defaults."""
    is_default = not {"--env-steps", "--env_steps"} & {arg.partition("=")[0] for arg in args}
    steps = f"Each run takes {env_steps:,} environment steps (--env-steps changes this)." if is_default else ""
    if preset is None:
        return steps or None
    name = _tuned(args)
    which = "preset" if name is None else f"tuned settings {name!r}"
    start = f"Starting from the {which} for {algorithm} on {environment} (--no-preset starts from the defaults)."
    return f"{start} {steps}".rstrip()


def _tuned(args: Sequence[str]) -> str | None:
    """The value of `--tuned`, None without one; its absence is reported where all options are parsed."""
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--tuned":
            return value if equals else next(words, None)
    return None
