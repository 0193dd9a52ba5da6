"""Frequencies of the arms of randomised bandit policies, compared with their probabilities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import bandits as reference
from scipy import special, stats

import envs
from jaxrl.bandits.base import Task, View
from jaxrl.bandits.policies.boltzmann import GradientHParams, SoftmaxHParams, gradient, softmax
from jaxrl.bandits.policies.greedy import EpsilonGreedyHParams, epsilon_greedy
from jaxrl.bandits.policies.thompson_sampling import ThompsonHParams, thompson, thompson_gaussian, thompson_laplace
from jaxrl.bandits.policies.windowed import DiscountedThompsonHParams, discounted_thompson, sliding_window_thompson

# The least p-value that passes: with 10 of them, chance fails one in 1,000 such files.
LEVEL = 1e-4


def chosen(policy, hparams, state, mask=(True,) * 4):
    """Number of times that each arm is chosen in a state, out of 20,000."""
    return np.bincount(np.asarray(many(policy.choose, state, np.array(mask), hparams)), minlength=len(PULLS))


@functools.partial(jax.jit, static_argnums=0)
def many(choose, state, mask, hparams):
    view = View(jnp.int32(50), jnp.int32(1000), mask, None, None)
    return jax.vmap(lambda key: choose(key, state, view, hparams))(jax.random.split(jax.random.key(11), 20000))


def after(policy, hparams, pulls, sums):
    """A policy's state after given numbers of pulls of each arm, in turn, with given sums of rewards."""
    rewards = [
        (arm, total / count) for arm, (count, total) in enumerate(zip(pulls, sums, strict=True)) for _ in range(count)
    ]
    task = Task(len(pulls), 0, envs.make("bandit/bernoulli", num_arms=len(pulls)))

    def learn(state, pull):
        time, arm, reward = pull
        return policy.update(state, View(time, jnp.int32(1000), None, None, None), arm, reward, hparams), None

    arms, paid = (np.array(x) for x in zip(*rewards, strict=True))
    start = policy.init(jax.random.key(0), task, None, hparams)
    scan = (np.arange(len(arms), dtype=np.int32), arms.astype(np.int32), paid.astype(np.float32))
    return jax.lax.scan(learn, start, scan)[0]


def same_choices(counts, draws):
    """A chi-square test of two samples: arms chosen, and the highest of independent draws `[n, K]`."""
    other = np.bincount(np.argmax(draws, axis=1), minlength=len(counts))
    return float(np.asarray(stats.chi2_contingency(np.stack([counts, other])[:, counts + other > 10])[1]))


PULLS, SUMS = [4, 9, 12, 1], [3.0, 6.0, 5.0, 0.0]


@pytest.mark.slow
def test_thompson_pulls_arms_by_their_probability_of_being_best():
    numbers = np.random.default_rng(5)
    pulls, sums = np.array(PULLS), np.array(SUMS)
    hparams = ThompsonHParams(alpha=0.5, beta=2.0)
    counts = chosen(thompson(), hparams, after(thompson(), hparams, PULLS, SUMS))
    assert same_choices(counts, numbers.beta(0.5 + sums, 2 + pulls - sums, (200000, 4))) > LEVEL
    masked = chosen(thompson(), hparams, after(thompson(), hparams, PULLS, SUMS), [False, False, True, True])
    assert masked[:2].sum() == 0 and masked[2:].all()


def test_thompson_with_normal_rewards_pulls_arms_by_their_probability_of_being_best():
    numbers = np.random.default_rng(6)
    policy = thompson_gaussian()
    hparams = type(policy.hparams)(mean=0.3, scale=0.5, sigma=0.7)
    counts = chosen(policy, hparams, after(policy, hparams, PULLS, SUMS))
    precision = 0.5**-2 + np.array(PULLS) * 0.7**-2
    mean = (0.3 * 0.5**-2 + np.array(SUMS) * 0.7**-2) / precision
    assert same_choices(counts, numbers.normal(mean, precision**-0.5, (200000, 4))) > LEVEL


