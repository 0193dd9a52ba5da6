"""Steps of the physical control tasks, compared with MuJoCo in float64 and with other tasks."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mujoco as mujoco_module
import numpy as np
import pytest

import envs
from envs.control.acrobot import AcrobotState
from envs.control.cartpole import CartPoleState
from envs.control.reacher import ReacherState

mujoco: Any = mujoco_module  # its stubs lack the functions of the bindings
COUNT = 200
EPS = float(np.finfo(np.float32).eps)
KEY = jax.random.key(0)
CART_AND_ROD = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="{tau}" gravity="0 0 -{gravity}" integrator="Euler"><flag contact="disable"/></option>
  <worldbody>
    <body>
      <joint name="slide" type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="{masscart}" diaginertia="1 1 1"/>
      <body>
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <inertial pos="0 0 {length}" mass="{masspole}" diaginertia="{rod} {rod} 1e-6"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="{force_mag}"/></actuator>
</mujoco>
"""


def steps(name: str, states: Any, actions: np.ndarray, params: Any = None) -> Any:
    """Observations, states, rewards and terminations after one step from each state."""
    env: Any = envs.make(name)
    params = env.default_params if params is None else params
    step = jax.jit(jax.vmap(lambda state, action: env.step_env(KEY, state, action, params)[:4]))
    return jax.tree.map(np.asarray, step(states, jnp.asarray(actions, jnp.float32)))


@pytest.mark.parametrize("changes", [{}, {"masspole": 0.4, "length": 0.8, "gravity": 5.0, "force_mag": 20.0}])
def test_the_swing_up_moves_as_in_mujoco(changes: dict[str, float]) -> None:
    """A step from random states; float32 has eps times the sizes of the numbers added, below 20, in ten operations."""
    params = envs.make("cartpole-swing-up").default_params.replace(**changes)
    numbers = {name: getattr(params, name) for name in vars(params)}
    rod = params.masspole * (2 * params.length) ** 2 / 12
    model = mujoco.MjModel.from_xml_string(CART_AND_ROD.format(**numbers, rod=rod))
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    before = rng.uniform([-1.7, -3, -np.pi, -8], [1.7, 3, np.pi, 8], (COUNT, 4)).astype(np.float32)
    actions = rng.uniform(-1, 1, (COUNT, 1)).astype(np.float32)
    states = CartPoleState(jnp.zeros(COUNT, jnp.int32), *jnp.asarray(before.T))
    _, after, _, _ = steps("cartpole-swing-up", states, actions, params)
    expected = []
    for (x, x_dot, theta, theta_dot), action in zip(before, actions, strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:] = (x, theta), (x_dot, theta_dot), action
        mujoco.mj_step(model, data)
        expected.append([data.qpos[0], data.qvel[0], data.qpos[1], data.qvel[1]])
    ours = np.stack([after.x, after.x_dot, after.theta, after.theta_dot], axis=1)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=20 * 10 * EPS)


def test_the_reward_of_the_swing_up_is_the_product_of_four_factors() -> None:
    rng = np.random.default_rng(1)
    before = rng.uniform([-1.7, -3, -np.pi, -8], [1.7, 3, np.pi, 8], (COUNT, 4)).astype(np.float32)
    actions = rng.uniform(-1.5, 1.5, (COUNT, 1)).astype(np.float32)
    states = CartPoleState(jnp.zeros(COUNT, jnp.int32), *jnp.asarray(before.T))
    _, after, reward, terminated = steps("cartpole-swing-up", states, actions)
    x, theta, rate = (np.asarray(each, np.float64) for each in (after.x, after.theta, after.theta_dot))
    push = np.clip(actions[:, 0].astype(np.float64), -1, 1)
    centred = (1 + np.exp(-0.5 * (x / 2 * np.sqrt(-2 * np.log(0.1))) ** 2)) / 2
    slow = (1 + np.exp(-0.5 * (rate / 5 * np.sqrt(-2 * np.log(0.1))) ** 2)) / 2
    effortless = (4 + np.clip(1 - push**2, 0, 1)) / 5
    np.testing.assert_allclose(reward, (1 + np.cos(theta)) / 2 * centred * slow * effortless, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(terminated, np.abs(after.x) > np.float32(1.8))


def test_the_energy_of_a_free_pole_is_kept_to_first_order() -> None:
    """Without a force the drift over a second shrinks by the factor of the step size."""
    drifts = []
    env: Any = envs.make("cartpole-swing-up")
    for tau in (2e-3, 1e-3):
        params = env.default_params.replace(tau=tau, x_threshold=100.0)
        state = CartPoleState(jnp.int32(0), *map(jnp.float32, (0.0, 0.3, 2.0, -1.0)))
        energies = [_energy(state, params)]

        def step(state: Any, _: None, params: Any = params) -> Any:
            after = env.step_env(KEY, state, jnp.zeros(1), params)[1]
            return after, after

        _, path = jax.lax.scan(step, state, None, round(1 / tau))
        energies = _energy(path, params) - energies[0]
        drifts.append(np.max(np.abs(energies)))
    assert 1.6 < drifts[0] / drifts[1] < 2.4


def _energy(state: Any, params: Any) -> np.ndarray:
    x_dot, theta, rate = (np.asarray(each, np.float64) for each in (state.x_dot, state.theta, state.theta_dot))
    m, half = params.masspole, params.length
    moving = 0.5 * (params.masscart + m) * x_dot**2 + m * half * x_dot * rate * np.cos(theta)
    return moving + 0.5 * m * half**2 * 4 / 3 * rate**2 + m * params.gravity * half * np.cos(theta)


def test_the_continuous_acrobot_contains_the_discrete_one() -> None:
    rng = np.random.default_rng(2)
    before = rng.uniform(-1, 1, (COUNT, 4)) * [np.pi, np.pi, 4 * np.pi, 9 * np.pi]
    states = AcrobotState(jnp.zeros(COUNT, jnp.int32), *jnp.asarray(before.T, jnp.float32))
    choices = rng.integers(3, size=COUNT)
    discrete = jax.vmap(lambda state, action: envs.make("acrobot").step_env(KEY, state, action, _acrobot())[:4])
    continuous = steps("acrobot-continuous", states, choices[:, None] - 1.0)
    expected = jax.jit(discrete)(states, jnp.asarray(choices))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2e-5), continuous, expected)
    beyond = steps("acrobot-continuous", states, 3.0 * (choices[:, None] - 1.0))
    jax.tree.map(np.testing.assert_array_equal, continuous, beyond)


