"""Shards of one call, and their merged result."""

import itertools
import json
import os
import re
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from previous_format import write_json

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli.shards import shard_and_directory, shard_of_allocation
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.runtime import merging
from jaxrl.runtime.call import assembled, shard_of, split
from jaxrl.runtime.merging import _in_any, _spans
from jaxrl.runtime.runs import Runs

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


def test_shards_without_checkpoints_are_merged_too(
    algo: Algorithm, sweep: Any, shards: list[Path], tmp_path: Path
) -> None:
    for i in range(2):
        jaxrl.train(algo, sweep, **RUN, shard=f"{i}/2", out=tmp_path / f"x-{i}", checkpoint_minutes=None)
        assert not (tmp_path / f"x-{i}" / "checkpoints").exists()
    assert_same(jaxrl.merge(sorted(tmp_path.glob("x-*"))), jaxrl.merge(shards))


@pytest.mark.slow
def test_more_shards_than_seeds_split_the_settings(algo: Algorithm, sweep: Any, tmp_path: Path) -> None:
    call = RUN | {"seeds": [4]}
    for i in range(3):
        part = jaxrl.train(algo, sweep, **call, shard=(i, 3), out=tmp_path / f"x-{i}")
        assert part.dims == ("setting",) and len(part.settings) == (2 if i == 0 else 1)
    assert_same(jaxrl.merge(sorted(tmp_path.glob("x-*"))), jaxrl.train(algo, sweep, **call))


def test_missing_parts_are_reported_and_left_out(algo: Algorithm, sweep: Any, shards: list[Path]) -> None:
    with pytest.warns(RuntimeWarning, match=r"^shards 1/2 are missing, so that 1 of 3 seeds are left out: 9$"):
        merged = jaxrl.merge(shards[:1])
    assert merged.seeds == [3, 5]


