"""Meta-training: an evolution strategy over numbers inside an algorithm, scored by complete inner runs."""

from __future__ import annotations

import dataclasses
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Unpack

import numpy as np

from envs.base import Environment
from envs.errors import UserTypeError, UserValueError
from envs.settings import own_settings
from jaxrl.algorithms.contract import Algorithm, check_members
from jaxrl.checks import check_choice, check_count
from jaxrl.discounts.parsing import as_discount
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call, seeds_that_fit, shard_of, sharded
from jaxrl.runtime.checkpoints.identity import identity_of, precision_in_force
from jaxrl.runtime.checkpoints.identity_file import ASKED
from jaxrl.runtime.checkpoints.store import Checkpoints, begun_in
from jaxrl.runtime.drive.driver import drive
from jaxrl.runtime.drive.observers import watched
from jaxrl.runtime.drive.progress import StopRequest, stop_on_signals
from jaxrl.runtime.execution import block_of
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.options import MetaOptions, Options, checked
from jaxrl.runtime.programs import room_for
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.fitness import OBJECTIVES
from jaxrl.tuning.outer.gradient_task import GradientTask
from jaxrl.tuning.outer.held_out import Comparison
from jaxrl.tuning.outer.inner_task import InnerTask, algorithm_on, under_discount
from jaxrl.tuning.outer.learners import GRADIENT, learner_of
from jaxrl.tuning.outer.meta_table import HELD_OUT
from jaxrl.tuning.outer.outer_runs import OuterRuns
from jaxrl.tuning.outer.probes import digest, require_effect
from jaxrl.tuning.outer.result import MetaResult, load_theta

STOPPED = "meta-training stopped"  # beginning of the warning after a signal

__all__ = ["STOPPED", "meta"]

Tasks = Sequence[Algorithm | Environment | str]


