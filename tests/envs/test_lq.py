"""Linear-quadratic tasks: steps in float64, the optimum as a mean of episodes, parameters that are refused."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs import discount_curves
from envs.base import OPTIMUM_KINDS
from envs.control.lq import LinearQuadratic
from envs.control.lq_plants import PLANTS, Plant, zero_order_hold
from envs.control.riccati import Problem, infinite_horizon, precommitted
from envs.registry import ROWS

HYPERBOLIC = 1 / (1 + 0.1 * np.arange(200))
STEPS, EPISODES = 25, 8192
ONE = np.eye(1)


def test_every_plant_is_registered() -> None:
    assert [name for name in ROWS if name.startswith("lq/")] == [f"lq/{plant}" for plant in PLANTS]
    for plant in PLANTS:
        assert envs.make(f"lq/{plant}") == LinearQuadratic(plant) and LinearQuadratic(plant).name == f"lq/{plant}"


def test_a_step_in_float64() -> None:
    """With each factor of a normal number changed on its own, so that no term can be missed."""
    env: Any = LinearQuadratic("lqg-double-integrator")
    key = jax.random.key(1)
    params = env.default_params.replace(S=np.array([[0.05], [0.02]]), noise=np.diag([0.3, 0.1]))
    obs, state = env.reset_env(jax.random.key(0), params)
    u = jnp.array([0.7])
    after, later, reward, terminated, _ = env.step_env(key, state, u, params)
    x, v = np.asarray(state.x, np.float64), np.asarray(u, np.float64)
    full = {name: np.asarray(value, np.float64) for name, value in vars(params).items()}
    cost = x @ full["Q"] @ x + v @ full["R"] @ v + 2 * x @ full["S"] @ v
    assert float(reward) == pytest.approx(-cost, rel=1e-5) and not terminated and int(later.time) == 1
    quiet = params.replace(noise=np.zeros((2, 2)), measurement_noise=np.zeros((1, 1)))
    seen, still, *_ = env.step_env(key, state, u, quiet)
    np.testing.assert_allclose(still.x, full["A"] @ x + full["B"] @ v, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen, full["C"] @ still.x, rtol=1e-6)
    drawn = np.linalg.solve(full["noise"], np.asarray(later.x - still.x, np.float64))
    twice = env.step_env(key, state, u, params.replace(noise=2 * params.noise))[1]
    np.testing.assert_allclose(twice.x - still.x, 2 * full["noise"] @ drawn, rtol=1e-4, atol=1e-5)
    assert float(jnp.abs(after - full["C"] @ later.x)[0]) > 1e-4 and obs.shape == (1,)


def test_actions_are_clipped_to_their_bounds() -> None:
    env: Any = LinearQuadratic("scalar")
    params = env.default_params.replace(max_action=0.5)
    state = env.reset_env(jax.random.key(0), params)[1]
    beyond, within = (env.step_env(jax.random.key(1), state, jnp.array([u]), params) for u in (-3.0, -0.5))
    jax.tree.map(np.testing.assert_array_equal, beyond, within)


def test_noise_has_the_covariance_of_its_factor() -> None:
    factor = np.array([[0.3, 0.1], [0.0, 0.2]])
    env: Any = LinearQuadratic("lqg-double-integrator")
    params = env.default_params.replace(
        noise=factor, initial_spread=2 * factor, initial_mean=np.array([1.0, -2.0]), measurement_noise=np.eye(1)
    )
    keys = jax.random.split(jax.random.key(0), 100_000)
    obs, first = jax.vmap(env.reset_env, (0, None))(keys, params)
    second = jax.vmap(env.step_env, (0, 0, None, None))(keys, first, jnp.zeros(1), params)[1].x
    moved = second - first.x @ params.A.T
    # Five standard errors of a covariance of normal numbers are 5 sqrt(2 / n) = 2.2 % of their variances.
    for values, root in ((first.x, 2 * factor), (moved, factor)):
        np.testing.assert_allclose(np.cov(np.asarray(values).T), root @ root.T, atol=0.023 * np.max(root @ root.T))
    np.testing.assert_allclose(first.x.mean(0), [1, -2], atol=5 * 0.7 / np.sqrt(1e5))
    assert np.var(np.asarray(obs[:, 0] - first.x[:, 0])) == pytest.approx(1, rel=0.023)


def returns(env: Any, params: Any, kind: str, discount: Any) -> np.ndarray:
    """Discounted returns of episodes under the law of this kind, with a Kalman filter in JAX where it needs one."""
    law = env.law(params, discount, kind)
    curve = jnp.asarray(discount_curves.of(discount, STEPS))
    gains = jnp.asarray(np.broadcast_to(law.gains, (STEPS, *law.gains.shape[-2:])))
    filters = params.C is not None and kind != "stationary"
    spread, noise = (jnp.asarray(f @ f.T) for f in (params.initial_spread, params.noise))
    c = jnp.eye(len(params.A)) if params.C is None else jnp.asarray(params.C)
    v = jnp.zeros((len(c), len(c))) if params.C is None else jnp.asarray(params.measurement_noise) ** 2

    def update(mean: Any, covariance: Any, obs: Any) -> tuple[Any, Any]:
        kalman = jnp.linalg.solve(c @ covariance @ c.T + v, c @ covariance).T
        return mean + kalman @ (obs - c @ mean), covariance - kalman @ c @ covariance

    def step(carry: Any, each: Any) -> Any:
        obs, state, mean, covariance = carry
        key, weight, gain = each
        if filters:
            mean, covariance = update(mean, covariance, obs)
        u = -gain @ (mean if filters else obs)
        obs, state, reward, *_ = env.step_env(key, state, u, params)
        mean, covariance = params.A @ mean + params.B @ u, params.A @ covariance @ params.A.T + noise
        return (obs, state, mean, covariance), weight * reward

    def episode(key: Any) -> Any:
        keys = jax.random.split(key, STEPS + 1)
        obs, state = env.reset_env(keys[0], params)
        carry = obs, state, jnp.asarray(params.initial_mean), spread
        return jnp.sum(jax.lax.scan(step, carry, (keys[1:], curve, gains))[1])

    return np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(2), EPISODES)), np.float64)


@pytest.mark.fast_rows("scalar", "hyperbolic-precommitted-lqg")
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("kind", OPTIMUM_KINDS)
@pytest.mark.parametrize("discount", [0.95, HYPERBOLIC], ids=["exponential", "hyperbolic"])
def test_the_optimum_is_the_mean_return_of_its_law(plant: str, kind: Any, discount: Any) -> None:
    env: Any = LinearQuadratic(plant)
    params = env.default_params.replace(max_steps_in_episode=STEPS)
    values = returns(env, params, kind, discount)
    error = np.std(values) / np.sqrt(EPISODES)
    assert abs(np.mean(values) - env.optimum(params, discount, kind)) < 4 * error  # pyright: ignore
    assert error < 0.02 * abs(np.mean(values))


@pytest.mark.slow_rows("chain-of-masses")
@pytest.mark.parametrize("plant", PLANTS)
def test_bounds_of_actions_leave_room_for_every_optimum(plant: str) -> None:
    env: Any = LinearQuadratic(plant)
    for discount in (None, 0.99, 0.9, HYPERBOLIC):
        best, stationary, sophisticated = (env.optimum(None, discount, kind) for kind in OPTIMUM_KINDS)
        assert best is not None and stationary is not None and sophisticated is not None
        assert stationary <= best and sophisticated <= best + 1e-9 * abs(best)
    tight = env.default_params.replace(max_action=0.1)
    assert [env.optimum(tight, 0.9, kind) for kind in ("precommitted", "sophisticated")] == [None, None]


def test_the_kinds_differ_under_a_hyperbolic_discount() -> None:
    env: Any = envs.make("lq/double-integrator")
    steep = [env.optimum(discount=jaxrl.Hyperbolic(k=0.3), kind=kind) for kind in OPTIMUM_KINDS]
    assert steep[0] > steep[1] > steep[2]
    exponential = [env.optimum(discount=0.9, kind=kind) for kind in OPTIMUM_KINDS]
    assert exponential[0] == pytest.approx(exponential[2], rel=1e-9) and exponential[0] > exponential[1]


def test_the_optimum_follows_the_parameters() -> None:
    env: Any = LinearQuadratic("scalar")
    params = env.default_params.replace(max_steps_in_episode=1, initial_spread=np.array([[0.0]]))
    # One step from x = 2 with Q = 1, R = 1 / 2, S = 1 / 5: x^2 (1 - 0.04 / 0.5).
    assert env.optimum(params) == pytest.approx(-4 * 0.92, rel=1e-6)
    assert env.optimum(params.replace(Q=np.array([[2.0]]))) == pytest.approx(-4 * 1.92, rel=1e-6)
    assert env.optimum(discount=jaxrl.Hyperbolic(k=0.1)) == pytest.approx(env.optimum(discount=HYPERBOLIC), rel=1e-6)


def plant_of_squares(cross: float, **values: Any) -> Plant:
    """x' = 2 x + u with the cost (c x + u)^2, whose optimum is 0 by u = -c x."""
    costs = [[cross**2]], [[1.0]], [[cross]]
    return Plant("squares", [[2.0]], [[1.0]], *costs, noise=[[0.09]], max_action=1e9, **values)


