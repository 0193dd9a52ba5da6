"""Bandit policies against slow ones in double precision, pull by pull, on fixed tables of rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import envs
from jaxrl.bandits.base import Task, View
from jaxrl.bandits.kl_ucb import KLUCBHParams, kl_ucb, kl_upper
from jaxrl.bandits.thompson import ThompsonHParams, log_odds_mode, thompson, thompson_gaussian, thompson_laplace
from jaxrl.bandits.ucb import MOSSHParams, UCB1HParams, UCBVHParams, moss, ucb1, ucb_v
from tests.reference import bandits as reference

STEPS = 1000
# The least p-value that passes: with some 50 of them in this file, chance fails one in 200 such files.
LEVEL = 1e-4


def single(values):
    """float32 of anything."""
    return np.asarray(values, np.float32)


def tables(steps=STEPS):
    """Rewards of 0 and 1, and of anything between: float32 `[2, T, K]`, of five arms.

    Of a seed for which no two indices come closer than float32 can tell, unless they are equal.
    """
    numbers = np.random.default_rng(8)
    means = np.array([0.3, 0.55, 0.5, 0.1, 0.6])
    binary = numbers.random((steps, 5)) < means
    return np.stack([binary, numbers.beta(4 * means, 4 * (1 - means), (steps, 5))]).astype(np.float32)


def play(policy, hparams, rewards, seed=0, mask=None):
    """The arms that a policy pulls `[B, T]` on tables of rewards `[B, T, K]`."""
    steps, arms = rewards.shape[1:]
    task = Task(arms, 0, envs.make("bandit/bernoulli", num_arms=arms))

    def run(table):
        def pull(state, time_row):
            time, row = time_row
            view = View(time, jnp.int32(steps), mask, None, None)
            action = policy.choose(jax.random.fold_in(key, time), state, view, hparams)
            return policy.update(state, view, action, row[action], hparams), action

        key = jax.random.key(seed)
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
}


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_pulls_the_same_arms_as_a_slow_version(name):
    policy, hparams, slow = DETERMINISTIC[name]
    assert policy.name == name
    actions, _ = play(policy, hparams, tables())
    for table, mine in zip(tables(), actions, strict=True):
        np.testing.assert_array_equal(mine, slow(table.astype(np.float64)))


def test_kl_upper_is_the_root():
    """Within 3e-7: two roundings of a number near 1 and what the logarithms lose."""
    means = [0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1 - 2**-20, 1]
    levels = [0, 1e-8, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 1, 2, 5, 10, 20]
    mean, level = (single(x).ravel() for x in np.meshgrid(means, levels))
    exact = np.array([reference.kl_upper(float(p), float(d)) for p, d in zip(mean, level, strict=True)])
    root = np.asarray(jax.jit(kl_upper)(mean, level))
    np.testing.assert_allclose(root, exact, rtol=0, atol=3e-7)
    assert np.all((root >= mean) & (root <= 1))


def chosen(policy, hparams, state, runs=20000, mask=None):
    """How often each arm is chosen in a state."""
    view = View(jnp.int32(50), jnp.int32(1000), mask, None, None)
    keys = jax.random.split(jax.random.key(11), runs)
    actions = jax.jit(jax.vmap(lambda key: policy.choose(key, state, view, hparams)))(keys)
    return np.bincount(np.asarray(actions), minlength=len(PULLS))


def after(policy, hparams, pulls, sums):
    """A policy's state after so many pulls of each arm, in turn, that paid so much together."""
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


def test_thompson_pulls_arms_as_often_as_they_seem_best():
    numbers = np.random.default_rng(5)
    pulls, sums = np.array(PULLS), np.array(SUMS)
    hparams = ThompsonHParams(alpha=0.5, beta=2.0)
    counts = chosen(thompson(), hparams, after(thompson(), hparams, PULLS, SUMS))
    assert same_choices(counts, numbers.beta(0.5 + sums, 2 + pulls - sums, (200000, 4))) > LEVEL
    masked = chosen(thompson(), hparams, after(thompson(), hparams, PULLS, SUMS), 200, np.array([0, 0, 1, 1], bool))
    assert masked[:2].sum() == 0 and masked[2:].all()


def test_thompson_with_normal_rewards_pulls_arms_as_often_as_they_seem_best():
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
    modes = [mode(count, total, -0.5, 2.0) for count, total in zip(PULLS, SUMS, strict=True)]
    chance = 1 / (1 + np.exp(-np.array(modes)))
    deviation = (2.0**-2 + np.array(PULLS) * chance * (1 - chance)) ** -0.5
    assert same_choices(counts, numbers.normal(modes, deviation, (200000, 4))) > LEVEL


def mode(pulls, sums, mean, scale):
    """The most probable log-odds, by a root finder."""
    return reference.root(lambda x: pulls * special.expit(x) + (x - mean) / scale**2 - sums, -60, 60)


def test_log_odds_mode_is_the_root():
    """Where x moves by 1e-5 of itself the sum of up to 1e4 terms moves by some of its roundings."""
    cases = [
        (0, 0, 0.7, 1.5),
        (1, 1, 5, 10),
        (1, 0, 5, 10),
        (10000, 9999, 0, 3),
        (3000, 1, 0, 10),
        (500, 250, 2, 0.1),
        (40, 40, -3, 8),
    ]
    mine = jax.jit(jax.vmap(log_odds_mode))(*single(cases).T)
    np.testing.assert_allclose(mine, [mode(*case) for case in cases], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "hparams, sentence",
    [
        (lambda: UCB1HParams(exploration=-1), r"exploration must lie in \[0"),
        (lambda: UCBVHParams(range=0), r"range must lie in \(0"),
        (lambda: ThompsonHParams(alpha=0), r"alpha must lie in \(0"),
        (lambda: KLUCBHParams(log_log=float("nan")), r"log_log must lie in \[0"),
        (lambda: type(thompson_gaussian().hparams)(sigma=-2.0), r"sigma must lie in \(0"),
    ],
)
def test_bad_hyper_parameters_are_refused(hparams, sentence):
    with pytest.raises(ValueError, match=sentence):
        hparams()


@pytest.mark.parametrize("policy", [kl_ucb(), thompson(), thompson_laplace()], ids=lambda policy: policy.name)
def test_rewards_outside_0_and_1_are_refused(policy):
    env = envs.make("bandit/gaussian")
    with pytest.raises(ValueError, match=f"{policy.name} takes rewards in \\[0, 1\\], those of bandit/gaussian lie in"):
        policy.check(Task(10, 0, env))
