"""Thetas by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envs.errors import UserValueError
from envs.spelling import near_or_all
from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import HParams
from jaxrl.sweeps.distributions import LogUniform, Uniform
from jaxrl.tuning.learned.discount import learned_discount
from jaxrl.tuning.learned.drift import learned_drift
from jaxrl.tuning.learned.numbers import learned_numbers
from jaxrl.tuning.learned.optimiser import learned_optimiser
from jaxrl.tuning.learned.schedules import learned_schedule
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.space import parse_space

EXAMPLES = (
    "discount:mixture or discount:curve, drift (with --config.drift learned), optimiser (with --config.optimiser "
    "learned), schedule:lr, and ranges of hyper-parameters such as lr=log:1e-4:1e-2 and lam=0.8:1; several are learned "
    "together"
)
_KINDS: dict[str, Callable[..., Theta]] = {
    "discount": learned_discount,
    "drift": learned_drift,
    "optimiser": learned_optimiser,
    "schedule": learned_schedule,
}
_ALONE = ("drift", "optimiser")  # kinds without an argument

__all__ = ["EXAMPLES", "joined", "theta_named"]


def theta_named(algo: Algorithm, words: Sequence[str]) -> Theta:
    """Theta of words, such as `["schedule:lr", "lam=0.8:1"]`.

    Args:
      algo: Algorithm.
      words: Kinds, each with its argument after a colon, and ranges `PATH=RANGE` as in `jaxrl search --space`.

    Raises:
      ValueError: There are no words, a word names no theta, or the theta does not fit the algorithm.
    """
    if not words:
        raise UserValueError(f"--theta takes names of numbers to learn, such as {EXAMPLES}; got nothing")
    _refuse_overlap(words)
    thetas = [_of_kind(algo, word) for word in words if "=" not in word]
    if ranges := [word for word in words if "=" in word]:
        space = parse_space(ranges, "--theta", "PATH", "lr=log:1e-4:1e-2")
        for path, values in space.items():
            if not isinstance(values, Uniform | LogUniform):
                raise UserValueError(
                    f"--theta takes ranges, such as {path}=1e-4:1e-2 or {path}=log:1e-4:1e-2, got {values}"
                )
        thetas.append(learned_numbers(algo, space))  # pyright: ignore[reportArgumentType]
    return joined(thetas)


def joined(thetas: Sequence[Theta]) -> Theta:
    """Several thetas as one, a dictionary by their names; a single one as it is.

    Raises:
      ValueError: Two have one name.
    """
    if len(thetas) == 1:
        return thetas[0]
    names = [theta.name for theta in thetas]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserValueError(f"--theta takes each theta once, got {twice[0]} twice")

    def apply(theta: Any, hparams: HParams) -> HParams:
        for each in thetas:
            hparams = each.apply(theta[each.name], hparams)
        return hparams

    return Theta(" + ".join(names), {theta.name: theta.initial for theta in thetas}, apply)


def _refuse_overlap(words: Sequence[str]) -> None:
    """Reject two thetas for one hyper-parameter."""
    fields = []
    for word in words:
        kind, _, argument = word.partition("=")[0].partition(":")
        fields.append((argument if kind == "schedule" else kind).partition(".")[0])
    if twice := [field for i, field in enumerate(fields) if field in fields[:i]]:
        paths = [word.partition("=")[0] for word, field in zip(words, fields, strict=True) if field == twice[0]]
        if all("=" in word for word in words) and len(set(paths)) == len(paths):
            return  # two parameters of a discount
        raise UserValueError(f"--theta takes one theta for each hyper-parameter, got {' and '.join(paths)}")


def _of_kind(algo: Algorithm, word: str) -> Theta:
    kind, colon, argument = word.partition(":")
    if kind not in _KINDS:
        raise UserValueError(f"--theta takes {EXAMPLES}; there is no theta {kind!r}{near_or_all(kind, _KINDS)}")
    if (kind in _ALONE and colon) or (kind == "schedule" and not argument):
        form = kind if kind in _ALONE else "schedule:NAME, such as schedule:lr"
        raise UserValueError(f"--theta takes {form}, got {word}")
    return _KINDS[kind](algo, *([argument] if argument else []))
