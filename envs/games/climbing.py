"""Climbing game: the best joint action is the most costly one if a single agent deviates from it."""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_count, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike, Number

NUM_ACTIONS = 3


@struct.dataclass
class ClimbingState(base.EnvState):
    """The state of a game.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      last: Last action of each agent, int32 `[N]`; -1 before the first.
    """

    time: jax.Array
    last: jax.Array


@struct.dataclass
class ClimbingParams(base.EnvParams):
    """The payoff and the length of the game.

    Attributes:
      penalty: Payoff of a pair in which one agent takes action 0 and the other action 1.
      num_steps: Number of times that the game is played in an episode, int, at least 1.
      max_steps_in_episode: Time limit.
    """

    penalty: float = -30.0
    num_steps: int = 10
    max_steps_in_episode: int = 10


@dataclass(frozen=True)
class ClimbingGame(base.Environment):
    """All agents act at once and receive the same reward, the mean over their pairs of a payoff with a risky optimum.

    The payoff of two actions is

            0    1    2
        0  11  -30    0
        1 -30    7    6
        2   0    0    5

    and a pair receives the mean of its two orders, because agents are alike: 3 for actions 1 and 2. Action 0 is best if
    all agents take it, but worst while other agents still explore; action 2 is then the safe one. The game is played
    `num_steps` times. An agent observes its own last action and the share of remaining steps, `[N, 4]`; the global
    observation `[4]` has instead the share of agents that took each action last, and so does not depend on the order of
    agents.

    Attributes:
      num_agents: Number of agents, N, at least 2.

    Source: Claus and Boutilier (1998), "The dynamics of reinforcement learning in cooperative multiagent systems", for
    two agents and one step.
    """

    num_agents: int = 2

    def __post_init__(self) -> None:
        check_count("num_agents", self.num_agents, 2)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "game/climbing"

    @property
    def default_params(self) -> ClimbingParams:
        """A penalty of -30, played ten times."""
        return ClimbingParams()

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`coordinated`: the share of steps at which all agents took action 0."""
        return {"coordinated": "mean"}

    def check_params(self, params: ClimbingParams) -> None:
        """Reject a number of steps that is below 1 or not whole."""
        check_at_least(params, num_steps=1)
        check_whole(params, "num_steps")

    def reset_env(self, key: jax.Array, params: ClimbingParams) -> tuple[jax.Array, ClimbingState]:
        """The first observations `[N, 4]`."""
        del key
        state = ClimbingState(jnp.zeros((), jnp.int32), jnp.full(self.num_agents, -1, jnp.int32))
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: ClimbingState, action: jax.Array, params: ClimbingParams
    ) -> tuple[jax.Array, ClimbingState, jax.Array, jax.Array, dict[Any, Any]]:
        """Give every agent the same reward."""
        del key
        counts = jnp.sum(_one_hot(action), axis=0)
        reward = jnp.broadcast_to(self._mean_of_pairs(counts, params.penalty), (self.num_agents,))
        state = ClimbingState(state.time + 1, jnp.asarray(action, jnp.int32))
        info = {"metrics": {"coordinated": jnp.all(action == 0)}}
        terminated = state.time >= params.num_steps
        return self._observe(state, params), state, jnp.asarray(reward, jnp.float32), terminated, info

    def global_observation(self, state: ClimbingState, params: ClimbingParams) -> jax.Array:
        """The share of agents that took each action last, and the share of remaining steps: float32 `[4]`."""
        return jnp.mean(self._observe(state, params), axis=0)

    def action_space(self, params: ClimbingParams | None = None) -> spaces.Discrete:
        """One of three actions."""
        del params
        return spaces.Discrete(NUM_ACTIONS)

    def observation_space(self, params: ClimbingParams) -> spaces.Box:
        """For one agent: its last action, one-hot, all 0 before the first; and the share of remaining steps."""
        del params
        return spaces.Box(0.0, 1.0, (NUM_ACTIONS + 1,), jnp.float32)

    def optimum(
        self,
        params: ClimbingParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The best return of an agent, by the best joint action at every step; see `envs.Environment.optimum`.

        All kinds are equal, because no action changes a later reward.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        steps = min(int(params.num_steps), int(params.max_steps_in_episode))
        chosen = itertools.combinations_with_replacement(range(NUM_ACTIONS), self.num_agents)
        counts = [np.bincount(actions, minlength=NUM_ACTIONS) for actions in chosen]
        best = max(float(self._mean_of_pairs(count, float(params.penalty))) for count in counts)
        return best * float(np.sum(discount_curves.of(discount, steps)))

    def _mean_of_pairs(self, counts: jax.Array | np.ndarray, penalty: Number) -> Any:
        """The mean payoff over pairs, by the number of agents that take each action `[3]`."""
        first, second, third = counts[0], counts[1], counts[2]
        alike = 11 * first * (first - 1) + 7 * second * (second - 1) + 5 * third * (third - 1)
        unlike = 2 * penalty * first * second + 6 * second * third  # a pair of actions 0 and 2 receives nothing
        return (alike + unlike) / (self.num_agents * (self.num_agents - 1))

    def _observe(self, state: ClimbingState, params: ClimbingParams) -> jax.Array:
        left = jnp.maximum(1 - state.time / params.num_steps, 0)
        return jnp.concatenate([_one_hot(state.last), jnp.full((self.num_agents, 1), left)], axis=-1).astype(
            jnp.float32
        )


def _one_hot(action: jax.Array) -> jax.Array:
    return (action[:, None] == jnp.arange(NUM_ACTIONS)).astype(jnp.float32)
