"""EXP3, EXP3-IX, EXP3.S and Tsallis-INF: against slow float64 versions, their bounds, and each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bandit_replay import replay, uniforms
from reference import bandits_adversarial as reference
from scipy import stats

import jaxrl
from envs.bandits.adversarial import ConstrainedAdversary
from envs.bandits.bernoulli import BernoulliBandit
from envs.bandits.gaussian import GaussianBandit
from jaxrl.bandits import bounds
from jaxrl.bandits.base import Task
from jaxrl.bandits.policies.exponential import Exp3HParams, Exp3IXHParams, Exp3SHParams, draw, exp3, exp3_ix, exp3_s
from jaxrl.bandits.policies.tsallis import TsallisINFHParams, tsallis_inf, tsallis_probabilities
from jaxrl.bandits.policies.ucb import ucb1

STEPS = 1000  # of comparisons with slow versions


def table(steps=STEPS, num_arms=5, seed=0):
    """Rewards of 0 and 1 whose means drift."""
    rng = np.random.default_rng(seed)
    means = 0.5 + 0.4 * np.sin(np.arange(steps)[:, None] / 150 + 2 * np.arange(num_arms))
    return (rng.uniform(size=(steps, num_arms)) < means).astype(np.float64)


def exact(total):
    """The value of a compensated sum, in float64."""
    return total.sum.astype(np.float64) - total.lacks


def exp3_case(hparams, builder=exp3, **settings):
    return (
        builder(),
        hparams,
        lambda state, time: reference.exp3(state, time, **settings)[0],
        functools.partial(reference.exp3_after, **settings),
    )


def tsallis_case(rate, baseline):
    return (
        tsallis_inf(),
        TsallisINFHParams(rate=rate, baseline=baseline),
        functools.partial(reference.tsallis_inf, rate=rate),
        functools.partial(reference.tsallis_inf_after, rate=rate, baseline=baseline),
    )


CASES = {
    "exp3": exp3_case(Exp3HParams()),
    "exp3 exploring": exp3_case(Exp3HParams(rate=0.5, exploration=0.1), rate=0.5, exploration=0.1),
    "exp3-ix": exp3_case(Exp3IXHParams(bias=0.7), exp3_ix, bias=0.7),
    "exp3-s": (
        exp3_s(),
        Exp3SHParams(stretches=3.0),
        lambda state, time: reference.exp3_s(state, STEPS, 3.0)[0],
        lambda state, time, action, reward: reference.exp3_s_after(state, STEPS, action, reward, stretches=3.0),
    ),
    "tsallis-inf": tsallis_case(2.0, 0.0),
    "tsallis-inf with a baseline": tsallis_case(4.0, 0.5),
}


@pytest.mark.parametrize("case", CASES)
def test_policies_draw_the_actions_of_slow_versions(case):
    policy, hparams, chances_of, after = CASES[case]
    rewards, numbers = table(), uniforms(STEPS)
    actions, states, arm = replay(policy, rewards, hparams)
    standing = np.exp(states, dtype=np.float64) if case == "exp3-s" else exact(states)
    passed = np.array([np.cumsum(chances_of(state, time)) for time, state in enumerate(standing[:-1])])
    before = np.take_along_axis(np.pad(passed, ((0, 0), (1, 0))), actions[:, None], axis=1)[:, 0]
    # The logarithm of a weight is at most 20, with an error of a few eps; the relative error of a probability is 1e-5.
    assert np.all(before < numbers + 1e-5)
    assert np.all(passed[np.arange(STEPS), actions] > numbers - 1e-5)
    pulls = zip(standing[:-1], range(STEPS), actions, rewards[np.arange(STEPS), actions], strict=True)
    np.testing.assert_allclose(standing[1:], [after(*pull) for pull in pulls], rtol=1e-5)
    assert arm == (np.argmax if case == "exp3-s" else np.argmin)(standing[-1])


@pytest.mark.fast_rows("10000-")
@pytest.mark.parametrize(("steps", "least"), [(10_000, 3e3), (100_000, 2e4)])
def test_exp3_loses_nothing_to_rounding_over_many_pulls(steps: int, least: float):
    rewards = table(steps, 10)
    actions, states, _ = replay(exp3(), rewards)
    losses = exact(states)
    # Every loss again in float64 from the state before it, and their sums.
    times = np.arange(1, steps + 1)[:, None]
    logits = -np.sqrt(np.log(10) / (10 * times)) * (losses[:-1] - losses[:-1].min(axis=1, keepdims=True))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    pulled = np.arange(10) == actions[:, None]
    np.testing.assert_allclose(losses[-1], np.sum(pulled * (1 - rewards) / chances, axis=0), rtol=1e-6)
    assert losses[-1].max() > least


def test_arms_are_drawn_with_their_probabilities():
    probabilities = np.array([0.0, 0.5, 0.3, 0.0, 0.199, 0.001, 0.0], np.float32)
    keys = jax.random.split(jax.random.key(1), 100_000)
    counts = np.bincount(jax.vmap(draw, (0, None))(keys, jnp.asarray(probabilities)), minlength=7)
    likely = probabilities > 0
    assert counts[~likely].sum() == 0
    expected = probabilities[likely] / probabilities.sum(dtype=np.float64) * len(keys)
    assert stats.chisquare(counts[likely], expected * (len(keys) / expected.sum())).pvalue > 1e-3


@pytest.mark.parametrize("num_arms", [2, 10, 1000])
def test_newtons_method_finds_the_probabilities_of_tsallis(num_arms):
    rng = np.random.default_rng(num_arms)
    far = 10 ** rng.uniform(-4, 4, (60, 1))
    clusters = np.where(rng.uniform(size=(60, num_arms)) < rng.uniform(size=(60, 1)), 0, far)
    scales = np.concatenate([rng.exponential(far, (60, num_arms)), clusters, 10 ** rng.uniform(-4, 4, (60, num_arms))])
    distances = (scales - scales.min(axis=1, keepdims=True)).astype(np.float32)
    got = jax.jit(jax.vmap(tsallis_probabilities))(distances)
    expected = np.array([reference.tsallis_probabilities(row) for row in distances.astype(np.float64)])
    # A sum of K terms in float32 has an error of a few eps, and its root half of that: twenty eps.
    np.testing.assert_allclose(got, expected / expected.sum(axis=1, keepdims=True), rtol=20 * 2.0**-23)


@pytest.mark.parametrize("policy", [exp3(), exp3_ix(), exp3_s(), tsallis_inf()], ids=lambda policy: policy.name)
def test_sleeping_arms_are_left_alone(policy):
    masks = np.random.default_rng(3).uniform(size=(300, 5)) < 0.5
    masks[:, 4] |= ~masks.any(axis=1)
    actions, _, _ = replay(policy, table(300), masks=jnp.asarray(masks))
    assert masks[np.arange(300), actions].all()
    assert len(set(actions)) == 5


def regrets(env, policies, steps, runs):
    """The regret of each run after all steps, `{name: [runs]}`."""
    results = {
        policy.name: jaxrl.run_bandit(policy, env, steps=steps, runs=runs, points=1, progress=False).metrics
        for policy in policies
    }
    return {name: metrics["regret"].values[:, -1].astype(np.float64) for name, metrics in results.items()}


@pytest.mark.slow
def test_regret_stays_under_bounds_where_an_adversary_sets_rewards_and_ucb1_fails():
    # One arm is the best at every pull, so that the best arm of each pull is the best fixed arm.
    env, steps = ConstrainedAdversary(num_arms=8), 30_000
    regret = regrets(env, (exp3(), exp3_ix(), tsallis_inf(), ucb1()), steps, 64)
    most = {
        "exp3": bounds.exp3_bound(8, steps),
        "exp3-ix": bounds.exp3_ix_bound(8, steps),
        "tsallis-inf": bounds.tsallis_inf_bound(8, steps),
    }
    for name, bound in most.items():
        assert regret[name].mean() + 5 * stats.sem(regret[name]) < bound
    assert regret["ucb1"].mean() - 3 * stats.sem(regret["ucb1"]) > 2 * regret["exp3"].mean()
    # The regret of UCB1 grows with the number of pulls, the regret of EXP3 with its square root.
    early = regrets(env, (exp3(), ucb1()), steps // 10, 64)
    growth = {name: np.log10(regret[name].mean() / early[name].mean()) for name in early}
    assert growth["ucb1"] > 0.8 and growth["exp3"] < 0.6


@pytest.mark.slow
def test_tsallis_inf_beats_exp3_where_rewards_are_stochastic():
    env = BernoulliBandit(means=(0.6, 0.5, 0.5, 0.5, 0.4))
    steps = 10_000
    regret = regrets(env, (exp3(), tsallis_inf()), steps, 100)
    for name, bound in (("exp3", bounds.exp3_bound), ("tsallis-inf", bounds.tsallis_inf_bound)):
        assert regret[name].mean() + 5 * stats.sem(regret[name]) < bound(5, steps)
    less = regret["exp3"] - regret["tsallis-inf"]
    assert less.mean() > 5 * stats.sem(less)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Exp3HParams(rate=0.0), r"rate must lie in \(0, inf\), got 0.0"),
        (lambda: Exp3HParams(exploration=1.5), r"exploration must lie in \[0, 1\], got 1.5"),
        (lambda: Exp3IXHParams(bias=-1.0), r"bias must lie in \[0, inf\), got -1.0"),
        (lambda: Exp3SHParams(stretches=0.0), r"stretches must lie in \[1, inf\), got 0.0"),
        (lambda: TsallisINFHParams(baseline=2.0), r"baseline must lie in \[0, 1\], got 2.0"),
    ],
)
def test_settings_out_of_range_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("policy", [exp3(), exp3_ix(), exp3_s(), tsallis_inf()], ids=lambda policy: policy.name)
def test_rewards_that_may_lie_outside_the_unit_interval_are_refused(policy):
    with pytest.raises(ValueError, match=rf"{policy.name} takes rewards in \[0, 1\], those of bandit/gaussian lie in"):
        jaxrl.run_bandit(policy, GaussianBandit(), steps=10, runs=1)
    policy.check(Task(8, 0, ConstrainedAdversary(num_arms=8)))
