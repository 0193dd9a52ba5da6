"""Nonlinear fields: a slow solver in float64, the order in time and space, what is conserved, and blowing up."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit
from scipy.integrate import solve_ivp

import envs
from envs.pde import devices, spectral
from envs.pde.burgers import Burgers
from envs.pde.kuramoto_sivashinsky import KuramotoSivashinsky

EPS = float(np.finfo(np.float32).eps)
TASKS: dict[str, Any] = {"burgers": Burgers(), "kuramoto-sivashinsky": KuramotoSivashinsky()}
ACTION = np.linspace(-1, 1, 8)


def first_field(n: int) -> np.ndarray:
    angles = 2 * np.pi * np.arange(n) / n
    return 0.8 * np.sin(angles) + 0.3 * np.cos(2 * angles + 1) + 0.2


def solved(task: str, n: int, params: Any, steps: int) -> np.ndarray:
    """The field at n points by an adaptive solver of the sums of modes, without transforms and exponentials."""
    most = (n - 1) // 3
    k = 2 * np.pi * np.arange(most + 1) / params.length
    rates = -params.viscosity * k**2 if task == "burgers" else k**2 - params.viscosity * k**4
    points = np.exp(-2j * np.pi * np.outer(np.arange(most + 1), np.arange(n)) / n) / n
    pushed = points @ (devices.actuators(devices.evenly(8, 0.5), n) @ ACTION)

    def slope(_: float, numbers: np.ndarray) -> np.ndarray:
        v = numbers[: most + 1] + 1j * numbers[most + 1 :]
        both = np.concatenate([np.conj(v[:0:-1]), v])  # from -most to most
        square = np.convolve(both, both)[2 * most : 3 * most + 1]
        change = rates * v - 0.5j * k * square + pushed
        return np.concatenate([change.real, change.imag])

    v = points @ first_field(n)
    method: Any = "DOP853" if task == "burgers" else "Radau"
    end = solve_ivp(slope, (0, steps * params.dt), [*v.real, *v.imag], method=method, rtol=1e-10, atol=1e-10).y[:, -1]
    v = end[: most + 1] + 1j * end[most + 1 :]
    return np.real(2 * np.conj(points.T) @ v * n - v[0])


def stepped(task: str, n: int, substeps: int, steps: int, params: Any, force: bool = True) -> np.ndarray:
    """The field at n points by the steps of the task in float64."""
    env = dataclasses.replace(TASKS[task], num_modes=n, substeps=substeps)
    with jax.enable_x64(True):
        forces = jnp.asarray(devices.actuators(devices.evenly(8, 0.5), n) @ ACTION * force)
        move = quick_jit(lambda modes: env.moved(modes, forces, params))
        modes = jnp.fft.rfft(jnp.asarray(first_field(n)))
        for _ in range(steps):
            modes = move(modes)
        assert modes.dtype == jnp.complex128
        return np.fft.irfft(np.asarray(modes))


@pytest.mark.parametrize("n", [4, 6, 64, 512])
def test_sums_of_waves_are_fourier_transforms(n: int) -> None:
    """Sums of n numbers of size 1 in float64 round by less than n times 2^-52; modes are such sums."""
    rng = np.random.default_rng(0)
    field, parts = rng.normal(size=(3, n)), rng.normal(size=(2, 3, n // 2 + 1))
    modes = n * (
        parts[0] + 1j * parts[1]
    )  # also with imaginary parts of the first and the last mode, which have no effect
    with jax.enable_x64(True):
        np.testing.assert_allclose(spectral.to_modes(jnp.asarray(field)), np.fft.rfft(field), atol=n * 1e-14)
        np.testing.assert_allclose(spectral.to_field(jnp.asarray(modes)), np.fft.irfft(modes), atol=n * 1e-14)
    assert spectral.to_modes(jnp.zeros((3, n))).dtype == jnp.complex64


@pytest.mark.parametrize("task", TASKS)
def test_steps_are_those_of_a_slow_solver(task: str) -> None:
    params = TASKS[task].default_params
    expected = solved(task, 64, params, steps=4)
    assert np.max(np.abs(expected - first_field(64))) > 0.1
    np.testing.assert_allclose(stepped(task, 64, 160, 4, params), expected, rtol=0, atol=2e-9)


@pytest.mark.parametrize("task", TASKS)
def test_steps_are_of_fourth_order_in_time(task: str) -> None:
    """Of about third order in longer steps, whose shortest waves are stiff."""
    params = TASKS[task].default_params
    fine = stepped(task, 64, 640, 4, params)
    errors = [np.max(np.abs(stepped(task, 64, substeps, 4, params) - fine)) for substeps in (10, 20, 80, 160)]
    assert np.log2(errors[0] / errors[1]) > 2.9
    # An error of order 4 with one of order 5 behind it: 3.8 to 4.1 as the steps become short.
    assert 3.7 < np.log2(errors[2] / errors[3]) < 4.2 and errors[1] < 1e-5


@pytest.mark.parametrize(("task", "bound"), [("burgers", 3e-6), ("kuramoto-sivashinsky", 4e-5)])
def test_four_steps_at_the_defaults_have_the_errors_that_the_page_states(task: str, bound: float) -> None:
    env, params = TASKS[task], TASKS[task].default_params
    fine = stepped(task, env.num_modes, 640, 4, params)
    assert np.max(np.abs(stepped(task, env.num_modes, env.substeps, 4, params) - fine)) < bound


def test_an_end_after_the_limit_costs_no_steps_that_are_left() -> None:
    env = TASKS["burgers"]
    params = env.default_params.replace(max_steps_in_episode=50, max_field=0.01)
    state = env.reset_env(jax.random.key(0), params)[1].replace(time=jnp.int32(60))
    _, _, reward, terminated, _ = env.step_env(jax.random.key(1), state, jnp.ones(8), params)
    assert terminated and reward < 0


@pytest.mark.parametrize("task", TASKS)
def test_more_modes_converge_faster_than_any_power(task: str) -> None:
    params = TASKS[task].default_params
    steps, sizes = (8, (32, 64, 128)) if task == "burgers" else (4, (16, 32, 64))
    fine = stepped(task, 512, 80, steps, params)
    errors = [np.max(np.abs(stepped(task, n, 80, steps, params) - fine[:: 512 // n])) for n in sizes]
    orders = np.log2(errors[:-1]) - np.log2(errors[1:])
    assert orders[0] > 4 and orders[1] > orders[0] + 3 and errors[-1] < 1e-5


@pytest.mark.parametrize("task", TASKS)
def test_the_mean_stays_without_forces(task: str) -> None:
    """To the rounding of a transform and its inverse in each step."""
    env = TASKS[task]
    params = env.default_params
    modes = spectral.to_modes(env.reset_env(jax.random.key(0), params)[1].field)
    move = quick_jit(lambda modes: env.moved(modes, jnp.zeros(env.num_modes), params))
    after = modes
    for _ in range(20):
        after = move(after)
    assert float(after[0].real) == float(modes[0].real)
    assert float(jnp.max(jnp.abs(after - modes))) > 0.1
    state = env.reset_env(jax.random.key(0), params)[1]
    later = env.step_env(jax.random.key(1), state, jnp.zeros(8), params)[1]
    change = float(jnp.mean(later.field) - jnp.mean(state.field))
    assert abs(change) < 8 * EPS * float(jnp.max(jnp.abs(state.field)))


def test_energy_is_lost_to_viscosity_alone() -> None:
    """E = int u^2 / 2 has the slope -nu int u_x^2, integrated by Simpson's rule over short steps."""
    params = TASKS["burgers"].default_params.replace(dt=0.01)
    fields = [stepped("burgers", 128, 20, steps, params, force=False) for steps in range(9)]
    slopes = [np.fft.irfft(2j * np.pi * np.arange(65) * np.fft.rfft(u)) for u in fields]
    lost = np.array([params.viscosity * np.mean(slope**2) for slope in slopes])
    weights = np.array([1, 4, 2, 4, 2, 4, 2, 4, 1]) * 0.01 / 3
    change = np.mean(fields[0] ** 2 - fields[-1] ** 2) / 2
    assert change == pytest.approx(weights @ lost, rel=1e-6) and change > 0.003


