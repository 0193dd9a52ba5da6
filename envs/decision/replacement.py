"""Replacement: run a machine that wears and earns less, or replace it before it fails."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_at_least, check_count, check_number
from envs.base import spaces
from envs.decision.dynamic_programming import FiniteProblem
from envs.decision.finite_horizon import FiniteStates, horizon
from envs.decision.pictures import bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RUN, REPLACE = 0, 1


@struct.dataclass
class ReplacementState(base.EnvState):
    """The wear: 0 is new, `num_levels` - 1 has failed."""

    time: jax.Array
    wear: jax.Array


@struct.dataclass
class ReplacementParams(base.EnvParams):
    """Parameters of a replacement.

    Attributes:
      wear_probability: Probability that a step of running adds a level of wear.
      output: Reward of a step of a new machine; it falls linearly with wear, to 0 at failure.
      replacement_cost: Cost of a replacement, which takes a step.
      failure_cost: Further cost of a replacement after a failure.
      num_steps: Number of steps of an episode.
      max_steps_in_episode: Time limit, in steps.
    """

    wear_probability: float = 0.4
    output: float = 1.0
    replacement_cost: float = 1.0
    failure_cost: float = 2.0
    num_steps: int = 40
    max_steps_in_episode: int = 40


@dataclass(frozen=True)
class Replacement(FiniteStates):
    """A machine with levels of wear: run it for an income that falls, or pay for a new one; a failed one is replaced.

    Optimal stationary policies replace from some level of wear on. `action_mask` forbids running a failed machine.

    Attributes:
      num_levels: Number of levels of wear, with new and failed.

    Source: the machine replacement of Derman (1963), "On optimal replacement rules when changes of state are
    Markovian".
    """

    num_levels: int = 6

    def __post_init__(self) -> None:
        check_count("num_levels", self.num_levels, 2)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "replacement"

    @property
    def default_params(self) -> ReplacementParams:
        """Wear of a level in 2.5 steps on average, over 40 steps."""
        return ReplacementParams()

    def check_params(self, params: ReplacementParams) -> None:
        """Reject a probability outside [0, 1], negative costs, and fewer steps than one."""
        super().check_params(params)
        check_number("env.wear_probability", np.asarray(params.wear_probability), 0, 1, "[]")
        check_at_least(params, output=0, replacement_cost=0, failure_cost=0)

    def reset_env(self, key: jax.Array, params: ReplacementParams) -> tuple[jax.Array, ReplacementState]:
        """The first observation and state: a new machine."""
        del key
        zero = jnp.zeros((), jnp.int32)
        state = ReplacementState(zero, zero)
        return self._observe(self._levels(state), state, params), state

    def step_env(
        self, key: jax.Array, state: ReplacementState, action: jax.Array, params: ReplacementParams
    ) -> tuple[jax.Array, ReplacementState, jax.Array, jax.Array, dict[Any, Any]]:
        """Run or replace; a machine that has failed is replaced by either action."""
        last = self.num_levels - 1
        failed = state.wear == last
        replaces = failed | (action == REPLACE)
        cost = params.replacement_cost + jnp.where(failed, params.failure_cost, 0.0)
        reward = jnp.where(replaces, -cost, params.output * (1 - state.wear / last))
        worn = state.wear + (jax.random.uniform(key) < params.wear_probability)
        wear = jnp.where(replaces, 0, jnp.minimum(worn, last)).astype(jnp.int32)
        state = ReplacementState(state.time + 1, wear)
        obs = self._observe(self._levels(state), state, params)
        return obs, state, reward.astype(jnp.float32), state.time >= params.num_steps, {}

    def action_mask(self, state: ReplacementState, params: ReplacementParams) -> jax.Array:
        """Both actions, or replacing alone after a failure."""
        del params
        return (jnp.arange(2) == REPLACE) | (state.wear < self.num_levels - 1)

    def problem(self, params: ReplacementParams | None = None) -> FiniteProblem:
        """States are levels of wear; see `FiniteStates.problem`."""
        params = self.checked_params(params)
        size, last = self.num_levels, self.num_levels - 1
        wear = np.arange(size)
        cost = float(params.replacement_cost) + float(params.failure_cost) * (wear == last)
        rewards = np.stack([float(params.output) * (1 - wear / last), -cost], 1)
        running = np.stack([wear, np.minimum(wear + 1, last)], 1)
        successors = np.stack([running, np.zeros_like(running)], 1)
        worn = float(params.wear_probability)
        probabilities = np.broadcast_to(np.array([[1 - worn, worn], [1.0, 0.0]]), successors.shape)
        allowed = np.stack([wear < last, np.ones(size, bool)], 1)
        return FiniteProblem(rewards, allowed, successors, probabilities, np.eye(size)[0])

    def return_range(self, params: ReplacementParams) -> tuple[Any, Any]:
        """From a replacement after a failure in every step to the output of a new machine in every step."""
        costs = np.asarray(params.replacement_cost, np.float64) + np.asarray(params.failure_cost, np.float64)
        return -horizon(params) * costs, horizon(params) * np.asarray(params.output, np.float64)

    def action_space(self, params: ReplacementParams | None = None) -> spaces.Discrete:
        """0 to run, 1 to replace."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: ReplacementParams) -> spaces.Box:
        """The level of wear as a one-hot vector, and the share of steps left."""
        del params
        return spaces.Box(0.0, 1.0, (self.num_levels + self.shows_time,), jnp.float32)

    def draw(self, ax: "Axes", state: ReplacementState, params: ReplacementParams) -> None:
        """The wear as a bar that fills up to failure."""
        wear, last = int(state.wear), self.num_levels - 1
        bars(ax, [wear], ["wear"], top=last, marked=[0] * (wear == last), caption="failed" if wear == last else "")

    def _levels(self, state: ReplacementState) -> jax.Array:
        return jnp.arange(self.num_levels) == state.wear
