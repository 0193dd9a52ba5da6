"""Several processes in one directory: one of them works, the other gets one sentence, without harm to either."""

import signal
import sys
import time
from pathlib import Path

import pytest
from torturing import assert_one_sentence, assert_same_bits, begun, drawn, process, quiet

import jaxrl
from jaxrl.cli import main as cli

TRAIN = str.split(
    "train ppo cartpole --no-preset --no-progress --env-steps 8192 --evals 16 --eval-episodes 2 --seeds 2 --block 2 "
    "--checkpoint-minutes 1e-9 "
    "--config.num-envs 2 --config.num-steps 16 --config.num-minibatches 2 --config.num-epochs 1 --config.hidden 8"
)
COMMAND = [sys.executable, "-m", "jaxrl.cli.main"]

# Trains until it is stopped, with a checkpoint after every chunk.
ENDLESS = """
import sys
import jaxrl
from torturing import OPTIONS, learner
algo = learner("ppo")
options = OPTIONS | {"env_steps": 10**9, "evals": 10**6, "eval_episodes": 2, "seeds": 2, "checkpoint_minutes": 1e-9}
shard = sys.argv[2] if len(sys.argv) > 2 else None
seen = []
def say(env_step, metrics):
    seen.append(env_step)
    if len(seen) == 2:
        print("training", flush=True)
jaxrl.train(algo, **options, out=sys.argv[1], shard=shard, on_chunk=say)
"""


@pytest.mark.parametrize("meeting", range(6))
def test_of_two_that_train_into_one_directory_one_does(meeting: int, tmp_path: Path) -> None:
    """With --resume the other process meets an active run, one to resume, or a finished one."""
    generator, again = drawn("meetings", meeting), ["--resume"] if meeting % 2 else []
    first = process([*COMMAND, *TRAIN, *again, "--out", "x"], tmp_path)
    time.sleep(generator.uniform(0, 4) if meeting else 0)
    second = process([*COMMAND, *TRAIN, *again, "--out", "x"], tmp_path)
    ends = [(*child.communicate(timeout=300), child.returncode) for child in (first, second)]
    assert sorted(status for *_, status in ends) in ([0, 2], [0, 0] if again else [0, 2])
    for _, error, status in ends:
        assert "Traceback" not in error
        if status == 2:
            assert_one_sentence(error)
            assert "is in use by another run" in error or "holds a result already" in error
    assert cli.main([*TRAIN, "--out", str(tmp_path / "alone")]) == 0
    assert_same_bits(jaxrl.load_result(tmp_path / "x"), jaxrl.load_result(tmp_path / "alone"))


def test_commands_on_a_training_run_are_refused_and_disturb_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child = begun(ENDLESS, tmp_path / "x-0", "0/2")
    try:
        assert child.stdout is not None and child.stdout.readline() == "training\n"
        out = str(tmp_path / "x-0")
        merge = ["merge", out, "--out", str(tmp_path / "whole")]
        busy = "is in use by another run"
        for command, sentence in (
            (["resume", out], busy),
            ([*TRAIN, "--out", out], busy),
            ([*TRAIN, "--out", out, "--force"], busy),
            (merge, ""),
            (["plot", out], "does not hold a complete result"),
            (["evaluate", out], "does not hold a complete result"),
            (["report", out], "does not hold a complete result"),
        ):
            with quiet():
                assert cli.main(command) == 2, command
            captured = capfd.readouterr()
            assert "Traceback" not in captured.err and sentence in captured.err, command
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGTERM)
        _, error = child.communicate(timeout=120)
    assert "Traceback" not in error
    assert jaxrl.load_result(out).metrics.attrs["interrupted"] == 1
