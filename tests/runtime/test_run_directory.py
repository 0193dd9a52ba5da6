"""Contents of a run directory: its identity, the calls that may resume it, and safety in failures."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, HParams, wandering
from out_of_memory import exhausted_at
from previous_format import write_json
from same_bits import assert_same_bits

import envs
import jaxrl
from envs.bandits import BernoulliBandit
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import main as cli
from jaxrl.discounts.parsing import Exponential
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.results.storage import FILES, LOCK, exclusive
from jaxrl.runtime import execution, resuming
from jaxrl.runtime.call import Call, sharded
from jaxrl.runtime.checkpoints.identity_file import IDENTITY
from jaxrl.runtime.checkpoints.store import CHECKPOINTS, Checkpoint, Checkpoints, has_checkpoint
from jaxrl.runtime.layout import plan_layout, run_on_devices
from jaxrl.runtime.plan import planner as fitting
from jaxrl.runtime.plan.planner import Planner, programs_of
from jaxrl.runtime.training import points_of, training_call
from jaxrl.tracking.tracker import FollowedCall


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


def run(algo: Algorithm, hparams: Any = None, **changes: Any) -> Result:
    options: Any = {"env_steps": 4 * PER_ITERATION, "evals": 2, "eval_episodes": 2, "block": 2, "progress": False}
    options |= {"seeds": 6, "devices": jax.devices()[:1]}
    return jaxrl.train(algo, hparams, **(options | changes))


@pytest.fixture(scope="module")
def whole(algo: Algorithm) -> Result:
    return run(algo)


def stop(env_step: int, metrics: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def reported(directory: Path) -> dict[str, Any]:
    return json.loads((directory / IDENTITY).read_text())


def changed(directory: Path, **changes: Any) -> None:
    write_json(directory / IDENTITY, reported(directory) | changes)


# --- with and without checkpoints ---------------------------------------------------------


@pytest.mark.slow
def test_a_run_continues_from_its_checkpoint_where_none_are_to_be_written(
    algo: Algorithm, whole: Result, tmp_path: Path
) -> None:
    out, seen = tmp_path / "x", []
    run(algo, out=out, on_chunk=stop)
    with pytest.raises(ResultError, match=r"holds a checkpoint of another configuration: hparams.lr is 0.1 there"):
        run(algo, HParams(lr=0.2), out=out, resume=True, checkpoint_minutes=None)
    on = jaxrl.resume(out, algo=algo, checkpoint_minutes=None, progress=False, trackers=[_Told(seen)])
    assert seen == [4 * PER_ITERATION]
    assert_same_bits(on, whole)
    assert_same_bits(run(algo, out=out, resume=True, checkpoint_minutes=None), whole)


class _Told:
    def __init__(self, seen: list[int]):
        self.seen = seen

    def start(self, call: FollowedCall, resumed: int | None) -> None: ...

    def __call__(self, env_step: int, metrics: Any) -> None:
        self.seen.append(env_step)

    def finish(self, result: Result | None) -> None: ...


def test_a_finished_result_without_checkpoints_is_kept(algo: Algorithm, tmp_path: Path) -> None:
    out = tmp_path / "x"
    run(algo, out=out, checkpoint_minutes=None)
    assert not (out / CHECKPOINTS).exists() and reported(out)["block"] == 2
    before = (out / "metrics.nc").stat().st_mtime_ns
    for resume in (
        lambda: run(algo, out=out, resume=True, checkpoint_minutes=None),
        lambda: jaxrl.resume(out, algo=algo, progress=False),
    ):
        with pytest.raises(ResultError, match="holds a finished result and no checkpoint to resume from"):
            resume()
    assert (out / "metrics.nc").stat().st_mtime_ns == before


@pytest.mark.slow_rows("4")
@pytest.mark.parametrize("block", [2, 4])
def test_a_run_without_a_checkpoint_starts_again_and_reports_this(algo: Algorithm, tmp_path: Path, block: int) -> None:
    out = tmp_path / "x"
    run(algo, out=out, checkpoint_minutes=None, on_chunk=stop)
    assert jaxrl.load_result(out, algo).metrics.attrs["interrupted"] == 1
    with pytest.raises(ResultError, match="another configuration: seeds"):
        run(algo, out=out, resume=True, seeds=5)
    with pytest.warns(RuntimeWarning, match="holds no checkpoint to resume from: it starts from the beginning"):
        assert_same_bits(run(algo, out=out, resume=True, block=block), run(algo, block=block))


def test_a_result_without_its_call_is_not_overwritten(algo: Algorithm, tmp_path: Path) -> None:
    out = tmp_path / "x"
    run(algo, out=out)
    (out / IDENTITY).unlink()
    for changes in ({}, {"checkpoint_minutes": None}, {"seeds": 2}):
        with pytest.raises(ResultError, match=r"holds a result, but no run.json, which is required to resume it"):
            run(algo, out=out, resume=True, **changes)
    assert jaxrl.load_result(out, algo).seeds == list(range(6))


@pytest.mark.parametrize("minutes", [None, 10.0])
def test_a_forced_run_leaves_nothing_of_the_one_before(algo: Algorithm, tmp_path: Path, minutes: float | None) -> None:
    out, actual = tmp_path / "x", []

    def look(env_step: int, metrics: Any) -> None:
        actual.append([name for name in (*FILES, CHECKPOINTS) if (out / name).exists()] + [str(reported(out)["seeds"])])

    run(algo, out=out)
    run(algo, out=out, force=True, seeds=4, checkpoint_minutes=minutes, on_chunk=look)
    assert actual == [["[0, 1, 2, 3]"]] * 2  # the files that a kill would leave
    assert has_checkpoint(out) == (minutes is not None) and jaxrl.load_result(out, algo).seeds == [0, 1, 2, 3]


@pytest.mark.slow
def test_shards_without_checkpoints_are_merged(tmp_path: Path) -> None:
    call: Any = {"steps": 32, "runs": 5, "points": 3, "block": 2, "progress": False}
    ucb, bandit = jaxrl.bandits.ucb1(), BernoulliBandit(num_arms=3)
    for i in range(2):
        jaxrl.run_bandit(
            ucb, bandit, **call, shard=(i, 2), out=tmp_path / f"b-{i}", checkpoint_minutes=None, memory=f"{8 + i}GiB"
        )
    merged = jaxrl.merge(sorted(tmp_path.glob("b-*")))
    np.testing.assert_array_equal(merged.values("pulls"), jaxrl.run_bandit(ucb, bandit, **call).values("pulls"))


@pytest.mark.slow
def test_another_kind_of_run_is_refused(algo: Algorithm, tmp_path: Path) -> None:
    bandit = BernoulliBandit(num_arms=3)
    jaxrl.run_bandit(jaxrl.bandits.ucb1(), bandit, steps=8, runs=2, progress=False, out=tmp_path / "b")
    with pytest.raises(ResultError, match=r"b holds a checkpoint of another configuration: "):
        run(algo, out=tmp_path / "b", resume=True, block=None)
    with pytest.raises(ResultError, match=r"b holds no run of train \(it is of the bandit policy ucb1, which learns"):
        jaxrl.resume(tmp_path / "b")


# --- parts --------------------------------------------------------------------------------


@pytest.fixture
def limits(algo: Algorithm, monkeypatch: pytest.MonkeyPatch) -> dict[Any, int | None]:
    """Limits by the value of `memory`, such as memory for a third of six seeds at a time."""
    monkeypatch.setattr(fitting, "ROOM_PER_THREAD", 0)
    monkeypatch.setattr(fitting, "resident", lambda: 0)
    points = points_of(algo, 4 * PER_ITERATION, 2, 2)
    call = training_call(algo, None, seeds=list(range(6)), points=points, eval_episodes=2)
    layout = plan_layout(6, 2, jax.devices()[:1])
    _, sizes = programs_of(call, layout)
    two, three = (Planner(call, layout, None, True).at(sizes, 2, count, 0).memory for count in (2, 3))
    limits: dict[Any, int | None] = {None: None, "1GiB": (two + three) // 2, "1MiB": 1}

    def of(_: Any, call: Call, layout: Any, memory: Any, keeps: bool) -> Planner:
        return Planner(call, layout, limits[memory], True)

    monkeypatch.setattr(execution.Planner, "of", classmethod(of))
    return limits


def killed_in_the_first_part(out: Path, there: Path) -> Callable[..., None]:
    """Keep the files that a kill at the first evaluation would have left."""

    def snapshot(env_step: int, metrics: Any) -> None:
        if not there.exists():
            shutil.copytree(out, there)

    return snapshot


@pytest.mark.slow
@pytest.mark.usefixtures("limits")
def test_a_kill_in_the_first_part_of_a_call_that_would_have_gone_on(
    algo: Algorithm, whole: Result, tmp_path: Path
) -> None:
    out, there, seen = tmp_path / "x", tmp_path / "killed", []
    on_chunk = killed_in_the_first_part(out, there)
    parts = run(algo, memory="1GiB", out=out, resume=True, checkpoint_minutes=1e-9, on_chunk=on_chunk)
    assert_same_bits(parts, whole)
    assert sorted(path.name for path in (there / "parts").iterdir()) == ["0000-of-0003"]
    on = jaxrl.resume(there, algo=algo, progress=False, trackers=[_Told(seen)])
    assert on.metrics.attrs["num_parts"] == 3
    assert_same_bits(on, whole)
    # Another call is refused before it writes anything.
    with pytest.raises(ResultError, match="x holds a checkpoint of another configuration: eval_episodes is 2 there"):
        run(algo, memory="1GiB", out=out, resume=True, eval_episodes=3)
    assert reported(out)["eval_episodes"] == 2


@pytest.mark.slow
def test_a_kill_in_the_first_part_of_a_run_made_longer(
    algo: Algorithm, tmp_path: Path, limits: dict[Any, int | None]
) -> None:
    out, there = tmp_path / "x", tmp_path / "killed"
    run(algo, memory="1GiB", out=out)
    limits["1GiB"] = None  # its result is larger
    longer = run(
        algo,
        memory="1GiB",
        out=out,
        resume=True,
        env_steps=8 * PER_ITERATION,
        evals=4,
        on_chunk=killed_in_the_first_part(out, there),
    )
    assert longer.metrics["env_step"].values.tolist() == [32, 64, 96, 128]
    assert reported(there)["points"] == [2, 4, 6, 8]
    assert_same_bits(jaxrl.resume(there, algo=algo, progress=False), longer)


@pytest.mark.slow
@pytest.mark.usefixtures("limits")
def test_a_signal_between_two_parts_begins_no_other(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive, seen = execution.drive, []

    def stopped(*arguments: Any) -> Result:
        result = drive(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        return result

    monkeypatch.setattr(execution, "drive", stopped)
    with pytest.warns(RuntimeWarning, match=r"interrupted before the last of 3 parts: 2 of 6 seeds"):
        cut = run(algo, memory="1GiB", out=tmp_path / "x", on_chunk=lambda env_step, _: seen.append(env_step))
    assert seen == [32, 64] and cut.metrics.attrs["stopped_by_signal"] == signal.SIGTERM
    assert sorted(path.name for path in (tmp_path / "x/parts").iterdir()) == ["0000-of-0003"]


# --- memory and blocks --------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_continues_in_its_blocks_though_less_memory_is_free(
    algo: Algorithm, whole: Result, tmp_path: Path, limits: dict[Any, int | None]
) -> None:
    out = tmp_path / "x"
    with pytest.warns(RuntimeWarning, match="interrupted before the last"):
        run(algo, memory="1GiB", out=out, on_chunk=stop)
    assert reported(out)["asked"] == {"block": 2, "memory": "1GiB"}
    shutil.copytree(out, tmp_path / "y")
    with pytest.raises(ValueError, match=r"x keeps its layout, which takes .* resume with more --memory"):
        jaxrl.resume(out, algo=algo, memory="1MiB", progress=False)
    limits["1GiB"] = 1  # a margin for other activity of the process and the machine
    for where, memory in ((out, None), (tmp_path / "y", "1GiB")):
        with pytest.warns(RuntimeWarning, match=r"keeps its layout, although memory may be short: 6 runs in 3"):
            on = run(algo, memory=memory, out=where, resume=True)
        assert on.metrics.attrs["num_parts"] == 3
        assert_same_bits(on, whole)


@pytest.mark.slow
def test_the_same_call_continues_with_blocks_that_became_narrower(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "x", []

    def exhausted(executables: Any, *arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 3:  # initial states, a chunk, and then this
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")
        return run_on_devices(executables, *arguments)

    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted)
    with pytest.warns(RuntimeWarning, match="had no memory left for blocks of 2 runs"):
        run(algo, out=out, on_chunk=stop)
    monkeypatch.undo()
    assert reported(out)["block"] == 1 and reported(out)["asked"]["block"] == 2
    on = run(algo, out=out, resume=True)
    assert on.metrics.attrs["block"] == 1
    assert_same_bits(on, run(algo, block=1))
    with pytest.raises(ResultError, match="block is 1 there and 4 here"):
        run(algo, out=out, resume=True, block=4)


@pytest.mark.slow
def test_parts_that_started_continue_though_blocks_of_another_became_narrower(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[Any, int | None]
) -> None:
    out, seen = tmp_path / "x", []
    run(algo, memory="1GiB", out=out)
    limits["1GiB"] = None  # the longer result is larger
    monkeypatch.setattr("jaxrl.runtime.runs.run_on_devices", exhausted_at(1))
    with pytest.warns(RuntimeWarning, match="continuing from the last checkpoint with blocks of 1"):
        longer = run(
            algo,
            memory="1GiB",
            out=out,
            resume=True,
            env_steps=8 * PER_ITERATION,
            evals=4,
            on_chunk=lambda env_step, _: seen.append(env_step),
        )
    assert seen == [96, 128] * 3 and longer.metrics["env_step"].values.tolist() == [32, 64, 96, 128]
    parts = [reported(out / "parts" / f"{i:04d}-of-0003")["block"] for i in range(3)]
    assert parts == [1, 2, 2] and reported(out)["block"] == longer.metrics.attrs["block"] == 1


# --- shards -------------------------------------------------------------------------------


@pytest.mark.slow_rows("base0")
@pytest.mark.parametrize("base", [Exponential(0.9), jaxrl.BetaWeighted(0.9, 0.5)])
def test_a_shard_of_settings_continues_in_the_program_of_the_whole(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Any
) -> None:
    paths: dict[str, Any] = {"lr": [0.1, 0.3], "env.pay": [1.0, 2.0]}
    paths |= {"discount": [0.9, "beta:mu=0.9,eta=0.5"]} if isinstance(base, Exponential) else {"discount.mu": [0.8, 1]}
    sweep = jaxrl.grid(HParams(discount=base), paths)
    calls: list[Call] = []

    def kept(call: Call, *options: Any, **begun: Any) -> Result:
        calls.append(call)
        return carry_out(call, *options, **begun)

    carry_out = resuming.carry_out
    monkeypatch.setattr(resuming, "carry_out", kept)
    options: Any = {"seeds": [3], "shard": "0/4", "out": tmp_path / "x"}
    run(algo, sweep, **options, on_chunk=stop)
    on = jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    points = points_of(algo, 4 * PER_ITERATION, 2, 2)
    expected = sharded(training_call(algo, sweep, seeds=[3], points=points, eval_episodes=2), 0, 4)
    for one, other in zip(
        jax.tree.leaves((calls[0].prepared, calls[0].hparams, calls[0].env_params)),
        jax.tree.leaves((expected.prepared, expected.hparams, expected.env_params)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(calls[0].prepared) == jax.tree.structure(expected.prepared)
    assert dict(calls[0].attrs) == dict(expected.attrs)
    assert_same_bits(on, run(algo, sweep, **options | {"out": None}))


@pytest.mark.slow
def test_a_shard_of_settings_of_ppo_continues_bit_for_bit(tmp_path: Path) -> None:
    """Alone, its only discount would be an exponential; its program is the one for a mixture."""
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, num_epochs=1, hidden=(8,))
    ppo = jaxrl.ppo(envs.make("cartpole"), config)
    sweep = jaxrl.grid(ppo.hparams, {"discount": [0.9, "beta:mu=0.9,eta=0.5"]})
    call: Any = {"seeds": 1, "env_steps": 384, "evals": 4, "eval_episodes": 4, "progress": False, "block": 1}
    jaxrl.train(ppo, sweep, **call, shard="0/2", out=tmp_path / "x-0", on_chunk=stop)
    jaxrl.train(ppo, sweep, **call, shard="1/2", out=tmp_path / "x-1")
    jaxrl.resume(tmp_path / "x-0", progress=False)
    assert_same_bits(jaxrl.merge(sorted(tmp_path.glob("x-*"))), jaxrl.train(ppo, sweep, **call))


# --- different rounding -------------------------------------------------------------------


def test_another_processor_is_reported(algo: Algorithm, whole: Result, tmp_path: Path) -> None:
    run(algo, out=tmp_path / "x", on_chunk=stop)
    changed(tmp_path / "x", processor="x86_64-other")
    with pytest.warns(RuntimeWarning, match=r'may round differently: processor is "x86_64-other" there'):
        assert_same_bits(run(algo, out=tmp_path / "x", resume=True), whole)


def test_other_flags_of_xla_are_warned_of(algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_dump_to=/there --xla_a=2")
    run(algo, out=tmp_path / "x", on_chunk=stop)
    assert reported(tmp_path / "x")["xla_flags"] == ["--xla_a=1", "--xla_a=2"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_a=1")
    with pytest.warns(RuntimeWarning, match=r'may round differently: xla_flags is \["--xla_a=1", "--xla_a=2"\] there'):
        run(algo, out=tmp_path / "x", resume=True)


def test_other_settings_of_jax_are_warned_of(algo: Algorithm, tmp_path: Path) -> None:
    run(algo, out=tmp_path / "x", on_chunk=stop)
    settings = reported(tmp_path / "x")["jax_settings"]
    assert settings["jax_default_prng_impl"] == "threefry2x32" and len(settings) > 8
    changed(tmp_path / "x", jax_settings=settings | {"jax_threefry_partitionable": False})
    sentence = (
        r"under other settings of JAX, and has other numbers: jax_settings\.jax_threefry_partitionable is false there"
    )
    with pytest.warns(RuntimeWarning, match=sentence):
        run(algo, out=tmp_path / "x", resume=True)


def test_a_deterministic_run_stays_deterministic(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
    run(algo, out=out, on_chunk=stop)
    assert reported(out)["deterministic"] is True
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=false")
    with pytest.warns(RuntimeWarning, match=r"may round differently: deterministic is true there and false here"):
        run(algo, out=out, resume=True)
    changed(out, deterministic=True, algorithm=None)
    for flags, args in (("", [str(out)]), ("--x=1", ["--memory", "8GiB", str(out)])):
        monkeypatch.setenv("XLA_FLAGS", flags)
        assert cli.main(["resume", *args]) == 2  # a user-defined algorithm
        assert os.environ["XLA_FLAGS"] == f"{flags} --xla_gpu_deterministic_ops=true".strip()
    changed(out, deterministic=False)
    monkeypatch.setenv("XLA_FLAGS", "")
    assert cli.main(["resume", str(out)]) == 2 and os.environ["XLA_FLAGS"] == ""
    capsys.readouterr()


# --- failures -----------------------------------------------------------------------------


def test_training_is_kept_if_the_result_cannot_be_written(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = tmp_path / "x", []

    def full(self: Result, *_: Any, **__: Any) -> None:
        raise ResultError("x cannot be written: no space left on device.")

    with monkeypatch.context() as patched:
        patched.setattr(Result, "save", full)
        with pytest.warns(RuntimeWarning, match="the result is not saved: x cannot be written: no space left"):
            assert run(algo, out=out).unsaved
    on = run(algo, out=out, resume=True, on_chunk=lambda env_step, _: seen.append(env_step))
    assert seen == []
    assert_same_bits(on, whole)


def test_a_refusal_shows_no_progress(algo: Algorithm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(algo, out=tmp_path / "x")
    with pytest.raises(ResultError):
        run(algo, out=tmp_path / "x", resume=True, seeds=2, progress=True)
    assert capsys.readouterr().err == ""


class _Stopping(_Told):
    def start(self, call: FollowedCall, resumed: int | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_before_the_first_evaluation_reports_the_kept_progress(
    algo: Algorithm, whole: Result, tmp_path: Path
) -> None:
    out = tmp_path / "x"
    with (
        pytest.warns(
            RuntimeWarning, match=r"progress is kept in .*x; `jaxrl resume .*x` resumes it, as does the same call with "
        ),
        pytest.raises(KeyboardInterrupt),
    ):
        run(algo, out=out, trackers=[_Stopping([])])
    assert_same_bits(run(algo, out=out, resume=True), whole)
    with pytest.raises(KeyboardInterrupt):
        run(algo, out=tmp_path / "y", trackers=[_Stopping([])], checkpoint_minutes=None)
    assert not (tmp_path / "y").exists()


def test_states_that_cannot_be_deleted_keep_their_name(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(algo, out=tmp_path / "x")

    def refuse(path: Path, *_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("jaxrl.runtime.checkpoints.store.shutil.rmtree", refuse)
    with pytest.raises(ResultError, match=r"x holds an earlier run that cannot be deleted: .*checkpoints: Permission"):
        run(algo, out=tmp_path / "x", force=True, seeds=2)
    assert not (tmp_path / "x" / IDENTITY).exists()  # they belong to no run


def test_a_directory_is_locked_by_a_file_that_goes_away(tmp_path: Path) -> None:
    directory = tmp_path / "x"
    directory.mkdir()
    (directory / "kept").touch()
    with exclusive(directory):
        assert (directory / LOCK).is_file()
        with pytest.raises(FileExistsError, match="is in use by another run"), exclusive(directory):
            pass
        assert (directory / LOCK).is_file()
    assert [path.name for path in directory.iterdir()] == ["kept"]
    (directory / LOCK).touch()  # of a process that was killed
    with exclusive(directory):
        (directory / "kept").unlink()
    assert not directory.exists()


def test_a_file_system_without_locks_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr("jaxrl.results.storage._WITHOUT_LOCKS", set())
    entered = []
    with pytest.warns(RuntimeWarning, match=r"the file system of .*0 has no locks \(No locks available\)"):
        for i in range(2):
            with exclusive(tmp_path / str(i)):
                entered.append(i)
    assert entered == [0, 1]


def test_arrays_without_numbers_are_kept(tmp_path: Path) -> None:
    states = {"boxes": np.zeros((3, 0, 2), np.float32), "weights": np.arange(6.0).reshape(3, 2)}
    checkpoints = Checkpoints(tmp_path, {"points": [2, 4]})
    checkpoints.write(Checkpoint(4, states, [2], {"return": np.ones((3, 1))}))
    back = checkpoints.load(states, {"return": np.zeros(3)})
    checkpoints.close()
    assert back is not None
    assert back.iteration == 4
    for name, leaf in states.items():
        assert (back.states[name].shape, back.states[name].dtype) == (leaf.shape, leaf.dtype)
        np.testing.assert_array_equal(back.states[name], leaf)
