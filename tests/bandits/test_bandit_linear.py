"""LinUCB and Thompson sampling with features: compared with least squares in float64, and in distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandit_replay import replay
from reference import bandits_linear as reference
from scipy import stats

import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from envs.bandits.contextual import LinearBandit, LogisticBandit
from jaxrl.bandits.base import View
from jaxrl.bandits.policies.linear import LinTSHParams, LinUCBHParams, LogisticTSHParams, lin_ts, lin_ucb, logistic_ts

EPS = 2.0**-23
ARMS, FEATURES = 6, 5


def world(steps, logistic=False, seed=0):
    """Features `[T, K, d]` of length 1 and rewards `[T, K]`; in float32, as policies see them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(steps, ARMS, FEATURES)) * [1, 1, 1, 0.3, 0.1]
    features = (features / np.linalg.norm(features, axis=-1, keepdims=True)).astype(np.float32)
    scores = features @ rng.normal(size=FEATURES)
    if logistic:
        rewards = rng.uniform(size=scores.shape) < 1 / (1 + np.exp(-2 * scores))
    else:
        rewards = scores + 0.5 * rng.normal(size=scores.shape)
    return features, rewards.astype(np.float32)


@pytest.mark.slow
def test_lin_ucb_pulls_the_arms_of_repeated_least_squares_over_ten_thousand_pulls():
    steps = 10_000
    features, rewards = world(steps)
    hparams = LinUCBHParams(exploration=0.7, ridge=2.0)
    actions, states, arm = replay(lin_ucb(), rewards, hparams, contexts=jnp.asarray(features))
    pulled = features[np.arange(steps), actions].astype(np.float64)
    received = rewards[np.arange(steps), actions].astype(np.float64)
    expected, leads, theta, inverse = reference.lin_ucb(features.astype(np.float64), rewards, 0.7, 2.0)
    # Where the two versions differ, two arms were nearly equal; until then every action is the same.
    parted = np.flatnonzero(actions != expected)
    assert len(parted) == 0 or (parted[0] > 1000 and leads[parted[0]] < 1e-4)
    # Each pull rounds the root and the estimate by a few eps, relative to them: at worst by 4 eps T, if all roundings
    # have one sign.
    theta, inverse = reference.least_squares(pulled, received, 2.0)
    root = states.root[-1].astype(np.float64)
    assert np.abs(root @ root.T - inverse).max() < 4 * EPS * steps * np.abs(inverse).max()
    assert np.abs(states.theta[-1] - theta).max() < 4 * EPS * steps * np.abs(theta).max()
    print(
        len(parted),
        parted[:1],
        np.abs(root @ root.T - inverse).max() / np.abs(inverse).max(),
        np.abs(states.theta[-1] - theta).max() / np.abs(theta).max(),
    )
    assert arm == np.argmax(features[-1] @ theta)


@pytest.mark.slow_rows("1.0")
@pytest.mark.parametrize("ridge", [1.0, 0.01])
def test_logistic_posterior_equals_the_slow_one_and_stays_near_the_exact_mode(ridge):
    steps = 1000
    features, rewards = world(steps, logistic=True)
    actions, states, _ = replay(logistic_ts(), rewards, LogisticTSHParams(ridge=ridge), contexts=jnp.asarray(features))
    pulled = features[np.arange(steps), actions].astype(np.float64)
    received = rewards[np.arange(steps), actions].astype(np.float64)
    theta, covariance = reference.laplace(pulled, received, ridge)
    root = states.root[-1].astype(np.float64)
    assert np.abs(root @ root.T - covariance).max() < 4 * EPS * steps * np.abs(covariance).max()
    assert np.abs(states.theta[-1] - theta).max() < 4 * EPS * steps * np.abs(theta).max()
    # Curvature is computed at the mode at the time of a reward, nearer to the prior, which shrinks it by a tenth.
    exact = reference.mode(pulled, received, ridge)
    assert np.linalg.norm(theta - exact) < 0.15 * np.linalg.norm(exact)


