"""Arms whose values change abruptly, and are constant in between."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.bandits.base import BanditState, fresh
from envs.bandits.checking import agreed, check_number, instance_array, leaf, numbers
from envs.bandits.nonstationary import Changing, ChangingParams
from envs.errors import UserValueError

__all__ = ["PiecewiseBandit", "PiecewiseParams"]


@struct.dataclass
class PiecewiseParams(ChangingParams):
    """The rate at which all values are redrawn, uniformly between `low` and `high`; or the pieces themselves.

    Attributes:
      change: Probability of a change between two pulls, in [0, 1].
      means: Values of each piece, float32 `[P, K]`; None draws them.
      starts: Index of the pull with which each piece starts, int32 `[P]`, the first 0; required with `means`.
    """

    change: float = 0.001
    means: Any = None
    starts: Any = None

    def __post_init__(self) -> None:
        ChangingParams.__post_init__(self)
        check_number("change", self.change, 0.0, 1.0, "[]")
        check_number("means", self.means)
        if (self.means is None) != (self.starts is None):
            raise UserValueError("means and starts must be given together, got only one of them")
        starts = self.starts
        if isinstance(starts, np.ndarray) and starts.dtype.kind in "fiu":
            rising = np.all(starts[..., :1] == 0) and np.all(np.diff(starts, axis=-1) > 0)
            if not rising or starts.dtype.kind == "f":
                raise UserValueError(f"starts must be whole numbers that increase from 0, got {starts}")


@dataclasses.dataclass(frozen=True)
class PiecewiseBandit(Changing):
    """All values are redrawn at unannounced times, and are constant in between.

    Times between changes are geometric with the mean `1 / change`, unless the pieces are given.

    Args:
      num_arms: Number of arms, K.
      rewards: Kind of rewards: "bernoulli" for 0 and 1, or "gaussian" for normal noise.
      means: Values of the pieces `[P, K]`, in place of draws; num_arms is then omitted.
      starts: Index of the pull with which each piece starts, `[P]`, the first 0.

    Raises:
      ValueError: There are fewer than two arms, `rewards` has another value, or the pieces are not as above.

    Source: Garivier and Moulines (2011), "On upper-confidence bound policies for switching
    bandit problems"; the changes of Mellor and Shapiro (2013).
    """

    means: tuple[tuple[float, ...], ...] | None = None
    starts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.means is not None:
            if not isinstance(self.means, Sequence | np.ndarray):
                raise UserValueError(f"means must have a row for every piece, got {self.means!r}")
            object.__setattr__(self, "means", tuple(numbers("means", piece) for piece in self.means))
            arms = len(self.means[0]) if self.means else 0
            object.__setattr__(self, "num_arms", agreed("num_arms", self.num_arms, arms, "each piece of means"))
        if self.starts is not None:
            if np.ndim(self.starts) != 1:
                raise UserValueError(f"starts must be whole numbers that increase from 0, got {self.starts!r}")
            object.__setattr__(self, "starts", tuple(np.asarray(self.starts).tolist()))
        super().__post_init__()
        if self.means is not None and len({len(piece) for piece in self.means}) > 1:
            raise UserValueError(f"means must have a number for each arm in every piece, got {self.means}")
        if self.means is not None and self.starts is not None and len(self.means) != len(self.starts):
            raise UserValueError(
                f"starts must have one number for each piece of means, got {len(self.starts)} for {len(self.means)}"
            )
        _ = self.default_params

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/piecewise"

    @property
    def default_params(self) -> PiecewiseParams:
        """A change in a thousand pulls, or the given pieces."""
        return PiecewiseParams(means=leaf(self.means), starts=None if self.starts is None else np.asarray(self.starts))

    def instance(self, key: jax.Array, params: PiecewiseParams) -> BanditState:
        """The first piece, as given or drawn."""
        if params.means is None:
            return BanditState(**fresh(self.true_values(self.draw(key, params))))
        return BanditState(**fresh(self._piece(jnp.zeros((), jnp.int32), params)))

    def drift(self, key: jax.Array, state: BanditState, action: jax.Array, params: PiecewiseParams) -> BanditState:
        """The piece of the next pull."""
        del action
        if params.means is not None:
            return dataclasses.replace(state, values=self._piece(state.time, params))
        change_key, values_key = jax.random.split(key)
        changes = jax.random.uniform(change_key) < params.change
        others = self.true_values(self.draw(values_key, params))
        return dataclasses.replace(state, values=jnp.where(changes, others, state.values))

    def _piece(self, time: jax.Array, params: PiecewiseParams) -> jax.Array:
        starts = jnp.asarray(params.starts, jnp.int32)
        means = instance_array("means", params.means, (*starts.shape, self.num_arms))
        return self.true_values(means[jnp.sum(time >= starts) - 1])
