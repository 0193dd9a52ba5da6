"""The motors, compared with gym-electric-motor step by step: `make test-suites SUITES=electric_motor`."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.control.dc_motor import DCMotorState
from envs.control.references import Reference
from envs.control.synchronous_motor import SynchronousMotorState

gem: Any = pytest.importorskip(
    "gym_electric_motor", reason="takes gym-electric-motor: make test-suites SUITES=electric_motor installs it"
)
STEPS = 500
PAIRS = {
    "motor/dc": "Cont-CC-PermExDc-v0",
    "motor/dc-finite": "Finite-CC-PermExDc-v0",
    "motor/synchronous": "Cont-CC-PMSM-v0",
    "motor/synchronous-finite": "Finite-CC-PMSM-v0",
}


@pytest.mark.parametrize("name", PAIRS)
def test_steps_rewards_and_flags_are_those_of_the_original(name: str) -> None:
    """500 random steps, each from the original's state: currents within 1e-6 of their limit, as float32 has them."""
    env: Any = envs.make(name)
    params = env.default_params
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs: Any = gem.make(PAIRS[name])
    system = theirs.unwrapped.physical_system
    where = [system.state_names.index(each) for each in (["i"] if "dc" in name else ["i_sd", "i_sq", "epsilon"])]
    rng = np.random.default_rng(0)
    (state, reference), _ = theirs.reset(seed=0)
    step = jax.jit(lambda state, action: env.step_env(jax.random.key(0), state, action, params))
    ends = 0
    for _ in range(STEPS):
        values = jnp.asarray(reference, jnp.float32)
        following = Reference(values, jnp.full(values.shape, 0.05), jnp.full(values.shape, 9, jnp.int32))
        numbers = state[where]
        if "dc" in name:
            ours = DCMotorState(jnp.int32(0), jnp.float32(numbers[0] * params.max_current), following)
        else:
            currents = jnp.asarray(numbers[:2] * params.max_current, jnp.float32)
            ours = SynchronousMotorState(jnp.int32(0), currents, jnp.float32(numbers[2] * np.pi), following)
        box = not env.finite
        action = rng.uniform(-1, 1, theirs.action_space.shape) if box else int(rng.integers(theirs.action_space.n))
        obs, _, reward, terminated, _ = step(ours, jnp.asarray(action))
        (state, reference), expected, ended, truncated, _ = theirs.step(action)
        assert not truncated and bool(terminated) == ended
        np.testing.assert_allclose(obs[: 1 if "dc" in name else 2], state[where[:2]], rtol=0, atol=1e-6)
        np.testing.assert_allclose(reward, expected, rtol=0, atol=1e-6)
        if ended:
            ends += 1
            (state, reference), _ = theirs.reset()
    assert ends > 0 or "finite" in name
