"""Damage to any byte or field of a run directory is detected, and temporary files are removed."""

import dataclasses
import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering
from previous_format import write_json
from same_bits import assert_same_bits

import envs
import jaxrl
from envs.errors import UserError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.results.checksums import UNSEALED, check_seal, sealed
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.results.storage import FILES
from jaxrl.runtime.checkpoints.identity_file import IDENTITY
from jaxrl.runtime.checkpoints.store import CHECKPOINTS, Checkpoint, Checkpoints
from jaxrl.runtime.programs import compilations
from jaxrl.runtime.training import points_of, training_call

STATES = {"a": np.arange(6.0, dtype=np.float32).reshape(3, 2), "b": np.arange(3), "empty": np.zeros((3, 0))}
METRICS = {"return": np.zeros(3, np.float32)}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


def run(algo: Algorithm, **changes: Any) -> Result:
    options: Any = {"env_steps": 4 * PER_ITERATION, "evals": 2, "eval_episodes": 2, "block": 2, "progress": False}
    options |= {"seeds": 2, "devices": jax.devices()[:1]}
    return jaxrl.train(algo, **(options | changes))


def stop(env_step: int, metrics: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def stopped(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stopped") / "x"
    run(algo, out=out, on_chunk=stop)
    return out


@pytest.fixture(scope="module")
def whole(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "x"
    run(algo, out=out)
    return out


def content_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    files = [file for file in directory.rglob("*") if file.is_file()]
    return {str(file.relative_to(directory)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


@contextmanager
def small_disk(num_bytes: int) -> Iterator[None]:
    """Prevent files from growing, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- checkpoints --------------------------------------------------------------------------


def written(directory: Path, iteration: int = 4, iterations: list[int] | None = None) -> Checkpoints:
    checkpoints = Checkpoints(directory, {"points": [2, 4]})
    metrics = {"return": np.ones((3, len(iterations or [2])), np.float32)}
    checkpoints.write(Checkpoint(iteration, STATES, [2] if iterations is None else iterations, metrics))
    return checkpoints


def test_every_byte_of_a_checkpoint_is_guarded(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    refused = 0
    for file in [file for file in (tmp_path / CHECKPOINTS).rglob("*") if file.is_file()]:
        content = file.read_bytes()
        for at in range(0, len(content), max(len(content) // 4, 1)):
            file.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            try:
                back = checkpoints.load(STATES, METRICS)
            except ResultError as error:
                assert "\n" not in str(error) and str(tmp_path) in str(error)
                refused += 1
                continue
            assert back is not None and (back.iteration, back.iterations) == (4, [2])
            jax.tree.map(np.testing.assert_array_equal, back.states, STATES)
            np.testing.assert_array_equal(back.metrics["return"], np.ones((3, 1)))
        file.write_bytes(content)
    checkpoints.close()
    assert refused > 10


@pytest.mark.parametrize(("iteration", "iterations"), [(-5, []), (1000, [2]), (1, [2]), (4, [2, 2]), (4, [0, 2])])
@pytest.mark.parametrize("trust", [False, True])
def test_a_checkpoint_out_of_range_is_refused(
    tmp_path: Path, iteration: int, iterations: list[int], trust: bool
) -> None:
    written(tmp_path, iteration, iterations).close()
    checkpoints = Checkpoints(tmp_path, {"points": [2, 4]}, trust=trust)
    with pytest.raises(ResultError, match="is damaged"):
        checkpoints.load(STATES, METRICS)
    checkpoints.close()


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(algo: Algorithm, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "x")
    run(algo, out=tmp_path / "y", on_chunk=stop, seeds=[7, 8])
    shutil.rmtree(tmp_path / "x" / CHECKPOINTS)
    shutil.copytree(tmp_path / "y" / CHECKPOINTS, tmp_path / "x" / CHECKPOINTS)
    with pytest.raises(ResultError, match=r"is of another run than run\.json\): resume regardless with --trust"):
        jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    assert jaxrl.resume(tmp_path / "x", algo=algo, progress=False, trust=True).metrics.attrs["interrupted"] == 0


# --- results ------------------------------------------------------------------------------


@pytest.mark.slow_rows("policies.npz")
@pytest.mark.parametrize("name", ["metrics.nc", "policies.npz", "config.json"])
def test_every_byte_of_a_result_is_guarded(algo: Algorithm, whole: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(whole, tmp_path / "x")
    file, before = tmp_path / "x" / name, jaxrl.load_result(whole, algo)
    content, refused = file.read_bytes(), 0
    for at in range(0, len(content), max(len(content) // 40, 1)):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x01]) + content[at + 1 :])
        try:
            assert_same_bits(jaxrl.load_result(tmp_path / "x", algo), before)
        except ResultError as error:
            assert "\n" not in str(error) and name in str(error)
            refused += 1
    assert refused >= (20 if name == "policies.npz" else 40)  # an archive has bytes that are never read


def test_files_of_two_results_are_distinguished_and_trusted_ones_are_read(
    algo: Algorithm, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "x")
    run(algo, out=tmp_path / "y", seeds=[7, 8])
    shutil.copy(tmp_path / "y" / "policies.npz", tmp_path / "x")
    with pytest.raises(ResultError, match=r"policies\.npz is damaged, or of another result than .*config\.json"):
        jaxrl.load_result(tmp_path / "x", algo)
    assert jaxrl.load_result(tmp_path / "x", algo, trust=True).seeds == [0, 1]
    write_json(tmp_path / "x" / "config.json", json.loads((tmp_path / "x" / "config.json").read_text()))
    assert jaxrl.load_result(tmp_path / "x", algo).seeds == [0, 1]  # like results of the previous version


def test_a_checksum_stands_in_one_place() -> None:
    content = sealed(f'{{"checksum": "{UNSEALED}"}}'.encode())
    check_seal(Path("x"), content)
    for damaged in (content.replace(b"crc32", b"crc33"), content.replace(b"checksum", b"checksun"), content + content):
        with pytest.raises(ResultError, match="x is damaged, or was changed by hand"):
            check_seal(Path("x"), damaged)
        check_seal(Path("x"), damaged, trust=True)
    with pytest.raises(AssertionError):
        sealed(b"{}")


# --- run.json -----------------------------------------------------------------------------


@pytest.mark.slow
def test_run_json_changed_by_hand_is_refused_unless_trusted(algo: Algorithm, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "x")
    file = tmp_path / "x" / IDENTITY
    file.write_text(file.read_text().replace('"eval_episodes": 2', '"eval_episodes": 3'))
    with pytest.raises(ResultError, match=r"run\.json is damaged, or was changed by hand"):
        jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    assert jaxrl.resume(tmp_path / "x", algo=algo, progress=False, trust=True).metrics.attrs["eval_episodes"] == 3


def test_bad_values_in_run_json_raise_one_sentence(
    algo: Algorithm, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = json.loads((stopped / IDENTITY).read_text())
    out, refused = tmp_path / "x", 0
    shutil.copytree(stopped, out)

    def carried_out(*_: Any, **__: Any) -> Any:
        raise ResultError("this call goes on")

    monkeypatch.setattr("jaxrl.runtime.resuming.carry_out", carried_out)
    for name in reported:
        for value in (None, -1, 1.5, "x", [], {}, [[]], {"x": []}, ...):
            write_json(out / IDENTITY, {k: v for k, v in (reported | {name: value}).items() if v is not ...})
            with pytest.raises(UserError) as caught:
                jaxrl.resume(out, algo=algo, progress=False)
            assert "\n" not in str(caught.value)
            refused += "this call goes on" not in str(caught.value)
    assert refused > 60


# --- directories of any name, full disks, left-overs ----------------------------------------


NOT_UTF8 = pytest.param(os.fsdecode(b"l\xe4ufe"), id="not UTF-8")


@pytest.mark.parametrize("name", ["runs[1]", "a*b?", "back\\slash", "ü n%20{x}", "-x", "#1;2", NOT_UTF8])
def test_a_directory_may_have_any_name(algo: Algorithm, whole: Path, tmp_path: Path, name: str) -> None:
    run(algo, out=tmp_path / name, on_chunk=stop)
    on = jaxrl.resume(tmp_path / name, algo=algo, progress=False)
    assert_same_bits(on, jaxrl.load_result(whole, algo))


def test_a_full_disk_costs_the_checkpoint_that_is_written(
    algo: Algorithm, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write, room = Checkpoints.write, [10**9, 100]

    def written_in_room(self: Checkpoints, checkpoint: Checkpoint) -> None:
        with small_disk(room.pop(0)):
            write(self, checkpoint)

    monkeypatch.setattr(Checkpoints, "write", written_in_room)
    with pytest.warns(RuntimeWarning, match=r"No checkpoint could be written .*; the previous one is intact\."):
        result = run(algo, out=tmp_path / "x", checkpoint_minutes=1e-9, evals=1, env_steps=PER_ITERATION)
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err + captured.out and not result.unsaved and not room
    assert_same_bits(jaxrl.load_result(tmp_path / "x", algo), result)
    assert [entry.name for entry in (tmp_path / "x" / CHECKPOINTS).iterdir()] == ["1"]


def test_a_result_without_room_is_returned_and_its_checkpoint_kept(
    algo: Algorithm, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save = Result.save

    def saved_in_room(self: Result, *arguments: Any, **options: Any) -> Path:
        with small_disk(100):
            return save(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Result, "save", saved_in_room)
        with pytest.warns(RuntimeWarning, match=r"the result is not saved: .* cannot be written"):
            result = run(algo, out=tmp_path / "x")
    captured = capfd.readouterr()
    assert result.unsaved and captured.err + captured.out == ""
    assert not [name for name in os.listdir(tmp_path / "x") if name.startswith(".") or name in FILES]
    on = jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    assert not on.unsaved
    assert_same_bits(on, jaxrl.load_result(whole, algo))
    assert_same_bits(jaxrl.load_result(tmp_path / "x", algo), on)


def test_left_overs_are_removed(algo: Algorithm, stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "x"
    shutil.copytree(stopped, out)
    left = [out / ".a-host-123-metrics.nc", out / ".h-1-run.json", out / CHECKPOINTS / "7.orbax-checkpoint-tmp" / "a"]
    left[2].parent.mkdir()
    notes = out / ".notes-1-mine.txt"
    for file in (*left, notes):
        file.touch()
    jaxrl.resume(out, algo=algo, progress=False)
    assert not any(file.exists() for file in left) and notes.exists()
    assert not left[2].parent.exists()


# --- resuming -----------------------------------------------------------------------------


def test_resuming_a_finished_run_changes_and_compiles_nothing(algo: Algorithm, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "x")
    before, count = content_of(tmp_path / "x"), compilations()
    for again in (
        lambda: jaxrl.resume(tmp_path / "x", algo=algo, progress=False),
        lambda: run(algo, out=tmp_path / "x", resume=True),
    ):
        result = again()
        assert_same_bits(result, jaxrl.load_result(whole, algo))
        assert result.metrics.attrs == jaxrl.load_result(whole, algo).metrics.attrs
    assert content_of(tmp_path / "x") == before and compilations() == count


def test_resuming_a_finished_run_mends_its_result(algo: Algorithm, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "x")
    (tmp_path / "x" / "policies.npz").write_bytes(b"")
    jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    assert_same_bits(jaxrl.load_result(tmp_path / "x", algo), jaxrl.load_result(whole, algo))


def test_resuming_prints_nothing_without_progress(
    algo: Algorithm, stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(stopped, tmp_path / "x")
    jaxrl.resume(tmp_path / "x", algo=algo, progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_longer_run_that_would_learn_nothing_is_refused_or_stretched() -> None:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, num_epochs=1, hidden=(8,))
    ppo = jaxrl.ppo(envs.make("cartpole"), config)

    def call(schedules: str, **hparams: Any) -> Any:
        begun = {"env_steps": 320, "run_length": 320}
        settings = dataclasses.replace(ppo.hparams, **hparams)
        points = points_of(ppo, 640, 2, 2)
        return training_call(ppo, settings, seeds=[0], points=points, eval_episodes=2, begun=begun, schedules=schedules)

    with pytest.raises(ValueError, match=r"^env_steps extends a run that has stopped learning: .* \(lr_end=0\)"):
        call("keep", lr_end=0.0)
    stretched = call("stretch", lr_end=0.0)
    assert stretched.prepared.anneal_env_steps == 640 and stretched.attrs["run_length"] == 640
    with pytest.raises(ValueError, match="within 200 env steps"):
        call("stretch", lr_end=0.0, anneal_env_steps=200.0)
    with pytest.warns(RuntimeWarning, match="their final values are kept"):
        assert call("keep", lr_end=0.5).attrs["run_length"] == 320
    assert call("keep").attrs["run_length"] == 320


def test_a_stretched_run_continues_from_its_checkpoint(algo: Algorithm, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "x")
    longer = jaxrl.resume(tmp_path / "x", algo=algo, progress=False, env_steps=8 * PER_ITERATION, schedules="stretch")
    assert longer.metrics.attrs["run_length"] == 8 * PER_ITERATION
    assert json.loads((tmp_path / "x" / IDENTITY).read_text())["run_length"] == 8 * PER_ITERATION
    assert_same_bits(longer, run(algo, env_steps=8 * PER_ITERATION, evals=4))
    with pytest.raises(ValueError, match="schedules"):
        jaxrl.resume(tmp_path / "x", algo=algo, schedules="restart")


@pytest.mark.slow
def test_divergence_to_finite_nonsense_is_reported(algo: Algorithm) -> None:
    wild = algo._replace(policy=lambda state, hparams: state * 2.0**25)
    with pytest.warns(RuntimeWarning, match=r"^2 of 2 runs have diverged, although their metrics are finite"):
        run(wild)
