"""A table of algorithms and tasks, each cell of which one command trains anew, and the results stored so far."""

from jaxrl.benchmark.cells import CELLS, Cell, cell
from jaxrl.benchmark.data import Benchmark, load
from jaxrl.benchmark.published import PUBLISHED, Published, beside_published
from jaxrl.benchmark.references import Reference, reference
from jaxrl.benchmark.running import run, verify

__all__ = [
    "CELLS",
    "PUBLISHED",
    "Benchmark",
    "Cell",
    "Published",
    "Reference",
    "beside_published",
    "cell",
    "load",
    "reference",
    "run",
    "verify",
]
