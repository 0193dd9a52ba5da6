"""Labels of recorded steps: one variable for each array, with named axes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.learning.acting import agents_of
from jaxrl.learning.recording import Recorded
from jaxrl.policies.runs import Runs

if TYPE_CHECKING:
    import xarray

_NAMES = MappingProxyType({"obs": "observation", "next_obs": "next_observation", "mask": "action_mask"})
_OF_EPISODES = ("alive", "terminated", "truncated")  # without the axes of agents
_OF_CHOICES = ("mask", "probability", "q_value")  # whose last axis is that of the actions
_AXES = 4  # of all steps: runs, parameters, environments and steps

FINAL, LENGTH = "final_observation", "length"

__all__ = ["LENGTH", "labelled"]


def labelled(runs: Runs, recorded: Recorded, over: str) -> xarray.Dataset:
    """The dataset of recorded steps.

    Args:
      runs: Runs R, each under E parameters of the environment.
      recorded: Steps `[R, E, N, T, ...]`, on the host.
      over: Name of the axis of length N: "env" with resets, or "episode", whose steps after its end are padding.

    Raises:
      ValueError: An observation of a run that has not failed has a nan.
    """
    import xarray

    _refuse_nan(runs, recorded)
    whole, alive = over == "episode", np.asarray(recorded.alive)
    lengths = alive.sum(axis=3)
    axes = agents_of(runs.env, jax.tree.map(lambda leaf: leaf[0, 0, :, 0], recorded.obs))
    agents = ("agent",) if len(axes) == 1 else tuple(f"agent_{i}" for i in range(len(axes)))
    lead, shape = (*runs.all_dims, over, "step"), (*runs.shape, *alive.shape[2:])
    variables: dict[str, Any] = {}
    for field, tree in recorded._asdict().items():
        own = () if field in _OF_EPISODES else agents
        for path, leaf in jax.tree.leaves_with_path(None if field == "alive" else tree):
            part = "".join(
                f".{name}" for name in jax.tree_util.keystr(path, simple=True, separator=".").split(".") if name
            )
            dims = (*own, *_behind(field, part, leaf.ndim - _AXES - len(own)))
            array = _padded(leaf, alive) if whole else leaf
            variables[_NAMES.get(field, field) + part] = (lead + dims, array.reshape(*shape, *leaf.shape[_AXES:]))
            if whole and field == "next_obs":
                last = np.expand_dims(lengths - 1, tuple(range(lengths.ndim, leaf.ndim)))
                final = np.take_along_axis(leaf, last, axis=3)
                variables[FINAL + part] = (lead[:-1] + dims, final.reshape(*shape[:-1], *leaf.shape[_AXES:]))
    if whole:
        variables[LENGTH] = (lead[:-1], lengths.reshape(shape[:-1]).astype(np.int32))
    places = {over: np.arange(shape[-2]), "step": np.arange(shape[-1])}
    failed = runs.failed.reshape(tuple(runs.dims.values()))
    return xarray.Dataset(variables, {**runs.coords, **places, "failed": (tuple(runs.dims), failed)}, runs.attrs)


def _behind(field: str, part: str, count: int) -> tuple[str, ...]:
    """Names of the axes of one variable behind those of agents; the next observation has those of the observation."""
    if field in _OF_CHOICES:
        return (f"choice{part}",)
    name = _NAMES.get(field, field).removeprefix("next_")
    return tuple(f"{name}{part}_dim_{i}" for i in range(count))


def _padded(leaf: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Steps with nan, 0 or False after the end of an episode."""
    nothing = np.nan if np.issubdtype(leaf.dtype, np.inexact) else 0
    return np.where(np.expand_dims(alive, tuple(range(alive.ndim, leaf.ndim))), leaf, np.asarray(nothing, leaf.dtype))


def _refuse_nan(runs: Runs, recorded: Recorded) -> None:
    bad = np.zeros(np.shape(recorded.alive), bool)
    for leaf in jax.tree.leaves((recorded.obs, recorded.next_obs)):
        if np.issubdtype(leaf.dtype, np.inexact):
            bad |= np.isnan(leaf).reshape(*leaf.shape[:_AXES], -1).any(axis=-1)
    bad &= recorded.alive & ~runs.failed[:, None, None, None]
    if bad.any():
        raise UserValueError(
            f"observations of {runs.env.name} must be numbers, got a nan before or after {int(bad.sum())} steps, first "
            f"at step {int(np.argwhere(bad)[:, -1].min())}."
        )
