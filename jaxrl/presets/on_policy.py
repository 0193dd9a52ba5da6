"""Tuned settings of on-policy algorithms on control tasks, games and tasks that require a memory."""

import dataclasses
from typing import Any

from jaxrl.algorithms.a2c import A2CConfig
from jaxrl.algorithms.mdpo import MDPOConfig
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.algorithms.ppo_kl import PPOKLConfig
from jaxrl.algorithms.reinforce import ReinforceConfig
from jaxrl.algorithms.spo import SPOConfig
from jaxrl.presets.preset import Preset

_NORMALISED: Any = {"normalise_observation": True, "normalise_reward": True}

# fmt: off
_PPO: Any = {"num_epochs": 4, "num_minibatches": 4, **_NORMALISED}
_LONG: Any = _PPO | {"num_envs": 16, "num_steps": 128}
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
           PPOConfig(**_PPO | {"num_envs": 64, "num_steps": 64, "num_minibatches": 8, "hidden": (128, 128)}),
           {"lr": 1e-3, "lr_end": 0.0, "discount": 0.97, "lam": 0.95, "entropy_coef": 0.0, "log_std_init": -0.7},
           1_048_576, {"backend": "spring"}),
)

# PPO with convolutions.
_CONVOLUTIONS = PPOConfig(network="cnn", channels=(16,), hidden=(64,), activation="relu", shared_trunk=True,
                          num_envs=32, num_steps=64, num_epochs=4, num_minibatches=8)
_STEP_SIZES = {"Breakout": 2.5e-3, "Freeway": 5e-3, "SpaceInvaders": 5e-3}

MINATAR = tuple(
    Preset("ppo", f"gymnax/{game}-MinAtar",
           # The first episodes of Breakout are short.
           dataclasses.replace(_CONVOLUTIONS, reset_pool=11) if game == "Breakout" else _CONVOLUTIONS,
           {"lr": lr, "lr_end": 0.0, "discount": 0.99, "lam": 0.95, "entropy_coef": 0.01}, 1_001_472)
    for game, lr in _STEP_SIZES.items()
)

# PPO with action masks, on a game of Jumanji.
JUMANJI = (
    Preset("ppo", "jumanji/Game2048-v1",
           PPOConfig(num_envs=32, num_steps=64, num_epochs=4, num_minibatches=4, hidden=(256, 256),
                     normalise_reward=True),
           {"lr": 5e-4, "lr_end": 0.0, "discount": 0.99, "lam": 0.9}, 501_760),
)

# PPO on one-hot tiles and colours, on grid worlds of XLand-MiniGrid.
_GRID = PPOConfig(num_envs=16, num_steps=64, num_epochs=4, num_minibatches=4, hidden=(64, 64))
_ON_GRID = {"lr": 2e-3, "lr_end": 0.0, "entropy_coef": 0.01}
GRIDS = (
    Preset("ppo", "xminigrid/MiniGrid-Empty-6x6", _GRID, _ON_GRID, 100_352),
    Preset("ppo", "xminigrid/MiniGrid-DoorKey-5x5", _GRID, _ON_GRID, 200_704),
)