@pytest.mark.parametrize("cross", [0.3, 0.7], ids=["below-0", "above-0"])
def test_costs_that_cancel_up_to_rounding_have_an_optimum_of_0(cross: float) -> None:
    """In float32, Q - S^2 / R is -3.6e-9 and 2.6e-8."""
    env: Any = LinearQuadratic(plant_of_squares(cross, num_steps=12))
    assert env.optimum(discount=0.9) == pytest.approx(0, abs=1e-5)
    infinite = infinite_horizon(env.problem(), 0.9)
    assert abs(infinite.cost) < 1e-12 and infinite.gain[0, 0] == pytest.approx(cross, rel=1e-6)
    assert np.linalg.eigvalsh(env.problem().q - env.problem().s @ env.problem().s.T / env.problem().r)[0] > -1e-16


def test_a_small_cost_of_a_state_that_grows_counts() -> None:
    """The value of a state that costs almost nothing and grows as a = 2, with r = 1, is (g a^2 - 1) / g at g = 0.9."""
    for little in (5e-7, 1e-8):
        plant = Plant("little", np.diag([0.5, 2.0]), np.eye(2), np.diag([1.0, little]), np.eye(2))
        infinite = infinite_horizon(LinearQuadratic(plant).problem(), 0.9)
        assert infinite.value[1, 1] == pytest.approx(2.6 / 0.9, rel=1e-6)
        assert infinite.gain[1, 1] == pytest.approx(2.6 / 1.8, rel=1e-6)


