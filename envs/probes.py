"""Tiny environments whose optimal values are known in closed form, for tests of algorithms.

Under the best actions each probe is a short deterministic chain of states, or one state drawn
at random. `observations()` lists its states as the agent sees them, `values(curve, lam)` the
value that a learner must reach at each, `best_actions()` the actions that reach it (None where
actions do not matter). A failure on one probe but not on the previous one locates the fault.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_flag
from envs.base import spaces
from envs.errors import UserValueError


def chain_values(rewards: np.ndarray, curve: np.ndarray, lam: float = 1.0, *, truncated: bool = False) -> np.ndarray:
    """Values along a chain of states from its first state to its last.

    The value of a state is the one to which a critic converges when it regresses on lambda-returns: the
    solution of the linear equations V_i = sum_l lam^l Gamma(l) r_{i+l} + (1 - lam) sum_l lam^l
    Gamma(l + 1) V_{i+l+1}, where an episode's last step bootstraps in full. With lam = 1, or
    an exponential Gamma and any lam, and a chain that terminates, this is the discounted sum of
    rewards, with the clock restarted at each state.

    Args:
      rewards: Reward of the step out of each state, `[n]`.
      curve: Discount curve, `[>= n + 1]`, Gamma(0) = 1, Gamma(1), ...
      lam: Parameter of the lambda-return.
      truncated: Whether the last step returns to the first state and is at the time limit, so that
        its return bootstraps from there; otherwise it terminates.

    Returns:
      float64 `[n]`.
    """
    check_flag("truncated", truncated)
    rewards, curve = np.asarray(rewards, np.float64), np.asarray(curve, np.float64)
    size = len(rewards)
    if len(curve) < size + 1:
        raise UserValueError(f"curve has {len(curve)} entries; a chain of {size} states needs at least {size + 1}.")
    constant, weight = np.zeros(size), np.zeros((size, size))
    for start in range(size):
        for lag, state in enumerate(range(start, size)):
            constant[start] += lam**lag * curve[lag] * rewards[state]
            if state + 1 < size:
                weight[start, state + 1] += (1 - lam) * lam**lag * curve[lag + 1]
            elif truncated:
                weight[start, 0] += lam**lag * curve[lag + 1]
    return np.linalg.solve(np.eye(size) - weight, constant)


@struct.dataclass
class ProbeState(base.EnvState):
    """The number of steps taken, and the observed number (where there is one)."""

    time: jax.Array
    sign: jax.Array


@struct.dataclass
class ProbeParams(base.EnvParams):
    """The time limit alone; a probe that terminates does so long before it."""

    max_steps_in_episode: int = 100


@dataclass(frozen=True)
class _Probe(base.Environment):
    """The base of the probes.

    Attributes:
      continuous: Whether actions are `[1]` in [-1, 1] instead of 0 and 1; from 0.5 upwards they act like 1, from -0.5
        downwards like 0, and in between they mix both.
    """

    continuous: bool = False

    @property
    def default_params(self) -> ProbeParams:
        """The time limit."""
        return ProbeParams()

    def action_space(self, params: ProbeParams | None = None) -> spaces.Discrete | spaces.Box:
        """Two actions, or one number."""
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32) if self.continuous else spaces.Discrete(2)

    def observations(self) -> np.ndarray:
        """Every observation at which a step can start, float32 `[K, D]`."""
        raise NotImplementedError

    def values(self, curve: np.ndarray, lam: float = 1.0) -> np.ndarray:
        """The value of each of `observations()`, float64 `[K]` (see `chain_values`)."""
        raise NotImplementedError

    def best_actions(self) -> np.ndarray | None:
        """The best action at each of `observations()`, `[K]` or `[K, 1]`; None if all are equal."""
        return None

    def _direction(self, action: jax.Array) -> jax.Array:
        """The action as a number from -1 to 1."""
        if self.continuous:
            return jnp.clip(2 * action[0], -1.0, 1.0)
        return (2 * action - 1).astype(jnp.float32)


@dataclass(frozen=True)
class _SignProbe(_Probe):
    """One step; the observation is -1 or 1, each half of the time."""

    def reset_env(self, key: jax.Array, params: ProbeParams) -> tuple[jax.Array, ProbeState]:
        """Draw the number to show."""
        del params
        sign = jnp.where(jax.random.bernoulli(key), jnp.float32(1), jnp.float32(-1))
        return sign[None], ProbeState(jnp.zeros((), jnp.int32), sign)

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Pay the reward and terminate."""
        del key, params
        reward = self._reward(state.sign, self._direction(action))
        state = ProbeState(state.time + 1, state.sign)
        return state.sign[None], state, reward, jnp.ones((), bool), {}

    def observation_space(self, params: ProbeParams) -> spaces.Box:
        """The number shown."""
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observations(self) -> np.ndarray:
        """-1 and 1."""
        return np.array([[-1], [1]], np.float32)

    def _reward(self, sign: jax.Array, direction: jax.Array) -> jax.Array:
        raise NotImplementedError


