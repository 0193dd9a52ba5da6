"""Run benchmarks one after another and store their results.

    python -m bench                                  all of them
    python -m bench train envs                       these
    python -m bench train -- --seeds 1024 4096       these, with additional options, stored only in the folder of --out
    python -m bench --table                          only prints and writes the table of docs/results/benchmarks.md

Each benchmark runs in a separate process and writes NAME.json, with every number, and NAME.md to bench/results; the
name ends in -gpu or -tpu if it ran on such a device. If a benchmark fails, the rows that it has measured so far are
kept in the folder `unfinished` next to the results. Then the table of docs/results/benchmarks.md is written from all
files in the folder, and the missed targets are listed; the exit status is 1 if there are any or if a benchmark failed,
and 130 after Ctrl-C. A comparison uses the peer libraries that are installed and lists the missing ones; `make bench`
installs all of them.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import header_lines, markdown
from bench.sides import PEERS, find_peer

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench/results", ROOT / "docs/results/benchmarks.md"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


class Benchmark(NamedTuple):
    """A benchmark script and the options for its runs.

    Attributes:
      smallest: Options of the smallest run, which only shows that the script works.
      usual: Options of a measurement that differ from the script's defaults.
      peers: Names of the options that take interpreters.
    """

    smallest: str
    usual: str = ""
    peers: tuple[str, ...] = ()


BENCHMARKS = {
    "train": Benchmark("--seeds 1 --repeats 1 --env-steps 512 --no-peers", peers=("rejax", "sb3")),
    "off_policy": Benchmark("--seeds 1 --repeats 1 --share 0.06 --no-peers", peers=("rejax", "rejax012", "sbx")),
    "frames": Benchmark("--transitions 256 --updates 1 --rounds 1 --size 8 --frames 2"),
    "envs": Benchmark("--num-envs 2 --steps 256 --rounds 1"),
    "suites": Benchmark("--tasks xminigrid/MiniGrid-Empty-6x6 --num-envs 2 --steps 256 --rounds 1"),
    "physical": Benchmark("--tasks motor/dc --num-envs 2 --steps 256 --rounds 1 --no-peers", peers=("gem",)),
    "randomise": Benchmark("--tasks cartpole --seeds 1 --env-steps 512 --rounds 1"),
    "memory_learners": Benchmark("--learners dqn --memories gru --seeds 1 --env-steps 64 --rounds 1"),
    "memory_shares": Benchmark("--memories gru --seeds 1 --rounds 1 --iterations 1"),
    "adapters": Benchmark("--num-envs 2 --steps 2 --rounds 1"),
    "evolution": Benchmark("--populations 4 --strategies open-es --hidden 4 --rounds 1"),
    "advantages": Benchmark("--rounds 1 --seeds 1 --iterations 1"),
    "learned_crowd": Benchmark("--agents 60 --env-steps 400 --rounds 1 --no-peers", peers=("peers",)),
    "crowd": Benchmark("--quick --rounds 1 --agents 20 --no-peers", peers=("peers",)),
    "player": Benchmark("--agents 20 --seconds 0.5 --draws 3"),
    "bandits": Benchmark("--quick --rounds 1 --work 0.001 --no-peers", peers=("peers",)),
    "driver": Benchmark("--seeds 2 --env-steps 1024 --repeats 1 --runs 2"),
    "roofline": Benchmark("--smallest --rounds 1"),
    "compile_time": Benchmark("--seeds 1 --repeats 1 --no-peers", peers=("rejax",)),
    "import_time": Benchmark("--repeats 1"),
    "kept_programs": Benchmark("--networks 2"),
    "job_arrays": Benchmark("--processes 1 --cached 1 --runs 2 --env-steps 512"),
    "memory": Benchmark("--seeds 1 --env-steps 5120 10240"),
    "memory_peak": Benchmark("--only 1"),
    "seeds": Benchmark("--seeds 1 2 --work 2 --repeats 1"),
    "scale": Benchmark("--seeds 4 --env-steps 5120 --smaller 2 --share 1", usual="--minutes 2 --smaller 1000"),
    "devices": Benchmark("--seeds 2 --env-steps 1024 --repeats 1"),
    "tracking": Benchmark("--seeds 2 --env-steps 1024 --evals 1"),
    "films": Benchmark("--seeds 1 --env-steps 512 --evals 1 --limit 5 --rounds 1"),
    "coverage": Benchmark("--samples 20 --resamples 50 --settings 10"),
    "sequential": Benchmark("--samples 4 --max-seeds 16"),
    "search": Benchmark("--trials 8 --env-steps 4608 --seeds 1 --test-seeds 2"),
}


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """The reports of a folder, in the order of the benchmarks."""
    for name in (*BENCHMARKS, "gpu"):  # which is for a machine with a GPU alone, so that no list of this module runs it
        for ending in ("", "-gpu", "-tpu"):
            file = folder / f"{name}{ending}.json"
            if file.exists():
                yield json.loads(file.read_text())


def machine_of(document: dict[str, Any]) -> str:
    """The machine of a report, without the number of cores, because some benchmarks use fewer."""
    measured = document["header"]
    if measured["platform"] == "cpu":
        return f"{measured['processor']}, jax {measured['jax']}"
    return f"{measured['devices']}, jax {measured['jax']}; {measured['processor']}"


def cores_of(document: dict[str, Any]) -> int:
    """Number of cores that the process of a report could use."""
    return int(document["header"]["cores"].split()[0].replace(",", ""))


def table(documents: Sequence[dict[str, Any]]) -> str:
    """The tables of the results page, one per machine."""
    machines: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        machines.setdefault(machine_of(document), []).append(document)
    head = header_lines(dict.fromkeys(("Command", "What", "Result"), ""))
    parts = []
    for machine, group in machines.items():
        cores = max(group, key=cores_of)["header"]["cores"]
        rows = [row for document in group for row in rows_of(document)]
        parts.append(f"{machine}, {cores}:\n\n{head}\n" + "\n".join(rows))
    return "\n\n".join(parts)


def rows_of(document: dict[str, Any]) -> list[str]:
    """The rows of a report in the table of the results page, one for each part of its result."""
    first, *others = document["result"].split("; ")
    return [f"| `{document['command']}` | {document['what']} | {first} |", *(f"| | | {other} |" for other in others)]


def with_table(text: str, documents: Sequence[dict[str, Any]]) -> str:
    """The text of the results page with the tables between its two marks.

    Raises:
      ValueError: The text does not have each of the two marks once, in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"{PAGE.name} must have {BEGIN} and, below, {END}, once each")
    inside = f"\n{table(documents)}\n" if documents else "\n"
    return f"{before}{begin}{inside}{end}{after}"


