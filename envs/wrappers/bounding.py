"""Bounds of continuous actions that have none."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from envs import base
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import Action, Params, State
from envs.wrappers.wrapper import Wrapper, number

__all__ = ["BoundActions", "bound_actions"]


def bound_actions(env: base.Environment, bound: float) -> base.Environment:
    """An environment whose actions lie within bounds, for algorithms that need them, such as SAC and TD3.

    Args:
      env: Environment whose action is a `Box` of real numbers.
      bound: Largest absolute value of each number of an action, above 0. A crowd squashes its actions by tanh, so that
        3 leaves it 99.5 % of its range.

    Returns:
      An environment that clips actions to [-bound, bound], and to the bounds of `env` where those are narrower.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: Its action is not a `Box` of real numbers, or `bound` is not a finite number above 0 that leaves each
        number of an action a range.
    """
    return BoundActions(env, number("bound_actions", "bound", bound))


@dataclass(frozen=True)
class BoundActions(Wrapper):
    """The class returned by `bound_actions`.

    Attributes:
      inner: Environment that takes real numbers.
      bound: Largest absolute value of each number of an action.
    """

    bound: float  # pyright: ignore[reportIncompatibleMethodOverride] -- hides the bound of the returns
    made_by: ClassVar[str] = "bound_actions"
    keeps_returns: ClassVar[bool] = True
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.inner.action_space(self.inner.default_params)
        if not isinstance(space, spaces.Box) or not jnp.issubdtype(space.dtype, jnp.floating):
            raise UserValueError(
                f"bound_actions takes an environment whose action is a Box of real numbers; that of {self.inner.name} "
                f"is {space!r}."
            )
        least = max(0.0, float(np.max(space.low)), -float(np.min(space.high)))
        if not least < self.bound < np.finfo(np.float32).max:
            raise UserValueError(
                f"bound of bound_actions is {self.bound:g}; it takes a finite number above {least:g} for "
                f"{self.inner.name}."
            )

    def action_space(self, params: Params = None) -> spaces.Box:
        """The inner environment's, within the bounds."""
        space = super().action_space(params)
        assert isinstance(space, spaces.Box)
        low, high = jnp.maximum(space.low, -self.bound), jnp.minimum(space.high, self.bound)
        return spaces.Box(low, high, space.shape, space.dtype)

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step with the action clipped to the bounds."""
        return super().step_env(key, state, jnp.clip(action, -self.bound, self.bound), params)
