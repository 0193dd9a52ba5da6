"""Common parts of torture tests: every algorithm on every family of environments, small, and the checks."""

import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import envs
import jaxrl
from envs.errors import UserError
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.results.result import Result

ROOT = Path(__file__).parents[2]
SEED = 21  # of everything that is drawn here

# Environments by what their states and observations are made of; an algorithm is tortured on the first that it takes.
FAMILIES: dict[str, Sequence[tuple[str, dict[str, Any]]]] = {
    "control": [("cartpole", {}), ("pendulum", {})],
    "crowd": [("crowd/circle", {"num_agents": 3})],
    "integers": [("gymnax/FrozenLake-misc", {})],
}
BANDIT = "bandit"  # the family of what `run_bandit` runs
CASES = [*itertools.product(sorted(algorithms.ROWS), FAMILIES), ("thompson", BANDIT)]

SEEDS, ITERATIONS, EVALS = 2, 80, 40
OPTIONS: Any = {"progress": False, "block": 2}


def drawn(*names: Any) -> np.random.Generator:
    """Random numbers determined by these names, the same in every run."""
    return np.random.default_rng([SEED, *(zlib.crc32(str(name).encode()) for name in names)])


def share(count: int) -> int:
    """Number of repeats for each algorithm so that all together take about as long as `count` repeats of one."""
    return max(count // len(algorithms.ROWS), -(-count // 5))


def learner(algorithm: str, family: str = "control") -> Algorithm:
    """A small one of a registered algorithm, on the first environment of a family that it takes.

    Raises:
      UserError: It takes none of them.
    """
    refused: Exception | None = None
    for name, static in FAMILIES[family]:
        env = envs.make(name, **static)
        try:
            config = algorithms.make(algorithm, env).config
            return algorithms.make(algorithm, env, dataclasses.replace(config, **algorithms.ROWS[algorithm].small))
        except UserError as error:
            refused = error
    assert refused is not None
    raise refused


def run(algorithm: str, family: str, **options: Any) -> Result:
    """A call with an evaluation every other iteration, at each of which a checkpoint may be written."""
    every = OPTIONS | options
    if family == BANDIT:
        env: Any = envs.make("bandit/bernoulli", num_arms=5)
        points = list(range(50, 50 * EVALS + 1, 50))
        return jaxrl.run_bandit(jaxrl.bandits.policy(algorithm), env, steps=points[-1], runs=4, points=points, **every)
    algo = learner(algorithm, family)
    steps = ITERATIONS * algo.env_steps_per_iteration
    return jaxrl.train(algo, **{"seeds": SEEDS, "env_steps": steps, "evals": EVALS, "eval_episodes": 2} | every)


def begun(script: str, *args: Any, **options: Any) -> subprocess.Popen[str]:
    """A process that executes a script, with this folder on its path."""
    return process([sys.executable, "-c", script, *map(str, args)], **options)


def process(command: Sequence[str], cwd: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """A process that sees this folder, this checkout and the compiled programs of the suite."""
    path = os.pathsep.join(map(str, (Path(__file__).parent, ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))))
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )


def content(result: Result) -> dict[str, bytes]:
    """All numbers of a result, bit for bit."""
    numbers = {str(name): result.values(str(name)) for name in result.metrics.data_vars}
    numbers |= {f"coordinate {name}": values.values for name, values in result.metrics.coords.items()}
    numbers |= {f"policy {i}": leaf for i, leaf in enumerate(jax.tree.leaves(result.policies))}
    return {name: _bytes_of(np.asarray(leaf)) for name, leaf in numbers.items()}


def _bytes_of(array: np.ndarray) -> bytes:
    reported = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return f"{array.dtype}{array.shape}".encode() + reported


def assert_same_bits(one: Result, other: Result) -> None:
    """Fails where two results differ in a bit."""
    of_one, of_other = content(one), content(other)
    assert of_one.keys() == of_other.keys()
    assert [name for name in of_one if of_one[name] != of_other[name]] == []


def assert_one_sentence(text: str) -> None:
    """Fails if a message to the user is not one line with content."""
    assert text.strip() and "\n" not in text.strip(), text


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A block in which warnings are ignored instead of raised as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
