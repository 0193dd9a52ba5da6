"""Memory of a training call at 200 thousand and at 2 million environment steps, which should be the same.

    python bench/memory.py [--seeds 64] [--env-steps 200000 2000000] [--json FILE]

Each length runs in a separate process. The table has the compiler's figure (arguments, outputs and
temporaries of the three programs), the resident size after compilation (once every program has run and
memory freed by the compiler is returned to the system, without which the level varies by a hundred MiB),
and the later highest resident size minus that level. The exit status is 1 if the longest run needs more
memory than the shortest, by over 5 % and by over 2 MiB.
"""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax

from bench.report import Report, benchmark_parser
from bench.sides import whole
from jaxrl.runtime.machine.memory import give_back, resident


def resident_mebibytes() -> float:
    """The resident size of this process in MiB; on a GPU or TPU the memory that JAX uses on its first device."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {})["bytes_in_use"] / 2**20
    return resident() / 2**20


def highest_ever() -> float:
    """The highest resident size since the start of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


@contextlib.contextmanager
def highest_resident() -> Iterator[list[float]]:
    """A list whose only element is the highest resident size within the context, in MiB, read twenty times a second."""
    highest, running = [0.0], True

    def watch() -> None:
        while running:
            highest[0] = max(highest[0], resident_mebibytes())
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield highest
    finally:
        running = False
        watcher.join()


def worker(num_seeds: int, env_steps: int) -> None:
    """Train once and print a JSON line."""
    import jaxrl

    compiled = []
    lowered: Any = jax.stages.Lowered
    compile_program = lowered.compile

    def compile_and_note(self: Any, *args: Any, **kwargs: Any) -> jax.stages.Compiled:
        program = compile_program(self, *args, **kwargs)
        compiled.append(program)
        return program

    lowered.compile = compile_and_note
    algo = jaxrl.preset("ppo", "cartpole").algo

    def run(env_steps: int) -> float:
        result = whole(jaxrl.train(algo, seeds=num_seeds, env_steps=env_steps, evals=10, progress=False))
        return float(result.metrics["return"][:, -1].mean())

    run(512 * 10)
    give_back()  # freed memory that the C library keeps counts as resident
    level = resident_mebibytes()
    with highest_resident() as highest:
        final_return = run(env_steps)
    analyses = [program.memory_analysis() for program in compiled]
    total = sum(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
        for analysis in analyses
    )
    figures = {"compiler": total / 2**20, "level": level, "above": highest[0] - level, "return": final_return}
    print(json.dumps(figures), flush=True)


def grown(shortest: dict[str, float], longest: dict[str, float]) -> list[str]:
    """A sentence for each figure that grows with the length of a run by more than 5 % and more than 2 MiB."""
    names = {"compiler": "The compiler's figure", "above": "The highest resident size above its level"}
    return [
        f"{name} grows with the run: from {shortest[figure]:.2f} to {longest[figure]:.2f} MiB."
        for figure, name in names.items()
        if longest[figure] > 1.05 * shortest[figure] and longest[figure] > shortest[figure] + 2
    ]


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--env-steps", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(arguments.seeds, arguments.worker)
        return

    shortest, longest = min(arguments.env_steps), max(arguments.env_steps)
    what = f"resident memory of PPO on CartPole, {longest:,} against {shortest:,} steps, {arguments.seeds} seeds"
    report = Report(parser, arguments, what)
    columns = {"env steps": ",d", "compiler, MiB": ".2f", "resident after compilation, MiB": ".1f"}
    table = report.table("A separate process each", columns | {"highest above it, MiB": ".2f", "return": ".1f"})
    measured = {}
    for env_steps in arguments.env_steps:
        command = [sys.executable, __file__, "--worker", str(env_steps), "--seeds", str(arguments.seeds)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        figures = measured[env_steps] = json.loads(out.splitlines()[-1])
        table.add(env_steps, *(figures[name] for name in ("compiler", "level", "above", "return")))
    few, many = measured[shortest], measured[longest]
    for sentence in grown(few, many):
        report.require(False, sentence)
    report.finish(
        f"{many['above']:.0f} against {few['above']:.0f} MiB above the level after compilation; the compiler's "
        f"figure is {many['compiler']:.1f} against {few['compiler']:.1f} MiB"
    )


if __name__ == "__main__":
    main()
