"""Plan of a call, without executing it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import jax

from envs.arguments import check_flag
from envs.errors import UserValueError
from envs.settings import in_own_settings
from envs.wrappers.wrapper import params_for
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import randomised
from jaxrl.pytrees import EnvParams, HParams
from jaxrl.runtime.accelerators.absent_device import absent_device, target_of
from jaxrl.runtime.accelerators.bounds import Bound, bound_of
from jaxrl.runtime.accelerators.targets import named_target
from jaxrl.runtime.call import Call, seeds_that_fit, shard_of, sharded
from jaxrl.runtime.layout import Layout, plan_layout
from jaxrl.runtime.options import PlanOptions, checked
from jaxrl.runtime.plan.buffers import description
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.plan.planner import Planner, programs_of
from jaxrl.runtime.runs import Runs
from jaxrl.runtime.training import Randomised, points_of, training_call, with_env_steps

MEASURED_SECONDS = 2.0

__all__ = ["Plan", "compile_groups", "plan"]


@in_own_settings
def plan(
    algo: Algorithm | Sequence[Algorithm] | str,
    hparams: HParams = None,
    *,
    seeds: int | Sequence[int] = 1,
    env_steps: int | None = None,
    evals: int = 10,
    eval_episodes: int = 64,
    env_params: EnvParams = None,
    randomise: Randomised = None,
    checkpoints: bool = False,
    measure: bool = True,
    target: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan of `train` with the same arguments: layout, memory and time; nothing is trained.

    Args:
      algo: Algorithm to train, or two names in place of `algo` and `hparams`, as in `train`; a sequence is compiled
        once for each group that differs in static fields.
      hparams, seeds, env_steps, evals, eval_episodes, env_params, randomise: Arguments of `train`.
      checkpoints: Whether checkpoints of the states are written, as `train` does with `out`.
      measure: Flag to run a few iterations of one block to estimate the time; without effect with `target`.
      target: Name of an accelerator that this machine need not have: t4, l4, a100, h100, h200, tpu-v5e or tpu-v6e.
        Programs are compiled for it, and the plan has its memory and a lower bound on the time in place of an estimate.
        This takes the extra `cuda12`, `cuda13` or `tpu`, and one algorithm.
      **options: Options of `train` that change the plan, see `jaxrl.runtime.options.PlanOptions`; `shard` takes one
        algorithm.

    Raises:
      ValueError, TypeError: An argument is invalid, or not even a block of one run fits into memory.
      ImportError: The compiler for the target is not installed.
    """
    check_flag("checkpoints", checkpoints)
    check_flag("measure", measure)
    chosen = checked(plan, PlanOptions, options)
    devices = chosen.devices if target is None else _absent(target, chosen.devices)
    is_one = isinstance(algo, Algorithm | str) or not isinstance(algo, Sequence)  # an Algorithm is a tuple, too
    algos: list[Any] = [algo] if is_one else list(algo)
    for i, each in enumerate(algos):
        algos[i], hparams, env_steps = with_env_steps("plan", each, hparams, env_steps, show=False)
        if randomise is not None:
            plain, algos[i] = algos[i].env, randomised(algos[i], randomise)
            env_params = None if env_params is None else params_for(algos[i].env, plain, env_params)
    groups = compile_groups(algos)
    if not groups:
        raise UserValueError("algo must be an algorithm, or several, got none")
    if chosen.shard is not None and len(algos) > 1:
        raise UserValueError(f"shard takes one algorithm, got {len(algos)}")
    if target is not None and len(groups) > 1:
        raise UserValueError(f"target takes algorithms that share one compilation, got {len(groups)} compilations")
    assert env_steps is not None  # there is an algorithm
    plans = []
    for group in groups:
        first, numbers = algos[group[0]], seeds_that_fit(seeds, hparams)
        call = training_call(
            first,
            hparams,
            # Algorithms that share programs train in one call with that many more runs; their seeds do not matter here.
            seeds=numbers if len(group) == 1 else list(range(len(numbers) * len(group))),
            points=points_of(first, env_steps, evals, eval_episodes),
            eval_episodes=eval_episodes,
            env_params=env_params,
            keep=chosen.keep,
        )
        layout = plan_layout(call.num_runs, chosen.block, devices, call.cpu_block)
        if chosen.shard is not None:
            call = sharded(call, *shard_of(chosen.shard))
            layout = plan_layout(call.num_runs, layout.block, devices)
        planned = Planner.of(call, layout, chosen.memory, checkpoints).fit(chosen.precision)
        planned = dataclasses.replace(planned, replay=description(call))
        if target is not None:
            planned = dataclasses.replace(planned, bound=_bound(call, planned, layout, chosen.precision))
        elif measure:
            seconds = _seconds_of_block(call, planned, layout, chosen.precision)
            planned = dataclasses.replace(planned, seconds=seconds * planned.num_blocks * planned.num_parts)
        if len(group) > 1:
            num_settings = planned.num_settings * len(group)
            planned = dataclasses.replace(planned, num_settings=num_settings, num_seeds=len(numbers))
        plans.append(planned)
    return dataclasses.replace(
        max(plans, key=lambda planned: planned.memory),
        compilations=len(plans),
        num_settings=sum(planned.num_settings for planned in plans),
        num_parts=sum(planned.num_parts for planned in plans),
        seconds=sum(planned.seconds or 0.0 for planned in plans) if measure and target is None else None,
    )


def compile_groups(algos: Sequence[Algorithm]) -> list[list[int]]:
    """Positions of algorithms that share compiled programs: those of equal environment and configuration.

    Algorithms that differ in traced values only, such as a learning rate, form one group; the number of groups
    is the number of compilations. Different structures, such as discounts of two families, are
    different programs.
    """
    groups: dict[Any, list[int]] = {}
    for i, algo in enumerate(algos):
        structure = jax.tree.structure(algo.hparams)
        signature = (algo.env, algo.functions, structure)
        groups.setdefault(signature, []).append(i)
    return list(groups.values())


def _absent(target: str, devices: Sequence[Any] | None) -> list[Any]:
    """The device that a target stands for."""
    if devices is not None:
        raise UserValueError(f"devices has no effect with target, got {devices!r}; leave it out")
    return [absent_device(named_target(target))]


def _bound(call: Call, planned: Plan, layout: Layout, precision: str) -> Bound:
    """Bound on the time, from the programs that the plan was made with."""
    device = layout.devices[0]
    target = target_of(device)
    assert target is not None
    programs, _ = programs_of(call, layout._replace(block=planned.block, devices=(device,)), precision)
    text = programs.executables["advance"][device].as_text()
    return bound_of(text, target, int(call.points[-1]), -(-call.num_runs // planned.block))


def _seconds_of_block(call: Call, planned: Plan, layout: Layout, precision: str) -> float:
    """Time in seconds of one block on every device, from the first iteration to the last evaluation."""
    devices = layout.devices[: planned.num_threads]
    some = Layout(min(planned.block * len(devices), call.num_runs), planned.block, 1, devices)
    runs = Runs(call, jax.tree.map(lambda leaf: leaf[: some.num_runs], call.arguments()), some, precision=precision)

    def timed(function: Callable[..., Any], *arguments: Any) -> float:
        started = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - started

    runs.advance(1)
    once = timed(runs.advance, 1)
    trips = max(min(int(MEASURED_SECONDS / once), 1000), 1)
    advancing = timed(runs.advance, trips)
    return float(call.points[-1]) * advancing / trips + len(call.points) * timed(runs.evaluate)
