"""A program of a user, which type checkers accept; they know the types of what it gets."""

import os
from dataclasses import dataclass
from typing import Any, assert_type

import jax
import jax.numpy as jnp
from flax import struct

import envs
import jaxrl


@struct.dataclass
class State(envs.EnvState):
    """The state of a task."""

    position: jax.Array


@dataclass(frozen=True)
class Task(envs.Environment):
    """A task of a user."""

    far: int = 4

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, State]:
        """Return the first observation and state."""
        state = State(time=jnp.int32(0), position=jnp.int32(0))
        return jnp.float32([0.0]), state


algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=4, memory="gru"))
assert_type(algo, jaxrl.Algorithm)
sweep = jaxrl.grid(algo.hparams, {"lr": [3e-4, 1e-3], "discount": [0.98, jaxrl.Hyperbolic(k=0.02)]})
result = jaxrl.train(algo, sweep, seeds=4, env_steps=1_000, out="runs/typed")
assert_type(result, jaxrl.Result)
assert_type(jaxrl.train("ppo", "cartpole", seeds=range(3)), jaxrl.Result)
assert_type(str(result.table()), str)
assert_type(jaxrl.load_result(os.path.join("runs", "typed")), jaxrl.Result)
assert_type(jaxrl.Hyperbolic(k=0.02), jaxrl.Hyperbolic)
jaxrl.ppo(Task(far=8)).hparams.replace(lr=1e-3)
