"""The optimum of the fishery: closed forms, slow searches over escapements, and episodes of the task."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from envs.base import OPTIMUM_KINDS
from envs.decision import escapement
from envs.decision.escapement import Fish
from envs.decision.fishery import Fishery
from jaxrl.discounts.parsing import Hyperbolic, as_discount

ENV: Any = Fishery()
DEFAULT: Any = ENV.default_params
DISCOUNTS = [None, 0.99, 0.95, Hyperbolic(k=0.1), as_discount("beta:mu=0.95,eta=0.5")]


def growth(left: Any) -> Any:
    return left + 0.3 * left * (1 - left)


def best_escapements(curve: np.ndarray) -> np.ndarray:
    """Where the growth of one harvest's escapement is worth most: K / 2 (1 - (Gamma(t) / Gamma(t + 1) - 1) / r)."""
    return np.append(np.maximum(0.5 * (1 - (curve[:-1] / curve[1:] - 1) / 0.3), 0), 0.0)


def harvested(left: np.ndarray, curve: np.ndarray, stock: float = 0.75) -> float:
    """The weighted harvests of escapements that every stock reaches, in the mean over the noise."""
    stocks = np.append(stock, growth(left[:-1]))
    return float(curve @ (stocks - left))


def test_the_published_optima() -> None:
    assert ENV.optimum() == pytest.approx(8.25, rel=1e-12)  # .25, then 99 times .075, then .575
    for gamma, left in ((1.0, 0.5), (0.99, 0.4832), (0.95, 0.4123)):
        curve = gamma ** np.arange(101)
        np.testing.assert_allclose(best_escapements(curve)[:-1], left, atol=5e-5)
        for kind in ("precommitted", "sophisticated"):
            plan = getattr(escapement, kind)(Fish(0.75, 0.3, 1.0, 0.0), curve)
            np.testing.assert_allclose(plan.escapements[:-1], left, atol=5e-4 + 5e-5)  # half a step of the grid
            assert plan.escapements[-1] == 0


@pytest.mark.parametrize("discount", DISCOUNTS, ids=str)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_precommitted_optimum_is_the_closed_form(noise: float, discount: Any) -> None:
    """Each escapement is the best for the next harvest alone, which is feasible where the lowest growth reaches it."""
    params = DEFAULT.replace(noise=noise)
    curve = ENV.weights(params, discount)
    left = best_escapements(curve)
    assert np.all((1 - noise) * growth(left[:-1]) >= left[1:]) and left[0] <= 0.75
    error = 1e-6 if noise == 0 else 1e-5
    assert ENV.optimum(params, discount) == pytest.approx(harvested(left, curve), rel=error)


def test_the_best_escapement_is_half_of_the_capacity_as_long_as_stocks_regrow_to_it() -> None:
    """From K / 2 the lowest growth reaches 1.15 (1 - noise) K / 2, which is below K / 2 with noise above 0.1304."""
    step = Fish(0.75, 0.3, 1.0, 0.13).highest() / 2000
    assert ENV.plan(DEFAULT.replace(noise=0.13)).escapements[0] == pytest.approx(0.5, abs=step)
    assert ENV.plan(DEFAULT.replace(noise=0.3)).escapements[0] > 0.5 + 5 * step


@pytest.mark.parametrize("discount", DISCOUNTS, ids=str)
def test_the_sophisticated_optimum_is_the_closed_form(discount: Any) -> None:
    """Each harvest expects the next one to leave what it does itself: a constant part, of the first two weights."""
    curve = ENV.weights(None, discount)
    constant = best_escapements(curve)[0]
    left = np.append(np.full(100, constant), 0.0)
    plan = escapement.sophisticated(Fish(0.75, 0.3, 1.0, 0.0), curve)
    assert plan.value == pytest.approx(harvested(left, curve), rel=1e-6)
    assert ENV.optimum(None, discount, "sophisticated") == pytest.approx(plan.value, rel=1e-6)


@pytest.mark.parametrize("stock", [0.1, 0.75, 1.6])
@pytest.mark.parametrize("discount", DISCOUNTS, ids=str)
def test_the_stationary_optimum_is_the_best_of_constant_escapements(discount: Any, stock: float) -> None:
    params = DEFAULT.replace(stock=stock, num_steps=12, max_steps_in_episode=12)
    curve, limits = ENV.weights(params, discount), np.linspace(0, 1.6, 20_001)
    stocks, total = np.full(20_001, stock), np.zeros(20_001)
    for weight in curve:
        left = np.minimum(stocks, limits)
        total, stocks = total + weight * (stocks - left), growth(left)
    error = 1e-4 if stock == 0.1 else 1e-5
    assert ENV.optimum(params, discount, "stationary") == pytest.approx(total.max(), rel=error)


@pytest.mark.parametrize("discount", DISCOUNTS, ids=str)
def test_a_low_stock_is_spared_as_a_search_over_escapements_does(discount: Any) -> None:
    """A stock below the best escapements, where the closed form is none: shares of six harvests by L-BFGS."""
    params = DEFAULT.replace(stock=0.2, num_steps=6, max_steps_in_episode=6)
    curve = ENV.weights(params, discount)

    def loss(shares: np.ndarray) -> float:
        stock, total = 0.2, 0.0
        for weight, share in zip(curve, np.append(shares, 1.0), strict=True):
            total, stock = total + weight * share * stock, growth((1 - share) * stock)
        return -total

    starts = np.random.default_rng(0).uniform(size=(20, 5))
    best = max(-minimize(loss, start, method="L-BFGS-B", bounds=[(0, 1)] * 5).fun for start in starts)
    assert ENV.optimum(params, discount) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("stock", [0.15, 0.3, 0.75])
