"""Populations of trials: one compiled program per static group, and waves of runs of equal size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.pytrees import State
from jaxrl.results.statistics import iqm
from jaxrl.runtime.call import Call
from jaxrl.runtime.drive.progress import Progress, StopRequest
from jaxrl.runtime.layout import Layout, plan_layout
from jaxrl.runtime.training import training_call
from jaxrl.tuning.batches import Waves
from jaxrl.tuning.halving import Halving, survivors
from jaxrl.tuning.shared_study import Asked, Outcome
from jaxrl.tuning.space import Setting, Space

AGGREGATES: dict[str, Callable[[np.ndarray], float]] = {
    "mean": lambda returns: float(np.mean(returns)),
    "iqm": lambda returns: float(iqm(returns)),
}


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Settings that all trials of a search share.

    Attributes:
      space: Search space.
      env_steps: Number of environment steps of each run.
      seeds: Tuning seeds.
      eval_episodes: Number of episodes of each evaluation with greedy actions, and as many with sampled ones.
      aggregate: Aggregate of the returns over the seeds: "mean" or "iqm".
      halving: Successive halving of a population; None trains every trial to its end.
      population: Number of trials trained together.
      layout: Layout of a wave of runs, if memory suffices.
      memory: Memory limit, as in `train`.
      precision: Precision of matrix products.
      progress: Whether to show progress.
    """

    space: Space
    env_steps: int
    seeds: list[int]
    eval_episodes: int
    aggregate: str
    halving: Halving | None
    population: int
    layout: Layout
    memory: int | str | None
    precision: str
    progress: bool
    _waves: dict[tuple[Any, ...], Waves] = dataclasses.field(default_factory=dict)

    @property
    def rungs(self) -> list[int]:
        """Environment steps at which trials are compared; the last is the length of a run."""
        return [self.env_steps] if self.halving is None else self.halving.rungs(self.env_steps)

    def waves_of(self, group: tuple[Any, ...], call: Call) -> Waves:
        """The waves of a static group; its programs are compiled at the first use."""
        if group not in self._waves:
            held_runs = 0 if self.halving is None else self.population * len(self.seeds)
            self._waves[group] = Waves(call, self.layout, self.memory, self.precision, held_runs, self.progress)
        return self._waves[group]

    def layout_of(self, group: tuple[Any, ...]) -> Layout:
        """Layout of a wave of a static group, reduced to memory once that is known."""
        return self._waves[group].layout if group in self._waves else self.layout


