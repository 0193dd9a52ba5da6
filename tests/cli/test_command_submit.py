"""`jaxrl submit`: the jobs that it prints, those that it gives to SLURM, and shards that are killed on this machine."""

import os
import pickle
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from same_bits import assert_same_bits

import jaxrl
from jaxrl.cli import jobs
from jaxrl.cli import main as cli
from jaxrl.runtime.checkpoints.store import has_checkpoint

ROOT = Path(__file__).parents[2]
TINY = (
    "--no-preset --seeds 8 --env-steps 64 --evals 2 --eval-episodes 2 --block 2 --config.num-envs 2 "
    "--config.num-steps 16 --config.num-minibatches 2 --config.num-epochs 1 --config.hidden 8"
)
COMMAND = "import sys; from jaxrl.cli.console import main; sys.exit(main())"  # as the script that pip writes


def failed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one sentence that `jaxrl submit` fails with."""
    assert cli.main(["submit", *args]) == 2
    message = capsys.readouterr().err
    assert message.startswith("jaxrl: ") and message.count("\n") == 1 and "JAXRL_TRACEBACK" not in message
    return message


@pytest.mark.parametrize(
    ("command", "options", "sentence"),
    [
        ("train ppo cartpole", "--shards 2", "submit takes one --out, in the command or after it, but got none"),
        ("train ppo cartpole --out a", "--shards 2 --out b", "submit takes one --out, .* but got both"),
        ("train ppo cartpole", "--shards 2 --out a", "--shards must be at most the number of runs of ppo, 1, got 2"),
        ("train ppo cartpole --seeds 8", "--shards 1 --out a", "--shards must be at least 2, got 1"),
        ("train ppo cartpole --seeds 8", "--shards 2 --out a --time 2 --grace 120", "--grace must be less than --time"),
        ("train ppo cartpole --seeds 8", "--shards 2 --out a --gpus -1", "--gpus must be at least 0, got -1"),
        ("train ppo cartpole --shard 0/2", "--shards 2 --out a", "--shard does not go with submit: leave it out"),
        ("train ppo cartpole --resume", "--shards 2 --out a", "--resume does not go with submit: leave it out"),
        (
            "plan ppo cartpole",
            "--shards 2 --out a",
            'takes a command of jaxrl train in quotes, .* got "plan ppo cartpole"',
        ),
        ("", "--shards 2 --out a", 'takes a command of jaxrl train in quotes, .* got ""'),
        ("train ppo 'cartpole", "--shards 2 --out a", "the command in quotes cannot be split into words: No closing"),
        ("train ppo cartpol", "--shards 2 --out a", "no environment 'cartpol'; did you mean 'cartpole'"),
        ("train ppo cartpole --seads 8", "--shards 2 --out a", "unrecognized options: --seads"),
        (
            "train ppo cartpole --seeds 8",
            "--shards 2 --out a --executor pbs",
            "invalid choice 'pbs' for argument '--executor'",
        ),
        ("train ppo cartpole --seeds 8", "--out a", "--shards"),
        ("train", "ppo cartpole --shards 2 --out a", "unrecognized options: ppo, cartpole"),
    ],
)
def test_bad_input_gets_one_sentence(
    command: str, options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = failed(capsys, command, *shlex.split(options), "--dry-run")
    assert re.search(sentence, message), message


def test_a_dry_run_prints_all_jobs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "x"
    options = f"--shards 3 --out {out} --dry-run --gpus 1 --partition long --time 30".split()
    assert cli.main(["submit", "train ppo cartpole --seeds 8 --hparams.lr 1e-3 1e-2", *options]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    train = "  jaxrl train ppo cartpole --seeds 8 --hparams.lr 1e-3 1e-2 --no-progress --shard {}/3 --resume --out {}"
    assert lines == [
        "3 jobs (slurm), 30 min each, requeued at most 100 times; GPUs 1, partition long:",
        *(train.format(i, out) for i in range(3)),
        "1 job when all of them have ended:",
        f"  jaxrl merge {out}-0 {out}-1 {out}-2 --out {out} --force",
        f"  jaxrl report {out} --out {out}.html",
        f"Logs in {out}.jobs. Nothing was submitted.",
    ]
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_and_a_missing_cluster_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    args = ["train ppo cartpole --seeds 8", "--shards", "2", "--out", str(tmp_path / "x")]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "takes a machine of a SLURM cluster, but this one has no sbatch and no srun; --dry-run" in failed(
        capsys, *args
    )
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "jaxrl submit needs the extra `cluster`: pip install '.[cluster]' in a clone" in failed(capsys, *args)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs `sbatch`, which keeps the scripts in a folder and numbers them from 70, and `srun`."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    sbatch = f"""#!/bin/sh
number=$((70 + $(ls {folder} | grep -c script)))
if [ -e {folder}/refusing ] || [ -e {folder}/refusing-$number ]; then
  echo 'sbatch: error: invalid partition specified: long' >&2; exit 1
