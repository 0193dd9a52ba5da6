"""Pickling of algorithms, policies and results, as by joblib and multiprocessing: by builder, never by functions."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from chaotic_algorithm import wandering

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.algorithms.registry import ROWS, make
from jaxrl.bandits.registry import NAMES, policy
from jaxrl.presets.registry import PRESETS
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result

SMALL: Any = {"num_envs": 2, "num_steps": 4, "num_minibatches": 1, "num_epochs": 1, "hidden": (4,)}
LRS, SEEDS = [1e-3, 1e-2], [3, 5]


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def ppo() -> Algorithm:
    return jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL, normalise_observation=True))


def filled(algo: Algorithm, *axes: int) -> Any:
    """Parameters of policies, without compiling anything."""
    draws = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: draws.uniform(0.5, 1, (*axes, *leaf.shape)).astype(leaf.dtype), policy_shapes(algo)
    )


@pytest.mark.parametrize(
    "name", [name if name in ("ppo", "evolve") else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_an_algorithm_comes_back_with_its_functions_and_hyper_parameters(name: str) -> None:
    env = envs.wrappers.time_limit(envs.make("pendulum" if name in ("sac", "td3") else "cartpole"), 20)
    config = dataclasses.replace(make(name, env).config, **ROWS[name].small)
    algo = make(name, env, config)
    algo = algo._replace(hparams=algo.hparams.replace(discount=jaxrl.Hyperbolic(k=0.02)))
    assert again(algo) == algo  # functions are equal only if they are the same, and share compiled programs


def test_parts_of_an_algorithm_that_were_replaced_are_not_lost() -> None:
    algo = ppo()
    for changed in (algo._replace(policy=lambda state, hparams: state), algo._replace(prepare=lambda *_: None)):
        with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
            again(changed)
    for changed in (algo._replace(name="mine", builder=None), wandering()):
        with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
            again(changed)


def test_a_result_and_its_policies_come_back() -> None:
    algo = ppo()
    sweep = jaxrl.grid(algo.hparams, {"lr": LRS})
    metrics = metrics_dataset({"return": np.arange(4.0).reshape(2, 2, 1)}, seeds=SEEDS, env_steps=[8], sweep=sweep)
    result = Result(metrics, filled(algo, 2, 2), algo, sweep.hparams)
    back = again(result)
    assert back.metrics.identical(result.metrics) and back.algo == algo and back.settings == result.settings
    jax.tree.map(np.testing.assert_array_equal, (back.policies, back.hparams), (result.policies, result.hparams))
    chosen, obs = result.policy(lr=1e-2, seed=5), np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    same = again(chosen)
    assert (same.setting, same.seed) == (chosen.setting, 5)
    np.testing.assert_array_equal(same(obs), chosen(obs))
    np.testing.assert_array_equal(back.policy(lr=1e-2, seed=5)(obs), chosen(obs))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["stablehlo", "safetensors", "onnx"])
def test_an_exported_policy_comes_back_without_its_file(suffix: str, tmp_path: Path) -> None:
    algo = ppo()
    file = jaxrl.export_policy(TrainedPolicy(algo, filled(algo)), tmp_path / f"policy.{suffix}")
    exported, obs = jaxrl.load_exported(file), np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    text = pickle.dumps(exported)
    file.unlink()
    np.testing.assert_array_equal(pickle.loads(text).respond(obs)["logits"], exported.respond(obs)["logits"])


def test_presets_sweeps_and_policies_of_bandits_come_back() -> None:
    assert again(PRESETS[0]) == PRESETS[0]
    sweep = jaxrl.grid(ppo().hparams, {"lr": LRS, "discount": [0.9, "beta:mu=0.9,eta=0.5"]})
    assert str(again(sweep)) == str(sweep) and again(sweep).shape == sweep.shape
    for name in NAMES:
        chosen = policy(name)
        assert again(chosen) == chosen
    changed = policy("epsilon-greedy")
    changed = changed._replace(hparams=dataclasses.replace(changed.hparams, epsilon=0.25))
    assert again(changed) == changed
    with pytest.raises((AttributeError, pickle.PicklingError)):
        again(changed._replace(recommend=lambda state, hparams: 0))
