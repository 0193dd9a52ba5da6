"""Policies that read the state: their target velocities, and the conversion to actions."""

import dataclasses
import functools

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import Crowd, Recorded, pairs, roll
from envs.crowd.dynamics import DYNAMICS
from envs.crowd.social_force import Forces, SocialForce, obstacle_forces, social_forces
from envs.crowd.state import Obstacles
from envs.crowd.steering import Straight, preferred, steer

EPS = float(np.finfo(np.float32).eps)


# --- steering ----------------------------------------------------------------------------


def _alone(dynamics, heading, speed):
    """One walker on the move, far from everything."""
    env = Crowd(Recorded([(0.0, 0.0, 50.0, 0.0)]), num_agents=1, dynamics=dynamics)
    _, state = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    velocity = speed * jnp.array([[jnp.cos(heading), jnp.sin(heading)]])
    walkers = dataclasses.replace(
        state.walkers, velocity=velocity, heading=jnp.float32([heading]), speed=jnp.float32([speed])
    )
    return env, dataclasses.replace(state, walkers=walkers)


@functools.partial(jax.jit, static_argnums=0)
def _step(env, state, action):
    return env.step_env(jax.random.key(0), state, action, env.default_params)[1]


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_a_velocity_within_reach_is_there_after_one_decision(dynamics):
    heading, speed, turn = 0.4, 1.0, 0.12
    env, state = _alone(dynamics, heading, speed)
    expected = 1.05 * jnp.array([[np.cos(heading + turn), np.sin(heading + turn)]], jnp.float32)
    action = steer(env, env.default_params, state, expected)
    after = _step(env, state, action)
    # Ten substeps of a few roundings each, behind a squashing and its inverse.
    np.testing.assert_allclose(after.walkers.velocity, expected, atol=200 * EPS)


@pytest.mark.slow_rows("cartesian-velocity", "polar-velocity")
@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_a_velocity_out_of_reach_is_come_nearer_to(dynamics):
    env, state = _alone(dynamics, 0.0, 1.0)
    expected = jnp.array([[0.0, 30.0]], jnp.float32)
    action = steer(env, env.default_params, state, expected)
    assert np.all(np.isfinite(action))
    after = _step(env, state, action)
    direction = after.walkers.heading if dynamics.startswith("polar") else after.walkers.velocity[:, 1]
    assert float(direction[0]) > 0.15


@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_steering_to_zero_velocity_stops_an_agent(dynamics):
    env, state = _alone(dynamics, 1.0, 0.3)
    action = steer(env, env.default_params, state, jnp.zeros((1, 2)))
    after = _step(env, state, action)
    assert np.linalg.norm(after.walkers.velocity) < 1e-3


@pytest.mark.slow
def test_straight_walkers_take_the_least_energy_when_alone():
    env = Crowd(Recorded([(0.0, 0.0, 8.0, 0.0)]), num_agents=1, dynamics="cartesian-velocity")
    metrics = roll(env, Straight(env), jax.random.key(0)).metrics
    assert float(metrics["success"]) == 1.0
    # It continues for the rest of the substep in which it arrives: 0.1 % of the distance.
    assert float(metrics["energy_plus"] / metrics["optimum"]) == pytest.approx(1.0, abs=2e-3)


# --- social force ------------------------------------------------------------------------


def _slow_social_forces(position, velocity, forces, cut_off):
    """Social forces pair by pair, in complex numbers and double precision."""
    p, v = (np.asarray(a, np.float64) @ [1, 1j] for a in (position, velocity))
    total = np.zeros(len(p), complex)
    for i in range(len(p)):
        for j in range(len(p)):
            distance = abs(p[j] - p[i])
            if i == j or distance >= cut_off:
                continue
            towards = (p[j] - p[i]) / distance
            interaction = forces.foresight * (v[i] - v[j]) + towards
            reach = forces.reach * abs(interaction)
            t = interaction / abs(interaction)
            theta = np.angle(towards / t)
            slow = np.exp(-((forces.slowing * reach * theta) ** 2))
            side = np.exp(-((forces.sidestep * reach * theta) ** 2)) * np.sign(theta)
            total[i] -= forces.strength * np.exp(-distance / reach) * (slow * t + side * 1j * t)
    return np.stack([np.real(total), np.imag(total)], -1)


