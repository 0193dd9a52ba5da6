"""Tuned settings of PPO with convolutions on MinAtar games."""

from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.presets.preset import Preset

# fmt: off
_CONVOLUTIONS = PPOConfig(network="cnn", channels=(16,), hidden=(64,), activation="relu", shared_trunk=True,
                          num_envs=32, num_steps=64, num_epochs=4, num_minibatches=8)
_STEP_SIZES = {"Breakout": 2.5e-3, "Freeway": 5e-3, "SpaceInvaders": 5e-3}

MINATAR = tuple(
    Preset("ppo", f"gymnax/{game}-MinAtar", _CONVOLUTIONS,
           {"lr": lr, "lr_end": 0.0, "discount": 0.99, "lam": 0.95, "entropy_coef": 0.01}, 1_001_472)
    for game, lr in _STEP_SIZES.items()
)
# fmt: on
