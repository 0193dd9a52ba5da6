"""Agents of the study on known optima: settings by algorithm and task, in the form of presets."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jaxrl
from jaxrl.presets.preset import Preset

if TYPE_CHECKING:
    from collections.abc import Mapping

TASKS = ("fishery", "inventory", "stopping", "lq/double-integrator")

__all__ = ["AGENTS", "TASKS"]

_NORMALISED: Any = {"normalise_observation": True, "normalise_reward": True}
_PPO = {
    "lq/double-integrator": Preset(
        "ppo",
        "lq/double-integrator",
        jaxrl.PPOConfig(num_envs=16, num_steps=128, num_epochs=10, num_minibatches=8, **_NORMALISED),
        {"lr": 1e-3, "lr_end": 0.0, "lam": 0.95, "entropy_coef": 0.0, "log_std_init": -2.5},
        300_000,
    ),
    **{task: jaxrl.preset("ppo", task) for task in ("fishery", "inventory", "stopping")},
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

AGENTS: Mapping[str, Mapping[str, Preset]] = MappingProxyType(
    {
        "ppo": _PPO,
        "ppo-mixture": {
            task: _PPO[task]._replace(config=dataclasses.replace(_PPO[task].config, critic="mixture", critic_heads=8))
            for task in ("fishery",)
        },
        "a2c": {task: Preset("a2c", task, _A2C, _A2C_ON[task], 150_000) for task in TASKS},
        "sac": {"fishery": Preset("sac", "fishery", jaxrl.SACConfig(**_REPLAYED), {"lr": 3e-3}, 30_000)},
        "td3": {"fishery": Preset("td3", "fishery", jaxrl.TD3Config(**_REPLAYED), {"lr": 3e-3}, 30_000)},
        "dqn": {
            "inventory": Preset("dqn", "inventory", _VALUES, {"lr": 1e-3}, 40_000),
            "stopping": Preset("dqn", "stopping", _VALUES, {"lr": 1e-3}, 20_000),
        },
        "evolve": {task: Preset("evolve", task, _EVOLVED, _EVOLVED_ON[task], 1_000_000) for task in TASKS},
    }
)
