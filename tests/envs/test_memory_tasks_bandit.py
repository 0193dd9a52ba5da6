"""The bandit episode: exact values compared with brute force over histories, and policies by hand that earn them."""

import dataclasses
import itertools
from collections.abc import Callable
from math import comb, gamma
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from memory_episodes import assert_mean, play

import envs
from envs import discount_curves
from envs.memory.bandit import BanditEpisode

GAMMAS = (None, 0.8)
PRIORS = ((1.0, 1.0), (2.0, 0.5), (0.5, 3.0))


def made(num_arms: int, num_pulls: int, prior: tuple[float, float] = (1.0, 1.0)) -> tuple[Any, Any]:
    env = BanditEpisode(num_arms, num_pulls)
    return env, dataclasses.replace(env.default_params, alpha=prior[0], beta=prior[1])


def likelihood(history: tuple[tuple[int, int], ...], num_arms: int, prior: tuple[float, float]) -> float:
    """The probability of the rewards of `(arm, reward)` pairs, given the arms: a product of Beta functions."""

    def beta(a: float, b: float) -> float:
        return gamma(a) * gamma(b) / gamma(a + b)

    total = 1.0
    for arm in range(num_arms):
        rewards = [reward for pulled, reward in history if pulled == arm]
        total *= beta(prior[0] + sum(rewards), prior[1] + len(rewards) - sum(rewards)) / beta(*prior)
    return total


def best(history: Any, num_arms: int, prior: tuple[float, float], curve: np.ndarray) -> float:
    """The best rest of a return over all policies that remember everything, times the history's probability."""
    if len(history) == len(curve):
        return 0.0
    return max(
        sum(
            curve[len(history)] * reward * likelihood((*history, (arm, reward)), num_arms, prior)
            + best((*history, (arm, reward)), num_arms, prior, curve)
            for reward in (0, 1)
        )
        for arm in range(num_arms)
    )


def best_function(num_arms: int, prior: tuple[float, float], curve: np.ndarray) -> float:
    """The best return of a function of observations, over all of them and all rewards of an episode."""
    earned = []
    for first, *after in itertools.product(range(num_arms), repeat=1 + 2 * num_arms):
        total = 0.0
        for rewards in itertools.product((0, 1), repeat=len(curve)):
            history, arm = [], first
            for reward in rewards:
                history.append((arm, reward))
                arm = after[2 * arm + reward]
            total += likelihood(tuple(history), num_arms, prior) * (curve @ np.array(rewards))
        earned.append(total)
    return max(earned)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("num_arms", "num_pulls"), [(2, 1), (2, 5), (3, 3)])
def test_optimum_and_memoryless_are_the_best_of_all_policies(
    num_arms: int, num_pulls: int, prior: tuple[float, float]
) -> None:
    env, params = made(num_arms, num_pulls, prior)
    for discount in GAMMAS:
        curve = discount_curves.of(discount, num_pulls)
        assert env.optimum(params, discount) == pytest.approx(best((), num_arms, prior, curve), abs=1e-12)
        if prior[0] < prior[1]:
            assert env.memoryless(params, discount) is None
        else:
            assert env.memoryless(params, discount) == pytest.approx(best_function(num_arms, prior, curve), abs=1e-12)


def test_values_under_a_uniform_prior() -> None:
    """Two pulls by hand: win-stay, lose-shift is best, 1/2 + (1/2)(2/3) + (1/2)(1/2); and the order of the values."""
    env, params = made(2, 2)
    assert env.optimum(params) == pytest.approx(13 / 12, abs=1e-12)
    assert env.memoryless(params) == pytest.approx(13 / 12, abs=1e-12)
    env = BanditEpisode()
    assert 10 < env.memoryless() < env.optimum() < env.bound() == pytest.approx(20 * 2 / 3, abs=1e-9)  # type: ignore[operator]
    assert f"{env.optimum():.4f} {env.memoryless():.4f}" == "12.4313 11.7039"
    # Under the prior Beta(2, 1) F(x) is x^2, so the mean of the best of three is 6/7.
    env, params = made(3, 4, (2.0, 1.0))
    assert env.bound(params, 0.5) == pytest.approx(6 / 7 * 1.875, abs=1e-9)


