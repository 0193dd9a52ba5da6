"""Autoencode: watch the cards of a deck, then name their suits in reverse order."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_count
from envs.base import spaces
from envs.memory.repeat_first import RANKS, SUITS
from envs.pytrees import DiscountLike


@struct.dataclass
class AutoencodeState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      suits: Suits of the cards in the order in which they are shown, int32 `[n]`.
    """

    time: jax.Array
    suits: jax.Array


@struct.dataclass
class AutoencodeParams(base.EnvParams):
    """The time limit alone, which is sufficient for watching and naming the whole deck."""

    max_steps_in_episode: int = 2 * SUITS * RANKS - 1


@dataclass(frozen=True)
class Autoencode(base.Environment):
    """Shuffled cards are shown one by one; once the last one is shown, actions name their suits, the last one first.

    With n cards there are 2 n - 1 steps. The first n - 1 actions have no effect. The n actions after them are answers,
    each with the reward 1 / n for the right suit and -1 / n for a wrong one; the first of them names the card that is
    still shown. The observation `[5]` has a flag, 1 where the action is an answer, and the suit of the card shown.
    One deck is POPGym's easy form, whose optimum is 1.

    POPGym differs in one point: while suits are named, its observations show the suit of the first card of an
    unshuffled deck, which carries no information; here they show none.

    A policy without a memory names the card that is still shown. At the other answers all observations are the same, so
    that each suit is right in one case of four: it earns (1 - (n - 1) / 2) / n, which is -49 / 104 for one deck.

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
        return "memory/autoencode"

    @property
    def num_cards(self) -> int:
        """The number of cards, n."""
        return SUITS * RANKS * self.num_decks

    @property
    def default_params(self) -> AutoencodeParams:
        """A time limit sufficient for the whole episode."""
        return AutoencodeParams(max_steps_in_episode=2 * self.num_cards - 1)

    def reset_env(self, key: jax.Array, params: AutoencodeParams) -> tuple[jax.Array, AutoencodeState]:
        """The first card `[5]`."""
        del params
        suits = jax.random.permutation(key, jnp.arange(self.num_cards, dtype=jnp.int32) % SUITS)
        state = AutoencodeState(jnp.zeros((), jnp.int32), suits)
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: AutoencodeState, action: jax.Array, params: AutoencodeParams
    ) -> tuple[jax.Array, AutoencodeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Show the next card, or reward the named suit."""
        del key, params
        last = self.num_cards - 1
        named = state.suits[jnp.clip(2 * last - state.time, 0, last)]
        reward = jnp.where(state.time >= last, jnp.where(action == named, 1.0, -1.0), 0.0) / self.num_cards
        state = AutoencodeState(state.time + 1, state.suits)
        return self._observe(state), state, reward.astype(jnp.float32), state.time > 2 * last, {}

    def return_range(self, params: AutoencodeParams) -> tuple[Any, Any]:
        """From a wrong to a right answer at every card that is reached before the time limit."""
        answers = np.clip(np.asarray(params.max_steps_in_episode, np.float64) - (self.num_cards - 1), 0, self.num_cards)
        return -answers / self.num_cards, answers / self.num_cards

    def action_space(self, params: AutoencodeParams | None = None) -> spaces.Discrete:
        """A suit."""
        del params
        return spaces.Discrete(SUITS)

    def observation_space(self, params: AutoencodeParams) -> spaces.Box:
        """Whether the action is an answer, and the suit of the card shown, one-hot (all 0 after the first answer)."""
        del params
        return spaces.Box(0.0, 1.0, (1 + SUITS,), jnp.float32)

    def optimum(
        self,
        params: AutoencodeParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The best return, (Gamma(n - 1) + ... + Gamma(2 n - 2)) / n; see `envs.Environment.optimum`.

        The sophisticated one is the same, because no answer changes a later reward; the stationary one is `memoryless`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        return float(np.sum(self._weights(params, discount)))

    def memoryless(self, params: AutoencodeParams | None = None, discount: DiscountLike = None) -> float:
        """The best return of a policy without memory: right in the first answer, then in one case of four.

        All observations after the first answer are the same, so the answers are independent of the cards, of which each
        is as likely to have any suit. Every answer thus earns -1 / (2 n) on average, whatever it is.

        Args:
          params, discount: See `optimum`.
        """
        weights = self._weights(params, discount)
        return float(np.sum(weights[:1]) - np.sum(weights[1:]) / 2)

    def _weights(self, params: AutoencodeParams | None, discount: DiscountLike) -> np.ndarray:
        """The value of a right answer at each card, the last one first, up to the time limit."""
        params = self.checked_params(params)
        steps = min(2 * self.num_cards - 1, int(params.max_steps_in_episode))
        return discount_curves.of(discount, steps)[self.num_cards - 1 :] / self.num_cards

    def _observe(self, state: AutoencodeState) -> jax.Array:
        last = self.num_cards - 1
        suit = jnp.where(state.time <= last, state.suits[jnp.minimum(state.time, last)], SUITS)
        return jnp.concatenate([(state.time >= last)[None], jnp.arange(SUITS) == suit]).astype(jnp.float32)
