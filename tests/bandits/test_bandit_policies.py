"""Bandit policies against slow ones in double precision, pull by pull, on fixed tables of rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import bandits as reference
from scipy import stats

import envs
from jaxrl.bandits.arms import Tally
from jaxrl.bandits.base import Task, View
from jaxrl.bandits.policies.boltzmann import GradientHParams, SoftmaxHParams
from jaxrl.bandits.policies.divergence import KLUCBHParams, kl_ucb, kl_upper
from jaxrl.bandits.policies.greedy import (
    EpsilonGreedyHParams,
    ExploreThenCommitHParams,
    epsilon_greedy,
    explore_then_commit,
)
from jaxrl.bandits.policies.quantiles import BayesUCBHParams, bayes_ucb, beta_upper_quantile
from jaxrl.bandits.policies.thompson_sampling import (
    ThompsonHParams,
    log_odds_mode,
    thompson,
    thompson_gaussian,
    thompson_laplace,
)
from jaxrl.bandits.policies.ucb import MOSSHParams, UCB1HParams, UCBVHParams, moss, ucb1, ucb_v
from jaxrl.bandits.policies.windowed import (
    DiscountedThompsonHParams,
    DiscountedUCBHParams,
    SlidingWindowUCBHParams,
    discounted_thompson,
    discounted_ucb,
    sliding_window_thompson,
    sliding_window_ucb,
)

STEPS = 1000


def single(values):
    """An array-like value as float32."""
    return np.asarray(values, np.float32)


def tables(steps=STEPS):
    """Rewards of 0 and 1, and rewards in between, of five arms: float32 `[2, T, K]`.

    Tables of a seed for which no two indices are closer than float32 resolves, unless they are equal.
    """
    numbers = np.random.default_rng(8)
    means = np.array([0.3, 0.55, 0.5, 0.1, 0.6])
    binary = numbers.random((steps, 5)) < means
    return np.stack([binary, numbers.beta(4 * means, 4 * (1 - means), (steps, 5))]).astype(np.float32)


def play(policy, hparams, rewards):
    """The arms that a policy pulls `[B, T]` on tables of rewards `[B, T, K]`."""
    steps, arms = rewards.shape[1:]
    task = Task(arms, 0, envs.make("bandit/bernoulli", num_arms=arms))

    def run(table):
        def pull(state, time_row):
            time, row = time_row
            view = View(time, jnp.int32(steps), None, None, None)
            action = policy.choose(jax.random.fold_in(key, time), state, view, hparams)
            return policy.update(state, view, action, row[action], hparams), action

        key = jax.random.key(0)
        times = jnp.arange(steps, dtype=jnp.int32)
        state, actions = jax.lax.scan(pull, policy.init(key, task, None, hparams), (times, table))
        return actions, policy.recommend(state, hparams)

    actions, best = jax.jit(jax.vmap(run))(jnp.asarray(rewards))
    return np.asarray(actions), np.asarray(best)


DETERMINISTIC = {
    "ucb1": (ucb1(), UCB1HParams(exploration=1.5), lambda table: reference.ucb1(table, 1.5)),
    "ucb-v": (ucb_v(), UCBVHParams(1.1, 0.5, 0.9), lambda table: reference.ucb_v(table, 1.1, 0.5, 0.9)),
    "moss": (moss(), MOSSHParams(0.8), lambda table: reference.moss(table, 0.8)),
    "kl-ucb": (kl_ucb(), KLUCBHParams(0.7), lambda table: reference.kl_ucb(table, 0.7)),
    "bayes-ucb": (bayes_ucb(), BayesUCBHParams(0.3, 1.5, 1.0), lambda table: reference.bayes_ucb(table, 0.3, 1.5, 1.0)),
    "explore-then-commit": (
        explore_then_commit(),
        ExploreThenCommitHParams(20),
        lambda table: reference.explore_then_commit(table, 20),
    ),
    "epsilon-greedy": (epsilon_greedy(), EpsilonGreedyHParams(0.0), reference.greedy),
    "sliding-window-ucb": (
        sliding_window_ucb(60),
        SlidingWindowUCBHParams(0.6),
        lambda table: reference.sliding_window_ucb(table, 60, 0.6),
    ),
    "discounted-ucb": (
        discounted_ucb(),
        DiscountedUCBHParams(0.98, 0.5),
        lambda table: reference.discounted_ucb(table, 0.98, 0.5),
    ),
}


@pytest.mark.slow_rows("bayes-ucb")
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_pulls_the_same_arms_as_a_slow_version(name):
    policy, hparams, slow = DETERMINISTIC[name]
    assert policy.name == name
    actions, _ = play(policy, hparams, tables())
    for table, chosen in zip(tables(), actions, strict=True):
        np.testing.assert_array_equal(chosen, slow(table.astype(np.float64)))


def test_kl_upper_is_the_root():
    """Within 3e-7: two roundings of a number near 1, and the errors of the logarithms."""
    means = [0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1 - 2**-20, 1]
    levels = [0, 1e-8, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 1, 2, 5, 10, 20]
    mean, level = (single(x).ravel() for x in np.meshgrid(means, levels))
    exact = np.array([reference.kl_upper(float(p), float(d)) for p, d in zip(mean, level, strict=True)])
    root = np.asarray(jax.jit(kl_upper)(mean, level))
    np.testing.assert_allclose(root, exact, rtol=0, atol=3e-7)
    assert np.all((root >= mean) & (root <= 1))


def test_beta_upper_quantile_is_the_quantile():
    """Within 1e-6 for shapes of at least 1, 2e-5 from 0.5 on: what the docstring states."""
    cases = []
    for prior in ((1, 1), (0.5, 0.5), (2, 5)):
        for pulls in (0, 1, 2, 3, 5, 10, 30, 100, 1000, 10**4, 10**6):
            for wins in {0, min(1, pulls), pulls // 4, pulls // 2, pulls - pulls // 4, pulls}:
                for times in (pulls + 1, pulls + 2, 10, 1000, 10**5, 10**9):
                    if times > pulls:
                        cases.append((1 / times, prior[0] + wins, prior[1] + pulls - wins))
    tail, alpha, beta = single(cases).T
    quantile = np.asarray(jax.jit(beta_upper_quantile)(tail, alpha, beta))
    exact = stats.beta.isf(*(x.astype(np.float64) for x in (np.minimum(tail, 0.5), alpha, beta)))
    error = np.abs(quantile - exact)
    assert np.max(error) < 2e-5
    assert np.max(error[(alpha >= 1) & (beta >= 1)]) < 1e-6


def test_log_odds_mode_is_the_root():
    """If x changes by a relative 1e-5, the sum of up to 1e4 terms changes by a few of its roundings."""
    cases = [
        (0, 0, 0.7, 1.5),
        (1, 1, 5, 10),
        (1, 0, 5, 10),
        (10000, 9999, 0, 3),
        (3000, 1, 0, 10),
        (500, 250, 2, 0.1),
        (40, 40, -3, 8),
    ]
    mode = jax.jit(jax.vmap(log_odds_mode))(*single(cases).T)
    np.testing.assert_allclose(mode, [reference.log_odds_mode(*case) for case in cases], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["window", "discount"])
def test_forgetting_follows_a_best_arm_that_changes(name):
    """The arms swap their rewards half way; policies that forget pull the new best arm at the end."""
    table = np.zeros((1, 2000, 2), np.float32)
    table[:, :1000, 0] = table[:, 1000:, 1] = 1
    policy, hparams = {
        "window": (sliding_window_ucb(100), SlidingWindowUCBHParams()),
        "discount": (discounted_ucb(), DiscountedUCBHParams(0.98)),
    }[name]
    actions, best = play(policy, hparams, table)
    assert actions[0, -100:].mean() > 0.8 and best[0] == 1


@pytest.mark.parametrize(
    ("hparams", "sentence"),
    [
        (lambda: UCB1HParams(exploration=-1), r"exploration must lie in \[0"),
        (lambda: UCBVHParams(range=0), r"range must lie in \(0"),
        (lambda: ThompsonHParams(alpha=0), r"alpha must lie in \(0"),
        (lambda: KLUCBHParams(log_log=float("nan")), r"log_log must lie in \[0"),
        (lambda: BayesUCBHParams(beta=0), r"beta must lie in \(0"),
        (lambda: EpsilonGreedyHParams(epsilon=-0.1), r"epsilon must lie in \[0"),
        (lambda: ExploreThenCommitHParams(0), r"pulls_per_arm must lie in \[1"),
        (lambda: SoftmaxHParams(temperature=0), r"temperature must lie in \(0"),
        (lambda: GradientHParams(step=-1), r"step must lie in \(0"),
        (lambda: DiscountedUCBHParams(discount=1.0), r"discount must lie in \(0"),
        (lambda: DiscountedThompsonHParams(discount=0.0), r"discount must lie in \(0"),
        (lambda: sliding_window_ucb(0), "window must be"),
        (lambda: type(thompson_gaussian().hparams)(sigma=-2.0), r"sigma must lie in \(0"),
    ],
)
def test_bad_hyper_parameters_are_refused(hparams, sentence):
    with pytest.raises(ValueError, match=sentence):
        hparams()


@pytest.mark.parametrize(
    "policy",
    [kl_ucb(), bayes_ucb(), thompson(), thompson_laplace(), sliding_window_thompson(), discounted_thompson()],
    ids=lambda policy: policy.name,
)
def test_rewards_outside_0_and_1_are_refused(policy):
    env = envs.make("bandit/gaussian")
    with pytest.raises(ValueError, match=f"{policy.name} takes rewards in \\[0, 1\\], those of bandit/gaussian lie in"):
        policy.check(Task(10, 0, env))


# --- counts --------------------------------------------------------------------------------


def test_counts_and_sums_continue_beyond_the_exact_integers_of_float32() -> None:
    """2^24 + 1 is not a float32: a count of pulls in float32 would stop there."""
    tally = Tally.zeros(2).add(jnp.float32([2.0**24, 3.0]))
    for _ in range(5):
        tally = tally.add(jnp.float32([1.0, 0.25]))
    np.testing.assert_array_equal(np.float64(tally.low) + np.float64(tally.high), [2.0**24 + 5, 4.25])
    np.testing.assert_array_equal(tally.value, np.array([2.0**24 + 5, 4.25], np.float32))


def test_rewards_of_an_arm_add_up_beyond_the_exact_integers_of_float32() -> None:
    """Rewards of 2^22 bring the sum there quickly; ones are then added to it as to any other."""
    env = envs.make("bandit/bernoulli", num_arms=2)
    policy, view = ucb1(), View(jnp.int32(0), jnp.int32(9), None, None, None)
    state = policy.init(jax.random.key(0), Task(2, 0, env), None, policy.hparams)
    for reward in (*[2.0**22] * 4, *[1.0] * 8):
        state = policy.update(state, view, jnp.int32(1), jnp.float32(reward), policy.hparams)
    np.testing.assert_array_equal(state.sums, [0, 2.0**24 + 8])
    np.testing.assert_array_equal(state.pulls, [0, 12])
