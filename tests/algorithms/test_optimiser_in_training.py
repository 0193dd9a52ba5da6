"""Algorithms with a learned optimiser: trainings at its initial weights are those of Adam, others are its own runs."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask
from quick_jit import quick_jit
from reference.learned_optimiser import random_optimiser

import envs
import jaxrl
from jaxrl.algorithms.registry import ROWS, builder_of, config_class
from jaxrl.learning.optimisers import LearnedOptimiser
from jaxrl.runtime.training import _warn_of_schedules

ON_POLICY = ("ppo", "spo", "mdpo", "ppo_kl", "a2c", "reinforce")
LEARNED = {"optimiser": "learned", "optimiser_width": 3}
RUN: dict[str, Any] = {"evals": 1, "eval_episodes": 2, "progress": False}


def built(name: str, discrete: bool = True, **fields: Any) -> Any:
    return builder_of(name)(
        LinearTask(discrete=discrete), config_class(builder_of(name))(**{**ROWS[name].small, **fields})
    )


def trained(algo: Any, hparams: Any = None) -> list[bytes]:
    """Bytes of the policies and metrics of three runs of several iterations."""
    result = jaxrl.train(algo, hparams, seeds=3, env_steps=5 * algo.env_steps_per_iteration, **RUN)
    metrics = {name: result.values(str(name)) for name in result.metrics.data_vars}
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((result.policies, metrics))]


def numbers(state: Any, *others: Any) -> list[bytes]:
    """Bytes of every leaf of a state, but for the momenta of a learned optimiser, and of other outputs."""
    clipping, steps, *rest = state.optimiser
    state = state._replace(optimiser=(clipping, getattr(steps, "adam", steps), *rest))
    keys = jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf,
        (state, *others),
    )
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(keys)]


def test_iterations_with_the_initial_weights_are_those_of_adam_bit_for_bit() -> None:
    iterations = []
    for fields in ({}, LEARNED):
        algo = built("a2c", **fields)
        hparams, params = algo.prepare(algo.hparams), algo.env.default_params
        state, step = quick_jit(algo.init)(jax.random.key(0), hparams, params), quick_jit(algo.step)
        for i in range(3):
            state, metrics = step(jax.random.key(i), jnp.int32(i), state, hparams, params)
        iterations.append(numbers(state, metrics))
    assert iterations[0] == iterations[1]


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
@pytest.mark.parametrize("name", ON_POLICY)
def test_a_training_with_the_initial_weights_is_that_of_adam_bit_for_bit(name: str) -> None:
    discrete = name != "spo"
    plain, learned = built(name, discrete), built(name, discrete, **LEARNED)
    assert plain.hparams.optimiser is None and learned.hparams.optimiser == LearnedOptimiser.initial(3)
    expected = trained(plain)
    assert trained(learned) == expected
    others = trained(learned, learned.hparams.replace(optimiser=random_optimiser(0)))
    assert len(others) == len(expected) and others != expected
    if name == "ppo":
        assert trained(learned, learned.hparams.replace(optimiser=None)) == expected


@pytest.mark.parametrize("name", ON_POLICY)
def test_the_rule_gets_the_share_of_the_run(name: str) -> None:
    algo = built(name, **LEARNED)
    constant = algo.hparams.replace(**dict.fromkeys(algo.hparams.final_fractions, 1.0))
    prepared = algo.prepare(constant, None, 200)
    assert prepared.curved == ["optimiser"] and prepared.anneal_env_steps == 200
    for env_steps, share in ((0, 0.0), (50, 0.25), (400, 1.0)):
        now = prepared.at(jnp.float32(env_steps))
        assert float(now.optimiser.share) == share and now.optimiser.weights == algo.hparams.optimiser
        assert float(now.lr) == pytest.approx(float(prepared.lr)) and now.curved == []
    assert float(algo.prepare(constant).at(jnp.float32(50)).optimiser.share) == 0, "of an unknown length"


def test_a_longer_run_keeps_the_end_of_the_share_and_says_so() -> None:
    algo = built("a2c", **LEARNED)
    hparams = jax.tree.map(np.float32, algo.hparams)
    with pytest.warns(RuntimeWarning, match="schedules of optimiser end after the first 100 env steps"):
        _warn_of_schedules(100, *(algo.prepare(hparams, None, env_steps) for env_steps in (100, 200)))


@pytest.mark.slow
@pytest.mark.seconds_to_compile(30)
def test_the_state_of_the_optimiser_is_planned() -> None:
    states = [
        jaxrl.plan(built("a2c", **fields), env_steps=100, seeds=4, block=4, measure=False, eval_episodes=2).states
        for fields in ({}, LEARNED)
    ]
    weights = jax.eval_shape(built("a2c").init, jax.random.key(0), built("a2c").hparams, LinearTask().default_params)
    momenta = 3 * 4 * sum(leaf.size for leaf in jax.tree.leaves(weights.weights))
    assert states[1] - states[0] >= 4 * momenta


def test_other_weights_are_refused() -> None:
    plain, learned = built("a2c"), built("a2c", **LEARNED)
    with pytest.raises(ValueError, match="optimiser has no effect with an optimiser that is not learned, got Learned"):
        jaxrl.train(plain, plain.hparams.replace(optimiser=random_optimiser(0)), env_steps=100, **RUN)
    with pytest.raises(ValueError, match="optimiser takes the weights of optimiser_width=3 hidden units, got 2"):
        jaxrl.train(learned, learned.hparams.replace(optimiser=random_optimiser(0, 2)), env_steps=100, **RUN)
    with pytest.raises(TypeError, match=r"^optimiser takes a LearnedOptimiser, or None for the initial w.*, got"):
        jaxrl.train(learned, learned.hparams.replace(optimiser=0.5), env_steps=100, **RUN)


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
def test_a_sweep_over_weights_is_its_runs_bit_for_bit() -> None:
    algo, several = built("a2c", **LEARNED), [random_optimiser(seed) for seed in (0, 1)]
    steps = 4 * algo.env_steps_per_iteration
    together = jaxrl.train(algo, jaxrl.grid(algo.hparams, {"optimiser": several}), env_steps=steps, block=2, **RUN)
    for i, weights in enumerate(several):
        alone = jaxrl.train(algo, algo.hparams.replace(optimiser=weights), env_steps=steps, block=2, **RUN)
        part, one = (jax.tree.leaves(result.policies.params) for result in (together, alone))
        for leaf, single in zip(part, one, strict=True):
            np.testing.assert_array_equal(np.ravel(leaf[i]), np.ravel(single))
    assert together.metrics.coords["optimiser"].values.tolist() == [str(weights) for weights in several]


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
def test_a_resumed_run_is_the_whole_run_bit_for_bit(tmp_path: Path) -> None:
    algo = jaxrl.a2c(envs.make("cartpole"), jaxrl.A2CConfig(hidden=(4,), **LEARNED))
    one = 3 * algo.env_steps_per_iteration
    hparams = algo.hparams.replace(optimiser=random_optimiser(0), anneal_env_steps=2.0 * one)
    jaxrl.train(algo, hparams, env_steps=one, out=tmp_path / "run", **RUN)
    jaxrl.resume(tmp_path / "run", env_steps=2 * one)
    resumed = jaxrl.load_result(tmp_path / "run")
    whole = jaxrl.train(algo, hparams, env_steps=2 * one, **RUN)
    jax.tree.map(np.testing.assert_array_equal, resumed.policies, whole.policies)
    assert resumed.algo is not None and resumed.algo.config == algo.config
    assert resumed.algo.hparams.optimiser == hparams.optimiser


@pytest.mark.slow
def test_the_laws_of_algorithms_hold() -> None:
    jaxrl.check(built("ppo", **LEARNED))
