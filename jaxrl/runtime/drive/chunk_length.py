"""Number of iterations of a chunk, after which the driver checks for signals and checkpoints."""

import math

MOST_SECONDS = 10.0  # acceptable delay after Ctrl-C, or for a batch system that warns 30 s ahead
CALL_SECONDS = 0.001  # cost of calling the program of a block: .8 ms of processor time for PPO (bench/NOTES.md)
SHARE = 40  # ratio of the length of a chunk to the cost of its calls, which is then 2.5 %
GAIN = 0.03  # least gain for which the length of a chunk is doubled
OBVIOUS_GAIN = 0.25  # gain that needs no second measurement

__all__ = ["Pace"]


class Pace:
    """Chunks of about a given duration, longer where many blocks are called, or where measurements show a gain.

    Once chunks reach half the given duration, they are compared with chunks of twice as many iterations: both are
    measured twice, alternately, and the faster measurement of each counts. If an iteration costs over 3 % less in the
    longer chunk (for example because a change of layout takes longer than a pull), the longer chunk is compared with
    its double in the same way. No chunk longer than ten seconds is tried, and no chunk has more than twice the
    iterations of the previous one.

    Args:
      seconds: Duration of a chunk in seconds, at most ten; 0 for chunks of one iteration.
      num_calls: Number of program calls in a chunk on each device.
    """

    def __init__(self, seconds: float, num_calls: int) -> None:
        self._seconds = min(max(seconds, SHARE * CALL_SECONDS * num_calls), MOST_SECONDS) if seconds else 0.0
        self._count, self._each = 0, math.inf  # of the last chunk that was not cut short
        self._asked = 1  # of the next chunk, ignoring the end of the run
        self._trial: tuple[int, list[float], list[float]] | None = None  # iterations, seconds of them, of twice them
        self._settled = not seconds

    def next(self, left: int) -> int:
        """Number of iterations of the next chunk, at most `left`; the first chunk has one, to measure its time."""
        if self._trial is not None:
            count, shorter, longer = self._trial
            self._asked = count if len(shorter) <= len(longer) else 2 * count
        else:
            target = self._seconds if self._settled else self._seconds / 2
            self._asked = max(min(int(target / self._each), 2 * self._count), 1)
        return min(self._asked, left)

    def took(self, count: int, seconds: float) -> None:
        """Record the duration of the last chunk."""
        if 2 * count < self._asked:
            return  # cut short by an evaluation
        first = not self._count
        self._count, self._each = count, max(seconds, 1e-9) / count
        if self._trial is not None:
            self._tried(count, seconds)
        elif not (first or self._settled) and count >= int(self._seconds / 2 / self._each):
            self._try(count, seconds)

    def _try(self, count: int, seconds: float) -> None:
        """Start to compare chunks with ones of twice as many iterations, unless those would take too long."""
        self._settled = 2 * seconds > MOST_SECONDS
        self._trial = None if self._settled else (count, [seconds], [])

    def _tried(self, count: int, seconds: float) -> None:
        """Add a chunk to a comparison, unless it was cut short."""
        assert self._trial is not None
        fewer, shorter, longer = self._trial
        if count in (fewer, 2 * fewer):
            (shorter if count == fewer else longer).append(seconds)
        if not longer:
            return
        gain = 1 - min(longer) / (2 * min(shorter))
        if len(longer) < 2 and gain < OBVIOUS_GAIN:
            return
        if gain > GAIN:
            self._seconds = max(self._seconds, min(longer))
            self._try(2 * fewer, min(longer))
        else:
            self._trial, self._settled = None, True
