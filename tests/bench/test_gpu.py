"""The benchmark for a machine with a GPU is rehearsed on a CPU."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import gpu
from bench.report import Report, benchmark_parser
from jaxrl.runtime.accelerators.targets import TARGETS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_prints_figures_beside_predictions(tmp_path: Path):
    command = [sys.executable, "bench/gpu.py", "--rehearse", "--no-peers", "--only", "ppo-1", "ucb-4096", "bits"]
    out = tmp_path / "gpu.json"
    done = subprocess.run([*command, "--json", str(out)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    workloads, checks = json.loads(out.read_text())["tables"]
    rows = [dict(zip(workloads["columns"], row, strict=True)) for row in workloads["rows"]]
    assert [row["workload"] for row in rows] == ["ppo-1", "ucb-4096"]
    assert rows[0]["run s"] > 0
    assert rows[0]["bound s"] > 0
    assert rows[0]["compile s"] > 1
    assert [row[1] for row in checks["rows"]] == ["yes", "yes"]


@pytest.mark.slow
def test_a_workload_that_does_not_end_in_time_is_missing():
    figures, error = gpu.worked("ppo-1", rehearse=True, seconds=0.5)
    assert figures is None
    assert error == "it did not end in the time that was left"


KINDS = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100", "Tesla T4": "t4", "NVIDIA A100-SXM4-40GB": "a100"}
UNKNOWN = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 NVL", "NVIDIA L40S", "NVIDIA A10G", "NVIDIA B200")


@pytest.mark.parametrize(("kind", "name"), [*KINDS.items(), ("cpu", "h100"), *((kind, None) for kind in UNKNOWN)])
def test_the_bound_is_that_of_the_device(kind: str, name: str | None):
    assert gpu.target_of(kind) is (None if name is None else TARGETS[name])


@pytest.mark.parametrize(
    ("seeds", "block", "devices", "blocks"),
    [(64, 64, 1, 1), (10_000, 4096, 1, 3), (10_000, 1250, 8, 1), (10_001, 1250, 8, 2), (20_000, 1250, 8, 2)],
)
def test_blocks_of_several_devices_do_not_wait_for_each_other(seeds: int, block: int, devices: int, blocks: int):
    planned = SimpleNamespace(num_runs=seeds, block=block, num_devices=devices)
    assert gpu.blocks_in_turn(planned) == blocks


# A side that is ready at once, and takes a while for each run.
SIDE = """import json, sys, time
print(json.dumps({"compile_seconds": 0.0}), flush=True)
for _ in sys.stdin:
    time.sleep(%s)
    print(json.dumps({"run_seconds": %s, "sampled": 500.0, "return": 500.0}), flush=True)
"""


@pytest.mark.parametrize(
    ("seconds", "turns", "missed"),
    [
        (0.0, 0, "rejax is missing: no time was left"),
        (1.0, 0, "rejax is missing: no time was left"),
        (2.0, 2, None),
        (60.0, 1, "rejax is missing: .* ended early: see its error above"),
    ],
    ids=["over", "a run that does not end", "turns", "a side that fails"],
)
def test_a_comparison_ends_in_time(seconds: float, turns: int, missed: str | None, monkeypatch: pytest.MonkeyPatch):
    parser = benchmark_parser("")
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    report = Report(parser, parser.parse_args([]), "some")
    fails = seconds == 60
    ours, theirs = SIDE % (0.1, 1.0), "1 / 0" if fails else SIDE % (0.1 if turns else 60, 2.0)
    monkeypatch.setattr(gpu, "our_command", lambda *sizes: [sys.executable, "-S", "-c", ours])
    monkeypatch.setattr(gpu, "rejax_command", lambda *sizes: [sys.executable, "-S", "-c", theirs])
    started = time.monotonic()
    sentence = gpu.compared(report, "", rehearse=True, deadline=started + seconds)
    assert time.monotonic() - started < 30
    if missed is None:
        assert sentence == "2.00 times as fast as rejax at 4 seeds"
        times: Any = report.tables[0].rows[0][1]
        assert len(times) >= turns
        assert report.missed == []
    else:
        assert sentence == "" and len(report.missed) == 1
        assert re.match(missed, report.missed[0], re.DOTALL)


def test_a_workload_without_time_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subprocess, "run", None)
    assert gpu.worked("ppo-1", rehearse=True, seconds=-0.5) == (None, "no time was left")
