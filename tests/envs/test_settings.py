"""Environments under settings of JAX that the process around them has changed."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.abstract_checking import check_abstractly
from envs.adapters.incoming import functional
from envs.base import spaces
from envs.settings import in_own_settings

SETTINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "jax_enable_x64": lambda: jax.enable_x64(True),
    "jax_numpy_dtype_promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "jax_numpy_rank_promotion": lambda: jax.numpy_rank_promotion("raise"),
    "jax_debug_infs": lambda: jax.debug_infs(True),
    "jax_transfer_guard_host_to_device": lambda: jax.transfer_guard("disallow"),
    "jax_transfer_guard_device_to_host": lambda: jax.transfer_guard("disallow_explicit"),
}


def _state(time: Any) -> envs.EnvState:
    return envs.EnvState(time=time)


@dataclasses.dataclass(frozen=True)
class Loose(envs.Environment):
    """An environment of a user that leaves types and ranks to JAX."""

    @property
    def name(self) -> str:
        return "loose"

    @property
    def default_params(self) -> Any:
        return envs.EnvParams(max_steps_in_episode=3)

    def reset_env(self, key: Any, params: Any) -> Any:
        place = jax.random.uniform(key, (4,)) + jnp.zeros(4)
        return place, _state(jnp.zeros((), int))

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        place = jnp.ones((2, 4)) * jnp.arange(4) + action / jnp.zeros(4)
        return place[0], _state(state.time + 1), jnp.sum(place * 0), jnp.array(False), {}

    def action_space(self, params: Any = None) -> Any:
        return spaces.Discrete(2)

    def observation_space(self, params: Any) -> Any:
        return spaces.Box(-jnp.inf, jnp.inf, (4,), jnp.float32)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_replaced_inside_and_restored_after(name: str) -> None:
    usual = getattr(jax.config, name)
    with SETTINGS[name]():
        changed = getattr(jax.config, name)
        assert changed != usual
        assert in_own_settings(lambda: getattr(jax.config, name))() in (usual, "allow")
        assert getattr(jax.config, name) == changed


def test_arrays_and_tracers_of_64_bits_get_32_inside() -> None:
    same = in_own_settings(lambda tree: tree)
    with jax.enable_x64(True):
        tree = {"real": jnp.ones(2), "whole": jnp.arange(2), "key": jax.random.key(0), "text": "x"}
        assert tree["real"].dtype == jnp.float64
        inside = same(tree)
        assert (inside["real"].dtype, inside["whole"].dtype, inside["text"]) == (jnp.float32, jnp.int32, "x")
        assert inside["key"].dtype == tree["key"].dtype
        assert jax.eval_shape(same, jax.ShapeDtypeStruct((), jnp.float64)).dtype == jnp.float32


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("make", [Loose, lambda: envs.make("functional/phys2d/CartPole-v1")], ids=["own", "functional"])
def test_environments_keep_the_laws_under_each_setting(make: Callable[[], Any], name: str) -> None:
    functional._types.cache_clear()
    with SETTINGS[name]():
        check_abstractly(make())


def test_a_step_in_a_program_of_64_bits_computes_in_32() -> None:
    env, key = Loose(), jax.random.key(0)
    with jax.enable_x64(True):
        step = jax.jit(jax.vmap(lambda action: env.step_env(key, state, action, env.default_params)))
        state, actions = _state(jnp.zeros((), jnp.int32)), jnp.ones(2)
        assert actions.dtype == jnp.float64
        obs, after, reward, *_ = step(actions)
    assert (obs.dtype, reward.dtype, after.time.dtype) == (jnp.float32, jnp.float32, jnp.int32)
    assert np.all(np.isinf(obs))
