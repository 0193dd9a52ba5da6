"""Deprecation: an old name or argument warns until the release in which `removal` ends it, at least two releases."""

import re
import sys
import warnings

from envs.errors import UserValueError

RELEASES = 2  # minor ones before 1.0 in which an old name works: the one that deprecates it, and the next
# Libraries that construct or copy objects of jaxrl and envs, or call their functions, on behalf of a user.
PASSED_BY = ("jaxrl", "envs", "contextlib", "functools", "dataclasses", "flax", "jax")

__all__ = ["DeprecatedWarning", "removal", "warn_deprecated"]


class DeprecatedWarning(FutureWarning):
    """Warning of a call that uses a name or an argument of jaxrl or envs that a later release removes.

    Python shows it by default, also where the call is in an imported module. `warnings.simplefilter("error",
    jaxrl.deprecation.DeprecatedWarning)` makes it an error.
    """


def removal(since: str) -> str:
    """Release that removes a name deprecated by another release, such as `"0.4"` for `"0.2"` and `"2.0"` for `"1.3"`.

    Args:
      since: Release, its major and its minor number with a dot between them.

    Raises:
      ValueError: The release is not two numbers.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)", since)
    if numbers is None:
        raise UserValueError(f"since takes a release such as '0.2', got {since!r}")
    major, minor = int(numbers[1]), int(numbers[2])
    return f"{major + 1}.0" if major else f"{major}.{minor + RELEASES}"


def warn_deprecated(old: str, new: str | None = None, *, since: str) -> None:
    """Warn that an old name or argument is deprecated, at the line of the user's program that led here.

    That is the first line outside jaxrl, envs and the libraries that copy or call their objects, such as flax.

    Args:
      old: Name or argument as a user writes it, such as `"train(start=...)"`.
      new: Name or argument that replaces it; None if nothing does.
      since: Release that deprecates it, its major and its minor number.

    Raises:
      ValueError: The release is not two numbers.
    """
    replaced = "." if new is None else f"; use {new}."
    message = f"{old} is deprecated since jaxrl {since} and is removed in {removal(since)}{replaced}"
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_BY:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecatedWarning, stacklevel=level)
