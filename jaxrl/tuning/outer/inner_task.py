"""Inner trainings: one task, an algorithm on an environment, under every theta of a population."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs.base import Environment
from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.contract import Algorithm, again, check_members, codes
from jaxrl.discounts.parsing import prepare
from jaxrl.importing import imported
from jaxrl.learning.rollout import longest_episode
from jaxrl.pytrees import HParams, PyTree
from jaxrl.results.description import config_of
from jaxrl.results.json_values import as_read
from jaxrl.runtime.call import Call
from jaxrl.runtime.drive.progress import Progress, StopRequest
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import Options
from jaxrl.runtime.training import training_call
from jaxrl.sweeps.batching import run_arguments
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.batches import Waves
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.fitness import objective_of

PROBE = 0.25  # change of the numbers of theta by which their effect is seen
MOST_PROBED = 256  # numbers of a leaf that are probed one by one; those of larger leaves are probed together

__all__ = ["InnerTask", "Outcome", "algorithm_on", "digest", "require_effect", "sweep_of", "under_discount"]


class Outcome(NamedTuple):
    """Outcomes of trainings.

    Attributes:
      value: Objectives, float32 `[N]`, NaN for a training that failed.
      gradient: Derivatives by the numbers of theta, in the order of its leaves, float32 `[N, num_numbers]`; None if
        they were not computed.
    """

    value: Any
    gradient: Any = None


@dataclasses.dataclass(frozen=True)
class InnerTask:
    """The trainings of one task.

    Attributes:
      algo: Algorithm on the environment of the task.
      theta: Theta that is learned.
      env_steps: Number of environment steps of a training.
      evals: Number of evaluations of a training.
      eval_episodes: Number of episodes of an evaluation.
      objective: Name of the objective, see `fitness.objective_of`.
      metric: Metric of an evaluation that the objective takes.
    """

    algo: Algorithm
    theta: Theta
    env_steps: int
    evals: int
    eval_episodes: int
    objective: str
    metric: str

    @property
    def name(self) -> str:
        """Name of the task: that of its environment."""
        return self.algo.env.name

    @functools.cached_property
    def points(self) -> np.ndarray:
        """Iterations after which a training is evaluated."""
        return evaluation_points(self.env_steps, self.evals, self.algo.env_steps_per_iteration)

    @property
    def identity(self) -> str:
        """Checksum of the task and of the hyper-parameters under some thetas, for comparison with another call."""
        moved = (each for probe in _probes(self.theta, alone=False) for each in probe.thetas)
        probes = [self.theta.initial, *moved]
        thetas = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *probes)
        call = self.call(thetas)
        config = config_of(call.description())
        described = {name: value for name, value in config.items() if name not in ("attributes", "devices", "versions")}
        described |= {"config": str(self.algo.config), "network": str(self.algo.network)}
        text = json.dumps(as_read(described), sort_keys=True)
        return hashlib.sha256(text.encode() + digest(call.prepared).encode()).hexdigest()

    @property
    def env_steps_of_training(self) -> int:
        """Number of environment steps of a training, in whole iterations."""
        return int(self.points[-1]) * self.algo.env_steps_per_iteration

    def call(self, thetas: PyTree) -> Call:
        """Call of a training under each of the thetas, leaves `[N, ...]`."""
        sweep = sweep_of(self._apply(thetas), [str(i) for i in range(len(jax.tree.leaves(thetas)[0]))])
        return training_call(self.algo, sweep, seeds=[0], points=self.points, eval_episodes=self.eval_episodes)

    def waves(self, thetas: PyTree, layout: Layout, options: Options) -> Waves:
        """Compiled trainings under as many thetas as `thetas` has, or any other number."""
        held = 0 if len(self.points) == 1 else len(jax.tree.leaves(thetas)[0])
        return Waves(self.call(thetas), layout, options.memory, options.precision, held, options.progress)

    def train(self, waves: Waves, thetas: PyTree, seeds: np.ndarray, stop: StopRequest) -> Outcome | None:
        """Outcomes of trainings; None if a signal ended them.

        Args:
          waves: Compiled trainings, by `waves`.
          thetas: Theta of each training, leaves `[N, ...]`.
          seeds: Seed of each training, `[N]`.
          stop: Request to end after the current chunk.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the first call, which compiled the programs
            call = self.call(thetas)
        _, hparams, env_params = run_arguments([0], call.prepared, call.env_params)
        arguments = seeds.astype(np.uint32), hparams, env_params
        states, iteration, returns = None, 0, []
        bar = Progress(0, enabled=False)
        for point in self.points.tolist():
            last = point == self.points[-1]
            done = list(waves.advance(arguments, states, iteration, point, bar, stop, keep=not last))
            if sum(len(wave.metrics[self.metric]) for wave in done) < len(seeds):
                return None
            returns.append(np.concatenate([wave.metrics[self.metric] for wave in done]))
            if not last:
                states = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(wave.states for wave in done))
            iteration = point
        return Outcome(objective_of(np.stack(returns), self.objective))

    @functools.cached_property
    def _apply(self) -> Any:
        return jax.jit(jax.vmap(lambda theta: self.theta.apply(theta, _strong(self.algo.hparams))))


def sweep_of(hparams: HParams, labels: Sequence[str], path: str = "theta") -> Sweep:
    """Sweep of settings that differ in theta.

    Args:
      hparams: Hyper-parameters, leaves `[N, ...]`.
      labels: Names of the N settings.
      path: Name of the axis.
    """
    host = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), hparams)
    coords = {path: ((path,), np.asarray(labels))}
    return Sweep(host, {}, (path,), (len(labels),), coords, [{path: label} for label in labels])