def _crowd(num_agents, size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, size, (num_agents, 2)).astype(np.float32), rng.normal(size=(num_agents, 2)).astype(np.float32)


@pytest.mark.slow
def test_social_forces_are_those_of_a_slow_reference():
    position, velocity = _crowd(40, 8.0)
    forces = Forces()
    near = pairs.candidates(jnp.asarray(position), jnp.ones(40, bool), jnp.float32(forces.cut_off), "all-pairs")
    actual = social_forces(jnp.asarray(position), jnp.asarray(velocity), near, forces)
    # Forty terms of at most 4 m/s^2, each with an exponential of an exponent of at most about 30.
    np.testing.assert_allclose(
        actual, _slow_social_forces(position, velocity, forces, forces.cut_off), atol=40 * 4 * 30 * EPS
    )


def test_lists_give_the_same_forces_as_all_pairs():
    position, velocity = (jnp.asarray(a) for a in _crowd(100, 17.0))
    everybody, forces = jnp.ones(100, bool), Forces()

    @functools.partial(jax.jit, static_argnums=0)
    def both(search):
        near = pairs.candidates(position, everybody, jnp.float32(forces.cut_off), search, 32)
        return social_forces(position, velocity, near, forces), near.overflow

    (every, none), (listed, overflow) = both("all-pairs"), both("cells")
    assert int(none) == int(overflow) == 0
    np.testing.assert_allclose(every, listed, atol=40 * 4 * EPS)


def test_agents_that_meet_head_on_slow_down_and_no_force_is_nan():
    position, velocity = jnp.array([[0.0, 0.0], [2.0, 0.0]]), jnp.array([[1.3, 0.0], [-1.3, 0.0]])
    near = pairs.candidates(position, jnp.ones(2, bool), jnp.float32(2.2), "all-pairs")
    force = social_forces(position, velocity, near, Forces())
    assert float(force[0, 0]) < -0.1
    assert float(force[1, 0]) > 0.1
    same_place = social_forces(jnp.zeros((2, 2)), jnp.zeros((2, 2)), near, Forces())
    assert np.all(np.isfinite(same_place))


@pytest.mark.slow
def test_obstacles_push_outwards_by_their_gap():
    obstacles = crowd_scenes.obstacles([(0, 0, 1, 1)], [(5, 0, 0.5)])
    forces = Forces(wall_strength=2.0, wall_range=0.1)
    force = obstacle_forces(jnp.array([[1.5, 0.0], [5.0, 1.0]]), jnp.array([0.2, 0.2]), obstacles, forces)
    # Behind the other obstacle, at least 2.8 m away, exp(-28) is negligible.
    np.testing.assert_allclose(force, [[2 * np.exp(-3), 0.0], [0.0, 2 * np.exp(-3)]], atol=50 * EPS)
    assert np.all(obstacle_forces(jnp.zeros((2, 2)), jnp.ones(2), Obstacles.none(), forces) == 0)


@pytest.mark.slow
def test_overflowing_lists_are_counted():
    env = Crowd("circle", num_agents=12)
    _, state = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    together = jnp.asarray(_crowd(12, 1.0)[0])
    state = dataclasses.replace(state, walkers=dataclasses.replace(state.walkers, position=together))
    assert int(SocialForce(env, search="all-pairs").overflow(state)) == 0
    assert int(SocialForce(env, search="cells", capacity=4).overflow(state)) >= 12 * (11 - 4)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "num_agents"), [("circle", 30), ("corridor", 50)])
def test_social_forces_bring_people_to_their_goals(scenario, num_agents):
    env = Crowd(scenario, num_agents=num_agents)
    keys = jax.random.split(jax.random.key(0), 4)
    metrics = jax.vmap(lambda key: roll(env, SocialForce(env), key).metrics)(keys)
    assert float(metrics["success"].mean()) >= 0.95
    assert float(metrics["contacts"].mean()) < 60
    assert float(metrics["overflow"].sum()) == 0


@pytest.mark.slow
def test_wanted_velocities_are_at_the_preferred_speed():
    env = Crowd("circle", num_agents=12)
    _, state = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    speed = np.linalg.norm(preferred(state), axis=-1)
    np.testing.assert_allclose(speed, state.traits.preferred_speed, rtol=8 * EPS)
