"""Calls delete and replace what jaxrl wrote, and nothing else in their directory."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaotic_algorithm import PER_ITERATION, wandering
from same_bits import assert_same_bits

import jaxrl
from envs.errors import ExistsError, UserError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import main as cli
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.runtime.checkpoints import checkpoint_files
from jaxrl.runtime.checkpoints.checkpoint_files import CheckpointFiles

PRECIOUS = "precious"
RUN: Any = {"seeds": 2, "env_steps": 4 * PER_ITERATION, "evals": 4, "eval_episodes": 1, "progress": False}
OFTEN: Any = {"checkpoint_minutes": 1e-9}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return wandering()


@pytest.fixture(scope="module")
def whole(algo: Algorithm) -> Result:
    return jaxrl.train(algo, **RUN)


def placed(directory: Path, *names: str) -> list[Path]:
    files = [directory / name for name in names]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PRECIOUS)
    return files


class _Killed(BaseException):
    """Stands for a process that ends at once: nothing that handles errors runs."""


def killed(algo: Algorithm, out: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Leaves a run directory as a process does that is killed after two evaluations: a checkpoint and no result."""
    seen: list[int] = []

    def kill(env_step: int, metrics: Any) -> None:
        seen.append(env_step)
        if len(seen) == 2:
            shutil.copytree(out, out.with_name("copy"))
            raise _Killed

    with pytest.raises(_Killed):
        jaxrl.train(algo, **RUN, **OFTEN, **options, out=out, on_chunk=kill)
    shutil.rmtree(out)
    out.with_name("copy").rename(out)
    (out / ".lock").unlink(missing_ok=True)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/epoch=3/model.pt",
        "checkpoints/notes.txt",
        "checkpoints/3/model.pt",
        "parts/wheel/cad.txt",
        "run.json",
        "config.json",
        "metrics.csv",
        ".lock",
    ],
)
def test_files_of_others_are_named_and_kept(algo: Algorithm, tmp_path: Path, name: str, force: bool) -> None:
    (file,) = placed(tmp_path / "project", name)
    named = "/".join(Path(name).parts[:2])
    with pytest.raises(ExistsError, match=rf"project holds {named}, which would be replaced and which jaxrl did not"):
        jaxrl.train(algo, **RUN, out=tmp_path / "project", force=force)
    assert file.read_text() == PRECIOUS
    assert sorted(path for path in (tmp_path / "project").rglob("*") if path.is_file()) == [file]


def test_the_shell_keeps_files_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["checkpoints/a", "checkpoints/b", "checkpoints/c", "checkpoints/d", "checkpoints/e", "checkpoints/f"]
    files = placed(tmp_path / "ucb1", *names)
    command = f"bandit --env bernoulli --policies ucb1 --steps 10 --runs 2 --no-progress --force --out {tmp_path}"
    assert cli.main(command.split()) == 2
    assert (
        "holds checkpoints/a, checkpoints/b, checkpoints/c, checkpoints/d, checkpoints/e and 1 more, which would"
        in (capsys.readouterr().err)
    )
    assert all(file.read_text() == PRECIOUS for file in files)


def test_a_result_is_saved_beside_checkpoints_of_others(whole: Result, tmp_path: Path) -> None:
    (file,) = placed(tmp_path, "checkpoints/model.pt")
    whole.save(tmp_path)
    whole.save(tmp_path, force=True)
    assert file.read_text() == PRECIOUS


def test_force_replaces_a_run_and_leaves_other_files(algo: Algorithm, whole: Result, tmp_path: Path) -> None:
    jaxrl.train(algo, **RUN, **OFTEN, out=tmp_path)
    (file,) = placed(tmp_path, "notes/idea.txt")
    assert_same_bits(jaxrl.train(algo, **RUN, out=tmp_path, force=True), whole)
    assert file.read_text() == PRECIOUS
    (file,) = placed(tmp_path, "checkpoints/model.pt")
    with pytest.raises(ExistsError, match=r"holds checkpoints/model\.pt, which would"):
        jaxrl.train(algo, **RUN, out=tmp_path, force=True)
    assert file.read_text() == PRECIOUS


