"""What a call will take: its plan, without carrying it out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax

from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_choice
from jaxrl.runtime.call import Call
from jaxrl.runtime.driver import PRECISIONS
from jaxrl.runtime.execution import shard_of, sharded
from jaxrl.runtime.layout import Layout, plan_layout
from jaxrl.runtime.memory_plan import Plan, Planner
from jaxrl.runtime.programs import Programs, forget
from jaxrl.runtime.training import points_of, training_call
from jaxrl.sweeps.batching import seed_list

MEASURED_SECONDS = 2.0

__all__ = ["Plan", "compile_groups", "plan", "planned_call"]


def plan(
    algo: Algorithm | Sequence[Algorithm],
    hparams: Any = None,
    *,
    seeds: int | Sequence[int] = 1,
    env_steps: int,
    evals: int = 10,
    eval_episodes: int = 64,
    env_params: Any = None,
    block: int | None = None,
    devices: Sequence[Any] | None = None,
    memory: int | str | None = None,
    shard: str | tuple[int, int] | None = None,
    checkpoints: bool = False,
    precision: str = "default",
    measure: bool = True,
) -> Plan:
    """What `train` would do with the same arguments, and what that would take; nothing is trained.

    Args:
      algo: what to train; of several, those that differ in what is static are compiled one by one.
      hparams, seeds, env_steps, evals, eval_episodes, env_params, block, devices, precision: as in `train`.
      memory: `"8GiB"`, or bytes: of the whole process, or of each device where these have memory of
        their own. 80 % of what is free if None.
      shard: the part of the runs to plan, as in `train`; with one algorithm.
      checkpoints: whether the states are to be written now and then, as `train` does with `out`.
      measure: whether to run a few iterations of one block, for the expected time.

    Raises:
      ValueError, TypeError: bad arguments; or not even a block of one run fits.
    """
    check_choice("precision", precision, PRECISIONS)
    algos = [algo] if isinstance(algo, Algorithm) else list(algo)
    groups = compile_groups(algos)
    if not groups:
        raise ValueError("algo must be an algorithm, or several, got none")
    if shard is not None and len(algos) > 1:
        raise ValueError(f"shard takes one algorithm, got {len(algos)}")
    plans = []
    for group in groups:
        chosen, numbers = algos[group[0]], seed_list(seeds)
        call = training_call(
            chosen,
            hparams,
            # Algorithms that share programs train in one call: as many runs more, whatever these are named.
            seeds=numbers if len(group) == 1 else list(range(len(numbers) * len(group))),
            points=points_of(chosen, env_steps, evals, eval_episodes),
            eval_episodes=eval_episodes,
            env_params=env_params,
        )
        layout = plan_layout(call.num_runs, block, devices)
        if shard is not None:
            call = sharded(call, *shard_of(shard))
            layout = plan_layout(call.num_runs, layout.block, devices)
        planned = planned_call(Planner.of(call, layout, memory, checkpoints), precision, measure)
        if len(group) > 1:
            num_settings = planned.num_settings * len(group)
            planned = dataclasses.replace(planned, num_settings=num_settings, num_seeds=len(numbers))
        plans.append(planned)
    return dataclasses.replace(
        max(plans, key=lambda planned: planned.memory),
        compilations=len(plans),
        num_settings=sum(planned.num_settings for planned in plans),
        num_parts=sum(planned.num_parts for planned in plans),
        seconds=sum(planned.seconds or 0.0 for planned in plans) if measure else None,
    )


def compile_groups(algos: Sequence[Algorithm]) -> list[list[int]]:
    """Positions of algorithms that share compiled programs: those of equal environment and configuration.

    What differs in traced values only, such as a learning rate, is one group; the number of groups
    is the number of compilations. Different structures, such as discounts of two families, are
    different programs.
    """
    groups: dict[Any, list[int]] = {}
    for i, algo in enumerate(algos):
        structure = jax.tree.structure(algo.hparams)
        signature = (algo.env, algo.functions, structure)
        groups.setdefault(signature, []).append(i)
    return list(groups.values())


def planned_call(planner: Planner, precision: str, measure: bool) -> Plan:
    """The plan of a call, its programs compiled."""
    num_parts, layout = 1, planner.layout
    while True:
        programs, sizes, compiled = planner.compiled(planner.call, layout, num_parts, precision)
        if compiled.fits:
            break
        del programs
        forget()
        planned = planner.fitted(sizes, compiled.process, compiled)
        num_parts = planned.num_parts
        layout = planned.layout(planner.runs_of_part(num_parts), planner.layout.devices)
    if not measure:
        return compiled
    seconds = _seconds_of_block(planner.call, layout, programs)
    return dataclasses.replace(compiled, seconds=seconds * compiled.num_blocks * compiled.num_parts)


def _seconds_of_block(call: Call, layout: Layout, programs: Programs) -> float:
    """What one block on every device takes, from the first iteration to the last evaluation."""
    some = layout._replace(num_runs=min(layout.num_runs, call.num_runs), num_blocks=1)
    first = jax.tree.map(lambda leaf: leaf[: some.num_runs], call.arguments())
    arguments = some.spread(first)

    def timed(function: Any, *given: Any) -> tuple[Any, float]:
        started = time.perf_counter()
        return function(*given), time.perf_counter() - started

    runs = programs.advance(programs.init(arguments), arguments, 1)
    runs, once = timed(programs.advance, runs, arguments, 1)
    trips = max(min(int(MEASURED_SECONDS / once), 1000), 1)
    runs, advancing = timed(programs.advance, runs, arguments, trips)
    _, evaluating = timed(programs.evaluate, runs, arguments)
    points = call.work.points
    return float(points[-1]) * advancing / trips + len(points) * evaluating
