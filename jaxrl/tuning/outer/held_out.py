"""Learned thetas on tasks and seeds that the outer loop has not seen."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl.algorithms.contract import Algorithm
from jaxrl.pytrees import PyTree
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.identity import identity_of, same_runs
from jaxrl.runtime.checkpoints.identity_file import ASKED, IDENTITY, read_identity
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import Options, RunOptions, checked
from jaxrl.runtime.training import train, training_call
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.inner_task import stacked, sweep_of
from jaxrl.tuning.outer.meta_table import START, digest_of, folders_in, numbered
from jaxrl.tuning.outer.probes import outside_ranges

FIRST_TEST_SEED = 1_000_000  # inner seeds are drawn from all of uint32, which repeats one with negligible probability
EVALS = 10

__all__ = ["EVALS", "FIRST_TEST_SEED", "Comparison"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Trainings on held-out tasks, under theta at its start and as each outer run learned it.

    Attributes:
      algos: Algorithms on the held-out tasks.
      theta: Theta.
      env_steps: Number of environment steps of a training.
      eval_episodes: Number of episodes of an evaluation.
      test_seeds: Number of test seeds of each theta; 0 for no comparison.
      objective: Name of the objective, see `fitness.objective_of`, which results record.
      discount: Discount of the objective, which results record.
    """

    algos: Sequence[Algorithm]
    theta: Theta
    env_steps: int
    eval_episodes: int
    test_seeds: int
    objective: str
    discount: str

    def check(self, seeds: Sequence[int]) -> None:
        """Raise the errors of the calls, before anything is compiled.

        Args:
          seeds: Outer seeds.
        """
        if self.test_seeds:
            for algo in self.algos:
                self._call(algo, [self.theta.initial] * len(seeds), seeds)

    def results(
        self,
        learned: Sequence[PyTree],
        seeds: Sequence[int],
        directory: Path | None,
        options: Options,
        stop: StopRequest,
    ) -> dict[str, Result]:
        """Results by the names of the tasks.

        Args:
          learned: Learned theta of each outer seed; those outside of ranges are left out, with a warning.
          seeds: Outer seeds.
          directory: Directory to save the results in, one directory for each task; None saves nothing.
          options: Options of the execution.
          stop: Stop request that a signal sets.

        Returns:
          Results with the axis `theta`: "start", and "seed 0", "seed 1", ... for the outer seeds; none after a signal.
          A directory with the trainings of the same thetas is resumed, one with others is replaced, and one of an
          earlier comparison with a task that is not among these is deleted.
        """
        outs = [
            None if directory is None else directory / f"{i}-{algo.env.name.replace('/', '-')}"
            for i, algo in enumerate(self.algos)
        ]
        if directory is not None:
            for other in {*folders_in(directory)}.difference(outs):
                shutil.rmtree(other)
        results: dict[str, Result] = {}
        names = numbered([algo.env.name for algo in self.algos])
        for name, algo, out in zip(names, self.algos, outs, strict=True):
            outside, error = outside_ranges(algo, self._applied(algo, learned))
            if error is not None:
                left_out = ", ".join(str(seed) for seed, at in zip(seeds, outside, strict=True) if at)
                warnings.warn(
                    f"theta as learned leads to hyper-parameters of {algo.name} on {name} outside of their ranges for "
                    f"the outer seeds {left_out}, which are left out of the comparison: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )
            within = [i for i in range(len(seeds)) if not outside[i]]
            call = self._call(algo, [learned[i] for i in within], [seeds[i] for i in within])
            attrs = {**call.attrs, "held_out_tasks": len(self.algos), "learned_thetas": digest_of(learned)}
            try:
                results[name] = _trained(dataclasses.replace(call, attrs=attrs), out, options, stop)
            except KeyboardInterrupt as interrupt:  # before there was anything to save
                stop.signal = stop.signal or (interrupt.args[0] if interrupt.args else signal.SIGINT)
            if stop:
                return {}
        return results

    def _applied(self, algo: Algorithm, thetas: Sequence[PyTree]) -> Any:
        """Hyper-parameters of an algorithm under thetas, leaves `[N, ...]`."""
        return jax.jit(jax.vmap(lambda theta: self.theta.apply(theta, algo.hparams)))(stacked(thetas))

    def _call(self, algo: Algorithm, learned: Sequence[PyTree], seeds: Sequence[int]) -> Call:
        """Call of the trainings of a task."""
        call = training_call(
            algo,
            sweep_of(self._applied(algo, [self.theta.initial, *learned]), [START, *(f"seed {seed}" for seed in seeds)]),
            seeds=list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + self.test_seeds)),
            points=evaluation_points(self.env_steps, EVALS, algo.env_steps_per_iteration),
            eval_episodes=self.eval_episodes,
        )
        attrs = {**call.attrs, "objective_discount": self.discount, "objective": self.objective}
        return dataclasses.replace(call, attrs=attrs)


def _trained(call: Call, out: Path | None, options: Options, stop: StopRequest) -> Result:
    """The result of a call in its own directory, resumed if the directory holds the same call."""
    own: RunOptions = {
        "block": options.block,
        "devices": options.devices,
        "memory": options.memory,
        "precision": options.precision,
        "progress": options.progress,
    }
    begun = None
    if out is not None:
        own |= {"out": out, "checkpoint_minutes": options.checkpoint_minutes, "trust": options.trust}
        if (out / IDENTITY).is_file():
            begun = read_identity(out, trust=options.trust)
            layout = plan_layout(call.num_runs, options.block, options.devices, call.cpu_block)
            current = identity_of(call, layout, options.precision)
            begun = begun if same_runs(begun, current, (ASKED, "block")) else None
        own |= {"resume": begun is not None, "force": begun is None}
    return carry_out(call, checked(train, RunOptions, own), begun=begun, stop=stop)
