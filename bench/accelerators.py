"""Programs of `train` compiled for GPUs and TPUs that are absent: memory, kernels, traffic and arithmetic.

    make accelerators                                          everything, in an environment with the compilers
    python bench/accelerators.py [--only ppo dqn] [--targets h100] [--runs 256] [--processes 2] [--again] [--accept]

Every cell of the table, a program, a target and a number of runs, is compiled by a process of its own and stored in
bench/accelerators.json at once, so that an interrupted call resumes where it stopped; cells that were compiled
from the same source are not compiled again, except under --again. Afterwards docs/results/accelerators.md is written.
Nothing is executed on an accelerator: times are those of the compiler.

The exit status is 1 if a selected cell does not compile, or if an iteration of its row in the file has over 5 % more
kernels than the number accepted for it, also where the row was stored by an earlier call. A lower number is accepted at
once, a higher one by --accept.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before JAX starts, whose plugins would look for the devices

import jax

from bench.accelerator_cases import CASES, Cell, cells, measured
from bench.accelerator_page import write_page
from jaxrl.runtime.accelerators.targets import TARGETS

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "bench/accelerators.json"
GROWTH = 1.05  # largest growth of a number of kernels


def source() -> str:
    """Fingerprint of the library's files and of the version of JAX."""
    digest = hashlib.sha256(jax.__version__.encode())
    for file in sorted([*ROOT.glob("jaxrl/**/*.py"), *ROOT.glob("envs/**/*.py"), ROOT / "bench/accelerator_cases.py"]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def stored() -> dict[str, dict[str, Any]]:
    """Cells of the table by name."""
    return json.loads(TABLE.read_text()) if TABLE.is_file() else {}


def store(name: str, record: dict[str, Any]) -> None:
    """Add a cell to the table."""
    write(stored() | {name: record})


def write(table: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table by another, in the order of the cells."""
    known = [str(cell) for cell in cells()]
    ordered = {name: table[name] for name in known if name in table}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in ordered.items())
    partial = TABLE.with_suffix(".part")
    partial.write_text(f"{{\n{lines}\n}}\n")
    partial.replace(TABLE)


def compiled(cell: Cell) -> tuple[Cell, dict[str, Any] | None, str]:
    """A cell, measured by another process; None and the end of its output where it fails."""
    command = [sys.executable, str(Path(__file__)), "--worker", str(cell)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        return cell, None, "\n".join((done.stderr or done.stdout).splitlines()[-3:])
    return cell, json.loads(done.stdout.splitlines()[-1]), ""


def accepted(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> float:
    """Number of kernels against which later ones are compared, without --accept."""
    return record["kernels"] if before is None else min(before["accepted"], record["kernels"])


def all_accepted(table: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """The table, with the present numbers of kernels of the named cells as the accepted ones."""
    return {
        name: {**record, "accepted": record["kernels"]} if name in names else record for name, record in table.items()
    }


def grown(table: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> list[str]:
    """A sentence for each of the named cells that has more kernels than were accepted."""
    return [
        f"{name} has {record['kernels']:,.0f} kernels, {record['accepted']:,.0f} are accepted"
        for name, record in table.items()
        if name in names and record["kernels"] > GROWTH * record["accepted"]
    ]


def available(cases: Collection[str]) -> str:
    """Targets and numbers of runs of some cases, as text."""
    runs: dict[str, set[int]] = {}
    for cell in cells():
        if cell.case in cases:
            runs.setdefault(cell.target, set()).add(cell.runs)
    text = "; ".join(f"{target} with {_numbers(each)}" for target, each in runs.items())
    return f"the cells of {', '.join(cases)} are {text}"


def _numbers(runs: Collection[int]) -> str:
    return f"{' or '.join(map(str, sorted(runs))) or 'any number of'} runs"


def main() -> None:
    """Compile the cells, store them, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--targets", nargs="+", choices=tuple(TARGETS), default=tuple(TARGETS))
    parser.add_argument("--runs", nargs="+", type=int, help="numbers of runs; default: all")
    parser.add_argument("--processes", type=int, default=2, help="number of compilations at a time")
    parser.add_argument("--again", action="store_true", help="compile cells of this source again")
    parser.add_argument("--accept", action="store_true", help="accept higher numbers of kernels")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        case, target, runs = arguments.worker.split("/")
        print(json.dumps(measured(Cell(case, target, int(runs)))))
        return
    here, before = source(), stored()
    selected = [
        cell
        for cell in cells()
        if cell.case in arguments.only
        and cell.target in arguments.targets
        and cell.runs in (arguments.runs or [cell.runs])
    ]
    if not selected:
        asked = f"{', '.join(arguments.targets)} with {_numbers(arguments.runs or [])}"
        parser.error(f"--targets and --runs must select a cell, got {asked}; {available(arguments.only)}")
    wanted = [each for each in selected if arguments.again or before.get(str(each), {}).get("source") != here]
    missed = []
    with ThreadPoolExecutor(arguments.processes) as threads:
        for i, done in enumerate(as_completed([threads.submit(compiled, cell) for cell in wanted])):
            cell, record, error = done.result()
            if record is None:
                missed.append(f"{cell} does not compile: {error}")
                print(missed[-1], flush=True)
                continue
            record |= {"source": here, "jax": jax.__version__, "date": date.today().isoformat()}
            record["accepted"] = accepted(record, before.get(str(cell)))
            store(str(cell), record)
            line = f"{i + 1} of {len(wanted)}: {cell}: {record['kernels']:,.0f} kernels, {record['seconds']:.0f} s"
            print(line, flush=True)
    names = {str(cell) for cell in selected}
    if arguments.accept:
        write(all_accepted(stored(), names))
    missed += grown(stored(), names)
    write_page(stored())
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
