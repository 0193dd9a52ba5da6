"""A lock with dials: an action chooses the position of each, and is paid if all of them are right."""

from dataclasses import dataclass
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from envs.base import Environment, EnvParams, EnvState, spaces
from envs.choices import MultiDiscrete

LIMIT = 4  # of time, in steps, which is the highest return


@flax.struct.dataclass
class LockParams(EnvParams):
    """Parameters of the task.

    Attributes:
      max_steps_in_episode: Time limit, int.
    """

    max_steps_in_episode: jax.Array | int = LIMIT


@flax.struct.dataclass
class LockState(EnvState):
    """The task.

    Attributes:
      time: int32 `[]`.
      shown: Digit of each dial, int32 `[dials]`.
    """

    time: jax.Array
    shown: jax.Array


@dataclass(frozen=True)
class Lock(Environment):
    """Digits are drawn at every step, and the right position of dial i is its digit plus i, modulo its positions.

    Attributes:
      sizes: Number of positions of each dial.
      kind: Form of actions: "tuple" of `Discrete` spaces, "multi", a `MultiDiscrete` that counts from 1, or "dict" of
        the dials "c", "b", "a", ..., whose sorted order is the opposite.
      masked: Whether one wrong position of each dial is forbidden.
    """

    sizes: tuple[int, ...] = (3, 3, 3)
    kind: Literal["tuple", "multi", "dict"] = "tuple"
    masked: bool = False

    @property
    def name(self) -> str:
        """A name for messages."""
        return "lock"

    @property
    def default_params(self) -> LockParams:
        """Default parameters."""
        return LockParams()

    def reset_env(self, key: jax.Array, params: LockParams) -> tuple[jax.Array, LockState]:
        """A new episode."""
        del params
        state = LockState(jnp.zeros((), jnp.int32), self._drawn(key))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: LockState, action: Any, params: LockParams
    ) -> tuple[jax.Array, LockState, jax.Array, jax.Array, dict[Any, Any]]:
        """One try."""
        del params
        right = jnp.all(self.positions(action) == self.right(state))
        state = LockState(state.time + 1, self._drawn(key))
        return self._observe(state), state, right.astype(jnp.float32), jnp.bool_(False), {}

    def positions(self, action: Any) -> jax.Array:
        """Positions of the dials from 0, int32 `[*B, dials]`, of actions."""
        if self.kind == "multi":
            return action - 1
        parts = [action[name] for name in self._names] if self.kind == "dict" else action
        return jnp.stack(parts, axis=-1)

    def right(self, state: LockState) -> jax.Array:
        """Right positions, int32 `[dials]`."""
        return (state.shown + jnp.arange(len(self.sizes))) % jnp.array(self.sizes)

    def is_truncated(self, state: LockState, params: LockParams) -> jax.Array:
        """Whether time is up."""
        return state.time >= params.max_steps_in_episode

    def action_mask(self, state: LockState, params: LockParams) -> Any:
        """All positions but the one after the right one."""
        del params
        if not self.masked:
            return None
        masks = [
            jnp.arange(size) != (right + 1) % size for size, right in zip(self.sizes, self.right(state), strict=True)
        ]
        return dict(zip(self._names, masks, strict=True)) if self.kind == "dict" else tuple(masks)

    def action_space(self, params: LockParams | None = None) -> Any:
        """Positions of all dials."""
        del params
        if self.kind == "multi":
            return MultiDiscrete(self.sizes, 1)
        dials = [spaces.Discrete(size) for size in self.sizes]
        return spaces.Dict(dict(zip(self._names, dials, strict=True))) if self.kind == "dict" else spaces.Tuple(dials)

    def observation_space(self, params: LockParams | None = None) -> spaces.Box:
        """One-hot vectors of the digits."""
        del params
        return spaces.Box(0.0, 1.0, (sum(self.sizes),), jnp.float32)

    @property
    def _names(self) -> list[str]:
        return [chr(ord("a") + i) for i in reversed(range(len(self.sizes)))]

    def _drawn(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (len(self.sizes),), 0, jnp.array(self.sizes))

    def _observe(self, state: LockState) -> jax.Array:
        digits = [jax.nn.one_hot(state.shown[i], size) for i, size in enumerate(self.sizes)]
        return jnp.concatenate(digits)