def test_thompson_by_laplace_pulls_arms_as_often_as_its_approximation_has_them_best():
    numbers = np.random.default_rng(8)
    policy = thompson_laplace()
    hparams = type(policy.hparams)(mean=-0.5, scale=2.0)
    counts = chosen(policy, hparams, after(policy, hparams, PULLS, SUMS))
    modes = [reference.log_odds_mode(count, total, -0.5, 2.0) for count, total in zip(PULLS, SUMS, strict=True)]
    chance = 1 / (1 + np.exp(-np.array(modes)))
    deviation = (2.0**-2 + np.array(PULLS) * chance * (1 - chance)) ** -0.5
    assert same_choices(counts, numbers.normal(modes, deviation, (200000, 4))) > LEVEL


@pytest.mark.slow
def test_discounted_thompson_pulls_arms_by_their_probability_of_being_best():
    numbers = np.random.default_rng(9)
    policy, hparams = discounted_thompson(), DiscountedThompsonHParams(0.9, 1.0, 1.5)
    counts = chosen(policy, hparams, after(policy, hparams, PULLS, SUMS))
    later = sum(PULLS) - np.cumsum(PULLS)  # rewards after the last of each arm
    paid = np.array(SUMS) / PULLS
    weight = np.array([0.9**skip * (1 - 0.9**count) / 0.1 for count, skip in zip(PULLS, later, strict=True)])
    draws = numbers.beta(1 + weight * paid, 1.5 + weight * (1 - paid), (200000, 4))
    assert same_choices(counts, draws) > LEVEL


def test_sliding_window_thompson_keeps_the_window():
    """Of the last 5 rewards four are of the third arm and one is of the fourth; the other arms follow the prior."""
    numbers = np.random.default_rng(10)
    policy = sliding_window_thompson(5)
    state = after(policy, policy.hparams, PULLS, [3, 6, 12, 0])
    np.testing.assert_array_equal(state.pulls, [0, 0, 4, 1])
    counts = chosen(policy, policy.hparams, state)
    assert same_choices(counts, numbers.beta([1, 1, 5, 1], [1, 1, 1, 2], (200000, 4))) > LEVEL


def expected(counts, chances):
    """A chi-square test of the frequencies of the chosen arms."""
    return float(stats.chisquare(counts, np.array(chances) * counts.sum()).pvalue)


def test_epsilon_greedy_explores_among_the_arms_that_may_be_pulled():
    """In a share of 0.6 / 51^0.5 of its pulls at the 51st."""
    policy, hparams = epsilon_greedy(), EpsilonGreedyHParams(6.0, 0.5)
    share = 6 / 51**0.5
    state = after(policy, hparams, PULLS, SUMS)
    counts = chosen(policy, hparams, state)
    assert expected(counts, [1 - 0.75 * share] + [share / 4] * 3) > LEVEL
    counts = chosen(policy, hparams, state, mask=[False, True, True, False])
    assert counts[0] == counts[3] == 0
    assert expected(counts[1:3], [1 - share / 2, share / 2]) > LEVEL


def test_softmax_draws_arms_by_their_means():
    policy, hparams = softmax(), SoftmaxHParams(1.0, 0.5)
    logits = np.array(SUMS) / PULLS * 51**0.5
    counts = chosen(policy, hparams, after(policy, hparams, PULLS, SUMS))
    assert expected(counts, special.softmax(logits)) > LEVEL
    counts = chosen(policy, hparams, after(policy, hparams, PULLS, SUMS), mask=[False, True, True, False])
    assert counts[0] == counts[3] == 0
    assert expected(counts[1:3], special.softmax(logits[1:3])) > LEVEL


def test_gradient_bandit_climbs_as_a_slow_version_does():
    policy, hparams = gradient(), GradientHParams(0.3, 0.8)
    preference = reference.gradient(PULLS, SUMS, 0.3, 0.8)
    state = after(policy, hparams, PULLS, SUMS)
    np.testing.assert_allclose(state.preference, preference, atol=1e-5)  # 26 steps of a few roundings below 1 each
    assert expected(chosen(policy, hparams, state), special.softmax(preference)) > LEVEL
