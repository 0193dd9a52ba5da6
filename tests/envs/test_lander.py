"""The lander: its engines and scales are LunarLander's, its contacts obey Newton and Coulomb."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.control.lander import FEET, HULL, LanderState

KEY = jax.random.key(0)
NOTHING, LEFT, MAIN, RIGHT = range(4)


def state_of(x: float = 0.0, y: float = 5.0, angle: float = 0.0, velocity: Any = (0.0, 0.0), rate: float = 0.0) -> Any:
    place, moving = jnp.array([x, y], jnp.float32), jnp.array(velocity, jnp.float32)
    time = jnp.zeros((), jnp.int32)
    return LanderState(time, place, jnp.float32(angle), moving, jnp.float32(rate), jnp.zeros(2, bool), time)


def step(state: Any, action: Any, key: jax.Array = KEY, name: str = "lander", **changes: Any) -> Any:
    params = envs.make(name).default_params.replace(**changes)
    return _step(name, key, state, jnp.asarray(action), params)


@functools.partial(jax.jit, static_argnums=0)
def _step(name: str, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
    env: Any = envs.make(name)
    return env.step_env(key, state, action, params)


def played(state: Any, actions: Any, **changes: Any) -> Any:
    """States, rewards and terminations of actions without noise."""
    env: Any = envs.make("lander")
    params = env.default_params.replace(dispersion=0.0, **changes)

    def advance(state: Any, action: Any) -> Any:
        _, state, reward, terminated, _ = env.step_env(KEY, state, action, params)
        return state, (state, reward, terminated)

    return jax.tree.map(np.asarray, jax.jit(lambda: jax.lax.scan(advance, state, jnp.asarray(actions)))()[1])


@pytest.mark.parametrize(
    ("action", "mean", "deviation"),
    [
        # Accelerations across and along the craft in m/s^2, and angular in rad/s^2, measured in LunarLander-v3
        # of Gymnasium 1.3 with Box2D 2.3.10: means and deviations of 200 steps in free flight.
        (NOTHING, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        (LEFT, (-2.484, 0.0, 4.981), (0.363, 0.117, 0.728)),
        (MAIN, (-0.118, 16.925, -0.059), (2.559, 5.070, 1.288)),
        (RIGHT, (2.450, 0.0, -4.914), (0.363, 0.117, 0.728)),
    ],
)
def test_accelerations_of_the_engines_are_those_of_lunarlander(action: int, mean: Any, deviation: Any) -> None:
    """Our means lie within four standard errors of theirs, and ours do not tilt by the noise of the main engine."""
    keys = jax.random.split(KEY, 2000)
    after: Any = jax.jit(jax.vmap(lambda key: step(state_of(), action, key)[1]))(keys)
    ours = np.column_stack([np.asarray(after.velocity) + np.array([0, 0.2]), np.asarray(after.rate)]) / 0.02
    errors = 4 * np.sqrt(np.square(deviation) / 200 + np.var(ours, axis=0) / 2000) + 2e-3 + 0.05 * np.abs(mean)
    assert np.all(np.abs(ours.mean(axis=0) - mean) < errors)
    if action == MAIN:
        np.testing.assert_allclose(ours.std(axis=0)[:2], deviation[:2], rtol=0.15)


def test_free_flight_is_a_parabola() -> None:
    """Semi-implicit Euler with steps of h is exact up to g h t / 2."""
    states, _, _ = played(state_of(velocity=(1.0, 2.0), rate=0.5), np.zeros(40, np.int32))
    time, part = 0.02 * np.arange(1, 41), 0.005
    np.testing.assert_allclose(states.place[:, 0], time, rtol=0, atol=1e-5)
    expected = 5 + 2 * time - 10 * time**2 / 2 - 10 * part * time / 2
    np.testing.assert_allclose(states.place[:, 1], expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(states.angle, 0.5 * time, rtol=0, atol=1e-5)


def reference_step(state: np.ndarray, force: np.ndarray, torque: float, p: Any) -> np.ndarray:
    """A step of x, y, angle and their rates in float64, with vectors in three dimensions."""
    position, motion = np.array([*state[:2], 0.0]), np.array([*state[3:5], 0.0])
    angle, spin = state[2], np.array([0.0, 0.0, state[5]])
    for _ in range(4):
        turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        total, moment = turn @ [*force, 0.0] + p.mass * np.array([0, -p.gravity, 0]), np.array([0, 0, torque])
        for foot in FEET:
            arm = turn @ [*foot, 0.0]
            speed, depth = motion + np.cross(spin, arm), -(position + arm)[1]
            if depth <= 0:
                continue
            normal = max(0.0, p.stiffness * depth - p.foot_damping * speed[1])
            along = -np.sign(speed[0]) * min(p.friction * normal, p.foot_damping * abs(speed[0]))
            contact = np.array([along, normal, 0.0])
            total, moment = total + contact, moment + np.cross(arm, contact)
        motion, spin = motion + p.dt / 4 * total / p.mass, spin + p.dt / 4 * moment / p.inertia
        position, angle = position + p.dt / 4 * motion, angle + p.dt / 4 * spin[2]
    return np.array([*position[:2], angle, *motion[:2], spin[2]])


def test_steps_on_the_ground_are_those_of_a_rigid_body_on_two_springs() -> None:
    """Random states with feet in the ground; forces reach 300 N, float32 and 16 parts of operations."""
    rng, params = np.random.default_rng(0), envs.make("lander").default_params.replace(dispersion=0.0)
    for _ in range(100):
        x, y, angle = rng.uniform([-5, 0.75, -0.3], [5, 0.9, 0.3])
        velocity, rate = rng.uniform(-2, 2, 2), rng.uniform(-1, 1)
        action = int(rng.integers(4))
        state = state_of(x, y, angle, velocity, rate)
        after = step(state, action, dispersion=0.0)[1]
        push = params.side_force * ((action == RIGHT) - (action == LEFT))
        force = np.array([push, params.main_force * (action == MAIN)])
        numbers = np.array([*state.place, state.angle, *state.velocity, state.rate], np.float64)
        expected = reference_step(numbers, force, -push * params.side_height, params)
        ours = np.array([*after.place, after.angle, *after.velocity, after.rate])
        np.testing.assert_allclose(ours, expected, rtol=0, atol=5e-5)


def test_a_soft_landing_pays_and_terminates_and_the_weight_is_on_the_springs() -> None:
    states, rewards, terminated = played(state_of(y=0.9), np.zeros(200, np.int32))
    end = int(np.argmax(terminated))
    assert 25 < end < 200 and rewards[end] == 100 and not terminated[:end].any() and states.still[end] == 25
    depth = 4.96 * 10 / 2 / 1500
    np.testing.assert_allclose(states.place[end], [0, -FEET[0, 1] - depth], rtol=0, atol=2e-3)
    # Before, the return is the change of the potential: the rewards add up to it.
    env: Any = envs.make("lander")
    obs = np.asarray(env.step_env(KEY, jax.tree.map(lambda leaf: leaf[end - 2], states), jnp.int32(0), _quiet())[0])
    start = -100 * (0.9 + FEET[0, 1]) / (20 / 3)
    potential = -100 * (np.hypot(*obs[:2]) + np.hypot(*obs[2:4]) + abs(obs[4])) + 10 * obs[6:].sum()
    np.testing.assert_allclose(rewards[:end].sum(), potential - start, rtol=0, atol=2e-3)


def _quiet() -> Any:
    return envs.make("lander").default_params.replace(dispersion=0.0)


def test_a_fall_breaks_the_hull_and_the_sides_end_the_episode() -> None:
    states, rewards, terminated = played(state_of(y=3.0, angle=0.9, velocity=(0.0, -6.0)), np.zeros(60, np.int32))
    end = int(np.argmax(terminated))
    place, angle = states.place[end].astype(np.float64), float(states.angle[end])
    corners = place[1] + HULL[:, 0] * np.sin(angle) + HULL[:, 1] * np.cos(angle)
    assert terminated[end] and rewards[end] == -100 and corners.min() < 0
    _, _, reward, out, _ = step(state_of(x=9.99, velocity=(5.0, 0.0)), NOTHING)
    assert out and reward == -100
    _, _, reward, out, _ = step(state_of(x=9.5, velocity=(5.0, 0.0)), NOTHING)
    assert not out and reward != -100


def test_engines_cost_by_their_power() -> None:
    def cost(name: str, action: Any) -> float:
        changes: Any = {"main_force": 0.0, "side_force": 0.0, "dispersion": 0.0}
        with_costs = step(state_of(), action, name=name, **changes)[2]
        return float(step(state_of(), action, name=name, main_cost=0.0, side_cost=0.0, **changes)[2] - with_costs)

    assert [cost("lander", action) for action in range(4)] == pytest.approx([0, 0.03, 0.3, 0.03], abs=2e-5)
    numbers = {(0.0, 0.0): 0.0, (1.0, 0.0): 0.3, (0.2, 0.4): 0.18, (-0.5, 0.6): 0.018, (-1.0, -2.0): 0.03}
    for action, expected in numbers.items():
        assert cost("lander-continuous", action) == pytest.approx(expected, abs=2e-5)
    full = step(state_of(), (1.0, 0.0), name="lander-continuous")[1]
    jax.tree.map(np.testing.assert_array_equal, full, step(state_of(), MAIN)[1])


def test_flags_and_parameters_are_checked() -> None:
    with pytest.raises(TypeError, match="continuous takes True or False, got 1"):
        envs.make("lander", continuous=1)
    with pytest.raises(ValueError, match="mass"):
        envs.make("lander").check_params(envs.make("lander").default_params.replace(mass=0.0))
    with pytest.raises(ValueError, match=r"env.friction must be at least 0"):
        envs.make("lander").check_params(envs.make("lander").default_params.replace(friction=-1.0))
