"""Tuned settings of PPO on control tasks."""

from typing import Any

from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.presets.preset import Preset

_NORMALISED: Any = {"num_epochs": 4, "num_minibatches": 4, "normalise_observation": True, "normalise_reward": True}
_LONG: Any = _NORMALISED | {"num_envs": 16, "num_steps": 128}

# fmt: off
PPO_CONTROL = (
    # PureJaxRL's settings for CartPole.
    Preset("ppo", "cartpole", PPOConfig(num_envs=4, num_steps=128, num_epochs=4, num_minibatches=4),
           {"lr": 2.5e-4, "lr_end": 0.0, "discount": 0.99, "lam": 0.95, "value_clip": 0.2}, 499_712),
    Preset("ppo", "pendulum", PPOConfig(**_LONG | {"num_epochs": 10, "num_minibatches": 8}),
           {"lr": 1e-3, "lr_end": 0.0, "discount": 0.98, "lam": 0.95, "entropy_coef": 0.0}, 300_000),
    Preset("ppo", "acrobot", PPOConfig(**_LONG),
           {"lr": 3e-3, "lr_end": 0.0, "discount": 0.995, "lam": 0.95}, 250_000),
    Preset("ppo", "mountain-car", PPOConfig(**_LONG | {"num_steps": 64}),
           {"lr": 8e-3, "lr_end": 0.0, "discount": 0.995, "lam": 0.9}, 500_000),
    Preset("ppo", "mountain-car-continuous", PPOConfig(**_LONG),
           {"lr": 3e-3, "lr_end": 0.0, "discount": 0.995, "lam": 0.9, "entropy_coef": 0.003, "log_std_init": 0.7},
           200_000),
    Preset("ppo", "brax/ant",
           PPOConfig(**_NORMALISED | {"num_envs": 64, "num_steps": 64, "num_minibatches": 8, "hidden": (128, 128)}),
           {"lr": 1e-3, "lr_end": 0.0, "discount": 0.97, "lam": 0.95, "entropy_coef": 0.0, "log_std_init": -0.7},
           1_048_576, {"backend": "spring"}),
)
# fmt: on
