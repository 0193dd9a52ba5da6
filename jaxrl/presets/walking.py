"""The library's settings of PPO for crowds: people who walk, and people who also avoid contacts."""

from typing import Any

from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.presets.preset import Preset

# fmt: off
_CROWD: Any = {"num_envs": 1, "num_steps": 200, "num_epochs": 4, "pooling": "max", "neighbour_scale": 0.2,
               "normalise_reward": True, "reset_pool": 2}
_WALK = {"lr": 2e-3, "lr_end": 0.0, "discount": 0.97, "lam": 0.95, "target_kl": 0.05, "entropy_coef": 0.0,
         "log_std_init": -0.5}

# Whole episodes of a crowd, with new rewards (`envs.crowd.presets.REWARDS`).
CROWDS = (
    Preset("ppo", "crowd/circle", PPOConfig(num_minibatches=4, own_scale=8.0, **_CROWD), _WALK, 90_000,
           {"reward": "straight"}),
    Preset("ppo", "crowd/corridor", PPOConfig(num_minibatches=8, own_scale=8.0, **_CROWD), _WALK, 20_000,
           {"num_agents": 50, "reward": "straight"}),
    Preset("ppo", "crowd/crossway", PPOConfig(num_minibatches=8, own_scale=8.0, **_CROWD), {**_WALK, "discount": 0.99},
           36_000, {"num_agents": 50, "reward": "yielding"}),
    Preset("ppo", "crowd/choke", PPOConfig(num_minibatches=4, own_scale=2.0, **_CROWD), {**_WALK, "discount": 0.99},
           30_000, {"num_agents": 20, "perception": "both", "reward": "through"}),
)

# Crowds that avoid contacts, with a second stage in which these cost more; `preset(..., tuned="careful")`.
CAREFUL = (
    Preset("ppo", "crowd/corridor", PPOConfig(num_minibatches=8, own_scale=8.0, **_CROWD), _WALK, 60_000,
           {"num_agents": 50, "reward": "careful"}),
    Preset("ppo", "crowd/choke", PPOConfig(num_minibatches=8, own_scale=2.0, **{**_CROWD, "num_envs": 2}),
           {**_WALK, "discount": 0.99}, 240_000,
           {"num_agents": 20, "perception": "both", "reward": "careful-through"}),
)
# fmt: on