@own_settings()
def meta(
    algo: Algorithm,
    theta: Theta,
    tasks: Tasks | None = None,
    *,
    inner_steps: int,
    generations: int = 50,
    population: int | None = None,
    inner_seeds: int = 1,
    strategy: str = "open-es",
    lr: float | None = None,
    std: float | None = None,
    std_decay: float | None = None,
    shaping: str | None = None,
    objective: str = "final",
    discount: Any = None,
    evals: int | None = None,
    eval_episodes: int = 16,
    seeds: int | Sequence[int] = 5,
    held_out: Tasks | None = None,
    test_seeds: int = 16,
    test_steps: int | None = None,
    **options: Unpack[MetaOptions],
) -> MetaResult:
    """Learn numbers inside an algorithm by the returns of complete training runs: an outer loop over inner runs.

    Each generation of an evolution strategy trains the algorithm under every member of a population of thetas, with
    each inner seed on each task, and moves theta towards those with high returns. Members of a generation share their
    seeds, and by default their noise comes in pairs of opposite signs. An inner run is one of `jaxrl.train`, bit
    for bit: all inner runs of a generation, over all outer seeds, are runs of the ordinary driver, in blocks on all
    devices. At the end, runs on held-out tasks and test seeds compare the learned thetas with their start.

    Args:
      algo: Algorithm whose hyper-parameters contain theta.
      theta: Numbers to learn, such as `jaxrl.learned_discount(algo)`.
      tasks: Tasks of the inner runs: environments or their names, on which the algorithm is built with the same
        configuration, or algorithms on them; the environment of `algo` if None.
      inner_steps: Number of environment steps of an inner run.
      generations: Number of generations of each outer run.
      population: Number of thetas of a generation; 32 if None.
      inner_seeds: Number of inner runs of each theta on each task.
      strategy: Name of an evolution strategy of evosax with a mean, such as "open-es"; or "gradient", which
        differentiates whole inner runs, for tasks of continuous actions whose environment has derivatives:
        `inner_steps` truncates them, and a generation is theta alone.
      lr: Step size of the strategy's optimiser; None takes 0.03, or 1 for a natural gradient.
      std, std_decay: Standard deviation of theta in a population, and its factor per generation; None takes 0.1 and 1.
      shaping: Shaping of scores: "ranks" within inner runs that share task and seed, or "raw" for their mean; None
        takes "ranks".
      objective: Objective of an inner run: "final", the return at its end, or "area", the mean over its evaluations.
      discount: Discount under which the objective values rewards, independent of that of the algorithm; none if None.
      evals: Number of evaluations of an inner run; None takes 1 for "final" and 4 for "area".
      eval_episodes: Number of episodes of each evaluation.
      seeds: Number of outer seeds, or the seeds: independent repetitions of the whole call.
      held_out: Tasks of the final comparison, in the forms of `tasks`; the tasks themselves if None.
      test_seeds: Number of test seeds of each theta on each held-out task; 0 for no comparison.
      test_steps: Number of environment steps of a held-out run; those of an inner run if None.
      **options: Options of execution, see `jaxrl.runtime.options.MetaOptions`. `out` gets the outer curves and the
        learned thetas, which `load_result` reads, and the held-out results in `held-out`.

    Returns:
      The learned thetas, the outer curves and the held-out results.

    Raises:
      ValueError, TypeError: An argument is invalid, theta has no effect, or all members of the first generation have
        equal scores or failed; of this, a shard only warns, since it does not have all members.
      ImportError: The extra `evolution` is not installed.
      FileExistsError, ResultError: See `jaxrl.train`.
      KeyboardInterrupt: A signal came before the end of the first generation.

    Source: Salimans et al. (2017), "Evolution strategies as a scalable alternative to reinforcement learning"; outer
    loops over training runs: Lu et al. (2022), "Discovered policy optimisation".
    """
    chosen = checked(meta, MetaOptions, options)
    check_members(algo)
    if not isinstance(theta, Theta):
        raise UserTypeError(f"theta takes a Theta, such as jaxrl.learned_discount(algo), got {theta!r}")
    if not isinstance(theta.name, str) or not callable(theta.apply):
        raise UserTypeError(
            f"theta takes Theta(name, initial, apply), of a string, numbers and a function, got {theta!r}"
        )
    counts = {"inner_steps": inner_steps, "generations": generations, "inner_seeds": inner_seeds}
    for name, count in {**counts, "eval_episodes": eval_episodes}.items():
        check_count(name, count)
    check_count("test_seeds", test_seeds, 0)
    if held_out is not None and not test_seeds:
        raise UserValueError("held_out has no effect with test_seeds=0; leave it out, or raise test_seeds")
    test_steps = inner_steps if test_steps is None else test_steps
    check_count("test_steps", test_steps)
    check_choice("objective", objective, OBJECTIVES)
    if evals is None:
        evals = 1 if objective == "final" else 4
    check_count("evals", evals)
    if (objective == "final") != (evals == 1):
        raise UserValueError(
            f"evals must be 1 for objective='final' and at least 2 for 'area', got {evals} for {objective!r}"
        )
    algo = _with_discount(algo)
    metric = "return" if discount is None else "discounted_return"

    def on(task: Any, argument: str) -> Algorithm:
        each = _with_discount(algorithm_on(algo, task, argument))
        require_effect(theta, each)
        return each if discount is None else under_discount(each, discount)

    algos = [on(task, "tasks") for task in _listed("tasks", tasks, [algo])]
    others = algos if held_out is None else [on(task, "held_out") for task in _listed("held_out", held_out, [])]
    outer_seeds = seeds_that_fit(seeds)
    learner, settings = learner_of(
        strategy, theta, {"population": population, "lr": lr, "std": std, "std_decay": std_decay, "shaping": shaping}
    )
    for each in algos:
        iterations = inner_steps // each.env_steps_per_iteration
        if iterations < evals:
            least = evals * each.env_steps_per_iteration
            raise UserValueError(
                f"inner_steps must be at least {least:,} on {each.env.name}, an iteration for each of {evals} "
                f"evaluations, got {inner_steps:,}"
            )
    inner: list[Any] = [InnerTask(each, theta, inner_steps, evals, eval_episodes, objective, metric) for each in algos]
    trained = [GradientTask(task) for task in inner] if strategy == GRADIENT else inner
    attrs = {
        "theta_initial": digest(theta.initial),
        "tasks": ", ".join(task.identity for task in inner),
        "strategy": strategy,
        "objective": objective,
        "discount": "none" if discount is None else str(as_discount(discount)),
        **settings,
        **{"inner_steps": inner_steps, "inner_seeds": inner_seeds, "evals": evals, "eval_episodes": eval_episodes},
    }
    call = _outer_call(theta, inner, learner.members * inner_seeds, outer_seeds, generations, attrs)
    if chosen.shard is not None:
        call = sharded(call, *shard_of(chosen.shard))
    whole = len(outer_seeds) * learner.members * inner_seeds  # so that a shard has the blocks of the whole
    comparison = Comparison(others, theta, test_steps, eval_episodes, test_seeds, objective, attrs["discount"])
    comparison.check(call.seeds)
    with room_for(3 * (len(algos) + len(others))), stop_on_signals(chosen.progress) as stop:

        def begin(block: int, narrowed: Callable[[int], object]) -> OuterRuns:
            return OuterRuns(trained, learner, theta.initial, inner_seeds, call.seeds, chosen, block, stop, narrowed)

        result = _carried_out(
            call,
            begin,
            whole,
            chosen,
            stop,
        )
        compared: dict[str, Result] = {}
        if test_seeds and not result.metrics.attrs["interrupted"] and not stop:
            directory = None if chosen.out is None else Path(chosen.out) / HELD_OUT
            learned = [load_theta(result, theta, seed) for seed in result.seeds]
            compared = comparison.results(learned, result.seeds, directory, chosen, stop)
    if stop:
        further = "" if chosen.out is None else "; the same call with resume=True resumes it"
        name = signal.Signals(stop.signal or signal.SIGINT).name
        warnings.warn(f"{STOPPED} by {name}{further}", RuntimeWarning, stacklevel=3)
    return MetaResult(result, theta, tuple(algos), compared, metric, stop.signal or 0)


