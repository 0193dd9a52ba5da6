"""Bandits: rewards have the values as their mean, and values are exact."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from bandit_draws import DRAWS, LEVEL, STANDARD_ERRORS, assert_mean, draw_rewards, start, walk

import envs
from envs.bandits.heavy_tailed import fine_uniform

# --- gaussian ----------------------------------------------------------------------------


def test_gaussian_rewards_have_their_mean_and_noise() -> None:
    env: Any = envs.make("bandit/gaussian", means=(0.5, -2.0, 3.0))
    params = env.default_params.replace(sigma=0.7)
    state = start(env, params)
    rewards = draw_rewards(env, state, params, 1)
    assert_mean(rewards, -2.0, 0.7)
    # The variance of n normal draws has the standard error sigma^2 sqrt(2 / n).
    assert abs(rewards.var() - 0.49) < STANDARD_ERRORS * 0.49 * np.sqrt(2 / DRAWS)


def test_gaussian_means_follow_the_prior() -> None:
    env: Any = envs.make("bandit/gaussian", num_arms=DRAWS)
    params = env.default_params.replace(prior_mean=2.0, prior_sigma=3.0)
    means = np.asarray(start(env, params).values, np.float64)
    assert_mean(means, 2.0, 3.0)
    assert abs(means.var() - 9.0) < STANDARD_ERRORS * 9.0 * np.sqrt(2 / DRAWS)


# --- contextual --------------------------------------------------------------------------


@pytest.mark.fast_rows("logistic")
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_contextual_values_follow_from_features(name: str) -> None:
    theta = (1.0, -2.0, 0.5)
    env: Any = envs.make(f"bandit/{name}", num_arms=4, theta=theta)
    params = env.default_params
    states, actions, rewards, info, _ = walk(env, params, 5000)
    assert states.features.shape == (5000, 4, 3) and states.features.dtype == np.float32
    lengths = np.linalg.norm(states.features.astype(np.float64), axis=-1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)  # a few roundings of a float32 of size 1
    assert not np.any(states.features[1:] == states.features[:-1])
    scores = states.features.astype(np.float64) @ theta
    values = scores if name == "linear" else 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose(states.values, values, atol=5e-6)  # a dozen roundings of numbers up to 2.3
    taken = values[np.arange(5000), actions]
    assert_mean(rewards - taken, 0.0)
    np.testing.assert_allclose(info["metrics"]["regret"], values.max(axis=1) - taken, atol=1e-5)
    # Directions that are uniform have mean 0 and the covariance I / d.
    flat = states.features.reshape(-1, 3).astype(np.float64)
    for i in range(3):
        assert_mean(flat[:, i], 0.0)
        assert_mean(flat[:, i] ** 2, 1 / 3)


@pytest.mark.slow
def test_contexts_are_part_of_the_observation_and_may_stay_fixed() -> None:
    env: Any = envs.make("bandit/linear", num_arms=3, num_features=2, redraw=False)
    changing: Any = envs.make("bandit/linear")
    assert env.stationary and not changing.stationary
    states, *_, obs = walk(env, env.default_params, 5)
    assert np.all(states.features == states.features[0]) and np.all(states.values == states.values[0])
    assert obs.shape == (5, 3 + 2 + 6)
    np.testing.assert_array_equal(env.context(states, env.default_params), states.features)
    np.testing.assert_array_equal(obs[:, 5:], states.features.reshape(5, 6))


# --- counts, waiting times, heavy tails -------------------------------------------------


def test_poisson_counts_are_poisson() -> None:
    means = (0.3, 4.0, 150.0, 0.0)
    env: Any = envs.make("bandit/poisson", means=means)
    params = env.default_params
    state = start(env, params)
    pull = jax.vmap(jax.vmap(env.reward, (0, None, None, None)), (None, None, 0, None))
    rewards = np.asarray(jax.jit(pull)(jax.random.split(jax.random.key(7), DRAWS), state, jnp.arange(4), params))
    for mean, drawn in zip(means[:3], rewards, strict=False):
        assert_poisson(drawn, mean)
    assert not np.any(rewards[3])


def assert_poisson(rewards: np.ndarray, mean: float) -> None:
    """Chi-square test of draws of a Poisson variate."""
    counts = rewards.astype(int)
    assert np.all(counts == rewards)
    # Chi-square over bins that expect at least ten draws, all beyond them in the last.
    law = scipy.stats.poisson
    low, high = int(law.ppf(10 / DRAWS, mean)), int(law.isf(10 / DRAWS, mean))
    seen = np.bincount(np.clip(counts, low, high) - low, minlength=high - low + 1)
    share = law.pmf(np.arange(low, high + 1), mean)
    share[0], share[-1] = law.cdf(low, mean), law.sf(high - 1, mean)
    assert scipy.stats.chisquare(seen, DRAWS * share).pvalue > LEVEL


@pytest.mark.parametrize("name", ["exponential", "student-t", "pareto"])
def test_rewards_have_their_distribution(name: str) -> None:
    env: Any = envs.make(f"bandit/{name}", means=(1.0, 2.5))
    params = env.default_params
    state = start(env, params)
    law = {
        "exponential": scipy.stats.expon(scale=2.5),
        "student-t": scipy.stats.t(2.0, loc=2.5),
        "pareto": scipy.stats.pareto(1.8, scale=2.5 * 0.8 / 1.8),
    }[name]
    assert law.mean() == pytest.approx(2.5) and state.values[1] == 2.5
    rewards = draw_rewards(env, state, params, 1)
    assert scipy.stats.kstest(rewards, law.cdf).pvalue > LEVEL


def test_tails_are_drawn_finely() -> None:
    keys = jax.random.split(jax.random.key(3), 500_000)
    draws = np.asarray(jax.jit(jax.vmap(fine_uniform))(keys), np.float64)
    assert draws.min() > 0 and draws.max() <= 1
    # Near 0 a float32 has more digits than multiples of 2^-23; below 2^-15 there are about 15 of them.
    small = draws[draws < 2**-15] * 2**23
    assert len(small) > 3 and np.all(small != np.floor(small))


@pytest.mark.slow_rows("poisson-change0-2.0")
@pytest.mark.parametrize(
    ("name", "change", "mean"),
    [("poisson", {"shape": 3.0, "rate": 1.5}, 2.0), ("pareto", {"low": 1.0, "high": 4.0}, 2.5)],
)
def test_means_follow_the_prior(name: str, change: dict[str, float], mean: float) -> None:
    env: Any = envs.make(f"bandit/{name}", num_arms=DRAWS)
    assert_mean(np.asarray(start(env, env.default_params.replace(**change)).values, np.float64), mean)


# --- bandits that wrap bandits -----------------------------------------------------------


def test_sleeping_arms_are_masked_and_regret_is_against_those_awake() -> None:
    inner = envs.make("bandit/gaussian", means=(0.0, 1.0, 3.0))
    env: Any = envs.make("bandit/sleeping", inner=inner)
    params = env.default_params.replace(awake=np.array([0.9, 0.3, 0.2], np.float32))
    assert env.num_arms == 3 and env.stationary
    states, actions, rewards, info, _ = walk(env, params, 5000)
    awake, values = states.awake, np.array([0.0, 1.0, 3.0])
    assert np.all(awake.any(axis=1)) and np.all(awake[np.arange(5000), actions])
    best = np.where(awake, values, -np.inf).max(axis=1)
    np.testing.assert_array_equal(info["metrics"]["regret"], best - values[actions])
    assert_mean(rewards - values[actions], 0.0, 1.0)
    # All three sleep with probability 0.1 * 0.7 * 0.8; then one of them is woken, and no case is counted twice.
    alone = awake.sum(axis=1) == 1
    two_or_more = 1 - 0.056 - (0.9 * 0.7 * 0.8 + 0.1 * 0.3 * 0.8 + 0.1 * 0.7 * 0.2)
    assert_mean(1.0 - alone, two_or_more)
    assert_mean((awake[:, 1] & awake[:, 2]).astype(float), 0.06)


@pytest.mark.slow
def test_late_rewards_arrive_once_each_after_their_delay() -> None:
    env: Any = envs.make("bandit/delayed", delays=(0.25, 0.0, 0.5, 0.25), inner=envs.make("bandit/gaussian"))
    states, actions, rewards, info, obs = walk(env, env.default_params, 2000)
    late_actions, late_rewards, valid = info["arrivals"]
    assert valid.shape == (2000, 4) and valid.dtype == bool
    delays = np.full(2000, -1)
    for t in range(2000):
        for slot in range(4):
            pull = t - 3 + slot  # the oldest first
            if valid[t, slot]:
                assert pull >= 0 and delays[pull] == -1
                assert late_actions[t, slot] == actions[pull] and late_rewards[t, slot] == rewards[pull]
                delays[pull] = t - pull
    assert np.all(delays[:1997] >= 0)
    share = np.bincount(delays[:1997], minlength=4)
    assert share[1] == 0 and scipy.stats.chisquare(share[[0, 2, 3]], [499.25, 998.5, 499.25]).pvalue > LEVEL
    # The observation contains the rewards that arrived, by arm.
    of_arm = (late_actions[:, :, None] == np.arange(10)) & valid[:, :, None]
    np.testing.assert_array_equal(obs[:, :10], of_arm.sum(axis=1))
    np.testing.assert_allclose(obs[:, 10:20], (of_arm * late_rewards[:, :, None]).sum(axis=1), atol=1e-5)
    np.testing.assert_array_equal(states.values, states.inner.values)


@pytest.mark.slow
def test_bandits_around_bandits_change_as_those_inside() -> None:
    inner = envs.make("bandit/sinusoidal", phases=(0.0, 0.5))
    env: Any = envs.make("bandit/delayed", inner=envs.make("bandit/sleeping", inner=inner))
    assert not env.stationary and env.num_arms == 2
    states, *_ = walk(env, env.default_params, 50)
    expected = 0.5 + 0.5 * np.sin(2 * np.pi * (np.arange(50)[:, None] / 2000 + np.array([0.0, 0.5])))
    np.testing.assert_allclose(states.values, expected, atol=5e-6)
    assert np.all(env.action_mask(states, env.default_params) == states.inner.awake)