def check_rungs(rungs: Sequence[int], space: Space) -> None:
    """Check that trials are no shorter than an iteration, and that rungs end after different iterations.

    Args:
      rungs: Ends of the rungs in environment steps, increasing.
      space: Search space, whose static groups can differ in the environment steps of an iteration.

    Raises:
      ValueError: In some group a trial is shorter than an iteration, or two rungs end after the same iteration.
    """
    for labels, algo in space.groups.items():
        per_iteration = algo.env_steps_per_iteration
        where = f" with {space.shown(labels)}" if labels else ""
        if per_iteration > rungs[-1]:
            raise UserValueError(
                f"env_steps must be at least one iteration of every trial, which takes {per_iteration:,}{where}, "
                f"got {rungs[-1]:,}"
            )
        iterations = [-(-env_steps // per_iteration) for env_steps in rungs]
        if len(set(iterations)) < len(iterations):
            raise UserValueError(
                f"halving compares trials after {_listed(rungs)} env steps, which are {_listed(iterations)} iterations "
                f"of {per_iteration:,} each{where}, and needs different numbers of iterations: raise env_steps, "
                f"first_env_steps or eta"
            )


class _Batch(NamedTuple):
    """Trials of one static group between two rungs, on the host.

    Attributes:
      group: Static values of the group.
      call: Training call of the group.
      trials: Positions of the trials in the population.
      arguments: Arguments of their runs, leaves `[num_trials * num_seeds, ...]`.
      states: States of their runs, leaves `[num_trials * num_seeds, ...]`; None before the start.
      iteration: Iteration that they have reached.
    """

    group: tuple[Any, ...]
    call: Call
    trials: np.ndarray
    arguments: Any
    states: State
    iteration: int

    def take(self, kept: np.ndarray, num_seeds: int) -> _Batch:
        """The batch with only the trials at the positions `kept`."""
        runs = (kept[:, None] * num_seeds + np.arange(num_seeds)).ravel()
        arguments, states = jax.tree.map(lambda leaf: np.asarray(leaf)[runs], (self.arguments, self.states))
        return self._replace(trials=self.trials[kept], arguments=arguments, states=states)


def wave_layout(num_runs: int, block: int | None, devices: Sequence[Any] | None) -> Layout:
    """Layout of the runs of a wave: one block for every device, smaller if there are only about `num_runs` runs."""
    planned = plan_layout(num_runs, block, devices)
    return Layout(planned.block * len(planned.devices), planned.block, 1, planned.devices)


def call_of(
    space: Space, settings: Sequence[Setting], seeds: list[int], eval_episodes: int, points: Sequence[int]
) -> Call:
    """The training call of settings of one group, for `arguments_of`."""
    algo = space.groups[space.static_part(settings[0])]
    per_iteration = algo.env_steps_per_iteration
    iterations = np.unique([-(-env_steps // per_iteration) for env_steps in points])
    return training_call(
        algo,
        space.sweep(settings),
        seeds=seeds,
        points=iterations,
        eval_episodes=eval_episodes,
        env_params=space.env_params,
    )


def arguments_of(call: Call, num_settings: int) -> Any:
    """`(seed, hparams, env_params)` of the runs of the first settings, leaves `[num_settings * num_seeds, ...]`."""
    runs = np.arange(num_settings * len(call.seeds)) % call.num_runs  # without traced paths one setting represents all
    return jax.tree.map(lambda leaf: np.asarray(leaf)[runs], call.arguments())


def do_trials(
    tuning: Tuning, asked: Sequence[Asked], tell: Callable[[Outcome], None], bar: Progress, stop: StopRequest
) -> None:
    """Train a population, and report the outcome of each trial as soon as it has finished.

    Args:
      tuning: Settings that all trials share.
      asked: Trials of the population.
      tell: Function called with the outcome of each finished trial; not called for trials that `stop` interrupts.
      bar: Progress bar, which counts environment steps.
      stop: Request to end after the current chunk.
    """
    num_seeds, rungs = len(tuning.seeds), tuning.rungs
    batches = list(_batches(tuning, [trial.setting for trial in asked]))
    scores, returns = np.full(len(asked), np.nan), np.full((len(asked), num_seeds), np.nan)

    def report(trial: int, state: str, env_steps: int) -> None:
        score = float(scores[trial])
        state = state if math.isfinite(score) else "failed"
        number, setting = asked[trial]
        tell(Outcome(number, state, setting, score, returns[trial].tolist(), env_steps))

    for rung, env_steps in enumerate(rungs):
        last = rung == len(rungs) - 1
        advanced = []
        for batch in batches:
            per_iteration = batch.call.env_steps_per_iteration
            target = -(-env_steps // per_iteration)
            steps_each = target * per_iteration * num_seeds
            states = []
            filled = 0
            for wave in tuning.waves_of(batch.group, batch.call).advance(
                batch.arguments, batch.states, batch.iteration, target, bar, stop, keep=not last
            ):
                values = wave.metrics["return"]
                at = filled + np.arange(len(values))
                returns[batch.trials[at // num_seeds], at % num_seeds] = values
                for trial in batch.trials[filled // num_seeds : (filled + len(values)) // num_seeds]:
                    finite = np.isfinite(returns[trial]).all()
                    scores[trial] = AGGREGATES[tuning.aggregate](returns[trial]) if finite else np.nan
                    if last:
                        report(int(trial), "complete", steps_each)
                filled += len(values)
                if not last:
                    states.append(wave.states)
            if stop:
                return
            joined = None if last else jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)
            advanced.append((batch._replace(states=joined, iteration=target), steps_each))
        if last or tuning.halving is None:
            return
        left = np.concatenate([batch.trials for batch, _ in advanced])
        chosen = set(left[survivors(scores[left], tuning.halving.eta)].tolist())
        batches = []
        for batch, steps_each in advanced:
            on = np.asarray([int(trial) in chosen for trial in batch.trials], bool)
            for trial in batch.trials[~on]:
                report(int(trial), "pruned", steps_each)
            if on.any():
                batches.append(batch.take(np.flatnonzero(on), num_seeds))
        if not batches:
            return


def _batches(tuning: Tuning, settings: Sequence[Setting]) -> Iterator[_Batch]:
    by_group: dict[tuple[Any, ...], list[int]] = {}
    for i, setting in enumerate(settings):
        by_group.setdefault(tuning.space.static_part(setting), []).append(i)
    for group, members in by_group.items():
        chosen = [settings[i] for i in members]
        call = call_of(tuning.space, chosen, tuning.seeds, tuning.eval_episodes, [tuning.env_steps])
        yield _Batch(group, call, np.asarray(members), arguments_of(call, len(members)), None, 0)


def _listed(numbers: Sequence[int]) -> str:
    return f"{', '.join(f'{number:,}' for number in numbers[:-1])} and {numbers[-1]:,}"