def write_table() -> None:
    """Write the tables of the results page from the stored reports."""
    PAGE.write_text(with_table(PAGE.read_text(), list(stored(RESULTS))))


def run(name: str, options: Sequence[str], out: Path | None) -> list[str]:
    """Run one benchmark, store its report in `out` unless it is None, and return a sentence per missed target."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, str(ROOT / f"bench/{name}.py"), *options, "--json", str(file)]
        print(f"\n=== {name} {' '.join(options)}", flush=True)
        status: int | str = "of Ctrl-C"
        try:
            status = subprocess.run(command, check=False, cwd=ROOT).returncode
        finally:
            document = json.loads(file.read_text()) if file.exists() else None
            whole = document is not None and (status == 0 or (status == 1 and document["missed"]))
            if document is not None and out is not None:
                store(name, document, out if whole else out / "unfinished")
    if document is None or not whole:
        return [f"{name} failed with exit status {status}, see its error above."]
    return [f"{name}: {sentence}" for sentence in document["missed"]]


def store(name: str, document: dict[str, Any], out: Path) -> None:
    """Write a report and its page."""
    platform = document["header"]["platform"]
    stem = name if platform == "cpu" else f"{name}-{platform}"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    (out / f"{stem}.md").write_text(markdown(stem, document))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"benchmarks: {', '.join(BENCHMARKS)}. `python bench/NAME.py --help` describes each measurement.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument(
        "--table",
        action="store_true",
        help=f"run nothing, print and write the table of {PAGE.name}",
    )
    for peer, (_, has) in PEERS.items():
        parser.add_argument(f"--{peer}", metavar="PYTHON", help=f"interpreter that has {has}")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="output folder (default: bench/results)")
    parser.add_argument("--smallest", action="store_true", help="smallest sizes, only a check of the code; needs --out")
    parser.epilog = f"{parser.epilog} Arguments after -- are passed to every named script."
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    arguments, extra = parser.parse_args(words[:split]), words[split + 1 :]
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"NAME must be among {', '.join(BENCHMARKS)}, got {unknown[0]!r}")
    out = RESULTS if arguments.out is None else arguments.out.resolve()
    if arguments.smallest and out == RESULTS:
        parser.error("--smallest requires --out, because its figures are not measurements")
    if arguments.table:
        if arguments.names or arguments.out is not None or extra:
            parser.error("--table runs nothing and takes neither NAME nor --out")
        write_table()
        print(table(list(stored(RESULTS))))
        return 0
    if extra and arguments.out is None:
        print("With additional options, benchmarks store nothing unless --out names a folder.")
        out = None
    asked: dict[str, list[str]] = {}
    for name in arguments.names or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        options = (benchmark.smallest if arguments.smallest else benchmark.usual).split()
        alone = "--no-peers" in [*options, *extra]
        for peer in () if alone else benchmark.peers:
            path = find_peer(parser, peer, vars(arguments)[peer] or str(PEERS[peer][0]))
            options += [] if path is None else [f"--{peer}", path]
        asked[name] = [*options, *extra]
    missed: list[str] = []
    interrupted = True
    with contextlib.suppress(KeyboardInterrupt):
        for name, options in asked.items():
            missed += run(name, options, out)
        interrupted = False
    if out == RESULTS:
        write_table()
    print("\n" + ("\n".join(["Missed:", *missed]) if missed else "Every target was met."))
    if interrupted:
        print("Interrupted before the end.")
    return 130 if interrupted else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
