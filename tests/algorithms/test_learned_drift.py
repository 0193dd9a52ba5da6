"""PPO with a learned drift: at its initial weights whole trainings are those of PPO, and other weights change them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask

import jaxrl
from jaxrl.algorithms.registry import ROWS
from jaxrl.learning.drift import Drift

SEEDS = 3


@functools.cache
def trained(**fields: Any) -> Any:
    """Three runs of several iterations, with the default hyper-parameters."""
    algo = jaxrl.ppo(LinearTask(discrete=True), jaxrl.PPOConfig(**{**ROWS["ppo"].small, **fields}))
    train = jaxrl.make_train(algo, env_steps=5 * algo.env_steps_per_iteration, evals=1, eval_episodes=2)
    return jax.jit(jax.vmap(train, in_axes=(0, None))), algo.hparams


def numbers(output: Any) -> list[bytes]:
    """Bytes of every leaf of the state, the policy and the metrics."""
    keys = jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf, output
    )
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(keys)]


@pytest.mark.slow
def test_a_training_with_the_initial_weights_is_that_of_ppo_bit_for_bit() -> None:
    keys = jax.random.split(jax.random.key(3), SEEDS)
    (plain, defaults), (learned, hparams) = trained(), trained(drift="learned")
    assert defaults.drift is None and hparams.drift == Drift.initial(8)
    assert numbers(learned(keys, hparams)) == numbers(plain(keys, defaults))
    assert numbers(learned(keys, hparams.replace(drift=None))) == numbers(plain(keys, defaults))
    offset = hparams.replace(drift=jax.tree.map(lambda leaf: leaf + np.float32(0.5), hparams.drift))
    assert numbers(learned(keys, offset)) != numbers(plain(keys, defaults))


def test_weights_of_another_width_or_of_the_clip_are_refused() -> None:
    algo = jaxrl.ppo(LinearTask(discrete=True), jaxrl.PPOConfig(**ROWS["ppo"].small))
    with pytest.raises(ValueError, match="drift has no effect with PPOConfig"):
        jaxrl.train(algo, algo.hparams.replace(drift=Drift.initial(8)), env_steps=100)
    with pytest.raises(TypeError, match="drift takes a Drift"):
        jaxrl.train(algo, algo.hparams.replace(drift=0.5), env_steps=100)
    with pytest.raises(TypeError, match="drift takes a Drift, got a function"):
        jaxrl.PPOHParams(drift=Drift.initial)
    with pytest.raises(TypeError, match=r"lr takes a number, got Drift.*drift of PPOHParams can be a Drift"):
        jaxrl.PPOHParams(lr=Drift.initial(2))
