"""Jobs of `jaxrl submit`, as submitit starts them: one trains a shard, another merges the shards and reports."""

import contextlib
import dataclasses
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

__all__ = ["MergeJob", "Resources", "ShardJob", "commands_after"]

RESTARTS = 5  # of a shard in one job, whose process was killed while the job itself goes on
_SECONDS_BETWEEN_LOOKS = 0.05
# A cluster may send the signal before a preemption or the time limit to all processes of a job. The job answers it by a
# signal to the command, which keeps a checkpoint then. With -P, no module of the current directory hides a package.
_COMMAND = (
    "-P",
    "-c",
    "import signal, sys; signal.signal(signal.SIGUSR2, signal.SIG_IGN); "
    "from jaxrl.cli.console import main; sys.exit(main())",
)


class Resources(NamedTuple):
    """Resources of jobs, and limits of a job array.

    Attributes:
      time: Time limit of each job, in minutes.
      grace: Time between the signal and the time limit, in seconds.
      requeues: Number of times that a job may reach its time limit.
      partition, account, mem: Options of SLURM; None for its defaults.
      gpus: Number of GPUs of each shard.
      cpus: Number of CPU cores of each shard; None for SLURM's default.
      at_once: Number of shards that run at the same time.
    """

    time: int
    grace: int
    requeues: int
    partition: str | None
    account: str | None
    mem: str | None
    gpus: int
    cpus: int | None
    at_once: int


@dataclass
class ShardJob:
    """A job that trains a shard, and that is requeued after a preemption or its time limit.

    The command is repeated by every start of the job. It has `--resume`, so that it continues from the last checkpoint.

    Args:
      words: Words of the command, without `jaxrl`.
      grace: Time between the signal and the end of the job, in seconds.
    """

    words: Sequence[str]
    grace: float
    _process: Any = field(default=None, init=False, repr=False)

    def __call__(self) -> None:
        """Train until the end.

        Raises:
          RuntimeError: The command failed, or was killed several times.
        """
        for attempts_left in reversed(range(RESTARTS)):
            print(f"$ jaxrl {shlex.join(self.words)}", flush=True)
            self._process = subprocess.Popen([sys.executable, *_COMMAND, *self.words])
            try:
                status = self._process.wait()
            except BaseException:  # an interrupt, or the exit after `checkpoint`
                self._stop()
                self._process.wait()
                raise
            if status == 0:
                return
            # Below 0 and above 128 it is the number of a signal.
            if 0 < status <= 128 or status == 128 + signal.SIGINT or not attempts_left:
                raise RuntimeError(f"jaxrl {shlex.join(self.words)} ended with exit status {status}")
            print(f"The command was stopped (exit status {status}), and is resumed.", flush=True)

    def checkpoint(self) -> Any:
        """The submission with which submitit requeues the job, once the command has written a checkpoint."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        return DelayedSubmission(dataclasses.replace(self))

    def _stop(self) -> None:
        """End the command by the signal at which it keeps a checkpoint, or kill it where that takes too long.

        A signal handler may call this during a wait for the command, which holds its lock, so this only polls it.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            command = psutil.Process(process.pid)
            command.send_signal(signal.SIGUSR1)
            until = time.monotonic() + 0.75 * self.grace
            while command.status() != psutil.STATUS_ZOMBIE:
                if time.monotonic() > until:
                    command.kill()
                time.sleep(_SECONDS_BETWEEN_LOOKS)


@dataclass(frozen=True)
class MergeJob:
    """A job that merges shards and writes a report.

    A directory may hold an earlier run in place of its shard, whose job failed: it is left out, with a warning.

    Args:
      shards: Directories of the shards; those that were never begun are left out.
      identities: Identities of the shards.
      out: Directory of the merged result; a result in it is replaced.
      report: Page to write.
    """

    shards: Sequence[str]
    identities: Sequence[Mapping[str, Any]]
    out: str
    report: str

    def __call__(self) -> None:
        """Run both commands, whose output is that of the job.

        Raises:
          RuntimeError: No shard of this command was begun, or a command failed.
          ResultError: The `run.json` of a shard is damaged.
        """
        begun = [shard for shard, identity in zip(self.shards, self.identities, strict=True) if _holds(shard, identity)]
        if not begun:
            raise RuntimeError(f"no shard of {self.out} was begun, and nothing is merged")
        for words in commands_after(begun, self.out, self.report):
            status = subprocess.run([sys.executable, *_COMMAND, *words], check=False).returncode
            if status:
                raise RuntimeError(f"jaxrl {shlex.join(words)} ended with exit status {status}")


def _holds(directory: str, identity: Mapping[str, Any]) -> bool:
    """Whether a directory holds the shard of an identity; a warning names another run in it."""
    from jaxrl.runtime.checkpoints.identity import call_difference
    from jaxrl.runtime.checkpoints.identity_file import IDENTITY, read_identity

    if not (Path(directory) / IDENTITY).is_file():
        return False
    differing = call_difference(read_identity(Path(directory)), identity, ("block",))
    if differing is None:
        return True
    print(
        f"jaxrl: warning: shard {identity['shard']} is left out: {directory} holds a run of another configuration: "
        f"{differing}",
        flush=True,
    )
    return False


def commands_after(shards: Sequence[str], out: str, report: str) -> list[list[str]]:
    """Words of the commands that follow the shards.

    Args:
      shards: Directories of the shards.
      out: Directory of the merged result.
      report: Page to write.
    """
    return [["merge", *shards, "--out", out, "--force"], ["report", out, "--out", report]]
