"""`jaxrl merge`, `jaxrl resume`, and which shard of a run a process of an allocation is to do."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxrl.cli.fields import WholeNumber, option, xla_flags_option
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import CommandError, parse
from jaxrl.runtime.options import ResumeOptions

__all__ = ["Merge", "resume_options", "run_resume", "shard_and_directory", "shard_of_allocation"]


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


@functools.cache
def resume_options() -> type:
    """The options of `jaxrl resume`, as a dataclass."""
    run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Directory that `--out` named.")]
    env_steps = "Environment steps of each run in all, to make it longer; as begun where there is none."
    allow = "Modules of your own that may be imported where the run names them, such as my_algorithms."
    fields = [
        ("run", run),
        option("env_steps", WholeNumber | None, None, env_steps),
        option("allow", tuple[str, ...], (), allow),
        *run_flags(
            ResumeOptions,
            texts={
                "memory": "Memory to keep to, such as 8GiB; as begun where there is none.",
                "schedules": "What is annealed over the whole run where --env-steps makes it longer: keep or stretch.",
            },
            after={"memory": [xla_flags_option()]},
        ),
    ]
    made = dataclasses.make_dataclass("Resume", fields, frozen=True)
    made.__doc__ = "Resume a run that was stopped or killed, or make one longer."
    return made


def run_resume(args: Sequence[str]) -> int:
    """Print the table of the result; the exit status is that of `jaxrl train`.

    Args:
      args: Arguments that follow `jaxrl resume`.
    """
    from jaxrl.cli.trackers import trackers_again
    from jaxrl.runtime.resuming import resume

    parsed: Any = parse(resume_options(), args, "jaxrl resume")
    options: dict[str, Any] = run_options(ResumeOptions, parsed)
    options["trackers"] = trackers_again(parsed.run)
    result = resume(parsed.run, env_steps=parsed.env_steps, allow=parsed.allow, **options)
    print(result.table())
    attrs = result.metrics.attrs
    if attrs["interrupted"]:
        steps = result.metrics["env_step"].values[-1]
        print(f"Stopped at {steps:,} environment steps; the same command resumes the run.")
    if result.unsaved:
        return 2
    print(f"Wrote {parsed.run} (next: jaxrl plot {parsed.run})")
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
