"""`jaxrl submit`: the shards of a `jaxrl train` call in a job array, and a job that merges and reports them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tyro

from jaxrl.cli.jobs import MergeJob, Resources, ShardJob, commands_after
from jaxrl.cli.parsing import CommandError, option_words, without_options

if TYPE_CHECKING:  # `train` imports JAX and all algorithms
    from jaxrl.cli.train import Asked

__all__ = ["Submit"]

Flag = tyro.conf.FlagCreatePairsOff[bool]
_TAKEN = ("shard", "resume", "distributed", "coordinator", "shard_environments", "force")  # of the command


class _Jobs(NamedTuple):
    """Jobs to submit, and the files of their result."""

    shards: list[ShardJob]
    after: MergeJob


@dataclass(frozen=True)
class Submit:
    """Train the shards of a run in a job array; a dependent job merges them and writes a report."""

    command: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar='"train ALGORITHM ENVIRONMENT ..."')]
    """Command in quotes, as after `jaxrl`, without --shard and --resume."""
    shards: int
    """Number of shards, each a job."""
    out: Path | None = None
    """Directory of the merged result, if the command has no --out; that of shard I is OUT-I."""
    executor: Literal["slurm", "local"] = "slurm"
    """Executor of the jobs: slurm, or local to rehearse with processes of this machine, at most --at-once at a
    time."""
    time: int = 60
    """Time limit of each job, in minutes; a shard that reaches it is requeued and resumes."""
    grace: int = 120
    """Time before the limit at which a shard writes its checkpoint, in seconds."""
    requeues: int = 100
    """Number of times that a shard may reach its time limit."""
    partition: str | None = None
    """Partition of SLURM."""
    account: str | None = None
    """Account of SLURM."""
    gpus: int = 0
    """Number of GPUs of each shard; with --executor local, all shards share them, and 0 hides all GPUs."""
    cpus: int | None = None
    """Number of CPU cores of each shard; the default of the partition if None."""
    mem: str | None = None
    """Memory of each job, such as 16GB; the default of the partition if None."""
    at_once: int | None = None
    """Number of shards that run at the same time; all if None."""
    report: Path | None = None
    """Page with the results; OUT.html if None."""
    logs: Path | None = None
    """Directory for scripts and logs of the jobs; OUT.jobs if None."""
    dry_run: Flag = False
    """Flag to print the jobs and submit none."""
    force: Flag = False
    """Flag to replace a result in OUT, which the shards do not touch."""

    def run_command(self) -> int:
        """Submit the jobs and print their numbers; with `local`, wait for them and print the merged result."""
        from jaxrl.results.storage import finished

        self._check_numbers()
        words, asked, out = self._checked_command()
        shards = [
            ShardJob([*words, "--shard", f"{i}/{self.shards}", "--resume", "--out", out], self.grace)
            for i in range(self.shards)
        ]
        directories = [f"{out}-{i}" for i in range(self.shards)]
        identities = _checked_identities(asked, directories)
        if finished(Path(out)) and not self.force:
            raise CommandError(f"{out} holds a result: choose another --out, or add --force to replace it")
        jobs = _Jobs(shards, MergeJob(directories, identities, out, str(self.report or f"{out}.html")))
        logs = self.logs or Path(f"{out}.jobs")
        if self.dry_run:
            print(self._shown(jobs, logs))
            return 0
        from jaxrl.cli.executors import run_locally, submit_to_slurm

        values: dict[str, Any] = {name: getattr(self, name) for name in Resources._fields}
        values["at_once"] = self.at_once or self.shards
        resources = Resources(**values)
        run = run_locally if self.executor == "local" else submit_to_slurm
        return run(jobs.shards, jobs.after, logs, resources)

    def _check_numbers(self) -> None:
        """Raise an error if a number of an option is out of range.

        Raises:
          CommandError: There is such an option.
        """
        least = {"shards": 2, "time": 1, "grace": 1, "requeues": 0, "gpus": 0, "cpus": 1, "at_once": 1}
        for name, smallest in least.items():
            number = getattr(self, name)
            if number is not None and number < smallest:
                raise CommandError(f"--{name.replace('_', '-')} must be at least {smallest}, got {number}")
        if self.grace >= 60 * self.time:
            raise CommandError(f"--grace must be less than --time, {60 * self.time} seconds, got {self.grace}")

    def _checked_command(self) -> tuple[list[str], "Asked", str]:
        """Words of the command without --out, its parsed arguments, and the directory of the merged result.

        Raises:
          CommandError: The command is not one of `jaxrl train`, or has an option that its shards cannot take.
          ValueError: `jaxrl train` refuses it.
        """
        from jaxrl.checks import check_count
        from jaxrl.cli.train import asked
        from jaxrl.sweeps.batching import seed_list

        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise CommandError(f"the command in quotes cannot be split into words: {error}") from None
        words = words[1:] if words[:1] == ["jaxrl"] else words
        if words[:1] != ["train"]:
            raise CommandError(
                f'submit takes a command of jaxrl train in quotes, such as "train ppo cartpole", got "{self.command}"'
            )
        for name in _TAKEN:
            if option_words(words, name) is not None:
                raise CommandError(f"--{name.replace('_', '-')} does not go with submit: leave it out of the command")
        algo, sweep, options = parsed = asked(words[1:], "train")
        if (self.out is None) == (options.out is None):
            number = "none" if self.out is None else "both"
            raise CommandError(f"submit takes one --out, in the command or after it, but got {number}")
        out = str(self.out or options.out)
        out = f"./{out}" if out.startswith("-") else out  # which would be taken for an option
        seeds = options.seeds if isinstance(options.seeds, int) else len(seed_list(options.seeds, "seeds"))
        check_count("seeds", seeds)
        runs = seeds * (1 if sweep is None else len(sweep))
        if self.shards > runs:
            raise CommandError(f"--shards must be at most the number of runs of {algo.name}, {runs}, got {self.shards}")
        if option_words(words, "no_progress") is None:
            words.append("--no-progress")  # for logs
        return without_options(words, ["out"]), parsed, out

    def _shown(self, jobs: _Jobs, logs: Path) -> str:
        """Text on all jobs."""
        of_each = {"GPUs": self.gpus or None, "cores": self.cpus, "memory": self.mem, "partition": self.partition}
        shown = ", ".join(f"{name} {value}" for name, value in of_each.items() if value is not None)
        each = f"{self.time} min each, requeued at most {self.requeues} times" + (f"; {shown}" if shown else "")
        lines = [f"{len(jobs.shards)} jobs ({self.executor}), {each}:"]
        lines += [f"  jaxrl {shlex.join(job.words)}" for job in jobs.shards]
        lines += ["1 job when all of them have ended:"]
        lines += [
            f"  jaxrl {shlex.join(words)}"
            for words in commands_after(jobs.after.shards, jobs.after.out, jobs.after.report)
        ]
        return "\n".join([*lines, f"Logs in {logs}. Nothing was submitted."])


def _checked_identities(asked: "Asked", directories: Sequence[str]) -> list[dict[str, Any]]:
    """Identities of the shards, after the checks that `jaxrl train` makes before it compiles.

    Args:
      asked: Arguments of the command.
      directories: Directories of the shards.

    Raises:
      CommandError: A directory holds a run that its shard cannot resume.
      ValueError, ImportError: `jaxrl train` refuses an argument.
    """
    from jaxrl.cli.train import arguments_of
    from jaxrl.runtime.shard_identities import shard_identities

    algo, sweep, options = asked
    shards = shard_identities(algo, sweep, directories, **arguments_of(options, None, directories[0]))
    for directory, shard in zip(directories, shards, strict=True):
        if shard.obstacle is not None:
            raise CommandError(
                f"{directory} holds {shard.obstacle}; choose another --out, or remove the directories {directories[0]} "
                f"to {directories[-1]}"
            )
    return [shard.identity for shard in shards]
