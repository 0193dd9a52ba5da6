"""Plans: fitting into memory, division into parts, and results of parts equal bit for bit."""

import dataclasses
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import psutil
import pytest
from chaotic_algorithm import PER_ITERATION, wandering
from out_of_memory import exhausted_at

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import plan as command_plan
from jaxrl.cli.main import main
from jaxrl.results.dataset import ResultError
from jaxrl.runtime import execution
from jaxrl.runtime.call import Call, split
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.machine.memory import GIB, KIB, MIB, available, give_back, parse_size, resident, size
from jaxrl.runtime.plan import planner as fitting
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.plan.planner import Planner, Sizes, programs_of
from jaxrl.runtime.plan_call import compile_groups
from jaxrl.runtime.programs import compilations
from jaxrl.runtime.training import points_of, training_call
from jaxrl.tracking.tracker import FollowedCall

CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))
SIZES = Sizes(
    state=10 * MIB,
    arguments=0,
    metrics=0,
    kept=MIB,
    arrays=0,
    evaluated_arrays=0,
    advancing=40 * MIB,
    evaluating=8 * MIB,
    block=8,
)


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


def call_of(algo: Algorithm, seeds: int, hparams: Any = None, evals: int = 2) -> Call:
    points = points_of(algo, 4 * PER_ITERATION, evals, 2)
    return training_call(algo, hparams, seeds=list(range(seeds)), points=points, eval_episodes=2)


def run(algo: Algorithm, hparams: Any = None, **changes: Any) -> jaxrl.Result:
    options = {"env_steps": 4 * PER_ITERATION, "evals": 2, "eval_episodes": 2, "block": 2, "progress": False}
    options["devices"] = jax.devices()[:1]
    return jaxrl.train(algo, hparams, **(options | changes))


def assert_same_runs(one: jaxrl.Result, other: jaxrl.Result) -> None:
    assert one.seeds == other.seeds and one.settings == other.settings
    for name in other.metrics.data_vars:
        np.testing.assert_array_equal(one.values(str(name)), other.values(str(name)))
    for x, y in zip(jax.tree.leaves(one.policies), jax.tree.leaves(other.policies), strict=True):
        np.testing.assert_array_equal(x, y)


# --- sizes and free memory ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8GiB", 8 * GIB),
        ("1.5 gib", 3 * GIB // 2),
        ("500MB", 500_000_000),
        ("64 KiB", 64 * KIB),
        ("2TB", 2 * 10**12),
        ("4096", 4096),
        (4096, 4096),
    ],
)
def test_sizes(text: int | str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["lots", "", "8 apples", "-1GiB", "0", 0, True, 1.5, None, "GiB"])
def test_a_value_that_is_not_a_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^memory must be a size such as 8GiB or 500MB, or a number of bytes, got "):
        parse_size(text)


def test_sizes_for_a_reader() -> None:
    numbers = (3 * KIB, 3 * MIB, 0.96 * GIB, 12.34 * GIB)
    assert [size(n) for n in numbers] == ["3 KiB", "3 MiB", "1.0 GiB", "12.3 GiB"]


def file_system(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_no_more_is_free_than_the_address_space_may_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**18))
    mapped = psutil.Process().memory_info().vms
    for limit, expected in ((mapped + GIB, GIB), (mapped // 2, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: (limit, limit))
        assert available(tmp_path) == pytest.approx(expected, abs=64 * MIB)  # the process may map more in between
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert available(tmp_path) == 10**18


def test_available_memory_is_the_least_of_machine_and_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=3000 * KIB))
    assert available(tmp_path) == 3000 * KIB
    second = {
        "proc/self/cgroup": "0::/job/step\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
        "sys/fs/cgroup/job/step/memory.current": "100\n",
        "sys/fs/cgroup/job/step/memory.stat": "anon 60\ninactive_file 40\n",
        "sys/fs/cgroup/job/memory.max": "1000\n",
        "sys/fs/cgroup/job/memory.current": "900\n",
        "sys/fs/cgroup/job/memory.stat": "anon 700\ninactive_file 200\n",
    }
    assert available(file_system(tmp_path / "b", second)) == 1000 - 900 + 200
    first = {
        "proc/self/cgroup": "4:memory:/not/seen/inside\n3:cpu:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1500\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 50\n",
    }
    assert available(file_system(tmp_path / "c", first)) == 550
    spent = first | {"sys/fs/cgroup/memory/memory.usage_in_bytes": "2500\n"}
    assert available(file_system(tmp_path / "d", spent)) == 0


