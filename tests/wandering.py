"""An algorithm whose least difference in one bit shows, and which compiles in no time."""

from typing import Any

import agents
import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.contract import Algorithm
from jaxrl.discounts.parsing import Exponential, prepare

PER_ITERATION = 16


@flax.struct.dataclass
class HParams:
    """How far a step goes."""

    lr: Any = 0.1
    discount: Any = Exponential(0.9)


def wandering() -> Algorithm:
    """Weights that wander chaotically, so that a difference in one bit would be seen, and act by their sum."""

    def step(key: jax.Array, state: jax.Array, hparams: Any, env_params: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        state = jnp.sin(3 * state) + hparams.lr * jax.random.normal(key, state.shape)
        return state, {"norm": jnp.sum(state**2)}

    def act(key: jax.Array, policy: jax.Array, obs: jax.Array, greedy: Any, mask: Any = None) -> jax.Array:
        sampled = jax.random.randint(key, (2,), 0, agents.NUM_ACTIONS)
        return jnp.where(greedy, (jnp.sum(policy) > 0).astype(jnp.int32), sampled)

    return Algorithm(
        name="wander",
        env=agents.Crowd(2),
        config=None,
        hparams=HParams(),
        init=lambda key, hparams, env_params: jax.random.normal(key, (8, 8)),
        step=step,
        policy=lambda state: state,
        act=act,
        env_steps_per_iteration=PER_ITERATION,
        prepare=lambda hparams: hparams.replace(discount=prepare(hparams.discount, 8)),
    )