def test_growing_waves_have_the_rates_of_the_flame() -> None:
    """A small wave of each number grows or decays as exp((k^2 - nu k^4) t)."""
    env, n = TASKS["kuramoto-sivashinsky"], 64
    params = env.default_params.replace(viscosity=0.8)
    for number in (1, 2, 3, 5):
        q = 2 * np.pi * number / 22
        with jax.enable_x64(True):
            modes = jnp.fft.rfft(jnp.asarray(1e-8 * np.cos(2 * np.pi * number * np.arange(n) / n)))
            after = env.moved(modes, jnp.zeros(n), params)
            assert float((after / modes)[number].real) == pytest.approx(np.exp(0.5 * (q**2 - 0.8 * q**4)), rel=1e-7)


@pytest.mark.parametrize("task", TASKS)
def test_a_step_of_the_task(task: str) -> None:
    env = TASKS[task]
    params = env.default_params.replace(measurement_noise=0.0, state_cost=0.7, control_cost=0.3)
    state = env.reset_env(jax.random.key(0), params)[1]
    action = jnp.asarray(1.5 * ACTION, jnp.float32)
    obs, after, reward, terminated, _ = env.step_env(jax.random.key(1), state, action, params)
    u, a = np.asarray(state.field, np.float64), np.clip(1.5 * ACTION, -1, 1)
    cost = 0.7 * np.sum(u**2) * float(params.length) / env.num_modes + 0.3 * np.sum(a**2)
    assert float(reward) == pytest.approx(-cost, rel=1e-5) and not terminated and int(after.time) == 1
    np.testing.assert_allclose(obs, np.asarray(params.sensors) @ np.asarray(after.field), rtol=0, atol=1e-5)
    with jax.enable_x64(True):
        force = jnp.asarray(np.float64(params.actuators) @ a)
        expected = np.fft.irfft(np.asarray(env.moved(jnp.fft.rfft(jnp.asarray(u)), force, params)))
    # Ten or fewer steps of four stages, each of which rounds by some units in the last place.
    np.testing.assert_allclose(after.field, expected, rtol=0, atol=100 * EPS * np.max(np.abs(expected)))


