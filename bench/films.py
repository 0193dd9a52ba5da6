"""Training with films compared with training without them and with their rendering alone, in one invocation.

    python bench/films.py [--seeds 4] [--env-steps 100000] [--evals 4] [--limit 100] [--rounds 3] [--json FILE]

PPO with its preset trains on CartPole with `jaxrl.films`, which draws an episode at every evaluation, and without
films, alternately. The films of each training are drawn again afterwards, from the same policies. A round before the
others is not counted; compilation of the training is not counted either, that of the steps of a film is part of its
rendering.

The exit status is 1 if films make a training longer than their rendering alone takes, by more than a tenth of it, which
is left for the noise of a machine; the ratio is one of medians.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jaxrl
from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import whole
from jaxrl.policies.films import Films

MOST = 1.1


class DrawnAgain(Films):
    """Films that can be drawn again."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._shown: list[tuple[int, Any, Any]] = []

    def policies(self, env_step: int, runs: Any, policies: Callable[[], Any]) -> Iterator[tuple[int, Path]]:
        """Write the films of an evaluation, and keep its policies."""
        self._shown.append((env_step, runs, policies()))
        return self._draw(*self._shown[-1])

    def seconds_again(self) -> float:
        """Seconds for drawing all films anew."""
        began = time.perf_counter()
        for shown in self._shown:
            list(self._draw(*shown))
        return time.perf_counter() - began

    def _draw(self, env_step: int, runs: Any, policies: Any) -> Iterator[tuple[int, Path]]:
        return super().policies(env_step, runs, lambda: policies)


class Round(NamedTuple):
    """Seconds of a training without films, of one with films, and of drawing these films alone."""

    without: float
    with_films: float
    rendering: float


def main() -> None:
    """Print the seconds of trainings and of rendering, and what films add to a training."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="runs of a training; the first one is filmed")
    parser.add_argument("--env-steps", type=int, default=100_000, help="environment steps of a run")
    parser.add_argument("--evals", type=int, default=4, help="evaluations, each with a film")
    parser.add_argument("--limit", type=int, default=100, help="time limit of an episode")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each kind")
    arguments = parser.parse_args()
    what = f"PPO on CartPole, {arguments.seeds} seeds, with a film at each of {arguments.evals} evaluations"
    report = Report(parser, arguments, what)
    columns = {"without films: s": ".2f", "with films: s": ".2f", "rendering alone: s": ".2f", "added / alone": ".3f"}
    table = report.table("Rounds", columns)
    _round(arguments)
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append(_round(arguments))
        table.add(*rounds[-1], _added(rounds[-1]) / rounds[-1].rendering)
    shares = ratios([_added(each) for each in rounds], [each.rendering for each in rounds])
    ratio = statistics.median(shares)
    report.require(
        ratio <= MOST,
        f"films make a training longer by {ratio:.3f} times their rendering alone, at most {MOST} is the target",
    )
    report.finish(f"time that films add over that of their rendering alone: {spread(shares, '.3f')}")


def _added(seconds: Round) -> float:
    return seconds.with_films - seconds.without


def _round(arguments: Any) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        tracker = DrawnAgain(Path(folder))
        return Round(_train(arguments), _train(arguments, tracker), tracker.seconds_again())


def _train(arguments: Any, *trackers: Films) -> float:
    """Seconds of a training without its compilation."""
    algo = jaxrl.preset("ppo", "cartpole").algo
    params = algo.env.default_params.replace(max_steps_in_episode=arguments.limit)
    options: dict[str, Any] = {"env_steps": arguments.env_steps, "evals": arguments.evals, "progress": False}
    began = time.perf_counter()
    result = jaxrl.train(algo, seeds=arguments.seeds, env_params=params, trackers=list(trackers), **options)
    return time.perf_counter() - began - whole(result).metrics.attrs["compile_seconds"]


if __name__ == "__main__":
    main()
