"""Lower bounds on the time of training on a target, from the text of its compiled program."""

from __future__ import annotations

from typing import NamedTuple

from jaxrl.results.format import counted, duration
from jaxrl.runtime.accelerators.figures import Figures, figures
from jaxrl.runtime.accelerators.program_text import Program, read_program
from jaxrl.runtime.accelerators.targets import Target

__all__ = ["Bound", "bound_of", "of_an_iteration"]


class Bound(NamedTuple):
    """What training takes at least on a target: a bound, not a measurement; evaluations are not counted.

    Attributes:
      target: Accelerator that the program was compiled for.
      iteration: Work of one iteration of one block.
      iterations: Number of iterations of a block.
      blocks: Number of blocks that the device computes one after another.
    """

    target: Target
    iteration: Figures
    iterations: int
    blocks: int

    @property
    def kernel_seconds(self) -> float:
        """Time in seconds of starting the kernels; 0 on a TPU, where no shortest time is known."""
        return self._times * self.iteration.kernels * self.target.kernel_seconds

    @property
    def traffic_seconds(self) -> float:
        """Time in seconds of the bytes that exceed the cache, at the bandwidth of the memory."""
        return self._times * self.iteration.uncached / self.target.bandwidth

    @property
    def arithmetic_seconds(self) -> float:
        """Time in seconds of the operations, at the highest rate of products of matrices."""
        return self._times * self.iteration.operations / self.target.operations

    @property
    def seconds(self) -> float:
        """Largest of the bounds."""
        return max(self.kernel_seconds, self.traffic_seconds, self.arithmetic_seconds)

    @property
    def _times(self) -> int:
        return self.iterations * self.blocks

    def lines(self) -> dict[str, str]:
        """The bound and its terms, as text by name."""
        work = self.iteration
        each = f"in each of {self.iterations:,} iterations of {counted(self.blocks, 'block')}"
        started = f": at least {duration(self.kernel_seconds)}" if self.target.kernel_seconds else ", without a bound"
        beyond = f", {_giga(work.uncached)}B of them beyond the cache" if self.target.cache else ""
        return {
            "time": f"at least {duration(self.seconds)} without evaluations: a bound from the compiled program, no "
            "measurement",
            "kernels": f"{work.kernels:,.0f} {each}{started}",
            "traffic": f"{_giga(work.bytes)}B in each{beyond}: at least {duration(self.traffic_seconds)}",
            "arithmetic": f"{_giga(work.operations)} operations in each: at least {duration(self.arithmetic_seconds)}",
        }


def bound_of(text: str | None, target: Target, iterations: int, blocks: int) -> Bound:
    """Bound on the time of training.

    Args:
      text: Text of the program that advances a block of runs by a number of iterations.
      target: Accelerator that it was compiled for.
      iterations: Number of iterations of a block.
      blocks: Number of blocks that the device computes one after another.
    """
    return Bound(target, of_an_iteration(read_program(text), target.cache), iterations, blocks)


def of_an_iteration(program: Program, cache: int = 0) -> Figures:
    """Work of one iteration: of one trip more through the outermost loop, whose number of trips is an argument.

    Args:
      program: Program that advances a block of runs.
      cache: Bytes that the device can hold besides its memory.
    """
    return figures(program, (2,), cache).plus(figures(program, (1,), cache), -1)


def _giga(number: float) -> str:
    """Number in powers of a thousand, such as `41 G`."""
    for power, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= power:
            return f"{number / power:.3g} {unit}"
    return f"{number:.0f} "
