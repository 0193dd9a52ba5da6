"""Which policy of a run directory the options `--at` and `--seed` name."""

from collections.abc import Sequence
from pathlib import Path

from jaxrl.cli.parsing import CommandError
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.sweeps.choosing import listed, values_of

__all__ = ["chosen_policy", "named_run"]


def chosen_policy(run: Path, result: Result, at: Sequence[str], seed: int | None) -> TrainedPolicy:
    """One policy of a result.

    Args:
      run: the result's directory, for the sentences.
      result: as loaded.
      at: which setting, `NAME=VALUE` each; needed where there are several.
      seed: whose; the first seed's if None.

    Raises:
      CommandError: no setting is named, or not as NAME=VALUE.
      ResultError: there is no such run.
    """
    coords = dict(_coordinate(text) for text in at)
    settings = result.settings
    if len(settings) > 1 and not coords:
        choices = "; ".join(f"{path} of {listed(values_of(settings, path))}" for path in settings[0])
        raise CommandError(f"{run} has {len(settings)} settings: choose one by --at NAME=VALUE, {choices}")
    return result.policy(seed=result.seeds[0] if seed is None else seed, **coords)


def named_run(policy: TrainedPolicy) -> str:
    """Which run a policy is of, such as `lr 0.001, seed 3`."""
    return ", ".join([*(f"{name} {value}" for name, value in policy.setting.items()), f"seed {policy.seed}"])


def _coordinate(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise CommandError(f"--at takes NAME=VALUE, such as lr=1e-3, but got {text!r}")
    return name, value
