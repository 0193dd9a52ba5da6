"""The benchmark for a machine with a GPU is rehearsed on a CPU."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import gpu
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
