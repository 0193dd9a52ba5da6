"""Repeat first: name the suit of the first card until the deck is dealt."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_count
from envs.base import spaces
from envs.pytrees import DiscountLike

SUITS, RANKS = 4, 13


@struct.dataclass
class RepeatFirstState(base.EnvState):
    """The state of a deck.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      first: Suit of the first card, int32 `[]`.
      shown: Suit of the card shown, int32 `[]`; 4 once the deck is dealt.
      left: Number of remaining cards of each suit, int32 `[4]`.
    """

    time: jax.Array
    first: jax.Array
    shown: jax.Array
    left: jax.Array


@struct.dataclass
class RepeatFirstParams(base.EnvParams):
    """The time limit alone, which is sufficient for the whole deck."""

    max_steps_in_episode: int = SUITS * RANKS


@dataclass(frozen=True)
class RepeatFirst(base.Environment):
    """Shuffled cards are dealt one by one; in every step the action names the suit of the first one.

    With n cards there are n steps, the first of which already shows the suit to name. The reward of a step is
    1 / (n - 1) for the right suit and -1 / (n - 1) for a wrong one. The observation `[5]` has a flag for the first
    card, and the suit of the card. One deck is POPGym's easy form, whose optimum is 52 / 51.

    A policy without a memory only knows that the card shown is not the first: it names another suit, which is right in
    13 of 51 cases, and earns -24 / 51.

    Attributes:
      num_decks: Number of decks of 52 cards shuffled together.

    Source: Morad et al. (2023), "POPGym: benchmarking partially observable reinforcement learning".
    """

    num_decks: int = 1

    def __post_init__(self) -> None:
        check_count("num_decks", self.num_decks)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/repeat-first"

    @property
    def num_cards(self) -> int:
        """The number of cards, and of steps of an episode."""
        return SUITS * RANKS * self.num_decks

    @property
    def default_params(self) -> RepeatFirstParams:
        """A time limit sufficient for the whole deck."""
        return RepeatFirstParams(max_steps_in_episode=self.num_cards)

    def reset_env(self, key: jax.Array, params: RepeatFirstParams) -> tuple[jax.Array, RepeatFirstState]:
        """The first card `[5]`."""
        del params
        suit, left = _deal(key, jnp.full(SUITS, RANKS * self.num_decks, jnp.int32))
        state = RepeatFirstState(jnp.zeros((), jnp.int32), suit, suit, left)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: RepeatFirstState, action: jax.Array, params: RepeatFirstParams
    ) -> tuple[jax.Array, RepeatFirstState, jax.Array, jax.Array, dict[Any, Any]]:
        """Reward the named suit, and deal the next card."""
        del params
        reward = jnp.where(action == state.first, 1.0, -1.0) / (self.num_cards - 1)
        shown, left = _deal(key, state.left)
        state = RepeatFirstState(state.time + 1, state.first, shown, left)
        return _observe(state), state, reward.astype(jnp.float32), state.time >= self.num_cards, {}

    def return_range(self, params: RepeatFirstParams) -> tuple[Any, Any]:
        """From a wrong to a right answer in every step."""
        del params
        return -self.num_cards / (self.num_cards - 1), self.num_cards / (self.num_cards - 1)

    def action_space(self, params: RepeatFirstParams | None = None) -> spaces.Discrete:
        """A suit."""
        del params
        return spaces.Discrete(SUITS)

    def observation_space(self, params: RepeatFirstParams) -> spaces.Box:
        """Whether this is the first card, and its suit, one-hot (all 0 after the last card)."""
        del params
        return spaces.Box(0.0, 1.0, (1 + SUITS,), jnp.float32)

    def optimum(
        self,
        params: RepeatFirstParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The best return, (Gamma(0) + ... + Gamma(n - 1)) / (n - 1); see `envs.Environment.optimum`.

        The sophisticated one is the same, because no answer changes a later reward; the stationary one is `memoryless`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        return float(np.sum(self._weights(params, discount)))

    def memoryless(self, params: RepeatFirstParams | None = None, discount: DiscountLike = None) -> float:
        """The best return of a policy without memory: right in the first step, then in 13 d of n - 1 cases (d decks).

        Args:
          params, discount: See `optimum`.
        """
        weights = self._weights(params, discount)
        right = RANKS * self.num_decks / (self.num_cards - 1)
        return float(weights[0] + (2 * right - 1) * np.sum(weights[1:]))

    def _weights(self, params: RepeatFirstParams | None, discount: DiscountLike) -> np.ndarray:
        """The value of a right answer at each step up to the time limit."""
        params = self.checked_params(params)
        steps = min(self.num_cards, int(params.max_steps_in_episode))
        return discount_curves.of(discount, steps) / (self.num_cards - 1)


def _deal(key: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The suit of a card drawn from the remaining ones, 4 if there are none, and the cards that remain then."""
    card = jax.random.randint(key, (), 0, jnp.maximum(jnp.sum(left), 1))
    suit = jnp.sum(card >= jnp.cumsum(left), dtype=jnp.int32)
    return suit, left - (jnp.arange(SUITS) == suit)


def _observe(state: RepeatFirstState) -> jax.Array:
    return jnp.concatenate([(state.time == 0)[None], jnp.arange(SUITS) == state.shown]).astype(jnp.float32)
