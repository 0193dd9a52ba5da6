"""Executors of `jaxrl submit`: a SLURM cluster, and processes of this machine, both by submitit."""

import contextlib
import io
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envs.errors import MissingPackageError, installing
from jaxrl.cli.jobs import MergeJob, Resources, ShardJob
from jaxrl.cli.parsing import CommandError

__all__ = ["run_locally", "submit_to_slurm"]

_SECONDS_BETWEEN_LOOKS = 0.2
_GPUS = "CUDA_VISIBLE_DEVICES"  # empty where no GPU is visible
_NVIDIA = "/dev/nvidiactl"  # of NVIDIA's driver
_LOG_LEVEL = "SUBMITIT_LOG_LEVEL"
_PYTHON = f"{shlex.quote(sys.executable)} -P"  # no module of the current directory hides a package


def submit_to_slurm(shards: Sequence[ShardJob], after: MergeJob, logs: Path, resources: Resources) -> int:
    """Submit a job array and a job that depends on it, and print their numbers.

    Args:
      shards: Jobs of the array.
      after: Job that follows, once all of them have ended, whether they succeeded or not.
      logs: Directory for scripts and logs, which all machines share.
      resources: Resources of the jobs.

    Returns:
      Exit status, 0.

    Raises:
      ImportError: submitit is not installed.
      CommandError: This machine has no SLURM, or SLURM refuses a job.
    """
    _import_submitit()
    from submitit import SlurmExecutor

    missing = [name for name in ("sbatch", "srun") if shutil.which(name) is None]
    if missing:
        raise CommandError(
            f"--executor slurm takes a machine of a SLURM cluster, but this one has no {' and no '.join(missing)}; "
            "--dry-run prints the jobs, and --executor local runs them here"
        )
    common: dict[str, Any] = {
        "time": resources.time,
        "partition": resources.partition,
        "account": resources.account,
        "mem": resources.mem,
    }
    common = {name: value for name, value in common.items() if value is not None}
    common |= {"stderr_to_stdout": True, "signal_delay_s": resources.grace, "additional_parameters": {"requeue": True}}
    of_shards = {"array_parallelism": resources.at_once}
    of_shards |= {"gpus_per_node": resources.gpus} if resources.gpus else {}
    of_shards |= {"cpus_per_task": resources.cpus} if resources.cpus else {}
    name = Path(after.out).name
    with _one_sentence(logs):
        executor = SlurmExecutor(logs, max_num_timeout=resources.requeues, python=_PYTHON)
        executor.update_parameters(**common, **of_shards, job_name=f"jaxrl-{name}")
        with executor.batch():
            jobs = [executor.submit(shard) for shard in shards]
        array = jobs[0].job_id.partition("_")[0]
    with _one_sentence(logs, f"the job array {array} is submitted, but not the job that merges: "):
        executor = SlurmExecutor(logs, max_num_timeout=resources.requeues, python=_PYTHON)
        executor.update_parameters(**common, job_name=f"jaxrl-merge-{name}", dependency=f"afterany:{array}")
        last = executor.submit(after).job_id
    print(f"Submitted the job array {array} of {len(shards)} shards, and job {last}, which merges them.")
    print(f"Logs in {logs}; the result will be in {after.out}, its page in {after.report}.")
    return 0


def run_locally(shards: Sequence[ShardJob], after: MergeJob, logs: Path, resources: Resources) -> int:
    """Run all jobs as processes of this machine, the one that merges last, and print the output of that job.

    Args:
      shards: Jobs that run at the same time.
      after: Job that follows.
      logs: Directory for logs.
      resources: Resources of the jobs.

    Returns:
      Exit status: 0, or 2 if a job failed.

    Raises:
      ImportError: submitit is not installed.
    """
    _import_submitit()
    from submitit import LocalExecutor

    waiting, running, failed = [*enumerate(shards)], {}, False
    with _one_sentence(logs):
        executor = LocalExecutor(logs, max_num_timeout=resources.requeues, python=_PYTHON)
        executor.update_parameters(
            timeout_min=resources.time,
            gpus_per_node=resources.gpus,
            signal_delay_s=resources.grace,
            stderr_to_stdout=True,
        )
    if (sentence := _on_gpus(resources.gpus)) is not None:
        print(sentence)
    print(
        f"Running {len(shards)} shards, at most {min(resources.at_once, len(shards))} at once; logs in {logs}.",
        flush=True,
    )
    while waiting or running:
        while waiting and len(running) < resources.at_once:
            number, shard = waiting.pop(0)
            running[number] = executor.submit(shard)
        for number, job in [*running.items()]:
            if job.done():
                failed |= _has_failed(job, f"shard {number}/{len(shards)}")
                del running[number]
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    last = executor.submit(after)
    last.wait()
    failed |= _has_failed(last, "the job that merges")
    lines = [line for line in (last.stdout() or "").splitlines() if not line.startswith("submitit ")]
    print("\n".join(lines))
    return 2 if failed else 0


def _on_gpus(gpus: int) -> str | None:
    """Sentence on the GPUs of local jobs, which submitit chooses; None on a machine without any.

    Args:
      gpus: Number of GPUs of each shard.
    """
    if gpus:
        which = "GPU 0" if gpus == 1 else f"the GPUs 0 to {gpus - 1}"
        return f"Every shard uses {which} (--at-once 1 runs one shard at a time)."
    visible = os.environ.get(_GPUS)
    if visible == "" or (visible is None and not Path(_NVIDIA).exists()):
        return None
    return "All shards run on the CPU: --executor local hides the GPUs of this machine without --gpus."


def _has_failed(job: Any, name: str) -> bool:
    """Whether an ended job failed, which is printed with its log."""
    if job.exception() is None:
        return False
    print(f"jaxrl: {name} failed; its log is {job.paths.stdout}", file=sys.stderr)
    return True


def _import_submitit() -> None:
    """Import submitit, which would otherwise replace the handlers of all loggers of this process by its own.

    Raises:
      ImportError: It is not installed; the message names the extra.
    """
    before = os.environ.get(_LOG_LEVEL)
    os.environ[_LOG_LEVEL] = "NOCONFIG"
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise MissingPackageError(f"jaxrl submit needs the extra `cluster`: {installing('cluster')}") from None
    finally:  # jobs write logs
        del os.environ[_LOG_LEVEL]
        if before is not None:
            os.environ[_LOG_LEVEL] = before


@contextlib.contextmanager
def _one_sentence(logs: Path, before: str = "") -> Iterator[None]:
    """Convert errors of a submission, and hide submitit's own messages about them.

    Args:
      logs: Directory of the logs.
      before: Beginning of the sentence on a refusal.

    Raises:
      CommandError: SLURM refused a job, or the directory of the logs cannot be written.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except (FailedJobError, FailedSubmissionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise CommandError(f"{before}SLURM refuses it: {reason or 'sbatch gave no reason'}") from error
    except OSError as error:
        raise CommandError(f"{error.filename or logs} cannot be written: {error.strerror or error}") from error