def test_rounding_moves_no_cost_by_more_than_itself() -> None:
    """The eigenvalue -1e-7 of Q is accepted as rounding."""
    q = np.array([[1.0, 3e-4], [3e-4, -1e-8]])
    problem = LinearQuadratic(Plant("rounded", 0.5 * np.eye(2), np.eye(2), q, np.eye(2))).problem()
    np.testing.assert_allclose(problem.q, q, atol=1.1e-7)
    assert np.linalg.eigvalsh(problem.q)[0] > -1e-16


def test_rounding_that_grows_beyond_float64_is_refused() -> None:
    """A cost of -1e-8 x^2 stands for what rounding leaves."""
    one, zero = np.eye(2), np.zeros((2, 2))
    problem = Problem(2 * one, one, (0.09 - 1e-8) * one, one, 0.3 * one, zero, np.zeros(2), one)
    with pytest.raises(ValueError, match=r"problem has states that grow and cost nothing, .* it takes fewer steps"):
        precommitted(problem, np.ones(40))


@pytest.mark.parametrize("plant", ["he1", "ac1"])
def test_the_plants_of_compleib_are_held_for_a_tenth_of_a_second(plant: str) -> None:
    """A series of the exponential function, by which A dx/dt = a x + b u is solved."""
    made, sizes = PLANTS[plant](), {"he1": (4, 2), "ac1": (5, 3)}[plant]
    assert np.shape(made.B) == sizes
    a = np.array([[0.1, -0.3], [0.7, 0.2]])
    b, dt = np.array([[1.0], [-0.5]]), 0.1
    terms = [dt**k * np.linalg.matrix_power(a, k) / float(np.prod(np.arange(1, k + 1))) for k in range(12)]
    held = [dt * term / (k + 1) for k, term in enumerate(terms)]
    discrete = zero_order_hold(a, b, dt)
    np.testing.assert_allclose(discrete[0], sum(terms), rtol=1e-12)
    np.testing.assert_allclose(discrete[1], sum(held) @ b, rtol=1e-12)


def test_plants_of_ones_own_have_any_size() -> None:
    plant = Plant("pair", 0.5 * np.eye(2), np.ones((2, 3)), np.eye(2), np.eye(3), num_steps=7)
    assert plant == Plant("pair", 0.5 * np.eye(2), np.ones((2, 3)), np.eye(2), np.eye(3), num_steps=7)
    env: Any = LinearQuadratic(plant)
    assert env.name == "lq/pair" and env == LinearQuadratic(plant) and env.num_actions == 3
    assert env.default_params.max_steps_in_episode == 7 and env.optimum() is not None
    assert hash(env) == hash(LinearQuadratic(dataclasses.replace(plant)))


