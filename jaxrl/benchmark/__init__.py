"""A table of algorithms and tasks that one command trains anew, cell by cell, and the results that it has so far."""

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
