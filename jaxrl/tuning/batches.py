"""Runs in waves: as many at a time as fit into memory, one wave after another, with states on the host in between."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import tqdm.auto

from envs.errors import UserValueError
from jaxrl.pytrees import Policy, State
from jaxrl.runtime.call import Call, Part
from jaxrl.runtime.drive.chunk_length import Pace
from jaxrl.runtime.drive.driver import SECONDS_PER_CHUNK, advance
from jaxrl.runtime.drive.progress import Progress, StopRequest
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.machine.exhaustion import Exhaustion
from jaxrl.runtime.machine.memory import size
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.plan.planner import Planner
from jaxrl.runtime.runs import Runs

# Copies of the states on the host while runs are selected to continue: of each wave, of all runs, of the selection.
HELD_COPIES = 3

__all__ = ["Wave", "Waves"]


class Wave(NamedTuple):
    """Runs that have reached an iteration.

    Attributes:
      metrics: Metrics of the evaluation, `{name: [num_runs, ...]}`.
      policies: Policies for a result, leaves `[num_runs, ...]`.
      states: States of the runs on the host, leaves `[num_runs, ...]`; None if the runs do not continue.
    """

    metrics: dict[str, np.ndarray]
    policies: Policy
    states: State


class Waves:
    """Advance any number of runs of one program, as many at a time as fit into memory.

    Args:
      call: Call with some of the runs; its programs are compiled by the constructor.
      layout: Layout of a wave, if memory suffices.
      memory: Memory limit of the process, or of each device with its own memory, as in `train`.
      precision: Precision of matrix products.
      held_runs: Number of runs whose states are on the host between waves.
      progress: Whether to report runs that do not fit.

    Attributes:
      layout: Layout of a full wave.

    Raises:
      ValueError: The memory limit is invalid, or not even a block of one run fits.
    """

    def __init__(
        self, call: Call, layout: Layout, memory: int | str | None, precision: str, held_runs: int, progress: bool
    ) -> None:
        self._call, self._precision = call, precision
        planned = _planned(call, layout, memory, precision, held_runs)
        self.layout = planned.layout(planned.num_slots, layout.devices)
        if progress and (planned.num_parts > 1 or planned.block < layout.block):
            for line in planned.summary.splitlines():
                tqdm.auto.tqdm.write(f"jaxrl: {line}", file=sys.stderr)

    def advance(
        self, arguments: Any, states: State, iteration: int, target: int, bar: Progress, stop: StopRequest, keep: bool
    ) -> Iterator[Wave]:
        """Advance runs from one iteration to another, and evaluate them.

        Args:
          arguments: Arguments of the runs, leaves `[num_runs, ...]`.
          states: States of the runs on the host, leaves `[num_runs, ...]`; None starts the runs.
          iteration: Iteration that the runs have reached.
          target: Iteration to advance to.
          bar: Progress bar, which counts environment steps.
          stop: Request to end after the current chunk.
          keep: Whether the waves include the states.

        Yields:
          Waves in the order of the runs; fewer if `stop` is set.
        """
        num_runs, begin = len(jax.tree.leaves(arguments)[0]), 0
        while begin < num_runs:
            end = min(begin + self.layout.num_runs, num_runs)
            some, theirs = jax.tree.map(lambda leaf, at=slice(begin, end): np.asarray(leaf)[at], (arguments, states))
            wave = None
            with Exhaustion() as exhaustion:
                wave = self._wave(some, theirs, iteration, target, bar, stop, keep)
            if exhaustion.reason:
                before, block = self.layout.block, exhaustion.narrower(self.layout.block)
                num_runs_of_wave = self.layout.num_runs // before * block
                self.layout = self.layout._replace(block=block, num_runs=num_runs_of_wave)
                exhaustion.warn(before, block, "from the start of this wave")
            elif wave is None:
                return
            else:
                yield wave
                begin = end

    def _wave(
        self, arguments: Any, states: State, iteration: int, target: int, bar: Progress, stop: StopRequest, keep: bool
    ) -> Wave | None:
        """One wave, or None if it was stopped before its end."""
        layout = self.layout._replace(num_runs=len(jax.tree.leaves(arguments)[0]))
        runs = Runs(self._call, arguments, layout, precision=self._precision, states=states, iteration=iteration)
        pace = Pace(SECONDS_PER_CHUNK, layout.num_blocks)
        for count in advance(runs, target, pace, stop):
            bar.advance(count * self._call.env_steps_per_iteration * layout.num_runs)
        if runs.iteration < target:
            return None
        metrics, policies = runs.evaluate()
        return Wave(metrics, policies, runs.states() if keep else None)


def _planned(call: Call, layout: Layout, memory: int | str | None, precision: str, held_runs: int) -> Plan:
    """The plan of a wave: all runs of the layout at once, or as many as fit."""
    one = call.part(Part(np.arange(1), np.arange(1)))
    planner = Planner.of(dataclasses.replace(one, seeds=list(range(layout.num_runs))), layout, memory)
    if planner.limit is not None and planner.on_host and held_runs:
        _, sizes, compiled = planner.compiled(planner.call, layout, 1, precision)
        held = HELD_COPIES * held_runs * sizes.state
        if held + compiled.process >= planner.limit:
            raise UserValueError(
                f"memory must be above {size(held + compiled.process)} for a population of {held_runs} runs, "
                f"{size(held)} for its states and {size(compiled.process)} for the process, got {size(planner.limit)}"
            )
        planner = dataclasses.replace(planner, limit=planner.limit - held)
    return planner.fit(precision)