def test_a_time_limit_shortens_the_episode() -> None:
    env, params = made(2, 6)
    cut = dataclasses.replace(params, max_steps_in_episode=4)
    short, its = made(2, 4)
    assert (env.optimum(cut), env.memoryless(cut)) == (short.optimum(its), short.memoryless(its))
    assert env.return_range(cut) == (0.0, 4.0)


def test_values_of_large_tasks_are_not_stated() -> None:
    assert BanditEpisode(2, 91).optimum() is None and BanditEpisode(4, 9).memoryless() is None
    assert BanditEpisode(10, 200).bound() == pytest.approx(200 * 10 / 11, abs=1e-7)


def test_no_policy_that_draws_its_actions_earns_more_without_memory() -> None:
    """Policies drawn at random, and near the best, by their exact means over success probabilities."""
    env, params = made(2, 7)
    nodes, weights = np.polynomial.legendre.leggauss(8)  # exact for polynomials of degree 15
    p1, p2 = np.meshgrid((1 + nodes) / 2, (1 + nodes) / 2)
    weight = np.outer(weights, weights) / 4
    rng = np.random.default_rng(0)
    for trial in range(400):
        leave = rng.beta(0.3, 0.3, (2, 2))  # probability of leaving each arm after a failure and after a success
        if trial % 2:
            leave = np.abs(np.array([[1.0, 0.0], [1.0, 0.0]]) - 0.05 * leave)
        at_first, total = np.full_like(p1, rng.random()), 0.0
        for _ in range(7):
            total += np.sum(weight * (at_first * p1 + (1 - at_first) * p2))
            leave_1, leave_2 = ((1 - p) * row[0] + p * row[1] for p, row in zip((p1, p2), leave, strict=True))
            at_first = at_first * (1 - leave_1) + (1 - at_first) * leave_2
        assert total <= env.memoryless(params) + 1e-12


def test_drawing_helps_where_failures_are_likely() -> None:
    """Why `memoryless` is None there: leaving a failure with a probability below 1 earns more than any function."""
    prior, pulls = (1.0, 6.0), 3
    nodes, weights = np.polynomial.legendre.leggauss(12)
    p = (1 + nodes) / 2
    one = weights * (1 - p) ** 5 * 3  # density 6 (1 - p)^5, and half of it for the interval
    p1, p2 = np.meshgrid(p, p)

    def value(leave: float) -> float:
        at_first, total = np.ones_like(p1), 0.0
        for _ in range(pulls):
            total += float(np.sum(np.outer(one, one) * (at_first * p1 + (1 - at_first) * p2)))
            at_first = at_first * (1 - leave * (1 - p1)) + (1 - at_first) * leave * (1 - p2)
        return total

    function = best_function(2, prior, np.ones(pulls))
    assert value(1.0) == pytest.approx(function, abs=1e-12) and value(0.96) > function + 2e-5


# --- policies by hand --------------------------------------------------------------------


def win_stay(obs: jax.Array, memory: Any, time: jax.Array) -> Any:
    arm = jnp.argmax(obs[:2])
    return jnp.where((obs[3] > 0) | (obs[2] > 0), arm, 1 - arm), memory


def _bayesian(table: np.ndarray) -> Callable[..., Any]:
    actions = jnp.asarray(table)

    def policy(obs: jax.Array, counts: jax.Array, time: jax.Array) -> Any:
        pulled = obs[:2].astype(jnp.int32)[:, None] * jnp.stack([obs[2], 1 - obs[2]]).astype(jnp.int32)
        counts = counts + pulled
        return actions[tuple(counts.ravel())], counts

    return policy


