"""Linear-quadratic laws against quadratic programs, searches over gains and deviations of single steps, in float64."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sla
from scipy.optimize import minimize_scalar

from envs.control import riccati
from envs.control.riccati import Problem
from envs.control.stationary_gains import best_stationary, best_stationary_over_rates

RATES = np.array([0.5, 0.9]), np.array([0.5, 0.5])
HYPERBOLIC = 1 / (1 + 0.3 * np.arange(12))
CURVES = {
    "none": np.ones(12),
    "exponential": 0.9 ** np.arange(12),
    "hyperbolic": HYPERBOLIC,
    "ends early": np.where(np.arange(12) < 7, HYPERBOLIC, 0.0),
    "pauses": np.where(np.isin(np.arange(12), (3, 4, 8)), 0.0, HYPERBOLIC),
    "rises": 1.1 ** np.arange(12),
}


def problem_of(seed: int, n: int = 3, m: int = 2, radius: float = 1.05, p: int | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    a *= radius / np.max(np.abs(np.linalg.eigvals(a)))
    root = rng.normal(size=(n + m, n + m))
    both = root @ root.T + 0.1 * np.eye(n + m)
    noise, spread = (factor @ factor.T for factor in 0.3 * rng.normal(size=(2, n, n)))
    partial: dict[str, Any] = {}
    if p is not None:
        partial = {"c": rng.normal(size=(p, n)), "measurement": 0.2 * np.eye(p)}
    mean = rng.normal(size=n) if p is None else np.zeros(n)
    costs = both[:n, :n], both[n:, n:], both[:n, n:]
    return Problem(a, rng.normal(size=(n, m)), *costs, noise, mean, spread, **partial)


def steps_of(problem: Problem, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """x = free x_0 + forced u of all steps at once: `[T n, n]` and `[T n, T m]`."""
    n, m = problem.b.shape
    powers = [np.linalg.matrix_power(problem.a, k) for k in range(steps)]
    forced = np.zeros((steps * n, steps * m))
    for later, earlier in itertools.product(range(steps), repeat=2):
        if later > earlier:
            forced[later * n : (later + 1) * n, earlier * m : (earlier + 1) * m] = (
                powers[later - earlier - 1] @ problem.b
            )
    return np.concatenate(powers), forced


def costs_of(problem: Problem, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, R and S of all steps at once."""
    return tuple(np.kron(np.diag(weights), block) for block in (problem.q, problem.r, problem.s))  # pyright: ignore


def value_by_program(problem: Problem, weights: np.ndarray) -> np.ndarray:
    """The least weighted cost from a known state without noise, as a form in it, by one quadratic program."""
    free, forced = steps_of(problem, len(weights))
    q, r, s = costs_of(problem, weights)
    curvature = r + forced.T @ q @ forced + forced.T @ s + s.T @ forced
    slope = forced.T @ q @ free + s.T @ free
    return free.T @ q @ free - slope.T @ np.linalg.pinv(curvature, hermitian=True) @ slope


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("seed", range(3))
def test_the_precommitted_cost_is_that_of_quadratic_programs(seed: int, name: str) -> None:
    """Each disturbance is known once it has happened, and its effect adds to those of the others."""
    problem, weights = problem_of(seed), CURVES[name]
    value = value_by_program(problem, weights)
    cost = problem.mean @ value @ problem.mean + np.trace(value @ problem.spread)
    for time in range(1, len(weights)):
        cost += np.trace(value_by_program(problem, weights[time:]) @ problem.noise)
    assert riccati.precommitted(problem, weights).cost == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("discount", [0.9, 0.99])
def test_long_horizons_have_the_cost_of_scipys_equation(discount: float) -> None:
    problem = problem_of(3)
    root = np.sqrt(discount)
    value = sla.solve_discrete_are(root * problem.a, root * problem.b, problem.q, problem.r, s=problem.s)
    cost = problem.mean @ value @ problem.mean + np.sum(value * problem.spread)
    cost += discount / (1 - discount) * np.sum(value * problem.noise)
    assert riccati.infinite_horizon(problem, discount).cost == pytest.approx(cost, rel=1e-12)
    curve = discount ** np.arange(int(30 / (1 - discount)))  # e^-30 = 1e-13 is left
    for law in (riccati.precommitted(problem, curve), riccati.sophisticated(problem, curve)):
        assert law.cost == pytest.approx(cost, rel=1e-9)
        np.testing.assert_allclose(law.gains[0], riccati.infinite_horizon(problem, discount).gain, rtol=1e-9)


