"""Bandits: rewards have the values as their mean, values are exact, and bad input gets one sentence."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import envs
from envs.bandits.adaptive import AdaptiveParams
from envs.bandits.adversarial import ConstrainedParams
from envs.bandits.bernoulli import BernoulliParams
from envs.bandits.contextual import LinearParams
from envs.bandits.delayed import DelayedParams
from envs.bandits.gaussian import GaussianParams
from envs.bandits.heavy_tailed import ParetoParams, StudentParams, fine_uniform
from envs.bandits.nonstationary import ChangingParams, RandomWalkParams, SinusoidalParams
from envs.bandits.piecewise import PiecewiseParams
from envs.bandits.positive import PositiveParams
from envs.bandits.sleeping import SleepingParams

DRAWS = 20_000
# A mean of n draws misses by this many standard errors with probability 6e-7: never, in a fixed suite.
STANDARD_ERRORS = 5.0
LEVEL = 1e-6  # of chi-square and Kolmogorov-Smirnov tests


def f32(values: Any) -> np.ndarray:
    """An array as the bandits have it."""
    return np.asarray(values, np.float32)


def draw_rewards(env: Any, state: Any, params: Any, action: int, draws: int = DRAWS) -> np.ndarray:
    """Rewards of one arm of one state, drawn anew, float64 `[draws]`."""
    keys = jax.random.split(jax.random.key(7), draws)
    rewards = jax.jit(jax.vmap(lambda key: env.reward(key, state, jnp.int32(action), params)))(keys)
    return np.asarray(rewards, np.float64)


def assert_mean(draws: np.ndarray, mean: float, sigma: float | None = None) -> None:
    """The mean of draws is as expected, within the error of so many draws of their standard deviation."""
    sigma = float(draws.std()) if sigma is None else sigma
    assert abs(draws.mean() - mean) < STANDARD_ERRORS * sigma / np.sqrt(len(draws)) + 1e-6


RESET = jax.jit(lambda env, key, params: env.reset_env(key, params)[1], static_argnums=0)


def start(env: Any, params: Any = None, seed: int = 0) -> Any:
    """An instance before its first pull, drawn in one program."""
    params = env.default_params if params is None else params
    return RESET(env, jax.random.key(seed), params)


def walk(env: Any, params: Any, steps: int, seed: int = 0, action: Any = None) -> Any:
    """A rollout without resets: the states before each pull, rewards and info, leaves `[T, ...]`."""

    def body(state: Any, key: jax.Array) -> Any:
        chosen = jax.random.randint(key, (), 0, env.num_arms) if action is None else jnp.int32(action)
        mask = env.action_mask(state, params)
        chosen = chosen if mask is None else jnp.where(mask[chosen], chosen, jnp.argmax(mask)).astype(jnp.int32)
        obs, after, reward, _, info = env.step_env(jax.random.fold_in(key, 1), state, chosen, params)
        return after, (state, chosen, reward, info, obs)

    def run(key: jax.Array) -> Any:
        first = env.reset_env(key, params)[1]
        return jax.lax.scan(body, first, jax.random.split(jax.random.fold_in(key, 2), steps))[1]

    return jax.tree.map(np.asarray, jax.jit(run)(jax.random.key(seed)))


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


def test_contexts_are_what_a_policy_sees_and_may_stay() -> None:
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
    """Chi-square of draws of a Poisson number."""
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


@pytest.mark.parametrize(
    ("name", "change", "mean"),
    [("poisson", {"shape": 3.0, "rate": 1.5}, 2.0), ("pareto", {"low": 1.0, "high": 4.0}, 2.5)],
)
def test_means_follow_the_prior(name: str, change: dict[str, float], mean: float) -> None:
    env: Any = envs.make(f"bandit/{name}", num_arms=DRAWS)
    assert_mean(np.asarray(start(env, env.default_params.replace(**change)).values, np.float64), mean)


# --- bandits around bandits --------------------------------------------------------------


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
    # All three sleep with probability 0.1 * 0.7 * 0.8; then one is woken, which is never counted twice.
    alone = awake.sum(axis=1) == 1
    two_or_more = 1 - 0.056 - (0.9 * 0.7 * 0.8 + 0.1 * 0.3 * 0.8 + 0.1 * 0.7 * 0.2)
    assert_mean(1.0 - alone, two_or_more)
    assert_mean((awake[:, 1] & awake[:, 2]).astype(float), 0.06)


def test_late_rewards_arrive_once_each_when_they_are_due() -> None:
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
    # What is observed is what arrived, by arm.
    of_arm = (late_actions[:, :, None] == np.arange(10)) & valid[:, :, None]
    np.testing.assert_array_equal(obs[:, :10], of_arm.sum(axis=1))
    np.testing.assert_allclose(obs[:, 10:20], (of_arm * late_rewards[:, :, None]).sum(axis=1), atol=1e-5)
    np.testing.assert_array_equal(states.values, states.inner.values)


def test_bandits_around_bandits_change_as_those_inside() -> None:
    inner = envs.make("bandit/sinusoidal", phases=(0.0, 0.5))
    env: Any = envs.make("bandit/delayed", inner=envs.make("bandit/sleeping", inner=inner))
    assert not env.stationary and env.num_arms == 2
    states, *_ = walk(env, env.default_params, 50)
    expected = 0.5 + 0.5 * np.sin(2 * np.pi * (np.arange(50)[:, None] / 2000 + np.array([0.0, 0.5])))
    np.testing.assert_allclose(states.values, expected, atol=5e-6)
    assert np.all(env.action_mask(states, env.default_params) == states.inner.awake)


# --- values that change -----------------------------------------------------------------


def test_pieces_that_are_given_start_when_they_say() -> None:
    pieces = ((0.1, 0.9, 0.5), (0.8, 0.2, 0.4))
    env: Any = envs.make("bandit/piecewise", means=pieces, starts=(0, 3))
    states, actions, rewards, info, _ = walk(env, env.default_params, 6)
    np.testing.assert_array_equal(states.values, f32([pieces[0]] * 3 + [pieces[1]] * 3))
    values = f32([pieces[0]] * 3 + [pieces[1]] * 3)
    regret = f32([0.9, 0.9, 0.9, 0.8, 0.8, 0.8]) - values[np.arange(6), actions]
    np.testing.assert_array_equal(info["metrics"]["regret"], regret)
    assert set(rewards) <= {0.0, 1.0}


def test_pieces_that_are_drawn_last_as_long_as_they_should() -> None:
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
    np.testing.assert_allclose(late.values, expected[12], atol=5e-6)  # after ten million pulls as at first


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


def test_the_adaptive_adversary_answers_to_the_pulls() -> None:
    env: Any = envs.make("bandit/adaptive-adversary", num_arms=3)
    params = env.default_params.replace(rate=0.2, strength=0.5)
    states, actions, *_ = walk(env, params, 30)
    shares = np.zeros(3)
    for t in range(30):
        np.testing.assert_allclose(states.values[t], 1 - 0.5 * shares, atol=1e-6)
        shares = 0.8 * shares + 0.2 * (np.arange(3) == actions[t])
    assert_mean(draw_rewards(env, start(env, params).replace(values=jnp.array([0.3, 0.9, 1.0])), params, 0), 0.3)


# --- bad input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: envs.make("bandit/gaussian", num_arms=1), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: envs.make("bandit/gaussian", means=(1.0,)), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: envs.make("bandit/gaussian", means=(1.0, np.inf)), "means must be a sequence of finite numbers"),
        (lambda: GaussianParams(sigma=-1.0), r"sigma must lie in \[0.0, inf\), got -1.0"),
        (
            lambda: dataclasses.replace(GaussianParams(), prior_sigma=np.array([1.0, -1.0])),
            r"prior_sigma must lie in \[0.0, inf\), got -1.0",
        ),
        (lambda: GaussianParams(prior_mean="1"), "prior_mean takes a number, got '1'"),  # type: ignore[arg-type]
        (lambda: GaussianParams(means=np.array([0.0, np.nan])), r"means must lie in \(-inf, inf\), got nan"),
        (lambda: BernoulliParams(alpha=0.0), r"alpha must lie in \(0.0, inf\), got 0.0"),
        (lambda: BernoulliParams(means=np.array([0.5, 1.5])), r"means must lie in \[0.0, 1.0\], got 1.5"),
        (lambda: envs.make("bandit/linear", num_features=0), "num_features must be a whole number of at least 1"),
        (lambda: envs.make("bandit/logistic", redraw=2), "redraw must be True or False, got 2"),
        (lambda: LinearParams(sigma=-0.5), r"sigma must lie in \[0.0, inf\), got -0.5"),
        (lambda: ChangingParams(low=1.0, high=1.0), "low must be below high, got 1.0 and 1.0"),
        (lambda: RandomWalkParams(step=-1.0), r"step must lie in \[0.0, inf\), got -1.0"),
        (lambda: SinusoidalParams(period=0.0), r"period must lie in \(0.0, inf\), got 0.0"),
        (lambda: PiecewiseParams(change=1.5), r"change must lie in \[0.0, 1.0\], got 1.5"),
        (
            lambda: envs.make("bandit/piecewise", rewards="beta"),
            "rewards must be one of bernoulli, gaussian, got",
        ),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),)), "means and starts are given together"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),), starts=(1,)), "starts must be whole numbers that incr"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1),), starts=(0, 1)), "starts must have one number for each"),
        (lambda: envs.make("bandit/piecewise", means=((0, 1), (1,)), starts=(0, 1)), "means must have a number for ea"),
        (lambda: envs.make("bandit/sequence", table=((0, 1), (1,))), "table must have rows of finite numbers, one for"),
        (lambda: envs.make("bandit/sequence", table=((0,), (1,))), "num_arms must be a whole number of at least 2"),
        (lambda: ConstrainedParams(gap=0.0), r"gap must lie in \(0.0, 1.0\], got 0.0"),
        (lambda: AdaptiveParams(rate=-0.1), r"rate must lie in \[0.0, 1.0\], got -0.1"),
        (lambda: envs.make("bandit/poisson", means=(1, -1)), r"means must lie in \[0.0, inf\), got -1.0"),
        (lambda: PositiveParams(shape=0.0), r"shape must lie in \(0.0, inf\), got 0.0"),
        (lambda: StudentParams(degrees=1.0), r"degrees must lie in \(1.0, inf\), got 1.0"),
        (lambda: ParetoParams(tail=0.5), r"tail must lie in \(1.0, inf\), got 0.5"),
        (lambda: SleepingParams(awake=1.1), r"awake must lie in \[0.0, 1.0\], got 1.1"),
        (lambda: envs.make("bandit/sleeping", inner="bernoulli"), "inner must be a bandit whose actions are single ar"),
        (lambda: envs.make("bandit/delayed", inner=envs.make("cartpole")), "inner must be a bandit whose actions are "),
        (lambda: envs.make("bandit/delayed", inner=envs.make("bandit/delayed")), "inner must be a bandit without del"),
        (lambda: envs.make("bandit/delayed", delays=(0.5, 0.4)), r"delays must sum to 1, got 0.9"),
        (lambda: envs.make("bandit/delayed", delays=(1.5, -0.5)), r"delays must lie in \[0.0, 1.0\], got 1.5"),
        (lambda: DelayedParams(delays=np.ones(2, np.float32)), "delays must sum to 1, got 2"),
    ],
)
def test_bad_input_gets_one_sentence(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def test_an_instance_has_the_arms_of_its_bandit() -> None:
    env: Any = envs.make("bandit/gaussian", num_arms=3)
    params = env.default_params.replace(means=np.zeros(5, np.float32))
    with pytest.raises(ValueError, match=r"means must have the shape \(3,\), got \(5,\)"):
        jax.eval_shape(env.reset_env, jax.random.key(0), params)
