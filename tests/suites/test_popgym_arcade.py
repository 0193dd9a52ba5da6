"""POPGym Arcade's games under the contract."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_suites import Native, assert_parity

import envs
import jaxrl
from jaxrl.algorithms.registry import build, describe

suite: Any = pytest.importorskip(
    "popgym_arcade.registration", reason="takes POPGym Arcade: make test-suites installs it"
)
pytestmark = pytest.mark.slow

GAMES = (
    "AutoEncodeEasy",
    "BattleShipEasy",
    "BreakoutEasy",
    "CartPoleEasy",
    "CountRecallEasy",
    "MineSweeperEasy",
    "NavigatorEasy",
    "NoisyCartPoleHard",
    "SkittlesEasy",
    "TetrisEasy",
)


def native(env_id: str, **fields: Any) -> Native:
    """A game by POPGym Arcade's own functions.

    What it calls terminated includes the time limit in Breakout and Tetris; its `discount` asks gymnax 1.0 for a method
    that it lacks, and is not compared.
    """
    task, params = suite.make(env_id, **fields)
    task.discount = lambda state, params: 1.0
    limit = getattr(task, "max_steps_in_episode", None) or task.max_episode_length

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        obs, state, reward, _, info = task.step_env(key, state, action, params)
        times = {name: getattr(state, name) for name in ("alreadyMove", "timestep", "time") if hasattr(state, name)}
        late = next(iter(times.values())) >= limit
        terminated = jnp.asarray(info["terminated"], bool)
        if env_id.startswith(("Breakout", "Tetris")):
            terminated &= ~late
        return obs, state, reward, terminated, late

    return Native(lambda key: task.reset_env(key, params), step)


@pytest.mark.parametrize("env_id", GAMES)
def test_500_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    ours = assert_parity(envs.make(f"popgym_arcade/{env_id}"), native(env_id), key)
    assert ours.obs.dtype == np.uint8 and len(np.unique(ours.obs)) > 5


def test_twins_that_hide_the_state_equal_the_suites_own(key: jax.Array):
    env = envs.make("popgym_arcade/CartPoleEasy", partial_obs=True)
    hidden = assert_parity(env, native("CartPoleEasy", partial_obs=True), key, steps=100)
    seen = assert_parity(envs.make("popgym_arcade/CartPoleEasy"), native("CartPoleEasy"), key, steps=100)
    np.testing.assert_array_equal(hidden.reward, seen.reward)
    assert np.any(hidden.obs != seen.obs)


@pytest.mark.parametrize("env_id", ["CartPoleEasy", "BattleShipEasy"])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"popgym_arcade/{env_id}"))


def ended(env: Any, key: jax.Array, action: int, limit: int) -> Any:
    """The number of steps to the end of an episode of one action, both flags, the return, and both observations."""
    params = env.default_params.replace(max_steps_in_episode=limit)
    _, state = env.reset(key, params)
    total = 0.0
    for count in range(1, limit + 1):
        obs, state, reward, terminated, truncated, info = env.step(key, state, action, params)
        total += float(reward)
        if bool(terminated) or bool(truncated):
            return count, bool(terminated), bool(truncated), total, obs, info["final_observation"]
    raise AssertionError(f"no end within {limit} steps")


def test_a_fallen_pole_terminates_and_the_limit_truncates(key: jax.Array):
    """The suite sees the fall one step late, and pays nothing for that step; each other step pays 1/200."""
    env: Any = envs.make("popgym_arcade/CartPoleEasy")
    assert env.default_params.max_steps_in_episode == 200
    count, terminated, truncated, total, obs, last = ended(env, key, 2, 200)
    assert terminated and not truncated and total == pytest.approx((count - 1) / 200)
    assert np.any(last != obs)
    count, terminated, truncated, *_ = ended(env, key, 2, 3)
    assert (count, terminated, truncated) == (3, False, True)


def test_the_limit_of_breakout_is_no_termination(key: jax.Array):
    env: Any = envs.make("popgym_arcade/BreakoutEasy")
    assert env.default_params.max_steps_in_episode == 2000
    count, terminated, truncated, *_ = ended(env, key, 4, 3)
    assert (count, terminated, truncated) == (3, False, True)


def test_parameters_are_traced(key: jax.Array):
    env: Any = envs.make("popgym_arcade/CartPoleEasy")

    @jax.jit
    @jax.vmap
    def speed(force: jax.Array) -> Any:
        params = env.default_params.replace(force_mag=force)
        _, state = env.reset_env(key, params)
        return env.step_env(key, state, 3, params)[1].inner.x_dot

    weak, strong = speed(jnp.array([1.0, 10.0]))
    assert float(strong) > float(weak)


def test_static_fields_change_shapes_and_names_are_kept(key: jax.Array):
    env = envs.make("popgym_arcade/CartPoleEasy", obs_size=256)
    assert jax.eval_shape(env.reset_env, key, env.default_params)[0].shape == (256, 256, 3)
    assert env == envs.make("popgym_arcade/CartPoleEasy", obs_size=256) == copy.deepcopy(env)
    assert hash(env) == hash(copy.deepcopy(env)) and env != envs.make("popgym_arcade/CartPoleEasy")
    spec = describe(jaxrl.ppo(env))
    assert spec["environment"] == {"name": "popgym_arcade/CartPoleEasy", "static": {"obs_size": 256}}
    assert build(spec).env == env


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'popgym_arcade/CartPoleEsy'; did you mean"):
        envs.make("popgym_arcade/CartPoleEsy")
    with pytest.raises(ValueError, match="has no static field 'partial'; did you mean 'partial_obs'"):
        envs.make("popgym_arcade/CartPoleEasy", partial=True)
    with pytest.raises(ValueError, match="obs_size must be one of 128, 256, got 64"):
        envs.make("popgym_arcade/CartPoleEasy", obs_size=64)
    with pytest.raises(TypeError, match="partial_obs takes True or False, got 'no'"):
        envs.make("popgym_arcade/CartPoleEasy", partial_obs="no")


def test_an_image_of_a_state(key: jax.Array):
    from envs.rendering import frame

    env = envs.make("popgym_arcade/CartPoleEasy")
    image = frame(env, env.reset_env(key, env.default_params)[1], env.default_params)
    assert image.shape[2] == 3 and len(np.unique(image)) > 5
