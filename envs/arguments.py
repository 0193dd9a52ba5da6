"""Argument checks that environments and jaxrl share: one sentence with the argument, what it got and what it takes."""

import math
from typing import Any

from envs.errors import UserValueError

__all__ = ["check_count"]


def check_count(name: str, value: Any, least: int = 1, most: float = math.inf, why: str = "") -> None:
    """Refuse what is not a whole number in a range.

    Args:
      name: Name of the argument.
      value: What it got.
      least, most: Ends of the range, both taken.
      why: Clause that follows the range, such as ", the number of arms".
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise UserValueError(f"{name} must be a whole number {limits}{why}, got {value!r}")
