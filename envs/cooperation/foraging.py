"""Foraging: two agents on a small grid, and fruit that only both together can eat."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.arguments import check_count, check_positive
from envs.base import spaces
from envs.cooperation.pairs import Pair, PairParams
from envs.cooperation.partners import View

# Rows and columns that actions move by: stay, up, down, left, right.
MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


@struct.dataclass
class ForagingState(base.EnvState):
    """The state of a grid.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      place: Cell of each agent, row and column, int32 `[2, 2]`.
      fruit: Cell of the fruit of each kind, int32 `[K, 2]`.
      moved: Last action of each agent, int32 `[2]`; 0, staying, before the first.
      at: Kind of fruit that each agent is at, int32 `[2]`; K for none.
      before: Kind of fruit that each agent was at one step earlier, int32 `[2]`; -1 before the first step.
      waited: Number of steps that each agent has been alone at a fruit, int32 `[2]`.
      eaten: Whether a fruit was eaten in the last step, bool `[]`.
    """

    time: jax.Array
    place: jax.Array
    fruit: jax.Array
    moved: jax.Array
    at: jax.Array
    before: jax.Array
    waited: jax.Array
    eaten: jax.Array


@struct.dataclass
class ForagingParams(PairParams):
    """Rewards, the patience of partners, and their population.

    Attributes:
      fruit: Payoff of a fruit.
      patience: Number of steps that a scripted partner is alone at a fruit before its round is over, at least 1.
      max_steps_in_episode: Time limit, which alone ends an episode.
    """

    fruit: float = 1.0
    patience: float = 4.0
    max_steps_in_episode: int = 48


@dataclass(frozen=True, kw_only=True)
class Foraging(Pair):
    """Two agents move on a grid, and eat a fruit where both are on its cell at the end of a step.

    There is one fruit of each kind; an eaten one grows again on a random free cell. Agents may share a cell. A round of
    a scripted partner ends with a fruit, or when it has been alone at one for `patience` steps; its rule chooses the
    next kind. To eat, an agent has to know to which kind its partner will go, in which order it takes them, and for how
    long it will wait. An agent observes its own cell, the other's and the fruits relative to it, and both last moves.
    Episodes end by the time limit alone. The best return is not known.

    Attributes:
      size: Number of rows and of columns, at least 2.
      num_kinds: Number of kinds of fruit, K, fewer than cells.
      partner: Population of partners, see `Pair`; None for self-play.

    Source: after level-based foraging, Albrecht and Ramamoorthy (2013), with fruit that always takes two agents; the
      rules are this project's own.
    """

    size: int = 7
    num_kinds: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("size", self.size, 2)
        check_count("num_kinds", self.num_kinds, 1, self.size**2 - 2, ", as fruits and agents need cells of their own")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "cooperation/foraging" if self.partner is not None else "cooperation/foraging-self-play"

    @property
    def num_options(self) -> int:
        """The number of kinds of fruit."""
        return self.num_kinds

    @property
    def default_params(self) -> ForagingParams:
        """A payoff of 1, a patience of 4 steps, 48 steps, and the partner's default population."""
        return ForagingParams(**self.drawn_from())

    def check_params(self, params: ForagingParams) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Reject a patience that is not above 0, and a population that does not fit."""
        super().check_params(params)
        check_positive(params, "patience")

    def begin(self, key: jax.Array, params: ForagingParams) -> ForagingState:
        """Agents and fruits on different random cells."""
        del params
        cells = jax.random.choice(key, self.size**2, (2 + self.num_kinds,), replace=False)
        places = jnp.stack([cells // self.size, cells % self.size], axis=-1).astype(jnp.int32)
        zeros, none = jnp.zeros(2, jnp.int32), jnp.full(2, -1, jnp.int32)
        at = jnp.full(2, self.num_kinds, jnp.int32)
        time, eaten = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        return ForagingState(time, places[:2], places[2:], zeros, at, none, zeros, eaten)

    def play(
        self, key: jax.Array, game: ForagingState, actions: jax.Array, params: ForagingParams
    ) -> tuple[ForagingState, jax.Array, jax.Array, dict[str, jax.Array]]:
        """Move both agents, and pay them for a fruit on which both are."""
        place = jnp.clip(game.place + jnp.asarray(MOVES, jnp.int32)[actions], 0, self.size - 1)
        on = jnp.all(place[:, None] == game.fruit, axis=-1)  # [agents, kinds]; no two fruits share a cell
        eaten = jnp.all(on, axis=0)
        any_eaten = jnp.any(eaten)
        at = jnp.where(jnp.any(on, axis=1), jnp.argmax(on, axis=1), self.num_kinds).astype(jnp.int32)
        alone = jnp.any(on, axis=1) & ~any_eaten
        # A round that is over begins again with the wait.
        over = game.waited.astype(jnp.float32) >= params.patience
        waited = jnp.where(alone, jnp.where(over, 0, game.waited) + 1, 0).astype(jnp.int32)
        fruit = jnp.where(eaten[:, None], self._free_cell(key, place, game.fruit), game.fruit)
        after = ForagingState(game.time + 1, place, fruit, actions, at, game.at, waited, any_eaten)
        payoff = jnp.where(any_eaten, params.fruit, 0.0).astype(jnp.float32)
        return after, payoff, jnp.zeros((), bool), {"together": any_eaten}

    def observe(self, game: ForagingState, params: ForagingParams) -> jax.Array:
        """Observations: own cell, the other agent and fruits relative to it, in grid sizes, and both moves, one-hot."""
        del params
        scale = self.size - 1
        things = jnp.concatenate([game.place[::-1][:, None], jnp.broadcast_to(game.fruit, (2, *game.fruit.shape))], 1)
        relative = (things - game.place[:, None]).reshape(2, -1) / scale
        moves = (game.moved[:, None] == jnp.arange(len(MOVES))).astype(jnp.float32)
        return jnp.concatenate([game.place / scale, relative, moves, moves[::-1]], axis=-1).astype(jnp.float32)

    def view(self, game: ForagingState, agent: int, params: ForagingParams) -> View:
        """Options are kinds of fruit, valued by closeness; the other agent's option is the kind that it is at."""
        distance = jnp.sum(jnp.abs(game.fruit - game.place[agent]), axis=-1)
        over = game.eaten | (game.waited[agent].astype(jnp.float32) >= params.patience)
        other = jnp.stack([game.at[1 - agent], game.before[1 - agent]])
        return View(-distance.astype(jnp.float32), other, over, game.eaten)

    def to_action(self, game: ForagingState, agent: int, option: jax.Array, params: ForagingParams) -> jax.Array:
        """A step towards the fruit, along the longer axis first; 0, staying, at the fruit or for no option."""
        del params
        exists = option < self.num_kinds
        row, column = game.fruit[jnp.minimum(option, self.num_kinds - 1)] - game.place[agent]
        vertical, horizontal = jnp.where(row < 0, 1, 2), jnp.where(column < 0, 3, 4)
        move = jnp.where(jnp.abs(row) >= jnp.abs(column), vertical, horizontal)
        return jnp.where(exists & ((row != 0) | (column != 0)), move, 0).astype(jnp.int32)

    def action_space(self, params: ForagingParams | None = None) -> spaces.Discrete:
        """Stay, up, down, left or right."""
        del params
        return spaces.Discrete(len(MOVES))

    def game_space(self) -> spaces.Box:
        """The space of one agent's observation; see `observe`."""
        return spaces.Box(-1.0, 1.0, (2 + 2 * (1 + self.num_kinds) + 2 * len(MOVES),), jnp.float32)

    def _free_cell(self, key: jax.Array, place: jax.Array, fruit: jax.Array) -> jax.Array:
        """A random cell without an agent or a fruit `[2]`."""
        taken = jnp.concatenate([place, fruit])
        index = taken[:, 0] * self.size + taken[:, 1]
        free = ~jnp.any(jnp.arange(self.size**2)[:, None] == index, axis=1)
        cell = jax.random.categorical(key, jnp.where(free, 0.0, -jnp.inf))
        return jnp.stack([cell // self.size, cell % self.size]).astype(jnp.int32)
