"""Memory of compiling: estimated from the size of a program, and kept within a limit."""

from __future__ import annotations

import contextlib
import contextvars
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.mlir import ir

from envs.errors import UserValueError
from jaxrl.runtime.machine.memory import GIB, at_least, resident, size

# Bytes that XLA's compiler for CPUs takes for each character of the largest program of a call: .69 to .86 KiB for it
# alone, less for the other programs, and 1.74 to 2.16 KiB where all are compiled in parallel (bench/NOTES.md).
ALONE, SIDE_BY_SIDE = 0.9 * 1024, 2.3 * 1024
# Free memory below which compiling is restricted before the programs are known, and above which it never is.
TIGHT, PLENTY = 2 * GIB, 8 * GIB

__all__ = ["check_loops", "check_room", "compiling_within", "room_side_by_side", "tight"]


class _Limit(NamedTuple):
    """Memory limit of compiling: bytes of the process, and whether the limit was requested."""

    size: int
    asked: bool


_LIMIT: contextvars.ContextVar[_Limit | None] = contextvars.ContextVar("limit", default=None)


@contextlib.contextmanager
def compiling_within(limit: int | None, asked: bool = False) -> Iterator[None]:
    """Context in which programs are compiled sequentially if the limit leaves no memory for more at a time.

    Args:
      limit: Number of bytes of the process, None for no limit.
      asked: Whether the limit was requested, so that larger programs are refused before they are compiled.
    """
    token = _LIMIT.set(None if limit is None else _Limit(limit, asked))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def tight() -> bool:
    """Whether memory may be insufficient for the garbage that tracing accumulates."""
    limit = _LIMIT.get()
    return limit is not None and limit.size < resident() + TIGHT


def room_side_by_side(largest: jax.stages.Lowered) -> bool:
    """Whether there is memory to compile the programs of a call in parallel.

    Args:
      largest: Largest program of the call.
    """
    limit, has = _LIMIT.get(), resident()
    return limit is None or limit.size >= has + PLENTY or limit.size >= has + SIDE_BY_SIDE * _letters(largest)


def check_room(program: jax.stages.Lowered) -> None:
    """Rejects to compile a program that would exceed a requested memory limit.

    Programs in JAX's compilation cache on disk take little memory; with such a cache a program is refused only if the
    process has reached the limit already.

    Raises:
      ValueError: Compiling would exceed the limit.
    """
    limit, has = _LIMIT.get(), resident()
    kept = jax.config.values["jax_enable_compilation_cache"] and jax.config.values["jax_compilation_cache_dir"]
    if limit is None or not limit.asked or (kept and has < limit.size):
        return
    takes = ALONE * _letters(program)
    if has + takes > limit.size:
        raise UserValueError(
            f"memory must be at least {at_least(has + takes)} for this call, got {size(limit.size)}: compiling takes "
            f"about {size(takes)} in addition to the {size(has)} of the process"
        )


def check_loops(program: jax.stages.Lowered, block: int) -> None:
    """Rejects to compile a program whose loops exceed the memory limit even for a single run.

    The carry of a loop, such as the samples of a rollout, is in memory as a whole, however it is compiled.

    Args:
      program: Program of a block of runs.
      block: Number of runs.

    Raises:
      ValueError: The loops exceed the limit.
    """
    limit, has = _LIMIT.get(), resident()
    if limit is None or has >= limit.size:
        return
    module: Any = program.compiler_ir()
    carried = [0]

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.while":
            carried.append(sum(_bytes(str(result.type)) for result in operation.results))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    takes = max(carried) / block
    if has + takes > limit.size:
        raise UserValueError(
            f"memory must be at least {at_least(has + takes)} for one run of this call, got {size(limit.size)}: a loop "
            f"of it takes {size(takes)}, such as for samples of its environments"
        )


def _bytes(kind: str) -> int:
    """Bytes of an array of a StableHLO type, such as `tensor<128x4xf32>`."""
    match = re.fullmatch(r"tensor<((?:\d+x)*)\w*?(\d+)>", kind)
    if match is None:
        return 0
    return math.prod(int(length) for length in match[1].split("x") if length) * max(int(match[2]) // 8, 1)


def _letters(program: jax.stages.Lowered) -> int:
    """Length of the text of a program, large constants left out."""
    module: Any = program.compiler_ir()
    return len(module.operation.get_asm(large_elements_limit=16))
