"""Agents of the study on known optima: configurations and hyper-parameters by algorithm and task."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jaxrl
from jaxrl.presets.preset import Preset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxrl.algorithms.contract import Algorithm

TASKS = ("fishery", "inventory", "stopping", "lq/double-integrator")

__all__ = ["AGENTS", "TASKS", "Agent", "agent"]


class Agent(NamedTuple):
    """Settings of an algorithm on a task.

    Attributes:
      algorithm: Name of the algorithm.
      config: Static configuration.
      hparams: Hyper-parameters other than the discount that differ from the defaults, `{name: value}`.
      env_steps: Number of environment steps of a run.
    """

    algorithm: str
    config: Any
    hparams: Mapping[str, Any]
    env_steps: int


def agent(name: str, task: str) -> tuple[Algorithm, int]:
    """An algorithm of the study on a task, and the number of environment steps of a run."""
    chosen = AGENTS[name][task]
    preset = Preset(chosen.algorithm, task, chosen.config, dict(chosen.hparams), chosen.env_steps)
    return preset.algo, chosen.env_steps


_NORMALISED: Any = {"normalise_observation": True, "normalise_reward": True}
_PPO = {
    "lq/double-integrator": Agent(
        "ppo",
        jaxrl.PPOConfig(num_envs=16, num_steps=128, num_epochs=10, num_minibatches=8, **_NORMALISED),
        {"lr": 1e-3, "lr_end": 0.0, "lam": 0.95, "entropy_coef": 0.0, "log_std_init": -2.5},
        300_000,
    ),
    **{
        task: Agent("ppo", jaxrl.preset("ppo", task).config, jaxrl.preset("ppo", task).hparams, env_steps)
        for task, env_steps in (("fishery", 300_000), ("inventory", 200_000), ("stopping", 100_000))
    },
}
_ANNEALED = {"lr": 3e-3, "lr_end": 0.0, "lam": 0.95, "entropy_coef": 0.0}
_A2C = jaxrl.A2CConfig(num_envs=16, num_steps=16, **_NORMALISED)
_A2C_ON = {
    "lq/double-integrator": {**_ANNEALED, "log_std_init": -2.5},
    "fishery": {**_ANNEALED, "log_std_init": -2.0},
    "inventory": {**_ANNEALED, "entropy_coef": 0.03},
    "stopping": _ANNEALED,
}
_EVOLVED = jaxrl.EvolveConfig(normalise_observation=True)
_EVOLVED_ON = {
    "lq/double-integrator": {"lr": 0.01, "std": 0.05},
    "fishery": {"lr": 0.03, "std": 0.05},
    "inventory": {"lr": 0.03, "std": 0.2},
    "stopping": {"lr": 0.01, "std": 0.2},
}
_REPLAYED: Any = {"num_envs": 16, "heads": "joint"}
_VALUES = jaxrl.DQNConfig(
    num_envs=8, num_steps=8, num_updates=16, batch_size=64, buffer_size=51_200, dueling=True, heads="joint"
)

AGENTS: Mapping[str, Mapping[str, Agent]] = MappingProxyType(
    {
        "ppo": _PPO,
        "ppo-mixture": {
            task: _PPO[task]._replace(config=dataclasses.replace(_PPO[task].config, critic="mixture", critic_heads=8))
            for task in ("fishery",)
        },
        "a2c": {task: Agent("a2c", _A2C, _A2C_ON[task], 150_000) for task in TASKS},
        "sac": {"fishery": Agent("sac", jaxrl.SACConfig(**_REPLAYED), {"lr": 3e-3}, 30_000)},
        "td3": {"fishery": Agent("td3", jaxrl.TD3Config(**_REPLAYED), {"lr": 3e-3}, 30_000)},
        "dqn": {
            "inventory": Agent("dqn", _VALUES, {"lr": 1e-3}, 40_000),
            "stopping": Agent("dqn", _VALUES, {"lr": 1e-3}, 20_000),
        },
        "evolve": {task: Agent("evolve", _EVOLVED, _EVOLVED_ON[task], 1_000_000) for task in TASKS},
    }
)
