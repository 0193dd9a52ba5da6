"""Tuned settings of PPO and SAC on physical control tasks."""

import dataclasses
from typing import Any

from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.algorithms.sac import SACConfig
from jaxrl.presets.preset import Preset

# fmt: off
_CONFIG = PPOConfig(num_envs=16, num_steps=128, num_epochs=10, num_minibatches=8, normalise_observation=True,
                    normalise_reward=True)
_HPARAMS: Any = {"lr": 1e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95, "entropy_coef": 0.0}
_LANDING: Any = {**_HPARAMS, "entropy_coef": 0.01}
# The first episodes end soon, so that each needs a first state of its own.
_MOTOR = dataclasses.replace(_CONFIG, reset_pool=128)
# A violation of the limits costs 10 = 1 / (1 - 0.9), as much as the largest errors for ever under this discount.
_CURRENTS: Any = {**_HPARAMS, "discount": 0.9}
# As a car that turns goes back around the origin after 3 steps at the earliest.
_RACING = dataclasses.replace(_CONFIG, reset_pool=43)
_SWINGING = SACConfig(num_envs=8, num_steps=8, num_updates=32, batch_size=128, buffer_size=131_072, prefill=2_048,
                      hidden=(64, 64))
PHYSICAL = (
    Preset("ppo", "lander", _CONFIG, _LANDING, 600_064),
    Preset("ppo", "lander-continuous", _CONFIG, _HPARAMS, 301_056),
    Preset("ppo", "quadrotor/hover", _CONFIG, _HPARAMS, 600_064),
    Preset("ppo", "quadrotor/tracking", _CONFIG, _HPARAMS, 401_408),
    Preset("ppo", "reacher", _CONFIG, _HPARAMS, 301_056),
    Preset("ppo", "acrobot-continuous", _CONFIG, _HPARAMS, 200_704),
    Preset("sac", "cartpole-swing-up", _SWINGING, {"discount": 0.99, "target_rate": 0.01, "lr": 1e-3}, 131_072),
    Preset("ppo", "racing", _RACING, {**_HPARAMS, "log_std_init": -1.0}, 120_832),
    Preset("ppo", "motor/dc", _MOTOR, _CURRENTS, 200_704),
    Preset("ppo", "motor/dc-finite", _MOTOR, _CURRENTS, 200_704),
    Preset("ppo", "motor/synchronous", _MOTOR, _CURRENTS, 200_704),
    Preset("ppo", "motor/synchronous-finite", _MOTOR, _CURRENTS, 200_704),
)
# fmt: on
