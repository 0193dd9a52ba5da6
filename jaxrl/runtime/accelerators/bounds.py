"""Lower bounds on the time of training on a target, from the text of its compiled program."""

from __future__ import annotations

from typing import NamedTuple

from jaxrl.results.format import counted, duration
from jaxrl.runtime.accelerators.figures import Figures, figures
from jaxrl.runtime.accelerators.program_text import Program, read_program
from jaxrl.runtime.accelerators.targets import Target

__all__ = ["Bound", "bound_of", "of_an_iteration"]


class Bound(NamedTuple):
    """Lower bound on the time of training float32 networks on a target, without evaluations; not a measurement.

    Attributes:
      target: Accelerator that the program was compiled for.
      iteration: Work of one iteration of one block; loops whose length the data decides count as empty.
      iterations: Number of iterations of a block.
      blocks: Number of blocks that the device computes one after another.
    """

    target: Target
    iteration: Figures
    iterations: int
    blocks: int

    @property
    def traffic_seconds(self) -> float:
        """Time in seconds of the bytes that exceed the cache, at the bandwidth of the memory."""
        return self._times * self.iteration.uncached / self.target.bandwidth

    @property
    def arithmetic_seconds(self) -> float:
        """Time in seconds of the operations, at the highest rate of products of float32 matrices."""
        return self._times * self.iteration.operations / self.target.operations

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.traffic_seconds, self.arithmetic_seconds)

    @property
    def kernel_seconds(self) -> float:
        """Estimate in seconds of the time that starting the kernels takes, 0 on a TPU; not a bound."""
        return self._times * self.iteration.kernels * self.target.kernel_seconds

    @property
    def _times(self) -> int:
        return self.iterations * self.blocks

    def lines(self) -> dict[str, str]:
        """The bound, its terms and the estimate, as text by name."""
        work = self.iteration
        each = f"in each of {self.iterations:,} iterations of {counted(self.blocks, 'block')}"
        about = f": about {duration(self.kernel_seconds)}, as on an H200" if self.target.kernel_seconds else ""
        beyond = f", {_giga(work.uncached)}B of them beyond the cache" if self.target.cache else ""
        return {
            "time": f"at least {duration(self.seconds)} without evaluations: a bound from the compiled program, "
            "not a measurement",
            "traffic": f"{_giga(work.bytes)}B in each iteration{beyond}: at least {duration(self.traffic_seconds)}",
            "arithmetic": f"{_giga(work.operations)} operations in each: at least {duration(self.arithmetic_seconds)}",
            "kernels": f"{work.kernels:,.0f} {each}{about}",
        }


def bound_of(text: str | None, target: Target, iterations: int, blocks: int) -> Bound:
    """Bound on the time of training.

    Args:
      text: Text of the program that advances a block of runs by a number of iterations.
      target: Accelerator that it was compiled for.
      iterations: Number of iterations of a block.
      blocks: Number of blocks that the device computes one after another.
    """
    return Bound(target, of_an_iteration(read_program(text), target.cache, inner=0), iterations, blocks)


def of_an_iteration(program: Program, cache: int = 0, inner: int = 1) -> Figures:
    """Work of one iteration: of one trip more through the outermost loop, whose number of trips is an argument.

    Args:
      program: Program that advances a block of runs.
      cache: Size in bytes of the cache that all kernels share.
      inner: Number of trips that are counted for an inner loop whose length depends on the data.
    """
    return figures(program, (2, inner), cache).plus(figures(program, (1, inner), cache), -1)


def _giga(number: float) -> str:
    """Number in powers of a thousand, such as `41 G`."""
    for power, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= power:
            return f"{number / power:.3g} {unit}"
    return f"{number:.0f} "
