"""Electric motors: their currents by matrix exponentials in float64, their references by their distributions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

import envs
from envs.control.dc_motor import DCMotorState
from envs.control.references import Reference
from envs.control.synchronous_motor import SynchronousMotorState

KEY = jax.random.key(0)
COUNT = 200
EPS = float(np.finfo(np.float32).eps)
RNG = np.random.default_rng(0)


def reference_of(values: np.ndarray) -> Reference:
    return Reference(
        jnp.asarray(values, jnp.float32), jnp.full(values.shape, 0.05), jnp.full(values.shape, 9, jnp.int32)
    )


def steps(name: str, states: Any, actions: np.ndarray) -> Any:
    env: Any = envs.make(name)
    step = jax.jit(jax.vmap(lambda state, action: env.step_env(KEY, state, action, env.default_params)[:4]))
    return jax.tree.map(np.asarray, step(states, jnp.asarray(actions)))


@pytest.mark.parametrize("name", ["motor/dc", "motor/dc-finite"])
def test_a_step_of_the_dc_motor_solves_its_equation(name: str) -> None:
    p: Any = envs.make(name).default_params
    finite = name.endswith("finite")
    currents, values = RNG.uniform(-220, 220, COUNT), RNG.uniform(-0.46, 0.46, (COUNT, 1))
    actions = RNG.integers(4, size=COUNT) if finite else RNG.uniform(-1.5, 1.5, (COUNT, 1))
    time = jnp.zeros(COUNT, jnp.int32)
    states = DCMotorState(time, jnp.asarray(currents, jnp.float32), reference_of(values))
    obs, after, reward, terminated = steps(name, states, actions)
    voltage = p.voltage * (
        np.array([0, 1, -1, 0]).take(actions.astype(int)) if finite else np.clip(actions[:, 0], -1, 1)
    )
    for index in range(COUNT):
        # d/dt (i, 1) = [[-R / L, (u - flux speed) / L], [0, 0]] (i, 1).
        matrix = np.array([[-p.resistance, voltage[index] - p.flux * p.speed], [0, 0]]) / p.inductance
        expected = (linalg.expm(p.dt * matrix) @ [currents[index], 1])[0]
        # Voltages of 4,000 A by 0.08 or less: ten roundings of numbers up to 600.
        assert after.current[index] == pytest.approx(expected, abs=10 * 600 * EPS)
        if abs(abs(expected) - p.max_current) < 0.01:
            continue
        assert terminated[index] == (abs(expected) > p.max_current)
        error = abs(expected / p.max_current - np.float32(values[index, 0]))
        assert reward[index] == pytest.approx(-10 if terminated[index] else -error / 2, abs=1e-5)
    assert terminated.any() and not terminated.all()
    np.testing.assert_allclose(obs[:, 0], after.current / p.max_current, rtol=1e-6)


@pytest.mark.parametrize("name", ["motor/synchronous", "motor/synchronous-finite"])
def test_a_step_of_the_synchronous_motor_solves_its_equations(name: str) -> None:
    """Voltages of three phases by Clarke's and Park's matrices, then a linear system with constant inputs."""
    p: Any = envs.make(name).default_params
    finite = name.endswith("finite")
    currents, values = RNG.uniform(-320, 320, (COUNT, 2)), RNG.uniform(-0.6, 0.6, (COUNT, 2))
    angles = RNG.uniform(-np.pi, np.pi, COUNT)
    actions = RNG.integers(8, size=COUNT) if finite else RNG.uniform(-1.2, 1.2, (COUNT, 3))
    time = jnp.zeros(COUNT, jnp.int32)
    ours = jnp.asarray(currents, jnp.float32), jnp.asarray(angles, jnp.float32)
    states = SynchronousMotorState(time, *ours, reference=reference_of(values))
    _, after, reward, terminated = steps(name, states, actions)
    w = p.pole_pairs * p.speed
    clarke = np.array([[2, -1, -1], [0, np.sqrt(3), -np.sqrt(3)]]) / 3
    for index in range(COUNT):
        bits = np.array([int(actions[index]) >> shift & 1 for shift in (2, 1, 0)]) if finite else None
        switches = np.clip(actions[index], -1, 1) if bits is None else 2 * bits - 1
        cos, sin = np.cos(angles[index]), np.sin(angles[index])
        u = np.array([[cos, sin], [-sin, cos]]) @ clarke @ switches * p.voltage / 2
        rates = np.array(
            [
                [-p.resistance / p.inductance_d, w * p.inductance_q / p.inductance_d, u[0] / p.inductance_d],
                [
                    -w * p.inductance_d / p.inductance_q,
                    -p.resistance / p.inductance_q,
                    (u[1] - w * p.flux) / p.inductance_q,
                ],
                [0, 0, 0],
            ]
        )
        expected = (linalg.expm(p.dt * rates) @ [*currents[index], 1])[:2]
        np.testing.assert_allclose(after.currents[index], expected, rtol=0, atol=20 * 400 * EPS)
        if abs(np.hypot(*expected) - p.max_current) < 0.01:
            continue
        assert terminated[index] == (np.hypot(*expected) > p.max_current)
        errors = np.abs(expected / p.max_current - np.float32(values[index]))
        assert reward[index] == pytest.approx(-10 if terminated[index] else -errors.sum() / 4, abs=1e-5)
    assert terminated.any() and not terminated.all()
    turned = np.remainder(angles + w * p.dt - after.angle + np.pi, 2 * np.pi) - np.pi
    np.testing.assert_allclose(turned, 0, atol=2e-6)


def test_references_are_random_walks_within_the_nominal_currents() -> None:
    env: Any = envs.make("motor/synchronous")
    params = env.default_params.replace(least_steps=20.0, most_steps=40.0)
    state = env.reset_env(KEY, params)[1]

    def advance(state: Any, key: jax.Array) -> Any:
        after = env.step_env(key, state, jnp.zeros(3), params)[1]
        return after, (state.reference, after.reference)

    before, after = jax.tree.map(np.asarray, jax.lax.scan(advance, state, jax.random.split(KEY, 4000))[1])
    assert np.abs(after.value).max() <= 0.6 and np.abs(after.value).max() > 0.55
    inside = np.abs(after.value) < 0.6
    scaled = ((after.value - before.value) / after.deviation)[inside & (after.deviation < 0.02)]
    # Standard normal: four standard errors of mean and standard deviation; walks that leave are cut off.
    assert abs(scaled.mean()) < 4 / np.sqrt(len(scaled)) and abs(scaled.std() - 1) < 4 / np.sqrt(2 * len(scaled)) + 0.02
    renewed = np.any(after.deviation != before.deviation, axis=1).nonzero()[0]
    logarithms = np.log(after.deviation[renewed])
    assert logarithms.min() >= np.log(1e-3) - 1e-6 and logarithms.max() <= np.log(1e-1) + 1e-6
    one = (after.deviation[:, 0] != before.deviation[:, 0]).nonzero()[0]
    lengths = np.diff(one)
    assert lengths.min() >= 20 and lengths.max() <= 41 and abs(lengths.mean() - 30.5) < 4 * 6 / np.sqrt(len(lengths))


def test_flags_and_parameters_are_checked() -> None:
    with pytest.raises(TypeError, match="finite takes True or False, got 'yes'"):
        envs.make("motor/dc", finite="yes")
    for name in ("motor/dc", "motor/synchronous"):
        env: Any = envs.make(name)
        with pytest.raises(ValueError, match="max_current"):
            env.check_params(env.default_params.replace(max_current=0.0))


@pytest.mark.parametrize("name", ["motor/dc", "motor/synchronous-finite"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nominal_current": 500.0}, r"env.nominal_current must be at most env.max_current, \d+.0, got 500.0"),
        ({"nominal_current": -1.0}, "env.nominal_current must be above 0"),
        ({"most_deviation": -1.0}, "env.most_deviation must be above 0"),
        (
            {"least_deviation": np.array([1e-4, 0.2])},
            "env.least_deviation must be at most env.most_deviation, 0.1, got",
        ),
        ({"least_steps": 3000.0}, "env.least_steps must be at most env.most_steps, 2000.0, got 3000.0"),
        ({"most_steps": np.nan}, "env.most_steps must be at least 0"),
    ],
)
def test_references_outside_their_limits_are_refused(name: str, changes: Any, message: str) -> None:
    env: Any = envs.make(name)
    with pytest.raises(ValueError, match=message):
        env.check_params(env.default_params.replace(**changes))


def test_a_winding_of_hardly_any_resistance_is_an_integral_of_the_voltage() -> None:
    """With R dt / L = 5e-10 the current rises by dt / L (u - flux speed), to R dt / L and a few roundings of it."""
    env: Any = envs.make("motor/dc")
    params = env.default_params.replace(resistance=1e-10)
    state = env.reset_env(KEY, params)[1]
    after = env.step_env(KEY, state, jnp.array([0.7]), params)[1]
    assert float(after.current) == pytest.approx(1e-4 / 19e-6 * (0.7 * 60 - 0.165 * 100), rel=10 * EPS)
