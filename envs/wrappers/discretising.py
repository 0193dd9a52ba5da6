"""Continuous actions as choices among a few values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from envs import base
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import Action, Params, State
from envs.wrappers.wrapper import Wrapper, whole_number

__all__ = ["DiscretiseActions", "discretise_actions"]


def discretise_actions(env: base.Environment, bins: int | Sequence[int]) -> base.Environment:
    """An environment in which each number of an action has a few values, evenly spaced between its bounds.

    Args:
      env: Environment whose action is a `Box` with finite bounds.
      bins: Number of values, at least 2, for all numbers of an action or for each.

    Returns:
      An environment whose action is a `Discrete` where that of `env` is one number, and a `Tuple`
      of them otherwise. 0 is the lower bound, the last value the upper one.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: Its action is not a `Box` with finite bounds, or `bins` does not fit it.
    """
    if not isinstance(bins, Sequence | np.ndarray):
        return DiscretiseActions(env, whole_number("discretise_actions", "bins", bins, least=2))
    return DiscretiseActions(env, tuple(whole_number("discretise_actions", "bins", each, least=2) for each in bins))


@dataclass(frozen=True)
class DiscretiseActions(Wrapper):
    """The class returned by `discretise_actions`.

    Attributes:
      inner: Environment that takes any numbers within bounds.
      bins: Number of values of each number, one count for all or one for each.
    """

    bins: int | tuple[int, ...]
    made_by: ClassVar[str] = "discretise_actions"
    keeps_returns: ClassVar[bool] = True
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.inner.action_space(self.inner.default_params)
        if not isinstance(space, spaces.Box) or not np.all(np.isfinite([np.min(space.low), np.max(space.high)])):
            raise UserValueError(
                f"discretise_actions takes an environment whose action is a Box with finite bounds; that of "
                f"{self.inner.name} is {space!r}."
            )
        numbers = int(np.prod(space.shape))
        if isinstance(self.bins, tuple) and len(self.bins) != numbers:
            raise UserValueError(
                f"bins of discretise_actions has {len(self.bins)} counts; an action of {self.inner.name} has {numbers} "
                "numbers."
            )
        for count in self.bins if isinstance(self.bins, tuple) else (self.bins,):
            whole_number(self.made_by, "bins", count, least=2)

    @property
    def num_actions(self) -> int:
        """The number of values of a single number; TypeError where there are several numbers."""
        return super(Wrapper, self).num_actions  # the wrapped environment has its own count

    def action_space(self, params: Params = None) -> spaces.Space:
        """A choice for each number."""
        del params
        parts = [spaces.Discrete(count) for count in self._counts]
        return parts[0] if len(parts) == 1 else spaces.Tuple(parts)

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step with the chosen numbers."""
        space = self.inner.action_space(params)
        chosen = jnp.stack(action if isinstance(action, tuple) else (action,), axis=-1)
        share = chosen / (jnp.asarray(self._counts, jnp.float32) - 1)
        share = share.reshape(*share.shape[:-1], *space.shape)
        numbers = space.low * (1 - share) + space.high * share  # exact at both bounds
        if not jnp.issubdtype(space.dtype, jnp.floating):
            numbers = jnp.round(numbers)
        return self.inner.step_env(key, state, numbers.astype(space.dtype), params)

    @property
    def _counts(self) -> tuple[int, ...]:
        if isinstance(self.bins, tuple):
            return self.bins
        return (self.bins,) * int(np.prod(self.inner.action_space(self.inner.default_params).shape))
