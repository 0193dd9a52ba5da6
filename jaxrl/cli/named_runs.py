"""Run directories of a command line, which may have names: NAME=RUN."""

from collections.abc import Sequence
from pathlib import Path

from jaxrl.cli.parsing import CommandError

__all__ = ["named_runs", "named_sources"]


def named_sources(words: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Run directories, by name if some have one; an existing directory with `=` in its name is one without."""
    pairs = [_pair(word) for word in words]
    if not any(name for name, _ in pairs):
        return list(words)
    named: dict[str, list[str]] = {}
    taken = {name: run for name, run in pairs if name}
    for name, run in pairs:
        own = name or Path(run).resolve().name
        if not name and own in taken:
            raise CommandError(f"RUN takes a name for {run}, since {own} is that of {taken[own]}: NAME={run}")
        taken.setdefault(own, run)
        named.setdefault(own, []).append(run)
    return named


def named_runs(words: Sequence[str]) -> list[str] | dict[str, str]:
    """As `named_sources`, with one run directory for each name."""
    sources = named_sources(words)
    if isinstance(sources, list):
        return sources
    for name, runs in sources.items():
        if len(runs) > 1:
            raise CommandError(
                f"RUN takes one directory for each name without --to, and {name} is the name of {' and '.join(runs)}; "
                f"give them names, such as first={runs[0]}"
            )
    return {name: run for name, (run,) in sources.items()}


def _pair(word: str) -> tuple[str, str]:
    """The name, empty for none, and the directory of a word; a path may have `=` in it."""
    name, equals, run = word.partition("=")
    if not equals or "/" in name or Path(word).is_dir():
        return "", word
    if not run:
        raise CommandError(f"RUN takes a directory behind its name, such as {name or 'mine'}=runs/mine, got {word}")
    return name, run
