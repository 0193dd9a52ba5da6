"""The quadrotor: its motion by an adaptive solver in float64, its rewards, and a linear controller that holds it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg
from scipy.spatial.transform import Rotation

import envs
from envs.control.quadrotor import ARMS, SPINS, QuadrotorState

KEY = jax.random.key(0)
COUNT = 60
ENV: Any = envs.make("quadrotor/hover")
PARAMS: Any = ENV.default_params


def states_of(numbers: np.ndarray) -> QuadrotorState:
    """States of rows of place, attitude (w first), velocity, rates and rotors `[n, 17]`."""
    parts = np.split(numbers.astype(np.float32), [3, 7, 10, 13], axis=1)
    count = len(numbers)
    return QuadrotorState(jnp.zeros(count, jnp.int32), *map(jnp.asarray, parts), phase=jnp.zeros(count))


def random_numbers(rng: np.random.Generator, rates: float) -> np.ndarray:
    turns = rng.normal(size=(COUNT, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    place, velocity = rng.uniform(-0.3, 0.3, (COUNT, 3)), rng.uniform(-2, 2, (COUNT, 3))
    spin, rotors = rng.uniform(-rates, rates, (COUNT, 3)), rng.uniform(0, PARAMS.max_rpm, (COUNT, 4))
    return np.concatenate([place, turns, velocity, spin, rotors], axis=1).astype(np.float32).astype(np.float64)


def stepped(states: Any, actions: np.ndarray, params: Any = PARAMS) -> Any:
    step = jax.jit(jax.vmap(lambda state, action: ENV.step_env(KEY, state, action, params)[:4]))
    return jax.tree.map(np.asarray, step(states, jnp.asarray(actions, jnp.float32)))


def solved(numbers: np.ndarray, action: np.ndarray, p: Any) -> np.ndarray:
    """Place, rotation matrix, velocity, rates and rotors after `dt`, by an adaptive solver of eighth order."""
    w, x, y, z = numbers[3:7]
    inertia = np.diag([p.inertia_xy, p.inertia_xy, p.inertia_z])
    wanted = (np.clip(action, -1, 1) + 1) / 2 * p.max_rpm

    def derivative(_: float, each: np.ndarray) -> np.ndarray:
        turn, velocity, spin, rotors = each[3:12].reshape(3, 3), each[12:15], each[15:18], each[18:]
        forces = p.thrust * rotors**2
        torque = np.array([0.0, 0.0, p.drag * (SPINS * forces).sum()])
        for arm, force in zip(ARMS, forces, strict=True):
            torque += np.cross([*(p.arm * arm), 0.0], [0.0, 0.0, force])
        skew = np.array([[0, -spin[2], spin[1]], [spin[2], 0, -spin[0]], [-spin[1], spin[0], 0]])
        acceleration = turn @ [0, 0, forces.sum() / p.mass] - np.array([0, 0, p.gravity])
        spinning = np.linalg.solve(inertia, torque - np.cross(spin, inertia @ spin))
        return np.concatenate([velocity, (turn @ skew).ravel(), acceleration, spinning, (wanted - rotors) / p.lag])

    turn = Rotation.from_quat([x, y, z, w]).as_matrix()
    start = np.concatenate([numbers[:3], turn.ravel(), numbers[7:]])
    return integrate.solve_ivp(derivative, (0, p.dt), start, method="DOP853", rtol=1e-11, atol=1e-11).y[:, -1]


def test_a_step_solves_the_equations_of_newton_and_euler() -> None:
    """Rotors accelerate the body to 40 rad/s in a step, in which Runge-Kutta errs by (40 dt)^5 / 120 = 1e-4."""
    rng = np.random.default_rng(0)
    numbers, actions = random_numbers(rng, 10.0), rng.uniform(-1.3, 1.3, (COUNT, 4))
    obs, after, _, _ = stepped(states_of(numbers), actions)
    for index in range(COUNT):
        expected = solved(numbers[index], actions[index].astype(np.float32), PARAMS)
        np.testing.assert_allclose(after.place[index], expected[:3], rtol=0, atol=3e-6)
        np.testing.assert_allclose(obs[index, 3:12], expected[3:12], rtol=0, atol=1e-4)
        np.testing.assert_allclose(after.velocity[index], expected[12:15], rtol=0, atol=22 * 0.01 * 1e-4)
        np.testing.assert_allclose(after.rates[index], expected[15:18], rtol=0, atol=3e-4)
        np.testing.assert_allclose(after.rotors[index], expected[18:], rtol=1e-5, atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(after.attitude, axis=1), 1, rtol=0, atol=3e-7)


def test_the_step_is_of_fourth_order() -> None:
    """Halved steps leave a sixteenth of the error at rates at which it shows in float32."""
    rng = np.random.default_rng(1)
    numbers, actions = random_numbers(rng, 80.0), rng.uniform(-1, 1, (COUNT, 4))
    errors = []
    for parts in (1, 2):
        params = PARAMS.replace(dt=0.01 / parts)
        states = states_of(numbers)
        for _ in range(parts):
            obs, states, _, _ = stepped(states, actions, params)
        ends = [solved(numbers[i], actions[i].astype(np.float32), PARAMS)[3:12] for i in range(COUNT)]
        errors.append(np.sqrt(np.mean(np.square(obs[:, 3:12] - np.array(ends)))))
    assert 8 < errors[0] / errors[1] < 32


def test_without_rotors_angular_momentum_stays_and_the_body_falls() -> None:
    params = PARAMS.replace(thrust=1e-30, max_distance=1e9)
    rng = np.random.default_rng(2)
    states = states_of(random_numbers(rng, 10.0))
    inertia = np.array([PARAMS.inertia_xy, PARAMS.inertia_xy, PARAMS.inertia_z])

    def momentum(state: Any) -> np.ndarray:
        turns = Rotation.from_quat(np.roll(np.asarray(state.attitude, np.float64), -1, axis=1))
        return turns.apply(np.asarray(state.rates, np.float64) * inertia)

    after = states
    for _ in range(50):
        after = stepped(after, -np.ones((COUNT, 4)), params)[1]
    np.testing.assert_allclose(momentum(after), momentum(states), rtol=0, atol=2e-4 * 10 * inertia[2])
    np.testing.assert_allclose(after.velocity[:, 2] - states.velocity[:, 2], -9.81 * 0.5, rtol=0, atol=1e-4)


def test_rewards_are_one_minus_the_costs() -> None:
    rng = np.random.default_rng(3)
    numbers, actions = random_numbers(rng, 3.0), rng.uniform(-1, 1, (COUNT, 4))
    numbers[: COUNT // 2, 3:7] = [1, 0, 0, 0]
    _, after, reward, terminated = stepped(states_of(numbers), actions)
    tilt = 1 - Rotation.from_quat(np.roll(after.attitude.astype(np.float64), -1, axis=1)).as_matrix()[:, 2, 2]
    lengths = [
        np.linalg.norm(np.asarray(each, np.float64), axis=1) for each in (after.place, after.velocity, after.rates)
    ]
    carrying = 2 * np.sqrt(PARAMS.mass * PARAMS.gravity / 4 / PARAMS.thrust) / PARAMS.max_rpm - 1
    effort = np.mean((actions - carrying) ** 2, axis=1)
    cost = 2 * lengths[0] + 0.5 * tilt + 0.05 * lengths[1] + 0.005 * lengths[2] + 0.05 * effort
    np.testing.assert_allclose(reward, np.maximum(1 - cost, 0), rtol=0, atol=1e-5)
    assert (reward > 0).any() and (reward == 0).any()
    np.testing.assert_array_equal(terminated, lengths[0] > PARAMS.max_distance)


def test_the_point_moves_on_a_closed_curve_with_its_velocity() -> None:
    env: Any = envs.make("quadrotor/tracking")
    phases = jnp.linspace(-np.pi, np.pi, 201)
    places, velocities = map(np.asarray, jax.vmap(lambda phase: env._target(phase, PARAMS))(phases))
    slopes = np.gradient(places, np.asarray(phases), axis=0, edge_order=2) * 2 * np.pi / PARAMS.period
    np.testing.assert_allclose(velocities, slopes, rtol=0, atol=2e-3)
    np.testing.assert_allclose(places[0], places[-1], atol=1e-6)
    assert np.abs(places[:, 0]).max() == pytest.approx(0.3, abs=1e-3)
    state = env.reset_env(KEY, PARAMS)[1]
    obs, after, _, _, _ = env.step_env(KEY, state, jnp.zeros(4), PARAMS)
    turned = np.remainder(float(after.phase - state.phase), 2 * np.pi)
    assert turned == pytest.approx(2 * np.pi / 5.5 * 0.01, abs=1e-6)
    np.testing.assert_allclose(obs[:3], after.place - env._target(after.phase, PARAMS)[0], atol=1e-6)
    np.testing.assert_allclose(obs[22:], env._target(after.phase, PARAMS)[1], atol=1e-6)


def test_a_linear_controller_hovers_in_place() -> None:
    """An LQR gain of the linearised step, from starts tilted by up to 0.5 rad: no termination, nearly all rewards."""
    carrying = float(2 * np.sqrt(PARAMS.mass * PARAMS.gravity / 4 / PARAMS.thrust) / PARAMS.max_rpm - 1)
    rotors = (carrying + 1) / 2 * PARAMS.max_rpm

    def state_of(error: Any) -> Any:
        attitude = jnp.concatenate([jnp.sqrt(1 - jnp.sum(jnp.square(error[3:6])))[None], error[3:6]])
        zero = jnp.zeros((), jnp.int32)
        turning = rotors + PARAMS.max_rpm * error[12:]
        return QuadrotorState(zero, error[:3], attitude, error[6:9], error[9:12], turning, jnp.zeros(()))

    def error_of(state: Any) -> Any:
        attitude = state.attitude[1:] * jnp.sign(state.attitude[0])
        return jnp.concatenate(
            [state.place, attitude, state.velocity, state.rates, (state.rotors - rotors) / PARAMS.max_rpm]
        )

    def advance(error: Any, action: Any) -> Any:
        return error_of(ENV.step_env(KEY, state_of(error), carrying + action, PARAMS)[1])

    a, b = map(np.asarray, jax.jacfwd(advance, argnums=(0, 1))(jnp.zeros(16), jnp.zeros(4)))
    weights = np.diag([4.0] * 3 + [1.0] * 3 + [0.5] * 3 + [0.01] * 3 + [0.01] * 4)
    value = linalg.solve_discrete_are(a.astype(np.float64), b.astype(np.float64), weights, np.eye(4))
    gain = np.linalg.solve(np.eye(4) + b.T @ value @ b, b.T @ value @ a)
    params = PARAMS.replace(start_angle=0.5)

    def episode(key: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            _, state, reward, terminated, _ = ENV.step_env(KEY, state, carrying - gain @ error_of(state), params)
            return state, (reward, terminated)

        return jax.lax.scan(step, ENV.reset_env(key, params)[1], None, 500)[1]

    rewards, terminated = map(np.asarray, jax.jit(jax.vmap(episode))(jax.random.split(KEY, 32)))
    assert not terminated.any() and rewards.sum(axis=1).min() > 400 and rewards[:, -1].min() > 0.99


def test_bad_tasks_and_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="task must be one of hover, tracking, got 'track'; did you mean 'tracking'"):
        envs.make("quadrotor/hover", task="track")
    with pytest.raises(ValueError, match="lag"):
        ENV.check_params(PARAMS.replace(lag=0.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thrust": 1e-11}, r"^env.max_rpm must be at least 81374.1, to carry the weight, got 21702$"),
        ({"mass": np.array([0.02, 0.2])}, "^env.max_rpm must be at least 3939"),
        ({"lag": 1e-4}, "^env.lag must be at least 0.005, half of env.dt, got 0.0001$"),
        ({"gravity": -1.0}, "^env.gravity must be at least 0"),
    ],
)
def test_rotors_that_cannot_fly_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ENV.check_params(PARAMS.replace(**changes))


@pytest.mark.parametrize("name", ["quadrotor/hover", "quadrotor/tracking", "lander-continuous", "reacher"])
def test_rewards_have_gradients_at_rest(name: str) -> None:
    """Distance, speed and rate are 0 there, at which a square root has no derivative."""
    env: Any = envs.make(name)
    params = env.default_params.replace(start_distance=0.0) if name.startswith("quad") else env.default_params
    state = env.reset_env(KEY, params)[1]
    if name == "lander-continuous":
        state = state.replace(velocity=jnp.zeros(2), rate=jnp.zeros(()))
    if name == "reacher":
        params = params.replace(control_cost=0.0)
        state = state.replace(angles=jnp.zeros(2), rates=jnp.zeros(2), target=jnp.array([0.21, 0.0]))
    size = env.action_space(params).shape

    def reward(action: Any, place: Any) -> Any:
        moved = state.replace(angles=place) if name == "reacher" else state.replace(velocity=place)
        return env.step_env(KEY, moved, action, params)[2]

    place = state.angles if name == "reacher" else state.velocity
    for slope in jax.grad(reward, argnums=(0, 1))(jnp.zeros(size), place):
        assert np.all(np.isfinite(slope))
