"""Tuned settings of off-policy algorithms and of evolution strategies, on control tasks and for memories."""

from typing import Any

from jaxrl.algorithms.dqn import DQNConfig
from jaxrl.algorithms.evolve import EvolveConfig
from jaxrl.algorithms.pqn import PQNConfig
from jaxrl.algorithms.sac import SACConfig
from jaxrl.algorithms.td3 import TD3Config
from jaxrl.presets.preset import Preset

_PARALLEL: Any = {"num_envs": 16, "num_steps": 32, "num_epochs": 4, "num_minibatches": 4}
_ANNEALED = {"lr": 1e-3, "lr_end": 0.0, "lam": 0.65, "epsilon_anneal_env_steps": 250_000.0}
# fmt: off
_DQN: Any = {"num_envs": 8, "num_steps": 8, "num_updates": 16, "buffer_size": 102_400, "prefill": 1_024, "n_step": 5,
             "dueling": True}
# With the prefill, 19,968 environment steps, and a gradient step for each.
_PENDULUM: Any = {"num_envs": 4, "num_steps": 4, "num_updates": 16, "batch_size": 128, "buffer_size": 20_480,
                  "prefill": 512}
_DISCRETE: Any = {"num_envs": 8, "num_steps": 8, "num_updates": 32, "batch_size": 64, "buffer_size": 102_400,
                  "normalise_observation": True}
OFF_POLICY = (
    # With the prefill, 99,328 environment steps.
    Preset("dqn", "cartpole", DQNConfig(**_DQN, batch_size=64, target_interval=200),
           {"lr": 5e-4, "epsilon_anneal_env_steps": 16_000.0}, 98_304),
    # With the prefill, 99,328 environment steps.
    Preset("dqn", "acrobot", DQNConfig(**_DQN, batch_size=128, target_interval=100),
           {"lr": 5e-4, "discount": 0.98, "epsilon_anneal_env_steps": 50_000.0}, 98_304),
    # With the prefill, 149,504 environment steps; random actions for longer, since none is rewarded before the goal.
    Preset("dqn", "mountain-car", DQNConfig(**_DQN | {"n_step": 10}, batch_size=128, normalise_observation=True),
           {"lr": 1e-3, "epsilon_anneal_env_steps": 60_000.0}, 148_480),
    Preset("pqn", "cartpole", PQNConfig(**_PARALLEL), _ANNEALED, 499_712),
    Preset("pqn", "acrobot", PQNConfig(**_PARALLEL), _ANNEALED, 499_712),
    Preset("sac", "pendulum", SACConfig(**_PENDULUM), {"discount": 0.98, "target_rate": 0.01}, 19_456),
    # With the prefill, 50,176 environment steps, and a gradient step for every two of them.
    Preset("sac", "cartpole", SACConfig(**_DISCRETE, prefill=1_024),
           {"lr": 3e-3, "target_rate": 0.05, "target_entropy_fraction": 0.6}, 49_152),
    # With the prefill, 98,304 environment steps, and a gradient step for every two of the others. Independent random
    # actions rarely reach the goal.
    Preset("sac", "acrobot", SACConfig(**_DISCRETE, prefill=32_768, noise="ornstein-uhlenbeck"),
           {"target_rate": 0.01, "temperature": 0.2, "target_entropy_fraction": 0.2, "noise_correlation": 0.87},
           65_536),
    # With the prefill, 49,664 environment steps; a gradient step for every four of them.
    Preset("sac", "mountain-car-continuous",
           SACConfig(num_envs=4, num_steps=8, num_updates=8, batch_size=64, buffer_size=51_200, prefill=512,
                     hidden=(32, 32), noise="ornstein-uhlenbeck", automatic_temperature=False),
           {"discount": 0.999, "target_rate": 0.02, "temperature": 0.1, "noise_correlation": 0.95}, 49_152),
    # With the prefill, 10,752 environment steps.
    Preset("sac", "brax/inverted_pendulum", SACConfig(**_PENDULUM, normalise_observation=True, reset_pool=2),
           {"target_rate": 0.02}, 10_240, {"backend": "generalized"}),
    # With the prefill, 60,416 environment steps, and a gradient step for every four of the others. At the end, entropy
    # is worth nothing.
    Preset("sac", "fishery",
           SACConfig(num_envs=16, batch_size=128, hidden=(64, 64), automatic_temperature=False),
           {"lr": 3e-3, "lr_end": 0.0, "discount": 0.99, "temperature": 0.01, "temperature_end": 0.0}, 59_392),
    Preset("td3", "pendulum", TD3Config(**_PENDULUM),
           {"discount": 0.98, "target_rate": 0.01, "noise_std": 0.3}, 19_456),
)

# With a memory. With the prefill, 102,400 environment steps or fewer, and a gradient step for every 16 or 8 of the
# others. Actions are seldom random where a random walk through the maze would take longer than a sequence.
_SEQUENCES: Any = {"num_envs": 8, "num_steps": 8, "num_updates": 4, "batch_size": 512, "sequence_length": 32,
                   "buffer_size": 65_536, "prefill": 4_096, "memory": "gru", "memory_size": 32, "hidden": (32,)}
