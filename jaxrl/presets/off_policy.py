"""Tuned settings of DQN on control tasks."""

from jaxrl.algorithms.dqn import DQNConfig
from jaxrl.presets.preset import Preset

__all__ = ["OFF_POLICY"]

OFF_POLICY = (
    # With the warm-up, 99,328 environment steps.
    Preset(
        "dqn",
        "cartpole",
        DQNConfig(
            num_envs=8,
            num_steps=8,
            num_updates=16,
            batch_size=64,
            buffer_size=102_400,
            warm_up=1_024,
            target_interval=200,
            n_step=5,
            duelling=True,
        ),
        {"lr": 5e-4, "epsilon_anneal_env_steps": 16_000.0},
        98_304,
    ),
)