def test_a_killed_run_is_resumed_or_refused(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x"
    killed(algo, out, monkeypatch)
    before = sorted(out.rglob("*"))
    for seeds in (2, 3):  # the same call, and another one
        with pytest.raises(ExistsError, match="holds checkpoints already, of a run that was stopped: resume it with"):
            jaxrl.train(algo, **(RUN | {"seeds": seeds}), out=out)
    assert sorted(out.rglob("*")) == before
    assert_same_bits(jaxrl.train(algo, **RUN, out=out, resume=True), whole)


def test_links_are_not_followed(algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "x"
    killed(algo, out, monkeypatch)
    (file,) = placed(tmp_path / "thesis", "chapter/text")
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints").symlink_to(tmp_path / "thesis")
    with pytest.raises(ExistsError, match="x holds checkpoints, which would be replaced"):
        jaxrl.resume(out, algo=algo, progress=False)
    with pytest.raises(ExistsError, match="x holds checkpoints, which would be replaced"):
        jaxrl.train(algo, **RUN, out=out, force=True)
    assert file.read_text() == PRECIOUS


def test_the_current_directory_may_change(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def leave(env_step: int, metrics: Any) -> None:
        os.chdir(tmp_path / "elsewhere")

    trackers = [jaxrl.tracking.csv("table.csv"), "csv"]
    jaxrl.train(algo, **RUN, **OFTEN, out="runs/x", on_chunk=leave, trackers=trackers)
    assert Path.cwd() == tmp_path / "elsewhere" and not list(Path.cwd().iterdir())
    assert_same_bits(jaxrl.load_result(tmp_path / "runs/x", algo), whole)
    assert (tmp_path / "table.csv").read_bytes() == (tmp_path / "runs/x/progress.csv").read_bytes()
    assert (tmp_path / "runs/x/checkpoints").is_dir()


def test_a_current_directory_that_is_gone_is_named(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UserError, match="runs/x is relative to the current directory, which does not exist any more"):
        jaxrl.train(algo, **RUN, out="runs/x")


def test_a_picture_replaces_a_link_and_not_its_target(whole: Result, tmp_path: Path) -> None:
    (target,) = placed(tmp_path, "target")
    (tmp_path / "return.png").symlink_to(target)
    whole.plot("return", path=tmp_path / "return.png")
    assert target.read_text() == PRECIOUS
    assert (tmp_path / "return.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("left", ["nothing", "1.orbax-checkpoint-tmp"])
def test_a_run_killed_in_its_first_checkpoint_writes_the_next_ones(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    out = tmp_path / "x"
    killed(algo, out, monkeypatch)
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints" / ("" if left == "nothing" else left)).mkdir(parents=True)
    with pytest.warns(RuntimeWarning) as caught:
        assert_same_bits(jaxrl.resume(out, algo=algo, progress=False, **OFTEN), whole)
    assert ["starts from the beginning" in str(warning.message) for warning in caught] == [True]
    assert [path.name.isdigit() for path in (out / "checkpoints").iterdir()] == [True]


def test_a_first_checkpoint_that_fails_has_no_previous_one(
    algo: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(directory: Path, num_bytes: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_files, "_require_room", full)
    with pytest.warns(RuntimeWarning, match=r"No space left on device; there is no previous one\.$"):
        jaxrl.train(algo, **RUN, **OFTEN, out=tmp_path / "x")


@contextlib.contextmanager
def few_open_files(more: int) -> Iterator[None]:
    """Let this process open a few more files than it has, and no others."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/dev/fd")))
    numbers = (number for number in itertools.count() if number not in used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(numbers, more, None)), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_too_few_files_that_may_be_open_are_a_sentence(algo: Algorithm, whole: Result, tmp_path: Path) -> None:
    sentence = rf"^No checkpoint can be written to or read from {tmp_path}.* `ulimit -n 1024` raises the limit\.$"
    with few_open_files(12), pytest.warns(RuntimeWarning, match=sentence):
        assert_same_bits(jaxrl.train(algo, **RUN, **OFTEN, out=tmp_path / "x"), whole)

    jaxrl.train(algo, **RUN, **OFTEN, out=tmp_path / "y")
    checkpoint = CheckpointFiles(tmp_path / "y")
    expected: Any = None  # looked at only after the check
    with few_open_files(12), pytest.raises(ResultError, match=sentence):
        checkpoint.load(expected, trust=False)
    with few_open_files(12), pytest.raises(ResultError, match=sentence):
        CheckpointFiles(tmp_path / "y")
    checkpoint.close()


def test_a_directory_whose_name_looks_like_a_bucket_has_checkpoints(
    algo: Algorithm, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "settings:" / "x"
    out.parent.mkdir()
    killed(algo, out, monkeypatch)
    assert any(path.name.isdigit() for path in (out / "checkpoints").iterdir())
    assert_same_bits(jaxrl.train(algo, **RUN, out=out, resume=True), whole)


@pytest.mark.parametrize(("num_bytes", "blocks"), [([], 24), ([1], 27), ([4096, 4097, 0], 24 + 6 + 3)])
def test_room_is_counted_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: list[int], blocks: int
) -> None:
    """Each array has a folder and metadata, whatever its size."""
    reserved: list[int] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda file, start, size: reserved.append(size))
    monkeypatch.setattr(os, "statvfs", lambda path: type("Disk", (), {"f_frsize": 4096}))
    checkpoint_files._require_room(tmp_path, num_bytes)
    assert reserved == [blocks * 4096]
