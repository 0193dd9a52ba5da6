"""Bandits whose values change, and adversaries: values are exact at every pull."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandit_draws import DRAWS, STANDARD_ERRORS, assert_mean, draw_rewards, f32, start, walk

import envs

# --- values that change -----------------------------------------------------------------


def test_stated_pieces_start_at_their_steps() -> None:
    pieces = ((0.1, 0.9, 0.5), (0.8, 0.2, 0.4))
    env: Any = envs.make("bandit/piecewise", means=pieces, starts=(0, 3))
    states, actions, rewards, info, _ = walk(env, env.default_params, 6)
    np.testing.assert_array_equal(states.values, f32([pieces[0]] * 3 + [pieces[1]] * 3))
    values = f32([pieces[0]] * 3 + [pieces[1]] * 3)
    regret = f32([0.9, 0.9, 0.9, 0.8, 0.8, 0.8]) - values[np.arange(6), actions]
    np.testing.assert_array_equal(info["metrics"]["regret"], regret)
    assert set(rewards) <= {0.0, 1.0}


@pytest.mark.slow
def test_drawn_pieces_have_the_expected_length() -> None:
    env: Any = envs.make("bandit/piecewise", num_arms=3, rewards="gaussian")
    params = env.default_params.replace(change=0.25, low=-1.0, high=3.0, sigma=0.1)
    states, actions, rewards, *_ = walk(env, params, DRAWS)
    values = states.values.astype(np.float64)
    changed = np.any(values[1:] != values[:-1], axis=1)
    assert_mean(changed.astype(np.float64), 0.25)
    assert np.all(np.all(values[1:] != values[:-1], axis=1) == changed)  # all arms at once
    assert values.min() >= -1 and values.max() <= 3
    pieces = values[1:][changed]
    assert_mean(pieces[:, 0], 1.0, 4 / np.sqrt(12))
    assert_mean(rewards - values[np.arange(DRAWS), actions], 0.0, 0.1)


def test_a_random_walk_takes_its_steps_and_stays_inside() -> None:
    env: Any = envs.make("bandit/random-walk", means=(0.2, 0.5))
    params = env.default_params.replace(step=0.02)
    states, actions, rewards, *_ = walk(env, params, DRAWS)
    values = states.values.astype(np.float64)
    np.testing.assert_allclose(values[0], [0.2, 0.5], atol=1e-7)
    assert values.min() >= 0 and values.max() <= 1
    inner = np.all((values[:-1] > 0.2) & (values[:-1] < 0.8), axis=1)  # ten steps from the ends
    assert inner.sum() > 1000
    steps = (values[1:] - values[:-1])[inner, 0]
    assert_mean(steps, 0.0, 0.02)
    assert abs(steps.var() - 4e-4) < STANDARD_ERRORS * 4e-4 * np.sqrt(2 / len(steps))
    assert_mean(rewards - values[np.arange(DRAWS), actions], 0.0)


def test_waves_are_waves() -> None:
    env: Any = envs.make("bandit/sinusoidal", phases=(0.0, 0.25), rewards="gaussian")
    params = env.default_params.replace(period=50.0, low=-1.0, high=2.0, sigma=0.0)
    states, actions, rewards, *_ = walk(env, params, 120)
    turns = np.arange(120)[:, None] / 50 + np.array([0.0, 0.25])
    expected = 0.5 + 1.5 * np.sin(2 * np.pi * turns)
    np.testing.assert_allclose(states.values, expected, atol=5e-6)  # an angle up to 8 rounds by 5e-7, times 1.5
    np.testing.assert_array_equal(rewards, states.values[np.arange(120), actions])
    late = jax.jit(env.drift)(jax.random.key(0), start(env, params).replace(time=jnp.int32(10_000_012)), 0, params)
    np.testing.assert_allclose(late.values, expected[12], atol=5e-6)  # after ten million pulls the same as at the start


# --- adversaries -------------------------------------------------------------------------


def test_a_sequence_is_paid_out_and_starts_over() -> None:
    table = ((0.0, 1.0, 0.5), (1.0, 0.25, 0.0))
    env: Any = envs.make("bandit/sequence", table=table)
    assert env.num_arms == 3 and not env.stationary
    states, actions, rewards, *_ = walk(env, env.default_params, 5)
    expected = f32([table[t % 2] for t in range(5)])
    np.testing.assert_array_equal(states.values, expected)
    np.testing.assert_array_equal(rewards, expected[np.arange(5), actions])


def test_the_constrained_adversary_keeps_its_gap_through_growing_phases() -> None:
    env: Any = envs.make("bandit/constrained-adversary", num_arms=4)
    params = env.default_params.replace(gap=0.25, growth=2.0, first=3.0)
    states, actions, rewards, info, _ = walk(env, params, 3 + 6 + 12 + 24)
    high = np.repeat([True, False, True, False], [3, 6, 12, 24])
    best = np.arange(4) == states.best[0]
    expected = np.where(high[:, None], np.where(best, 1.0, 0.75), np.where(best, 0.25, 0.0))
    np.testing.assert_array_equal(states.values, f32(expected))
    np.testing.assert_array_equal(info["metrics"]["regret"], np.where(best[actions], 0.0, 0.25))
    assert np.all(rewards[high & best[actions]] == 1) and np.all(rewards[~high & ~best[actions]] == 0)
    assert {int(start(env, params, seed).best) for seed in range(40)} == {0, 1, 2, 3}


def test_the_drifting_adversary_lets_every_arm_lead() -> None:
    env: Any = envs.make("bandit/drifting-adversary", num_arms=4)
    params = env.default_params.replace(period=40.0)
    states, actions, rewards, *_ = walk(env, params, 40)
    turns = np.arange(40)[:, None] / 40 - states.phases[0].astype(np.float64)
    np.testing.assert_allclose(states.values, (1 + np.cos(2 * np.pi * turns)) / 2, atol=5e-6)
    assert list(np.bincount(states.values.argmax(axis=1), minlength=4)) == [10] * 4
    np.testing.assert_allclose(states.values.mean(axis=0), 0.5, atol=5e-6)
    np.testing.assert_array_equal(rewards, states.values[np.arange(40), actions])


def test_the_adaptive_adversary_responds_to_the_pulls() -> None:
    env: Any = envs.make("bandit/adaptive-adversary", num_arms=3)
    params = env.default_params.replace(rate=0.2, strength=0.5)
    states, actions, *_ = walk(env, params, 30)
    shares = np.zeros(3)
    for t in range(30):
        np.testing.assert_allclose(states.values[t], 1 - 0.5 * shares, atol=1e-6)
        shares = 0.8 * shares + 0.2 * (np.arange(3) == actions[t])
    assert_mean(draw_rewards(env, start(env, params).replace(values=jnp.array([0.3, 0.9, 1.0])), params, 0), 0.3)
