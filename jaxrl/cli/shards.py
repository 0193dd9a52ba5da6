"""The shard of a run that a process of an allocation trains: `--shard I/N`, `--shard auto` and `--shard auto/N`."""

import os
import re
from collections.abc import Mapping

from jaxrl.cli.parsing import CommandError

__all__ = ["shard_and_directory", "shard_of_allocation"]

_KINDS = "SLURM array, SLURM tasks, SkyPilot jobs, TPU pod or Kubernetes job"


def shard_and_directory(shard: str | None, out: str | None) -> tuple[str | None, str | None]:
    """Shard that --shard names, and its directory, derived from --out.

    Raises:
      CommandError: There is no --out, or no allocation for `auto`.
    """
    if shard is None:
        return None, out
    if out is None:
        raise CommandError("--shard takes --out as well: its result is written there, for jaxrl merge")
    if shard == "auto" or shard.startswith("auto/"):
        number = shard.removeprefix("auto").removeprefix("/")
        if shard != "auto" and (re.fullmatch(r"[0-9]+", number) is None or not int(number)):
            raise CommandError(f"--shard takes I/N, auto, or auto/N with the number N of shards, got {shard}")
        shard = shard_of_allocation(os.environ, int(number) if number else None)
    return shard, f"{out}-{shard.partition('/')[0]}"


def shard_of_allocation(environment: Mapping[str, str], count: int | None = None) -> str:
    """Shard of this process, from the variables of a SLURM array, SLURM tasks, SkyPilot, a TPU pod or Kubernetes.

    Args:
      environment: Environment variables.
      count: Number of shards; that of the allocation if None. Kubernetes has no variable for it.

    Raises:
      CommandError: None of the variables is set, they are inconsistent, or the allocation has not `count` processes.
    """
    try:
        index, processes = _index_and_number(environment)
    except (KeyError, ValueError) as error:
        if isinstance(error, CommandError):
            raise
        raise CommandError(f"--shard auto cannot read the allocation's variables: {error}") from None
    if processes is None and count is None:
        raise CommandError(
            "--shard auto finds an index in JOB_COMPLETION_INDEX of Kubernetes, but no number of completions: add it, "
            "such as --shard auto/16"
        )
    if processes is not None and count is not None and processes != count:
        raise CommandError(f"--shard auto/{count} takes an allocation of {count} processes, but this has {processes}")
    number = processes if count is None else count
    assert number is not None
    if not 0 <= index < number:
        raise CommandError(f"--shard auto takes indices from 0 to {number - 1} in this allocation, but got {index}")
    return f"{index}/{number}"


def _index_and_number(environment: Mapping[str, str]) -> tuple[int, int | None]:
    """Index of this process and number of processes, None if no variable holds it.

    Raises:
      CommandError: None of the variables is set, or the array is not evenly spaced.
      KeyError, ValueError: A variable is missing or is not a number.
    """
    if "SLURM_ARRAY_TASK_ID" in environment:
        first, step = int(environment["SLURM_ARRAY_TASK_MIN"]), int(environment.get("SLURM_ARRAY_TASK_STEP", "1"))
        index, left_over = divmod(int(environment["SLURM_ARRAY_TASK_ID"]) - first, step)
        count = int(environment["SLURM_ARRAY_TASK_COUNT"])
        if left_over or not 0 <= index < count:
            raise CommandError("--shard auto takes a SLURM array of evenly spaced tasks, such as --array=0-15")
        return index, count
    if "SKYPILOT_JOB_RANK" in environment:
        return int(environment["SKYPILOT_JOB_RANK"]), int(environment["SKYPILOT_NUM_JOBS"])
    if int(environment.get("SLURM_NTASKS", "1")) > 1:
        return int(environment["SLURM_PROCID"]), int(environment["SLURM_NTASKS"])
    if "TPU_WORKER_ID" in environment:
        hosts = [host for host in environment["TPU_WORKER_HOSTNAMES"].split(",") if host]
        return int(environment["TPU_WORKER_ID"]), len(hosts)
    if "JOB_COMPLETION_INDEX" in environment:
        return int(environment["JOB_COMPLETION_INDEX"]), None
    raise CommandError(f"--shard auto finds no {_KINDS} in the environment: name the shard, such as 0/4")
