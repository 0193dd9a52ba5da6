"""Results as jaxrl 0.1.0 writes them, which every later version must load; `python tests/first_release.py` wrote them.

They are recorded once: a further one is written beside those that exist. Until 0.1.0 is released, one whose directory
was deleted may be recorded again, if what a result consists of changes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import envs
import jaxrl
from jaxrl.algorithms import registry

DIRECTORY = Path(__file__).parent / "results/saved_by_0_1_0"
SMALL: dict[str, Any] = {"hidden": (4,)}
OBSERVATIONS: dict[str, Any] = {
    "cartpole": np.linspace(-0.2, 0.2, 20, dtype=np.float32).reshape(5, 4),
    "pendulum": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3),
}


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


def best() -> jaxrl.Result:
    """A sweep over a parameter of the environment, of which the best policies are kept beside the last ones."""
    algo = jaxrl.a2c(envs.make("cartpole"), jaxrl.A2CConfig(num_envs=2, num_steps=16, **SMALL))
    sweep = jaxrl.grid(algo.hparams, {"env.length": [0.5, 1.0]})
    return jaxrl.train(algo, sweep, seeds=1, env_steps=96, evals=3, eval_episodes=2, keep="best")


def crowd() -> jaxrl.Result:
    """People of a crowd, each of which sees the others as a set."""
    config = jaxrl.PPOConfig(
        num_envs=1, num_steps=8, num_minibatches=1, own_hidden=(4,), neighbour_hidden=(4,), **SMALL
    )
    return jaxrl.train(jaxrl.ppo(envs.make("crowd/circle"), config), seeds=1, env_steps=400, evals=1, eval_episodes=1)


def small(name: str, environment: str = "cartpole") -> Callable[[], jaxrl.Result]:
    """A small configuration of an algorithm, as in the laws."""

    def make() -> jaxrl.Result:
        config = registry.config_class(registry.builder_of(name))(**registry.ROWS[name].small)
        algo = registry.make(name, envs.make(environment), config)
        return jaxrl.train(algo, seeds=1, env_steps=64, evals=1, eval_episodes=2)

    return make


RESULTS: dict[str, Callable[[], jaxrl.Result]] = {
    "ppo": ppo,
    "dqn": dqn,
    "sac": sac,
    "recurrent": recurrent,
    "best": best,
    "crowd": crowd,
    **{name: small(name) for name in ("pqn", "reinforce", "spo", "mdpo", "ppo_kl", "evolve")},
    "td3": small("td3", "pendulum"),
}


def observations(result: jaxrl.Result) -> list[Any]:
    """A few observations of the environment of a result."""
    name = result.metrics.attrs["environment"]
    if name in OBSERVATIONS:
        return list(OBSERVATIONS[name])
    shapes = {"own": (12, 9), "neighbours": (12, 10, 4), "neighbours_present": (12, 10)}  # of 12 people
    return [{each: np.full(shape, value, np.float32) for each, shape in shapes.items()} for value in (0.0, 1.0)]


def scores(result: jaxrl.Result) -> dict[str, list[Any]]:
    """What every policy of a result chooses by, on a few observations, by setting and seed."""
    shown = {}
    for seed in result.metrics["seed"].values.tolist():
        for setting in result.settings:
            policy, rows = result.policy(**setting, seed=seed), []
            memory = policy.initial_memory()
            remembers = bool(jax.tree.leaves(memory))
            for obs in observations(result):
                scored = policy.scores(obs, memory=memory) if remembers else policy.scores(obs)
                rows.append([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(scored)])
                if remembers:
                    memory = policy(obs, memory=memory)[1]
            shown[json.dumps({**setting, "seed": seed}, sort_keys=True)] = rows
    return shown


def main() -> None:
    """Write the results and the scores of their policies."""
    file = DIRECTORY / "scores.json"
    shown = json.loads(file.read_text())
    for name in sorted(RESULTS.keys() - shown.keys()):
        result = RESULTS[name]()
        for repeated in result.save(DIRECTORY / name).glob("*.parquet"):
            repeated.unlink()  # which metrics.csv repeats
        shown[name] = scores(result)
    file.write_text(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    main()
