"""Shards of one call, and what they make together."""

import itertools
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
import jaxrl
from jaxrl.algorithms.base import Algorithm
from jaxrl.command_shards import shard_and_directory, shard_of_allocation
from jaxrl.parts import split
from jaxrl.results import Result, ResultError
from jaxrl.running import shard_of

RUN: Any = {"seeds": [3, 5, 9], "env_steps": 64, "evals": 2, "eval_episodes": 4, "progress": False, "block": 2}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, num_epochs=1, hidden=(8,))
    return jaxrl.ppo(envs.make("cartpole"), config)


@pytest.fixture(scope="module")
def sweep(algo: Algorithm) -> Any:
    return jaxrl.grid(algo.hparams, {"discount": [0.9, "beta:mu=0.98,eta=0.5"], "env.gravity": [9.8, 12.0]})


@pytest.fixture(scope="module")
def shards(algo: Algorithm, sweep: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two shards: the first has two of three seeds."""
    folder = tmp_path_factory.mktemp("shards")
    for i in range(2):
        jaxrl.train(algo, sweep, **RUN, shard=f"{i}/2", out=folder / f"x-{i}")
    return [folder / f"x-{i}" for i in range(2)]


def assert_same(one: Result, other: Result) -> None:
    for name in one.metrics.data_vars:
        np.testing.assert_array_equal(one.values(str(name)), other.values(str(name)), err_msg=str(name))
    jax.tree.map(np.testing.assert_array_equal, one.policies, other.policies)
    assert one.settings == other.settings and one.seeds == other.seeds and one.dims == other.dims
    jax.tree.map(np.testing.assert_array_equal, (one.hparams, one.env_params), (other.hparams, other.env_params))


def test_merged_shards_are_the_unsharded_run_bit_for_bit(
    algo: Algorithm, sweep: Any, shards: list[Path], tmp_path: Path
) -> None:
    whole = jaxrl.train(algo, sweep, **RUN)
    assert_same(jaxrl.merge(shards[::-1], tmp_path / "x"), whole)
    assert_same(jaxrl.load_result(tmp_path / "x"), whole)
    policy = jaxrl.load_result(tmp_path / "x").policy(discount=0.9, seed=9, **{"env.gravity": 12.0})
    assert policy.env_params.gravity == np.float32(12.0)


def test_more_shards_than_seeds_split_the_settings(algo: Algorithm, sweep: Any, tmp_path: Path) -> None:
    call = RUN | {"seeds": [4]}
    for i in range(3):
        part = jaxrl.train(algo, sweep, **call, shard=(i, 3), out=tmp_path / f"x-{i}")
        assert part.dims == ("setting",) and len(part.settings) == (2 if i == 0 else 1)
    assert_same(jaxrl.merge(sorted(tmp_path.glob("x-*"))), jaxrl.train(algo, sweep, **call))


def test_what_is_missing_is_said_and_left_out(algo: Algorithm, sweep: Any, shards: list[Path]) -> None:
    with pytest.warns(RuntimeWarning, match=r"shards 1/2 are missing, so that 1 of 3 seeds are left out"):
        merged = jaxrl.merge(shards[:1])
    assert merged.seeds == [3, 5]


def test_a_shard_that_ended_early_is_said(algo: Algorithm, sweep: Any, shards: list[Path], tmp_path: Path) -> None:
    def stop(env_step: int, metrics: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    jaxrl.train(algo, sweep, **RUN, shard="1/2", out=tmp_path / "x-1", on_chunk=stop)
    with pytest.warns(RuntimeWarning, match=r"x-1 ended early \(jaxrl resume goes on with them\)"):
        merged = jaxrl.merge([shards[0], tmp_path / "x-1"])
    assert merged.metrics.sizes["env_step"] == 1 and merged.metrics.attrs["interrupted"] == 1
    jaxrl.resume(tmp_path / "x-1", progress=False)
    assert_same(jaxrl.merge([shards[0], tmp_path / "x-1"]), jaxrl.train(algo, sweep, **RUN))


def test_bandits_are_sharded_too(tmp_path: Path) -> None:
    settings: Any = {"steps": 32, "runs": 5, "points": 3, "block": 2, "progress": False}
    bandit = envs.make("bandit/bernoulli", num_arms=3)
    ucb: Any = jaxrl.bandits.ucb1()
    for i in range(2):
        jaxrl.run_bandit(ucb, bandit, **settings, shard=f"{i}/2", out=tmp_path / f"b-{i}")  # pyright: ignore
    merged = jaxrl.merge(sorted(tmp_path.glob("b-*")))
    whole = jaxrl.run_bandit(ucb, bandit, **settings)  # pyright: ignore
    np.testing.assert_array_equal(merged.values("pulls"), whole.values("pulls"))
    assert merged.metrics["pulls"].dims == whole.metrics["pulls"].dims


# --- what is refused ----------------------------------------------------------------------


def test_shards_of_different_calls_are_refused(algo: Algorithm, sweep: Any, shards: list[Path], tmp_path: Path) -> None:
    jaxrl.train(algo, sweep, **RUN | {"evals": 1}, shard="1/2", out=tmp_path / "x-1")
    told = f"shards must be of one call, but points is [1, 2] in {shards[0]} and [2] in {tmp_path / 'x-1'}"
    with pytest.raises(ResultError, match=re.escape(told)):
        jaxrl.merge([shards[0], tmp_path / "x-1"])


def test_bad_input(algo: Algorithm, shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"paths takes the directories of shards, such as .*, got \[\]"):
        jaxrl.merge([])
    with pytest.raises(ResultError, match="both hold shard 0/2: name each once"):
        jaxrl.merge([shards[0], shards[0]])
    with pytest.raises(ResultError, match="there is no such directory"):
        jaxrl.merge([tmp_path / "none"])
    shutil.copytree(shards[0], tmp_path / "there")
    with pytest.raises(FileExistsError, match="holds a result already"):
        jaxrl.merge(shards, tmp_path / "there")
    with pytest.raises(ValueError, match="shard takes at most as many shards as there are runs, 3, got 0/4"):
        jaxrl.train(algo, **RUN, shard="0/4")


@pytest.mark.parametrize("shard", ["", "1", "2/2", "a/b", "-1/2", (0, 0), (1.0, 2), [0, 1], 3])
def test_what_is_no_shard_is_refused(shard: Any) -> None:
    with pytest.raises(ValueError, match="shard must be i/n"):
        shard_of(shard)


@pytest.mark.parametrize(("settings", "seeds"), list(itertools.product([1, 2, 5], [1, 3, 8])))
def test_parts_hold_every_run_once(settings: int, seeds: int) -> None:
    for count in range(1, settings * seeds + 3):
        parts = split(settings, seeds, count)
        times = np.zeros((settings, seeds), int)
        for part in parts:
            times[np.ix_(part.settings, part.seeds)] += 1
        assert (times == 1).all() and len(parts) == min(count, settings * seeds)
        sizes = [part.num_runs for part in parts]
        assert min(sizes) > 0
        if count <= seeds:
            assert max(sizes) - min(sizes) <= settings


# --- allocations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "shard"),
    [
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "8"}, "3/8"),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "8"}, "2/8"),
        (
            {
                "SLURM_ARRAY_TASK_ID": "6",
                "SLURM_ARRAY_TASK_MIN": "0",
                "SLURM_ARRAY_TASK_COUNT": "4",
                "SLURM_ARRAY_TASK_STEP": "2",
            },
            "3/4",
        ),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2"}, "2/4"),
        ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c"}, "1/3"),
    ],
)
def test_auto_reads_the_allocation(variables: dict[str, str], shard: str) -> None:
    assert shard_of_allocation(variables) == shard


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "finds no SLURM array, SLURM tasks or TPU pod"),
        ({"SLURM_NTASKS": "1"}, "finds no SLURM array"),
        ({"SLURM_ARRAY_TASK_ID": "3"}, "cannot read the allocation's variables"),
        (
            {"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "4"},
            "takes a SLURM array of evenly spaced tasks",
        ),
    ],
)
def test_an_allocation_that_tells_nothing_is_refused(variables: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=f"--shard auto {told}"):
        shard_of_allocation(variables)


def test_a_shard_is_written_beside_the_whole() -> None:
    assert shard_and_directory("1/4", "runs/x") == ("1/4", "runs/x-1")
    assert shard_and_directory(None, "runs/x") == (None, "runs/x")
    with pytest.raises(ValueError, match="--shard takes --out as well"):
        shard_and_directory("1/4", None)