@pytest.mark.fast_rows("kuramoto-sivashinsky")
@pytest.mark.parametrize("task", TASKS)
def test_noise_has_its_deviation(task: str) -> None:
    env = TASKS[task]
    params = env.default_params.replace(noise=0.2)
    state = env.reset_env(jax.random.key(0), params)[1]
    keys = jax.random.split(jax.random.key(1), 4000)
    step = quick_jit(jax.vmap(env.step_env, (0, None, None, None)))
    moved = np.asarray(step(keys, state, jnp.zeros(8), params)[1].field)
    # Five standard errors of a deviation are 5 / sqrt(2 n) = 5.6 %; modes beyond two thirds hold less than 1e-6.
    np.testing.assert_allclose(np.std(moved, axis=0), 0.2, rtol=0.056)


@pytest.mark.parametrize("task", TASKS)
def test_a_field_that_blows_up_terminates_and_pays_for_all_steps_that_are_left(task: str) -> None:
    env = TASKS[task]
    params = env.default_params.replace(max_field=3.0, max_steps_in_episode=50)
    worst = float(params.length) * 9.0
    for field in (np.full(env.num_modes, 3.5), np.full(env.num_modes, np.nan), 1e30 * first_field(env.num_modes)):
        state = env.reset_env(jax.random.key(0), params)[1]
        state = state.replace(field=jnp.asarray(field, jnp.float32), time=jnp.int32(9))
        quiet = state.replace(field=jnp.zeros(env.num_modes))
        obs, after, reward, terminated, _ = env.step_env(jax.random.key(1), state, jnp.zeros(8), params)
        assert bool(terminated) and bool(jnp.all(jnp.isfinite(obs)))
        assert float(jnp.max(jnp.abs(after.field))) <= 3.0
        if np.all(np.abs(field) < 10):
            cost = float(params.length) * 3.5**2
            assert float(reward) == pytest.approx(-cost - 40 * worst, rel=1e-5)
        assert not env.step_env(jax.random.key(1), quiet, jnp.zeros(8), params)[3]
    low, high = env.return_range(params)
    assert low == pytest.approx(-50 * (worst + 0.1 * 8)) and high == 0