def bayes_table(pulls: int) -> np.ndarray:
    """The best arm after each number of successes and failures of two arms under a uniform prior."""
    worth, table = {}, np.zeros((pulls + 1,) * 4, np.int32)
    for time in reversed(range(pulls)):
        for counts in itertools.product(range(time + 1), repeat=4):
            if sum(counts) == time:
                values = []
                for arm in (0, 1):
                    won, lost = counts[2 * arm : 2 * arm + 2]
                    more = [tuple(np.add(counts, np.eye(4, dtype=int)[2 * arm + i])) for i in (0, 1)]
                    chance = (1 + won) / (2 + won + lost)
                    values.append(chance * (1 + worth.get(more[0], 0.0)) + (1 - chance) * worth.get(more[1], 0.0))
                worth[counts], table[counts] = max(values), int(np.argmax(values))
    assert worth[0, 0, 0, 0] > 0.5 * pulls and len(worth) == comb(pulls + 3, 4)
    return table


@pytest.mark.slow
def test_handwritten_policies_earn_the_stated_returns() -> None:
    env, _ = made(2, 6)
    rewards, lengths = play(env, _bayesian(bayes_table(6)), np.zeros((2, 2), np.int32), 6, 60_000)
    np.testing.assert_array_equal(lengths, 6)
    assert_mean(rewards.sum(axis=1), env.optimum())  # type: ignore[arg-type]
    assert_mean(rewards @ discount_curves.of(0.8, 6), float(env.optimum(discount=0.8)))  # type: ignore[arg-type]
    env = BanditEpisode()
    rewards, _ = play(env, win_stay, (), 20, 60_000)
    assert_mean(rewards.sum(axis=1), env.memoryless())  # type: ignore[arg-type]


@pytest.mark.slow
def test_chances_have_the_prior_s_mean_and_variance() -> None:
    env, params = made(4, 3, (2.0, 3.0))
    _, state = jax.vmap(env.reset_env, (0, None))(jax.random.split(jax.random.key(1), 5000), params)
    chances = np.asarray(state.chances, np.float64)
    assert chances.shape == (5000, 4) and np.all((chances >= 0) & (chances <= 1))
    assert_mean(chances.ravel(), 2 / 5)
    assert_mean((chances.ravel() - 2 / 5) ** 2, 6 / 150)
    assert np.abs(np.corrcoef(chances.T) - np.eye(4)).max() < 4.5 / np.sqrt(5000)


def test_a_pull_pays_by_its_chance_and_is_seen() -> None:
    """The reward by the definition of a Bernoulli draw, in NumPy, and the observation, step by step."""
    env, params = made(3, 4)
    step = jax.jit(env.step_env)
    obs, state = env.reset_env(jax.random.key(0), params)
    np.testing.assert_array_equal(obs, [0, 0, 0, 0, 1])
    state = dataclasses.replace(state, chances=jnp.array([0.0, 0.5, 1.0]))
    paid = []
    for time, arm in enumerate((0, 1, 2, 1)):
        key = jax.random.key(time)
        obs, state, reward, terminated, _ = step(key, state, jnp.int32(arm), params)
        expected = float(np.asarray(jax.random.uniform(key)) < np.array([0.0, 0.5, 1.0])[arm])
        assert float(reward) == expected and bool(terminated) == (time == 3)
        np.testing.assert_array_equal(obs, [*np.eye(3)[arm], expected, 0])
        paid.append(expected)
    assert paid[0] == 0 and paid[2] == 1


def test_pulls_and_prior_are_swept() -> None:
    env: Any = envs.make("memory/bandit", num_arms=3, num_pulls=7)
    assert env == BanditEpisode(3, 7) and env.name == "memory/bandit"
    low, high = env.return_range(dataclasses.replace(env.default_params, num_pulls=np.array([3, 9])))
    assert low == 0 and high.tolist() == [3, 7]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: BanditEpisode(1), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: BanditEpisode(2, 0), "num_pulls must be a whole number of at least 1, got 0"),
        (lambda: _checked(alpha=0.0), r"env\.alpha must be above 0 and finite, got 0\.0"),
        (lambda: _checked(beta=-1.0), r"env\.beta must be above 0 and finite, got -1\.0"),
        (lambda: _checked(num_pulls=np.array([2, 0])), r"env\.num_pulls must be at least 1 and finite, got 0"),
    ],
)
def test_invalid_arguments_are_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def _checked(**values: Any) -> None:
    env = BanditEpisode()
    env.check_params(dataclasses.replace(env.default_params, **values))
