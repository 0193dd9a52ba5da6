"""Common parts of torture tests: every algorithm on every family of environments, small, and the checks."""

import contextlib
import dataclasses
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
from envs.registry import ROWS
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.results.result import Result

ROOT = Path(__file__).parents[2]
SEED = 21  # seed of all random choices

# Configurations that are tortured, `{name: (registered algorithm, fields)}`: every algorithm, and one with a memory.
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, dict(row.small)) for name, row in algorithms.ROWS.items()
}
LEARNERS["ppo, gru"] = ("ppo", {**algorithms.ROWS["ppo"].small, "memory": "gru", "memory_size": 4})

# Environments by family, a folder of `envs` or another library; a learner is tortured on the first that it takes.
FAMILIES: dict[str, list[tuple[str, dict[str, Any]]]] = {}
for _name, _row in ROWS.items():
    FAMILIES.setdefault(_row.module.split(".")[1], []).append((_name, {}))
FAMILIES["crowd"] = [("crowd/circle", {"num_agents": 3}), *FAMILIES["games"]]  # as crowds for action values
FAMILIES |= {
    "gymnax": [("gymnax/FrozenLake-misc", {})],
    "functional": [("functional/phys2d/CartPole-v1", {})],
    "gymnasium": [("gymnasium/CartPole-v1", {"time_limit": 20})],
    "brax": [("brax/inverted_pendulum", {"backend": "spring"})],
    "jaxmarl": [("jaxmarl/MPE_simple_spread_v3", {"num_agents": 2, "max_steps": 10})],
}
RUN_BANDIT = "run_bandit"  # in the place of a family
# Every learner once, and every family; a crowd also with action values and with a memory.
CASES = [
    *((name, "control") for name in LEARNERS),
    *((name, "crowd") for name in ("ppo", "dqn", "ppo, gru")),
    *(("ppo", family) for family in FAMILIES if family not in ("control", "crowd")),
    ("thompson", RUN_BANDIT),
]

SEEDS, ITERATIONS, EVALS = 2, 40, 20
OPTIONS: Any = {"progress": False, "block": 2}


def drawn(*names: Any) -> np.random.Generator:
    """Random numbers determined by these names, the same in every run."""
    return np.random.default_rng([SEED, *(zlib.crc32(str(name).encode()) for name in names)])


def share(count: int) -> int:
    """Share of one learner in a total count, so that more learners take little longer."""
    return -(-count // len(LEARNERS))


def learner(name: str, family: str = "control") -> Algorithm:
    """Small learner on the first environment of a family that it takes.

    Raises:
      UserError: The learner supports none of them.
    """
    algorithm, fields = LEARNERS[name]
    refused: Exception | None = None
    for env_name, static in FAMILIES[family]:
        env = envs.make(env_name, **static)
        try:
            config = algorithms.make(algorithm, env).config
            return algorithms.make(algorithm, env, dataclasses.replace(config, **fields))
        except UserError as error:
            refused = error
    assert refused is not None
    raise refused


def run(name: str, family: str, **options: Any) -> Result:
    """A call with an evaluation every other iteration, at each of which a checkpoint may be written."""
    every = OPTIONS | options
    if family == RUN_BANDIT:
        env: Any = envs.make("bandit/bernoulli", num_arms=5)
        points = list(range(50, 50 * EVALS + 1, 50))
        return jaxrl.run_bandit(jaxrl.bandits.policy(name), env, steps=points[-1], runs=4, points=points, **every)
    algo = learner(name, family)
    steps = ITERATIONS * algo.env_steps_per_iteration
    return jaxrl.train(algo, **{"seeds": SEEDS, "env_steps": steps, "evals": EVALS, "eval_episodes": 2} | every)


def begun(script: str, *args: Any, **options: Any) -> subprocess.Popen[str]:
    """A process that executes a script, with this folder on its path."""
    return process([sys.executable, "-c", script, *map(str, args)], **options)


def process(command: Sequence[str], cwd: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """A process that can import from this folder and this checkout, and uses the suite's compiled programs."""
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
    """Fail where two results differ in a bit."""
    of_one, of_other = content(one), content(other)
    assert of_one.keys() == of_other.keys()
    assert [name for name in of_one if of_one[name] != of_other[name]] == []


def assert_one_sentence(text: str) -> None:
    """Fail if a message to the user is not one line with content."""
    assert text.strip() and "\n" not in text.strip(), text


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A block in which warnings are ignored instead of raised as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