def _acrobot() -> Any:
    return envs.make("acrobot").default_params


def test_reacher_is_gymnasiums() -> None:
    """One step from random states away from the elbow's limit; rates reach 20 rad/s, rewards -3, in 20 operations."""
    theirs: Any = gymnasium.make("Reacher-v5").unwrapped
    theirs.reset(seed=0)
    rng = np.random.default_rng(3)
    angles = rng.uniform([-np.pi, -2.3], [np.pi, 2.3], (COUNT, 2)).astype(np.float32)
    rates = rng.uniform(-15, 15, (COUNT, 2)).astype(np.float32)
    target = rng.uniform(-0.14, 0.14, (COUNT, 2)).astype(np.float32)
    actions = rng.uniform(-1, 1, (COUNT, 2)).astype(np.float32)
    states = ReacherState(*map(jnp.asarray, (np.zeros(COUNT, np.int32), angles, rates, target)))
    obs, _, reward, _ = steps("reacher", states, actions)
    for index in range(COUNT):
        position = np.concatenate([angles[index], target[index]]).astype(np.float64)
        theirs.set_state(position, np.concatenate([rates[index], np.zeros(2)]).astype(np.float64))
        expected, value, _, _, _ = theirs.step(actions[index].astype(np.float64))
        np.testing.assert_allclose(obs[index], expected, rtol=0, atol=2e-5)
        np.testing.assert_allclose(reward[index], value, rtol=0, atol=20 * 3 * EPS)


def test_the_elbow_of_reacher_stops_at_its_limit() -> None:
    state = ReacherState(jnp.zeros(1, jnp.int32), jnp.array([[0.0, 2.99]]), jnp.array([[0.0, 5.0]]), jnp.zeros((1, 2)))
    _, after, _, terminated = steps("reacher", state, np.ones((1, 2)))
    np.testing.assert_allclose(after.angles[0, 1], 3.0)
    assert after.rates[0, 1] == 0 and not terminated[0]
    _, after, _, _ = steps("reacher", after, -np.ones((1, 2)))
    assert after.angles[0, 1] < 3 and after.rates[0, 1] < 0


def test_masses_of_reacher_are_checked() -> None:
    env: Any = envs.make("reacher")
    for name in ("mass_1", "mass_2", "armature", "damping"):
        with pytest.raises(ValueError, match=f"env.{name} must be at least 0 and finite, got -1.0"):
            env.check_params(env.default_params.replace(**{name: -1.0}))


def test_targets_of_reacher_are_uniform_in_the_disc() -> None:
    env = envs.make("reacher")
    states: Any = jax.jit(jax.vmap(lambda key: env.reset_env(key, env.default_params)[1]))(jax.random.split(KEY, 4000))
    squared = np.sum(np.square(states.target), axis=1) / 0.2**2
    assert squared.max() <= 1 + 1e-6
    # The squared distance is uniform in (0, 1): mean 1/2, deviation 1/sqrt(12); four standard errors.
    assert abs(squared.mean() - 0.5) < 4 / np.sqrt(12 * 4000)
    assert np.all(np.abs(np.mean(states.target, axis=0)) < 4 * 0.1 / np.sqrt(4000))
