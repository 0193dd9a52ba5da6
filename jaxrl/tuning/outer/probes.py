"""Probes of theta: small changes of its numbers, and their effect on the hyper-parameters of an algorithm."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import HParams, PyTree
from jaxrl.tuning.learned.theta import Theta

PROBE = 0.25  # change of the numbers of theta by which their effect is seen
MOST_PROBED = 256  # numbers of a leaf that are probed one by one; those of larger leaves are probed together

__all__ = ["PROBE", "Probe", "digest", "outside_ranges", "probes", "require_effect", "strong"]


def require_effect(theta: Theta, algo: Algorithm) -> None:
    """Reject a theta with numbers that leave the prepared hyper-parameters of an algorithm as they are.

    Raises:
      TypeError: `apply` does not return hyper-parameters of the algorithm.
      ValueError: A number of theta has no effect, or theta has no numbers.
    """
    leaves, structure = jax.tree.flatten(theta.initial)
    if not leaves or not any(map(np.size, leaves)):
        raise UserValueError(f"theta {theta.name!r} has no numbers to learn: its initial is {theta.initial!r}")
    values = [np.asarray(leaf, np.float32) for leaf in leaves]
    if not all(np.isfinite(value).all() for value in values):
        raise UserValueError(f"theta {theta.name!r} must start at finite numbers, got {theta.initial!r}")
    before = _prepared(theta, algo, structure.unflatten(values))
    for probe in probes(theta, alone=True):
        effects = [_effect(theta, algo, before, moved) for moved in probe.thetas]
        if True in effects:
            continue
        if errors := [effect for effect in effects if isinstance(effect, UserValueError)]:
            raise UserValueError(
                f"theta {theta.name!r} must lead to hyper-parameters of {algo.name} within their ranges, but a change "
                f"of {probe.numbers} by {PROBE} does not: {errors[0]}"
            ) from errors[0]
        raise UserValueError(
            f"theta {theta.name!r} must change hyper-parameters of {algo.name} on {algo.env.name} by each of "
            f"its numbers, but {probe.numbers} changes none"
        )


def outside_ranges(algo: Algorithm, hparams: HParams) -> tuple[np.ndarray, UserValueError | None]:
    """Settings of hyper-parameters that an algorithm refuses, such as for their ranges.

    Args:
      algo: Algorithm.
      hparams: Hyper-parameters, leaves `[N, ...]`.

    Returns:
      Whether each setting is refused, bool `[N]`, and the error of the first one; None if there is none.
    """
    hparams = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), hparams)
    outside = np.zeros(len(jax.tree.leaves(hparams)[0]), bool)

    def search(begin: int, end: int) -> UserValueError | None:
        """Mark refused settings from `begin` to `end`, by halves."""
        try:
            algo.prepare(jax.tree.map(lambda leaf: leaf[begin:end], hparams), end - begin, algo.env_steps_per_iteration)
        except UserValueError as error:
            if end - begin == 1:
                outside[begin] = True
                return error
            middle = (begin + end) // 2
            return next((each for each in (search(begin, middle), search(middle, end)) if each is not None), error)
        return None

    error = search(0, len(outside))
    return outside, error if outside.any() else None


def digest(tree: PyTree) -> str:
    """Checksum of the structure and the float32 leaves of a pytree."""
    leaves, structure = jax.tree.flatten(tree)
    data = b"".join(np.asarray(leaf, np.float32).tobytes() for leaf in leaves)
    return hashlib.sha256(str(structure).encode() + data).hexdigest()


class Probe(NamedTuple):
    """Thetas on both sides of the start, since a number may be at the end of a range, and which numbers they move."""

    numbers: str
    thetas: tuple[Any, Any]


def probes(theta: Theta, alone: bool) -> Iterator[Probe]:
    """Probes of each leaf of theta: of all its numbers by different steps, or of one number after the other.

    Args:
      theta: Theta.
      alone: Whether numbers are moved one by one, in leaves of at most `MOST_PROBED`.
    """
    leaves, structure = jax.tree.flatten_with_path(theta.initial)
    values = [np.asarray(leaf, np.float32) for _, leaf in leaves]
    for i, ((path, _), value) in enumerate(zip(leaves, values, strict=True)):
        where, singly = jax.tree_util.keystr(path), alone and value.size <= MOST_PROBED
        places = np.eye(value.size) if singly else [np.arange(1, value.size + 1) / max(value.size, 1)]
        for at, place in enumerate(places):
            step = np.float32(PROBE * place).reshape(value.shape)
            index = [int(each) for each in np.unravel_index(at, value.shape)] if singly and value.ndim else ""
            moved = (structure.unflatten([*values[:i], value + sign * step, *values[i + 1 :]]) for sign in (1, -1))
            yield Probe(f"{where}{index}" or "its number", tuple(moved))


def _effect(theta: Theta, algo: Algorithm, before: list[np.ndarray], moved: PyTree) -> bool | UserValueError:
    """Whether another theta changes prepared hyper-parameters, or the error with which they are refused."""
    try:
        return not _equal(before, _prepared(theta, algo, moved))
    except UserValueError as error:
        return error


def _prepared(theta: Theta, algo: Algorithm, value: PyTree) -> list[np.ndarray]:
    """Leaves of the hyper-parameters under a theta, as the programs of an algorithm take them."""
    hparams = theta.apply(value, strong(algo.hparams))
    if type(hparams) is not type(algo.hparams):
        raise UserTypeError(
            f"theta {theta.name!r} must return hyper-parameters of {algo.name}, {type(algo.hparams).__name__}, got "
            f"{type(hparams).__name__}"
        )
    batched = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], hparams)
    prepared = algo.prepare(batched, 1, algo.env_steps_per_iteration)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(prepared)]


def strong(hparams: HParams) -> HParams:
    """Hyper-parameters with the numbers as float32 arrays, as a training takes them."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hparams)


def _equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
