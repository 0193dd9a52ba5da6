"""Tuned settings of recurrent PPO on tasks that require a memory."""

from typing import Any

from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.presets.preset import Preset

_SHORT: Any = {"num_envs": 16, "num_steps": 64, "num_minibatches": 4, "hidden": (32,), "memory_size": 32}
_NORMALISED: Any = {"normalise_observation": True, "normalise_reward": True}

# fmt: off
REMEMBERING = (
    Preset("ppo", "memory/chain", PPOConfig(memory="lru", **_SHORT), {"lr": 1e-3}, 200_000),
    Preset("ppo", "memory/t-maze", PPOConfig(memory="lru", **_SHORT), {"lr": 1e-3}, 200_000),
    Preset("ppo", "memory/repeat-first", PPOConfig(memory="gru", **_SHORT), {"lr": 1e-3}, 200_000),
    # Without normalisation, nothing is learned from the small changes of an angle, which determine the velocity.
    Preset("ppo", "memory/cartpole", PPOConfig(memory="lru", **_SHORT, **_NORMALISED),
           {"lr": 2e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95}, 200_000),
    Preset("ppo", "memory/pendulum",
           PPOConfig(num_envs=16, num_steps=128, num_epochs=10, num_minibatches=8, hidden=(64,), memory="lru",
                     memory_size=32, **_NORMALISED),
           {"lr": 5e-4, "lr_end": 0.0, "discount": 0.98, "lam": 0.95, "entropy_coef": 0.0}, 300_000),
)
# fmt: on
