"""The driver of thousands of runs: chunks, evaluations, interruption, and a result that is never lost."""

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.layout import Layout
from jaxrl.loop import Loop
from jaxrl.programs import compiled_programs
from jaxrl.progress import Progress, stop_on_signals
from jaxrl.results import Result
from jaxrl.run_directory import claim_directory, exclusive, versions

PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
SECONDS_PER_CHUNK = 1.0

__all__ = ["PRECISIONS", "SECONDS_PER_CHUNK", "History", "Work", "drive"]


class Work(NamedTuple):
    """What every run of a call does.

    Attributes:
      loop: of one run.
      identity: of the loop; calls with equal ones share compiled programs.
      points: int64, increasing, iterations after which to evaluate.
      env_steps_per_iteration: of one run.
      headline: `(metrics of a point) -> text`, for the progress bar.
      reserved: names that no metric may have.
    """

    loop: Loop
    identity: Hashable
    points: np.ndarray
    env_steps_per_iteration: int
    headline: Callable[[Mapping[str, np.ndarray]], str]
    reserved: frozenset[str]


class History:
    """The evaluations so far, on the host: metrics of all of them, and the policies of the last."""

    def __init__(self, shape: tuple[int, int], env_steps_per_iteration: int):
        self.iterations: list[int] = []
        self.policies: Any = None
        self._shape = shape
        self._per_iteration = env_steps_per_iteration
        self._chunks: list[dict[str, np.ndarray]] = []

    @property
    def env_steps(self) -> list[int]:
        return [iteration * self._per_iteration for iteration in self.iterations]

    def add(self, iteration: int, metrics: Any, policies: Any) -> dict[str, np.ndarray]:
        chunk, self.policies = jax.tree.map(
            lambda leaf: leaf.reshape(*self._shape, *leaf.shape[1:]), (dict(metrics), policies)
        )
        self.iterations.append(iteration)
        self._chunks.append(chunk)
        return chunk

    def stacked(self) -> dict[str, np.ndarray]:
        return {name: np.stack([chunk[name] for chunk in self._chunks], axis=2) for name in self._chunks[0]}


def drive(
    work: Work,
    arguments: tuple[Any, ...],
    shape: tuple[int, int],
    layout: Layout,
    finish: Callable[[History, dict[str, Any]], Result],
    *,
    attrs: Mapping[str, Any],
    on_chunk: Callable[[int, Mapping[str, np.ndarray]], None] | None,
    out: str | Path | None,
    force: bool,
    progress: bool,
    precision: str,
) -> Result:
    """Does the work of all runs, block by block on all devices, and saves what it gives.

    Args:
      work: of one run.
      arguments: `(seed, hparams, env_params)`, leaves `[num_runs, ...]`, settings before seeds.
      shape: `(num_settings, num_seeds)`.
      layout: of the runs.
      finish: makes the result of the evaluations so far and of the attributes of the call.
      attrs: attributes to begin with.
      on_chunk, out, force, progress, precision: as in `train`.

    Raises:
      FileExistsError: `out` holds a result, or another call is writing into it.
      KeyboardInterrupt: a signal came before the first evaluation.
    """
    directory = None if out is None else claim_directory(out, force)
    spread = layout.spread(arguments)
    per_iteration = work.env_steps_per_iteration * layout.num_runs
    history = History(shape, work.env_steps_per_iteration)
    points = work.points
    told: dict[str, Any] = {**attrs, **_attributes(layout)}

    def result() -> Result:
        seconds = told["run_seconds"] = time.perf_counter() - started
        told["env_steps_per_second"] = history.iterations[-1] * per_iteration / seconds
        told["interrupted"] = int(history.iterations[-1] < points[-1])
        told["stopped_by_signal"] = stop.signal or 0
        return finish(history, told)

    total = int(points[-1]) * per_iteration
    with exclusive(directory, force), Progress(total, progress) as bar, stop_on_signals() as stop:
        started = time.perf_counter()
        try:
            bar.phase("compiling")
            with contextlib.nullcontext() if precision == "default" else jax.default_matmul_precision(precision):
                told["precision"] = jax.config.values["jax_default_matmul_precision"] or "default"
                programs = compiled_programs(work.loop, work.identity, layout, spread, work.reserved)
            told["compile_seconds"] = time.perf_counter() - started
            bar.start()
            started = time.perf_counter()
            runs = programs.init(spread)
            done, seconds_per_iteration = 0, math.inf
            for point in points.tolist():
                while done < point and not stop:
                    # The first chunk is one iteration, to see how long one takes.
                    count = min(max(int(SECONDS_PER_CHUNK / seconds_per_iteration), 1), point - done)
                    chunk_started = time.perf_counter()
                    runs = programs.advance(runs, spread, count)
                    seconds_per_iteration = (time.perf_counter() - chunk_started) / count
                    done += count
                    bar.advance(count * per_iteration)
                if done == (history.iterations[-1] if history.iterations else 0):
                    break
                runs, metrics, policies = programs.evaluate(runs, spread)
                chunk = history.add(done, layout.gather(metrics), layout.gather(policies))
                bar.report(work.headline(chunk))
                if on_chunk is not None:
                    on_chunk(history.env_steps[-1], chunk)
            if not history.iterations:
                raise KeyboardInterrupt(stop.signal)
        except BaseException:
            # Nothing already computed is lost: what was evaluated is saved before the error goes on.
            if directory is not None and history.iterations:
                result().save(directory, force=True)
            elif directory is not None:
                with contextlib.suppress(OSError):
                    directory.rmdir()
            raise
        finished = result()
        if directory is not None:
            finished.save(directory, force=True)
    _warn_of_failures(finished)
    return finished


def _attributes(layout: Layout) -> dict[str, Any]:
    return {
        "block": layout.block,
        "num_devices": len(set(layout.devices)),
        "num_threads": len(layout.devices),
        "device_kind": layout.devices[0].device_kind,
        **{f"version_{name}": version for name, version in versions().items()},
    }


def _warn_of_failures(result: Result) -> None:
    failed = result.failed
    if failed:
        named = "; ".join(f"seed {seed}" + (f" of {setting}" if setting else "") for setting, seed in failed[:10])
        more = f" and {len(failed) - 10} more" if len(failed) > 10 else ""
        warnings.warn(
            f"{len(failed)} of {result.failed_runs().size} runs have metrics that are not finite: {named}{more}",
            RuntimeWarning,
            stacklevel=4,
        )
