"""Run benchmarks one after another, and keep what they find.

    python -m bench                                  all of them
    python -m bench train envs                       these
    python -m bench train -- --seeds 1024 4096       these, with options of their own
    python -m bench --table                          only README's table, from what is stored

Each runs in a process of its own and leaves NAME.json, with every number, and NAME.md in bench/results; a name ends in
-gpu or -tpu if that is what it ran on. Then README's table is written from all the files there, and the targets that
were missed are listed; the exit status is 1 if there are any, or if a benchmark failed. A benchmark that compares asks
for an interpreter in which the peer is installed; `make bench` makes these and calls this.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import header_lines, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS, README = ROOT / "bench/results", ROOT / "README.md"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


class Benchmark(NamedTuple):
    """A script.

    Attributes:
      smallest: its options where it only has to work.
      usual: its options otherwise, as far as they are not its defaults.
      peers: its options that name interpreters.
    """

    smallest: str
    usual: str = ""
    peers: tuple[str, ...] = ()


BENCHMARKS = {
    "train": Benchmark("--seeds 1 --repeats 1 --env-steps 512 --no-peers", peers=("rejax", "sb3")),
    "envs": Benchmark("--num-envs 2 --steps 256 --rounds 1"),
    "adapters": Benchmark("--num-envs 2 --steps 2 --rounds 1"),
    "advantages": Benchmark("--rounds 1 --seeds 1 --iterations 1"),
    "crowd": Benchmark("--quick --rounds 1 --agents 20 --no-peers", peers=("peers",)),
    "bandits": Benchmark("--quick --rounds 1 --work 0.001 --no-peers", peers=("peers",)),
    "driver": Benchmark("--seeds 2 --env-steps 1024 --repeats 1 --runs 2"),
    "roofline": Benchmark("--smallest --rounds 1"),
    "compile_time": Benchmark("--seeds 1 --repeats 1 --no-peers", peers=("rejax",)),
    "import_time": Benchmark("--repeats 1"),
    "memory": Benchmark("--seeds 1 --env-steps 5120 10240"),
    "seeds": Benchmark("--seeds 1 2 --work 2 --repeats 1"),
    "scale": Benchmark("--seeds 4 --env-steps 5120 --smaller 2 --share 1", usual="--minutes 2 --smaller 1000"),
    "devices": Benchmark("--seeds 2 --env-steps 1024 --repeats 1"),
    "tracking": Benchmark("--seeds 2 --env-steps 1024 --evals 1"),
    "search": Benchmark("--trials 8 --env-steps 4608 --seeds 1 --test-seeds 2"),
}


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """The reports of a folder, in the order of the benchmarks."""
    for name in BENCHMARKS:
        for ending in ("", "-gpu", "-tpu"):
            file = folder / f"{name}{ending}.json"
            if file.exists():
                yield json.loads(file.read_text())


def machine_of(document: dict[str, Any]) -> str:
    """What a report was measured on, as README says it."""
    measured = document["header"]
    if measured["platform"] == "cpu":
        return f"{measured['processor']}, jax {measured['jax']}"
    return f"{measured['devices']}, jax {measured['jax']}; {measured['processor']}"


def table(documents: Sequence[dict[str, Any]]) -> str:
    """README's tables, one for every machine."""
    machines: dict[str, list[str]] = {}
    for document in documents:
        row = f"| `{document['command']}` | {document['what']} | {document['result']} |"
        machines.setdefault(machine_of(document), []).append(row)
    head = header_lines(dict.fromkeys(("Command", "What", "Result"), ""))
    return "\n\n".join(f"{machine}:\n\n{head}\n" + "\n".join(rows) for machine, rows in machines.items())


def with_table(text: str, documents: Sequence[dict[str, Any]]) -> str:
    """README's text with the tables between its two marks.

    Raises:
      ValueError: the marks are not there, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"README must have {BEGIN} and, below, {END}, once each")
    inside = f"\n{table(documents)}\n" if documents else "\n"
    return f"{before}{begin}{inside}{end}{after}"


def write_table() -> None:
    """README's table, from what is stored."""
    README.write_text(with_table(README.read_text(), list(stored(RESULTS))))


def run(name: str, options: Sequence[str], out: Path) -> list[str]:
    """Runs one benchmark and stores what it found; sentences on what it missed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, str(ROOT / f"bench/{name}.py"), *options, "--json", str(file)]
        print(f"\n=== {name} {' '.join(options)}", flush=True)
        status = subprocess.run(command, check=False, cwd=ROOT).returncode
        if not file.exists():
            return [f"{name} failed with exit status {status}, see its error above."]
        document = json.loads(file.read_text())
    platform = document["header"]["platform"]
    stem = name if platform == "cpu" else f"{name}-{platform}"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    (out / f"{stem}.md").write_text(markdown(stem, document))
    return [f"{name}: {sentence}" for sentence in document["missed"]]


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"benchmarks: {', '.join(BENCHMARKS)}. `python bench/NAME.py --help` says what each measures.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run, all if none is named")
    parser.add_argument("--table", action="store_true", help="run nothing, write README's table from what is stored")
    parser.add_argument("--rejax", metavar="PYTHON", help="interpreter that has rejax 0.1.3")
    parser.add_argument("--sb3", metavar="PYTHON", help="interpreter that has Stable-Baselines3")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter that has the peers of crowds and bandits")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="in place of bench/results")
    parser.add_argument("--smallest", action="store_true", help="only see whether they work; takes --out")
    parser.epilog = f"{parser.epilog} What follows -- are options of every script that is named."
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    arguments, extra = parser.parse_args(words[:split]), words[split + 1 :]
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"NAME must be among {', '.join(BENCHMARKS)}, got {unknown[0]!r}")
    if arguments.smallest and arguments.out == RESULTS:
        parser.error("--smallest needs --out: what it finds is no measurement to keep")
    if arguments.table:
        write_table()
        return 0
    missed: list[str] = []
    for name in arguments.names or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        options = (benchmark.smallest if arguments.smallest else benchmark.usual).split()
        for peer in benchmark.peers:
            interpreter = vars(arguments)[peer]
            options += [f"--{peer}", interpreter] if interpreter else []
        missed += run(name, [*options, *extra], arguments.out)
    if arguments.out == RESULTS:
        write_table()
    print("\n" + ("\n".join(["Missed:", *missed]) if missed else "Every target was met."))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