@pytest.mark.fast_rows("logistic-ts")
@pytest.mark.parametrize(
    ("policy", "hparams", "logistic"),
    [(lin_ts(), LinTSHParams(exploration=0.5), False), (logistic_ts(), LogisticTSHParams(), True)],
    ids=["lin-ts", "logistic-ts"],
)
def test_thompson_sampling_draws_arms_as_often_as_the_slow_posterior_does(policy, hparams, logistic):
    steps, draws = 30, 20_000
    features, rewards = world(steps + 1, logistic=logistic)
    actions, states, _ = replay(policy, rewards[:steps], hparams, contexts=jnp.asarray(features[:steps]))
    pulled = features[np.arange(steps), actions].astype(np.float64)
    received = rewards[np.arange(steps), actions].astype(np.float64)
    mean, covariance = (reference.laplace if logistic else reference.least_squares)(pulled, received)
    rng = np.random.default_rng(1)
    theta = rng.multivariate_normal(mean, hparams.exploration**2 * covariance, size=50 * draws)
    chances = np.bincount(np.argmax(theta @ features[-1].T.astype(np.float64), axis=1), minlength=ARMS) / len(theta)
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), states)
    view = View(jnp.int32(steps), jnp.int32(steps), None, jnp.asarray(features[-1]), None)
    keys = jax.random.split(jax.random.key(2), draws)
    counts = np.bincount(jax.jit(jax.vmap(lambda key: policy.choose(key, state, view, hparams)))(keys), minlength=ARMS)
    likely = chances * draws > 5
    assert counts[~likely].sum() <= 5 * np.sum(~likely) + 5
    expected = chances[likely] / chances[likely].sum() * counts[likely].sum()
    # The slow probabilities are from 50 times as many draws, which adds 2 % to the statistic.
    assert likely.sum() >= 3
    assert stats.chisquare(counts[likely], expected).statistic / 1.02 < stats.chi2.ppf(0.999, likely.sum() - 1)


def test_sleeping_arms_are_left_alone():
    features, rewards = world(200)
    masks = np.random.default_rng(3).uniform(size=rewards.shape) < 0.5
    masks[:, 2] |= ~masks.any(axis=1)
    actions, _, _ = replay(lin_ucb(), rewards, contexts=jnp.asarray(features), masks=jnp.asarray(masks))
    assert masks[np.arange(200), actions].all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "env"),
    [
        (lin_ucb(), LinearBandit(num_arms=8)),
        (lin_ts(), LinearBandit(num_arms=8)),
        (logistic_ts(), LogisticBandit(num_arms=8)),
    ],
    ids=lambda case: case.name,
)
def test_regret_flattens_where_features_predict_rewards(policy, env):
    metrics = jaxrl.run_bandit(policy, env, steps=2000, runs=50, points=[1000, 2000], progress=False).metrics
    first, both = metrics["regret"].values.astype(np.float64).T
    # Random pulls have as much regret in the second thousand as in the first; these policies have less than half.
    assert np.mean(0.5 * first - (both - first)) > 3 * stats.sem(0.5 * first - (both - first))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: LinUCBHParams(ridge=0.0), r"ridge must lie in \(0, inf\), got 0.0"),
        (lambda: LinTSHParams(exploration=-1.0), r"exploration must lie in \[0, inf\), got -1.0"),
        (lambda: LogisticTSHParams(ridge=float("nan")), r"ridge must lie in \(0, inf\), got nan"),
    ],
)
def test_settings_out_of_range_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("policy", [lin_ucb(), lin_ts(), logistic_ts()], ids=lambda policy: policy.name)
def test_bandits_without_features_are_refused(policy):
    with pytest.raises(
        ValueError, match=f"{policy.name} needs features of every arm .* bandit/bernoulli does not show"
    ):
        jaxrl.run_bandit(policy, BernoulliBandit(), steps=10, runs=1)


def test_logistic_thompson_sampling_refuses_rewards_that_are_not_of_0_and_1():
    with pytest.raises(ValueError, match=r"logistic-ts takes rewards in \[0, 1\], those of bandit/linear lie in"):
        jaxrl.run_bandit(logistic_ts(), LinearBandit(), steps=10, runs=1)