@dataclass(frozen=True)
class _ChainProbe(_Probe):
    """States in a fixed order, independent of the actions; the observation is the state's index, one-hot."""

    def reset_env(self, key: jax.Array, params: ProbeParams) -> tuple[jax.Array, ProbeState]:
        """The first state."""
        del key, params
        state = ProbeState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Pay the state's reward and go to the next."""
        del key, action, params
        rewards = jnp.asarray(self._rewards(), jnp.float32)
        reward = rewards[state.time % len(rewards)]
        state = ProbeState(state.time + 1, state.sign)
        terminated = jnp.zeros((), bool) if self._never_terminates else state.time >= len(rewards)
        return self._observe(state), state, reward, terminated, {}

    def observation_space(self, params: ProbeParams) -> spaces.Box:
        """The index of the state, one-hot."""
        del params
        return spaces.Box(0.0, 1.0, (len(self._rewards()),), jnp.float32)

    def observations(self) -> np.ndarray:
        """Every state from the first to the last."""
        return np.eye(len(self._rewards()), dtype=np.float32)

    def values(self, curve: np.ndarray, lam: float = 1.0) -> np.ndarray:
        """The discounted remaining rewards; where a limit cuts them off, the fixed point of the equations."""
        return chain_values(self._rewards(), curve, lam, truncated=self._never_terminates)

    @property
    def _never_terminates(self) -> bool:
        return False

    def _observe(self, state: ProbeState) -> jax.Array:
        size = len(self._rewards())
        return jax.nn.one_hot(state.time % size, size, dtype=jnp.float32)

    def _rewards(self) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True)
class ConstantReward(_ChainProbe):
    """One state, one step, reward 1: the value is 1. Tests the critic's loss and optimiser."""

    def _rewards(self) -> np.ndarray:
        return np.ones(1)


@dataclass(frozen=True)
class DelayedReward(_ChainProbe):
    """Reward 1 comes `delay` steps late: state i is worth Gamma(delay - i). Tests discounting.

    With one step of delay this holds for every lam. With more, and a discount that is not exponential,
    lam < 1 converges to other values: bootstrapping restarts the clock. `values` returns them.
    """

    delay: int = 1

    def __post_init__(self) -> None:
        _positive("delay", self.delay)

    def _rewards(self) -> np.ndarray:
        return np.eye(self.delay + 1)[-1]


@dataclass(frozen=True)
class OnlyTerminates(_ChainProbe):
    """Reward 1 at each of `steps` steps, then the end: state i has the value Gamma(0) + ... + Gamma(steps - 1 - i).

    Tests that nothing is bootstrapped past a termination, which would make the values grow.
    """

    steps: int = 3

    def __post_init__(self) -> None:
        _positive("steps", self.steps)

    def _rewards(self) -> np.ndarray:
        return np.ones(self.steps)


@dataclass(frozen=True)
class OnlyTruncates(_ChainProbe):
    """Reward 1 for ever, cut off every `steps` steps by the time limit.

    A learner sees no reward beyond the limit and must bootstrap there, from the state in which it would
    have continued. Its critic then converges to V = Gamma(0) + ... + Gamma(steps - 1) + Gamma(steps) V
    in the first state (for lam = 1; `values` has the others). With the default of one step that is
    V = 1 / (1 - Gamma(1)) under every discount and lam; it is the infinite sum of Gamma only if the discount is
    exponential, since otherwise the clock restarts at every bootstrap.
    """

    steps: int = 1

    def __post_init__(self) -> None:
        _positive("steps", self.steps)

    @property
    def default_params(self) -> ProbeParams:
        """A time limit of `steps`."""
        return ProbeParams(max_steps_in_episode=self.steps)

    @property
    def _never_terminates(self) -> bool:
        return True

    def _rewards(self) -> np.ndarray:
        return np.ones(self.steps)


@dataclass(frozen=True)
class ObservationDependent(_SignProbe):
    """The reward is the observation, -1 or 1, and so is the value. Tests that the critic reads it."""

    def values(self, curve: np.ndarray, lam: float = 1.0) -> np.ndarray:
        """-1 and 1."""
        del curve, lam
        return np.array([-1.0, 1.0])

    def _reward(self, sign: jax.Array, direction: jax.Array) -> jax.Array:
        del direction
        return sign


@dataclass(frozen=True)
class ActionDependent(_ChainProbe):
    """One step; reward 1 for action 1 and -1 for action 0: the value is 1. Tests the policy's loss."""

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Pay the reward of the action and terminate."""
        observation, state, _, terminated, info = super().step_env(key, state, action, params)
        return observation, state, self._direction(action), terminated, info

    def best_actions(self) -> np.ndarray:
        """1."""
        return np.ones((1, 1), np.float32) if self.continuous else np.ones(1, np.int32)

    def _rewards(self) -> np.ndarray:
        return np.ones(1)


@dataclass(frozen=True)
class ActionAndObservationDependent(_SignProbe):
    """Repeat the sign of the observation: reward 1 at observation 1, 0.5 at -1, negated if wrong.

    Tests that the policy reads the observation, and critic and policy together.
    """

    def values(self, curve: np.ndarray, lam: float = 1.0) -> np.ndarray:
        """0.5 and 1."""
        del curve, lam
        return np.array([0.5, 1.0])

    def best_actions(self) -> np.ndarray:
        """The lower action at -1, the upper at 1."""
        return np.array([[-1], [1]], np.float32) if self.continuous else np.array([0, 1], np.int32)

    def _reward(self, sign: jax.Array, direction: jax.Array) -> jax.Array:
        return sign * direction * (0.75 + 0.25 * sign)


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise UserValueError(f"{name} is {value}; it takes a whole number of at least 1.")
