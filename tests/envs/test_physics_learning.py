"""PPO on Brax's tasks: returns after minutes on a CPU."""

import numpy as np
import pytest

import envs
import jaxrl


@pytest.mark.slow
def test_ppo_learns_to_hold_a_pole() -> None:
    """It holds the pole for 150 of 1,000 steps; after 150,000 environment steps two seeds reached 232 and 456."""
    env = envs.make("brax/inverted_pendulum", backend="spring")
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=16, num_steps=64, normalise_observation=True))
    algo = algo._replace(hparams=algo.hparams.replace(lr=1e-3))
    result = jaxrl.train(algo, seeds=2, env_steps=150_000, evals=1, eval_episodes=8, progress=False)
    assert np.all(result.metrics["return"].isel(env_step=-1) > 150)


@pytest.mark.slow
def test_ppo_teaches_ant_to_run() -> None:
    """The preset's 1,048,576 steps, after which each of four seeds reached over 3,000; takes a quarter of an hour."""
    preset = jaxrl.preset("ppo", "brax/ant")
    result = jaxrl.train(preset.algo, seeds=1, env_steps=preset.env_steps, evals=2, eval_episodes=32, progress=False)
    print(result.metrics["return"].values)
    assert float(result.metrics["return"].isel(env_step=-1).item()) > 3000
