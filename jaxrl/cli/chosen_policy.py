"""Choice of one policy of a run directory by the options `--at` and `--seed`."""

from collections.abc import Sequence
from pathlib import Path

from envs.terminal import printable
from jaxrl.cli.parsing import CommandError
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.sweeps.choosing import listed, values_of


def chosen_policy(run: Path, result: Result, at: Sequence[str], seed: int | None, kept: str = "last") -> TrainedPolicy:
    """One policy of a result.

    Args:
      run: Directory of the result, for messages.
      result: Loaded result.
      at: Coordinates of the setting, each `NAME=VALUE`; needed if there are several settings.
      seed: Seed of the run; the first one if None.
      kept: Policy of the run, "last" or "best".

    Raises:
      CommandError: No setting is named, or a coordinate is named twice or is not of the form NAME=VALUE.
      ResultError: There is no such run.
    """
    coords = _coordinates(at)
    settings = result.settings
    if len(settings) > 1 and not coords:
        choices = "; ".join(f"{path} of {listed(values_of(settings, path))}" for path in settings[0])
        raise CommandError(f"{run} has {len(settings)} settings: choose one by --at NAME=VALUE, {choices}")
    return result.policy(seed=result.seeds[0] if seed is None else seed, kept=kept, **coords)


def named_run(policy: TrainedPolicy, kept: str = "last") -> str:
    """Name of the run of a policy, such as `lr 0.001, seed 3`, and the step of the best one."""
    setting = (f"{name} {value}" for name, value in policy.setting.items())
    parts = [*setting, f"seed {policy.seed}"]
    if kept == "best":
        after = "" if policy.env_steps is None else f" after {policy.env_steps:,} environment steps"
        parts.append(f"best{after}")
    return printable(", ".join(parts))


def _coordinates(at: Sequence[str]) -> dict[str, str]:
    coords: dict[str, str] = {}
    for text in at:
        name, separator, value = text.partition("=")
        if not separator:
            raise CommandError(f"--at takes NAME=VALUE, such as lr=1e-3, but got {text!r}")
        if name in coords:
            raise CommandError(f"--at has {name} twice, {coords[name]} and {value}")
        coords[name] = value
    return coords
