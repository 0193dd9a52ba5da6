"""Retrying with narrower blocks when a device runs out of memory."""

from __future__ import annotations

import warnings
from types import TracebackType

import jax

from envs.errors import UserValueError


class Exhaustion:
    """Context that suppresses the error of a device that is out of memory, and records it in `reason`.

    Arrays that the error referred to are freed after the context:

        exhaustion = Exhaustion()
        while True:
            with exhaustion:
                return drive(...)
            wider, block = block, exhaustion.narrower(block)
            exhaustion.warn(wider, block, "from the start")

    Attributes:
      reason: First line of the error, empty if memory was sufficient.
    """

    def __init__(self) -> None:
        self.reason = ""

    def __enter__(self) -> Exhaustion:
        self.reason = ""
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        del kind, traceback
        if not isinstance(error, jax.errors.JaxRuntimeError) or "RESOURCE_EXHAUSTED" not in str(error):
            return False
        self.reason = str(error).strip().splitlines()[0][:200]
        return True

    def narrower(self, block: int) -> int:
        """Half the block width.

        Raises:
          ValueError: Blocks are of one run already.
        """
        if block == 1:
            raise UserValueError(f"there is no memory left for blocks of one run: {self.reason}")
        return block // 2

    def warn(self, before: int, block: int, how: str) -> None:
        """Warn that the call continues with narrower blocks.

        Args:
          before, block: Previous and new block width.
          how: Place where it continues, such as "from the last checkpoint".
        """
        warnings.warn(
            f"a device had no memory left for blocks of {before} runs ({self.reason}); continuing {how} with blocks of "
            f"{block}, whose results are not equal bit for bit",
            RuntimeWarning,
            stacklevel=5,
        )
