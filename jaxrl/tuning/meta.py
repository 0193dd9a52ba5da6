"""Meta-training: an evolution strategy over numbers inside an algorithm, scored by whole inner trainings."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Unpack

import jax
import numpy as np

from envs.base import Environment
from envs.errors import UserTypeError, UserValueError
from envs.settings import own_settings
from jaxrl.algorithms.contract import Algorithm, check_members
from jaxrl.algorithms.strategies import Strategy, make_strategy
from jaxrl.checks import check_choice, check_count
from jaxrl.discounts.parsing import as_discount
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, seeds_that_fit, shard_of, sharded
from jaxrl.runtime.checkpoints.identity import identity_of, precision_in_force
from jaxrl.runtime.checkpoints.store import Checkpoints, begun_in
from jaxrl.runtime.drive.driver import drive
from jaxrl.runtime.drive.observers import watched
from jaxrl.runtime.drive.progress import StopRequest, stop_on_signals
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.options import MetaOptions, Options, checked
from jaxrl.runtime.programs import room_for
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.fitness import OBJECTIVES, SHAPINGS
from jaxrl.tuning.outer.held_out import held_out_results
from jaxrl.tuning.outer.inner_task import InnerTask, algorithm_on, require_effect, under_discount
from jaxrl.tuning.outer.outer_runs import OuterHParams, OuterRuns, Population
from jaxrl.tuning.outer.result import MetaResult

LR = 0.03  # of Adam on theta
HELD_OUT = "held-out"  # directory of the results on held-out tasks

__all__ = ["MetaResult", "meta"]

Tasks = Sequence[Algorithm | Environment | str]


@own_settings()
def meta(
    algo: Algorithm,
    theta: Theta,
    tasks: Tasks | None = None,
    *,
    inner_steps: int,
    generations: int = 50,
    population: int = 32,
    inner_seeds: int = 1,
    strategy: str = "open-es",
    lr: float | None = None,
    std: float = 0.1,
    std_decay: float = 1.0,
    shaping: str = "ranks",
    objective: str = "final",
    discount: Any = None,
    evals: int | None = None,
    eval_episodes: int = 16,
    seeds: int | Sequence[int] = 5,
    held_out: Tasks | None = None,
    test_seeds: int = 16,
    **options: Unpack[MetaOptions],
) -> MetaResult:
    """Learn numbers inside an algorithm by the returns of whole trainings: an outer loop over inner trainings.

    Each generation of an evolution strategy trains the algorithm under every member of a population of thetas, with
    each inner seed on each task, and moves theta towards those with high returns. Members of a generation share their
    seeds, and by default their noise comes in pairs of opposite signs. The inner training is that of `jaxrl.train`, bit
    for bit: all trainings of a generation, over all outer seeds, are runs of the ordinary driver, in blocks on all
    devices. At the end, trainings on held-out tasks and test seeds compare the learned thetas with their start.

    Args:
      algo: Algorithm whose hyper-parameters contain theta.
      theta: Numbers to learn, such as `jaxrl.learned_discount(algo)`.
      tasks: Tasks of the inner trainings: environments or their names, on which the algorithm is built with the same
        configuration, or algorithms on them; the environment of `algo` if None.
      inner_steps: Number of environment steps of an inner training.
      generations: Number of generations of each outer run.
      population: Number of thetas of a generation.
      inner_seeds: Number of trainings of each theta on each task.
      strategy: Name of an evolution strategy of evosax with a mean, such as "open-es".
      lr: Step size of the strategy's optimiser; None takes 0.03, or 1 for a natural gradient.
      std, std_decay: Standard deviation of theta in a population, and its factor per generation; a strategy without
        them takes the defaults.
      shaping: Shaping of scores: "ranks" within trainings that share task and seed, or "raw" (for open-es) for their
        mean.
      objective: Objective of a training: "final", the return at its end, or "area", the mean over its evaluations.
      discount: Discount under which the objective values rewards, whichever one the algorithm learns by; none if None.
      evals: Number of evaluations of an inner training; None takes 1 for "final" and 4 for "area".
      eval_episodes: Number of episodes of each evaluation.
      seeds: Number of outer seeds, or the seeds: independent repetitions of the whole call.
      held_out: Tasks of the final comparison, in the forms of `tasks`; the tasks themselves if None.
      test_seeds: Number of test seeds of each theta on each held-out task; 0 for no comparison.
      **options: Options of execution, see `jaxrl.runtime.options.MetaOptions`. `out` gets the outer curves and the
        learned thetas, which `load_result` reads, and the held-out results in `held-out`.

    Returns:
      The learned thetas, the outer curves and the held-out results.

    Raises:
      ValueError, TypeError: An argument is invalid, theta has no effect, or all members of the first generation have
        equal scores.
      ImportError: The extra `evolution` is not installed.
      FileExistsError, ResultError: See `jaxrl.train`.
      KeyboardInterrupt: A signal came before the end of the first generation.

    Source: Salimans et al. (2017), "Evolution strategies as a scalable alternative to reinforcement learning"; outer
    loops over trainings: Lu et al. (2022), "Discovered policy optimisation".
    """
    chosen = checked(meta, MetaOptions, options)
    check_members(algo)
    if not isinstance(theta, Theta):
        raise UserTypeError(f"theta takes a Theta, such as jaxrl.learned_discount(algo), got {theta!r}")
    counts = {"inner_steps": inner_steps, "generations": generations, "inner_seeds": inner_seeds}
    for name, count in {**counts, "eval_episodes": eval_episodes}.items():
        check_count(name, count)
    check_count("population", population, 2)
    check_count("test_seeds", test_seeds, 0)
    check_choice("objective", objective, OBJECTIVES)
    check_choice("shaping", shaping, SHAPINGS)
    if evals is None:
        evals = 1 if objective == "final" else 4
    check_count("evals", evals)
    if (objective == "final") != (evals == 1):
        raise UserValueError(
            f"evals must be 1 for objective='final' and at least 2 for 'area', got {evals} for {objective!r}"
        )
    for name, value in (("lr", lr), ("std", std), ("std_decay", std_decay)):
        if value is None and name == "lr":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UserValueError(f"{name} must be a finite number above 0, got {value!r}")
    algo = _with_discount(algo)
    metric = "return" if discount is None else "discounted_return"

    def on(task: Any, argument: str) -> Algorithm:
        each = _with_discount(algorithm_on(algo, task, argument))
        require_effect(theta, each)
        return each if discount is None else under_discount(each, discount)

    algos = [on(task, "tasks") for task in _listed("tasks", tasks, [algo])]
    others = algos if held_out is None else [on(task, "held_out") for task in _listed("held_out", held_out, [])]
    outer_seeds = seeds_that_fit(seeds)
    evolution = make_strategy(strategy, population, theta.initial, raw=shaping == "raw")
    _check_strategy(strategy, evolution, {"lr": lr, "std": std, "std_decay": std_decay})
    inner = [InnerTask(each, theta, inner_steps, evals, eval_episodes, objective, metric) for each in algos]
    sizes = Population(population, inner_seeds, shaping)
    hparams = OuterHParams((1.0 if evolution.natural else LR) if lr is None else lr, std, std_decay)
    attrs = {
        "theta_initial": _digest(theta.initial),
        "tasks": "; ".join(_description(each) for each in algos),
        "strategy": strategy,
        "shaping": shaping,
        "objective": objective,
        "discount": "none" if discount is None else str(as_discount(discount)),
        **hparams._asdict(),
        **{"population": population, "inner_steps": inner_steps, "inner_seeds": inner_seeds},
        **{"evals": evals, "eval_episodes": eval_episodes},
    }
    call = _outer_call(theta, inner, sizes, outer_seeds, generations, attrs)
    if chosen.shard is not None:
        call = sharded(call, *shard_of(chosen.shard))
    with room_for(3 * (len(algos) + len(others))), stop_on_signals(chosen.progress) as stop:
        result = _carried_out(call, inner, evolution, hparams, sizes, chosen, stop)
        compared: dict[str, Result] = {}
        if test_seeds and not result.metrics.attrs["interrupted"] and not stop:
            compared = held_out_results(
                others,
                theta,
                jax.tree.map(lambda leaf: leaf[0], result.policies),
                result.seeds,
                env_steps=inner_steps,
                eval_episodes=eval_episodes,
                test_seeds=test_seeds,
                directory=None if chosen.out is None else Path(chosen.out) / HELD_OUT,
                options=chosen,
            )
    return MetaResult(result, theta, tuple(algos), compared, metric)


def _carried_out(
    call: Call,
    inner: Sequence[InnerTask],
    strategy: Strategy,
    hparams: OuterHParams,
    sizes: Population,
    options: Options,
    stop: StopRequest,
) -> Result:
    """Result of the outer runs, resumed from the checkpoint of an earlier call if there is one."""
    begun = begun_in(options.out, trust=options.trust) if options.resume else None
    started = time.perf_counter()
    if begun is not None and "block" in begun and options.block is None:
        options = Options({**vars(options), "block": begun["block"]})
    runs = OuterRuns(inner, strategy, hparams, sizes, call.seeds, options, stop)
    identity = {} if options.out is None else identity_of(call, runs.layout, options.precision)
    directory = None if options.out is None else Path(options.out)
    checkpoints = Checkpoints(directory, identity, begun=begun, minutes=options.checkpoint_minutes, trust=options.trust)
    with watched(call, options, checkpoints, stop) as watch:
        attrs = {
            "precision": precision_in_force(options.precision),
            "compile_seconds": time.perf_counter() - started,
        }
        result = drive(call, call.whole, runs, checkpoints, watch, attrs)
        watch.followers.finish(result)
    return result


def _outer_call(
    theta: Theta,
    inner: Sequence[InnerTask],
    sizes: Population,
    seeds: list[int],
    generations: int,
    attrs: Mapping[str, Any],
) -> Call:
    """Call whose runs are outer seeds and whose iterations are generations."""
    names = " + ".join(task.name for task in inner)
    algorithm = f"meta {theta.name} of {inner[0].algo.name}"
    return Call(
        loop=Loop(_driven, _driven, _driven, _driven),
        identity=(),
        points=np.arange(1, generations + 1),
        env_steps_per_iteration=sizes.members * sizes.inner_seeds * sum(task.env_steps_of_training for task in inner),
        headline=lambda metrics: f"mean return {np.nanmean(metrics['return']):.4g}",
        reserved=frozenset({"seed", "env_step", "task", "number"}),
        prepared=None,
        env_params=None,
        seeds=seeds,
        sweep=None,
        algo=None,
        hparams=None,
        attrs={
            "algorithm": algorithm,
            "environment": names,
            "algorithm_unknown": f"it is of {algorithm}, whose policies are the learned numbers",
            **attrs,
        },
        last_dims={"theta": ("number",), "task_return": ("task",)},
    )


def _driven(*_: Any) -> NoReturn:
    raise NotImplementedError("generations are those of OuterRuns, which calls the loops of the inner trainings")


def _listed(argument: str, tasks: Any, default: list[Any]) -> list[Any]:
    """Tasks as a list that is not empty."""
    if tasks is None:
        return default
    if not isinstance(tasks, Sequence) or isinstance(tasks, str | Algorithm):
        raise UserTypeError(f"{argument} takes a list, such as ['cartpole', 'acrobot'], got {tasks!r}")
    if not tasks:
        raise UserValueError(f"{argument} takes at least one task, such as ['cartpole'], got none")
    return list(tasks)


def _with_discount(algo: Algorithm) -> Algorithm:
    """Algorithm with its discount as an object, where it has one."""
    discount = getattr(algo.hparams, "discount", None)
    if discount is None:
        return algo
    return algo._replace(hparams=dataclasses.replace(algo.hparams, discount=as_discount(discount)))


def _check_strategy(name: str, strategy: Strategy, values: Mapping[str, float | None]) -> None:
    if strategy.evaluates_first:
        raise UserValueError(
            f"strategy must be one with a mean, such as 'open-es' or 'snes', got {name!r}, which evolves single members"
        )
    takes = {"lr": strategy.has_lr, "std": strategy.has_std, "std_decay": strategy.has_decay}
    for parameter, default in (("lr", None), ("std", 0.1), ("std_decay", 1.0)):
        if not takes[parameter] and values[parameter] != default:
            raise UserValueError(f"{parameter} has no effect with strategy={name!r}; leave it out")


def _digest(initial: Any) -> str:
    """Checksum of the start of theta, with its structure."""
    leaves, structure = jax.tree.flatten(initial)
    data = b"".join(np.asarray(leaf, np.float32).tobytes() for leaf in leaves)
    return hashlib.sha256(str(structure).encode() + data).hexdigest()


def _description(algo: Algorithm) -> str:
    return f"{algo.name} on {algo.env}: {algo.config}, {algo.hparams}"
