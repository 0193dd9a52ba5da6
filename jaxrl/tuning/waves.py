"""Runs in waves: as many at a time as fit into memory, one wave after another, their states on the host in between."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import tqdm.auto

from envs.errors import UserValueError
from jaxrl.runtime.call import Call, Part
from jaxrl.runtime.driver import SECONDS_PER_CHUNK, advance
from jaxrl.runtime.exhaustion import Exhaustion
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.memory import size
from jaxrl.runtime.memory_plan import Plan, Planner
from jaxrl.runtime.pace import Pace
from jaxrl.runtime.progress import Progress, StopRequest
from jaxrl.runtime.runs import Runs

# Copies of the states on the host while some are chosen to go on: of each wave, of all together, of the chosen.
HELD_COPIES = 3

__all__ = ["Wave", "Waves"]


class Wave(NamedTuple):
    """Runs that have come to an iteration.

    Attributes:
      metrics: of the evaluation there, `{name: [num_runs, ...]}`.
      policies: what a result keeps of them, leaves `[num_runs, ...]`.
      states: likewise, on the host; None where nobody goes on from them.
    """

    metrics: dict[str, np.ndarray]
    policies: Any
    states: Any


class Waves:
    """Advances any number of runs of one program, so many at a time as fit.

    Args:
      call: some of the runs; its programs are compiled here.
      layout: of a wave, with memory enough for it.
      memory: that the process may take, or each device of its own, as in `train`.
      precision: of matrix products.
      held_runs: whose states are on the host between waves.
      progress: whether to say what does not fit.

    Attributes:
      layout: of a full wave.

    Raises:
      ValueError: the size makes no sense, or not even a block of one run fits.
    """

    def __init__(
        self, call: Call, layout: Layout, memory: int | str | None, precision: str, held_runs: int, progress: bool
    ):
        self._call, self._precision = call, precision
        planned = _planned(call, layout, memory, precision, held_runs)
        self.layout = planned.layout(planned.num_slots, layout.devices)
        if progress and (planned.num_parts > 1 or planned.block < layout.block):
            for line in planned.summary.splitlines():
                tqdm.auto.tqdm.write(f"jaxrl: {line}", file=sys.stderr)

    def advance(
        self, arguments: Any, states: Any, iteration: int, target: int, bar: Progress, stop: StopRequest, keep: bool
    ) -> Iterator[Wave]:
        """Brings runs from one iteration to another, and evaluates them.

        Args:
          arguments: of the runs, leaves `[num_runs, ...]`.
          states: likewise, on the host; None begins them.
          iteration, target: that they have reached, and are to reach.
          bar: counts environment steps.
          stop: whether to end after the chunk under way.
          keep: whether the waves are to have states.

        Yields:
          Waves in the order of the runs; ends early where it is to stop.
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
        self, arguments: Any, states: Any, iteration: int, target: int, bar: Progress, stop: StopRequest, keep: bool
    ) -> Wave | None:
        """One wave, None where it was stopped on its way."""
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
    """How many runs go at a time: those of the layout in one wave, or in as many as it takes."""
    one = call.part(Part(np.arange(1), np.arange(1)))
    planner = Planner.of(dataclasses.replace(one, seeds=list(range(layout.num_runs))), layout, memory)
    if planner.limit is not None and planner.on_host and held_runs:
        _, sizes, compiled = planner.compiled(planner.call, layout, 1, precision)
        held = HELD_COPIES * held_runs * sizes.state
        if held + compiled.process >= planner.limit:
            raise UserValueError(
                f"memory is too little for a population of {held_runs} runs: {size(planner.limit)}, where its states "
                f"take {size(held)} beside the {size(compiled.process)} of the process"
            )
        planner = dataclasses.replace(planner, limit=planner.limit - held)
    return planner.fit(precision)
