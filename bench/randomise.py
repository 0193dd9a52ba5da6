"""Training in an environment with drawn parameters compared with the plain environment, in one invocation.

    python bench/randomise.py [--tasks cartpole pendulum] [--seeds 8] [--env-steps 102400] [--rounds 17] [--json FILE]

PPO with its preset trains on each task, in one program of all seeds, with two parameters that every reset draws and
without. The two programs run alternately, and every other round in the other order; compilation is not counted. The
returns are those of the last evaluation, each in its own environment.

The exit status is 1 if the drawn parameters may cost more than 3 % on a task, by the upper end of the 95 % interval of
the median of the rounds' ratios, or by this median if there are fewer than 6 rounds.
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import numpy as np
from scipy.stats import quantile_test

import envs
import jaxrl
from bench.report import Report, benchmark_parser

PARAMETERS = {"cartpole": ("length", "masspole"), "pendulum": ("length", "mass")}
MOST = 1.03
LEAST_ROUNDS = 6  # of a median with an interval of 95 %


def main() -> None:
    """Print the environment steps a second with and without draws, and the ratios of the times."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=tuple(PARAMETERS), default=list(PARAMETERS), help="environments")
    parser.add_argument("--seeds", type=int, default=8, help="runs of a program")
    parser.add_argument("--env-steps", type=int, default=102_400, help="environment steps of a run")
    parser.add_argument("--rounds", type=int, default=17, help="measurements of each program")
    arguments = parser.parse_args()
    what = f"PPO with {arguments.seeds} seeds, {arguments.env_steps:,} environment steps, with two drawn parameters"
    report = Report(parser, arguments, what)
    columns = {"task": "", "parameters": "", "environment steps a second": ",.0f", "least": ",.0f", "most": ",.0f"}
    table = report.table(f"Medians of {arguments.rounds}", columns | {"return": ",.1f"})
    results = []
    for task in arguments.tasks:
        sides = {"usual": Side(task, False, arguments), "drawn": Side(task, True, arguments)}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(arguments.rounds):
            order = ("usual", "drawn") if number % 2 == 0 else ("drawn", "usual")
            for name in order:
                seconds[name].append(sides[name].train())
        for name, side in sides.items():
            rates = [side.env_steps / each for each in seconds[name]]
            table.add(task, name, statistics.median(rates), min(rates), max(rates), side.returned)
        times = [drawn / usual for drawn, usual in zip(seconds["drawn"], seconds["usual"], strict=True)]
        ratio = highest = statistics.median(times)
        result = f"{task} {ratio:.3f}"
        if arguments.rounds >= LEAST_ROUNDS:
            low, highest = quantile_test(times, p=0.5).confidence_interval(0.95)
            result += f" [{low:.3f}, {highest:.3f}]"
        results.append(result)
        report.require(
            highest <= MOST, f"{task} may take {highest:.3f} times as long with draws, at most {MOST} is the target"
        )
    intervals = ", with 95 % intervals" if arguments.rounds >= LEAST_ROUNDS else ""
    report.finish(f"time with draws over that without, median of the rounds{intervals}: {', '.join(results)}")


class Side:
    """One compiled program.

    Attributes:
      env_steps: Environment steps of all runs of a training.
      returned: Mean return of the last evaluation of the last training.
    """

    def __init__(self, task: str, draws: bool, arguments: Any) -> None:
        env = envs.make(task)
        if draws:
            usual = {name: float(getattr(env.default_params, name)) for name in PARAMETERS[task]}
            env = envs.wrappers.randomise(
                env, {name: jaxrl.LogUniform(value / 2, value * 2) for name, value in usual.items()}
            )
        algo = jaxrl.preset("ppo", task).on(env)
        train = jaxrl.make_train(algo, env_steps=arguments.env_steps, evals=1, eval_episodes=8)
        keys = jax.random.split(jax.random.key(0), arguments.seeds)
        self._train, self._keys = jax.jit(jax.vmap(train)).lower(keys).compile(), keys
        per_iteration = algo.env_steps_per_iteration
        self.env_steps = arguments.seeds * -(-arguments.env_steps // per_iteration) * per_iteration
        self.returned = float("nan")

    def train(self) -> float:
        """Seconds of a training of all runs."""
        began = time.perf_counter()
        out = jax.block_until_ready(self._train(self._keys))
        seconds = time.perf_counter() - began
        self.returned = float(np.mean(np.asarray(out.metrics["return"])[:, -1]))
        return seconds


if __name__ == "__main__":
    main()
