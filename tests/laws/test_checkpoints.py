"""The law that a checkpoint restores every bit, over every environment and algorithm of the library."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
from envs.base import spaces
from envs.registry import ROWS
from jaxrl.algorithms import registry as algorithms
from jaxrl.runtime.checkpoints.store import Checkpoint, Checkpoints
from jaxrl.runtime.loop import make_loop
from jaxrl.runtime.runs import key_words, like_shape

NUM_RUNS = 3
# One of each kind, whose states have the structure of the others.
QUICK = (
    "acrobot",
    "bandit/bernoulli",
    "bandit/restless",
    "cooperation/foraging",
    "game/climbing",
    "memory/repeat-first",
)
PAIRS = [(algorithm, name) for algorithm in sorted(algorithms.ROWS) for name in sorted(ROWS)]


def drawn(shape: Any, rng: np.random.Generator) -> np.ndarray:
    """Random bits in place of an array, including those of NaNs."""
    if shape.dtype == np.bool_:
        return rng.integers(0, 2, shape.shape).astype(bool)
    return np.frombuffer(rng.bytes(int(np.prod(shape.shape)) * shape.dtype.itemsize), shape.dtype).reshape(shape.shape)


def states_of(algo: Any) -> tuple[list[Any], list[np.ndarray]]:
    """The arrays in the states of some runs: their shapes, and such arrays on the host, as the driver keeps them."""
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    init = jax.vmap(lambda seed: make_loop(algo, 1).init(jax.random.key(seed), hparams, params))
    shapes = jax.tree.leaves(jax.eval_shape(init, jax.ShapeDtypeStruct((NUM_RUNS,), np.uint32)))
    words = jax.eval_shape(lambda leaves: list(map(key_words, leaves)), shapes)
    rng = np.random.default_rng(0)
    return shapes, [drawn(leaf, rng) for leaf in words]


def assert_given_back(directory: Path, algo: Any) -> None:
    shapes, states = states_of(algo)
    identity = {"points": [1, 2]}
    metrics = {"return": np.full((NUM_RUNS, 1), np.nan, np.float32)}
    writer = Checkpoints(directory, identity)
    writer.write(Checkpoint(1, states, [1], metrics))
    writer.close()
    reader = Checkpoints(directory, identity, begun=writer.identity)
    back = reader.load(states, {"return": np.zeros(NUM_RUNS, np.float32)})
    reader.close()
    assert back is not None and (back.iteration, back.iterations) == (1, [1])
    for leaf, expected, shape in zip(back.states, states, shapes, strict=True):
        assert (leaf.shape, leaf.dtype) == (expected.shape, expected.dtype)
        assert leaf.tobytes() == expected.tobytes()
        placed = like_shape(leaf, shape)  # by the driver, in a fresh state
        assert (placed.shape, placed.dtype) == (shape.shape, shape.dtype)
    np.testing.assert_array_equal(back.metrics["return"], metrics["return"])


def learner(algorithm: str, env: Any) -> Any:
    config = algorithms.make(algorithm, env).config
    return algorithms.make(algorithm, env, dataclasses.replace(config, **algorithms.ROWS[algorithm].small))


def takes(algorithm: str, env: Any) -> bool:
    """Whether an algorithm supports an environment: some take only a few actions, others only numbers within bounds."""
    space = env.action_space(env.default_params)
    if algorithm in ("dqn", "pqn"):
        return isinstance(space, spaces.Discrete)
    bounded = isinstance(space, spaces.Box) and bool(np.all(np.float64(space.high) - np.float64(space.low) < 1e38))
    return bounded or (algorithm != "td3" and (algorithm != "sac" or isinstance(space, spaces.Discrete)))


def is_quick(algorithm: str, name: str) -> bool:
    """Whether a pair belongs to the fast suite: every algorithm on one environment, and PPO on one of each kind."""
    return name == ("pendulum" if algorithm == "td3" else "cartpole") or (algorithm == "ppo" and name in QUICK)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [pytest.param(*pair, marks=[] if is_quick(*pair) else [pytest.mark.slow]) for pair in PAIRS],
)
def test_every_environment_and_algorithm_is_given_back(tmp_path: Path, name: str, algorithm: str) -> None:
    env = envs.make(name)
    if not takes(algorithm, env):
        pytest.skip(f"{algorithm} takes no {env.action_space(env.default_params)!r}")
    assert_given_back(tmp_path, learner(algorithm, env))
