"""Programs kept between processes: one directory for each processor, and the same bits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxrl.cli import main as cli
from jaxrl.runtime.devices import processors

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
