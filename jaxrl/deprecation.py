"""Deprecation: an old name or argument works in two more releases, with a warning that names its replacement."""

import re
import sys
import warnings

from envs.errors import UserValueError

RELEASES = 2  # minor ones in which an old name works: that which deprecates it, and the next

__all__ = ["DeprecatedWarning", "removal", "warn_deprecated"]


class DeprecatedWarning(FutureWarning):
    """Warning of a call that uses a name or an argument of jaxrl that a later release removes.

    Python shows it by default, also where the call is in an imported module. `warnings.simplefilter("error",
    jaxrl.deprecation.DeprecatedWarning)` makes it an error.
    """


def removal(since: str) -> str:
    """Release that removes a name deprecated by another release, such as `"0.4"` for `"0.2"`.

    Args:
      since: Release, its major and its minor number with a dot between them.

    Raises:
      ValueError: The release is not two numbers.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)", since)
    if numbers is None:
        raise UserValueError(f"since takes a release such as '0.2', got {since!r}")
    return f"{numbers[1]}.{int(numbers[2]) + RELEASES}"


def warn_deprecated(old: str, new: str, *, since: str) -> None:
    """Warn that an old name or argument is deprecated, at the first line outside jaxrl and envs that led here.

    Args:
      old: Name or argument as a user writes it, such as `"train(start=...)"`.
      new: Name or argument that replaces it.
      since: Release that deprecates it, its major and its minor number.

    Raises:
      ValueError: The release is not two numbers.
    """
    message = f"{old} is deprecated since jaxrl {since} and is removed in {removal(since)}; use {new}."
    level, frame = 2, sys._getframe(1)
    # Decorators of the standard library are between functions of jaxrl, and between them and their callers.
    inside = ("jaxrl", "envs", "contextlib", "functools")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecatedWarning, stacklevel=level)