fi
/bin/cp "$1" {folder}/script-$number
echo "Submitted batch job $number"
"""
    for name, text in {"sbatch": sbatch, "srun": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_slurm_receives_an_array_and_a_dependent_job(
    cluster: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "x"
    options = f"--shards 8 --out {out} --partition long --gpus 1 --cpus 4 --mem 16GB --at-once 4 --time 90 --grace 60"
    args = ["submit", "jaxrl train ppo cartpole --seeds 8", *options.split()]
    assert cli.main(args) == 0
    printed = capsys.readouterr().out
    assert "Submitted the job array 70 of 8 shards, and job 71, which merges them." in printed
    array, last = ((cluster / f"script-{number}").read_text() for number in (70, 71))
    of_both = {"--partition=long", "--mem=16GB", "--time=90", "--signal=USR2@60", "--requeue", "--open-mode=append"}
    of_array = of_both | {"--array=0-7%4", "--gpus-per-node=1", "--cpus-per-task=4", "--job-name=jaxrl-x"}
    assert of_array <= {line.removeprefix("#SBATCH ") for line in array.splitlines()}
    of_last = of_both | {"--dependency=afterany:70", "--job-name=jaxrl-merge-x"}
    assert of_last <= {line.removeprefix("#SBATCH ") for line in last.splitlines()}
    assert "--gpus" not in last and "--array" not in last
    (cluster / "refusing-73").touch()
    assert "jaxrl: the job array 72 is submitted, but not the job that merges: SLURM refuses it: sb" in failed(
        capsys, *args[1:]
    )
    (cluster / "refusing").touch()
    assert failed(capsys, *args[1:]) == ("jaxrl: SLURM refuses it: sbatch: error: invalid partition specified: long\n")
    (tmp_path / "file").touch()
    assert "cannot be written: " in failed(capsys, *args[1:], "--logs", str(tmp_path / "file" / "logs"))


def test_a_result_is_replaced_only_if_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxrl.results.storage.finished", lambda directory: directory == Path("x"))
    args = ["train ppo cartpole --seeds 8 --out x", "--shards", "2", "--dry-run"]
    assert "x holds a result: choose another --out, or add --force to replace it" in failed(capsys, *args)
    assert cli.main(["submit", *args, "--force"]) == 0


KILLED_FIRST = """
import os, signal, sys
from pathlib import Path
file = Path(sys.argv[1])
if file.exists():
    sys.exit()
file.touch()
os.kill(os.getpid(), signal.SIGKILL)
"""
KEEPING = """
import signal, sys, time
from pathlib import Path
def keep(number, frame):
    Path(sys.argv[1], "kept").touch()
    sys.exit(138)
