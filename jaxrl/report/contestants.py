"""Algorithms to be compared by training them: their names, their tasks, and their settings on each."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import envs
from envs.base import Environment
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from envs.wrappers.asymmetric import seen_from
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.presets import registry as presets
from jaxrl.presets.preset import Preset
from jaxrl.runtime.training import points_of, training_call, with_env_steps
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.outer.inner_task import algorithm_on

EXAMPLE = "jaxrl.compare('ppo', 'a2c', tasks=['cartpole'], until='decided')"

__all__ = ["Contestant", "Training", "check_metric", "contestants_of"]


class Training(NamedTuple):
    """Training of an algorithm on a task.

    Attributes:
      algo: Algorithm on the environment of the task.
      hparams: Hyper-parameters; None for those of the algorithm.
      env_steps: Number of environment steps of a run.
    """

    algo: Algorithm
    hparams: Any
    env_steps: int


class Contestant(NamedTuple):
    """An algorithm, or one of its settings, under a name.

    Attributes:
      name: Name, unique in a comparison.
      trainings: Training on each task, by the name of the task.
    """

    name: str
    trainings: Mapping[str, Training]


class _Setting(NamedTuple):
    """An algorithm as a caller passes it, without a number of environment steps, or with that of its preset."""

    algo: Algorithm
    hparams: Any
    env_steps: int | None


def contestants_of(
    algos: Sequence[Any], tasks: Sequence[Environment | str] | None, env_steps: int | None
) -> list[Contestant]:
    """The algorithms of a comparison that trains them.

    Args:
      algos: Algorithms, presets, pairs of an algorithm and its hyper-parameters or, with tasks, names of algorithms; a
        list of one of these on several tasks, or a dictionary with the names of the tasks; or one dictionary of any of
        them by name.
      tasks: Environments, or their names, on which every algorithm is trained; None for their own.
      env_steps: Number of environment steps of a run; None takes the smallest number of the presets on a task.

    Raises:
      TypeError: An algorithm is of another type, or has no number of environment steps.
      ValueError: There are not two algorithms, or they are on different tasks, or on different environments of a task.
    """
    named = _named(algos)
    if tasks is not None and (isinstance(tasks, str) or not isinstance(tasks, Sequence) or not tasks):
        raise UserTypeError(
            f"tasks takes a list of environments or of their names, such as ['cartpole'], got {tasks!r}"
        )
    settings: list[tuple[str, dict[str, _Setting]]] = []
    for name, source in named:
        each = list(_settings(source, tasks))
        by_task = dict(each)
        if len(by_task) < len(each):
            raise UserValueError(
                f"{name} is on one task twice, which are {', '.join(task for task, _ in each)}; a dictionary gives "
                f"them names, {{{name!r}: {{'first': ..., 'second': ...}}}}"
            )
        settings.append((name, by_task))
    first_name, first = settings[0]
    for name, by_task in settings[1:]:
        if by_task.keys() != first.keys():
            raise UserValueError(
                f"the algorithms must be on the same tasks: {first_name} is on {', '.join(first)}, and {name} on "
                f"{', '.join(by_task)}"
            )
    for task in first:
        _check_environments([seen_from(by_task[task].algo.env) for _, by_task in settings], task)
    steps = {task: _env_steps([by_task[task] for _, by_task in settings], env_steps) for task in first}
    return [
        Contestant(name, {task: Training(by_task[task].algo, by_task[task].hparams, steps[task]) for task in first})
        for name, by_task in settings
    ]


def check_metric(contestants: Sequence[Contestant], metric: str, eval_episodes: int) -> None:
    """Reject a metric that an algorithm lacks on a task, by tracing its evaluation; all have a return.

    Args:
      contestants: Algorithms.
      metric: Name of the metric.
      eval_episodes: Number of episodes of an evaluation.

    Raises:
      ValueError: An algorithm lacks the metric.
    """
    if metric == "return":
        return
    for contestant in contestants:
        for task, (algo, hparams, env_steps) in contestant.trainings.items():
            with warnings.catch_warnings():  # which training repeats
                warnings.simplefilter("ignore")
                points = points_of(algo, env_steps, 1, eval_episodes)
                call = training_call(algo, hparams, seeds=[0], points=points, eval_episodes=eval_episodes)
            settings = jax.tree.map(lambda leaf: np.asarray(leaf)[0], (call.prepared, call.env_params))
            run = jax.eval_shape(call.loop.init, jax.random.key(0), *settings)
            _, metrics = jax.eval_shape(call.loop.evaluate, run, jax.random.key(0), *settings, np.int32(0))
            if metric not in metrics:
                hint = near(metric, metrics) or f"; it has {', '.join(metrics)}"
                raise UserValueError(f"metric is {metric!r}, which {contestant.name} lacks on {task}{hint}")


def _named(algos: Sequence[Any]) -> list[tuple[str, Any]]:
    """The algorithms by name; those of one name get a number."""
    if len(algos) == 1 and isinstance(algos[0], Mapping):
        named = [(name, source) for name, source in algos[0].items()]
        if any(not isinstance(name, str) for name, _ in named):
            raise UserTypeError(f"the name of an algorithm must be a string, got {list(algos[0])!r}")
    else:
        if len(algos) == 1 and isinstance(algos[0], list):
            algos = algos[0]
        names = [_name(source) for source in algos]
        named = [
            (f"{name} {names[:i].count(name) + 1}" if names.count(name) > 1 else name, source)
            for i, (name, source) in enumerate(zip(names, algos, strict=True))
        ]
    if len(named) < 2:
        raise UserValueError(f"compare takes at least two algorithms, such as {EXAMPLE}, got {len(named)}")
    return named


def _name(source: Any) -> str:
    """The name of an algorithm as it is passed."""
    if isinstance(source, str):
        return source
    if isinstance(source, Algorithm):
        return source.name
    if isinstance(source, Preset):
        return source.algorithm
    if isinstance(source, list | tuple) and source:
        return _name(source[0])
    if isinstance(source, Mapping) and source:
        return _name(next(iter(source.values())))
    raise _not_an_algorithm(source)


def _settings(source: Any, tasks: Sequence[Environment | str] | None) -> Iterator[tuple[str, _Setting]]:
    """An algorithm on every task, with the name of the task."""
    if isinstance(source, list | Mapping):
        if tasks is not None:
            raise UserTypeError("tasks has no effect on algorithms that have tasks of their own: leave it out")
        if not source or any(isinstance(each, list | Mapping) for each in _items(source)):
            raise UserTypeError(
                "an algorithm on several tasks takes a list or dictionary of one algorithm for each task, got "
                f"{'one with a list or dictionary in it' if source else repr(source)}"
            )
        pairs = source.items() if isinstance(source, Mapping) else [(None, each) for each in source]
        for name, each in pairs:
            ((task, setting),) = _settings(each, None)
            yield task if name is None else str(name), setting
        return
    hparams = None
    if isinstance(source, tuple) and not isinstance(source, Algorithm | Preset):
        if len(source) != 2 or not isinstance(source[0], Algorithm):
            raise _not_an_algorithm(source)
        source, hparams = source
        if isinstance(hparams, Sweep):
            raise UserTypeError(
                f"compare takes hyper-parameters of one setting for each algorithm, got a sweep of {len(hparams)}; "
                "give every setting a name, such as {'slow': (algo, hparams), 'fast': (algo, others)}"
            )
    for task in [None] if tasks is None else tasks:
        algo, env_steps = _on(source, task)
        yield algo.env.name, _Setting(algo, hparams, env_steps)


def _items(source: list[Any] | Mapping[str, Any]) -> Sequence[Any]:
    """The items of a list, or the values of a dictionary."""
    return source if isinstance(source, list) else list(source.values())


def _on(source: Any, task: Environment | str | None) -> tuple[Algorithm, int | None]:
    """An algorithm on a task, and the number of environment steps of its preset, if any."""
    if isinstance(source, str):
        if task is None:
            raise UserTypeError(f"tasks must name the tasks of {source!r}, such as {EXAMPLE}")
        if isinstance(task, str):
            algo, preset = presets.named(source, task)
            return algo, None if preset is None else preset.env_steps
        return algorithms.make(source, task), None
    if isinstance(source, Preset):
        if task is None:
            return source.algo, source.env_steps
        return source.on(envs.make(task) if isinstance(task, str) else task), source.env_steps
    if isinstance(source, Algorithm):
        algo = source if task is None else algorithm_on(source, task, "tasks")
        known = presets.find(algo.name, algo.env.name)
        return algo, known.env_steps if known is not None and known.origin == algo.settings_from else None
    raise _not_an_algorithm(source)


def _check_environments(environments: Sequence[Environment], task: str) -> None:
    """Reject environments of one name with different settings; others have the name of one task on purpose."""
    for env in environments:
        first = next(other for other in environments if other.name == env.name)
        if _differ(first, env):
            raise UserValueError(f"the algorithms must be on one environment of {task}, got some with other settings")


def _differ(one: object, other: object) -> bool:
    """Whether settings differ; objects without an equality of values, such as functions, differ in their types only."""
    kinds = {(type(each).__module__, type(each).__qualname__) for each in (one, other)}
    if dataclasses.is_dataclass(one) and len(kinds) == 1:
        names = [field.name for field in dataclasses.fields(one) if field.compare]
        return any(_differ(getattr(one, name, None), getattr(other, name, None)) for name in names)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) != len(other) or any(map(_differ, one, other))
    if all(type(each).__eq__ is object.__eq__ for each in (one, other)):
        return len(kinds) > 1
    return not np.array_equal(np.asarray(one), np.asarray(other))


def _env_steps(settings: Sequence[_Setting], env_steps: int | None) -> int:
    """The number of environment steps of runs on a task."""
    if env_steps is None and all(setting.env_steps is not None for setting in settings):
        env_steps = min(setting.env_steps for setting in settings if setting.env_steps is not None)
    lacking = next((setting for setting in settings if setting.env_steps is None), settings[0])
    return with_env_steps("compare", lacking.algo, None, env_steps, show=False)[2]


def _not_an_algorithm(source: Any) -> UserTypeError:
    kind = f"{source!r}" if dataclasses.is_dataclass(source) or isinstance(source, str | int) else type(source).__name__
    return UserTypeError(
        "compare with until='decided' takes algorithms, presets, pairs (algorithm, hparams), and names of algorithms "
        f"with tasks=, got {kind}"
    )