def rotated(problem: Problem, seed: int = 0) -> Problem:
    """The problem in other coordinates of the state, which changes no cost."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=problem.a.shape))[0]
    a, q, noise, spread = (turn @ each @ turn.T for each in (problem.a, problem.q, problem.noise, problem.spread))
    return problem._replace(a=a, b=turn @ problem.b, q=q, s=turn @ problem.s, noise=noise, spread=spread)


def free_of(a: Any, q: Any, b: Any, noise: float = 0.1) -> Problem:
    a, q, b = (np.array(each, np.float64) for each in (a, q, b))
    n, m = b.shape
    return Problem(a, b, q, np.eye(m), np.zeros((n, m)), noise * np.eye(n), np.zeros(n), np.eye(n))


FREE = {
    "grows": (free_of([[2]], [[0]], [[1]]), 0.9),
    "grows beside a cost": (free_of([[2, 0.3], [0, 1.1]], np.diag([0, 1]), [[0.5], [1]]), 0.9),
    "stays": (free_of([[1, 0.1], [0, 1]], np.diag([0, 1]), [[0], [1]], noise=0), 1.0),
    "drifts": (free_of([[1, 1], [0, 1]], np.zeros((2, 2)), [[0], [1]], noise=0), 1.0),
    "turns": (free_of([[0, 1.2, 0.1], [-1.2, 0, 0], [0, 0, 0.9]], np.diag([0, 0, 1]), [[1], [0], [1]]), 0.95),
    "grows as its inputs move it": (free_of([[2]], [[0.25]], [[1]])._replace(s=np.array([[0.5]])), 0.9),
}


@pytest.mark.parametrize("turned", [False, True], ids=["plain", "rotated"])
@pytest.mark.parametrize("name", FREE)
def test_states_that_grow_and_cost_nothing_are_not_stabilised(name: str, turned: bool) -> None:
    """Long horizons approach the infinite one from below; a law that stabilises costs more."""
    problem, discount = FREE[name]
    steps = 400 if discount < 1 else 60
    cost = riccati.precommitted(problem, discount ** np.arange(steps)).cost
    infinite = riccati.infinite_horizon(rotated(problem) if turned else problem, discount)
    assert infinite.cost == pytest.approx(cost, rel=1e-9, abs=1e-12)


def test_a_state_that_costs_little_is_stabilised() -> None:
    problem = free_of([[2]], [[1e-6]], [[1]])
    cost = riccati.precommitted(problem, 0.9 ** np.arange(400)).cost
    assert riccati.infinite_horizon(problem, 0.9).cost == pytest.approx(cost, rel=1e-9)
    assert cost > 2


def test_weights_that_vanish_within_an_episode_have_an_optimum() -> None:
    """5e-4 ** 95 = 3e-314 is subnormal, and its products with matrices are not exact."""
    problem = problem_of(13)
    for discount in (5e-4, 3e-7):
        cost = riccati.precommitted(problem, discount ** np.arange(100)).cost
        assert cost == pytest.approx(riccati.precommitted(problem, discount ** np.arange(20)).cost, rel=1e-12)


def test_without_noise_and_discount_too() -> None:
    problem = problem_of(4)._replace(noise=np.zeros((3, 3)))
    value = sla.solve_discrete_are(problem.a, problem.b, problem.q, problem.r, s=problem.s)
    cost = problem.mean @ value @ problem.mean + np.sum(value * problem.spread)
    assert riccati.infinite_horizon(problem, 1.0).cost == pytest.approx(cost, rel=1e-12)
    assert riccati.precommitted(problem, np.ones(1000)).cost == pytest.approx(cost, rel=1e-9)


def cost_from(problem: Problem, gains: np.ndarray, curve: np.ndarray, time: int, x: np.ndarray, u: np.ndarray) -> float:
    """The cost that the step `time` expects from x after u, weighted by delays, step by step in mean and covariance."""
    mean, covariance = problem.a @ x + problem.b @ u, problem.noise
    total = curve[0] * (x @ problem.q @ x + u @ problem.r @ u + 2 * x @ problem.s @ u)
    for delay in range(1, len(gains) - time):
        own = -gains[time + delay]
        second = np.outer(mean, mean) + covariance
        joint = np.block([[second, second @ own.T], [own @ second, own @ second @ own.T]])
        total += curve[delay] * np.sum(joint * np.block([[problem.q, problem.s], [problem.s.T, problem.r]]))
        mean = (problem.a + problem.b @ own) @ mean
        covariance = (problem.a + problem.b @ own) @ covariance @ (problem.a + problem.b @ own).T + problem.noise
    return float(total)


@pytest.mark.parametrize("name", ["none", "exponential", "hyperbolic", "ends early", "rises"])
def test_no_deviation_of_a_single_step_pays_for_the_sophisticated(name: str) -> None:
    problem, curve = problem_of(5), CURVES[name]
    gains, rng = riccati.sophisticated(problem, curve).gains, np.random.default_rng(0)
    for time in range(len(curve)):
        for _ in range(5):
            x, moved = rng.normal(size=3), rng.normal(size=2)
            best = cost_from(problem, gains, curve, time, x, -gains[time] @ x)
            both = [cost_from(problem, gains, curve, time, x, sign * moved - gains[time] @ x) for sign in (1, -1)]
            assert min(both) > best
            # A quadratic is least where both sides rise alike.
            assert both[0] - best == pytest.approx(both[1] - best, rel=1e-7)


@pytest.mark.parametrize("name", CURVES)
def test_the_cost_of_a_law_is_weighted_from_the_start(name: str) -> None:
    problem, curve = problem_of(6), CURVES[name]
    law = riccati.sophisticated(problem, curve)
    root = np.linalg.cholesky(problem.spread) * np.sqrt(3)  # six points have the moments of the first state
    points = [problem.mean + sign * column for column in root.T for sign in (1, -1)]
    costs = [cost_from(problem, law.gains, curve, 0, x, -law.gains[0] @ x) for x in points]
    assert law.cost == pytest.approx(np.mean(costs), rel=1e-9)


def test_the_laws_coincide_under_exponential_discounts_and_differ_elsewhere() -> None:
    problem = problem_of(7)
    for curve in (np.ones(30), 0.9 ** np.arange(30)):
        first, last = riccati.precommitted(problem, curve), riccati.sophisticated(problem, curve)
        np.testing.assert_allclose(first.gains, last.gains, rtol=1e-8, atol=1e-10)
        assert first.cost == pytest.approx(last.cost, rel=1e-12)
    curve = 0.9 ** np.arange(400)
    costs = [law(problem, curve).cost for law in (riccati.precommitted, riccati.sophisticated, best_stationary)]
    np.testing.assert_allclose(costs, costs[0], rtol=1e-8)
    first, last, fixed = (
        law(problem, HYPERBOLIC).cost for law in (riccati.precommitted, riccati.sophisticated, best_stationary)
    )
    assert first < min(last, fixed) * (1 - 1e-5)


def cost_of_one_gain(problem: Problem, gain: np.ndarray, weights: np.ndarray) -> float:
    """The cost of u = -F y by one normal vector of first state, noise and measurements."""
    n, steps = len(problem.a), len(weights)
    c = np.eye(n) if problem.c is None else problem.c
    v = np.zeros((len(c), len(c))) if problem.measurement is None else problem.measurement
    mean, covariance, total = problem.mean, problem.spread, 0.0
    for time in range(steps):
        to_action = np.concatenate([np.eye(n), -gain @ c])
        second = to_action @ (np.outer(mean, mean) + covariance) @ to_action.T
        second[n:, n:] += gain @ v @ gain.T
        total += weights[time] * np.sum(second * np.block([[problem.q, problem.s], [problem.s.T, problem.r]]))
        closed = problem.a - problem.b @ gain @ c
        mean = closed @ mean
        covariance = closed @ covariance @ closed.T + problem.noise + problem.b @ gain @ v @ gain.T @ problem.b.T
    return float(total)


@pytest.mark.parametrize("name", ["none", "exponential", "hyperbolic", "rises"])
@pytest.mark.parametrize("p", [None, 1], ids=["state", "output"])
def test_no_gain_of_a_random_search_is_better_than_the_best_stationary_one(p: int | None, name: str) -> None:
    problem, curve = problem_of(8, p=p), CURVES[name]
    law, rng = best_stationary(problem, curve), np.random.default_rng(0)
    assert law.cost == pytest.approx(cost_of_one_gain(problem, law.gains, curve), rel=1e-10)
    for scale in (1e-3, 1e-2, 0.1, 0.5):
        for _ in range(100):
            other = law.gains + scale * rng.normal(size=law.gains.shape)
            assert cost_of_one_gain(problem, other, curve) > law.cost * (1 - 1e-10)


@pytest.mark.parametrize("p", [None, 1], ids=["state", "output"])
def test_the_best_gain_of_a_scalar_plant_is_that_of_a_grid(p: int | None) -> None:
    problem = problem_of(9, n=1, m=1, p=p)
    if p:
        problem = problem._replace(c=np.eye(1))
    grid = np.linspace(-5, 5, 2001)
    costs = [cost_of_one_gain(problem, np.array([[gain]]), HYPERBOLIC) for gain in grid]
    near = grid[int(np.argmin(costs))]
    best: Any = minimize_scalar(
        lambda gain: cost_of_one_gain(problem, np.array([[gain]]), HYPERBOLIC), (near - 0.01, near, near + 0.01)
    )
    assert best_stationary(problem, HYPERBOLIC).cost == pytest.approx(best.fun, rel=1e-9)


def test_a_mixture_over_an_infinite_horizon_is_that_of_its_weights() -> None:
    problem = problem_of(10, n=2, m=1, radius=0.9)
    rates, shares = np.array([0.5, 0.8, 0.93]), np.array([0.2, 0.5, 0.3])
    infinite = best_stationary_over_rates(problem, rates, shares)
    curve = shares @ rates[:, None] ** np.arange(500)  # 0.93^500 = 2e-16
    assert infinite.cost == pytest.approx(best_stationary(problem, curve).cost, rel=1e-9)
    assert infinite.cost == pytest.approx(cost_of_one_gain(problem, infinite.gain, curve), rel=1e-9)
    one = best_stationary_over_rates(problem, np.array([0.9]), np.ones(1))
    exact = riccati.infinite_horizon(problem, 0.9)
    assert one.cost == pytest.approx(exact.cost, rel=1e-10)
    np.testing.assert_allclose(one.value, exact.value, rtol=1e-5)


def quadratic_least(cost: Callable[[np.ndarray], float], size: int) -> float:
    """The least value of a quadratic function, from its values."""
    units, at_zero = np.eye(size), cost(np.zeros(size))
    up, down = (np.array([cost(sign * unit) for unit in units]) for sign in (1, -1))
    slope = (up - down) / 2
    curvature = np.empty((size, size))
    for i, j in itertools.product(range(size), repeat=2):
        curvature[i, j] = cost(units[i] + units[j]) - up[i] - up[j] + at_zero
    return float(at_zero - slope @ np.linalg.solve(curvature, slope) / 2)


@pytest.mark.parametrize("name", ["none", "hyperbolic"])
def test_with_measurements_no_causal_linear_law_is_better_than_the_precommitted(name: str) -> None:
    """Laws are linear in what would be observed without actions, which is known, and costs are quadratic in them."""
    problem, steps = problem_of(11, n=2, m=1, p=1), 4
    assert problem.c is not None and problem.measurement is not None
    weights = CURVES[name][:steps]
    free, forced = steps_of(problem, steps)
    n = 2
    from_noise = np.zeros((steps * n, steps * n))  # of the first state and of the noise of each step
    for later, earlier in itertools.product(range(steps), repeat=2):
        if later >= earlier:
            block = np.linalg.matrix_power(problem.a, later - earlier)
            from_noise[later * n : (later + 1) * n, earlier * n : (earlier + 1) * n] = block
    np.testing.assert_array_equal(from_noise[:, :n], free)
    covariance = np.asarray(sla.block_diag(problem.spread, *[problem.noise] * (steps - 1)))
    moved = from_noise @ covariance @ from_noise.T  # covariance of all states without actions
    see = np.kron(np.eye(steps), np.asarray(problem.c))
    seen = see @ moved @ see.T + np.kron(np.eye(steps), np.asarray(problem.measurement))
    q, r, s = costs_of(problem, weights)
    causal = np.tril_indices(steps)

    def cost(numbers: np.ndarray) -> float:
        law = np.zeros((steps, steps))
        law[causal] = numbers
        states = moved + forced @ law @ seen @ law.T @ forced.T
        across = forced @ law @ see @ moved
        states = states + across + across.T
        actions = law @ seen @ law.T
        both = moved @ see.T @ law.T + forced @ actions
        return float(np.sum(q * states) + np.sum(r * actions) + 2 * np.sum(s * both))

    best = quadratic_least(cost, len(causal[0]))
    assert riccati.precommitted(problem, weights).cost == pytest.approx(best, rel=1e-8)


def test_with_measurements_the_gains_are_those_of_the_state() -> None:
    problem = problem_of(12, p=2)
    seen = problem._replace(c=None, measurement=None)
    for law in (riccati.precommitted, riccati.sophisticated):
        np.testing.assert_array_equal(law(problem, HYPERBOLIC).gains, law(seen, HYPERBOLIC).gains)
        assert law(problem, HYPERBOLIC).cost > law(seen, HYPERBOLIC).cost
    exact = problem._replace(c=np.eye(3), measurement=np.zeros((3, 3)))
    for law in (riccati.precommitted, riccati.sophisticated, best_stationary):
        assert law(exact, HYPERBOLIC).cost == pytest.approx(law(seen, HYPERBOLIC).cost, rel=1e-9)


def test_reach_is_five_deviations_of_the_largest_action() -> None:
    one = np.ones((1, 1))
    problem = Problem(0.5 * one, one, one, one, 0 * one, 0 * one, np.array([3.0]), 4 * one)
    law = riccati.precommitted(problem, np.ones(2))
    gain = law.gains[0, 0, 0]
    assert law.reach == pytest.approx(gain * (3 + 5 * 2), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: riccati.infinite_horizon(p, 1.0), "discount is 1, under which noise has an infinite cost"),
        (lambda p: riccati.infinite_horizon(p, 1.5), "discount is 1.5; it takes a number from 0 to 1"),
        (
            lambda p: riccati.infinite_horizon(p._replace(a=2 * np.eye(3), b=0 * p.b, s=0 * p.s), 0.9),
            "discount is 0.9, under which no linear law has a finite cost over an infinite horizon",
        ),
        (
            lambda p: best_stationary_over_rates(p, np.array([0.5, 1.0]), np.array([0.5, 0.5])),
            "rates are .*each takes a number from 0 to below 1",
        ),
        (
            lambda p: best_stationary_over_rates(p, np.array([0.5, np.nan]), np.array([0.5, 0.5])),
            "rates are .*each takes a number from 0 to below 1",
        ),
        (lambda p: best_stationary_over_rates(p, np.array([0.5]), np.array([0.5, 0.5])), "weights are .* each rate"),
        (lambda p: best_stationary_over_rates(p, np.array([0.5, 0.9]), np.array([0.5, 0.4])), "with the sum 1"),
        (lambda p: best_stationary_over_rates(p, np.array([0.5, 0.9]), np.array([-0.5, 1.5])), "at least 0"),
        (
            lambda p: best_stationary_over_rates(p._replace(a=2 * np.eye(3), q=0 * p.q, s=0 * p.s), *RATES),
            "problem has states that grow and cost nothing",
        ),
        (
            lambda p: riccati.infinite_horizon(p._replace(c=np.eye(3)[:1], measurement=np.eye(1)), 0.9),
            r"problem has an observation c with the shape \(1, 3\), .* whose state is observed, with c = None",
        ),
        (
            lambda p: best_stationary_over_rates(p._replace(c=np.eye(3)[:1], measurement=np.eye(1)), *RATES),
            "problem has an observation c",
        ),
    ],
)
def test_what_has_no_optimum_over_an_infinite_horizon_is_refused(call: Callable[[Problem], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(problem_of(0))
