"""Dueling bandits and their policies, compared with slow versions in NumPy."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import bandits_preferences as reference
from scipy import stats

import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from envs.bandits.dueling import DuelingBandit, DuelingParams
from jaxrl.bandits.arms import Tally
from jaxrl.bandits.base import BanditAlgorithm, View
from jaxrl.bandits.checks import check_arms
from jaxrl.bandits.policies import dueling, preferences
from jaxrl.bandits.runner import task_of

REWARDS = (0.3, -1.0, 1.2, 0.9)
DRAWS = 10_000
LEVEL = 1e-3  # p-value of each test of a distribution; its keys are fixed, so that it passes always or never
VIEW = View(jnp.int32(60), jnp.int32(100), None, None, None)
SAMPLERS = [preferences.pilaf, preferences.pilaf_weighted, preferences.policy_pairs, preferences.uniform_pairs]


def state_with(rewards: tuple[float, ...]) -> preferences.Preferences:
    return preferences.Preferences(Tally.zeros(len(rewards), len(rewards)), jnp.float32(rewards))


@functools.partial(jax.jit, static_argnums=0)
def _draw(choose: Callable[..., jax.Array], state: Any, hparams: Any, keys: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: choose(key, state, VIEW, hparams))(keys)


def draws(policy: BanditAlgorithm, state: Any, hparams: Any, seed: int) -> np.ndarray:
    """Pairs `[DRAWS, 2]`."""
    return np.asarray(_draw(policy.choose, state, hparams, jax.random.split(jax.random.key(seed), DRAWS)))


def counts(drawn: np.ndarray, num_arms: int) -> np.ndarray:
    """Number of times that each pair was drawn, `[K, K]`."""
    return np.bincount(drawn[:, 0] * num_arms + drawn[:, 1], minlength=num_arms**2).reshape(num_arms, num_arms)


# --- the environment ------------------------------------------------------------------------


def test_the_judge_prefers_as_bradley_and_terry_say_and_regret_counts_both_arms() -> None:
    env = DuelingBandit(rewards=REWARDS)
    params = env.default_params
    _, state = env.reset_env(jax.random.key(0), params)
    pairs = jnp.array([[0, 1], [1, 0], [2, 3], [2, 2]], jnp.int32)
    keys = jax.random.split(jax.random.key(1), DRAWS)

    @jax.jit
    def compare(pair: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        step = jax.vmap(lambda key: env.step_env(key, state, pair, params))
        _, after, reward, _, info = step(keys)
        agree = (after.last_reward == info["arrivals"][1][:, 0]) & jnp.all(info["arrivals"][0][:, 0] == pair, axis=1)
        return jnp.mean(after.last_reward), reward[0], info["metrics"]["regret"][0] + 10 * jnp.mean(agree)

    for pair in pairs:
        a, b = (REWARDS[arm] for arm in pair.tolist())
        share, reward, regret = (float(value) for value in compare(pair))
        chance = float(reference.sigmoid(np.float64(a - b)))
        assert abs(share - chance) < 4 * np.sqrt(chance * (1 - chance) / DRAWS)
        value = float(np.mean(reference.sigmoid(np.array([a, b]) - max(REWARDS))))
        assert reward == pytest.approx(value, abs=1e-6)
        assert regret == pytest.approx(0.5 - value + 10, abs=1e-5)  # 10: every answer arrived unchanged


def test_an_observation_shows_the_pair_and_the_answer() -> None:
    env = DuelingBandit(rewards=(0.0, 100.0, 0.0))
    params = env.default_params
    obs, state = env.reset_env(jax.random.key(0), params)
    np.testing.assert_array_equal(obs, np.zeros(8))
    obs, state, *_ = env.step_env(jax.random.key(1), state, (jnp.int32(1), jnp.int32(2)), params)
    np.testing.assert_allclose(obs, [0, 1, 0, 0, 0, 1, 1, 0.01])
    obs, *_ = env.step_env(jax.random.key(2), state, jnp.array([0, 1], jnp.int32), params)
    np.testing.assert_allclose(obs, [1, 0, 0, 0, 1, 0, 0, 0.02])
    np.testing.assert_array_equal(env.pulls(jnp.array([2, 2])), [0, 0, 2])
    np.testing.assert_array_equal(env.pulls(jnp.array([0, 2])), [1, 0, 1])


def test_latent_rewards_follow_the_prior() -> None:
    env = DuelingBandit(num_arms=5)
    draw = jax.vmap(lambda key: env.instance(key, DuelingParams(scale=2.0)).values)
    values = np.asarray(draw(jax.random.split(jax.random.key(3), 2000))).ravel()
    assert stats.kstest(values, stats.norm(scale=2.0).cdf).pvalue > LEVEL


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: DuelingBandit(num_arms=1), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: DuelingBandit(rewards=(1.0,)), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: DuelingBandit(rewards=(0.0, float("nan"))), "rewards must be a sequence of finite numbers"),
        (lambda: DuelingParams(scale=-1.0), r"scale must lie in \(0.0, inf\), got -1.0"),
        (lambda: DuelingParams(rewards=np.array([0.0, np.inf])), "rewards must lie in"),
        (lambda: preferences.PreferencesHParams(beta=0.0), r"beta must lie in \(0, inf\), got 0.0"),
        (lambda: preferences.PreferencesHParams(scale=-2.0), r"scale must lie in \(0, inf\), got -2.0"),
        (lambda: dueling.DoubleThompsonHParams(exploration=-0.1), r"exploration must lie in \[0, inf\), got -0.1"),
        (
            lambda: jaxrl.run_bandit(dueling.double_thompson(), BernoulliBandit(), steps=2, runs=1),
            "double-thompson compares two arms at a time, as bandit/dueling takes them; bandit/bernoulli does not",
        ),
        (
            lambda: jaxrl.run_bandit(preferences.pilaf(), BernoulliBandit(), steps=2, runs=1),
            "pilaf compares two arms at a time",
        ),
        (
            lambda: check_arms("ucb1", task_of(DuelingBandit())),
            r"ucb1 pulls one of 10 arms at a time, which bandit/dueling does not take: its actions are Tuple",
        ),
        (
            lambda: jaxrl.run_bandit(
                jaxrl.bandits.ucb1()._replace(check=lambda task: None),
                DuelingBandit(),
                steps=2,
                runs=1,
                progress=False,
            ),
            r"bandit/dueling takes two arms at a time, an action of the shape \(2,\), got one of the shape \(\)",
        ),
        (
            lambda: jaxrl.run_bandit(
                preferences.uniform_pairs(),
                DuelingBandit(),
                steps=2,
                runs=1,
                env_params=DuelingParams(rewards=np.zeros(3, np.float32)),
                progress=False,
            ),
            r"rewards must have the shape \(10,\), got \(3,\)",
        ),
    ],
)
def test_invalid_arguments_are_refused(build, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


# --- double Thompson sampling -----------------------------------------------------------------


def tally(wins: Any) -> Tally:
    return Tally.zeros(*np.shape(wins)).add(jnp.float32(wins))


@pytest.mark.slow
@pytest.mark.parametrize("exploration", [0.1, 0.6])
def test_double_thompson_draws_the_pairs_of_the_slow_version(exploration: float) -> None:
    wins = np.array([[0, 9, 2, 4], [3, 0, 1, 2], [5, 8, 0, 6], [3, 6, 4, 0]], float)
    hparams = dueling.DoubleThompsonHParams(exploration=exploration)
    ours = counts(draws(dueling.double_thompson(), tally(wins), hparams, 4), 4)
    generator = np.random.default_rng(5)
    slow = counts(np.array([reference.double_thompson(generator, wins, 61, exploration) for _ in range(DRAWS)]), 4)
    drawn = (ours + slow) > 0
    assert 3 <= drawn.sum() < 16  # some pairs are excluded
    test: Any = stats.chi2_contingency(np.stack([ours[drawn], slow[drawn]]))
    assert test.pvalue > LEVEL


@pytest.mark.slow
def test_comparisons_are_recorded_for_the_winning_arm() -> None:
    wins = jnp.zeros((3, 3))
    for pair, answer in (([0, 2], 1.0), ([0, 2], 0.0), ([1, 2], 0.0), ([2, 1], 1.0), ([0, 2], 1.0)):
        wins = dueling.record(wins, jnp.array(pair), jnp.float32(answer))
    np.testing.assert_array_equal(wins, [[0, 0, 2], [0, 0, 0], [1, 2, 0]])
    # Arms 0 and 2 beat one other each, in the posterior's means; 0.4 + 0.75 is above 0.6 + 0.5.
    assert int(dueling.double_thompson().recommend(tally(wins), None)) == 2


# --- the reward model -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_the_fit_is_the_most_probable(scale: float) -> None:
    generator = np.random.default_rng(6)
    rewards = scale * generator.normal(size=6)
    wins = generator.binomial(8, reference.sigmoid(rewards[:, None] - rewards)).astype(float)
    np.fill_diagonal(wins, 0)
    actual = preferences.fit_rewards(jnp.float32(wins), scale, jnp.zeros(6), 12)
    # Newton's steps end at the rounding of a slope, 48 terms of at most 1, over a curvature of at least 1 / scale^2.
    bound = 48 * np.finfo(np.float32).eps * max(scale**2, 1)
    np.testing.assert_allclose(actual, reference.fit(wins, scale), atol=float(bound))


@pytest.mark.fast_rows("3.0")
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_one_step_after_each_answer_follows_the_fit(scale: float) -> None:
    env = DuelingBandit(num_arms=5)
    policy, hparams = preferences.pilaf(), preferences.PreferencesHParams(scale=scale)
    params = DuelingParams(scale=scale)

    @jax.jit
    def play(key: jax.Array) -> tuple[jax.Array, preferences.Preferences]:
        env_state = env.instance(key, params)
        first = policy.init(key, task_of(env), params, hparams)

        def compare(state: preferences.Preferences, key: jax.Array) -> tuple[preferences.Preferences, None]:
            pair = policy.choose(key, state, VIEW, hparams)
            answer = env.answer(jax.random.fold_in(key, 1), env_state, pair)
            return policy.update(state, VIEW, pair, answer, hparams), None

        return env_state.values, jax.lax.scan(compare, first, jax.random.split(key, 200))[0]

    _, state = jax.vmap(play)(jax.random.split(jax.random.key(7), 8))
    for wins, rewards in zip(np.asarray(state.wins.value, float), np.asarray(state.rewards), strict=True):
        assert wins.sum() == 200
        best = reference.fit(wins, scale)
        # Within a hundredth of the uncertainty that the answers leave.
        assert np.all(np.abs(rewards - best) < 0.01 * reference.uncertainty(wins, best, scale))


# --- samplers ---------------------------------------------------------------------------------------


def test_interpolated_policies_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(8)
    logits, other = generator.normal(size=(2, 5))
    beta = 0.4
    policy, base = (np.exp(each) / np.exp(each).sum() for each in (logits, other))
    implied = beta * np.log(policy / base)
    actual = preferences.interpolated_logits(jnp.float32(logits), jnp.float32(other), beta)
    for each, sign in zip(actual, (1, -1), strict=True):
        expected = policy * np.exp(sign * implied)
        np.testing.assert_allclose(jax.nn.softmax(each), expected / expected.sum(), rtol=1e-5)


@pytest.mark.slow_rows("pilaf")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_draw_the_pairs_of_the_definitions(sampler) -> None:
    beta = 0.6
    rewards = np.array(REWARDS)
    policy = np.exp(rewards / beta)
    expected = {
        "pilaf": reference.pilaf_pairs(rewards, beta),
        "pilaf-weighted": reference.weighted_pairs(rewards, beta),
        "policy-pairs": reference.pairs(policy, policy),
        "uniform-pairs": reference.pairs(np.ones(4), np.ones(4)),
    }[sampler().name]
    hparams = preferences.PreferencesHParams(beta=beta)
    drawn = counts(draws(sampler(), state_with(REWARDS), hparams, 9), 4)
    assert np.all(np.diag(drawn) == 0)
    if sampler().name == "pilaf-weighted":  # the interpolated part determines the order of the two arms
        drawn, expected = (np.triu(each + each.T) for each in (drawn, expected))
    possible = expected > 0
    assert stats.chisquare(drawn[possible], DRAWS * expected[possible]).pvalue > LEVEL


def test_weighted_pairs_show_the_rewards_that_the_policy_needs() -> None:
    beta = 0.6
    rewards = np.array(REWARDS)
    policy = np.exp(rewards / beta) / np.exp(rewards / beta).sum()
    covariance = np.diag(policy) - np.outer(policy, policy)
    actual = reference.information(reference.weighted_pairs(rewards, beta), rewards)
    np.testing.assert_allclose(actual / np.trace(actual), covariance / np.trace(covariance), atol=1e-12)


def test_a_policy_that_is_nearly_certain_still_draws_pairs() -> None:
    state = state_with((0.0, 20.0, 0.0, 19.0))
    for sampler in SAMPLERS:
        drawn = draws(sampler(), state, preferences.PreferencesHParams(beta=0.01), 10)
        assert np.all((drawn >= 0) & (drawn < 4) & (drawn[:, :1] != drawn[:, 1:]))


@pytest.mark.slow
def test_the_runner_counts_regret_of_comparisons() -> None:
    env = DuelingBandit(num_arms=4)
    sweep = jaxrl.grid(preferences.PreferencesHParams(), {"beta": [0.2, 1.0]})
    result = jaxrl.run_bandit(preferences.pilaf(), env, sweep, steps=200, runs=20, points=[10, 200], progress=False)
    pulls = result.values("pulls")
    np.testing.assert_array_equal(pulls.sum(axis=-1), np.broadcast_to([20, 400], (2, 20, 2)))
    values = np.asarray(result.policies["values"])[:, :, None]
    chances = reference.sigmoid(values - values.max(axis=-1, keepdims=True))
    regret = np.sum(pulls * (0.5 - chances), axis=-1) / 2
    # The regret of a pull is rounded to float32, its sum is not.
    np.testing.assert_allclose(result.values("regret"), regret, atol=float(400 * np.finfo(np.float32).eps))
    # A policy with a lower temperature names better arms, and the recommended arm becomes better.
    assert result.values("regret")[0, :, 1].mean() < result.values("regret")[1, :, 1].mean()
    simple = result.values("simple_regret").mean(axis=1)
    assert np.all(simple[:, 1] < simple[:, 0])


@pytest.mark.slow
def test_double_thompson_finds_the_best_arm() -> None:
    env = DuelingBandit(num_arms=5)
    result = jaxrl.run_bandit(
        dueling.double_thompson(), env, steps=4000, runs=100, points=[1000, 2000, 4000], progress=False
    )
    regret = result.values("regret")[0].mean(axis=0)
    late = (regret[2] - regret[1]) / 2000
    assert late < 0.3 * regret[0] / 1000  # logarithmic: earlier pulls cost more
    assert result.values("simple_regret")[0, :, -1].mean() < 0.05
