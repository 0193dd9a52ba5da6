"""`jaxrl merge`, `jaxrl resume`, and which shard of a run a process of an allocation is to do."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.cli.fields import WholeNumber
from jaxrl.cli.parsing import CommandError
from jaxrl.runtime.options import CHECKPOINT_MINUTES

__all__ = ["Merge", "Resume", "shard_and_directory", "shard_of_allocation"]


@dataclass(frozen=True)
class Merge:
    """Assemble the shards of a run, and say what is missing."""

    shards: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SHARD [SHARD ...]")]
    """Directories that `jaxrl train --shard I/N --out OUT` wrote: OUT-0 OUT-1 ..."""
    out: Path
    """Directory to write the whole result to."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Overwrite a result that is there already."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums."""

    def run_command(self) -> int:
        """Print the table of the whole and say where it is."""
        from jaxrl.runtime.merging import merge

        # runs/x-* takes in a directory runs/x-whole that a merge before wrote
        result = merge([path for path in self.shards if path != self.out], self.out, force=self.force, trust=self.trust)
        print(result.table())
        print(f"Wrote {self.out} (next: jaxrl plot {self.out})")
        return 0


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped or killed, or make one longer."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory that `jaxrl train --out` began to write."""
    env_steps: WholeNumber | None = None
    """Environment steps of each run in all, to make it longer; as begun where there is none."""
    allow: tuple[str, ...] = ()
    """Modules of your own that may be imported where the run names them, such as my_algorithms."""
    devices: tuple[str, ...] = ()
    """Devices to use, such as gpu:0 gpu:1; all where there are none."""
    memory: str | None = None
    """Memory to keep to, such as 8GiB; as begun where there is none."""
    xla_flags: tuple[str, ...] = ()
    """Flags for XLA beside those of XLA_FLAGS in the environment: those that the run was begun with, to go on alike."""
    checkpoint_minutes: float = CHECKPOINT_MINUTES
    """Between two checkpoints, beside those at a signal and at the end; 0 for none."""
    schedules: str = "keep"
    """What is annealed over the whole run where --env-steps makes it longer: keep its end, or stretch."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums, which are damaged or were changed."""
    no_progress: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show no progress."""

    def run_command(self) -> int:
        """Print the table of the result; the exit status is that of `jaxrl train`."""
        from jaxrl.cli.trackers import trackers_again
        from jaxrl.runtime.resuming import resume

        result = resume(
            self.run,
            env_steps=self.env_steps,
            allow=self.allow,
            devices=self.devices or None,
            memory=self.memory,
            trackers=trackers_again(self.run),
            checkpoint_minutes=self.checkpoint_minutes or None,
            progress=not self.no_progress,
            schedules=self.schedules,
            trust=self.trust,
        )
        print(result.table())
        attrs = result.metrics.attrs
        if attrs["interrupted"]:
            print(f"Stopped at {result.metrics['env_step'].values[-1]:,} environment steps; the same command goes on.")
        if result.unsaved:
            return 2
        print(f"Wrote {self.run} (next: jaxrl plot {self.run})")
        return 128 + attrs["stopped_by_signal"] if attrs["interrupted"] else 0


def shard_and_directory(shard: str | None, out: str | None) -> tuple[str | None, str | None]:
    """The shard that --shard names, and the directory of its own beside --out.

    Raises:
      CommandError: there is no --out, or no allocation that `auto` could read.
    """
    if shard is None:
        return None, out
    if out is None:
        raise CommandError("--shard takes --out as well: what it trains is written there, for jaxrl merge")
    shard = shard_of_allocation(os.environ) if shard == "auto" else shard
    return shard, f"{out}-{shard.partition('/')[0]}"


def shard_of_allocation(environment: Mapping[str, str]) -> str:
    """Which shard this process is, by the variables of a SLURM array, SLURM tasks or a TPU pod.

    Args:
      environment: its environment variables.

    Raises:
      CommandError: none of them is set, or they make no sense.
    """
    try:
        if "SLURM_ARRAY_TASK_ID" in environment:
            first, step = int(environment["SLURM_ARRAY_TASK_MIN"]), int(environment.get("SLURM_ARRAY_TASK_STEP", "1"))
            index, left_over = divmod(int(environment["SLURM_ARRAY_TASK_ID"]) - first, step)
            count = int(environment["SLURM_ARRAY_TASK_COUNT"])
            if left_over or not 0 <= index < count:
                raise CommandError("--shard auto takes a SLURM array of evenly spaced tasks, such as --array=0-15")
            return f"{index}/{count}"
        if int(environment.get("SLURM_NTASKS", "1")) > 1:
            return f"{int(environment['SLURM_PROCID'])}/{int(environment['SLURM_NTASKS'])}"
        if "TPU_WORKER_ID" in environment:
            hosts = [host for host in environment["TPU_WORKER_HOSTNAMES"].split(",") if host]
            return f"{int(environment['TPU_WORKER_ID'])}/{len(hosts)}"
    except (KeyError, ValueError) as error:
        if isinstance(error, CommandError):
            raise
        raise CommandError(f"--shard auto cannot read the allocation's variables: {error}") from None
    raise CommandError(
        "--shard auto finds no SLURM array, SLURM tasks or TPU pod in the environment: name the shard, such as 0/4"
    )