def test_the_resident_size_grows_with_held_arrays() -> None:
    before = resident()
    held = np.ones(64 * MIB, np.uint8)
    assert resident() >= before + 0.9 * held.nbytes
    del held
    give_back()
    assert resident() < before + 32 * MIB


# --- fitting into memory -----------------------------------------------------------------


def planner(algo: Algorithm, seeds: int, limit: int | None, threads: int = 2, settings: int = 1) -> Planner:
    hparams = None if settings == 1 else jaxrl.grid(algo.hparams, {"lr": np.geomspace(1e-4, 1e-2, settings).tolist()})
    call = call_of(algo, seeds, hparams)
    return Planner(call, plan_layout(call.num_runs, 8, jax.devices()[:1] * threads), limit)


def test_the_parts_that_are_counted_are_those_of_split(algo: Algorithm) -> None:
    for settings, seeds in ((1, 10), (3, 4), (5, 2)):
        planned = planner(algo, seeds, None, settings=settings)
        for count in range(1, settings * seeds + 1):
            assert planned.runs_of_part(count) == max(part.num_runs for part in split(settings, seeds, count))


def test_a_plan_adds_up(algo: Algorithm) -> None:
    planned = planner(algo, 32, None).at(SIZES, 8, 1, 500 * MIB)
    assert (planned.block, planned.num_blocks, planned.num_threads, planned.num_parts) == (8, 2, 2, 1)
    assert planned.states == 320 * MIB
    # While it is evaluated: two threads' temporaries and policies, and these twice on the host.
    evaluating = 2 * 8 * MIB + 32 * MIB + 2 * 32 * MIB
    advancing = 2 * 40 * MIB + 32 * MIB
    assert evaluating == advancing  # by these figures
    assert planned.memory == 500 * MIB + 320 * MIB + evaluating + 2 * fitting.ROOM_PER_THREAD
    assert planned.fits
    # Two blocks of each of two threads.
    held = planner(algo, 32, None).at(SIZES._replace(arrays=1000, evaluated_arrays=10), 8, 1, 500 * MIB)
    assert held.states == planned.states + 4 * 1000 and held.memory == planned.memory + 4 * 1000 + 4 * 10


