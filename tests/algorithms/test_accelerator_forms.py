"""Programs in the form for accelerators compute what those for CPUs do, up to rounding."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.base import spaces
from envs.loops import traced_for
from jaxrl.algorithms.registry import ROWS, make

# Adam moves a weight whose gradient is nothing but rounding by up to its step size; the rest agrees to rounding.
SHARE_OF_WEIGHTS = 0.98
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{name: (name, "pendulum" if name in ("sac", "td3") else "cartpole", {}) for name in ROWS if name != "evolve"},
    "gru": ("ppo", "memory/repeat-first", {"memory": "gru", "memory_size": 4}),
    "lstm": ("a2c", "memory/repeat-first", {"memory": "lstm", "memory_size": 4}),
    "images": ("ppo", "gymnax/Breakout-MinAtar", {"network": "cnn", "channels": (4,), "hidden": (8,)}),
    "crowd": ("ppo", "crowd/circle", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_iteration_is_the_same_in_both_forms(name: str):
    algorithm, environment, fields = CASES[name]
    env = envs.make(environment)
    algo = make(algorithm, env, dataclasses.replace(make(algorithm, env).config, **{**ROWS[algorithm].small, **fields}))
    key = jax.random.key(3)
    hparams = algo.prepare(algo.hparams) if algo.prepare is not None else algo.hparams

    def iteration() -> Any:
        # New functions, so that nothing traced for the other platform is taken again.
        begun = jax.jit(lambda key: algo.init(key, hparams, env.default_params))(key)
        step = jax.jit(lambda key, state: algo.step(key, jnp.int32(0), state, hparams, env.default_params))
        state, metrics = step(jax.random.key(4), begun)
        return algo.policy(state, hparams), metrics

    usual = iteration()
    with traced_for("gpu"):
        accelerated = iteration()
    assert jax.tree.structure(usual) == jax.tree.structure(accelerated)
    pairs = list(zip(jax.tree.leaves(usual), jax.tree.leaves(accelerated), strict=True))
    close = [np.isclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True).ravel() for one, other in pairs]
    assert np.concatenate(close).mean() >= SHARE_OF_WEIGHTS
    assert max(float(np.max(np.abs(one - other), initial=0.0)) for one, other in pairs if one.dtype.kind == "f") < 0.1


class Blind(type(envs.make("cartpole"))):
    """CartPole whose observations are empty."""

    def observation_space(self, params: Any = None) -> Any:
        return spaces.Box(-1.0, 1.0, (0,), np.dtype(np.float32))

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        obs, state = super().reset_env(key, params)
        return obs[:0], state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, *others = super().step_env(key, state, action, params)
        return obs[:0], *others


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_observations_may_be_empty(platform: str):
    env = Blind()
    algo = make("a2c", env)
    with traced_for(platform):
        arguments = (algo.hparams, env.default_params)
        state = jax.eval_shape(lambda key: algo.init(key, *arguments), jax.random.key(0))
        stepped, _ = jax.eval_shape(lambda state: algo.step(jax.random.key(0), jnp.int32(0), state, *arguments), state)
    assert jax.tree.structure(stepped) == jax.tree.structure(state)
