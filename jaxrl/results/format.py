"""Numbers and values as text for sentences, labels and pages."""

import numpy as np


def counted(count: int, what: str) -> str:
    """A number with its noun: `1 seed`, `2,000 seeds`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def duration(seconds: float) -> str:
    """A time to two or three digits: `1.5 s`, `95 s`, `12 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def reason(error: BaseException) -> str:
    """The first line of an error's message, of at most 300 characters; its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")


def short(value: object) -> str:
    """A coordinate in a label, floats to six digits."""
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
