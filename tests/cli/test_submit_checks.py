"""`jaxrl submit`: the arguments and the directories that it checks before it starts jobs, and those before a merge."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrl.cli import executors, jobs
from jaxrl.cli import main as cli
from jaxrl.results.checksums import sealed_json
from jaxrl.runtime.checkpoints.identity_file import read_identity

TINY = (
    "train ppo cartpole --no-preset --seeds 4 --env-steps 64 --evals 2 --eval-episodes 2 --block 2 --config.num-envs 2 "
    "--config.num-steps 16 --config.num-minibatches 2 --config.num-epochs 1 --config.hidden 8"
)
SHOWN = "import sys; print(*sys.argv[1:], flush=True)"  # in place of a command

Submitted = Callable[[str], jobs.MergeJob]


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one sentence that a command fails with."""
    assert cli.main(args) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    return sentence


def contents(folder: Path) -> dict[Path, bytes]:
    """Bytes of all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Ended:
    """Local executor of submitit whose jobs have ended as soon as they are submitted."""

    def __init__(self, *args: Any, **kwargs: Any):
        del args, kwargs

    def update_parameters(self, **parameters: Any) -> None:
        """Take the parameters of jobs."""

    def submit(self, job: Any) -> "Ended":
        """The job."""
        del job
        return self

    def wait(self) -> None:
        """Return at once."""

    def exception(self) -> None:
        """None, that of a job without errors."""

    def stdout(self) -> str:
        """Log of the job."""
        return ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with both shards of a finished command, `x-0` and `x-1`, and their merged result `x`."""
    folder = tmp_path_factory.mktemp("trained")
    out = str(folder / "x")
    for shard in ("0/2", "1/2"):
        assert cli.main([*TINY.split(), "--no-progress", "--shard", shard, "--out", out]) == 0
    assert cli.main(["merge", f"{out}-0", f"{out}-1", "--out", out]) == 0
    return folder


