"""Tuned settings of REINFORCE, A2C, SPO, MDPO and PPO with a penalty on control tasks."""

from typing import Any

from jaxrl.algorithms.a2c import A2CConfig
from jaxrl.algorithms.mdpo import MDPOConfig
from jaxrl.algorithms.ppo_kl import PPOKLConfig
from jaxrl.algorithms.reinforce import ReinforceConfig
from jaxrl.algorithms.spo import SPOConfig
from jaxrl.presets.preset import Preset

_NORMALISED: Any = {"normalise_observation": True, "normalise_reward": True}
_CARTPOLE: Any = {"num_envs": 4, "num_steps": 128}
_ACROBOT: Any = {"num_envs": 16, "num_steps": 128, **_NORMALISED}
_PENDULUM: Any = {"num_envs": 16, "num_steps": 128, "num_epochs": 10, "num_minibatches": 8, **_NORMALISED}

_ON_CARTPOLE = {"lr": 1e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95}
_ON_ACROBOT = {"lr": 3e-3, "lr_end": 0.0, "discount": 0.995, "lam": 0.95}
_ON_PENDULUM = {"lr": 1e-3, "lr_end": 0.0, "discount": 0.98, "lam": 0.95, "entropy_coef": 0.0}

# fmt: off
ON_POLICY = (
    Preset("reinforce", "cartpole", ReinforceConfig(num_envs=4, num_steps=500, normalise_advantage="batch"),
           {"lr": 1e-2, "lr_end": 0.0, "discount": 0.99}, 500_000),
    Preset("reinforce", "acrobot",
           ReinforceConfig(num_envs=8, num_steps=500, normalise_advantage="batch", **_NORMALISED),
           {"lr": 3e-3, "lr_end": 0.0, "discount": 0.99}, 500_000),
    Preset("a2c", "cartpole", A2CConfig(num_envs=8, num_steps=16, normalise_advantage="batch", normalise_reward=True),
           {"lr": 3e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95}, 499_968),
    Preset("a2c", "acrobot", A2CConfig(num_envs=16, num_steps=16, normalise_advantage="batch", **_NORMALISED),
           {"lr": 3e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95}, 499_968),
    Preset("spo", "cartpole", SPOConfig(**_CARTPOLE), _ON_CARTPOLE, 499_712),
    Preset("spo", "acrobot", SPOConfig(**_ACROBOT), _ON_ACROBOT, 250_000),
    Preset("spo", "pendulum", SPOConfig(**_PENDULUM), _ON_PENDULUM, 300_000),
    Preset("mdpo", "cartpole", MDPOConfig(**_CARTPOLE), _ON_CARTPOLE, 499_712),
    Preset("mdpo", "acrobot", MDPOConfig(**_ACROBOT), _ON_ACROBOT, 250_000),
    Preset("mdpo", "pendulum", MDPOConfig(**_PENDULUM), _ON_PENDULUM, 300_000),
    Preset("ppo_kl", "cartpole", PPOKLConfig(**_CARTPOLE), {**_ON_CARTPOLE, "lr": 5e-4}, 499_712),
    Preset("ppo_kl", "acrobot", PPOKLConfig(**_ACROBOT), _ON_ACROBOT, 250_000),
    Preset("ppo_kl", "pendulum", PPOKLConfig(**_PENDULUM), _ON_PENDULUM, 300_000),
)
# fmt: on
