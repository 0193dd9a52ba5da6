"""An algorithm that amplifies a difference in one bit, and compiles quickly."""

from typing import Any

import agents
import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.contract import Algorithm, prepared_for
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning.actor import memoryless

PER_ITERATION = 16


@flax.struct.dataclass
class HParams:
    """Size of a step."""

    lr: Any = 0.1
    discount: Any = Exponential(0.9)


def wandering() -> Algorithm:
    """An algorithm whose weights wander chaotically, which shows a difference in one bit, and act by their sum."""

    def step(
        key: jax.Array, iteration: jax.Array, state: jax.Array, hparams: Any, env_params: Any
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        state = jnp.sin(3 * state) + hparams.lr * jax.random.normal(key, state.shape)
        return state, {"norm": jnp.sum(state**2)}

    def scores(policy: jax.Array, obs: jax.Array, mask: Any) -> dict[str, jax.Array]:
        return {"sum": jnp.broadcast_to(jnp.sum(policy), obs.shape[:-1])}

    def choose(noise: Any, scores: dict[str, jax.Array], greedy: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
        best = (scores["sum"] > 0).astype(jnp.int32)
        action = best if noise is None else jnp.where(greedy, best, noise)
        return action, action

    return Algorithm(
        name="wander",
        env=agents.Crowd(2),
        config=None,
        hparams=HParams(),
        init=lambda key, hparams, env_params: jax.random.normal(key, (8, 8)),
        step=step,
        policy=lambda state, hparams: state,
        actor=memoryless(scores, lambda key, shape: jax.random.randint(key, shape, 0, agents.NUM_ACTIONS), choose),
        env_steps_per_iteration=PER_ITERATION,
        prepare=prepared_for(8),
        discount=lambda hparams: hparams.discount,
        warm_start=lambda state, policy: policy,
    )
