"""Count recall: cards are shown one by one, and each time the action says how often a given value has been shown."""

from dataclasses import dataclass
from math import comb
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_choice, check_count
from envs.base import spaces
from envs.pytrees import DiscountLike

DECK = 52
VALUES = (2, 4, 13)  # colours, suits and ranks


@struct.dataclass
class CountRecallState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      value: Value of the card shown, int32 `[]`.
      query: Value asked for, int32 `[]`.
      left: Number of remaining cards of each value, without the one shown, int32 `[V]`.
      queries_left: Number of remaining queries of each value, without the present one, int32 `[V]`.
    """

    time: jax.Array
    value: jax.Array
    query: jax.Array
    left: jax.Array
    queries_left: jax.Array


@struct.dataclass
class CountRecallParams(base.EnvParams):
    """The time limit alone, which is sufficient for the whole deck."""

    max_steps_in_episode: int = DECK - 1


@dataclass(frozen=True)
class CountRecall(base.Environment):
    """A shuffled deck shows a value with every observation, and a second deck asks for one.

    The action is the number of cards with the value asked for that have been shown, including the present one. With n
    cards there are n - 1 steps, each with the reward 1 / (n - 1) for the right number and -1 / (n - 1) for a wrong one.
    The observation `[2 V]` has the value shown and the value asked for, each one-hot. Two values, the colours of one
    deck, are POPGym's easy form; 2 decks of 4 suits its medium one; 4 decks of 13 ranks its hard one.

    POPGym differs in its actions: it has none for the number of all cards of a value, 26 in the easy form, so that the
    right answer is missing in some of the last steps; here there is one, and the optimum is 1.

    Attributes:
      num_decks: Number of decks of 52 cards shuffled together.
      num_values: Number of values, V: 2 (colours), 4 (suits) or 13 (ranks).

    Source: Morad et al. (2023), "POPGym: benchmarking partially observable reinforcement learning".
    """

    num_decks: int = 1
    num_values: int = 2

    def __post_init__(self) -> None:
        check_count("num_decks", self.num_decks)
        check_choice("num_values", self.num_values, VALUES)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/count-recall"

    @property
    def num_cards(self) -> int:
        """The number of cards, n."""
        return DECK * self.num_decks

    @property
    def num_alike(self) -> int:
        """The number of cards of each value, the largest right answer."""
        return self.num_cards // self.num_values

    @property
    def default_params(self) -> CountRecallParams:
        """A time limit sufficient for the whole deck."""
        return CountRecallParams(max_steps_in_episode=self.num_cards - 1)

    def reset_env(self, key: jax.Array, params: CountRecallParams) -> tuple[jax.Array, CountRecallState]:
        """The first value and the first query `[2 V]`."""
        del params
        whole = jnp.full(self.num_values, self.num_alike, jnp.int32)
        state = self._deal(key, jnp.zeros((), jnp.int32), whole, whole)
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: CountRecallState, action: jax.Array, params: CountRecallParams
    ) -> tuple[jax.Array, CountRecallState, jax.Array, jax.Array, dict[Any, Any]]:
        """Reward the number, and deal the next card and the next query."""
        del params
        count = self.num_alike - state.left[state.query]
        reward = jnp.where(action == count, 1.0, -1.0) / (self.num_cards - 1)
        state = self._deal(key, state.time + 1, state.left, state.queries_left)
        return self._observe(state), state, reward.astype(jnp.float32), state.time >= self.num_cards - 1, {}

    def return_range(self, params: CountRecallParams) -> tuple[Any, Any]:
        """From a wrong to a right number at every step before the time limit."""
        steps = np.minimum(np.asarray(params.max_steps_in_episode, np.float64), self.num_cards - 1)
        return -steps / (self.num_cards - 1), steps / (self.num_cards - 1)

    def action_space(self, params: CountRecallParams | None = None) -> spaces.Discrete:
        """A number of cards, from 0 to that of all cards of a value."""
        del params
        return spaces.Discrete(self.num_alike + 1)

    def observation_space(self, params: CountRecallParams) -> spaces.Box:
        """The value shown and the value asked for, each one-hot."""
        del params
        return spaces.Box(0.0, 1.0, (2 * self.num_values,), jnp.float32)

    def optimum(
        self,
        params: CountRecallParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The best return, (Gamma(0) + ... + Gamma(n - 2)) / (n - 1); see `envs.Environment.optimum`.

        The sophisticated one is the same, because no answer changes a later reward; the stationary one is `memoryless`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        return float(np.sum(self._weights(params, discount)))

    def memoryless(self, params: CountRecallParams | None = None, discount: DiscountLike = None) -> float:
        """The best return of a policy without memory: one number where the value shown is asked for, one elsewhere.

        Actions change nothing, so each observation has a best answer of its own: the number c with the largest sum over
        t of Gamma(t) P(c cards at step t). The queries are independent of the cards, and each value is asked for with
        probability 1 / V at every step. If m cards of each value are in the deck, k of the first t cards have the value
        asked for with the hypergeometric probability C(m, k) C(n - m, t - k) / C(n, t); the next card has it too with
        probability (m - k) / (n - t), and then c = k + 1, else c = k. All values are alike.

        Args:
          params, discount: See `optimum`.
        """
        weights = self._weights(params, discount)
        cards, alike = self.num_cards, self.num_alike
        # The weight of each number where the value shown is asked for, and where another one is.
        same, other = np.zeros(alike + 1), np.zeros(alike + 1)
        for time, weight in enumerate(weights):
            for count in range(max(0, time - (cards - alike)), min(alike, time) + 1):
                chance = comb(alike, count) * comb(cards - alike, time - count) / comb(cards, time)
                again = (alike - count) / (cards - time)
                if again:
                    same[count + 1] += weight * chance * again
                other[count] += weight * chance * (1 - again)
        return float(2 * (np.max(same) + np.max(other)) - np.sum(weights))

    def _weights(self, params: CountRecallParams | None, discount: DiscountLike) -> np.ndarray:
        """The value of a right answer at each step up to the time limit."""
        params = self.checked_params(params)
        steps = min(self.num_cards - 1, int(params.max_steps_in_episode))
        return discount_curves.of(discount, steps) / (self.num_cards - 1)

    def _deal(self, key: jax.Array, time: jax.Array, left: jax.Array, queries_left: jax.Array) -> CountRecallState:
        """The state after a card and a query are drawn from the remaining ones."""
        (value, left), (query, queries_left) = (
            _draw(each, rest) for each, rest in zip(jax.random.split(key), (left, queries_left), strict=True)
        )
        return CountRecallState(time, value, query, left, queries_left)

    def _observe(self, state: CountRecallState) -> jax.Array:
        values = jnp.arange(self.num_values)
        return jnp.concatenate([values == state.value, values == state.query]).astype(jnp.float32)


def _draw(key: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The value of a card drawn from the remaining ones, and the cards that remain then."""
    card = jax.random.randint(key, (), 0, jnp.maximum(jnp.sum(left), 1))
    value = jnp.minimum(jnp.sum(card >= jnp.cumsum(left), dtype=jnp.int32), len(left) - 1)
    return value, jnp.maximum(left - (jnp.arange(len(left)) == value), 0)
