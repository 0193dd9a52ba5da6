"""Kernels, memory traffic and arithmetic of a compiled program, counted in its text."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxrl.runtime.accelerators.program_text import Computation, Instruction, Program, read_program

FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "partition-id")
COPIES = ("copy", "copy-start")
SLICES = ("dynamic-slice", "gather", "slice")
UPDATES = ("dynamic-update-slice", "scatter")
# Operations of which each element of the result may depend on all elements of the operands.
WHOLE = ("dot", "convolution", "reduce-window", "sort", "custom-call", "select-and-scatter")
# Operations that move numbers and compute none.
MOVES = (*SLICES, *UPDATES, *COPIES, "reshape", "transpose", "broadcast", "concatenate", "pad", "reverse", "iota")

__all__ = ["Figures", "figures", "launches"]


class Figures(NamedTuple):
    """Work of a program.

    Attributes:
      kernels: Number of kernels, calls of libraries and copies that are started one after another.
      bytes: Bytes that the kernels read and write, counted once for each kernel.
      uncached: Bytes that the memory must transfer: for each kernel those that it reads in excess of the cache's size,
        and those that it writes in excess of it.
      operations: Arithmetic operations on elements, of which a product of matrices has two for each pair of factors.
    """

    kernels: float = 0
    bytes: float = 0
    uncached: float = 0
    operations: float = 0

    def plus(self, other: Figures, times: float = 1) -> Figures:
        """Sum with another program that runs a number of times."""
        return Figures(*(own + times * each for own, each in zip(self, other, strict=True)))


def launches(text: str | None, unknown_trips: Sequence[int] = ()) -> int:
    """Number of operations that a call of a CPU's program starts; a copy, whose cost is negligible, is not counted.

    Args:
      text: Text of the program, `compiled.as_text()`.
      unknown_trips: Trip counts of loops, see `figures`.
    """
    return int(_Counter(read_program(text), tuple(unknown_trips), 0, COPIES).of_program().kernels)


def figures(program: Program, unknown_trips: Sequence[int] = (), cache: int = 0) -> Figures:
    """Work of one call of a program.

    A fusion is one kernel, for any contents; instructions without work do not count. The body of a loop counts as often
    as the compiler knows it to run. Of the branches of a condition the least of each figure counts, so that it is a
    lower bound. Of an array from which a kernel takes slices, or in which it replaces them, only the slices
    count.

    Args:
      program: Program.
      unknown_trips: Trip counts of the loops whose count the compiler does not know: first of the outermost loops,
        then of the loops in their bodies, and so on; loops nested deeper run once.
      cache: Size in bytes of the cache that all kernels share.
    """
    return _Counter(program, tuple(unknown_trips), cache, ()).of_program()


class _Counter:
    """Counts the work of computations, each once for every depth of loops.

    Args:
      program, unknown_trips, cache: Arguments of `figures`.
      skipped: Operations that do not count.
    """

    def __init__(self, program: Program, unknown_trips: tuple[int, ...], cache: int, skipped: Sequence[str]) -> None:
        self._program, self._computations = program, program.computations
        self._unknown_trips, self._cache, self._skipped = unknown_trips, cache, (*FREE, *skipped)
        self._of = functools.cache(self._of_computation)

    def of_program(self) -> Figures:
        """Work of one call."""
        return self._of(self._program.entry, 0)

    def _of_computation(self, name: str, depth: int) -> Figures:
        total = Figures()
        computation = self._computations[name]
        for instruction in computation.values():
            total = total.plus(self._of_instruction(instruction, computation, depth))
        return total

    def _of_instruction(self, instruction: Instruction, inside: Computation, depth: int) -> Figures:
        opcode = instruction.opcode
        if opcode in self._skipped or opcode.endswith("-done"):
            return Figures()
        if opcode == "while":
            trips = self._program.trips(instruction, inside)
            if trips is not None:
                return Figures().plus(self._of(instruction.named("body"), depth), trips)
            trips = self._unknown_trips[depth] if depth < len(self._unknown_trips) else 1
            return Figures().plus(self._of(instruction.named("body"), depth + 1), trips)
        if opcode == "conditional":
            branches = [self._of(name, depth) for name in instruction.branches]
            return Figures(kernels=1).plus(Figures(*map(min, zip(*branches, strict=True))))
        if opcode == "call" and 'xla_cpu_small_call="true"' not in instruction.line:
            return self._of(instruction.named("to_apply"), depth)
        read, written = self._bytes(instruction, inside)
        uncached = max(0, read - self._cache) + max(0, written - self._cache)
        return Figures(1, read + written, uncached, self._operations(instruction, inside))

    def _bytes(self, instruction: Instruction, inside: Computation) -> tuple[int, int]:
        """Bytes that a kernel reads, and that it writes."""
        operands = [inside[name].bytes for name in dict.fromkeys(instruction.operands) if name in inside]
        if instruction.opcode in SLICES:
            return instruction.bytes + sum(operands[1:]), instruction.bytes
        if instruction.opcode in UPDATES:
            return sum(operands[1:]), sum(operands[1:])
        if instruction.opcode == "copy-start":
            return operands[0], instruction.arrays[0].bytes
        if instruction.opcode == "custom-call" and len(instruction.arrays) > 1:  # the last one is a library's workspace
            return sum(operands), sum(array.bytes for array in instruction.arrays[:-1])
        if instruction.opcode != "fusion":
            return sum(operands), instruction.bytes
        fused = self._computations[instruction.named("calls")]
        return _read(fused), _written(fused)

    def _operations(self, instruction: Instruction, inside: Computation) -> float:
        if instruction.opcode == "fusion":
            fused = self._computations[instruction.named("calls")]
            return sum(self._operations(each, fused) for each in fused.values())
        if not instruction.arrays or instruction.opcode in (*FREE, *MOVES):
            return 0
        size = instruction.arrays[0].size
        if instruction.opcode == "dot":
            return 2.0 * size * _contracted(instruction, inside)
        if instruction.opcode == "custom-call" and "gemm" in instruction.line:
            left, right = (inside[name].arrays[0].size for name in instruction.operands[:2])
            return 2.0 * size * math.sqrt(left * right / (size * _batch_of_product(instruction, inside)))
        if instruction.opcode == "convolution":
            return 2.0 * size * _window(instruction, inside)
        if instruction.opcode in ("reduce", "reduce-window"):
            return float(max(inside[name].arrays[0].size for name in instruction.operands[:1]))
        return float(size) if instruction.opcode != "custom-call" else 0.0


def _contracted(instruction: Instruction, inside: Computation) -> int:
    """Number of products of each element of a product of matrices."""
    dims = re.search(r"lhs_contracting_dims=\{([0-9,]*)\}", instruction.line)
    left = inside[instruction.operands[0]].arrays[0]
    return math.prod(left.shape[int(dim)] for dim in dims[1].split(",") if dim) if dims else 1


def _window(instruction: Instruction, inside: Computation) -> int:
    """Number of products of each element of a convolution, which on a TPU may be a product of matrices.

    A dilated window, by which a TPU computes many products of matrices, counts as one element.
    """
    kernel = inside[instruction.operands[1]].arrays[0]
    labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.line)
    assert labels is not None
    dilated = "lhs_dilate" in instruction.line
    sizes = zip(labels[1], kernel.shape, strict=True)
    return math.prod(size for label, size in sizes if label != "o" and not (dilated and label.isdigit()))


def _batch_of_product(instruction: Instruction, inside: Computation) -> int:
    """Number of products of matrices that a library computes in one call."""
    dims = re.search(r'"lhs_batch_dimensions":\[([^\]]*)\]', instruction.line)
    left = inside[instruction.operands[0]].arrays[0]
    return math.prod(left.shape[int(dim)] for dim in re.findall(r"\d+", dims[1])) if dims else 1


def _read(fused: Computation) -> int:
    """Bytes that a fusion reads of its parameters: of each only the elements that its results depend on."""
    needed = {fused.root.name: fused.root.size}
    for instruction in reversed(fused.values()):
        if instruction.name not in needed:
            continue
        count = min(needed[instruction.name], instruction.size)
        for position, name in enumerate(instruction.operands):
            if name in fused:
                needed[name] = needed.get(name, 0) + _of_operand(instruction, position, fused, count)
    parameters = (each for each in fused.values() if each.opcode == "parameter" and each.name in needed)
    return sum(min(needed[each.name], each.size) * _width(each) for each in parameters)


def _of_operand(instruction: Instruction, position: int, fused: Computation, count: int) -> int:
    """Number of elements of an operand on which `count` elements of the result depend."""
    operand = fused[instruction.operands[position]]
    if instruction.opcode == "tuple" or instruction.opcode in WHOLE:
        return operand.size
    if instruction.opcode in UPDATES:
        in_place = instruction.root or any(use.root for use, _ in fused.uses(instruction.name))
        return operand.size if position > 0 else 0 if in_place else count
    if instruction.opcode in ("reduce", "concatenate"):
        return operand.size * count // max(instruction.size, 1)
    return min(count, operand.size)


def _written(fused: Computation) -> int:
    """Bytes that a fusion writes: its results, or only what it replaces in arrays that are updated in place."""
    root = fused.root
    results = [fused[name] for name in root.operands] if root.opcode == "tuple" else [root]
    total = 0
    for result in results:
        while result.opcode == "bitcast" and result.operands[0] in fused:
            result = fused[result.operands[0]]
        replaced = [fused[name].arrays[0] for name in result.operands[1:]] if result.opcode in UPDATES else None
        total += result.bytes if replaced is None else max(array.size for array in replaced) * _width(result)
    return total


def _width(result: Instruction) -> int:
    """Bytes of an element in the device's memory."""
    array = result.arrays[0] if result.arrays else None
    return 0 if array is None else array.bytes // max(array.size, 1)