@pytest.fixture
def submitted(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Submitted:
    """Function that submits a command with the shards of `trained`, and returns the job that merges, not started."""
    merges = []

    def kept(shards: Any, after: jobs.MergeJob, *rest: Any) -> int:
        merges.append(after)
        return 0

    def submit(command: str) -> jobs.MergeJob:
        options = ["--shards", "2", "--out", str(trained / "x"), "--executor", "local", "--force"]
        assert cli.main(["submit", command, *options]) == 0
        return merges.pop()

    monkeypatch.setattr(executors, "run_locally", kept)
    monkeypatch.setattr(jobs, "_COMMAND", ("-c", SHOWN))
    return submit


@pytest.mark.parametrize(
    "words",
    [
        "--env-steps 0",
        "--evals 0",
        "--eval-episodes 0",
        "--block 0",
        "--memory foo",
        "--precision half",
        "--schedules bend",
        "--keep worst",
        "--checkpoint-minutes -1",
        "--hparams.lr -1",
        "--track notebook",
        "--warm-start no-such-run",
    ],
)
def test_an_argument_is_refused_with_the_sentence_of_train(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command, out = f"train ppo cartpole --seeds 4 {words}", str(tmp_path / "x")
    sentence = refusal(capsys, "submit", command, "--shards", "2", "--out", out, "--dry-run")
    assert sentence == refusal(capsys, *command.split(), "--out", out)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "shards", "differing"),
    [
        ("--hparams.lr 0.1", 2, "hparams.lr is 0.00025 there and 0.1 here"),
        ("--config.hidden 16", 2, "config.hidden is [8] there and [16] here"),
        ("--block 4", 2, "block is 2 there and 4 here"),
        ("--env-steps 32 --evals 1", 2, "points is [1, 2] there and [1] here"),
        ("--precision highest", 2, 'precision is "default" there and "highest" here'),
        ("", 4, "seeds is [0, 1] there and [0] here"),
    ],
)
def test_a_changed_command_is_refused(
    change: str, shards: int, differing: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(trained)
    out = trained / "x"
    options = ["--shards", str(shards), "--out", str(out), "--executor", "local", "--force"]
    assert refusal(capsys, "submit", f"{TINY} {change}", *options) == (
        f"jaxrl: {out}-0 holds a run of another configuration: {differing}; choose another --out, or remove the "
        f"directories {out}-0 to {out}-{shards - 1}"
    )
    assert contents(trained) == before


@pytest.mark.parametrize("change", ["", "--env-steps 128 --evals 4", "--memory 8GiB", "--devices gpu:7"])
def test_a_command_that_resumes_the_shards_is_accepted(
    change: str, submitted: Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxrl.runtime.checkpoints.identity.processor", lambda: "that of the machine of the shell")
    after = submitted(f"{TINY} {change}")
    assert [identity["shard"] for identity in after.identities] == ["0/2", "1/2"]


def test_a_directory_without_run_json_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x-1").mkdir()
    (tmp_path / "x-1" / "config.json").write_text("{}")
    sentence = refusal(capsys, "submit", TINY, "--shards", "2", "--out", str(tmp_path / "x"), "--dry-run")
    assert sentence == (
        f"jaxrl: {tmp_path}/x-1 holds a result, but no run.json; choose another --out, or remove the "
        f"directories {tmp_path}/x-0 to {tmp_path}/x-1"
    )


def test_shards_of_the_command_are_merged(
    trained: Path, submitted: Submitted, capfd: pytest.CaptureFixture[str]
) -> None:
    after = submitted(TINY)
    capfd.readouterr()
    pickle.loads(pickle.dumps(after))()
    out = trained / "x"
    assert capfd.readouterr().out.splitlines() == [
        f"merge {out}-0 {out}-1 --out {out} --force",
        f"report {out} --out {out}.html",
    ]


def test_a_shard_of_another_command_is_left_out_of_the_merge(
    trained: Path, submitted: Submitted, capfd: pytest.CaptureFixture[str]
) -> None:
    after, out = submitted(TINY), trained / "x"
    file = Path(f"{out}-1") / "run.json"
    content = file.read_bytes()
    identity = read_identity(file.parent)
    file.write_bytes(sealed_json({**identity, "hparams": {**identity["hparams"], "lr": 0.1}}))
    capfd.readouterr()
    try:
        after()
    finally:
        file.write_bytes(content)
    assert capfd.readouterr().out.splitlines() == [
        f"jaxrl: warning: shard 1/2 is left out: {out}-1 holds a run of another configuration: hparams.lr is 0.1 there "
        "and 0.00025 here",
        f"merge {out}-0 --out {out} --force",
        f"report {out} --out {out}.html",
    ]


def test_nothing_is_merged_if_all_jobs_of_an_extension_failed(
    trained: Path, submitted: Submitted, capfd: pytest.CaptureFixture[str]
) -> None:
    """The directories hold the shorter runs then, which are results of another command."""
    after, out = submitted(f"{TINY} --env-steps 128 --evals 4"), trained / "x"
    capfd.readouterr()
    with pytest.raises(RuntimeError, match=f"^no shard of {out} was begun, and nothing is merged$"):
        after()
    assert capfd.readouterr().out.splitlines() == [
        f"jaxrl: warning: shard {i}/2 is left out: {out}-{i} holds a run of another configuration: env_steps is 64 "
        "there and 128 here"
        for i in range(2)
    ]


def test_unknown_flags_of_xla_are_refused(tmp_path: Path) -> None:
    """The checks start JAX's backend, which would end the process."""
    words = [sys.executable, "-m", "jaxrl.cli.main", "submit", TINY, "--shards", "2", "--out", "x"]
    flags = os.environ | {"XLA_FLAGS": "--xla_no_such_flag=1"}
    process = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=flags)
    sentence = "jaxrl: --xla-flags and XLA_FLAGS take flags of XLA, got the unknown --xla_no_such_flag=1\n"
    assert (process.returncode, process.stderr) == (2, sentence)


@pytest.mark.parametrize(
    ("gpus", "visible", "driver", "sentence"),
    [
        (0, None, True, "All shards run on the CPU: --executor local hides the GPUs of this machine without --gpus."),
        (0, "0,1", False, "All shards run on the CPU: --executor local hides the GPUs of this machine without --gpus."),
        (0, None, False, None),
        (0, "", True, None),
        (1, None, True, "Every shard uses GPU 0 (--at-once 1 runs one shard at a time)."),
        (2, None, True, "Every shard uses the GPUs 0 to 1 (--at-once 1 runs one shard at a time)."),
    ],
)
def test_output_of_local_jobs_names_their_gpus(
    gpus: int,
    visible: str | None,
    driver: bool,
    sentence: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(executors, "_NVIDIA", str(tmp_path if driver else tmp_path / "missing"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    executors._import_submitit()  # imported by a name instead, it would replace the handlers of loggers
    monkeypatch.setattr("submitit.LocalExecutor", Ended)
    resources = jobs.Resources(60, 120, 0, None, None, None, gpus, None, 2)
    assert executors.run_locally([], jobs.MergeJob([], [], "x", "x.html"), tmp_path, resources) == 0
    running = f"Running 0 shards, at most 0 at once; logs in {tmp_path}."
    assert capsys.readouterr().out.split("\n")[:-2] == [*([] if sentence is None else [sentence]), running]
