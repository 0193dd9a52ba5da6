"""How many iterations a compiled program does before its driver looks up."""

import math
import time
from typing import Any

SHARE = 40
MOST_SECONDS = 10.0
CHANCE = 0.1  # by which two timings of the same differ
CALL_SECONDS = 0.001  # to call the program of a block, with some 60 arrays, while another thread calls another

__all__ = ["Pace"]


class Pace:
    """Chunks of about so many seconds, longer where the ends of a chunk cost much themselves.

    What a chunk costs beside its iterations (a call for each block, and for bandits with many arms a change of
    layout, which takes longer than a pull) shows between two chunks, one half as long as the other, where it is
    more than chance; calls are taken for a millisecond each at the least. A chunk is then forty times as long as its
    ends, but at most ten seconds, unless one iteration takes longer.

    Args:
      seconds: of a chunk; 0 for one iteration each.
      num_calls: of programs, in a chunk on each device.
    """

    def __init__(self, seconds: float, num_calls: int = 1):
        self._wanted = seconds
        self._ends, self._each = CALL_SECONDS * num_calls, math.inf
        self._chunks = 0
        self._longer: tuple[int, float] | None = None
        self._halving = False

    def count(self, left: int) -> int:
        """Iterations of the next chunk, of `left` at most; the first chunk is one, to see how long one takes."""
        limit = min(max(self._wanted, SHARE * self._ends), MOST_SECONDS)
        if not self._chunks or not self._wanted:
            count = 1
        elif self._halving and self._longer is not None:
            count = self._longer[0] // 2
        else:
            count = int((limit - self._ends) / self._each)
            if self._longer is None and self._each < MOST_SECONDS / 2:
                count = max(count, 2)  # to be halved
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
        elif self._longer is None:
            self._each = seconds / count
            if count > 1 and seconds > self._wanted / 2:  # long enough to tell anything
                self._longer, self._halving = (count, seconds), True
        else:
            if self._halving and count < self._longer[0]:
                more, longer = self._longer
                each = max((longer - seconds) / (more - count), longer / more / SHARE)
                ends = longer - each * more
                self._ends = max(ends, self._ends) if ends > CHANCE * longer else self._ends
                self._halving = False
            self._each = max(seconds - self._ends, seconds / SHARE) / count
