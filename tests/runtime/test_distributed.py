"""Several processes as one: they connect, train one run together, and end soon after one of them is lost."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.runtime.hosts.processes import broadcast, broadcast_array, exchange, start

CONFIG = "--config.num-envs 4 --config.num-steps 32 --config.num-epochs 2 --config.num-minibatches 1 --config.hidden 8"
TRAIN = f"train ppo cartpole --no-preset {CONFIG} --eval-episodes 4 --no-progress --checkpoint-minutes 0.02".split()
PER_ITERATION = 128
PATIENCE = 240  # seconds for compiling on a loaded machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def launch(args: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """A process of `jaxrl` with one CPU device, whose output goes to a file."""
    variables = {**os.environ, "JAX_NUM_CPU_DEVICES": "1", **environment}
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "jaxrl.cli.main", *args], stdout=stream, stderr=subprocess.STDOUT, env=variables
        )


def launch_two(args: list[str], folder: Path) -> list[subprocess.Popen[bytes]]:
    joined = [*args, "--coordinator", f"localhost:{free_port()}", "--num-processes", "2"]
    return [launch([*joined, "--process-id", str(i)], folder / f"log-{i}") for i in range(2)]


def said(folder: Path, process: int) -> list[str]:
    """Output of a process, without messages of the collectives and the line that names the settings."""
    lines = (folder / f"log-{process}").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith(("[Gloo]", "Starting from the defaults"))]


def wait_for_checkpoint(out: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        if any(entry.name.isdigit() for entry in out.glob("checkpoints/*")):
            return
        time.sleep(0.1)
    pytest.fail(f"no checkpoint: {[process.poll() for process in processes]}")


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


# --- real processes ------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_train_the_run_that_two_devices_of_one_do(tmp_path: Path) -> None:
    out, slurm = tmp_path / "x", {"SLURM_JOB_ID": str(free_port() % 4096), "SLURM_STEP_NODELIST": "localhost"}
    args = [*TRAIN, "--env-steps", str(PER_ITERATION), "--evals", "1"]
    processes = [
        launch(
            [*args, "--distributed", "--out", str(out)],
            tmp_path / f"log-{i}",
            **slurm,
            SLURM_NTASKS="2",
            SLURM_PROCID=str(i),
            SLURM_LOCALID="0",
        )
        for i in range(2)
    ]
    try:
        statuses = [process.wait(PATIENCE) for process in processes]
    finally:
        end(processes)
    assert statuses == [0, 0], (said(tmp_path, 0), said(tmp_path, 1))
    assert said(tmp_path, 1) == [] and any("Wrote" in line for line in said(tmp_path, 0))
    together = jaxrl.load_result(out)
    assert together.metrics.attrs["num_devices"] == 2
    one = launch([*args, "--shard-environments", "--out", f"{out}-1"], tmp_path / "log-2", JAX_NUM_CPU_DEVICES="2")
    assert one.wait(PATIENCE) == 0, said(tmp_path, 2)
    forced = jaxrl.load_result(f"{out}-1")
    # Two summands have one sum in any order. Only the compilation in each process may differ.
    for x, y in zip(jax.tree.leaves(together.policies), jax.tree.leaves(forced.policies), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)
    np.testing.assert_allclose(together.values("grad_norm"), forced.values("grad_norm"), rtol=1e-5)
    # With one minibatch they learn the same as the trainer of many runs from the same keys.
    plain = launch([*args, "--block", "1", "--seeds", "1", "--out", f"{out}-2"], tmp_path / "log-3")
    assert plain.wait(PATIENCE) == 0, said(tmp_path, 3)
    for x, y in zip(
        jax.tree.leaves(together.policies), jax.tree.leaves(jaxrl.load_result(f"{out}-2").policies), strict=True
    ):
        np.testing.assert_allclose(x, y, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 0])
def test_a_killed_process_ends_the_other_with_a_sentence_and_one_process_finishes(tmp_path: Path, victim: int) -> None:
    out, env_steps = tmp_path / "x", 1_000_000
    processes = launch_two([*TRAIN, "--env-steps", str(env_steps), "--out", str(out)], tmp_path)
    survivor = processes[1 - victim]
    try:
        wait_for_checkpoint(out, processes)
        processes[victim].kill()
        killed = time.monotonic()
        status = survivor.wait(60)
        took = time.monotonic() - killed
    finally:
        end(processes)
    # JAX's service may notice it as well, and then writes lines of its own before; they differ between versions.
    *of_service, line = said(tmp_path, 1 - victim)
    assert status == 1, (status, of_service, line)
    ours = [each for each in of_service if each.startswith(("Traceback", "  File ", "jaxrl"))]
    assert ours == [], of_service
    assert re.match(rf"jaxrl: .*process {victim} of the run is gone.*; its last checkpoint is whole$", line)
    print(f"killed process {victim}; the other ended after {took:.1f} s: {line}")
    assert not (out / "config.json").exists() or jaxrl.load_result(out).metrics.attrs["interrupted"] == 1
    alone = launch(["resume", str(out), "--no-progress"], tmp_path / "log-2")
    try:
        assert alone.wait(PATIENCE) == 0, said(tmp_path, 2)
    finally:
        end([alone])
    result = jaxrl.load_result(out)
    assert result.metrics.attrs["num_devices"] == 1 and result.metrics.attrs["interrupted"] == 0
    assert int(result.metrics["env_step"][-1]) >= env_steps


@pytest.mark.slow
@pytest.mark.parametrize("reported", [1, 0])
def test_a_signal_to_one_process_ends_both_after_a_checkpoint(tmp_path: Path, reported: int) -> None:
    out = tmp_path / "x"
    processes = launch_two([*TRAIN, "--env-steps", "10000000", "--out", str(out)], tmp_path)
    try:
        wait_for_checkpoint(out, processes)
        processes[reported].send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE) for process in processes] == [143, 143], said(tmp_path, reported)
    finally:
        end(processes)
    result = jaxrl.load_result(out)
    assert result.metrics.attrs["stopped_by_signal"] == signal.SIGTERM
    assert any(entry.name.isdigit() for entry in out.glob("checkpoints/*"))
    assert said(tmp_path, 1) == []


@pytest.mark.slow
def test_a_process_that_falls_silent_ends_the_other(tmp_path: Path) -> None:
    out = tmp_path / "x"
    processes = launch_two([*TRAIN, "--env-steps", "10000000", "--out", str(out)], tmp_path)
    try:
        wait_for_checkpoint(out, processes)
        processes[1].send_signal(signal.SIGSTOP)
        assert processes[0].wait(60) == -signal.SIGABRT  # by JAX's client of the coordination service
    finally:
        end(processes)
    assert any("stopped sending heartbeats" in line for line in said(tmp_path, 0))


@pytest.mark.slow
def test_a_call_that_differs_between_processes_is_refused(tmp_path: Path) -> None:
    joined = [*TRAIN, "--coordinator", f"localhost:{free_port()}", "--num-processes", "2"]
    processes = [
        launch([*joined, "--process-id", str(i), "--hparams.lr", ("1e-3", "2e-3")[i]], tmp_path / f"log-{i}")
        for i in range(2)
    ]
    try:
        assert processes[1].wait(PATIENCE) == 1 and processes[0].wait(60) == 1
    finally:
        end(processes)
    assert said(tmp_path, 1) == [
        "jaxrl: process 1 runs a different call than process 0: hparams.lr is 0.001 there and 0.002 here"
    ]
    assert "process 1 of the run is gone" in said(tmp_path, 0)[-1]


@pytest.mark.slow
def test_a_directory_that_process_0_cannot_use_is_refused_by_both(tmp_path: Path) -> None:
    out = tmp_path / "x"
    out.mkdir()
    (out / "config.json").write_text(json.dumps({}))
    processes = launch_two([*TRAIN, "--out", str(out)], tmp_path)
    try:
        assert [process.wait(PATIENCE) for process in processes] == [2, 2]
    finally:
        end(processes)
    assert said(tmp_path, 0)[-1] == said(tmp_path, 1)[-1] and "which jaxrl did not write" in said(tmp_path, 0)[-1]


@pytest.mark.slow
def test_processes_that_do_not_come_are_not_waited_for(tmp_path: Path) -> None:
    args = ["--coordinator", f"localhost:{free_port()}", "--num-processes", "2", "--process-id", "0"]
    process = launch([*TRAIN, *args, "--join-timeout", "6"], tmp_path / "log-0")
    began = time.monotonic()
    try:
        assert process.wait(60) == 1
    finally:
        end([process])
    assert time.monotonic() - began < 40
    [line] = said(tmp_path, 0)
    assert re.match(r"jaxrl: the 2 processes of the run did not all connect at localhost:\d+ within 6 s: ", line)


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("host", 2, 0), r"coordinator must be host:port, such as node1:12345, got 'host'"),
        (("host:0", 2, 0), r"coordinator must be host:port, such as node1:12345, got 'host:0'"),
        (("host:1234", 2, 2), r"process_id must be a whole number from 0 to 1, one less than num_processes, got 2"),
        (("host:1234", 2, -1), r"process_id must be a whole number from 0 to 1, one less than num_processes, got -1"),
        (("host:1234", 0, 0), r"num_processes must be a whole number of at least 1, got 0"),
        (("host:1234", None, 0), r"coordinator, num_processes and process_id must be given together, .* is missing"),
    ],
)
def test_invalid_processes_are_refused(arguments: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        start(*arguments)


def test_timeouts_are_seconds() -> None:
    with pytest.raises(ValueError, match=r"^timeout must be a number of seconds from 1 to 86,400, got 0$"):
        start("host:1234", 2, 0, timeout=0)


def test_a_coordinator_that_cannot_be_reached_is_reported_in_time() -> None:
    port, began = free_port(), time.monotonic()
    with pytest.raises(ValueError, match=rf"^coordinator localhost:{port} cannot be reached within 1 s \(.*\): "):
        start(f"localhost:{port}", 2, 1, timeout=1)
    assert 1 <= time.monotonic() - began < 5


def test_a_port_in_use_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        address = f"localhost:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=rf"^coordinator {address} cannot listen on its port \(.*\): name another"):
            start(address, 2, 0)


def test_one_process_talks_to_itself() -> None:
    np.testing.assert_array_equal(exchange(1, 2), [[1, 2]])
    assert broadcast({"a": 1}) == {"a": 1}
    np.testing.assert_array_equal(broadcast_array(np.array([-0.0, np.nan]), (2,), np.float64), [-0.0, np.nan])


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--process-id", "two"], "--process-id takes a number, but got 'two'"),
        (["--coordinator"], "--coordinator takes a value"),
        (["--coordinator", "host", "--num-processes", "2", "--process-id=2"], "--process-id must be a whole number"),
    ],
)
def test_invalid_options_are_refused(args: list[str], sentence: str, capsys: Any) -> None:
    from jaxrl.cli import main as cli

    assert cli.main(["train", "ppo", "cartpole", *args]) == 2
    assert capsys.readouterr().err.startswith(f"jaxrl: {sentence}")
