"""Autoencode and count-recall: exact values compared with brute force over decks, and step by step with NumPy."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from memory_episodes import assert_mean, play
from scipy.stats import hypergeom

import envs
from envs import discount_curves
from envs.memory import autoencode, count_recall
from envs.memory.autoencode import RANKS, SUITS, Autoencode
from envs.memory.count_recall import CountRecall

GAMMAS = (None, 0.9)


def orders(counts: list[int]) -> np.ndarray:
    """All different orders of a deck with so many cards of each value."""
    cards = [value for value, count in enumerate(counts) for _ in range(count)]
    return np.array(sorted(set(itertools.permutations(cards))))


# --- autoencode --------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [15, 10, 8, 5])
def test_autoencode_among_all_functions_and_all_orders_of_a_small_deck(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoencode, "RANKS", 2)
    env = Autoencode()
    decks = orders([2] * SUITS)
    assert decks.shape == (2520, 8) and env.default_params.max_steps_in_episode == 15
    params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
    for discount in GAMMAS:
        curve = discount_curves.of(discount, 15)[:limit]
        earned = {}
        for at_last in itertools.product(range(SUITS), repeat=SUITS):  # by the suit shown with the first answer
            for later in range(SUITS):
                total = 0.0
                for answer in range(limit - 7):
                    named = decks[:, 7 - answer]
                    said = np.array(at_last)[decks[:, 7]] if answer == 0 else later
                    total += curve[7 + answer] * np.mean(np.where(said == named, 1 / 8, -1 / 8))
                earned[at_last, later] = total
        assert env.memoryless(params, discount) == pytest.approx(max(earned.values()), abs=1e-12)
        assert env.optimum(params, discount) == pytest.approx(curve[7:].sum() / 8, abs=1e-12)


def test_known_values_of_autoencode() -> None:
    env: Any = envs.make("memory/autoencode")
    assert env == Autoencode() and env.name == "memory/autoencode" and env.num_cards == 52
    assert env.optimum() == pytest.approx(1, abs=1e-12) and env.memoryless() == pytest.approx(-49 / 104, abs=1e-12)
    assert envs.make("memory/autoencode", num_decks=2).default_params.max_steps_in_episode == 207
    low, high = env.return_range(dataclasses.replace(env.default_params, max_steps_in_episode=np.array([9, 53, 500])))
    np.testing.assert_allclose([low, high], [[0, -2 / 52, -1], [0, 2 / 52, 1]], rtol=1e-12)


def test_cards_are_shown_then_named_in_reverse_order() -> None:
    """An episode of random answers, compared with a pile of cards in NumPy."""
    env = Autoencode()
    params, step = env.default_params, jax.jit(env.step_env)
    obs, state = env.reset_env(jax.random.key(4), params)
    deck = list(np.asarray(state.suits))
    assert np.bincount(deck).tolist() == [RANKS] * SUITS and deck != sorted(deck)
    hand, rng = [deck.pop(0)], np.random.default_rng(0)
    np.testing.assert_array_equal(obs, [0, *np.eye(4)[hand[-1]]])
    for time in range(103):
        action, naming = int(rng.integers(4)), not deck
        if naming:
            suit = hand.pop()
            expected, seen = (1 if action == suit else -1) / 52, np.zeros(4)
        else:
            hand.append(deck.pop(0))
            expected, seen = 0.0, np.eye(4)[hand[-1]]
        obs, state, reward, terminated, _ = step(jax.random.key(time), state, jnp.int32(action), params)
        assert float(reward) == np.float32(expected)
        np.testing.assert_array_equal(obs, [not deck, *seen])
        assert bool(terminated) == (not deck and not hand) == (time == 102)


def _recite(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    last = len(memory) - 1
    memory = jnp.where(time <= last, memory.at[jnp.minimum(time, last)].set(jnp.argmax(obs[1:])), memory)
    return memory[jnp.clip(2 * last - time, 0, last)], memory


def _name_what_is_shown(obs: jax.Array, memory: Any, time: jax.Array) -> Any:
    return jnp.argmax(obs[1:]), memory  # the first suit where none is shown


@pytest.mark.slow
def test_handwritten_policies_earn_the_stated_returns_of_autoencode() -> None:
    env = Autoencode()
    rewards, lengths = play(env, _recite, np.zeros(52, np.int32), 103, 256)
    np.testing.assert_array_equal(lengths, 103)
    # Each reward is 1 / 52 rounded to float32.
    np.testing.assert_allclose(rewards.sum(axis=1), env.optimum(), rtol=2**-24)
    curve = discount_curves.of(0.98, 103)
    np.testing.assert_allclose(rewards @ curve, env.optimum(discount=0.98), rtol=2**-24)
    rewards, _ = play(env, _name_what_is_shown, (), 103, 20_000)
    assert_mean(rewards.sum(axis=1), env.memoryless())
    assert_mean(rewards @ curve, env.memoryless(discount=0.98))


# --- count-recall ------------------------------------------------------------------------


@pytest.mark.parametrize(("cards", "num_values"), [(4, 2), (8, 2), (4, 4)])
def test_count_recall_among_all_functions_and_all_orders_of_small_decks(
    cards: int, num_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actions change nothing, so the best function has the best answer to each observation."""
    monkeypatch.setattr(count_recall, "DECK", cards)
    env = CountRecall(num_values=num_values)
    decks = orders([env.num_alike] * num_values)
    for discount, limit in itertools.product(GAMMAS, (cards - 1, 2)):
        params = dataclasses.replace(env.default_params, max_steps_in_episode=limit)
        curve = discount_curves.of(discount, limit)
        earned = np.zeros((num_values, num_values, env.num_alike + 1))
        for values, queries in itertools.product(decks, decks):
            for time in range(limit):
                pay = np.full(env.num_alike + 1, -1.0)
                pay[np.sum(values[: time + 1] == queries[time])] = 1.0
                earned[values[time], queries[time]] += curve[time] * pay
        best = earned.max(axis=-1).sum() / len(decks) ** 2 / (cards - 1)
        assert env.memoryless(params, discount) == pytest.approx(best, abs=1e-12)
        assert env.optimum(params, discount) == pytest.approx(curve.sum() / (cards - 1), abs=1e-12)