def changed(**values: Any) -> Callable[[], None]:
    def check() -> None:
        env: Any = LinearQuadratic("double-integrator")
        env.check_params(env.default_params.replace(**values))

    return check


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (changed(R=np.array([[0.0]])), "env.R must be positive definite, got a matrix with the eigenvalue 0"),
        (changed(R=-np.eye(1)), "env.R must be positive definite"),
        (changed(Q=-np.eye(2)), r"env.Q must be such that no cost is negative: .* has the eigenvalue -1"),
        (changed(Q=np.diag([1.0, -9e-7])), "env.Q must be such that no cost is negative: .* has the eigenvalue -9e-07"),
        (changed(Q=np.diag([1e-3, -1e-7])), "env.Q must be such that no cost is negative"),
        (changed(S=np.ones((2, 1))), "env.Q must be such that no cost is negative"),
        (changed(Q=np.array([[1.0, 0.5], [0.0, 1.0]])), "env.Q must be symmetric"),
        (changed(A=np.full((2, 2), np.nan)), r"env.A must be finite, got \[\[nan, nan\]"),
        (changed(A=np.eye(3)), r"A has the shape \(3, 3\); it takes \(2, 2\), to match B and C"),
        (changed(B=np.ones(2)), r"has the shape"),
        (changed(C=np.ones((1, 2))), "measurement_noise takes a matrix where C is one, and None where C is None"),
        (
            changed(A=np.diag([1.1, 0.5]), B=np.array([[0.0], [1.0]])),
            "env.A must be stabilised by a gain, .* 1.1 that B",
        ),
        (changed(Q=None), "Q takes a matrix of the plant, got None; the sizes of all follow from B"),
        (changed(B=None), "B takes a matrix of the plant, got None"),
        (changed(initial_mean=np.array([0.0, np.inf])), r"env.initial_mean must be finite, got \[0.0, inf\]"),
        (changed(R=np.ones((3, 1, 1)), max_action=np.ones(2)), "as many settings of each parameter, got 2 and 3"),
        (lambda: Plant("x", np.eye(2), None, np.eye(2), np.eye(1)), "B takes a matrix of the plant, got None"),
        (lambda: Plant("x", *np.ones((4, 1, 1)), max_action=-1), "max_action must be above 0 and finite, got -1"),
        (lambda: Plant("x", ONE, ONE, ONE, ONE, num_steps=0), "num_steps must be a whole number of at least 1, got 0"),
        (
            lambda: LinearQuadratic("scalar").optimum(discount=np.where(np.arange(100) == 3, -0.5, 1.0)),
            "discount must be finite and not negative, got -0.5 at t = 3",
        ),
        (lambda: LinearQuadratic(Plant("x", ONE, ONE, ONE, -ONE)).optimum(), "env.R must be positive definite"),
        (lambda: LinearQuadratic(Plant("x", ONE, ONE, ONE, -ONE)).law(), "env.R must be positive definite"),
        (lambda: LinearQuadratic(Plant("x", ONE, ONE, ONE, -ONE)).problem(), "env.R must be positive definite"),
        (changed(max_action=0.0), "env.max_action must be above 0 and finite, got 0.0"),
        (changed(R=np.array([[[1.0]], [[-1.0]]])), "env.R must be positive definite"),
        (lambda: LinearQuadratic("skalar"), "plant is 'skalar'.*scalar"),
        (lambda: LinearQuadratic(3), "plant takes a name or an envs.control.lq_plants.Plant, got 3"),
        (lambda: Plant("x", np.eye(2), np.ones((3, 1)), np.eye(2), np.eye(1)), r"A has the shape \(2, 2\); it takes"),
    ],
)
def test_bad_plants_and_parameters_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_several_settings_are_accepted() -> None:
    changed(R=np.array([[[1.0]], [[2.0]]]), max_action=np.array([1.0, 2.0]))()


def test_the_picture_shows_each_number_of_the_state() -> None:
    from envs.rendering.scenes import Scene

    env: Any = LinearQuadratic("double-integrator")
    scene = Scene(env, env.default_params)
    state = env.reset_env(jax.random.key(0), env.default_params)[1]
    images = [scene.frame(state.replace(x=jnp.array(x))) for x in ([0.0, 0.0], [2.0, 0.0], [0.0, 2.0])]
    blue = [(image[..., 2] > 150) & (image[..., 0] < 60) for image in images]
    rows = [np.flatnonzero(each.any(axis=1)) for each in blue]
    assert not len(rows[0]) and rows[1].max() < rows[2].min()  # the first number is drawn above the second
