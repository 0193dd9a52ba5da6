"""River: swim against the current to a source that pays much, or rest at the bank, which pays little at once."""

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
from envs.errors import UserValueError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRIFT, SWIM = 0, 1


@struct.dataclass
class RiverState(base.EnvState):
    """The position, from 0, the bank downstream, to `num_positions` - 1, the source."""

    time: jax.Array
    position: jax.Array


@struct.dataclass
class RiverParams(base.EnvParams):
    """Parameters of a river.

    Attributes:
      advance: Probability that swimming moves up by one.
      slip: Probability that swimming moves down by one.
      bank_reward: Reward of drifting at the bank.
      source_reward: Reward of swimming at the source.
      num_steps: Number of steps of an episode.
      max_steps_in_episode: Time limit, in steps.
    """

    advance: float = 0.35
    slip: float = 0.05
    bank_reward: float = 0.005
    source_reward: float = 1.0
    num_steps: int = 40
    max_steps_in_episode: int = 40


@dataclass(frozen=True)
class River(FiniteStates):
    """A chain of positions for which exploration decides: actions at random drift to the bank and are paid there.

    Drifting moves down by one with certainty. Swimming moves up with probability `advance`, down with `slip`, and
    stays otherwise; at both ends the moves beyond the end are none.

    Attributes:
      num_positions: Number of positions.

    Source: RiverSwim of Strehl and Littman (2008), "An analysis of model-based interval estimation for Markov decision
    processes", with the same chances of swimming at all positions, and episodes of a number of steps from the bank.
    """

    num_positions: int = 6

    def __post_init__(self) -> None:
        check_count("num_positions", self.num_positions, 2)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "river"

    @property
    def default_params(self) -> RiverParams:
        """The chances and rewards of RiverSwim, in 40 steps."""
        return RiverParams()

    def check_params(self, params: RiverParams) -> None:
        """Reject chances that are negative or exceed 1 together, infinite rewards, and fewer steps than one."""
        super().check_params(params)
        check_at_least(params, advance=0, slip=0)
        for name in ("bank_reward", "source_reward"):
            check_number(f"env.{name}", np.asarray(getattr(params, name)))
        sums = np.ravel(np.asarray(params.advance, np.float64) + np.asarray(params.slip, np.float64))
        for wrong in sums[sums > 1 + 1e-6][:1]:
            raise UserValueError(f"env.advance and env.slip must be at most 1 together, got {wrong}")

    def reset_env(self, key: jax.Array, params: RiverParams) -> tuple[jax.Array, RiverState]:
        """The first observation and state, at the bank."""
        del key
        zero = jnp.zeros((), jnp.int32)
        state = RiverState(zero, zero)
        return self._observe(self._places(state), state, params), state

    def step_env(
        self, key: jax.Array, state: RiverState, action: jax.Array, params: RiverParams
    ) -> tuple[jax.Array, RiverState, jax.Array, jax.Array, dict[Any, Any]]:
        """Drift or swim; the reward is that of the position before the move."""
        source = self.num_positions - 1
        chance = jax.random.uniform(key)
        swum = jnp.where(chance < params.advance, 1, jnp.where(chance >= 1 - params.slip, -1, 0))
        moved = jnp.clip(state.position + jnp.where(action == SWIM, swum, -1), 0, source).astype(jnp.int32)
        reward = jnp.where((action == DRIFT) & (state.position == 0), params.bank_reward, 0.0)
        reward = jnp.where((action == SWIM) & (state.position == source), params.source_reward, reward)
        state = RiverState(state.time + 1, moved)
        obs = self._observe(self._places(state), state, params)
        return obs, state, reward.astype(jnp.float32), state.time >= params.num_steps, {}

    def problem(self, params: RiverParams | None = None) -> FiniteProblem:
        """States are positions; see `FiniteStates.problem`."""
        params = self.checked_params(params)
        size, states = self.num_positions, np.arange(self.num_positions)
        rewards = np.zeros((size, 2))
        rewards[0, DRIFT], rewards[-1, SWIM] = float(params.bank_reward), float(params.source_reward)
        up, down = np.minimum(states + 1, size - 1), np.maximum(states - 1, 0)
        successors = np.stack([np.stack([down] * 3, -1), np.stack([down, states, up], -1)], 1)
        advance, slip = float(params.advance), float(params.slip)
        chances = np.array([[1.0, 0.0, 0.0], [slip, 1 - advance - slip, advance]])
        probabilities = np.broadcast_to(chances, successors.shape)
        return FiniteProblem(rewards, np.ones((size, 2), bool), successors, probabilities, np.eye(size)[0])

    def return_range(self, params: RiverParams) -> tuple[Any, Any]:
        """From the lowest to the highest reward in every step, or no reward."""
        rewards = np.asarray(params.bank_reward, np.float64), np.asarray(params.source_reward, np.float64)
        steps = horizon(params)
        return steps * np.minimum(np.minimum(*rewards), 0), steps * np.maximum(np.maximum(*rewards), 0)

    def action_space(self, params: RiverParams | None = None) -> spaces.Discrete:
        """0 to drift, 1 to swim."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: RiverParams) -> spaces.Box:
        """The position as a one-hot vector, and the share of steps left."""
        del params
        return spaces.Box(0.0, 1.0, (self.num_positions + self.shows_time,), jnp.float32)

    def draw(self, ax: "Axes", state: RiverState, params: RiverParams) -> None:
        """The positions from the bank to the source; that of the swimmer is filled."""
        place, last = int(state.position), self.num_positions - 1
        heights = [float(each == place) for each in range(self.num_positions)]
        labels = ["bank", *[""] * (last - 1), "source"]
        bars(ax, heights, labels, top=1, marked=[last], caption=f"pays {float(params.source_reward):.3g} at the source")

    def _places(self, state: RiverState) -> jax.Array:
        return jnp.arange(self.num_positions) == state.position