# PPO on tasks whose optimum is known. An episode may end after one step where the first offer is accepted, or the
# shortest path is chosen.
_SMALL: Any = _PPO | {"num_envs": 16, "num_steps": 64}
_PLAIN = PPOConfig(**_SMALL | {"normalise_reward": False})
_ANNEALED = {"lr_end": 0.0, "discount": 0.99}
_BRISK = {**_ANNEALED, "lr": 3e-3}
KNOWN_OPTIMUM = (
    Preset("ppo", "stopping", PPOConfig(**_SMALL, reset_pool=64),
           {**_ANNEALED, "lr": 1e-3, "lam": 0.95, "entropy_coef": 0.0}, 100_000),
    Preset("ppo", "inventory", PPOConfig(**_SMALL | {"num_epochs": 8, "normalise_reward": False}),
           {**_ANNEALED, "lr": 3e-3, "lam": 0.3, "entropy_coef": 0.1}, 400_384),
    Preset("ppo", "fishery", PPOConfig(**_SMALL | {"num_epochs": 10}),
           {**_ANNEALED, "lr": 3e-3, "lam": 0.95, "entropy_coef": 0.0}, 300_032),
    Preset("ppo", "replacement", _PLAIN, {**_BRISK, "lam": 0.95, "entropy_coef": 0.03}, 200_704),
    Preset("ppo", "queue", _PLAIN, {**_BRISK, "lam": 0.95, "entropy_coef": 0.03}, 200_704),
    # The reward of the source is many strokes away, and that of the bank is near.
    Preset("ppo", "river", _PLAIN, {**_BRISK, "lam": 1.0, "entropy_coef": 0.1}, 100_352),
    # The two best plans, the sooner reward and a later switch to it, differ by 1 %, less than an entropy term adds.
    Preset("ppo", "preference-reversal", _PLAIN, {**_BRISK, "lam": 1.0, "entropy_coef": 0.0}, 50_176),
    Preset("ppo", "pathworld", dataclasses.replace(_PLAIN, reset_pool=64),
           {**_BRISK, "lam": 0.95, "entropy_coef": 0.03}, 50_176),
    # The first actions move the plant far away, so rewards are not divided by their standard deviation so far.
    Preset("ppo", "lq/double-integrator",
           PPOConfig(num_envs=64, num_steps=50, num_epochs=6, num_minibatches=8, hidden=(128,), activation="silu",
                     normalise_observation=True),
           {**_ANNEALED, "lr": 4e-3, "lam": 0.98, "entropy_coef": 0.05, "log_std_init": -2.5}, 2_000_000),
)

# PPO with a memory.
_SHORT: Any = {"num_envs": 16, "num_steps": 64, "num_minibatches": 4, "hidden": (32,), "memory_size": 32}
REMEMBERING = (
    Preset("ppo", "memory/chain", PPOConfig(memory="lru", **_SHORT), {"lr": 1e-3}, 200_000),
    Preset("ppo", "memory/t-maze", PPOConfig(memory="lru", **_SHORT), {"lr": 1e-3}, 200_000),
    Preset("ppo", "memory/repeat-first", PPOConfig(memory="gru", **_SHORT), {"lr": 1e-3}, 200_000),
    Preset("ppo", "memory/bandit",
           PPOConfig(memory="gru", **_SHORT | {"num_epochs": 4, "normalise_observation": True, "reset_pool": 8}),
           {"lr": 3e-3, "lr_end": 0.0}, 200_704),
    # Without normalisation, nothing is learned from the small changes of an angle, which determine the velocity.
    Preset("ppo", "memory/cartpole", PPOConfig(memory="lru", **_SHORT, **_NORMALISED),
           {"lr": 2e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95}, 200_000),
    Preset("ppo", "memory/pendulum",
           PPOConfig(num_envs=16, num_steps=128, num_epochs=10, num_minibatches=8, hidden=(64,), memory="lru",
                     memory_size=32, **_NORMALISED),
           {"lr": 5e-4, "lr_end": 0.0, "discount": 0.98, "lam": 0.95, "entropy_coef": 0.0}, 300_000),
)

_CARTPOLE: Any = {"num_envs": 4, "num_steps": 128}
_ACROBOT: Any = {"num_envs": 16, "num_steps": 128, **_NORMALISED}
_PENDULUM: Any = {"num_envs": 16, "num_steps": 128, "num_epochs": 10, "num_minibatches": 8, **_NORMALISED}
_ON_CARTPOLE = {"lr": 1e-3, "lr_end": 0.0, "discount": 0.99, "lam": 0.95}
_ON_ACROBOT = {"lr": 3e-3, "lr_end": 0.0, "discount": 0.995, "lam": 0.95}
_ON_PENDULUM = {"lr": 1e-3, "lr_end": 0.0, "discount": 0.98, "lam": 0.95, "entropy_coef": 0.0}
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
