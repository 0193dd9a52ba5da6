"""Battleship: hit the cells of hidden ships on a board of which only the last shot is shown."""

import functools
import operator
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
class BattleshipState(base.EnvState):
    """The state of a game on a board of b x b cells, which are numbered row by row.

    Attributes:
      time: Number of shots, int32 `[]`.
      ships: Whether a ship covers a cell, bool `[b^2]`.
      shots: Whether a cell has been shot at, bool `[b^2]`.
      cell: Cell shown, int32 `[]`.
      hit: Whether the last shot was a hit, bool `[]`.
    """

    time: jax.Array
    ships: jax.Array
    shots: jax.Array
    cell: jax.Array
    hit: jax.Array


@struct.dataclass
class BattleshipParams(base.EnvParams):
    """The time limit alone: one shot for each cell."""

    max_steps_in_episode: int = 16


@dataclass(frozen=True)
class Battleship(base.Environment):
    """Ships are hidden on a board; an action is a shot at a cell, and the game ends when all their cells are hit.

    A first shot at a cell of a ship is a hit. If ships cover h of the b^2 cells, a hit earns 1 / h, and any other shot
    costs 1 / (b^2 - h). The observation `[1 + 2 b]` has a flag for a hit and the row and the column of the last shot,
    each one-hot. At the start it shows a cell without a ship, each equally likely. Ships are placed one after another,
    each in a row or a column, with all free places equally likely.

    A board of 4 x 4 cells with one ship of 3 is this project's own, small enough for an exact optimum. A board of 8 x 8
    with ships of 2, 3, 3 and 4 is POPGym's easy form, of 10 x 10 its medium one, and of 12 x 12 its hard one. POPGym
    differs in its actions, which are pairs of a row and a column. One version of its code shows the last shot, and a
    cell without a ship at the start, as here; a later one shows the flag alone, and a wrapper adds the last action.

    The best return without a memory is not known: the last shot is observed, so that such a policy can shoot at all
    cells in a fixed order.

    Attributes:
      board_size: Number of cells in a row or a column, b.
      ships: Number of cells of each ship, in the order in which they are placed; every ship must find a place, wherever
        the earlier ones are.

    Source: Morad et al. (2023), "POPGym: benchmarking partially observable reinforcement learning".
    """

    board_size: int = 4
    ships: tuple[int, ...] = (3,)

    def __post_init__(self) -> None:
        check_count("board_size", self.board_size, 2)
        if not isinstance(self.ships, tuple | list) or not self.ships:
            raise UserValueError(f"ships must be a tuple of lengths, such as (2, 3), got {self.ships!r}")
        object.__setattr__(self, "ships", tuple(self.ships))
        for placed, ship in enumerate(self.ships):
            check_count("a length in ships", ship, 2, self.board_size)
            # A cell belongs to at most 2 * ship places, so that the cells of earlier ships block at most so many.
            if len(self.places(ship)) <= 2 * ship * sum(self.ships[:placed]):
                raise UserValueError(
                    f"ships is {self.ships}, too many for a board of {self.board_size} x {self.board_size}; every ship "
                    "must find a place, wherever the earlier ones are"
                )

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/battleship-small"

    @property
    def num_cells(self) -> int:
        """The number of cells, b^2."""
        return self.board_size**2

    @property
    def num_targets(self) -> int:
        """The number of cells that ships cover, h."""
        return sum(self.ships)

    @property
    def default_params(self) -> BattleshipParams:
        """A shot for each cell."""
        return BattleshipParams(max_steps_in_episode=self.num_cells)

    def places(self, ship: int) -> np.ndarray:
        """All places of a ship on an empty board, bool `[P, b^2]`: first those in rows, then those in columns."""
        size = self.board_size
        rows = np.zeros((size, size - ship + 1, size, size), bool)
        for row in range(size):
            for start in range(size - ship + 1):
                rows[row, start, row, start : start + ship] = True
        rows = rows.reshape(-1, size, size)
        return np.concatenate([rows, rows.swapaxes(1, 2)]).reshape(-1, size**2)

    def reset_env(self, key: jax.Array, params: BattleshipParams) -> tuple[jax.Array, BattleshipState]:
        """Place the ships, and show a cell without one `[1 + 2 b]`."""
        del params
        *ship_keys, cell_key = jax.random.split(key, len(self.ships) + 1)
        covered = jnp.zeros(self.num_cells, bool)
        for ship_key, ship in zip(ship_keys, self.ships, strict=True):
            places = jnp.asarray(self.places(ship))
            covered = covered | places[_one_of(ship_key, ~jnp.any(places & covered, axis=1))]
        none, zero = jnp.zeros(self.num_cells, bool), jnp.zeros((), jnp.int32)
        state = BattleshipState(zero, covered, none, _one_of(cell_key, ~covered), jnp.zeros((), bool))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: BattleshipState, action: jax.Array, params: BattleshipParams
    ) -> tuple[jax.Array, BattleshipState, jax.Array, jax.Array, dict[Any, Any]]:
        """Shoot."""
        del key, params
        action = jnp.asarray(action, jnp.int32)
        hit = state.ships[action] & ~state.shots[action]
        shots = state.shots | (jnp.arange(self.num_cells) == action)
        reward = jnp.where(hit, 1 / self.num_targets, -1 / (self.num_cells - self.num_targets))
        state = BattleshipState(state.time + 1, state.ships, shots, action, hit)
        return self._observe(state), state, reward.astype(jnp.float32), jnp.all(shots | ~state.ships), {}

    def return_range(self, params: BattleshipParams) -> tuple[Any, Any]:
        """From misses alone to hits alone."""
        steps = np.asarray(params.max_steps_in_episode, np.float64)
        hits = np.minimum(steps, self.num_targets)
        return -steps / (self.num_cells - self.num_targets), hits / self.num_targets

    def action_space(self, params: BattleshipParams | None = None) -> spaces.Discrete:
        """A cell, row by row."""
        del params
        return spaces.Discrete(self.num_cells)

    def observation_space(self, params: BattleshipParams) -> spaces.Box:
        """Whether the last shot was a hit, and its row and its column, one-hot."""
        del params
        return spaces.Box(0.0, 1.0, (1 + 2 * self.board_size,), jnp.float32)

    def optimum(
        self,
        params: BattleshipParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float | None:
        """The best return under a discount that never rises, for boards of one ship up to 4 x 4, and of up to 3 x 3.

        By dynamic programming over the cells that are known, and the hits among them. A shot at a cell that is known,
        or that no ship can cover, is never better than one at a possible target: a shot at the target first leaves the
        planned shots for afterwards, and gains its reward earlier. Values depend on the possible targets, the hits and
        the time, up to the symmetries of the square. None for other boards, see `bound`.

        The stationary optimum is not known, nor the sophisticated one unless the discount is exponential. See
        `envs.Environment.optimum`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return None
        if self.num_cells > 16 or (self.num_cells > 9 and len(self.ships) > 1):
            return None
        params = self.checked_params(params)
        curve = discount_curves.of(discount, min(self.num_cells, int(params.max_steps_in_episode)))
        if kind == "sophisticated" and not discount_curves.is_exponential(curve):
            return None
        boards = self._boards()
        gain, cost = 1 / self.num_targets, 1 / (self.num_cells - self.num_targets)
        cells, values_of = [1 << cell for cell in range(self.num_cells)], {}
        turned = self._symmetries()

        def best(known: int, hits: int, possible: list[tuple[int, float]], time: int) -> float:
            """The best rest of an expected return, times the probability of the results so far."""
            if time == len(curve) or hits.bit_count() == self.num_targets:
                return 0.0
            targets = functools.reduce(operator.or_, [board for board, _ in possible]) & ~known
            alike = time, min([(each[targets] << self.num_cells) + each[hits] for each in turned])
            if alike not in values_of:
                values = []
                for cell in cells:
                    with_ship = [] if known & cell else [board for board in possible if board[0] & cell]
                    if with_ship:
                        without = [board for board in possible if not board[0] & cell]
                        hit, missed = (sum(weight for _, weight in part) for part in (with_ship, without))
                        value = curve[time] * (hit * gain - missed * cost)
                        value += best(known | cell, hits | cell, with_ship, time + 1)
                        values.append(value + (best(known | cell, hits, without, time + 1) if without else 0.0))
                values_of[alike] = max(values)
            return values_of[alike]

        total = 0.0
        for cell in cells:  # the one shown at the start
            total += best(cell, 0, [board for board in boards.items() if not board[0] & cell], 0)
        return total * cost

    def bound(self, params: BattleshipParams | None = None, discount: DiscountLike = None) -> float:
        """A bound on the return of any policy under a discount that never rises, that of hits alone.

        Args:
          params, discount: See `optimum`.
        """
        params = self.checked_params(params)
        curve = discount_curves.of(discount, min(self.num_targets, int(params.max_steps_in_episode)))
        return float(np.sum(curve) / self.num_targets)

    def _boards(self) -> dict[int, float]:
        """The probability of each set of covered cells, which is a number with one bit for each cell."""
        boards = {0: 1.0}
        for ship in self.ships:
            places = [sum(1 << int(cell) for cell in np.flatnonzero(place)) for place in self.places(ship)]
            more: dict[int, float] = {}
            for board, chance in boards.items():
                free = [place for place in places if not place & board]
                for place in free:
                    more[board | place] = more.get(board | place, 0.0) + chance / len(free)
            boards = more
        return boards

    def _symmetries(self) -> list[list[int]]:
        """For each of the eight symmetries of the square, the image of every set of cells."""
        sets, square = np.arange(2**self.num_cells), np.arange(self.num_cells).reshape((self.board_size,) * 2)
        images = []
        for turns in range(4):
            for image in (np.rot90(square, turns), np.rot90(square, turns).T):
                moved = [((sets >> cell) & 1) << int(place) for cell, place in enumerate(image.ravel())]
                images.append(np.sum(moved, axis=0).tolist())
        return images

    def _observe(self, state: BattleshipState) -> jax.Array:
        lines = jnp.arange(self.board_size)
        row, column = state.cell // self.board_size, state.cell % self.board_size
        return jnp.concatenate([state.hit[None], lines == row, lines == column]).astype(jnp.float32)


def _one_of(key: jax.Array, allowed: jax.Array) -> jax.Array:
    """The index of one of the true entries `[n]`, all equally likely, int32."""
    number = jax.random.randint(key, (), 0, jnp.sum(allowed))
    return jnp.argmax(jnp.cumsum(allowed) > number).astype(jnp.int32)
