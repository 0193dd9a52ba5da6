"""Linear fields: steps equal to the exponential of a matrix in float64, and optima equal to the mean of episodes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sla
from quick_jit import quick_jit

import envs
import jaxrl
from envs import discount_curves
from envs.base import OPTIMUM_KINDS
from envs.control.stationary_gains import best_stationary
from envs.pde import devices, spectral
from envs.pde.convection import ConvectionDiffusionReaction
from envs.pde.linear import circulant
from envs.pde.wave import Wave

HYPERBOLIC = 1 / (1 + 0.1 * np.arange(200))
STEPS, EPISODES = 25, 4096
EPS = float(np.finfo(np.float32).eps)
TASKS: dict[str, Any] = {"convection": ConvectionDiffusionReaction(), "wave": Wave()}


def derivative(n: int, length: float) -> np.ndarray:
    """Derivatives of the waves that n points resolve, by their sines and cosines one after another, `[n, n]`."""
    x = np.arange(n) * length / n
    matrix = np.zeros((n, n))
    for k in range(1, n // 2):
        q = 2 * np.pi * k / length
        for wave, slope in ((np.cos(q * x), -q * np.sin(q * x)), (np.sin(q * x), q * np.cos(q * x))):
            matrix += np.outer(slope, wave) * 2 / n
    return matrix


def without_last(n: int) -> np.ndarray:
    """Projection on the waves that n points resolve."""
    alternating = (-1.0) ** np.arange(n)
    return np.eye(n) - np.outer(alternating, alternating) / n


def exact(env: Any, params: Any) -> tuple[np.ndarray, np.ndarray]:
    """Matrices of a step by the exponential function of SciPy, for the field and the action."""
    n, d = env.num_modes, derivative(env.num_modes, params.length)
    if isinstance(env, Wave):
        zero = np.zeros((n, n))
        a, b = np.block([[zero, np.eye(n)], [params.wave_speed**2 * d @ d, zero]]), np.concatenate([zero, np.eye(n)])
    else:
        a, b = params.reaction * np.eye(n) - params.velocity * d + params.diffusivity * d @ d, np.eye(n)
    b = b @ np.asarray(params.actuators, np.float64)
    held = sla.expm(params.dt * np.block([[a, b], [np.zeros((b.shape[1], len(a) + b.shape[1]))]]))
    inside = np.kron(np.eye(len(a) // n), without_last(n))
    return inside @ held[: len(a), : len(a)], inside @ held[: len(a), len(a) :]


@pytest.mark.parametrize("task", TASKS)
def test_a_step_is_the_exponential_of_the_equation(task: str) -> None:
    env = TASKS[task]
    params = env.default_params.replace(noise=0.0, measurement_noise=0.0, length=1.7, dt=0.3, state_cost=2.0)
    if task == "wave":
        params = params.replace(wave_speed=0.4, speed_cost=0.7)
    a, b = exact(env, params)
    state = env.reset_env(jax.random.key(0), params)[1]
    action = jnp.asarray(np.linspace(-1, 2, 8), jnp.float32)
    obs, after, reward, terminated, _ = env.step_env(jax.random.key(1), state, action, params)
    x, u = np.asarray(state.field, np.float64), np.asarray(action, np.float64)
    expected = (a @ x.reshape(-1) + b @ u).reshape(x.shape)
    # Two transforms and their factors round to some units in the last place of the largest number.
    np.testing.assert_allclose(after.field, expected, rtol=0, atol=32 * EPS * np.max(np.abs(expected)))
    np.testing.assert_allclose(
        obs, (np.asarray(params.sensors) @ np.atleast_2d(expected).T).T.ravel(), rtol=0, atol=1e-5
    )
    squares = np.sum(np.atleast_2d(x) ** 2, axis=1) * 1.7 / env.num_modes
    cost = np.dot([2.0, 0.7][: len(squares)], squares) + 0.1 * np.sum(u**2)
    assert float(reward) == pytest.approx(-cost, rel=1e-5) and not terminated and int(after.time) == 1
    np.testing.assert_array_equal(env.privileged(after, params), after.field)


@pytest.mark.parametrize("task", TASKS)
def test_modes_that_stand_still_are_exact(task: str) -> None:
    """Without diffusion, flow or growth, or at no wave speed, all rates are 0, and a force adds up."""
    still = {"convection": {"diffusivity": 0.0, "velocity": 0.0, "reaction": 0.0}, "wave": {"wave_speed": 0.0}}[task]
    env = TASKS[task]
    params = env.default_params.replace(noise=0.0, **still)
    state = env.reset_env(jax.random.key(0), params)[1]
    after = env.step_env(jax.random.key(1), state, jnp.ones(8), params)[1]
    field, force = np.atleast_2d(np.asarray(state.field, np.float64)), np.asarray(params.actuators) @ np.ones(8)
    if task == "wave":
        expected = np.stack([field[0] + 0.1 * field[1] + 0.005 * force, field[1] + 0.1 * force])
    else:
        expected = field + 0.1 * force
    np.testing.assert_allclose(np.atleast_2d(after.field), expected, rtol=0, atol=1e-5)


def test_waves_keep_their_energy() -> None:
    env = TASKS["wave"]
    params = env.default_params.replace(noise=0.0)
    first = env.reset_env(jax.random.key(3), params)[1]

    def energy(field: Any) -> float:
        (u, v), slope = np.asarray(field, np.float64), derivative(64, 1.0)
        return float(np.mean(v**2 + (0.1 * slope @ u) ** 2) / 2)

    def step(state: Any, _: None) -> Any:
        return env.step_env(jax.random.key(0), state, jnp.zeros(8), params)[1], None

    last = quick_jit(lambda state: jax.lax.scan(step, state, length=300)[0])(first)
    # Each of 300 steps rounds by a few units in the last place.
    assert energy(last.field) == pytest.approx(energy(first.field), rel=300 * 8 * EPS)
    assert np.max(np.abs(np.asarray(last.field - first.field))) > 0.1


@pytest.mark.fast_rows("convection")
@pytest.mark.parametrize("task", TASKS)
def test_noise_and_first_fields_have_their_covariance(task: str) -> None:
    env = TASKS[task]
    params = env.default_params.replace(noise=0.3, measurement_noise=0.5, smoothness=0.04)
    problem, basis = env.problem(params), env.basis(params)
    keys = jax.random.split(jax.random.key(0), 40_000)
    obs, first = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys, params)
    step = jax.jit(jax.vmap(env.step_env, (0, 0, None, None)))
    noisy, quiet = (step(keys, first, jnp.zeros(8), each)[1].field for each in (params, params.replace(noise=0.0)))
    for fields, covariance in ((first.field, problem.spread), (noisy - quiet, problem.noise)):
        rows = np.asarray(fields, np.float64).reshape(len(keys), -1) @ basis
        largest = np.max(np.diag(covariance))
        # Five standard errors of a covariance are 5 sqrt(2 / n) = 3.5 % of the variances.
        np.testing.assert_allclose(np.cov(rows.T), covariance, rtol=0, atol=0.035 * largest)
        np.testing.assert_allclose(rows.mean(0), 0, atol=5 * np.sqrt(largest / len(keys)))
    errors = np.asarray(obs) - np.asarray(first.field).reshape(len(keys), -1) @ np.kron(
        np.eye(len(env.costs(params))), np.asarray(params.sensors).T
    )
    np.testing.assert_allclose(np.cov(errors.T), 0.25 * np.eye(errors.shape[1]), rtol=0, atol=0.035 * 0.25)


def filtered(env: Any, params: Any) -> np.ndarray:
    """Gains of the Kalman filter `[T, r, p]`, in the textbook's form."""
    problem, kalman, ahead = env.problem(params), [], env.problem(params).spread
    assert problem.c is not None
    for _ in range(STEPS):
        seen = problem.c @ ahead @ problem.c.T + problem.measurement
        kalman.append(np.linalg.solve(seen, problem.c @ ahead).T)
        ahead = problem.a @ (ahead - kalman[-1] @ problem.c @ ahead) @ problem.a.T + problem.noise
    return np.array(kalman)


