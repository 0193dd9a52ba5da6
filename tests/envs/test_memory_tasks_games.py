"""Concentration and battleship: rules step by step in NumPy, bounds, and exact values compared with brute force."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from memory_episodes import assert_mean, play

import envs
import jaxrl
from envs import discount_curves
from envs.memory.battleship import Battleship
from envs.memory.concentration import Concentration
from jaxrl.algorithms.registry import build, describe

GAMMAS = (None, 0.9)


# --- concentration -----------------------------------------------------------------------


class Table:
    """The rules of concentration, on lists."""

    def __init__(self, values: list[int]):
        self.values, self.up, self.hand = values, [], []
        self.cost = 1 / math.ceil(2 * len(values) - len(values) / (2 * len(values) - 1))

    def turn(self, card: int) -> tuple[float, list[int]]:
        """The reward, and the visible cards."""
        self.hand.append(card)
        visible, hand, reward = [*self.up, *self.hand], self.hand, 0.0
        if card in self.up:
            reward, self.hand = -self.cost * len(hand), []
        elif len(hand) == 2:
            if hand[0] != hand[1] and self.values[hand[0]] == self.values[hand[1]]:
                reward, self.up = 2 / len(self.values), [*self.up, *hand]
            else:
                reward = -2 * self.cost
            self.hand = []
        return reward, visible


@pytest.mark.parametrize(("num_cards", "num_values"), [(4, 1), (8, 2), (12, 3)])
def test_cards_are_turned_by_the_rules(num_cards: int, num_values: int) -> None:
    """Random cards, among them repeated and face-up ones, until all pairs are found."""
    env = Concentration(num_cards, num_values)
    params, step = env.default_params, jax.jit(env.step_env)
    obs, state = env.reset_env(jax.random.key(1), params)
    values = np.asarray(state.values)
    assert np.bincount(values).tolist() == [num_cards // num_values] * num_values and not np.any(obs)
    table, rng, kinds = Table(values.tolist()), np.random.default_rng(3), set()
    for time in range(600):
        card = int(rng.integers(num_cards))
        kinds.add((len(table.hand), card in table.up, card in table.hand))
        face_up = len(table.up)
        expected, visible = table.turn(card)
        obs, state, reward, terminated, info = step(jax.random.key(time), state, jnp.int32(card), params)
        assert float(reward) == pytest.approx(expected, abs=1e-7)
        seen = np.zeros((num_cards, num_values))
        seen[visible, values[visible]] = 1
        np.testing.assert_array_equal(obs, seen.ravel())
        assert int(info["metrics"]["pairs"]) == (len(table.up) - face_up) // 2
        assert bool(terminated) == (len(table.up) == num_cards)
        if terminated:
            break
    assert bool(terminated) and kinds == {
        (0, False, False),
        (0, True, False),
        (1, False, False),
        (1, True, False),
        (1, False, True),
    }


def test_a_policy_with_full_knowledge_of_the_cards_attains_the_bound() -> None:
    env = Concentration(12, 3)
    params, step = env.default_params, jax.jit(env.step_env)
    _, state = env.reset_env(jax.random.key(0), params)
    rewards = []
    for card in np.argsort(np.asarray(state.values), kind="stable"):
        _, state, reward, terminated, _ = step(jax.random.key(0), state, jnp.int32(card), params)
        rewards.append(float(reward))
    assert bool(terminated)
    for discount, limit in itertools.product(GAMMAS, (24, 12, 7)):
        cut = dataclasses.replace(params, max_steps_in_episode=limit)
        earned = np.array(rewards[:limit]) @ discount_curves.of(discount, 12)[:limit]
        assert env.bound(cut, discount) == pytest.approx(earned, abs=1e-6)
        assert env.return_range(cut) == pytest.approx((-2 * (limit // 2) / 24, min(limit // 2, 6) / 6))


def test_memory_finds_two_pairs_at_its_known_price() -> None:
    """Of four cards, the first two are a pair in one case of three; else they cost 2 / 8, and all others are known."""
    env = Concentration(4, 2)
    params, step = env.default_params, jax.jit(env.step_env)
    _, state = env.reset_env(jax.random.key(0), params)
    earned = []
    for values in set(itertools.permutations((0, 0, 1, 1))):
        place = dataclasses.replace(state, values=jnp.array(values))
        cards = (
            [0, 1, 2, 3] if values[0] == values[1] else [0, 1, 2, values.index(values[2]), 3, values.index(values[3])]
        )
        total = 0.0
        for card in cards:
            _, place, reward, terminated, _ = step(jax.random.key(0), place, jnp.int32(card), params)
            total += float(reward)
        assert bool(terminated)
        earned.append(total)
    assert len(earned) == 6 and np.mean(earned) == pytest.approx(5 / 6, abs=1e-6) and env.bound() == 1


def test_sizes_of_concentration() -> None:
    env: Any = envs.make("memory/concentration")
    assert env == Concentration(52, 2) and env.name == "memory/concentration" and env.optimum() is None
    assert env.memoryless() is None and env.default_params.max_steps_in_episode == 104
    assert envs.make("memory/concentration", num_cards=104).default_params.max_steps_in_episode == 208


# --- battleship --------------------------------------------------------------------------


def placements(size: int, ships: tuple[int, ...]) -> dict[frozenset[int], float]:
    """The probability of each board if a start and one of four directions are drawn until a ship fits."""
    boards = {frozenset(): 1.0}
    for ship in ships:
        more: dict[frozenset[int], float] = {}
        for board, chance in boards.items():
            fitting = []
            for row, column, (down, right) in itertools.product(
                range(size), range(size), ((0, 1), (0, -1), (1, 0), (-1, 0))
            ):
                cells = [(row + step * down, column + step * right) for step in range(ship)]
                numbers = {a * size + b for a, b in cells if 0 <= a < size and 0 <= b < size}
                if len(numbers) == ship and not numbers & board:
                    fitting.append(board | numbers)
            for each in fitting:
                more[each] = more.get(each, 0.0) + chance / len(fitting)
        boards = more
    return boards


def best_shots(size: int, ships: tuple[int, ...], curve: np.ndarray) -> float:
    """The best return over all policies that remember everything, with all cells as actions at every step."""
    cells, targets = size**2, sum(ships)

    @functools.cache
    def best(possible: tuple[tuple[frozenset[int], float], ...], shots: frozenset[int], time: int) -> float:
        if time == len(curve):
            return 0.0
        values = []
        for cell in range(cells):
            value = 0.0
            for hit in (True, False):
                rest = tuple(board for board in possible if (cell in board[0] and cell not in shots) == hit)
                chance = sum(weight for _, weight in rest)
                value += chance * curve[time] * (1 / targets if hit else -1 / (cells - targets))
                over = rest and rest[0][0] <= shots | {cell}  # a finished game has one possible board
                if rest and not over:
                    value += best(rest, shots | {cell}, time + 1)
            values.append(value)
        return max(values)

    total = 0.0
    for shown in range(cells):
        dry = tuple(
            (board, weight / (cells - targets))
            for board, weight in placements(size, ships).items()
            if shown not in board
        )
        total += best(dry, frozenset(), 0)
    return total


@pytest.mark.parametrize(
    ("size", "ships", "limit"), [(2, (2,), 4), (2, (2,), 2), (3, (2,), 5), (3, (2, 2), 4), (3, (3,), 6), (4, (4,), 2)]
)
def test_optimum_of_battleship_is_the_best_of_all_policies(size: int, ships: tuple[int, ...], limit: int) -> None:
    env = Battleship(size, ships)
    params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
    for discount in (None, 0.9, 0.3):
        expected = best_shots(size, ships, discount_curves.of(discount, limit))
        assert env.optimum(params, discount) == pytest.approx(expected, abs=1e-12)
        assert expected <= env.bound(params, discount) + 1e-12


def test_known_values_of_battleship() -> None:
    """On 2 x 2 cells the one opposite to that shown is hit, and each other one is the second with probability 1/2."""
    assert Battleship(2, (2,)).optimum() == pytest.approx(3 / 4, abs=1e-12)
    env: Any = envs.make("memory/battleship-small")
    assert env == Battleship(4, (3,)) and env.name == "memory/battleship-small" and env.memoryless() is None
    assert f"{env.optimum():.4f}" == "0.8299" and env.bound() == 1
    easy: Any = envs.make("memory/battleship-small", board_size=8, ships=(2, 3, 3, 4))
    assert (easy.num_actions, easy.num_targets, easy.optimum(), easy.bound()) == (64, 12, None, 1)
    low, high = env.return_range(dataclasses.replace(env.default_params, max_steps_in_episode=np.array([2, 16])))
    np.testing.assert_allclose([low, high], [[-2 / 13, -16 / 13], [2 / 3, 1]], rtol=1e-12)
    described = describe(jaxrl.ppo(easy))
    assert build(described).env == easy


@pytest.mark.parametrize(("size", "ships"), [(3, (2, 2)), (4, (3,))])
def test_boards_have_the_probabilities_of_a_draw_until_ships_fit(size: int, ships: tuple[int, ...]) -> None:
    expected = placements(size, ships)
    env = Battleship(size, ships)
    stated = {frozenset(i for i in range(size**2) if board >> i & 1): p for board, p in env._boards().items()}
    assert stated.keys() == expected.keys() and sum(stated.values()) == pytest.approx(1, abs=1e-12)
    assert all(stated[board] == pytest.approx(expected[board], abs=1e-12) for board in expected)
    count = 4000
    keys = jax.random.split(jax.random.key(0), count)
    obs, state = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys, env.default_params)
    drawn = [frozenset(np.flatnonzero(board).tolist()) for board in np.asarray(state.ships)]
    for board, chance in expected.items():
        assert abs(drawn.count(board) / count - chance) < 4.5 * np.sqrt(chance * (1 - chance) / count)
    shown = np.asarray(state.cell)
    assert not any(cell in board for cell, board in zip(shown, drawn, strict=True))
    np.testing.assert_array_equal(obs[:, 1:], np.hstack([np.eye(size)[shown // size], np.eye(size)[shown % size]]))
    dry = [(sum(cell not in board for board in drawn), np.sum(shown == cell)) for cell in range(size**2)]
    for number, times in dry:  # each dry cell of a board is shown with the same probability
        share = 1 / (size**2 - sum(ships))
        assert abs(times - number * share) < 4.5 * np.sqrt(number * share * (1 - share))


def test_shots_hit_once() -> None:
    """Random shots, repeated ones among them, by the rules in NumPy."""
    env = Battleship(5, (2, 3))
    params, step = env.default_params, jax.jit(env.step_env)
    _, state = env.reset_env(jax.random.key(2), params)
    ships, fired, rng = set(np.flatnonzero(state.ships).tolist()), set(), np.random.default_rng(0)
    assert len(ships) == 5
    rewards = []
    for time in range(400):
        cell = int(rng.integers(25))
        hit = cell in ships and cell not in fired
        fired.add(cell)
        obs, state, reward, terminated, _ = step(jax.random.key(time), state, jnp.int32(cell), params)
        assert float(reward) == np.float32(1 / 5 if hit else -1 / 20)
        np.testing.assert_array_equal(obs, [hit, *np.eye(5)[cell // 5], *np.eye(5)[cell % 5]])
        assert bool(terminated) == (ships <= fired)
        rewards.append(float(reward))
        if terminated:
            break
    assert bool(terminated) and len(rewards) > len(fired) and rewards.count(np.float32(0.2)) == 5


def _opposite_then_beside(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    shown = 2 * jnp.argmax(obs[1:3]) + jnp.argmax(obs[3:5])
    memory = jnp.where(time == 0, shown, memory)
    return jnp.where(time == 0, 3 - memory, jnp.where(time == 1, 1 ^ memory, 2 ^ memory)), memory


@pytest.mark.slow
def test_a_policy_by_hand_earns_the_optimum_of_the_smallest_board() -> None:
    env = Battleship(2, (2,))
    rewards, lengths = play(env, _opposite_then_beside, np.int32(0), 4, 20_000)
    assert set(lengths.tolist()) == {2, 3}
    for discount in GAMMAS:
        stated = env.optimum(discount=discount)
        assert_mean(rewards @ discount_curves.of(discount, 4), stated)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Concentration(50, 2), "num_cards must be a multiple of 4, twice num_values, got 50"),
        (lambda: Concentration(4, 0), "num_values must be a whole number of at least 1, got 0"),
        (lambda: Battleship(1), "board_size must be a whole number of at least 2, got 1"),
        (lambda: Battleship(4, ()), r"ships must be a tuple of lengths, such as \(2, 3\), got \(\)"),
        (lambda: Battleship(4, (5,)), "a length in ships must be a whole number from 2 to 4, got 5"),
        (lambda: Battleship(3, (3, 2)), r"ships is \(3, 2\), too many for a board of 3 x 3; every ship must find"),
    ],
)
def test_invalid_arguments_are_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
