"""Programs kept between processes: one directory for each processor, and the same bits."""

import os
import re
import subprocess
import sys
import uuid
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl.cli import main as cli
from jaxrl.runtime.accelerators import absent_device
from jaxrl.runtime.accelerators.targets import TARGETS
from jaxrl.runtime.layout import compile_programs, shapes_on
from jaxrl.runtime.machine import processors
from jaxrl.runtime.machine.compilation_cache import USERS, delete_truncated

ROOT = Path(__file__).parents[2]


def test_processors_that_understand_other_instructions_have_other_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    info = "processor\t: 0\nmodel name\t: Some\ncpu MHz\t: {mhz}\nflags\t\t: sse2 {flag}\n\nprocessor\t: 1\n"
    names, wide = [], []
    for mhz, flag in (("2000", "avx2"), ("2001", "avx2"), ("2000", "avx512f")):
        (tmp_path / "cpuinfo").write_text(info.format(mhz=mhz, flag=flag))
        monkeypatch.setattr(processors, "_CPUINFO", tmp_path / "cpuinfo")
        names.append(processors.processor())
        wide.append(processors.understands("avx512f"))
    assert names[0] == names[1] != names[2]
    assert wide == [False, False, True]
    monkeypatch.setattr(processors, "_CPUINFO", tmp_path / "nowhere")
    assert not processors.understands("avx512f")


def test_a_cache_that_cannot_be_written_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXRL_COMPILATION_CACHE", str(tmp_path / "file"))
    assert cli.main(["envs"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"jaxrl: The compilation cache {tmp_path / 'file'}/")
    assert "cannot be written" in message and message.count("\n") == 1


KILLED = """
import os, sys, zlib
from jaxrl.runtime.machine.compilation_cache import use_compilation_cache
cache = use_compilation_cache(sys.argv[1])
(cache / "jit_whole-1-cache").write_bytes(zlib.compress(b"program" * 100))
(cache / "jit_part-2-cache").write_bytes(zlib.compress(b"program" * 100)[:-5])
print(cache, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


def test_truncated_programs_are_deleted(tmp_path: Path):
    whole = zlib.compress(b"program" * 100)
    for name, content in (("old", whole[:-5]), ("part", whole[:-5]), ("whole", whole), ("empty", b"")):
        (tmp_path / f"jit_{name}-cache").write_bytes(content)
    (tmp_path / "other").write_bytes(b"")
    os.utime(tmp_path / "jit_old-cache", (0, 0))
    assert delete_truncated(tmp_path, since=1.0) == ["jit_empty-cache", "jit_part-cache"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jit_old-cache", "jit_whole-cache", "other"]
    assert delete_truncated(tmp_path) == ["jit_old-cache"]


@pytest.mark.slow
def test_programs_that_a_killed_process_wrote_in_part_are_deleted(tmp_path: Path):
    def run(how: str) -> Path:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), how], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == (-9 if how == "killed" else 0), done.stderr
        return Path(done.stdout.strip())

    def names(cache: Path) -> list[str]:
        return sorted(path.name for path in cache.glob("*-cache"))

    cache = run("alive")
    os.utime(cache / "jit_part-2-cache", (0, 0))  # written before, by a process that is not suspected
    (cache / "jit_part-2-cache").rename(cache / "jit_old-0-cache")
    assert not list((cache / USERS).iterdir())
    assert run("killed") == cache
    assert len(list((cache / USERS).iterdir())) == 1
    assert names(cache) == ["jit_old-0-cache", "jit_part-2-cache", "jit_whole-1-cache"]
    code = f"from jaxrl.runtime.machine.compilation_cache import *; use_compilation_cache({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert names(cache) == ["jit_old-0-cache", "jit_whole-1-cache"]
    assert not list((cache / USERS).iterdir())


@pytest.mark.slow
def test_runs_with_a_cache_that_is_absent_empty_and_full_are_equal_bit_for_bit(tmp_path: Path):
    options = "--seeds 3 --env-steps 10000 --evals 2 --eval-episodes 8 --no-progress --out"
    words = ["train", "ppo", "cartpole", *options.split()]
    policies, entries = [], []
    # Sets of texts have another order in each of these processes, so that programs must not be built in such an order.
    for out, kept, order in (("absent", "", "0"), ("empty", "cache", "0"), ("full", "cache", "1")):
        environment = {
            **os.environ,
            "JAXRL_COMPILATION_CACHE": kept,
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": order,
        }
        done = subprocess.run(
            [sys.executable, "-m", "jaxrl.cli.main", *words, out],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "machine" not in done.stderr, done.stderr
        with np.load(tmp_path / out / "policies.npz") as archive:
            policies.append(dict(archive))
        kept_programs = (path.name for path in (tmp_path / "cache").rglob("jit_*-cache"))
        entries.append({name for name in kept_programs if re.match("jit_(init|advance|evaluate)-", name)})
    assert len(entries[0]) == 0 and len(entries[1]) == 3  # to begin, to advance, to evaluate
    assert entries[2] == entries[1]
    for others in policies[1:]:
        for name, leaf in policies[0].items():
            np.testing.assert_array_equal(others[name], leaf)


@pytest.mark.parametrize("absent", [False, True])
def test_programs_for_absent_devices_are_not_stored(absent: bool, monkeypatch: pytest.MonkeyPatch):
    device, name = jax.local_devices()[0], "jax_persistent_cache_min_compile_time_secs"
    monkeypatch.setattr(absent_device, "_TARGETS", {device: TARGETS["t4"]} if absent else {})
    before = jax.config.values[name]
    jax.config.update(name, 0.0)
    unique = f"absent_{uuid.uuid4().hex}"

    def program(at: Any) -> Any:
        def double(x: jax.Array) -> jax.Array:
            return 2 * x

        double.__name__ = unique
        return jax.jit(double).lower(*shapes_on(at, [np.zeros(3, np.float32)]))

    try:
        ((compiled,),) = compile_programs([program], [device])
        assert jax.config.values[name] == 0.0
    finally:
        jax.config.update(name, before)
    stored = list(Path(jax.config.values["jax_compilation_cache_dir"]).glob(f"jit_{unique}-*-cache"))
    for file in stored:
        file.unlink()
    assert len(stored) == (0 if absent else 1)
    np.testing.assert_array_equal(compiled(np.ones(3, np.float32)), np.full(3, 2.0))
