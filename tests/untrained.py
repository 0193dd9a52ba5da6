"""Policies and results with random parameters, as if they had been trained, without compiling anything."""

from typing import Any

import jax
import numpy as np

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result

SMALL: Any = {"num_envs": 2, "num_steps": 4, "hidden": (4,)}
LRS, SEEDS = [1e-3, 1e-2], [3, 5]


def filled(algo: Algorithm, *axes: int) -> Any:
    """Random parameters, leaves `[*axes, ...]`."""
    draws = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: draws.normal(size=(*axes, *leaf.shape)).astype(leaf.dtype), policy_shapes(algo))


def policy_of(algo: Algorithm) -> TrainedPolicy:
    """A policy of seed 3."""
    return TrainedPolicy(algo, filled(algo), {"lr": 1e-3}, 3)


def cartpole_result() -> Result:
    """Two step sizes with two seeds of PPO on CartPole."""
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL))
    sweep = jaxrl.grid(algo.hparams, {"lr": LRS})
    metrics = metrics_dataset({"return": np.zeros((2, 2, 1))}, seeds=SEEDS, env_steps=[8], sweep=sweep)
    return Result(metrics, filled(algo, 2, 2), algo, sweep.hparams)