def test_phi_functions_are_exact_in_both_precisions() -> None:
    """Against integrals over positive numbers, from series to decays of exp(-10000)."""
    z = np.concatenate([-np.logspace(-8, 4, 61), np.logspace(-8, 0.5, 21), [0.0, -1.0, 1.0]])

    def slow(k: int, x: float) -> float:
        """Integral of exp((1 - s) x) s^(k - 1) / (k - 1)! over [0, 1], by Gauss's rule on pieces that shrink to 1."""
        nodes, weights = np.polynomial.legendre.leggauss(40)
        ends = np.concatenate([[0.0], 1 - 0.5 ** np.arange(1, 24), [1.0]])
        total = 0.0
        for low, high in itertools.pairwise(ends):
            s = low + (high - low) * (nodes + 1) / 2
            terms = np.exp((1 - s) * x) * s ** (k - 1) / [1, 1, 2][k - 1]
            total += float(weights @ terms) * (high - low) / 2
        return total

    expected = np.array([[slow(k, x) for x in z] for k in (1, 2, 3)])
    single = np.asarray(jax.jit(spectral.phi)(jnp.asarray(z, jnp.float32)), np.float64)
    np.testing.assert_allclose(single, expected, rtol=16 * EPS)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(spectral.phi)(jnp.asarray(z)), expected, rtol=1e-12)


def test_products_of_kept_modes_have_no_aliases() -> None:
    for n in (8, 16, 30, 64, 128):
        most = np.flatnonzero(spectral.resolved(n, 2 / 3)).max()
        # The wave 2 most looks like 2 most - n, which must lie beyond those that are kept.
        assert n - 2 * most > most and n - 2 * (most + 1) <= most + 1


def changed(kind: Callable[..., Any], **values: Any) -> Callable[[], None]:
    def check() -> None:
        env = kind()
        env.check_params(env.default_params.replace(**values))

    return check


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (changed(Burgers, viscosity=0.0), r"env\.viscosity must be above 0 and finite, got 0\.0"),
        (changed(KuramotoSivashinsky, viscosity=-1.0), r"env\.viscosity must be above 0 and finite, got -1\.0"),
        (changed(Burgers, max_field=np.array([1.0, np.inf])), r"env\.max_field must be above 0 and finite, got inf"),
        (
            changed(Burgers, actuators=np.zeros((64, 8))),
            r"env\.actuators must have the shape \(128, 8\), got \(64, 8\)",
        ),
        (lambda: Burgers(substeps=0), "substeps must be a whole number of at least 1, got 0"),
        (lambda: KuramotoSivashinsky(num_modes=65), "num_modes must be even, got 65"),
    ],
)
def test_bad_parameters_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.fast_rows("kuramoto-sivashinsky")
@pytest.mark.parametrize("task", TASKS)
def test_random_forces_do_not_blow_up(task: str) -> None:
    env = TASKS[task]
    params = env.default_params

    def episode(key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            action = env.action_space(params).sample(key)
            _, state, _, terminated, _ = env.step_env(key, state, action, params)
            return state, (terminated, jnp.max(jnp.abs(state.field)))

        return jax.lax.scan(step, env.reset_env(key, params)[1], jax.random.split(key, 200))[1]

    terminated, largest = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 32))
    assert not bool(jnp.any(terminated)) and float(jnp.max(largest)) < params.max_field / 2


def test_both_are_registered() -> None:
    for task, env in TASKS.items():
        assert envs.make(f"pde/{task}") == env and envs.make(f"pde/{task}").optimum() is None
