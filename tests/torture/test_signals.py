"""Ctrl-C and SIGTERM at any moment: the process ends with the exit status of the signal, and nothing is damaged."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import pytest
from torturing import begun, drawn, process, quiet

import jaxrl
from jaxrl.runtime.checkpoints.identity_file import IDENTITY
from jaxrl.runtime.machine.compilation_cache import delete_truncated

MOMENTS = 24  # at random, from the start of a process to well into training
EVENTS = 10  # of each kind, at random among those before training begins
KINDS = ("gc", "import", "compile")
PATIENCE = 300.0  # seconds that a process may take

# So long that only a signal ends it.
LONG = (
    "train ppo cartpole --no-preset --no-progress --env-steps 1000000000 --evals 100 --eval-episodes 2 --seeds 2 "
    "--block 2 --config.num-envs 2 --config.num-steps 16 --config.num-minibatches 2 --config.num-epochs 1 "
    "--config.hidden 8"
)

COMMAND = "import sys; from jaxrl.cli.console import main; sys.exit(main())"  # as the script that pip writes

# Sends itself a signal at one of the events of a kind, or prints how many there are before training begins.
EVENTFUL = """
import gc, os, signal, sys
kind, number, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seen = 0
def event(*_, **__):
    global seen
    seen += 1
    if seen == at:
        signal.raise_signal(number)
from jaxrl.cli.main import main
import jaxrl.cli.main as module
dispatch = module._dispatch
def dispatched(argv):
    if kind == "gc":
        gc.callbacks.append(lambda phase, info: event())
    elif kind == "import":
        sys.addaudithook(lambda name, _: event() if name == "import" else None)
    else:
        import jax
        jax.monitoring.register_event_listener(event)
        jax.monitoring.register_event_duration_secs_listener(event)
    if not at:
        import jaxrl.runtime.execution as execution
        def drive(*_, **__):
            print("events", seen, flush=True)
            os._exit(0)
        execution.drive = drive
    return dispatch(argv)
module._dispatch = dispatched
sys.exit(main(sys.argv[4:]))
"""


@pytest.fixture(autouse=True, scope="module")
def whole_cache() -> None:
    """Programs without those that a test that killed a process has left in part, about which JAX would warn."""
    delete_truncated(Path(jax.config.values["jax_compilation_cache_dir"]))


class Stopping:
    """A tracker that ends a run as soon as it resumes."""

    def start(self, call: Any, resumed: int | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def __call__(self, env_step: int, metrics: Any) -> None: ...

    def finish(self, result: Any) -> None: ...


def assert_goes_on(out: Path) -> None:
    """Fail if a started directory cannot be resumed."""
    if not (out / IDENTITY).exists():
        assert not out.exists() or not [path for path in out.iterdir() if path.name != ".lock"]
        return
    with quiet():
        try:
            result = jaxrl.resume(out, progress=False, trackers=[Stopping()])
        except KeyboardInterrupt:  # before the first evaluation
            return
    assert result.metrics.attrs["interrupted"] == 1


def assert_ended(status: int, number: int, error: str) -> None:
    """Fail if a signal did not have the required effect."""
    assert status in (128 + number, -number), error
    assert "Traceback" not in error and "Exception ignored" not in error, error
    lines = error.strip().splitlines()
    assert len(lines) <= 2 and all(line.startswith("jaxrl: ") for line in lines), error


def training(out: Path) -> subprocess.Popen[str]:
    """A process that trains into a directory until a signal comes."""
    return process([sys.executable, "-c", COMMAND, *LONG.split(), "--out", str(out)], out.parent)


@pytest.fixture(scope="module")
def seconds_to_begin(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Time after which a process trains, here and today."""
    out = tmp_path_factory.mktemp("begun") / "x"
    started = time.monotonic()
    child = training(out)
    while not (out / IDENTITY).exists() and child.poll() is None and time.monotonic() < started + PATIENCE:
        time.sleep(0.01)
    seconds = time.monotonic() - started
    child.kill()
    assert (out / IDENTITY).exists(), child.communicate()[1]
    child.communicate()
    return seconds


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_at_any_moment_is_handled(number: int, part: int, seconds_to_begin: float, tmp_path: Path) -> None:
    generator = drawn("signals", number, part)
    for i in range(MOMENTS // 6):
        out = tmp_path / str(i)
        child = training(out)
        time.sleep(generator.uniform(0.01, 1.3) * seconds_to_begin)
        child.send_signal(number)
        watch = threading.Timer(PATIENCE, child.kill)
        watch.start()
        _, error = child.communicate()
        watch.cancel()
        assert_ended(child.returncode, number, error)
        assert_goes_on(out)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_is_never_suppressed(kind: str, tmp_path: Path) -> None:
    short = [*LONG.split(), "--env-steps", "64", "--evals", "1"]
    counts = []
    for _ in range(2):  # the second may read the programs that the first compiles
        counted, error = begun(EVENTFUL, kind, 0, 0, *short).communicate(timeout=PATIENCE)
        assert counted.startswith("events "), error
        counts.append(int(counted.split()[1]))
    events = min(counts)
    assert events > EVENTS
    generator = drawn("events", kind)
    for at in generator.choice(events, EVENTS, replace=False).tolist():
        out = tmp_path / str(at)
        child = begun(EVENTFUL, kind, int(signal.SIGINT), at + 1, *short, "--out", out)
        _, error = child.communicate(timeout=PATIENCE)
        assert_ended(child.returncode, signal.SIGINT, error)
        assert_goes_on(out)
