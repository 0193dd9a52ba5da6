"""An environment that shows its last action, and a rollout of any environment step by step."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.base import spaces

RESET = jax.random.key(99)
LOW, HIGH = (-1.0, 0.5), (1.0, 4.5)


@struct.dataclass
class EchoState(base.EnvState):
    """Steps taken, and the action that was taken last, `[*A, 2]`."""

    time: jax.Array
    action: jax.Array


@struct.dataclass
class EchoParams(base.EnvParams):
    """The reward is `pay` times the sum of the action."""

    pay: jax.Array | float = 1.0
    max_steps_in_episode: jax.Array | int = 100


@dataclass(frozen=True)
class Echo(base.Environment):
    """Shows the action that was taken last, two numbers from `LOW` to `HIGH`; it never terminates."""

    agents: tuple[int, ...] = ()

    @property
    def default_params(self) -> EchoParams:
        return EchoParams()

    def reset_env(self, key: jax.Array, params: EchoParams) -> tuple[jax.Array, EchoState]:
        del key, params
        state = EchoState(jnp.zeros((), jnp.int32), jnp.zeros((*self.agents, 2)))
        return state.action, state

    def step_env(
        self, key: jax.Array, state: EchoState, action: jax.Array, params: EchoParams
    ) -> tuple[jax.Array, EchoState, jax.Array, jax.Array, dict[Any, Any]]:
        del key
        reward = jnp.asarray(params.pay, jnp.float32) * jnp.sum(action, axis=-1)
        return action, EchoState(state.time + 1, action), reward, jnp.zeros((), bool), {}

    def action_space(self, params: EchoParams | None = None) -> spaces.Box:
        del params
        return spaces.Box(jnp.array(LOW), jnp.array(HIGH), (2,))

    def observation_space(self, params: EchoParams | None = None) -> spaces.Box:
        del params
        return spaces.Box(-1.0, 4.5, (2,))


class Played(NamedTuple):
    """An episode without an end: `first` observation and state, and leaves `[T, ...]` of the steps."""

    first: Any
    obs: Any
    state: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Any


def play(env: base.Environment, keys: jax.Array, actions: Any, params: Any = None) -> Played:
    """Every action in turn, with the keys `[T]`, after a reset with `RESET`."""
    params = env.default_params if params is None else params

    def body(state: Any, step: Any) -> Any:
        obs, state, reward, terminated, info = env.step_env(step[0], state, step[1], params)
        return state, (obs, state, reward, terminated, env.is_truncated(state, params), info)

    def run(keys: jax.Array, actions: Any) -> Any:
        first = env.reset_env(RESET, params)
        return first, jax.lax.scan(body, first[1], (keys, actions))[1]

    first, steps = jax.jit(run)(keys, actions)
    return Played(first, *steps)


def keys(count: int, seed: int = 0) -> jax.Array:
    """Independent random keys."""
    return jax.random.split(jax.random.key(seed), count)


def equal(one: Any, other: Any) -> None:
    """Whether two trees are equal bit for bit, with the same leaves."""
    assert len(jax.tree.leaves(one)) == len(jax.tree.leaves(other)) > 0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