signal.signal(signal.SIGUSR1, keep)
Path(sys.argv[1], "begun").touch()
time.sleep(60)
"""


def test_a_job_resumes_a_command_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "_COMMAND", ("-c", KILLED_FIRST))
    jobs.ShardJob([str(tmp_path / "killed")], 1.0)()
    assert "The command was stopped (exit status -9), and is resumed.\n" in capfd.readouterr().out
    monkeypatch.setattr(jobs, "_COMMAND", ("-c", "import sys; print('once', flush=True); sys.exit(2)"))
    with pytest.raises(RuntimeError, match=r"^jaxrl train ppo ended with exit status 2$"):
        jobs.ShardJob(["train", "ppo"], 1.0)()
    assert capfd.readouterr().out.count("once") == 1
    monkeypatch.setattr(jobs, "_COMMAND", ("-c", "import os; print('again', flush=True); os.kill(os.getpid(), 9)"))
    with pytest.raises(RuntimeError, match=r"^jaxrl train ppo ended with exit status -9$"):
        jobs.ShardJob(["train", "ppo"], 1.0)()
    assert capfd.readouterr().out.count("again") == jobs.RESTARTS


@pytest.mark.parametrize("hears", [True, False])
def test_a_preempted_job_waits_for_the_checkpoint(hears: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes during the wait for the command, as for submitit, whose handler ends the process."""
    deaf = KEEPING.replace("SIGUSR1, keep", "SIGUSR1, signal.SIG_IGN")
    monkeypatch.setattr(jobs, "_COMMAND", ("-c", KEEPING if hears else deaf))
    job = jobs.ShardJob([str(tmp_path)], 60.0 if hears else 0.5)
    submissions = []

    def handle(number: int, frame: Any) -> None:
        submissions.append(job.checkpoint())
        sys.exit(144)

    def preempt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, handle)
    thread = threading.Thread(target=preempt)
    thread.start()
    with pytest.raises(SystemExit):
        job()
    thread.join()
    signal.signal(signal.SIGUSR2, before)
    assert (tmp_path / "kept").exists() == hears
    again = pickle.loads(pickle.dumps(submissions[0].function))
    assert again == jobs.ShardJob(job.words, job.grace)


def test_a_merge_takes_the_shards_that_started(tmp_path: Path) -> None:
    (tmp_path / "x-0").mkdir()
    with pytest.raises(RuntimeError, match=f"^no shard of {tmp_path}/x was begun, and nothing is merged$"):
        jobs.MergeJob([f"{tmp_path}/x-0", f"{tmp_path}/x-1"], [{}, {}], f"{tmp_path}/x", f"{tmp_path}/x.html")()


class Killing:
    """Kills each shard of a submission once, in one of three ways, as soon as it has a checkpoint.

    Args:
      out: Directory of the merged result.
      count: Number of shards.
    """

    WAYS = ("preemption", "kill", "term")

    def __init__(self, out: Path, count: int):
        self.out, self.count = out, count
        self.killed: dict[int, str] = {}

    def look(self) -> None:
        """Kill the shards that train, have a checkpoint and were not killed before."""
        for process in psutil.process_iter(["pid", "ppid", "cmdline"]):
            words = process.info["cmdline"] or []
            if f"{self.out}" not in words or "--shard" not in words:
                continue
            number = int(words[words.index("--shard") + 1].partition("/")[0])
            if number in self.killed or not has_checkpoint(Path(f"{self.out}-{number}")):
                continue
            way = self.killed[number] = self.WAYS[number % len(self.WAYS)]
            if way == "preemption":  # of the job, by the signal that SLURM sends
                psutil.Process(process.info["ppid"]).send_signal(signal.SIGUSR2)
            else:
                process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGTERM)


@pytest.mark.slow
def test_shards_that_are_each_killed_once_equal_one_call(tmp_path: Path) -> None:
    out, count = tmp_path / "x", 8
    train = f"train ppo cartpole {TINY.replace('--env-steps 64 --evals 2', '--env-steps 320000 --evals 40')}"
    options = ["--shards", str(count), "--out", str(out), "--executor", "local", "--time", "60", "--at-once", "4"]
    words = [sys.executable, "-c", COMMAND, "submit", f"{train} --checkpoint-minutes 0.001", *options]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    killing = Killing(out, count)
    while child.poll() is None:
        killing.look()
        time.sleep(0.1)
    printed = child.communicate()[0]
    assert child.returncode == 0, printed
    assert sorted(killing.killed) == list(range(count))
    logs = [path.read_text() for path in Path(f"{out}.jobs").glob("*.out")]
    assert sum("Requeued job" in log for log in logs) == 3  # those with a preemption
    assert sum("The command was stopped (exit status" in log for log in logs) == 5
    assert not any("starts from the beginning" in log for log in logs)
    assert f"Wrote {out} (next" in printed and Path(f"{out}.html").is_file()
    assert cli.main([*train.split(), "--no-progress", "--out", str(tmp_path / "whole")]) == 0
    assert_same_bits(jaxrl.load_result(out), jaxrl.load_result(tmp_path / "whole"))