def test_known_values_of_count_recall() -> None:
    env: Any = envs.make("memory/count-recall")
    assert env == CountRecall() and env.name == "memory/count-recall"
    assert env.optimum() == pytest.approx(1, abs=1e-12) and -1 < env.memoryless() < 0
    assert env.num_actions == 27 and env.default_params.max_steps_in_episode == 51
    hard: Any = envs.make("memory/count-recall", num_decks=4, num_values=13)
    assert hard.num_actions == 17 and hard.num_cards == 208
    low, high = env.return_range(dataclasses.replace(env.default_params, max_steps_in_episode=np.array([17, 500])))
    np.testing.assert_allclose([low, high], [[-1 / 3, -1], [1 / 3, 1]], rtol=1e-12)


@pytest.mark.parametrize("num_values", [2, 13])
def test_cards_are_counted_with_the_one_shown(num_values: int) -> None:
    """An episode that answers rightly in two steps of three, compared with lists in NumPy."""
    env = CountRecall(num_values=num_values)
    params, step = env.default_params, jax.jit(env.step_env)
    obs, state = env.reset_env(jax.random.key(0), params)
    shown, asked = [], []
    for time in range(51):
        value, query = (int(np.argmax(part)) for part in np.split(np.asarray(obs), 2))
        np.testing.assert_array_equal(obs, [*np.eye(num_values)[value], *np.eye(num_values)[query]])
        shown, asked = [*shown, value], [*asked, query]
        count = shown.count(query)
        action = count if time % 3 else (count + 1) % (env.num_alike + 1)
        obs, state, reward, terminated, _ = step(jax.random.key(time), state, jnp.int32(action), params)
        assert float(reward) == np.float32((1 if time % 3 else -1) / 51) and bool(terminated) == (time == 50)
    value, query = (int(np.argmax(part)) for part in np.split(np.asarray(obs), 2))
    for dealt in ([*shown, value], [*asked, query]):
        assert np.bincount(dealt).tolist() == [52 // num_values] * num_values


def _count(obs: jax.Array, memory: jax.Array, time: jax.Array) -> Any:
    shown, asked = jnp.split(obs, 2)
    memory = memory + shown.astype(jnp.int32)
    return memory[jnp.argmax(asked)], memory


def _always(same: int, other: int) -> Callable[..., Any]:
    def policy(obs: jax.Array, memory: Any, time: jax.Array) -> Any:
        shown, asked = jnp.split(obs, 2)
        return jnp.where(jnp.sum(shown * asked) > 0, same, other), memory

    return policy


@pytest.mark.slow
@pytest.mark.parametrize(("num_decks", "num_values"), [(1, 2), (2, 4)])
def test_handwritten_policies_earn_the_stated_returns_of_count_recall(num_decks: int, num_values: int) -> None:
    env = CountRecall(num_decks, num_values)
    steps, alike = env.num_cards - 1, env.num_alike
    rewards, lengths = play(env, _count, np.zeros(num_values, np.int32), steps, 256)
    np.testing.assert_array_equal(lengths, steps)
    # Each reward is 1 / (n - 1) rounded to float32.
    np.testing.assert_allclose(rewards.sum(axis=1), env.optimum(), rtol=2**-24)
    # The most frequent numbers, by SciPy's hypergeometric distribution of the cards before the present one.
    before, time = np.arange(alike + 1)[:, None], np.arange(steps)
    chances = hypergeom.pmf(before, env.num_cards, alike, time)
    again = (alike - before) / (env.num_cards - time)
    same, other = 1 + np.argmax(np.sum(chances * again, axis=1)), np.argmax(np.sum(chances * (1 - again), axis=1))
    rewards, _ = play(env, _always(int(same), int(other)), (), steps, 20_000)
    assert_mean(rewards.sum(axis=1), env.memoryless())


@pytest.mark.slow
def test_values_and_queries_are_equally_likely_and_independent() -> None:
    env = CountRecall(num_values=4)
    _, state = jax.vmap(env.reset_env, (0, None))(jax.random.split(jax.random.key(0), 8000), env.default_params)
    table = np.zeros((4, 4))
    np.add.at(table, (np.asarray(state.value), np.asarray(state.query)), 1 / 8000)
    assert np.all(np.abs(table - 1 / 16) < 4.5 * np.sqrt(1 / 16 / 8000))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Autoencode(0), "num_decks must be a whole number of at least 1, got 0"),
        (lambda: CountRecall(0), "num_decks must be a whole number of at least 1, got 0"),
        (lambda: CountRecall(1, 3), "num_values must be one of 2, 4, 13, got 3"),
        (lambda: envs.make("autoencode"), "did you mean 'memory/autoencode'"),
    ],
)
def test_invalid_arguments_are_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
