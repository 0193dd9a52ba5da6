"""PPO training beside rejax with PureJaxRL's CartPole settings, in one invocation.

    python bench/train.py [--seeds 1 8 64] [--repeats 5] [--env-steps 499712] [--rejax PYTHON] [--json FILE]

rejax 0.1.3 needs gymnax 0.0.9 and so an environment of its own, which `make bench` makes in
.venv-rejax. Each side compiles once in its own process; then the two run by turns. Compile time
is kept apart. Both evaluate 128 whole episodes a seed at the end, within the run time: rejax
sampled ones, ours 64 greedy and 64 sampled. Ours runs in the layout that
`train` and the command line choose: a thread for every core.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # as a script this file lies first on the path, where envs.py hides the package `envs`

ENV_STEPS = 499_712


def worker(num_seeds: int, env_steps: int) -> None:
    """Ours: a JSON line when compiled, and one for each line read."""
    import jax

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo

    def run() -> Any:
        result = jaxrl.train(algo, seeds=num_seeds, env_steps=env_steps, evals=1, eval_episodes=64, progress=False)
        sampled = float(result.metrics["return_sampled"][:, -1].mean())
        return result.metrics.attrs | {"return": float(result.metrics["return"][:, -1].mean()), "sampled": sampled}

    first = jaxrl.train(algo, seeds=num_seeds, env_steps=512, evals=1, eval_episodes=64, progress=False)
    print(json.dumps({"compile_seconds": first.metrics.attrs["compile_seconds"], "jax": jax.__version__}), flush=True)
    for _ in sys.stdin:
        attrs = run()
        print(json.dumps({name: attrs[name] for name in ("run_seconds", "return", "sampled")}), flush=True)


class Side:
    """One side's process: compiled, waiting to be told to run."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.compiled = self._read()
        self.runs: list[dict[str, Any]] = []

    def run(self) -> None:
        """One timed run."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        self.runs.append(self._read())

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def finish(self) -> dict[str, Any]:
        """Ends the process, and gives what it tells last."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        last = self._read()
        self._process.wait()
        return last

    def median(self, name: str) -> float:
        """Over the runs."""
        return statistics.median(run[name] for run in self.runs)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended before its time: see its error above.")
        return json.loads(line)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--env-steps", type=int, default=ENV_STEPS)
    parser.add_argument(
        "--rejax", default=str(ROOT / ".venv-rejax/bin/python"), help="interpreter that has rejax 0.1.3"
    )
    parser.add_argument("--json", type=Path, help="file to write every figure to")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(arguments.worker, arguments.env_steps)
        return
    if not Path(arguments.rejax).exists():
        parser.error(f"--rejax: there is no {arguments.rejax}; `make bench` makes it, or name one that has rejax 0.1.3")

    from bench.machine import header, print_header

    print_header()
    print("| seeds | ours: compile s | run s | M steps/s | return greedy / sampled ", end="")
    print("| rejax: compile s | run s | M steps/s | return sampled | rejax / ours, run (least to most) |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for num_seeds in arguments.seeds:
        ours = Side([sys.executable, __file__, "--worker", str(num_seeds), "--env-steps", str(arguments.env_steps)])
        peer = str(ROOT / "bench/peers/rejax_ppo.py")
        theirs = Side([arguments.rejax, peer, str(num_seeds), str(arguments.env_steps)])
        for _ in range(arguments.repeats):
            ours.run()
            theirs.run()
        for side in (ours, theirs):
            side.close()
        pairs = zip(ours.runs, theirs.runs, strict=True)
        ratios = sorted(peer["run_seconds"] / mine["run_seconds"] for mine, peer in pairs)
        steps = num_seeds * arguments.env_steps / 1e6
        cells = [
            f"{num_seeds}",
            f"{ours.compiled['compile_seconds']:.1f}",
            f"{ours.median('run_seconds'):.2f}",
            f"{steps / ours.median('run_seconds'):.2f}",
            f"{ours.median('return'):.1f} / {ours.median('sampled'):.1f}",
            f"{theirs.compiled['compile_seconds']:.1f}",
            f"{theirs.median('run_seconds'):.2f}",
            f"{steps / theirs.median('run_seconds'):.2f}",
            f"{theirs.median('return'):.1f}",
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
        rows.append({"seeds": num_seeds, "ours": [ours.compiled, ours.runs], "rejax": [theirs.compiled, theirs.runs]})
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"header": header(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
