"""Number of operations that a compiled program starts, counted from its text.

On a CPU each is a function that the runtime calls, on a GPU a kernel or a call of a library. A fusion counts once,
for any contents; instructions without work do not count, nor do copies, whose cost on a CPU is negligible. The
body of a loop counts as often as the compiler knows it to run. Of the branches of a condition the one with the fewest
operations counts, so that the number is a lower bound.
"""

import functools
import re
from collections.abc import Sequence

FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency")
COPIES = ("copy", "copy-start")
NAME = r"%?([\w.-]+)"
COMPUTATION = re.compile(rf"^(ENTRY )?{NAME} \(.*\{{$")
INSTRUCTION = re.compile(rf"^\s+(?:ROOT )?{NAME} = .*? ([a-z][a-z0-9-]*)\(")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
BRANCHES = re.compile(rf"branch_computations=\{{([^}}]*)\}}|true_computation={NAME}, false_computation={NAME}")


def launches(text: str | None, unknown_trips: Sequence[int] = ()) -> int:
    """Number of operations of one call of a program.

    Args:
      text: Text of the program, `compiled.as_text()`.
      unknown_trips: Trip counts of the loops whose count the compiler does not know: first of the outermost loops,
        then of the loops in their bodies, and so on; loops nested deeper run once.

    Raises:
      ValueError: The text has no entry computation.
    """
    bodies: dict[str, list[tuple[str, str]]] = {}
    entry, inside = None, None
    for line in (text or "").splitlines():
        if match := COMPUTATION.match(line):
            inside = bodies[match[2]] = []
            entry = match[2] if match[1] else entry
        elif line.startswith("}"):
            inside = None
        elif inside is not None and (match := INSTRUCTION.match(line)):
            inside.append((match[2], line))
    if entry is None:
        raise ValueError("text must be the text of a compiled program, with a line that begins with ENTRY")

    @functools.cache
    def of(name: str, depth: int = 0) -> int:
        return sum(of_instruction(*instruction, depth) for instruction in bodies[name])

    def of_instruction(opcode: str, line: str, depth: int) -> int:
        if opcode in FREE or opcode in COPIES or opcode.endswith("-done"):
            return 0
        if opcode == "while":
            if known := TRIPS.search(line):
                return int(known[1]) * of(_named("body", line), depth)
            trips = unknown_trips[depth] if depth < len(unknown_trips) else 1
            return trips * of(_named("body", line), depth + 1)
        if opcode == "conditional":
            match = BRANCHES.search(line)
            assert match is not None
            names = re.findall(NAME, match[1]) if match[1] else [match[2], match[3]]
            return 1 + min(of(name, depth) for name in names)
        if opcode == "call" and 'xla_cpu_small_call="true"' not in line:
            return of(_named("to_apply", line), depth)
        return 1

    return of(entry)


def _named(attribute: str, line: str) -> str:
    match = re.search(rf"{attribute}={NAME}", line)
    assert match is not None
    return match[1]
