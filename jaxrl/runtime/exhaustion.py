"""A device that runs out of memory while it computes, and the narrower blocks that follow."""

from __future__ import annotations

import warnings
from types import TracebackType

import jax

from envs.errors import UserValueError

__all__ = ["Exhaustion"]


class Exhaustion:
    """A context that ends quietly where a device has no memory left, which `reason` then tells.

    Nothing that the error held on the device is left after the context:

        exhaustion = Exhaustion()
        while True:
            with exhaustion:
                return drive(...)
            wider, block = block, exhaustion.narrower(block)
            exhaustion.warn(wider, block, "from the start")

    Attributes:
      reason: the first line of what the device said, empty where it had memory enough.
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
        """Half the width.

        Raises:
          ValueError: blocks are of one run already.
        """
        if block == 1:
            raise UserValueError(f"there is no memory left for blocks of one run: {self.reason}")
        return block // 2

    def warn(self, before: int, block: int, how: str) -> None:
        """Tells that the call goes on with narrower blocks.

        Args:
          before, block: widths.
          how: where it goes on, such as "from the last checkpoint".
        """
        warnings.warn(
            f"a device had no memory left for blocks of {before} runs ({self.reason}); going on {how} with blocks of "
            f"{block}, whose results are not equal bit for bit",
            RuntimeWarning,
            stacklevel=5,
        )
