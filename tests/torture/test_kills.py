"""Processes that are killed at random moments lose nothing: a resumed run ends like an uninterrupted one."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from torturing import CASES, EVALS, RUN_BANDIT, assert_same_bits, begun, drawn, run

import jaxrl

WITHIN = 0.1  # seconds after an evaluation in which a kill comes: about two chunks and their checkpoints
KILLS = 6  # of one run of PPO, one after another
START = 6.0  # seconds in which a process imports, compiles and begins to train

RESUMING = """
import sys, warnings
from torturing import run

class Reporting:
    def start(self, call, resumed):
        print("resumed", resumed, flush=True)
    def __call__(self, env_step, metrics):
        print("evaluated", env_step, flush=True)
    def finish(self, result): pass

warnings.simplefilter("ignore")
name, family, out = sys.argv[1:]
run(name, family, out=out, resume=True, checkpoint_minutes=1e-9, trackers=[Reporting()])
"""


class Resumed:
    """Tracker that records from which environment step a run is resumed."""

    env_step: int | None = None

    def start(self, call: Any, resumed: int | None) -> None:
        self.env_step = resumed

    def __call__(self, env_step: int, metrics: Any) -> None: ...

    def finish(self, result: Any) -> None: ...


def kill(name: str, family: str, out: Path, evaluations: int, seconds: float) -> None:
    """Resume a run in a separate process, and kill it.

    Args:
      name: Name of the learner.
      family: Family of environments.
      out: Directory of the run.
      evaluations: Number of evaluations to wait for first.
      seconds: Time to wait after them.
    """
    child = begun(RESUMING, name, family, out)
    assert child.stdout is not None
    for _ in range(evaluations + 1 if evaluations else 0):
        child.stdout.readline()
    time.sleep(seconds)
    child.kill()
    _, error = child.communicate(timeout=300)
    assert child.returncode == -signal.SIGKILL and "Traceback" not in error, error


def assert_ends_as_if_never_killed(name: str, family: str, out: Path) -> None:
    """Fail where a run starts over, or its end differs in a bit from that of the same run without interruption."""
    start = Resumed()
    resumed = run(name, family, out=out, resume=True, trackers=[start])
    assert start.env_step
    assert resumed.metrics.attrs["interrupted"] == 0
    assert_same_bits(resumed, run(name, family))
    if family != RUN_BANDIT:
        assert_same_bits(jaxrl.load_result(out), resumed)


@pytest.mark.parametrize(("name", "family"), CASES)
def test_a_run_that_is_killed_is_resumed_bit_for_bit(name: str, family: str, tmp_path: Path) -> None:
    generator = drawn("kills", name, family)
    kill(name, family, tmp_path / "x", int(generator.integers(2, EVALS // 2)), generator.uniform(0, WITHIN))
    assert_ends_as_if_never_killed(name, family, tmp_path / "x")


def test_a_run_that_is_killed_again_and_again_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Kill before and after training begins, so that a process finds files that several killed processes left."""
    generator = drawn("kills")
    for i in range(KILLS):
        evaluations, seconds = (2, WITHIN) if i % 2 else (0, START)
        kill("ppo", "control", tmp_path / "x", evaluations, generator.uniform(0, seconds))
    assert_ends_as_if_never_killed("ppo", "control", tmp_path / "x")
