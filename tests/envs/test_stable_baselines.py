"""Stable-Baselines3 on the environments of `envs`: its checker, and its PPO up to its known returns.

It requires PyTorch, so it is in no extra: `make test-sb3` creates an environment for it (a quarter of an hour on one
core, mostly for PyTorch).
"""

import warnings
from typing import Any

import numpy as np
import pytest

import envs
from envs.adapters.outgoing.gymnasium import as_gymnasium, ids, register

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

REASON = "takes Stable-Baselines3: make test-sb3"


@pytest.fixture(scope="module")
def sb3() -> Any:
    return pytest.importorskip("stable_baselines3", reason=REASON)


# Its warnings about actions not of size 1, and about spaces that its own policies do not take, are advice.
ADVICE = ("symmetric and normalized", "only supported by", "is not supported by")


@pytest.mark.parametrize("env_id", ids())
def test_its_checker_passes(sb3: Any, env_id: str) -> None:
    from stable_baselines3.common.env_checker import check_env  # pyright: ignore[reportMissingImports]

    register()
    env = as_gymnasium(envs.make(ids()[env_id]), render_mode="rgb_array")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    assert [str(w.message) for w in caught if not any(words in str(w.message) for words in ADVICE)] == []


def trained_return(sb3: Any, name: str, steps: int, num_envs: int, **settings: Any) -> float:
    """The mean return of 20 deterministic episodes of a policy that its PPO trained."""
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    many = make_vec_env(lambda: as_gymnasium(envs.make(name)), n_envs=num_envs, seed=0)
    agent = sb3.PPO("MlpPolicy", many, seed=0, device="cpu", **settings).learn(steps)
    test = make_vec_env(lambda: as_gymnasium(envs.make(name)), n_envs=1, seed=1000)
    mean, spread = evaluate_policy(agent, test, n_eval_episodes=20, deterministic=True)
    print(f"{name}: {mean:.1f} +- {spread:.1f} after {steps} steps")
    return float(np.mean(mean))


def test_its_ppo_learns_cartpole(sb3: Any) -> None:
    """With the settings of its zoo, which reach 500."""
    settings = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0}
    decay = {"learning_rate": lambda left: 0.001 * left, "clip_range": lambda left: 0.2 * left}
    assert trained_return(sb3, "cartpole", 100_000, 8, **settings, **decay) > 475


def test_its_ppo_learns_pendulum(sb3: Any) -> None:
    """With the settings of its zoo, which reach about -200."""
    settings = {"n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0}
    exploring = {"learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4}
    assert trained_return(sb3, "pendulum", 120_000, 4, **settings, **exploring) > -260
