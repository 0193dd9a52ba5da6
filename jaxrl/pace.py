"""How many iterations a compiled program does before its driver looks up."""

import math
import time
from typing import Any

SHARE = 10

__all__ = ["Pace"]


class Pace:
    """Chunks of about so many seconds, longer where the ends of a chunk cost much themselves.

    What a chunk costs beside its iterations (a call for each block, and for bandits with many arms a change of
    layout, which takes longer than a pull) shows between two chunks, one twice as long as the other. A chunk
    is then ten times as long as its ends, but at most ten times as long as wanted. An iteration that takes more
    than half of that is not doubled to see.

    Args:
      seconds: of a chunk; 0 for one iteration each.
    """

    def __init__(self, seconds: float):
        self._wanted = seconds
        self._ends, self._each = 0.0, math.inf
        self._chunks = 0
        self._shorter: tuple[int, float] | None = None
        self._probing = False

    def count(self, left: int) -> int:
        """Iterations of the next chunk, of `left` at most; the first chunk is one, to see how long one takes."""
        if self._shorter is not None and self._probing:
            count = 2 * self._shorter[0]
        else:
            limit = min(max(self._wanted, SHARE * self._ends), SHARE * self._wanted)
            count = int((limit - self._ends) / self._each)
        return min(max(count, 1), left)

    def advance(self, runs: Any, target: int) -> int:
        """Brings runs one chunk nearer to an iteration; how many iterations that was."""
        count = self.count(target - runs.iteration)
        started = time.perf_counter()
        runs.advance(count)
        self.took(count, time.perf_counter() - started)
        return count

    def took(self, count: int, seconds: float) -> None:
        """Tells how long the last chunk was."""
        seconds = max(seconds, 1e-9)
        self._chunks += 1
        if self._chunks == 1:  # what is done once only is in it
            self._each = seconds / count
        elif self._shorter is None:
            self._shorter, self._each = (count, seconds), seconds / count
            self._probing = seconds <= SHARE / 2 * self._wanted
        elif self._probing and count >= 2 * self._shorter[0]:
            before, earlier = self._shorter
            self._each = max((seconds - earlier) / (count - before), seconds / count / SHARE)
            self._ends = max(seconds - self._each * count, 0.0)
            self._probing = False
        elif not self._probing:
            self._each = max(seconds - self._ends, seconds / SHARE) / count