def test_the_fewest_parts_that_fit_are_taken_and_then_narrower_blocks(algo: Algorithm) -> None:
    enough = planner(algo, 256, None).at(SIZES, 8, 1, 0).memory
    assert planner(algo, 256, enough).fitted(SIZES, 0).num_parts == 1
    less = planner(algo, 256, enough // 2).fitted(SIZES, 0)
    assert less.num_parts > 1 and less.block == 8 and less.fits
    assert not planner(algo, 256, enough // 2).at(SIZES, 8, less.num_parts - 1, 0).fits
    least = planner(algo, 256, None).at(SIZES, 8, 32, 0).memory
    narrow = planner(algo, 256, least - 1).fitted(SIZES, 0)
    assert narrow.block == 4 and narrow.fits
    assert "blocks are of 4 instead of 8 runs for lack of memory" in narrow.summary
    assert "not equal bit for bit" in str(narrow)


def test_where_no_block_of_one_run_fits_the_numbers_are_reported(algo: Algorithm) -> None:
    with pytest.raises(
        ValueError, match=r"^memory must be at least 790MiB for this call, got 300 MiB: it takes process 200"
    ):
        planner(algo, 256, 300 * MIB).fitted(SIZES, 200 * MIB)


def test_a_refused_plan_is_replaced_by_a_smaller_one(algo: Algorithm) -> None:
    one = planner(algo, 256, 2 * GIB)
    refused: Plan = one.fitted(SIZES, 0)
    for _ in range(12):
        smaller = one.fitted(SIZES, 0, refused)
        assert (smaller.block, smaller.num_slots) < (refused.block, refused.num_slots)
        refused = smaller


# --- compilation -------------------------------------------------------------------------


@pytest.mark.slow
def test_training_finds_the_programs_that_a_plan_compiled(algo: Algorithm, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"env_steps": 4 * PER_ITERATION, "evals": 2, "eval_episodes": 2, "block": 2}
    options |= {"seeds": 5, "devices": ["cpu:0", "cpu:0"]}
    planned = jaxrl.plan(algo, **options)
    assert (planned.num_runs, planned.block, planned.num_parts, planned.compilations) == (5, 2, 1, 1)
    assert planned.seconds is not None and planned.seconds > 0
    assert planned.limit is not None
    assert planned.process + planned.programs + planned.states + planned.results == planned.memory < planned.limit
    assert "5: 1 setting x 5 seeds of wander on Crowd, 64 env steps each" in str(planned)
    before = compilations()
    jaxrl.train(algo, **options, progress=True)
    assert compilations() == before
    shown = capsys.readouterr().err
    assert re.search(
        r"^jaxrl: 5 runs, 2 blocks of 2 runs in each of 2 threads; about \S+ .iB of \S+ .iB of memory$", shown, re.M
    )
    jaxrl.train(algo, **options, progress=False)
    assert capsys.readouterr().err == ""


COLLECTIVE = re.compile(
    r"\b(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-permute|collective-broadcast|send|recv)"
    r"(-start|-done)?\("
)


def assert_no_collectives(algo: Algorithm) -> None:
    layout = plan_layout(4, 2, jax.devices()[:2])
    assert len(set(layout.devices)) == 2
    programs, _ = programs_of(call_of(algo, 4), layout)
    assert set(programs.executables) == {"init", "advance", "evaluate"}
    for executables in programs.executables.values():
        assert set(executables) == set(layout.devices)
        for executable in executables.values():
            text = executable.as_text()
            assert text is not None and "ENTRY" in text
            assert COLLECTIVE.search(text) is None


@pytest.mark.slow
def test_programs_of_runs_on_two_devices_hold_no_collectives(algo: Algorithm) -> None:
    assert_no_collectives(algo)


@pytest.mark.slow
def test_those_of_ppo_hold_none_either() -> None:
    assert_no_collectives(jaxrl.ppo(envs.make("cartpole"), CONFIG))


def test_a_search_for_collectives_finds_one() -> None:
    mesh = jax.make_mesh((2,), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shape = jax.ShapeDtypeStruct((4,), np.float32, sharding=sharding)
    text = jax.jit(lambda x: x.sum()).lower(shape).compile().as_text()
    assert text is not None and COLLECTIVE.search(text) is not None


def test_algorithms_with_other_static_configurations_are_compiled_separately() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), CONFIG)
    faster = algo._replace(hparams=algo.hparams.replace(lr=1e-2))
    other = jaxrl.ppo(algo.env, dataclasses.replace(CONFIG, num_steps=4))
    same = jaxrl.ppo(envs.make("cartpole"), CONFIG)
    assert compile_groups([algo, other, faster, same]) == [[0, 2, 3], [1]]
    assert compile_groups([]) == []


# --- parts -------------------------------------------------------------------------------


@pytest.fixture
def three_parts(algo: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for a third of six seeds at a time, in addition to the other memory of the process."""
    monkeypatch.setattr(fitting, "ROOM_PER_THREAD", 0)
    monkeypatch.setattr(fitting, "BYTES_PER_ARRAY", 0)
    monkeypatch.setattr(fitting, "resident", lambda: 0)
    call = call_of(algo, 6)
    layout = plan_layout(6, 2, jax.devices()[:1])
    _, sizes = programs_of(call, layout)
    two, three = (Planner(call, layout, None, True).at(sizes, 2, count, 0).memory for count in (2, 3))
    limit = (two + three) // 2

    def of(_: Any, call: Call, layout: Any, memory: Any, keeps: bool) -> Planner:
        return Planner(call, layout, None if memory is None else limit, True)

    monkeypatch.setattr(execution.Planner, "of", classmethod(of))


class Tracker:
    """Records its arguments."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

    def start(self, call: FollowedCall, resumed: int | None) -> None:
        self.reported.append(("start", call.shape, resumed))

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        self.reported.append((env_step, np.array(metrics["return"])))

    def finish(self, result: jaxrl.Result | None) -> None:
        self.reported.append(("finish", result is not None))


@pytest.mark.slow
@pytest.mark.usefixtures("three_parts")
def test_parts_change_no_bit(algo: Algorithm, tmp_path: Path) -> None:
    whole = run(algo, seeds=6)
    tracker, before = Tracker(), compilations()
    parts = run(algo, seeds=6, memory="1GiB", out=tmp_path / "x", trackers=[tracker])
    assert compilations() <= before + 1
    assert_same_runs(parts, whole)
    assert parts.metrics.attrs["num_parts"] == 3 and parts.metrics.attrs["interrupted"] == 0
    assert_same_runs(jaxrl.load_result(tmp_path / "x"), whole)
    folders = sorted(path.name for path in (tmp_path / "x/parts").iterdir())
    assert folders == ["0000-of-0003", "0001-of-0003", "0002-of-0003"]
    assert jaxrl.load_result(tmp_path / "x/parts/0001-of-0003").seeds == [2, 3]
    assert [reported[0] for reported in tracker.reported] == ["start", *[32, 64] * 3, "finish"]
    assert tracker.reported[0] == ("start", (1, 6), None) and tracker.reported[-1] == ("finish", True)
    for i, (env_step, returns) in enumerate(tracker.reported[1:-1]):
        there = np.arange(6) // 2 == i // 2
        np.testing.assert_array_equal(np.isnan(returns[0]), ~there)
        point = 0 if env_step == 32 else 1
        np.testing.assert_array_equal(returns[0, there], whole.values("return")[0, there, point])


@pytest.mark.slow
@pytest.mark.usefixtures("three_parts")
def test_parts_continue_where_a_signal_stopped_them(algo: Algorithm, tmp_path: Path) -> None:
    whole, calls = run(algo, seeds=6), []

    def stop_at_fourth(env_step: int, metrics: Any) -> None:
        calls.append(env_step)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    options: dict[str, Any] = {"seeds": 6, "memory": "1GiB", "out": tmp_path / "x"}
    with pytest.warns(RuntimeWarning, match=r"interrupted before the last of 3 parts: 2 of 6 seeds are in the result"):
        cut = run(algo, **options, on_chunk=stop_at_fourth)
    assert cut.seeds == [0, 1] and cut.metrics.attrs["interrupted"] == 1
    assert cut.metrics.attrs["stopped_by_signal"] == signal.SIGTERM
    calls.clear()
    resumed = run(algo, **options, resume=True, on_chunk=lambda env_step, metrics: calls.append(env_step))
    assert calls == [64, 32, 64]  # the rest of the second part, and the third
    assert_same_runs(resumed, whole)
    assert jaxrl.load_result(tmp_path / "x").seeds == list(range(6))
    again = jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    assert_same_runs(again, whole)
    more = {"env_steps": 12 * PER_ITERATION, "evals": 6, "memory": None}
    with pytest.warns(RuntimeWarning, match=r"keeps its layout, although memory may be short: 6 runs in 3"):
        longer = run(algo, **(options | more), resume=True)
    assert longer.metrics.attrs["num_parts"] == 3
    assert longer.metrics["env_step"].values.tolist() == [*range(32, 193, 32)] and longer.seeds == list(range(6))
    with pytest.raises(ResultError, match="seeds"):
        run(algo, **(options | {"seeds": [0, 1, 2, 3, 4, 9]}), resume=True)


@pytest.mark.slow
@pytest.mark.usefixtures("three_parts")
def test_a_single_part_takes_away_the_parts_of_before(algo: Algorithm, tmp_path: Path) -> None:
    run(algo, seeds=6, memory="1GiB", out=tmp_path / "x")
    run(algo, seeds=6, out=tmp_path / "x", force=True)
    assert not (tmp_path / "x/parts").exists()
    assert_same_runs(run(algo, seeds=6, out=tmp_path / "x", resume=True), run(algo, seeds=6))


def test_memory_for_no_run_leaves_nothing_behind(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = iter([fitting.resident()])  # before anything is compiled
    monkeypatch.setattr(fitting, "resident", lambda: next(has, 100 * GIB))
    with pytest.raises(ValueError, match=r"^memory must be at least \d+GiB for this call, got "):
        run(algo, seeds=2, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


# --- a device without memory left --------------------------------------------------------


@pytest.mark.slow
def test_a_device_without_memory_left_gets_narrower_blocks(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = run(algo, seeds=6, block=1)
    run(algo, seeds=6)
    # Initial states, then a chunk: the second chunk fails.
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(3))
    with pytest.warns(RuntimeWarning, match=r"had no memory left for blocks of 2 runs .* from the start of this part"):
        result = run(algo, seeds=6, out=tmp_path / "x")
    assert result.metrics.attrs["block"] == 1
    assert_same_runs(result, narrow)
    monkeypatch.undo()
    assert_same_runs(run(algo, seeds=6, out=tmp_path / "x", resume=True, block=None), narrow)


@pytest.mark.slow
def test_it_continues_from_the_last_checkpoint(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = run(algo, seeds=6, env_steps=2 * PER_ITERATION, evals=1)
    run(algo, seeds=6, block=1)
    options: dict[str, Any] = {"seeds": 6, "out": tmp_path / "x", "checkpoint_minutes": 1e-9}
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(6))
    with pytest.warns(RuntimeWarning, match=r"continuing from the last checkpoint with blocks of 1"):
        result = run(algo, **options)
    np.testing.assert_array_equal(result.values("return")[:, :, 0], half.values("return")[:, :, 0])
    assert result.metrics["env_step"].values.tolist() == [32, 64] and result.metrics.attrs["block"] == 1


def test_where_no_block_is_narrower_one_sentence_is_shown(algo: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    run(algo, seeds=6, block=1)
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(1))
    with pytest.raises(ValueError, match=r"^there is no memory left for blocks of one run: RESOURCE_EXHAUSTED"):
        run(algo, seeds=6, block=1)


# --- bad input and the command -----------------------------------------------------------


@pytest.mark.slow_rows("changes1-memory must be at least \\\\d+MiB for this call, got 1 MiB: ")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"memory": "lots"}, r"memory must be a size such as 8GiB or 500MB, or a number of bytes, got 'lots'"),
        (
            {"memory": "1MiB"},
            r"memory must be at least \d+MiB for this call, got 1 MiB: ",
        ),
        ({"devices": ["gpu:7"]}, r"devices must be among cpu:0, cpu:1, got 'gpu:7'"),
        ({"devices": [3]}, r"devices must be among cpu:0, cpu:1, got 3"),
        (
            {"shard_environments": True, "memory": "1GiB", "block": None},
            r"memory has no effect with shard_environments",
        ),
    ],
)
def test_bad_input_is_reported_before_compilation(
    algo: Algorithm, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    before = compilations()
    with pytest.raises(ValueError, match=rf"^{sentence}"):
        run(algo, out=tmp_path / "x", **changes)
    assert compilations() == before and not (tmp_path / "x").exists()


def test_a_device_by_name_is_that_device(algo: Algorithm) -> None:
    assert plan_layout(4, 2, ["cpu:1"]).devices == (jax.devices()[1],)


@pytest.mark.slow
def test_a_plan_of_a_shard_is_that_of_its_runs_in_the_blocks_of_the_whole(algo: Algorithm) -> None:
    options: dict[str, Any] = {"env_steps": 64, "eval_episodes": 2, "measure": False, "devices": jax.devices()[:1]}
    sweep = jaxrl.grid(algo.hparams, {"lr": [0.1, 0.2]})
    planned = jaxrl.plan(algo, sweep, seeds=10, shard="0/4", **options)
    assert (planned.num_settings, planned.num_seeds) == (2, 3)  # 10 seeds in four parts: 3, 3, 2 and 2
    assert planned.block == jaxrl.plan(algo, sweep, seeds=10, **options).block
    planned = jaxrl.plan(algo, sweep, seeds=1, shard=(1, 2), **options)
    assert (planned.num_settings, planned.num_seeds) == (1, 1)
    with pytest.raises(ValueError, match="shard takes at most as many shards as there are runs, 10, got 0/11"):
        jaxrl.plan(algo, seeds=10, shard="0/11", **options)
    with pytest.raises(ValueError, match="shard takes one algorithm, got 2"):
        jaxrl.plan([algo, algo], seeds=10, shard="0/2", **options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that the command passes to `jaxrl.plan`."""
    actual: dict[str, Any] = {}
    monkeypatch.setattr(command_plan, "plan", lambda *_, **options: actual.update(options))
    return actual


@pytest.mark.parametrize(
    ("args", "shard", "checkpoints"),
    [
        ([], None, False),
        (["--out", "x"], None, True),
        (["--out", "x", "--checkpoint-minutes", "0"], None, False),
        (["--out", "x", "--shard", "0/16"], "0/16", True),
        (["--out", "x", "--shard", "auto"], "2/4", True),
    ],
)
def test_the_command_plans_the_same_call_as_train(
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    args: list[str],
    shard: str | None,
    checkpoints: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "2")
    assert main(["plan", "ppo", "cartpole", "--seeds", "100", *args]) == 0
    assert (asked["shard"], asked["checkpoints"], asked["seeds"]) == (shard, checkpoints, 100)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--shard-environments"], "--shard-environments"),
        (["--distributed", "--resume", "--out", "x"], "--distributed, --resume"),
        (["--coordinator", "host0:1234", "--process-id", "0"], "--coordinator, --process-id"),
    ],
)
def test_the_command_refuses_options_that_plans_do_not_cover(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], args: list[str], named: str
) -> None:
    assert main(["plan", "ppo", "cartpole", *args]) == 2 and not asked
    assert capsys.readouterr().err == (
        f"jaxrl: plan does not take {named}: it covers new runs, each on one device; leave that out\n"
    )


@pytest.mark.parametrize("named", [[], ["ppo", "cartpole"]])
def test_the_help_of_a_plan_describes_planning(capsys: pytest.CaptureFixture[str], named: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", *named, "--help"])
    help_text = capsys.readouterr().out
    out = " ".join(help_text.split())
    assert "Estimate memory and time of training ppo on cartpole" in out and "Train ppo" not in out
    shown = set(re.findall(r"^[│ ]+(--[a-z-]+)", help_text, flags=re.MULTILINE))
    assert {"--seeds", "--memory", "--shard", "--checkpoint-minutes", "--deterministic"} <= shown
    assert not {"--warm-start", "--resume", "--force", "--track", "--coordinator", "--no-progress"} & shown


@pytest.mark.slow
def test_the_command_prints_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "--devices",
        "cpu:0",
        "--config.num-envs",
        "2",
        "--config.num-steps",
        "8",
        "--config.num-epochs",
        "1",
        "--eval-episodes",
        "2",
    ]
    small += ["--config.num-minibatches", "1", "--config.hidden", "4", "--no-preset"]
    assert main(["plan", "ppo", "cartpole", "--seeds", "100", "--env-steps", "1000", *small]) == 0
    out = capsys.readouterr().out
    assert "100: 1 setting x 100 seeds of ppo on cartpole, 1,008 env steps each" in out and "memory" in out
    assert main(["plan", "ppo", "cartpole", "--memory", "lots", *small]) == 2
    assert "jaxrl: memory must be a size" in capsys.readouterr().err
