"""Agents of the study on known optima: settings by algorithm and task, in the form of presets."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

import jaxrl
from jaxrl.presets.preset import Preset

if TYPE_CHECKING:
    from collections.abc import Mapping

TASKS = ("fishery", "inventory", "stopping", "lq/double-integrator")

__all__ = ["AGENTS", "TASKS"]

_PPO = {task: jaxrl.preset("ppo", task) for task in TASKS}
_ANNEALED = {"lr": 3e-3, "lr_end": 0.0, "lam": 0.95, "entropy_coef": 0.0}
_A2C = jaxrl.A2CConfig(num_envs=16, num_steps=16, normalise_observation=True, normalise_reward=True)
_A2C_ON = {
    "lq/double-integrator": {**_ANNEALED, "log_std_init": -2.5},
    "fishery": {**_ANNEALED, "log_std_init": -2.0},
    "inventory": {**_ANNEALED, "entropy_coef": 0.03},
    "stopping": _ANNEALED,
}
_EVOLVED = jaxrl.EvolveConfig(normalise_observation=True)
_EVOLVED_ON = {
    "fishery": {"lr": 0.03, "std": 0.05},
    "inventory": {"lr": 0.03, "std": 0.2},
    "stopping": {"lr": 0.01, "std": 0.2},
}
_SAC = jaxrl.preset("sac", "fishery")
_VALUES = jaxrl.DQNConfig(
    num_envs=8, num_steps=8, num_updates=16, batch_size=64, buffer_size=51_200, dueling=True, heads="joint"
)

AGENTS: Mapping[str, Mapping[str, Preset]] = MappingProxyType(
    {
        "ppo": _PPO,
        "ppo-mixture": {
            task: _PPO[task]._replace(config=dataclasses.replace(_PPO[task].config, critic="mixture", critic_heads=8))
            for task in ("fishery",)
        },
        "a2c": {task: Preset("a2c", task, _A2C, _A2C_ON[task], 150_000) for task in TASKS},
        "sac": {"fishery": _SAC._replace(config=dataclasses.replace(_SAC.config, heads="joint"))},
        "td3": {"fishery": Preset("td3", "fishery", jaxrl.TD3Config(num_envs=16, heads="joint"), {"lr": 3e-3}, 30_000)},
        "dqn": {
            "inventory": Preset("dqn", "inventory", _VALUES, {"lr": 1e-3}, 40_000),
            "stopping": Preset("dqn", "stopping", _VALUES, {"lr": 1e-3}, 20_000),
        },
        "evolve": {
            "lq/double-integrator": jaxrl.preset("evolve", "lq/double-integrator"),
            **{task: Preset("evolve", task, _EVOLVED, hparams, 1_000_000) for task, hparams in _EVOLVED_ON.items()},
        },
    }
)
