"""`jaxrl experiment`, whose options are the fields of an experiment's settings."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from envs.spelling import near_or_all
from jaxrl.cli.parsing import CommandError, parse
from jaxrl.experiments import EXPERIMENTS, Experiment, run_experiment
from jaxrl.experiments.study import default_directory

USAGE = """usage: jaxrl experiment NAME [--out DIRECTORY] [OPTIONS]

{experiments}

`jaxrl experiment NAME --help` lists the settings. Parts that are finished in the directory are skipped."""


def run_experiment_command(args: Sequence[str]) -> int:
    """Lists the experiments, or runs one.

    Args:
      args: Arguments after `jaxrl experiment`: none, or a name and options.

    Returns:
      Exit status.
    """
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0
    name = args[0]
    if name.startswith("-"):
        raise CommandError("experiment takes a name first, such as: jaxrl experiment " + next(iter(EXPERIMENTS)))
    if name not in EXPERIMENTS:
        raise CommandError(f"there is no experiment {name!r}{near_or_all(name, EXPERIMENTS)}")
    options = parse_options(EXPERIMENTS[name], args[1:])
    study = run_experiment(
        EXPERIMENTS[name], options.settings, options.out, force=options.force, progress=not options.no_progress
    )
    print(f"Wrote {study.directory}.")
    return 0


def usage() -> str:
    """Usage with one line for each experiment."""
    width = max(map(len, EXPERIMENTS), default=0)
    lines = [f"  {name:{width}}  {experiment.summary}" for name, experiment in EXPERIMENTS.items()]
    return USAGE.format(experiments="\n".join(lines))


def parse_options(experiment: Experiment, args: Sequence[str]) -> Any:
    """Options of `jaxrl experiment NAME`: out, force, no_progress, settings."""

    def option(name: str, kind: Any, default: Any, text: str) -> tuple[str, Any, Any]:
        return name, Annotated[kind, tyro.conf.arg(help=text)], dataclasses.field(default=default)

    settings = Annotated[experiment.settings, tyro.conf.arg(name=""), tyro.conf.FlagCreatePairsOff]
    fields = [
        option("out", Path, default_directory(experiment), "Directory for the parts, tables and figures."),
        option("force", tyro.conf.FlagCreatePairsOff[bool], False, "Flag to repeat finished parts."),
        option("no_progress", tyro.conf.FlagCreatePairsOff[bool], False, "Flag to hide progress."),
        ("settings", settings, dataclasses.field(default=experiment.settings())),
    ]
    options = dataclasses.make_dataclass("Options", fields, frozen=True)
    return parse(options, args, f"jaxrl experiment {experiment.name}", experiment.summary)
