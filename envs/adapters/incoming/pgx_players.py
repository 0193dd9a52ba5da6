"""Pgx's games for several players, of whom all but one are part of the environment."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.adapters.incoming.suite import SuiteEnvironment, Transition
from envs.base import MetricRule, spaces
from envs.casting import cast, strong
from envs.pytrees import Action, Observation, Params, PyTree, State
from envs.settings import own_settings

# The most turns that a player of a game for several can have by its rules.
_TURNS = {
    "animal_shogi": 128,
    "chess": 256,
    "connect_four": 21,
    "gardner_chess": 128,
    "hex": 61,
    "kuhn_poker": 2,
    "leduc_holdem": 4,
    "othello": 60,
    "shogi": 256,
    "sparrow_mahjong": 10,
    "tic_tac_toe": 5,
}


class Seated(NamedTuple):
    """A game and our place in it.

    Attributes:
      game: State of the game, at our turn or at its end.
      player: Our number in the game, int32 `[]`.
    """

    game: Any
    player: jax.Array


@dataclass(frozen=True)
class PlayersEnvironment(SuiteEnvironment):
    """One of Pgx's games for several players, of whom the others are part of the environment; see `SuiteEnvironment`.

    A reset and a step end at our turn or at the end of the game; a reward is the sum of ours in between. An illegal
    action ends the game with a penalty, as in Pgx; the mask forbids it. Limits on the number of moves are rules of the
    games, which score or draw the game, so they terminate.

    Static fields: `opponent`, "random" for legal actions of equal probability, or a function
    `(key, obs, mask) -> action` by which each other player acts on what it observes; `seat`, 0 to begin, 1 to come
    next, None (the default) to draw it at every reset; in Go `komi`, `history_length` and `max_terminal_steps`.

    Metrics: `won` and `drawn`, 1 in an episode that ended with a positive reward or with none.
    """

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        """`won` and `drawn`, of which an episode has one or none."""
        return {"won": "sum", "drawn": "sum"}

    @property
    def time_limit(self) -> int:
        """The most turns that the rules allow us; 1,000 in backgammon, where they are not bounded."""
        if self.env_id.startswith("go_"):
            return -(-int(self.inner._game.max_termination_steps) // 2)
        return _TURNS.get(self.env_id, super().time_limit)

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """Pgx's `init`, and the moves of the others before our first turn."""
        del params
        own, others = jax.random.split(key)
        game = jax.tree.map(jnp.asarray, self.inner.init(own))  # Othello's has a number of Python
        seat = dict(self.fields).get("seat")
        if seat is None:  # Pgx draws who begins
            player = jnp.int32(0)
        elif self.inner.num_players > 2:
            player = game._shuffled_players[seat]
        else:
            player = game.current_player if seat == 0 else 1 - game.current_player
        game, _ = self._answered(others, game, player)
        return self.inner._observe(game, player), Seated(held(game), player)

    def advance(self, key: jax.Array, inner: Seated, action: Action, params: Params) -> Transition:
        """Pgx's step, and the moves of the others until our next turn."""
        del params
        own, others = jax.random.split(key)
        game = self.inner.step(inner.game, action, own)
        first = game.rewards[inner.player]
        game, later = self._answered(others, game, inner.player)
        reward = first + later
        metrics = {"won": game.terminated & (reward > 0), "drawn": game.terminated & (reward == 0)}
        now = Seated(held(game), inner.player)
        return Transition(self.inner._observe(game, inner.player), now, reward, game.terminated, metrics)

    def action_space(self, params: Params = None) -> spaces.Discrete:
        """The actions of the game."""
        del params
        return spaces.Discrete(num_actions(self))

    def action_mask(self, state: State, params: Params) -> jax.Array:
        """The legal actions, bool `[num_actions]`."""
        del params
        return state.inner.game.legal_action_mask

    def observation_space(self, params: Params) -> spaces.Space:
        """Planes of a board; in backgammon the numbers of pieces, the other's negative, and of dice of each kind."""
        if self.env_id == "backgammon":
            ends = np.array([15] * 28 + [4] * 6)
            return spaces.Box(jnp.int32(np.append(-ends[:28], [0] * 6)), jnp.int32(ends), (34,), jnp.int32)
        return super().observation_space(params)

    def return_range(self, params: Params) -> tuple[Any, Any] | None:
        """The stakes lost and won, and None for three players."""
        del params
        stakes = {"kuhn_poker": 2.0, "leduc_holdem": 13.0, "backgammon": 3.0}.get(self.env_id, 1.0)
        return (-stakes, stakes) if self.inner.num_players == 2 else None

    def _answered(self, key: jax.Array, game: State, player: jax.Array) -> tuple[Any, jax.Array]:
        """The game after the moves of the others, until it is our turn or over, and our reward for them."""
        opponent: Any = dict(self.fields).get("opponent", "random")
        types = jax.tree.map(strong, game)

        def move(carry: PyTree) -> Any:
            key, game, reward = carry
            key, choice, own = jax.random.split(key, 3)
            choose = _uniform if opponent == "random" else opponent
            action = jnp.int32(choose(choice, game.observation, game.legal_action_mask))
            game = cast(self.inner.step(game, action, own), types)
            return key, game, reward + game.rewards[player]

        def waiting(carry: PyTree) -> jax.Array:
            return ~carry[1].terminated & (carry[1].current_player != player)

        return jax.lax.while_loop(waiting, move, (key, cast(game, types), jnp.float32(0)))[1:]


@functools.cache
@own_settings()
def num_actions(env: SuiteEnvironment) -> int:
    """The number of actions of a game, for which Pgx begins one.

    Args:
      env: Environment whose `inner` is a game of Pgx.
    """
    with jax.ensure_compile_time_eval():
        return env.inner.num_actions


def _uniform(key: jax.Array, obs: Observation, mask: jax.Array) -> jax.Array:
    """One of the legal actions, all equally likely."""
    del obs
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))


def held(game: State) -> Any:
    """What the next step needs of a game: all but the observation.

    Args:
      game: State of a game of Pgx.
    """
    return game.replace(observation=None)
