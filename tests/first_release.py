"""Results as jaxrl 0.1.0 writes them, which every later version must load; `python tests/first_release.py` wrote them.

They are recorded once. Until 0.1.0 is released they may be recorded again, if what a result consists of changes.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import envs
import jaxrl

DIRECTORY = Path(__file__).parent / "results/saved_by_0_1_0"
SMALL: dict[str, Any] = {"hidden": (4,)}
OBSERVATIONS = {"cartpole": np.linspace(-0.2, 0.2, 20).reshape(5, 4), "pendulum": np.linspace(-1, 1, 15).reshape(5, 3)}


def ppo() -> jaxrl.Result:
    """A sweep over two discounts, with two seeds each."""
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=16, **SMALL))
    sweep = jaxrl.grid(algo.hparams, {"discount": [0.98, "beta:mu=0.98,eta=0.5"]})
    return jaxrl.train(algo, sweep, seeds=2, env_steps=128, evals=2, eval_episodes=2)


def dqn() -> jaxrl.Result:
    """Action values under a hyperbolic discount."""
    config = jaxrl.DQNConfig(num_envs=2, heads="joint", buffer_size=64, prefill=32, batch_size=8, **SMALL)
    algo = jaxrl.dqn(envs.make("cartpole"), config)
    hparams = algo.hparams.replace(discount=jaxrl.as_discount("hyperbolic:k=0.02"))
    return jaxrl.train(algo, hparams, seeds=1, env_steps=64, evals=1, eval_episodes=2)


def sac() -> jaxrl.Result:
    """Continuous actions, with normalised observations."""
    config = jaxrl.SACConfig(num_envs=2, buffer_size=64, prefill=32, batch_size=8, normalise_observation=True, **SMALL)
    algo = jaxrl.sac(envs.make("pendulum"), config)
    return jaxrl.train(algo, seeds=1, env_steps=64, evals=1, eval_episodes=2)


def recurrent() -> jaxrl.Result:
    """A policy with a memory."""
    config = jaxrl.PPOConfig(num_envs=4, num_steps=16, memory="gru", memory_size=4, **SMALL)
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    return jaxrl.train(algo, seeds=1, env_steps=64, evals=1, eval_episodes=2)


RESULTS: dict[str, Callable[[], jaxrl.Result]] = {"ppo": ppo, "dqn": dqn, "sac": sac, "recurrent": recurrent}


def scores(result: jaxrl.Result) -> dict[str, list[Any]]:
    """What every policy of a result chooses by, on a few observations, by setting and seed."""
    shown = {}
    for seed in result.metrics["seed"].values.tolist():
        for setting in result.settings:
            policy, rows = result.policy(**setting, seed=seed), []
            memory = policy.initial_memory()
            remembers = bool(jax.tree.leaves(memory))
            for obs in OBSERVATIONS[result.metrics.attrs["environment"]].astype(np.float32):
                scored = policy.scores(obs, memory=memory) if remembers else policy.scores(obs)
                rows.append([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(scored)])
                if remembers:
                    memory = policy(obs, memory=memory)[1]
            shown[json.dumps({**setting, "seed": seed}, sort_keys=True)] = rows
    return shown


def main() -> None:
    """Write the results and the scores of their policies."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shown = {}
    for name, make in RESULTS.items():
        result = make()
        for file in result.save(DIRECTORY / name).glob("*.parquet"):
            file.unlink()  # which metrics.csv repeats
        shown[name] = scores(result)
    (DIRECTORY / "scores.json").write_text(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    main()
