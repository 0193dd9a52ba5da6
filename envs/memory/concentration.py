"""Concentration: turn over face-down cards, two at a time, and find the pairs."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_count
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import DiscountLike


@struct.dataclass
class ConcentrationState(base.EnvState):
    """The state of a game of n cards.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      values: Value of each card, int32 `[n]`.
      paired: Whether a card has been paired, bool `[n]`; such cards stay face up.
      first: First card of the present turn, int32 `[]`; -1 if the next card begins a turn.
      shown: Whether a card is visible, bool `[n]`.
    """

    time: jax.Array
    values: jax.Array
    paired: jax.Array
    first: jax.Array
    shown: jax.Array


@struct.dataclass
class ConcentrationParams(base.EnvParams):
    """The time limit alone."""

    max_steps_in_episode: int = 104


@dataclass(frozen=True)
class Concentration(base.Environment):
    """Cards lie face down in a random order; an action turns one over, and two cards of one value stay face up.

    In a game of n cards, two different cards of one turn with the same value earn 2 / n. If the values differ, or both
    are the same card, the turn earns -2 / L, with L = ceil(2 n - n / (2 n - 1)), and its cards are face down again
    after the observation that shows both. A card that is face up already ends the turn with -1 / L for each of its
    cards. The game ends when all pairs are found, and is cut off after L steps by default. The observation `[n V]` has
    the value of each card, one-hot, and only zeros for a card that is face down.

    52 cards of 2 values, the colours of one deck, are POPGym's easy form; 104 cards of 2 its medium one; 52 cards of 13
    values its hard one. The rewards and the limit are POPGym's.

    The optimum is not known, but a bound is: the k-th pair takes at least 2 k steps, see `bound`. The best return
    without a memory is not known either: observations show both cards of a turn, and the order of turns can carry
    information.

    Attributes:
      num_cards: Number of cards, n; each value has the same even number of them.
      num_values: Number of values, V.

    Source: Morad et al. (2023), "POPGym: benchmarking partially observable reinforcement learning".
    """

    num_cards: int = 52
    num_values: int = 2

    def __post_init__(self) -> None:
        check_count("num_cards", self.num_cards, 2)
        check_count("num_values", self.num_values)
        if self.num_cards % (2 * self.num_values):
            raise UserValueError(
                f"num_cards must be a multiple of {2 * self.num_values}, twice num_values, got {self.num_cards}"
            )

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/concentration"

    @property
    def usual_steps(self) -> int:
        """The number L of the costs and of the default time limit."""
        n = self.num_cards
        return math.ceil(2 * n - n / (2 * n - 1))

    @property
    def default_params(self) -> ConcentrationParams:
        """The time limit L."""
        return ConcentrationParams(max_steps_in_episode=self.usual_steps)

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`pairs`: number of pairs found in an episode."""
        return {"pairs": "sum"}

    def reset_env(self, key: jax.Array, params: ConcentrationParams) -> tuple[jax.Array, ConcentrationState]:
        """All cards face down `[n V]`."""
        del params
        values = jax.random.permutation(key, jnp.arange(self.num_cards, dtype=jnp.int32) % self.num_values)
        down = jnp.zeros(self.num_cards, bool)
        state = ConcentrationState(jnp.zeros((), jnp.int32), values, down, jnp.int32(-1), down)
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: ConcentrationState, action: jax.Array, params: ConcentrationParams
    ) -> tuple[jax.Array, ConcentrationState, jax.Array, jax.Array, dict[Any, Any]]:
        """Turn a card over."""
        del key, params
        cards = jnp.arange(self.num_cards)
        second = state.first >= 0
        turned = (cards == action) | (cards == state.first)
        wasted = state.paired[action]
        alike = state.values[action] == state.values[jnp.maximum(state.first, 0)]
        pair = second & ~wasted & alike & (action != state.first)
        cost = jnp.where(second, 2.0, jnp.where(wasted, 1.0, 0.0)) / self.usual_steps
        reward = jnp.where(pair, 2 / self.num_cards, -cost)
        paired = state.paired | (turned & pair)
        first = jnp.where(second | wasted, -1, jnp.asarray(action, jnp.int32))
        state = ConcentrationState(state.time + 1, state.values, paired, first, state.paired | turned)
        info = {"metrics": {"pairs": pair.astype(jnp.float32)}}
        return self._observe(state), state, reward.astype(jnp.float32), jnp.all(paired), info

    def return_range(self, params: ConcentrationParams) -> tuple[Any, Any]:
        """From a face-up or repeated card in every turn to every pair that the time limit allows."""
        steps = np.asarray(params.max_steps_in_episode)
        pairs = np.minimum(steps // 2, self.num_cards // 2)
        # Repeating a face-down card costs 2 / L in two steps; a face-up one, after a pair, costs 1 / L in each step.
        return -2.0 * (steps // 2) / self.usual_steps, 2.0 * pairs / self.num_cards

    def action_space(self, params: ConcentrationParams | None = None) -> spaces.Discrete:
        """A card."""
        del params
        return spaces.Discrete(self.num_cards)

    def observation_space(self, params: ConcentrationParams) -> spaces.Box:
        """The value of each card, one-hot, or zeros."""
        del params
        return spaces.Box(0.0, 1.0, (self.num_cards * self.num_values,), jnp.float32)

    def bound(self, params: ConcentrationParams | None = None, discount: DiscountLike = None) -> float:
        """A bound on the return of any policy under a discount that never rises, and not its optimum.

        The k-th pair is found with step 2 k at the earliest, so the pairs are worth at most 2 / n times the sum of
        Gamma(2 k - 1); all other rewards are negative. A policy that knew the cards would attain it.

        Args:
          params, discount: See `envs.Environment.optimum`.
        """
        params = self.checked_params(params)
        curve = discount_curves.of(discount, min(self.num_cards, int(params.max_steps_in_episode)))
        return float(2 / self.num_cards * np.sum(curve[1::2]))

    def _observe(self, state: ConcentrationState) -> jax.Array:
        values = jnp.arange(self.num_values) == state.values[:, None]
        return (values & state.shown[:, None]).ravel().astype(jnp.float32)
