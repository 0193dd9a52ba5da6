"""`jaxrl merge` and `jaxrl resume`."""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxrl.cli.dataclass_options import WholeNumber, option, xla_flags_option
from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import Allow, CommandError, RunDirectory, Trust, option_words, parse, without_options
from jaxrl.results.file_names import SEARCH
from jaxrl.runtime.options import ResumeOptions


@dataclass(frozen=True)
class Merge:
    """Merge the shards of a run, and report missing ones."""

    shards: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SHARD [SHARD ...]")]
    """Directories written by `jaxrl train --shard I/N --out OUT`: OUT-0 OUT-1 ..."""
    out: Path
    """Directory for the merged result."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Flag to overwrite an existing result."""
    trust: Trust = False

    def run_command(self) -> int:
        """Print the table of the merged result and its path."""
        from jaxrl.runtime.merging import merge

        # runs/x-* includes a directory runs/x-whole of an earlier merge
        result = merge([path for path in self.shards if path != self.out], self.out, force=self.force, trust=self.trust)
        print(result.table())
        print(f"Wrote {self.out} (next: jaxrl plot {self.out})")
        return 0


@functools.cache
def resume_options() -> type:
    """Options of `jaxrl resume`, as a dataclass."""
    env_steps = "Total number of environment steps of each run, to extend a run; the original number if None."
    fields = [
        ("run", RunDirectory),
        option("env_steps", WholeNumber | None, None, env_steps),
        ("allow", Allow, dataclasses.field(default=())),
        *run_flags(
            ResumeOptions,
            texts={"memory": "Memory limit, such as 8GiB; the limit of the original command if None."},
            after={"memory": [xla_flags_option()]},
        ),
    ]
    made = dataclasses.make_dataclass("Resume", fields, frozen=True)
    made.__doc__ = "Resume a run or a search that was stopped or killed, or extend a finished run."
    return made


def run_resume(args: Sequence[str], begun: Mapping[Path, dict[str, Any]]) -> int:
    """Resume a run or a search and print its table; return the exit status of `jaxrl train` or `jaxrl search`.

    Args:
      args: Arguments that follow `jaxrl resume`.
      begun: Contents of `run.json` in the run directories among them.
    """
    from envs.settings import own_settings
    from jaxrl.cli.trackers import trackers_again
    from jaxrl.runtime.resuming import resume, resume_begun

    parsed: Any = parse(resume_options(), args, "jaxrl resume")
    if parsed.run not in begun and (parsed.run / SEARCH).is_file():
        return _resume_search(parsed, args)
    options: dict[str, Any] = run_options(ResumeOptions, parsed, "env_steps", "allow")
    options["trackers"] = trackers_again(parsed.run)
    identity = begun.get(parsed.run)
    with own_settings():
        result = resume(parsed.run, **options) if identity is None else resume_begun(parsed.run, identity, **options)
    print(result.table())
    attrs = result.metrics.attrs
    if attrs["interrupted"]:
        steps = result.metrics["env_step"].values[-1]
        print(f"Stopped at {steps:,} environment steps; the same command resumes the run.")
    if result.unsaved:
        return 2
    print(f"Wrote {parsed.run} (next: jaxrl plot {parsed.run})")
    return 128 + attrs["stopped_by_signal"] if attrs["interrupted"] else 0


def _resume_search(parsed: Any, args: Sequence[str]) -> int:
    """Repeat the command that began a search, with the options of the machine in the arguments of `jaxrl resume`.

    Raises:
      CommandError: The search has no command, or an argument does not apply to a search.
      NotAllowedError: The command names a module that is not allowed; nothing is imported.
    """
    from jaxrl.algorithms.allowed_modules import FUNCTION, FUNCTIONS, check_allowed
    from jaxrl.algorithms.registry import ROWS
    from jaxrl.cli.preset_choice import drawing_function
    from jaxrl.cli.search import OF_THE_MACHINE, run_search
    from jaxrl.tuning.result import read_command

    for name in ("env_steps", "schedules"):
        if option_words(args, name) is not None:
            raise CommandError(f"--{name.replace('_', '-')} has no effect on a search, which {parsed.run} holds")
    words = read_command(parsed.run)
    if not words:
        raise CommandError(
            f"{parsed.run} holds a search that began in Python or with --storage: the same call of jaxrl.search, or "
            "the same command, resumes it"
        )
    path = drawing_function(option_words(words, "randomise"))
    static = {} if path is None else {"parameters": {FUNCTION: path}}
    spec = {"algorithm": words[0], "environment": {"name": words[1], "static": static}}
    for config in [{}, *({field: name} for field in FUNCTIONS for name in _paths(words, field))]:
        check_allowed(spec | {"config": config}, set(ROWS), parsed.allow)
    options = ["--devices", *parsed.devices] if parsed.devices else []
    options += ["--memory", str(parsed.memory)] if parsed.memory is not None else []
    options += ["--no-progress"] if parsed.no_progress else []
    # Of a directory from elsewhere, no option that names another place is taken.
    kept = without_options(words, (*OF_THE_MACHINE, "storage"))
    return run_search([*kept, *options, "--out", str(parsed.run)])


def _paths(words: Sequence[str], field: str) -> list[str]:
    """Paths of functions for a field of the configuration in the options of a command, of its search space too."""
    names, option = [], ""
    for word in words:
        if word.startswith("--"):
            option, _, word = word.partition("=")
        if option.replace("-", "_").endswith(f".{field}") or word.replace("-", "_").startswith(f"config.{field}="):
            names += re.findall(r"[\w.]+:\w+", word)
    return names
