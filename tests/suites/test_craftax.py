"""Craftax and Craftax-Classic under the contract."""

import copy
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_suites import Native, assert_parity

import envs
import jaxrl
from jaxrl.algorithms.registry import build, describe

suite: Any = pytest.importorskip("craftax.craftax_env", reason="takes Craftax: make test-suites installs it")
pytestmark = pytest.mark.slow

CLASSIC, FULL = "Craftax-Classic-Symbolic-v1", "Craftax-Symbolic-v1"


def native(env_id: str) -> Native:
    """A game by Craftax's own functions; a death in lava or without health, or a won fight, is no time limit."""
    task = suite.make_craftax_env_from_name(env_id, auto_reset=False)
    params = task.default_params

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        obs, state, reward, done, _ = task.step_env(key, state, action, params)
        late = state.timestep >= params.max_timesteps
        return obs, state, reward, done & ~late, late

    return Native(lambda key: task.reset_env(key, params), step)


@functools.cache
def compiled(env_id: str) -> Any:
    """Reset and step of the environment, compiled once for all tests."""
    env: Any = envs.make(f"craftax/{env_id}")
    return env, jax.jit(env.reset_env), jax.jit(env.step)


@pytest.mark.parametrize("env_id", [CLASSIC, FULL])
def test_500_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    ours = assert_parity(envs.make(f"craftax/{env_id}"), native(env_id), key)
    assert np.any(ours.reward > 0.5) and np.any(ours.terminated) and not np.any(ours.truncated)


def test_it_keeps_the_laws():
    envs.check(envs.make(f"craftax/{CLASSIC}"))


def test_death_terminates_and_the_limit_truncates(key: jax.Array):
    """A player with no health left is dead after any step; the suite calls both ends `done`."""
    env, reset, step = compiled(CLASSIC)
    assert env.default_params.max_steps_in_episode == 10_000
    for limit, health, terminated in [(1, 9, False), (10_000, 0, True), (1, 0, True)]:
        params = env.default_params.replace(max_steps_in_episode=jnp.int32(limit))
        _, state = reset(key, params)
        state = state.replace(inner=state.inner.replace(player_health=jnp.asarray(health, jnp.int32)))
        _, fresh, _, died, cut, info = step(key, state, jnp.int32(0), params)
        assert bool(died) == terminated and bool(cut) == (limit == 1)
        assert int(fresh.time) == 0 and info["final_observation"].shape == (1345,)


def test_achievements_are_metrics_and_numbers_are_traced(key: jax.Array):
    """The player starts with a sapling in the hand; placing it, on grass, is an achievement, worth 1."""
    env, reset, step = compiled(CLASSIC)
    assert env.metric_rules["place_plant"] == env.metric_rules["achievements"] == "last"
    assert len(env.metric_rules) == 23
    constants = pytest.importorskip("craftax.craftax_classic.constants")
    params = env.default_params.replace(max_steps_in_episode=jnp.int32(10_000))
    _, state = reset(key, params)
    inner = state.inner.replace(inventory=state.inner.inventory.replace(sapling=jnp.int32(1)))
    ahead = inner.player_position + constants.DIRECTIONS[inner.player_direction]
    inner = inner.replace(map=inner.map.at[ahead[0], ahead[1]].set(constants.BlockType.GRASS.value))
    place = jnp.int32(constants.Action.PLACE_PLANT.value)
    _, _, reward, *_, info = step(key, state.replace(inner=inner), place, params)
    assert float(info["metrics"]["place_plant"]) == float(info["metrics"]["achievements"]) == 1
    assert float(reward) == pytest.approx(1)
    assert not any(
        float(value) for name, value in info["metrics"].items() if name not in ("place_plant", "achievements")
    )
    healths = jax.jit(jax.vmap(lambda health: env.own(params.replace(zombie_health=health)).zombie_health))
    np.testing.assert_array_equal(healths(jnp.array([1, 5])), [1, 5])


def test_the_range_of_returns_is_that_of_achievements_and_health():
    env: Any = envs.make(f"craftax/{CLASSIC}")
    assert env.return_range(env.default_params) == (-0.9, 22.0)
    env = envs.make(f"craftax/{FULL}")
    assert env.return_range(env.default_params) == (-0.9, pytest.approx(226.4))


def test_static_fields_change_shapes_and_names_are_kept(key: jax.Array):
    env = envs.make(f"craftax/{CLASSIC}", map_size=(32, 32), max_cows=1)
    state: Any = jax.eval_shape(env.reset_env, key, env.default_params)[1]
    assert state.inner.map.shape == (32, 32) and state.inner.cows.mask.shape == (1,)
    assert env == envs.make(f"craftax/{CLASSIC}", map_size=[32, 32], max_cows=1) == copy.deepcopy(env)
    assert hash(env) == hash(copy.deepcopy(env)) and env != envs.make(f"craftax/{CLASSIC}")
    spec = describe(jaxrl.ppo(env))
    assert build(spec).env == env


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'craftax/Craftax-Symbolic-v2'; did you mean"):
        envs.make("craftax/Craftax-Symbolic-v2")
    with pytest.raises(ValueError, match="has no static field 'map_sise'; did you mean 'map_size'"):
        envs.make(f"craftax/{FULL}", map_sise=(9, 9))


def test_an_image_of_a_state(key: jax.Array):
    from envs.rendering import frame

    env, reset, _ = compiled(CLASSIC)
    params = env.default_params.replace(max_steps_in_episode=jnp.int32(10_000))
    image = frame(env, reset(key, params)[1], params)
    assert image.shape[2] == 3 and len(np.unique(image)) > 5
