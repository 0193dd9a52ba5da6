"""Disks that are full at random: a run succeeds or ends in one sentence, and resumes bit for bit once there is room."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torturing import EVALS, LEARNERS, assert_one_sentence, assert_same_bits, drawn, quiet, run, share

import jaxrl
from envs.errors import UserError
from jaxrl.results.result import Result
from jaxrl.runtime.checkpoints.store import CHECKPOINTS

DISKS = 25


@contextmanager
def small_disk(num_bytes: int) -> Iterator[None]:
    """Prevent files from growing, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module", params=list(LEARNERS))
def whole(request: pytest.FixtureRequest) -> tuple[str, Result]:
    return request.param, run(request.param, "control")


def test_a_disk_that_is_full_from_some_moment_on(
    whole: tuple[str, Result], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Between two random evaluations no file may exceed a random size, from one byte to almost the required size."""
    name, expected = whole
    generator = drawn("disks", name)
    ended = set()
    for i in range(share(DISKS)):
        out, room, seen = tmp_path / str(i), int(10 ** generator.uniform(0, 5)), []
        full, empty = sorted(generator.integers(0, EVALS + 1, 2).tolist())

        def follow(env_step: int, metrics: Any, at: Any = (full, empty, room, seen, i)) -> None:
            full, empty, room, seen, i = at
            seen.append(env_step)
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            if full <= len(seen) < empty:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit))
            elif i % 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, limit))

        capfd.readouterr()
        with quiet(), small_disk(room if full == 0 else resource.RLIM_INFINITY):
            try:
                result = run(name, "control", out=out, checkpoint_minutes=1e-9, on_chunk=follow)
                ended.add("unsaved" if result.unsaved else "saved")
                assert_same_bits(result, expected)
            except UserError as error:
                assert_one_sentence(str(error))
                ended.add("refused")
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err + captured.out, (room, full, empty, captured.err)
        checkpoints = out / CHECKPOINTS
        entries = [entry.name for entry in checkpoints.iterdir()] if checkpoints.is_dir() else []
        assert len(entries) <= 1 and all(entry.isdigit() for entry in entries)
        with quiet():
            again = run(name, "control", out=out, resume=True)
        assert_same_bits(again, expected)
        assert_same_bits(jaxrl.load_result(out), expected)
    assert "saved" in ended and len(ended) > 1
