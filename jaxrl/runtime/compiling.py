"""Memory that compiling takes: foreseen by the size of a program, and kept within a limit."""

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
from jaxrl.runtime.memory import GIB, at_least, resident, size

# Bytes that XLA's compiler for CPUs takes for each letter of the largest program of a call: .69 to .86 KiB for it
# alone, less for each letter of the others, and 1.74 to 2.16 KiB where all are compiled side by side (bench/NOTES.md).
ALONE, SIDE_BY_SIDE = 0.9 * 1024, 2.3 * 1024
# With less than this beside what the process has, memory is tight before it is known what is to be compiled; with
# more than that it is not, whatever is.
TIGHT, PLENTY = 2 * GIB, 8 * GIB

__all__ = ["check_loops", "check_room", "compiling_within", "room_side_by_side", "tight"]


class _Limit(NamedTuple):
    """What compiling keeps to: bytes of the process, and whether somebody asked for that."""

    size: int
    asked: bool


_LIMIT: contextvars.ContextVar[_Limit | None] = contextvars.ContextVar("limit", default=None)


@contextlib.contextmanager
def compiling_within(limit: int | None, asked: bool = False) -> Iterator[None]:
    """Within this context programs are compiled one after another where the limit leaves no room for more.

    Args:
      limit: Number of bytes of the process, None for no limit.
      asked: Flag that somebody asked for it, so that what takes more is refused before it is compiled.
    """
    token = _LIMIT.set(None if limit is None else _Limit(limit, asked))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def tight() -> bool:
    """Whether memory may be too little for what making programs leaves behind meanwhile."""
    limit = _LIMIT.get()
    return limit is not None and limit.size < resident() + TIGHT


def room_side_by_side(largest: jax.stages.Lowered) -> bool:
    """Whether there is memory to compile the programs of a call side by side.

    Args:
      largest: Program that takes the most.
    """
    limit, has = _LIMIT.get(), resident()
    return limit is None or limit.size >= has + PLENTY or limit.size >= has + SIDE_BY_SIDE * _letters(largest)


def check_room(program: jax.stages.Lowered) -> None:
    """Refuses to compile a program that would take more memory than was asked for.

    Programs that JAX has compiled before and kept on disk take little, so that only a limit which the process has
    reached already refuses where it keeps any.

    Raises:
      ValueError: It would.
    """
    limit, has = _LIMIT.get(), resident()
    kept = jax.config.values["jax_enable_compilation_cache"] and jax.config.values["jax_compilation_cache_dir"]
    if limit is None or not limit.asked or (kept and has < limit.size):
        return
    takes = ALONE * _letters(program)
    if has + takes > limit.size:
        raise UserValueError(
            f"memory must be at least {at_least(has + takes)} for this call, got {size(limit.size)}: compiling takes "
            f"about {size(takes)} beside the {size(has)} of the process"
        )


def check_loops(program: jax.stages.Lowered, block: int) -> None:
    """Refuses to compile a program whose loops take more memory than there is for them, were it of one run alone.

    What a loop carries, such as the samples of a rollout, is in memory as a whole, whatever a compiler makes of it.

    Args:
      program: Program of a block of runs.
      block: Number of runs.

    Raises:
      ValueError: They do.
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
            f"of it takes {size(takes)}, such as for what its environments sample"
        )


def _bytes(kind: str) -> int:
    """Bytes of an array by its type as StableHLO writes it, such as `tensor<128x4xf32>`."""
    found = re.fullmatch(r"tensor<((?:\d+x)*)\w*?(\d+)>", kind)
    if found is None:
        return 0
    return math.prod(int(length) for length in found[1].split("x") if length) * max(int(found[2]) // 8, 1)


def _letters(program: jax.stages.Lowered) -> int:
    """Length of the text of a program, large constants left out."""
    module: Any = program.compiler_ir()
    return len(module.operation.get_asm(large_elements_limit=16))