@pytest.mark.slow
def test_a_shard_that_ended_early_is_said(algo: Algorithm, sweep: Any, shards: list[Path], tmp_path: Path) -> None:
    def stop(env_step: int, metrics: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    jaxrl.train(algo, sweep, **RUN, shard="1/2", out=tmp_path / "x-1", on_chunk=stop)
    with pytest.warns(RuntimeWarning, match=r"x-1 ended early \(jaxrl resume resumes them\)"):
        merged = jaxrl.merge([shards[0], tmp_path / "x-1"])
    assert merged.metrics.sizes["env_step"] == 1 and merged.metrics.attrs["interrupted"] == 1
    jaxrl.resume(tmp_path / "x-1", progress=False)
    assert_same(jaxrl.merge([shards[0], tmp_path / "x-1"]), jaxrl.train(algo, sweep, **RUN))


@pytest.mark.slow
def test_a_shard_stopped_between_evaluations_has_no_later_numbers(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = RUN | {"env_steps": 128}
    whole = jaxrl.train(algo, **call, shard="0/2", out=tmp_path / "x-0")
    advance = Runs.advance

    def stop_after_three(runs: Runs, count: int) -> None:
        advance(runs, count)
        if runs.iteration == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("jaxrl.runtime.drive.driver.SECONDS_PER_CHUNK", 0.0)  # one iteration a chunk
    monkeypatch.setattr(Runs, "advance", stop_after_three)
    cut = jaxrl.train(algo, **call, shard="1/2", out=tmp_path / "x-1")
    assert whole.metrics["env_step"].values.tolist() == [64, 128]
    assert cut.metrics["env_step"].values.tolist() == [64, 96]
    with pytest.warns(RuntimeWarning, match="x-1 ended early"):
        merged = jaxrl.merge([tmp_path / "x-0", tmp_path / "x-1"])
    assert merged.metrics["env_step"].values.tolist() == [64]
    for part in (whole, cut):
        at = [merged.seeds.index(seed) for seed in part.seeds]
        np.testing.assert_array_equal(merged.values("return")[:, at, 0], part.values("return")[:, :, 0])


def test_parts_that_share_no_point_make_nothing(algo: Algorithm, shards: list[Path]) -> None:
    results = [jaxrl.load_result(shard) for shard in shards]
    results[1].metrics = results[1].metrics.assign_coords(env_step=[8, 16])
    with pytest.raises(ResultError, match="the parts have no evaluation at the same env step"):
        assembled((4, 3), list(zip(split(4, 3, 2), results, strict=True)))


def told_to(directory: Path, **changes: Any) -> None:
    """Change the run.json of a shard."""
    reported = json.loads((directory / "run.json").read_text())
    write_json(directory / "run.json", reported | changes)


def test_a_shard_killed_before_its_first_result_is_left_out(shards: list[Path], tmp_path: Path) -> None:
    for i, shard in enumerate(shards):
        shutil.copytree(shard, tmp_path / f"x-{i}")
        for file in [*(tmp_path / f"x-{i}").glob("metrics.*"), *(tmp_path / f"x-{i}").glob("policies.npz")]:
            file.unlink()
    reported = r"there is no result yet in \S*x-1 \(jaxrl resume resumes them\), so that 1 of 3 seeds are left out: 9$"
    with pytest.warns(RuntimeWarning, match=reported):
        merged = jaxrl.merge([shards[0], tmp_path / "x-1"], tmp_path / "x")
    assert merged.seeds == [3, 5] and merged.metrics.attrs["interrupted"] == 0
    reported = r"^no shard has a result; shards 0/2 are missing and there is no result yet in \S*x-1 "
    with pytest.raises(ResultError, match=reported):
        jaxrl.merge([tmp_path / "x-1"])
    with pytest.raises(ResultError, match=r"^no shard has a result; there is no result yet in \S*x-0, \S*x-1 "):
        jaxrl.merge([tmp_path / "x-0", tmp_path / "x-1"])


def test_a_shard_killed_during_an_extension_ends_early(algo: Algorithm, shards: list[Path], tmp_path: Path) -> None:
    for i in range(2):
        shutil.copytree(shards[i], tmp_path / f"x-{i}")
    longer = jaxrl.resume(tmp_path / "x-0", env_steps=128, algo=algo, progress=False)
    assert longer.metrics["env_step"].values.tolist() == [32, 64, 96, 128]
    told_to(tmp_path / "x-1", points=[1, 2, 3, 4], env_steps=128)  # the work of a shard before its first evaluation
    with pytest.warns(RuntimeWarning, match=r"x-1 ended early \(.*\); the result ends at 64 of 128 env steps$"):
        merged = jaxrl.merge([tmp_path / "x-0", tmp_path / "x-1"])
    assert merged.metrics["env_step"].values.tolist() == [32, 64] and merged.metrics.attrs["interrupted"] == 1


@pytest.mark.slow
def test_the_result_of_an_earlier_run_is_not_merged(
    algo: Algorithm, sweep: Any, shards: list[Path], tmp_path: Path
) -> None:
    other = algo._replace(hparams=algo.hparams.replace(lr=0.01))
    values = {"discount": [0.9, "beta:mu=0.98,eta=0.5"], "env.gravity": [9.8, 12.0]}
    for i in range(2):
        jaxrl.train(other, jaxrl.grid(other.hparams, values), **RUN, shard=f"{i}/2", out=tmp_path / f"x-{i}")
    shutil.copytree(shards[1], tmp_path / "killed")  # restarted, with --force, under the other learning rate
    shutil.copy(tmp_path / "x-1" / "run.json", tmp_path / "killed")
    reported = r"there is only an earlier run's result in \S*killed \(.*\), so that 1 of 3 seeds are left out: 9$"
    with pytest.warns(RuntimeWarning, match=reported):
        merged = jaxrl.merge([tmp_path / "x-0", tmp_path / "killed"])
    assert merged.seeds == [3, 5]
    reported = f"shards must be of one call, but hparams.lr is 0.01 in {tmp_path / 'x-0'} and 0.00025 in {shards[1]}"
    with pytest.raises(ResultError, match=re.escape(reported)):
        jaxrl.merge([tmp_path / "x-0", shards[1]])


def test_a_shard_in_parts_that_ended_early_has_the_seeds_of_its_parts(shards: list[Path], tmp_path: Path) -> None:
    shutil.copytree(shards[0], tmp_path / "x-0")
    whole = jaxrl.load_result(shards[0])
    first = whole.metrics.isel(seed=[0]).assign_attrs(interrupted=1)
    policies = jax.tree.map(lambda leaf: leaf[:, :1], whole.policies)
    Result(first, policies, whole.algo, whole.hparams, whole.env_params).save(tmp_path / "x-0", force=True)
    with pytest.warns(RuntimeWarning, match=r"x-0 ended early \(.*\), so that 1 of 3 seeds are left out: 5$"):
        merged = jaxrl.merge([tmp_path / "x-0", shards[1]])
    assert merged.seeds == [3, 9]
    assert json.loads((tmp_path / "x-0" / "config.json").read_text())["attributes"]["eval_episodes"] == 4
    np.testing.assert_array_equal(merged.values("return")[:, 0], whole.values("return")[:, 0])


def test_seeds_in_a_row_are_described_by_the_first_and_the_last() -> None:
    assert _spans([0, 1, 2, 3, 7, 9, 10]) == "0 to 3, 7, 9 to 10"
    assert _spans(list(range(0, 60, 2))) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ... (30 in all, up to 58)"


@pytest.mark.slow
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
    reported = f"shards must be of one call, but points is [1, 2] in {shards[0]} and [2] in {tmp_path / 'x-1'}"
    with pytest.raises(ResultError, match=re.escape(reported)):
        jaxrl.merge([shards[0], tmp_path / "x-1"])


def test_bad_input(algo: Algorithm, shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"paths takes the directories of shards, such as .*, got \[\]"):
        jaxrl.merge([])
    with pytest.raises(ResultError, match="both hold shard 0/2: name each once"):
        jaxrl.merge([shards[0], shards[0]])
    with pytest.raises(ResultError, match="there is no such directory"):
        jaxrl.merge([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultError, match=r"empty holds no shard: run\.json is missing"):
        jaxrl.merge([tmp_path / "empty"])
    shutil.copytree(shards[0], tmp_path / "there")
    with pytest.raises(FileExistsError, match="holds a result already"):
        jaxrl.merge(shards, tmp_path / "there")
    with pytest.raises(ValueError, match="shard takes at most as many shards as there are runs, 3, got 0/4"):
        jaxrl.train(algo, **RUN, shard="0/4")


@pytest.mark.parametrize("shard", ["", "1", "2/2", "a/b", "-1/2", (0, 0), (1.0, 2), [0, 1], 3])
def test_a_value_that_is_not_a_shard_is_refused(shard: Any) -> None:
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
        ({"SKYPILOT_JOB_RANK": "2", "SKYPILOT_NUM_JOBS": "4"}, "2/4"),
        ({"SKYPILOT_JOB_RANK": "2", "SKYPILOT_NUM_JOBS": "4", "SLURM_NTASKS": "8", "SLURM_PROCID": "7"}, "2/4"),
    ],
)
def test_auto_reads_the_allocation(variables: dict[str, str], shard: str) -> None:
    assert shard_of_allocation(variables) == shard


@pytest.mark.parametrize(
    ("variables", "reported"),
    [
        ({}, "finds no SLURM array, SLURM tasks, SkyPilot jobs, TPU pod or Kubernetes job in the environment"),
        ({"SKYPILOT_JOB_RANK": "2"}, "cannot read the allocation's variables: 'SKYPILOT_NUM_JOBS'"),
        (
            {"SKYPILOT_JOB_RANK": "4", "SKYPILOT_NUM_JOBS": "4"},
            "takes indices from 0 to 3 in this allocation, but got 4",
        ),
        ({"JOB_COMPLETION_INDEX": "3"}, "finds an index in JOB_COMPLETION_INDEX of Kubernetes, .*: add it, such as"),
        ({"JOB_COMPLETION_INDEX": "x"}, "cannot read the allocation's variables: invalid literal"),
        ({"SLURM_NTASKS": "1"}, "finds no SLURM array"),
        ({"SLURM_ARRAY_TASK_ID": "3"}, "cannot read the allocation's variables"),
        (
            {"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "4"},
            "takes a SLURM array of evenly spaced tasks",
        ),
    ],
)
def test_an_allocation_without_an_index_is_refused(variables: dict[str, str], reported: str) -> None:
    with pytest.raises(ValueError, match=f"--shard auto {reported}"):
        shard_of_allocation(variables)


def test_auto_takes_the_number_of_shards_that_kubernetes_has_no_variable_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shard_of_allocation({"JOB_COMPLETION_INDEX": "3"}, 16) == "3/16"
    slurm = {"SLURM_NTASKS": "4", "SLURM_PROCID": "2"}
    assert shard_of_allocation(slurm, 4) == "2/4"
    with pytest.raises(ValueError, match="--shard auto/5 takes an allocation of 5 processes, but this has 4"):
        shard_of_allocation(slurm, 5)
    with pytest.raises(ValueError, match="takes indices from 0 to 2 in this allocation, but got 3"):
        shard_of_allocation({"JOB_COMPLETION_INDEX": "3"}, 3)
    for name in ("SLURM_ARRAY_TASK_ID", "SLURM_NTASKS", "SKYPILOT_JOB_RANK", "TPU_WORKER_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")
    assert shard_and_directory("auto/16", "runs/x") == ("3/16", "runs/x-3")
    for wrong in ("auto/", "auto/x", "auto/0", "auto/1/2"):
        with pytest.raises(ValueError, match=f"--shard takes I/N, auto, or auto/N with the number N .*, got {wrong}"):
            shard_and_directory(wrong, "runs/x")


def test_optima_and_bounds_of_any_shard_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three settings one has an optimum and another a bound, in shards of settings and of seeds."""
    known = {"a": [np.nan, 2.0], "b": None, "c": [np.nan]}
    monkeypatch.setattr(merging, "known_values", lambda result, metric, kind: known[result])
    parts: list[Any] = [SimpleNamespace(shape=(3, 2), settings=np.array(places)) for places in ([0, 1], [0, 1], [2])]
    results: list[Any] = ["a", "b", "c"]
    np.testing.assert_array_equal(_in_any(parts, results, "return", "optima"), [np.nan, 2.0, np.nan])
    known["b"] = [1.0, np.nan]
    np.testing.assert_array_equal(_in_any(parts, results, "return", "optima"), [1.0, 2.0, np.nan])


def test_a_shard_is_written_beside_the_whole() -> None:
    assert shard_and_directory("1/4", "runs/x") == ("1/4", "runs/x-1")
    assert shard_and_directory(None, "runs/x") == (None, "runs/x")
    with pytest.raises(ValueError, match="--shard takes --out as well"):
        shard_and_directory("1/4", None)