def _carried_out(
    call: Call,
    begin: Callable[[int, Callable[[int], object]], OuterRuns],
    num_trainings: int,
    options: Options,
    stop: StopRequest,
) -> Result:
    """Result of the outer runs, resumed from the checkpoint of an earlier call if there is one.

    Args:
      call: Call of the outer runs.
      begin: Function that compiles the outer runs for a block width, and takes a function that records a narrower one.
      num_trainings: Number of trainings of a generation on a task, over all outer seeds.
      options: Options of the execution.
      stop: Stop request that a signal sets.
    """
    begun = begun_in(options.out, trust=options.trust) if options.resume else None
    started = time.perf_counter()
    layout = plan_layout(num_trainings, block_of(options.block, begun or {}), options.devices)
    asked = {"block": (begun or {}).get(ASKED, {}).get("block", layout.block)}
    identity = {} if options.out is None else identity_of(call, layout, options.precision, asked)
    directory = None if options.out is None else Path(options.out)
    checkpoints = Checkpoints(directory, identity, begun=begun, minutes=options.checkpoint_minutes, trust=options.trust)
    with watched(call, options, checkpoints, stop) as watch:
        watch.bar.phase("compiling")
        runs = begin(layout.block, checkpoints.narrow)
        checkpoints.identity["block"] = runs.layout.block
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
    trainings: int,
    seeds: list[int],
    generations: int,
    attrs: Mapping[str, Any],
) -> Call:
    """Call whose runs are outer seeds; an iteration is a generation, with `trainings` trainings on each task."""
    names = " + ".join(task.name for task in inner)
    algorithm = f"meta {theta.name} of {inner[0].algo.name}"
    return Call(
        loop=Loop(_driven, _driven, _driven, _driven),
        identity=(),
        points=np.arange(1, generations + 1),
        env_steps_per_iteration=trainings * sum(task.env_steps_of_training for task in inner),
        headline=_headline,
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


def _headline(metrics: Mapping[str, np.ndarray]) -> str:
    finite = metrics["return"][np.isfinite(metrics["return"])]
    return f"mean return {finite.mean():.4g}" if finite.size else "no finite return"


def _driven(*_: Any) -> NoReturn:
    raise NotImplementedError("generations are those of OuterRuns, which calls the loops of the inner runs")


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
