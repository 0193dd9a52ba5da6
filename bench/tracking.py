"""Cost of tracking a thousand seeds: PPO on CartPole with and without TensorBoard, alternately, in one invocation.

    python bench/tracking.py [--seeds 1000] [--env-steps 49152] [--evals 10] [--repeats 1]
        [--track tensorboard] [--json FILE]

The program is compiled by a short call beforehand; a run is timed from the first chunk to the result, and
each call of its tracker is timed separately, by wall time and by processor time, whose share of the run's
processor time does not depend on other load of the machine. One file in a hundred is read back.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser
from bench.sides import whole


class Timed:
    """A tracker whose calls are timed.

    Attributes:
      seconds: Wall time of its calls so far, in seconds.
      processor_seconds: Processor time of this process during its calls so far, in seconds.
    """

    def __init__(self, tracker: Any) -> None:
        self._tracker, self.seconds, self.processor_seconds = tracker, 0.0, 0.0

    def start(self, call: Any, resumed: int | None) -> None:
        """Call the tracker's `start`."""
        self._add(lambda: self._tracker.start(call, resumed))

    def __call__(self, env_step: int, metrics: Mapping[str, Any]) -> None:
        """Call the tracker."""
        self._add(lambda: self._tracker(env_step, metrics))

    def finish(self, result: Any) -> None:
        """Call the tracker's `finish`."""
        self._add(lambda: self._tracker.finish(result))

    def _add(self, call: Callable[[], None]) -> None:
        began, processor_began = time.perf_counter(), time.process_time()
        call()
        self.seconds += time.perf_counter() - began
        self.processor_seconds += time.process_time() - processor_began


def main() -> None:
    """Print a row for each kind of run that is tracked."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--env-steps", type=int, default=49_152)
    parser.add_argument("--evals", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--by", choices=("seed", "setting"), nargs="+", default=["seed", "setting"])
    parser.add_argument("--track", choices=("tensorboard", "csv", "wandb", "mlflow"), default="tensorboard")
    arguments = parser.parse_args()

    import jaxrl

    algo = jaxrl.preset("ppo", "cartpole").algo
    options: dict[str, Any] = {"seeds": arguments.seeds, "eval_episodes": 16, "progress": False}
    what = f"{arguments.track}, {arguments.seeds:,} seeds of PPO on CartPole, {arguments.evals} evaluations"
    report = Report(parser, arguments, what)
    jaxrl.train(algo, env_steps=512, evals=1, **options)
    columns = {"runs": "", "without: s": ".1f", "with: s": ".1f", "with / without": ".3f", "tracker: s": ".2f"}
    columns |= {"of the run": ".2%", "run: processor s": ".1f", "tracker: processor s": ".2f"}
    table = report.table(
        f"Medians of {arguments.repeats}",
        columns | {"of the run's processor s": ".2%", "files": ".0f", "return": ".1f"},
    )
    sentences = []
    options |= {"env_steps": arguments.env_steps, "evals": arguments.evals}
    for by in arguments.by:
        rows = [_measure(arguments.track, by, algo, options) for _ in range(arguments.repeats)]
        median = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        ran, spent = median["with"] - median["tracker"], median["run processor"] - median["tracker processor"]
        share, processor_share = median["tracker"] / ran, median["tracker processor"] / spent
        cells = (median["without"], median["with"], median["with"] / median["without"], median["tracker"], share)
        processor = (median["run processor"], median["tracker processor"], processor_share)
        table.add(f"{arguments.seeds} seeds, by {by}", *cells, *processor, median["files"], median["return"])
        sentences.append(f"by {by} {share:.1%} of the run's time, {processor_share:.1%} of its processor time")
    report.finish("; ".join(sentences))


def _measure(track: str, by: str, algo: Any, options: dict[str, Any]) -> dict[str, float]:
    """Time one run without a tracker and one with it."""
    import jaxrl

    without = whole(jaxrl.train(algo, **options)).metrics.attrs["run_seconds"]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tracker = Timed(_tracker(track, by, directory))
        began, processor_began = time.perf_counter(), time.process_time()
        result = whole(jaxrl.train(algo, trackers=[tracker], **options))
        seconds, processor_seconds = time.perf_counter() - began, time.process_time() - processor_began
        if track == "tensorboard":
            _compare(directory, result, by)
        return {
            "without": without,
            "with": seconds - result.metrics.attrs["compile_seconds"],
            "tracker": tracker.seconds,
            "run processor": processor_seconds,
            "tracker processor": tracker.processor_seconds,
            "files": sum(path.is_file() for path in directory.rglob("*")),
            "return": float(result.metrics["return"][:, -1].mean()),
        }


def _tracker(name: str, by: str, directory: Path) -> Any:
    from jaxrl.tracking import trackers as tracking

    if name == "tensorboard":
        return tracking.tensorboard(directory, by=by)
    if name == "csv":
        return tracking.csv(directory / "progress.csv", by=by)
    if name == "wandb":
        return tracking.wandb("bench", by=by, mode="offline", directory=directory)
    return tracking.mlflow(directory / "mlflow.db", by=by)


def _compare(directory: Path, result: Any, by: str) -> None:
    """Raise an error if TensorBoard's reader returns other values than the result."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    env_steps = result.metrics["env_step"].values.tolist()
    for seed in result.seeds[::100] if by == "seed" else []:
        events = EventAccumulator(str(directory / f"seed={seed}"))
        events.Reload()
        logged = {event.step: event.value for event in events.Scalars("return")}
        expected = dict(zip(env_steps, result.metrics["return"].sel(seed=seed).values.tolist(), strict=True))
        if logged != expected:
            raise SystemExit(f"the events of seed {seed} are {logged}, and its returns {expected}")


if __name__ == "__main__":
    main()
