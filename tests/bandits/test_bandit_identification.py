"""Policies that find the best arm: against slow float64 versions, in distribution, and against proven error rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandit_replay import replay
from reference import bandits_identification as reference
from scipy import stats

import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from jaxrl.bandits.arms import Tally
from jaxrl.bandits.base import View
from jaxrl.bandits.bounds import sequential_halving_bound
from jaxrl.bandits.policies.identification import (
    Posterior,
    SuccessiveEliminationHParams,
    TopTwoHParams,
    sequential_halving,
    successive_elimination,
    top_two_thompson,
    top_two_transportation,
)


def table(steps, means, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.uniform(size=(steps, len(means))) < means).astype(np.float64)


def test_successive_elimination_pulls_the_arms_of_the_slow_version():
    rewards = table(1500, [0.2, 0.9, 0.6, 0.1, 0.5])
    hparams = SuccessiveEliminationHParams(delta=0.2, sigma=0.4)
    actions, states, arm = replay(successive_elimination(), rewards, hparams)
    expected, left = reference.successive_elimination(rewards, delta=0.2, sigma=0.4)
    np.testing.assert_array_equal(actions, expected)
    np.testing.assert_array_equal(np.flatnonzero(states.running[-1]), left)
    assert arm == left[0] == 1 and len(left) == 1


@pytest.mark.parametrize(("num_arms", "steps"), [(2, 1000), (5, 1000), (8, 1001), (8, 13)])
def test_sequential_halving_pulls_the_arms_of_the_slow_version(num_arms, steps):
    # Rewards of 0 and 1, so that arms are often equal.
    rewards = table(steps, np.linspace(0.3, 0.6, num_arms), seed=num_arms)
    actions, states, arm = replay(sequential_halving(), rewards)
    expected, left = reference.sequential_halving(rewards)
    np.testing.assert_array_equal(actions, expected)
    np.testing.assert_array_equal(np.flatnonzero(states.running[-1]), left)
    assert arm in left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "resamples"),
    [(top_two_thompson(), 16), (top_two_transportation(), 0)],
    ids=["thompson", "transportation"],
)
def test_top_two_policies_pull_arms_as_often_as_the_slow_version(policy, resamples):
    alpha, beta = np.array([30.0, 24.0, 9.0, 2.5, 3.0]), np.array([20.0, 22.0, 9.0, 2.5, 8.0])
    draws, slow_draws, share = 20_000, 20_000, 0.6
    rng = np.random.default_rng(4)
    chances = reference.top_two(alpha, beta, resamples, slow_draws, rng, leader_share=share)
    state = Posterior(*(Tally(jnp.asarray(each, jnp.float32), jnp.zeros(len(each))) for each in (alpha, beta)))
    view = View(jnp.int32(9), jnp.int32(10), None, None, None)
    keys = jax.random.split(jax.random.key(5), draws)
    choose = jax.jit(jax.vmap(lambda key: policy.choose(key, state, view, TopTwoHParams(leader=share))))
    counts = np.bincount(choose(keys), minlength=5)
    table_of_both = np.stack([counts, chances * slow_draws])
    often = table_of_both[:, table_of_both.sum(axis=0) > 10]
    expected = often.sum(axis=1, keepdims=True) * often.sum(axis=0) / often.sum()
    statistic = np.sum((often - expected) ** 2 / expected)
    assert statistic < stats.chi2.ppf(0.999, often.shape[1] - 1)


def some_asleep(num_arms):
    """Arms that may be pulled, bool `[300, K]`, sometimes a single one."""
    masks = np.random.default_rng(3).uniform(size=(300, num_arms)) < 0.5
    masks[:, 2] |= ~masks.any(axis=1)
    return masks


@pytest.mark.slow
def test_the_posterior_counts_ones_and_zeros_of_arms_that_are_awake():
    rewards, masks = table(300, [0.3, 0.6, 0.5]), some_asleep(3)
    actions, states, arm = replay(top_two_transportation(), rewards, masks=jnp.asarray(masks))
    assert masks[np.arange(300), actions].all()
    pulled = np.arange(3) == actions[:, None]
    np.testing.assert_array_equal(states.alpha[-1], 1 + np.sum(pulled * rewards, axis=0))
    np.testing.assert_array_equal(states.beta[-1], 1 + np.sum(pulled * (1 - rewards), axis=0))
    assert arm == np.argmax(states.alpha[-1] / (states.alpha[-1] + states.beta[-1]))


@pytest.mark.parametrize("policy", [successive_elimination(), sequential_halving()], ids=lambda policy: policy.name)
def test_sleeping_arms_are_left_alone(policy):
    masks = some_asleep(4)
    actions, _, _ = replay(policy, table(300, [0.3, 0.4, 0.5, 0.9]), masks=jnp.asarray(masks))
    assert masks[np.arange(300), actions].all()


@pytest.mark.slow
def test_the_best_arm_is_found_as_often_as_is_proven():
    means, steps, runs = (0.8, 0.4, 0.4, 0.4), 1500, 500
    env = BernoulliBandit(means=means)
    policies = (successive_elimination(), sequential_halving(), top_two_transportation())
    # If a share of 500 runs ends with a wrong arm, more such runs than this have a probability below 1e-3.
    most = {"successive-elimination": 0.05, "sequential-halving": float(sequential_halving_bound(means, steps))}
    for policy in policies:
        metrics = jaxrl.run_bandit(policy, env, steps=steps, runs=runs, points=1, progress=False).metrics
        wrong = int(np.sum(metrics["simple_regret"].values[:, -1] > 0))
        assert wrong <= stats.binom.ppf(0.999, runs, most.get(policy.name, 0.05))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: SuccessiveEliminationHParams(delta=0.0), r"delta must lie in \(0, 1\), got 0.0"),
        (lambda: SuccessiveEliminationHParams(sigma=-1.0), r"sigma must lie in \(0, inf\), got -1.0"),
        (lambda: TopTwoHParams(leader=1.5), r"leader must lie in \[0, 1\], got 1.5"),
        (lambda: top_two_thompson(0), "resamples must be a whole number of at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
