"""How many iterations a compiled program does before its driver looks up."""

import math

MOST_SECONDS = 10.0  # what one who presses Ctrl-C, or a batch system that warns 30 s ahead, can wait
CALL_SECONDS = 0.001  # to call the program of a block: .8 ms of processor time for PPO (bench/NOTES.md)
SHARE = 40  # a chunk is so many times as long as its calls, which then cost 2.5 %
GAIN = 0.03  # for which a chunk is made twice as long
OBVIOUS_GAIN = 0.25  # which needs no second look

__all__ = ["Pace"]


class Pace:
    """Chunks of about so many seconds, longer where many blocks are called, or where that is found to pay.

    Once chunks are half as long as wanted they are tried against ones of twice as many iterations, each twice
    and by turns, the quicker of each counting: where an iteration costs over 3 % less in the longer (a change of
    layout, say, takes longer than a pull), these are tried against their double in the same way. No chunk is tried
    that would take over ten seconds, nor has any more than twice the iterations of the one before it.

    Args:
      seconds: of a chunk, at most ten; 0 for one iteration each.
      num_calls: of programs, in a chunk on each device.
    """

    def __init__(self, seconds: float, num_calls: int):
        self._seconds = min(max(seconds, SHARE * CALL_SECONDS * num_calls), MOST_SECONDS) if seconds else 0.0
        self._count, self._each = 0, math.inf  # of the last chunk that tells anything
        self._asked = 1  # of the next one, were there no end to the run
        self._trial: tuple[int, list[float], list[float]] | None = None  # iterations, seconds of them, of twice them
        self._settled = not seconds

    def next(self, left: int) -> int:
        """Iterations of the next chunk, of `left` at most; the first chunk is one, to see how long one takes."""
        if self._trial is not None:
            count, shorter, longer = self._trial
            self._asked = count if len(shorter) <= len(longer) else 2 * count
        else:
            wanted = self._seconds if self._settled else self._seconds / 2
            self._asked = max(min(int(wanted / self._each), 2 * self._count), 1)
        return min(self._asked, left)

    def took(self, count: int, seconds: float) -> None:
        """Tells how long the last chunk was."""
        if 2 * count < self._asked:
            return  # little was left before an evaluation
        first = not self._count
        self._count, self._each = count, max(seconds, 1e-9) / count
        if self._trial is not None:
            self._tried(count, seconds)
        elif not (first or self._settled) and count >= int(self._seconds / 2 / self._each):
            self._try(count, seconds)

    def _try(self, count: int, seconds: float) -> None:
        """Begins to compare chunks with ones of twice as many iterations, unless those took too long."""
        self._settled = 2 * seconds > MOST_SECONDS
        self._trial = None if self._settled else (count, [seconds], [])

    def _tried(self, count: int, seconds: float) -> None:
        """One more chunk of a comparison, unless it was cut short."""
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