def returns(env: Any, params: Any, kind: Any, discount: Any) -> np.ndarray:
    """Discounted returns of episodes under the law of this kind."""
    problem, law = env.problem(params), env.law(params, discount, kind)
    gains = np.broadcast_to(law.gains, (STEPS, *law.gains.shape[-2:]))
    numbers = (filtered(env, params), gains, problem.a, problem.b, problem.c)
    kalman, gains, a, b, c = (jnp.asarray(each, jnp.float32) for each in numbers)
    curve = jnp.asarray(discount_curves.of(discount, STEPS), jnp.float32)

    def step(carry: Any, each: Any) -> Any:
        obs, state, mean = carry
        key, weight, gain, filtering = each
        mean = mean + filtering @ (obs - c @ mean)
        action = -gain @ (obs if kind == "stationary" else mean)
        obs, state, reward, *_ = env.step_env(key, state, action, params)
        return (obs, state, a @ mean + b @ action), weight * reward

    def episode(key: Any) -> Any:
        keys = jax.random.split(key, STEPS + 1)
        carry = (*env.reset_env(keys[0], params), jnp.zeros(len(a)))
        return jnp.sum(jax.lax.scan(step, carry, (keys[1:], curve, gains, kalman))[1])

    return np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(2), EPISODES)), np.float64)


