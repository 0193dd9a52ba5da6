"""Processes that are killed at random moments lose nothing: a resumed run ends as an undisturbed one."""

import signal
import time
from pathlib import Path

import pytest
from torturing import CASES, assert_same_bits, begun, drawn, run, share

from envs.errors import UserError

KILLS = 4
WITHIN = 1.0  # seconds after training begins in which most kills come

GOING_ON = """
import sys, warnings
from torturing import run

class Saying:
    def start(self, call, resumed):
        print("training", flush=True)
    def __call__(self, env_step, metrics): pass
    def finish(self, result): pass

warnings.simplefilter("ignore")
algorithm, family, out = sys.argv[1:]
run(algorithm, family, out=out, resume=True, checkpoint_minutes=1e-9, trackers=[Saying()])
"""


@pytest.mark.parametrize(("algorithm", "family"), CASES)
def test_killed_runs_end_as_one_that_was_let_be(algorithm: str, family: str, tmp_path: Path) -> None:
    try:
        whole = run(algorithm, family)
    except UserError as error:  # no environment of the family is for this algorithm
        pytest.skip(str(error))
    generator, out, killed = drawn("kills", algorithm, family), tmp_path / "x", 0
    for attempt in range(3 * KILLS):
        child = begun(GOING_ON, algorithm, family, out)
        assert child.stdout is not None
        if killed < share(KILLS):
            if attempt == 0:  # at any moment, while it imports and compiles too
                time.sleep(generator.uniform(0, 4))
            else:
                child.stdout.readline()
                time.sleep(generator.uniform(0, WITHIN))
            child.send_signal(signal.SIGKILL)
        _, error = child.communicate(timeout=300)
        assert child.returncode in (0, -signal.SIGKILL), error
        assert "Traceback" not in error
        killed += child.returncode == -signal.SIGKILL
        if child.returncode == 0:
            break
    assert killed
    from jaxrl import load_result

    loaded = load_result(out) if family != "bandit" else run(algorithm, family, out=out, resume=True)
    assert loaded.metrics.attrs["interrupted"] == 0
    assert_same_bits(loaded, whole)
