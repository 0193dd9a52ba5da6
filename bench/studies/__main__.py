"""Run a study, or list them.

    python -m bench.studies                          lists the studies
    python -m bench.studies NAME --help              lists the settings of one
    python -m bench.studies NAME --out DIRECTORY     runs it, or what remains of it in the directory

The options are the fields of the study's settings. Bad input gives one sentence and exit status 2, as in `jaxrl`, whose
variables JAXRL_TRACEBACK and JAXRL_COMPILATION_CACHE apply.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from bench.studies import STUDIES, Study, run_study
from bench.studies.study import default_directory
from envs.spelling import near_or_all
from jaxrl.cli.exit_status import exit_status
from jaxrl.cli.parsing import CommandError, parse
from jaxrl.runtime.machine.compilation_cache import use_compilation_cache

PROG = "python -m bench.studies"
USAGE = """usage: {prog} NAME [--out DIRECTORY] [OPTIONS]

{studies}

`{prog} NAME --help` lists the settings. Parts that are finished in the directory are skipped."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
      argv: Arguments: none, or a name and options; those of the process if None.

    Returns:
      Exit status, as of `jaxrl`.
    """
    args = sys.argv[1:] if argv is None else argv
    return exit_status(lambda: _run(args), PROG)


def _run(args: Sequence[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0
    name = args[0]
    if name.startswith("-"):
        raise CommandError(f"the name of a study comes first, such as: {PROG} {next(iter(STUDIES))}")
    if name not in STUDIES:
        raise CommandError(f"there is no study {name!r}{near_or_all(name, STUDIES)}")
    options = parse_options(STUDIES[name], args[1:])
    if folder := os.environ.get("JAXRL_COMPILATION_CACHE"):
        use_compilation_cache(folder)
    done = run_study(
        STUDIES[name], options.settings, options.out, force=options.force, progress=not options.no_progress
    )
    print(f"Wrote {done.directory}.")
    return 0


def usage() -> str:
    """Usage with one line for each study."""
    width = max(map(len, STUDIES), default=0)
    lines = [f"  {name:{width}}  {study.summary}" for name, study in STUDIES.items()]
    return USAGE.format(prog=PROG, studies="\n".join(lines))


def parse_options(study: Study, args: Sequence[str]) -> Any:
    """Options after the name of a study: out, force, no_progress, settings."""

    def option(name: str, kind: Any, default: Any, text: str) -> tuple[str, Any, Any]:
        return name, Annotated[kind, tyro.conf.arg(help=text)], dataclasses.field(default=default)

    settings = Annotated[study.settings, tyro.conf.arg(name=""), tyro.conf.FlagCreatePairsOff]
    fields = [
        option("out", Path, default_directory(study), "Directory for the parts, tables and figures."),
        option("force", tyro.conf.FlagCreatePairsOff[bool], False, "Flag to repeat finished parts."),
        option("no_progress", tyro.conf.FlagCreatePairsOff[bool], False, "Flag to hide progress."),
        ("settings", settings, dataclasses.field(default=study.settings())),
    ]
    options = dataclasses.make_dataclass("Options", fields, frozen=True)
    return parse(options, args, f"{PROG} {study.name}", study.summary)


if __name__ == "__main__":
    sys.exit(main())