@pytest.mark.parametrize("discount", [0.95, Hyperbolic(k=0.1), Hyperbolic(k=0.25)], ids=str)
def test_three_sophisticated_harvests_by_their_definition(discount: Any, stock: float) -> None:
    """The last takes all; the second then weighs two harvests, and the first three, over a fine grid."""
    curve, grid = ENV.weights(DEFAULT, discount), np.linspace(0, 1, 400_001)
    second_left = best_escapements(curve)[0]

    def rest(after: Any) -> tuple[Any, Any]:  # the second and the third harvest
        left = np.minimum(after, second_left)
        return after - left, growth(left)

    choices = grid[grid <= stock]
    second, third = rest(growth(choices))
    first_left = choices[np.argmax(stock - choices + curve[1] * second + curve[2] * third)]
    second, third = rest(growth(first_left))
    expected = stock - first_left + curve[1] * second + curve[2] * third
    plan = escapement.sophisticated(Fish(stock, 0.3, 1.0, 0.0), curve[:3])
    assert plan.value == pytest.approx(expected, rel=1e-5)


def test_the_grid_is_fine_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stated errors: half the step of the grid, and twice the nodes of the noise, change less."""
    fish = [Fish(0.75, 0.3, 1.0, 0.0), Fish(0.75, 0.3, 1.0, 0.3)]
    curve = ENV.weights(None, Hyperbolic(k=0.1))
    solvers = (escapement.precommitted, escapement.sophisticated)
    coarse = [solve(each, curve).value for each in fish for solve in solvers]
    monkeypatch.setattr(escapement, "POINTS", 4001)
    monkeypatch.setattr(escapement, "NODES", 32)
    fine = [solve(each, curve).value for each in fish for solve in solvers]
    np.testing.assert_allclose(coarse[:2], fine[:2], rtol=1e-6)
    np.testing.assert_allclose(coarse[2:], fine[2:], rtol=1e-5)


@functools.partial(jax.jit, static_argnums=0)
def returns(episodes: int, limits: jax.Array, curve: jax.Array, params: Any) -> jax.Array:
    """Weighted returns of episodes that leave at most a limit in each step."""

    def episode(key: jax.Array) -> jax.Array:
        def step(carry: Any, each: Any) -> Any:
            state, key = carry
            limit, weight = each
            key, own = jax.random.split(key)
            share = 1 - jnp.minimum(limit / jnp.maximum(state.stock, 1e-9), 1)
            _, state, reward, _, _ = ENV.step_env(own, state, share[None], params)
            return (state, key), weight * reward

        return jax.lax.scan(step, (ENV.reset_env(key, params)[1], key), (limits, curve))[1].sum()

    return jax.vmap(episode)(jax.random.split(jax.random.key(0), episodes))


def test_episodes_have_the_value_of_their_plan() -> None:
    """Without noise to 1e-5, the roundings of a hundred steps; with it within five standard errors."""
    for discount in (None, Hyperbolic(k=0.1)):
        for kind in OPTIMUM_KINDS:
            plan = ENV.plan(None, discount, kind)
            curve = jnp.asarray(ENV.weights(None, discount), jnp.float32)
            total = float(returns(1, jnp.asarray(plan.escapements, jnp.float32), curve, DEFAULT)[0])
            assert total == pytest.approx(ENV.optimum(None, discount, kind), rel=2e-5)
    noisy = DEFAULT.replace(noise=0.3)
    for discount in (None, Hyperbolic(k=0.1)):
        for kind in ("precommitted", "stationary"):
            plan = ENV.plan(noisy, discount, kind)
            curve = jnp.asarray(ENV.weights(noisy, discount), jnp.float32)
            total = np.asarray(returns(8192, jnp.asarray(plan.escapements, jnp.float32), curve, noisy), float)
            assert abs(total.mean() - plan.value) <= 5 * total.std() / np.sqrt(8192) + 2e-5 * plan.value


def test_stocks_stay_on_the_grid() -> None:
    """The highest stock of the grid: no growth by the highest noise exceeds it, from any stock up to it."""
    for stock, rate, noise in ((0.75, 0.3, 0.0), (1.9, 0.3, 0.1), (0.75, 0.3, 0.9), (0.75, 1.0, 1.0), (0.1, 0.05, 0.5)):
        fish = Fish(stock, rate, 1.0, noise)
        stocks = np.linspace(0, fish.highest(), 10_001)
        assert np.all((1 + noise) * fish.grown(stocks) <= fish.highest() * (1 + 1e-12)) and fish.highest() >= stock


def test_parameters_are_refused() -> None:
    for values, message in (
        ({"growth_rate": 1.5}, r"env.growth_rate must lie in \(0, 1\], got 1.5"),
        ({"noise": -0.1}, r"env.noise must lie in \[0, 1\], got -0.1"),
        ({"stock": 0.0}, "env.stock must be above 0 and finite, got 0"),
        ({"stock": 2.5}, "env.stock must be at most twice env.capacity, 2.0, got 2.5"),
        ({"num_steps": 0}, "env.num_steps must be at least 1 and finite, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ENV.check_params(DEFAULT.replace(**values))