def algorithm_on(algo: Algorithm, task: Any, argument: str) -> Algorithm:
    """Algorithm of a task.

    Args:
      algo: Algorithm of the call, whose configuration and hyper-parameters apply to a task without its own.
      task: Environment, name of one, or an algorithm on one, which is returned as it is.
      argument: Name of the argument with the task, for messages.

    Raises:
      TypeError: `task` is of another type.
      ValueError: The algorithm cannot be built again, or not on this environment, such as for its spaces.
    """
    if isinstance(task, Algorithm):
        check_members(task)
        return task
    env = envs.make(task) if isinstance(task, str) else task
    if not isinstance(env, Environment):
        raise UserTypeError(
            f"{argument} takes environments, their names, or algorithms on them, such as ['cartpole'], got {task!r}"
        )
    if env == algo.env:
        return algo
    if algo.builder is None:
        raise UserValueError(
            f"{argument} takes algorithms, since {algo.name} has no builder by which it is built on {env.name}"
        )
    builder = imported(algo.builder)
    original = again(builder, algo.env, algo.config, algo.network)
    if codes(original._replace(hparams=algo.hparams, settings_from=algo.settings_from)) != codes(algo):
        raise UserValueError(
            f"{argument} takes algorithms, since {algo.name} was changed after it was built, and would be built on "
            f"{env.name} without the changes"
        )
    try:
        other = again(builder, env, algo.config, algo.network)
    except (UserValueError, UserTypeError) as error:
        raise UserValueError(f"{argument} has {env.name}, on which {algo.name} cannot be built: {error}") from error
    known = vars(other.hparams)
    effective = {name: value for name, value in vars(algo.hparams).items() if known.get(name) is not None}
    effective = {name: value for name, value in effective.items() if value is not None}
    return other._replace(hparams=dataclasses.replace(other.hparams, **effective), settings_from=algo.settings_from)


def under_discount(algo: Algorithm, discount: Any) -> Algorithm:
    """Algorithm whose evaluations report the discounted return under a fixed discount, which it does not learn by."""
    episode = longest_episode(algo.env)
    fixed = prepare(discount, episode, episode_length=episode)
    return algo._replace(discount=lambda hparams: jax.tree.map(jnp.asarray, fixed))


def require_effect(theta: Theta, algo: Algorithm) -> None:
    """Reject a theta with numbers that leave the prepared hyper-parameters of an algorithm as they are.

    Raises:
      TypeError: `apply` does not return hyper-parameters of the algorithm.
      ValueError: A number of theta has no effect, or theta has no numbers.
    """
    leaves, structure = jax.tree.flatten(theta.initial)
    if not leaves or not any(map(np.size, leaves)):
        raise UserValueError(f"theta {theta.name!r} has no numbers to learn: its initial is {theta.initial!r}")
    values = [np.asarray(leaf, np.float32) for leaf in leaves]
    if not all(np.isfinite(value).all() for value in values):
        raise UserValueError(f"theta {theta.name!r} must start at finite numbers, got {theta.initial!r}")
    before = _prepared(theta, algo, structure.unflatten(values))
    for probe in _probes(theta, alone=True):
        if all(_equal(before, _prepared(theta, algo, moved)) for moved in probe.thetas):
            raise UserValueError(
                f"theta {theta.name!r} must change hyper-parameters of {algo.name} on {algo.env.name} by each of "
                f"its numbers, but {probe.numbers} changes none"
            )


def digest(tree: PyTree) -> str:
    """Checksum of the structure and the float32 leaves of a pytree."""
    leaves, structure = jax.tree.flatten(tree)
    data = b"".join(np.asarray(leaf, np.float32).tobytes() for leaf in leaves)
    return hashlib.sha256(str(structure).encode() + data).hexdigest()


class _Probe(NamedTuple):
    """Thetas on both sides of the start, since a number may be at the end of a range, and which numbers they move."""

    numbers: str
    thetas: tuple[Any, Any]


def _probes(theta: Theta, alone: bool) -> Iterator[_Probe]:
    """Probes of each leaf of theta: of all its numbers by different steps, or of one number after the other.

    Args:
      theta: Theta.
      alone: Whether numbers are moved one by one, in leaves of at most `MOST_PROBED`.
    """
    leaves, structure = jax.tree.flatten_with_path(theta.initial)
    values = [np.asarray(leaf, np.float32) for _, leaf in leaves]
    for i, ((path, _), value) in enumerate(zip(leaves, values, strict=True)):
        where, singly = jax.tree_util.keystr(path), alone and value.size <= MOST_PROBED
        places = np.eye(value.size) if singly else [np.arange(1, value.size + 1) / max(value.size, 1)]
        for at, place in enumerate(places):
            step = np.float32(PROBE * place).reshape(value.shape)
            index = [int(each) for each in np.unravel_index(at, value.shape)] if singly and value.ndim else ""
            moved = (structure.unflatten([*values[:i], value + sign * step, *values[i + 1 :]]) for sign in (1, -1))
            yield _Probe(f"{where}{index}" or "its number", tuple(moved))


def _prepared(theta: Theta, algo: Algorithm, value: PyTree) -> list[np.ndarray]:
    """Leaves of the hyper-parameters under a theta, as the programs of an algorithm take them."""
    hparams = theta.apply(value, _strong(algo.hparams))
    if type(hparams) is not type(algo.hparams):
        raise UserTypeError(
            f"theta {theta.name!r} must return hyper-parameters of {algo.name}, {type(algo.hparams).__name__}, got "
            f"{type(hparams).__name__}"
        )
    batched = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], hparams)
    prepared = algo.prepare(batched, 1, algo.env_steps_per_iteration)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(prepared)]


def _strong(hparams: HParams) -> HParams:
    """Hyper-parameters with the numbers as float32 arrays, as a training takes them."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hparams)


def _equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
