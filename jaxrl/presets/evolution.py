"""Tuned settings of evolution strategies on control tasks, and on one that requires a memory."""

from typing import Any

from jaxrl.algorithms.evolve import EvolveConfig
from jaxrl.presets.preset import Preset

# fmt: off
_SNES: Any = {"strategy": "snes", "num_episodes": 4, "common_random_numbers": True}
EVOLUTION = (
    Preset("evolve", "cartpole", EvolveConfig(population_size=64, hidden=(16,)), {"lr": 0.05, "std": 0.1}, 2_000_000),
    Preset("evolve", "acrobot", EvolveConfig(population_size=128, hidden=(16,)), {"lr": 0.05, "std": 0.1}, 5_000_000),
    Preset("evolve", "pendulum", EvolveConfig(population_size=64, hidden=(16,), **_SNES), {"std": 0.3}, 19_916_800),
    Preset("evolve", "memory/repeat-first",
           EvolveConfig(population_size=256, memory="gru", memory_size=8, hidden=(), **_SNES),
           {"std": 0.3}, 20_000_000),
)
# fmt: on
