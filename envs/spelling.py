"""The words closest to a mistyped one."""

import difflib
from collections.abc import Iterable


def near(word: str, words: Iterable[str], prefix: str = "") -> str:
    """A clause that lists the words closest to a mistyped one, each after a prefix, empty if there are none."""
    by_lower_case = {candidate.lower(): candidate for candidate in words}
    found = difflib.get_close_matches(word.lower(), by_lower_case, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(prefix + by_lower_case[match]) for match in found)}?" if found else ""


def near_or_all(word: str, words: Iterable[str], has: str = "it takes") -> str:
    """The clause of `near`, or one that lists all of the words where none is close."""
    words = list(words)
    return near(word, words) or f"; {has} {', '.join(words)}."