_ROLLOUTS: Any = {"num_envs": 16, "num_steps": 64, "num_epochs": 4, "num_minibatches": 4, "memory": "gru",
                  "memory_size": 32, "hidden": (32,)}
# Velocities are small differences of observations: the memory is computed anew from the first steps of a sequence.
_VELOCITIES: Any = {"num_envs": 8, "num_steps": 8, "num_updates": 8, "sequence_length": 24, "burn_in": 8,
                    "buffer_size": 102_400, "prefill": 4_096, "memory": "mingru", "memory_size": 32,
                    "normalise_observation": True}
# Values are in the hundreds and units of this memory at most 1, hence a layer after it, and large steps for critics.
_SWINGS: Any = {"num_envs": 8, "num_steps": 8, "num_updates": 16, "batch_size": 256, "buffer_size": 65_536,
                "prefill": 1_024, "memory": "gru", "memory_size": 32, "hidden": (32,), "memory_hidden": (64,)}
_ON_SWINGS = {"lr": 3e-3, "lr_end": 0.0, "discount": 0.97, "target_rate": 0.02}
_SELDOM = {"lr": 1e-3, "lr_end": 0.0, "epsilon_start": 0.3, "epsilon_end": 0.01}
REMEMBERING_Q = (
    Preset("dqn", "memory/chain", DQNConfig(**_SEQUENCES), {**_SELDOM, "epsilon_anneal_env_steps": 30_000.0}, 98_304),
    Preset("dqn", "memory/t-maze", DQNConfig(**_SEQUENCES), {**_SELDOM, "epsilon_anneal_env_steps": 30_000.0}, 98_304),
    Preset("dqn", "memory/repeat-first",
           DQNConfig(**_SEQUENCES | {"num_updates": 8, "sequence_length": 64, "prefill": 1_024}),
           {"lr": 1e-3, "lr_end": 0.0, "discount": 0.5, "epsilon_end": 0.02, "epsilon_anneal_env_steps": 20_000.0},
           98_304),
    Preset("dqn", "memory/cartpole", DQNConfig(**_VELOCITIES, n_step=5, dueling=True, batch_size=768, hidden=(32,)),
           {"lr": 5e-3, "lr_end": 0.0, "discount": 0.98, "epsilon_end": 0.02, "epsilon_anneal_env_steps": 20_000.0},
           98_304),
    # With the prefill, 25,600 environment steps, and a gradient step for every four of the others.
    Preset("sac", "memory/pendulum", SACConfig(**_SWINGS), _ON_SWINGS, 24_576),
    Preset("td3", "memory/pendulum", TD3Config(**_SWINGS), {**_ON_SWINGS, "lr": 4e-3, "noise_std": 0.2}, 40_960),
    Preset("pqn", "memory/chain", PQNConfig(**_ROLLOUTS),
           {"lr": 1e-3, "lr_end": 0.0, "lam": 0.95, "epsilon_end": 0.01}, 299_008),
    Preset("pqn", "memory/t-maze", PQNConfig(**_ROLLOUTS),
           {**_SELDOM, "lam": 0.95, "epsilon_anneal_env_steps": 250_000.0}, 499_712),
    Preset("pqn", "memory/repeat-first", PQNConfig(**_ROLLOUTS),
           {"lr": 1e-3, "lr_end": 0.0, "lam": 0.5, "discount": 0.5, "epsilon_end": 0.01}, 499_712),
)

_SNES: Any = {"strategy": "snes", "num_episodes": 4, "common_random_numbers": True}
# Linear laws, with exact optima: a generation is compared on the same first states and noise.
_LINEAR = EvolveConfig(strategy="cma-es", population_size=32, num_episodes=16, common_random_numbers=True, hidden=(),
                       normalise_observation=True)
EVOLUTION = (
    Preset("evolve", "cartpole", EvolveConfig(population_size=64, hidden=(16,)), {"lr": 0.05, "std": 0.1}, 2_000_000),
    Preset("evolve", "acrobot", EvolveConfig(population_size=128, hidden=(16,)), {"lr": 0.05, "std": 0.1}, 5_000_000),
    Preset("evolve", "pendulum", EvolveConfig(population_size=64, hidden=(16,), **_SNES), {"std": 0.3}, 19_916_800),
    Preset("evolve", "memory/repeat-first",
           EvolveConfig(population_size=256, memory="gru", memory_size=8, hidden=(), **_SNES),
           {"std": 0.3}, 20_000_000),
    Preset("evolve", "lq/scalar", _LINEAR, {"discount": 0.99, "std": 0.1}, 2_048_000),
    Preset("evolve", "lq/double-integrator", _LINEAR, {"discount": 0.99, "std": 0.1}, 2_048_000),
)
# fmt: on