@pytest.mark.fast_rows(
    "exponential-precommitted-convection", "hyperbolic-sophisticated-wave", "hyperbolic-stationary-convection"
)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", OPTIMUM_KINDS)
@pytest.mark.parametrize("discount", [0.95, HYPERBOLIC], ids=["exponential", "hyperbolic"])
def test_the_optimum_is_the_mean_return_of_its_law(task: str, kind: Any, discount: Any) -> None:
    env = TASKS[task]
    params = env.default_params.replace(max_steps_in_episode=STEPS)
    values = returns(env, params, kind, discount)
    error = np.std(values) / np.sqrt(EPISODES)
    assert abs(np.mean(values) - env.optimum(params, discount, kind)) < 4 * error
    assert error < 0.02 * abs(np.mean(values))


@pytest.mark.parametrize("task", TASKS)
def test_the_optimum_is_that_of_all_points(task: str) -> None:
    """With a first field of all waves, none of which is left out, in the coordinates of the grid."""
    small = dataclasses.replace(TASKS[task], num_modes=16, num_sensors=3, num_actuators=2)
    params = small.default_params.replace(smoothness=0.1, max_steps_in_episode=12, max_action=100.0)
    a, b = exact(small, params)
    n, rows = 16, len(a) // 16
    distances = np.arange(n)[:, None] - np.arange(n)
    spectrum = [np.exp(-((2 * np.pi * k * 0.1) ** 2)) for k in range(n // 2)]
    smooth = sum((2 - (k == 0)) * s * np.cos(2 * np.pi * k * distances / n) for k, s in enumerate(spectrum))
    smooth = np.asarray(smooth) / np.asarray(smooth)[0, 0]
    scales = {"convection": ([1.0], [0.05]), "wave": ([1.0, 0.1], [0.0, 0.02])}[task]
    spread, noise = (np.kron(np.diag(np.square(each)), smooth) for each in scales)
    q = np.kron(np.diag([1.0, 0.0][:rows]), np.eye(n) / n)
    c = np.kron(np.eye(rows), np.asarray(params.sensors, np.float64))
    weights = 0.9 ** np.arange(12)
    value, gains = np.zeros_like(a), []
    for weight in weights[::-1]:
        gains.append(np.linalg.solve(weight * 0.1 * np.eye(2) + b.T @ value @ b, b.T @ value @ a))
        value = weight * q + a.T @ value @ (a - b @ gains[-1])
    cost, ahead, estimate = 0.0, spread, np.zeros_like(a)
    for weight, gain in zip(weights, gains[::-1], strict=True):
        change = ahead @ c.T @ np.linalg.solve(c @ ahead @ c.T + 0.01 * np.eye(len(c)), c @ ahead)
        estimate, left = estimate + change, ahead - change
        cost += weight * (np.sum((q + gain.T @ gain * 0.1) * estimate) + np.sum(q * left))
        estimate = (a - b @ gain) @ estimate @ (a - b @ gain).T
        ahead = a @ left @ a.T + noise
    assert small.optimum(params, 0.9) == pytest.approx(-cost, rel=1e-6)  # actuators and sensors are float32


@pytest.mark.parametrize("task", TASKS)
def test_the_optimum_does_not_depend_on_the_number_of_modes(task: str) -> None:
    """Shapes, fields and costs converge with the modes; those of the defaults lack 1e-7 of them, in float32."""
    coarse, fine = (dataclasses.replace(TASKS[task], num_modes=n) for n in (64, 256))
    assert fine.optimum(discount=0.95) == pytest.approx(coarse.optimum(discount=0.95), rel=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_bounds_leave_room_for_the_optimum_unless_they_are_tight(task: str) -> None:
    env = TASKS[task]
    params = env.default_params.replace(max_steps_in_episode=STEPS)
    for discount in (None, 0.9, HYPERBOLIC):
        best, later = (env.optimum(params, discount, kind) for kind in ("precommitted", "sophisticated"))
        assert best is not None and later is not None and later <= best + 1e-9 * abs(best)
    assert env.optimum(params.replace(max_action=0.5)) is None
    more = env.optimum(params.replace(state_cost=4.0, control_cost=0.4))
    assert more == pytest.approx(4 * env.optimum(params), rel=1e-6)
    with pytest.raises(ValueError, match="kind must be one of"):
        env.law(params, kind="best")


def test_the_stationary_optimum_is_that_of_many_starts() -> None:
    env: Any = ConvectionDiffusionReaction(num_modes=16, num_sensors=2, num_actuators=1)
    params = env.default_params.replace(max_steps_in_episode=8)
    many = best_stationary(env.problem(params), 0.9 ** np.arange(8), starts=20)
    assert many.gains.shape == (1, 2)
    assert env.optimum(params, 0.9, "stationary") == pytest.approx(-many.cost, rel=1e-7)
    assert many.cost > -env.optimum(params, 0.9)


def test_circulant_matrices_multiply_modes() -> None:
    n, length = 16, 2.5
    waves = 2 * np.pi * np.arange(n // 2 + 1) / length
    np.testing.assert_allclose(circulant(1j * waves, n), derivative(n, length), rtol=0, atol=1e-12)
    np.testing.assert_allclose(circulant(np.ones(n // 2 + 1), n), without_last(n), rtol=0, atol=1e-12)


def changed(kind: Callable[..., Any] = ConvectionDiffusionReaction, **values: Any) -> Callable[[], None]:
    def check() -> None:
        env = kind()
        env.check_params(env.default_params.replace(**values))

    return check


UNSEEN = np.float32(np.cos(2 * np.pi * np.arange(64) / 64)[:, None] * np.ones(8))  # moves one wave, not the mean

CENTRED = devices.actuators(devices.evenly(8), 64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (changed(control_cost=0.0), r"env\.control_cost must be above 0 and finite, got 0\.0"),
        (changed(state_cost=-1.0), r"env\.state_cost must be at least 0 and finite, got -1\.0"),
        (changed(diffusivity=-0.1), r"env\.diffusivity must be at least 0 and finite, got -0\.1"),
        (changed(noise=np.array([0.1, -0.1])), r"env\.noise must be at least 0 and finite, got -0\.1"),
        (changed(dt=float("nan")), r"env\.dt must be above 0 and finite, got nan"),
        (changed(sensors=np.zeros((3, 64))), r"env\.sensors must have the shape \(10, 64\), got \(3, 64\)"),
        (changed(actuators=np.full((64, 8), np.inf)), r"env\.actuators must be finite, got inf"),
        (changed(actuators=UNSEEN), r"env\.actuators must reach all waves that grow, got none .* by 1\.01$"),
        # The sines of four periods are 0 at eight even places, and without a flow they stay sines.
        (changed(velocity=0.0, diffusivity=0.0001, actuators=CENTRED), r"must reach all waves .* by 1\.004"),
        (changed(reaction=np.array([0.1, 9.0])), r"before fields grow by exp\(40\), got a growth by exp\(90\)"),
        (changed(reaction=np.ones(2), noise=np.ones(3)), "as many settings of each parameter, got 2 and 3"),
        (changed(Wave, wave_speed=-1.0), r"env\.wave_speed must be at least 0 and finite, got -1\.0"),
        (changed(Wave, max_action=0.0), r"env\.max_action must be above 0"),
        (lambda: Wave(num_modes=63), "num_modes must be even, got 63"),
        (lambda: Wave(num_modes=4), "num_modes must be a whole number from 8 to 4096, got 4"),
        (lambda: Wave(num_sensors=0), "num_sensors must be a whole number of at least 1, got 0"),
        (lambda: Wave().optimum(discount=1 - np.arange(100.0)), "must be finite and not negative, got -1 at t = 2"),
        (
            lambda: Wave().optimum(dataclasses.replace(Wave().default_params, wave_speed=-1.0)),
            r"env\.wave_speed must be at least 0",
        ),
        (lambda: devices.sensors([0.1, np.nan], 64), "places take finite numbers along one axis"),
        (lambda: devices.actuators([0.1], 64, width=0.0), r"width must lie in \(0\.0, inf\), got 0\.0"),
    ],
)
def test_bad_parameters_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_settings_and_fields_without_growth_are_accepted() -> None:
    changed(reaction=np.array([-0.1, 0.1]), sensors=np.zeros((2, 10, 64)))()
    changed(actuators=UNSEEN, reaction=-0.1)()
    changed(Wave, actuators=UNSEEN)()
    changed(velocity=0.1, diffusivity=0.0001, actuators=CENTRED)()


def test_shapes_of_devices_are_smooth_around_their_places() -> None:
    places = devices.evenly(4, 0.5)
    np.testing.assert_allclose(places, [0.125, 0.375, 0.625, 0.875])
    forces, weights = devices.actuators(places, 64), devices.sensors(places, 64)
    assert np.argmax(forces, axis=0).tolist() == [8, 24, 40, 56] and np.max(forces) == 1
    np.testing.assert_allclose(forces[8 + 4, 0], np.exp(-((4 / 64 / 0.06) ** 2) / 2), rtol=0.03)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    narrow = devices.sensors([0.126], 64, width=1e-4)
    np.testing.assert_array_equal(narrow[0], np.arange(64) == 8)
    # The same forces at the same points, whatever the number of the others.
    np.testing.assert_allclose(devices.actuators([0.1], 128)[::2], devices.actuators([0.1], 64), rtol=1e-12)


def test_random_modes_have_variance_one_at_any_smoothness() -> None:
    keys = jax.random.split(jax.random.key(0), 20_000)
    for smoothness in (0.0, 0.03, 1.0):
        draw = jax.vmap(lambda key, s=smoothness: spectral.to_field(spectral.random_modes(key, 16, s)))
        fields = np.asarray(jax.jit(draw)(keys), np.float64)
        assert np.max(np.abs(np.var(fields, axis=0) - 1)) < 5 * np.sqrt(2 / 20_000)


@pytest.mark.parametrize("name", [name for name in envs.names() if name.startswith("pde/")])
def test_names_and_pictures(name: str) -> None:
    from envs.rendering.scenes import Scene

    env: Any = envs.make(name)
    assert env.name == name
    scene = Scene(env, env.default_params)
    state = env.reset_env(jax.random.key(0), env.default_params)[1]
    flat, high = (scene.frame(state.replace(field=jnp.full_like(state.field, value))) for value in (0.0, 1.0))
    rows = [np.flatnonzero(((image[..., 2] > 150) & (image[..., 0] < 60)).any(axis=1)) for image in (flat, high)]
    assert rows[1].mean() < rows[0].mean() - 5  # a higher field is drawn higher


@pytest.mark.fast_rows("wave")
@pytest.mark.parametrize("task", TASKS)
def test_parameters_can_be_drawn_in_every_episode(task: str) -> None:
    env: Any = envs.wrappers.randomise(TASKS[task], {"dt": jaxrl.Uniform(0.05, 0.15), "noise": jaxrl.Uniform(0.0, 0.1)})
    params = env.default_params
    obs, state = jax.jit(env.reset_env)(jax.random.key(0), params)
    after = jax.jit(env.step_env)(jax.random.key(1), state, jnp.zeros(8), params)[0]
    assert bool(jnp.all(jnp.isfinite(after))) and obs.shape == after.shape
