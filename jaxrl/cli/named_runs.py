"""Run directories of a command line, which may have names: NAME=RUN."""

from collections.abc import Sequence
from pathlib import Path

from jaxrl.cli.parsing import CommandError

__all__ = ["named_runs", "named_sources"]


def named_sources(words: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Run directories, by name if some have one; an existing directory with `=` in its name is one without."""
    pairs = [("", word) if "=" not in word or Path(word).is_dir() else word.partition("=")[::2] for word in words]
    if not any(name for name, _ in pairs):
        return list(words)
    named: dict[str, list[str]] = {}
    for name, run in pairs:
        named.setdefault(name or Path(run).resolve().name, []).append(run)
    return named


def named_runs(words: Sequence[str]) -> list[str] | dict[str, str]:
    """As `named_sources`, with one run directory for each name."""
    sources = named_sources(words)
    if isinstance(sources, list):
        return sources
    for name, runs in sources.items():
        if len(runs) > 1:
            raise CommandError(f"RUN takes one directory for each name, and {name} names {' and '.join(runs)}")
    return {name: run for name, (run,) in sources.items()}
