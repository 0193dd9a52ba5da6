"""Instructions of a compiled program, read from its text."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from envs.errors import UserValueError

BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16}
ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,]*)\](\{[^}]*\})?")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
ASSIGNMENT = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = ")
OPCODE = re.compile(r" ?([a-z][a-z0-9-]*)\(")
NAME = re.compile(r"%([\w.-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')

__all__ = ["Array", "Computation", "Instruction", "Program", "read_program"]


class Array(NamedTuple):
    """Array of an instruction's result.

    Attributes:
      dtype: Type as in the text, such as `f32`.
      shape: Shape.
      on_chip: Whether the array is in memory of the chip itself, as the compiler for TPUs decides.
    """

    dtype: str
    shape: tuple[int, ...]
    on_chip: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in the device's memory, 0 on the chip."""
        digits = re.search(r"\d+", self.dtype)
        bits = BITS[self.dtype] if self.dtype in BITS else int(digits[0]) if digits else 8
        return 0 if self.on_chip else self.size * bits // 8


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
      name, opcode: Name and operation.
      result: Text of the result's type.
      operands: Names of the operands.
      line: Whole line, with its attributes.
      root: Whether it is the computation's result.
    """

    name: str
    opcode: str
    result: str
    operands: tuple[str, ...]
    line: str
    root: bool

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Arrays of the result, those of a tuple in order."""
        return tuple(
            Array(dtype, tuple(map(int, filter(None, dims.split(",")))), "S(1)" in layout)
            for dtype, dims, layout in ARRAY.findall(self.result)
        )

    @property
    def size(self) -> int:
        """Number of elements of the result's first array."""
        return self.arrays[0].size if self.arrays else 0

    @property
    def bytes(self) -> int:
        """Bytes of the result in the device's memory."""
        return sum(array.bytes for array in self.arrays)

    def named(self, attribute: str) -> str:
        """Computation that an attribute such as `body` or `calls` names."""
        match = re.search(rf"\b{attribute}=%?([\w.-]+)", self.line)
        assert match is not None
        return match[1]

    @property
    def constant(self) -> int | None:
        """Value of a constant whole number; None for another instruction."""
        value = re.search(r" constant\((-?\d+)\)", self.line)
        return int(value[1]) if value else None

    @property
    def place(self) -> int:
        """Position in the tuple of which a `get-tuple-element` takes an element."""
        return int(self.line.split(", index=")[1].split(",")[0])

    @property
    def branches(self) -> list[str]:
        """Computations of a condition."""
        if match := re.search(r"branch_computations=\{([^}]*)\}", self.line):
            return [name.strip().lstrip("%") for name in match[1].split(",")]
        return [self.named("true_computation"), self.named("false_computation")]


class Computation(dict[str, Instruction]):
    """Instructions of a computation by name, in order."""

    @property
    def root(self) -> Instruction:
        """Instruction of the result."""
        return next(each for each in reversed(self.values()) if each.root)

    @property
    def parameters(self) -> dict[int, Instruction]:
        """Parameters by position."""
        named = (each for each in self.values() if each.opcode == "parameter")
        return {int(each.line.split(" parameter(")[1].split(")")[0]): each for each in named}

    def source(self, name: str) -> Instruction | None:
        """Instruction that computes a value, before it was copied; None if it is in another computation."""
        instruction = self.get(name)
        while instruction is not None and instruction.opcode in ("copy", "bitcast"):
            instruction = self.get(instruction.operands[0])
        return instruction

    def uses(self, name: str) -> list[tuple[Instruction, int]]:
        """Instructions that take a result, each with the position of the operand."""
        return [(each, at) for each in self.values() for at, used in enumerate(each.operands) if used == name]


class Program(NamedTuple):
    """Compiled program.

    Attributes:
      entry: Name of the computation that a call executes.
      computations: Computations by name.
    """

    entry: str
    computations: dict[str, Computation]

    def trips(self, loop: Instruction, inside: Computation) -> int | None:
        """Trip count of a loop: that of the compiler, or of a counter of one by one to a constant.

        The compiler for TPUs states none.

        Args:
          loop: Instruction `while`.
          inside: Computation that it is in.

        Returns:
          Number of trips, or None where the data decides it.
        """
        if known := TRIPS.search(loop.line):
            return int(known[1])
        condition, body = (self.computations.get(loop.named(each)) for each in ("condition", "body"))
        if condition is None or body is None:
            return None
        test, start = condition.root, inside.source(loop.operands[0])
        if test.opcode != "compare" or "direction=LT" not in test.line or start is None or start.opcode != "tuple":
            return None
        counter, end = (condition.source(name) for name in test.operands)
        if counter is None or end is None or counter.opcode != "get-tuple-element" or end.constant is None:
            return None
        place = counter.place
        first, added = inside.source(start.operands[place]), body.source(body.root.operands[place])
        if first is None or first.constant is None or added is None or added.opcode != "add":
            return None
        terms = [each for name in added.operands if (each := body.source(name)) is not None]
        counts = any(each.constant == 1 for each in terms) and any(
            each.opcode == "get-tuple-element" and each.place == place for each in terms
        )
        return max(end.constant - first.constant, 0) if counts else None

    def instructions(self) -> Iterator[Instruction]:
        """All instructions, including those inside fusions."""
        for computation in self.computations.values():
            yield from computation.values()


def read_program(text: str | None) -> Program:
    """Read the text of a compiled program.

    Args:
      text: Text, `compiled.as_text()`.

    Raises:
      ValueError: The text has no entry computation.
    """
    computations: dict[str, Computation] = {}
    entry, inside = None, None
    for line in (text or "").splitlines():
        if match := COMPUTATION.match(line):
            inside = computations[match[2]] = Computation()
            entry = match[2] if match[1] else entry
        elif line.startswith("}"):
            inside = None
        elif inside is not None and (match := ASSIGNMENT.match(line)):
            instruction = _instruction(line, match)
            inside[instruction.name] = instruction
    if entry is None:
        raise UserValueError("text must be the text of a compiled program, with a line that begins with ENTRY")
    return Program(entry, computations)


def _instruction(line: str, match: re.Match[str]) -> Instruction:
    begin = match.end()
    end = _closing(line, begin) if line[begin] == "(" else line.index(" ", begin)
    opcode = OPCODE.match(line, end)
    assert opcode is not None, line
    closing = _closing(line, opcode.end() - 1)
    operands = tuple(NAME.findall(line[opcode.end() : closing]))
    return Instruction(match[2], opcode[1], line[begin:end], operands, line, bool(match[1]))


def _closing(line: str, opening: int) -> int:
    """Position after the bracket that closes the one at `opening`."""
    depth = 0
    for bracket in re.compile(r"[()]").finditer(line, opening):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return bracket.end()
    raise UserValueError(f"line must close its brackets, got {line.strip()}")
