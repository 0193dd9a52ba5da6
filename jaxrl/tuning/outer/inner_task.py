"""Inner trainings: one task, an algorithm on an environment, under every theta of a population."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Sequence
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
from jaxrl.tuning.outer.probes import digest, outside_ranges, probes, strong

__all__ = ["InnerTask", "Outcome", "algorithm_on", "stacked", "sweep_of", "under_discount"]


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
        moved = (each for probe in probes(self.theta, alone=False) for each in probe.thetas)
        some = [self.theta.initial, *moved]
        call = self.call(self.within_ranges(stacked(some))[0])
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

    def within_ranges(self, thetas: PyTree) -> tuple[PyTree, np.ndarray]:
        """Thetas whose hyper-parameters are within their ranges: the start takes the place of the others.

        Args:
          thetas: Thetas, leaves `[N, ...]`.

        Returns:
          Thetas, leaves `[N, ...]`, and whether each was outside, bool `[N]`.
        """
        outside, _ = outside_ranges(self.algo, self._apply(thetas))

        def replaced(leaf: Any, start: Any) -> np.ndarray:
            at = outside.reshape(-1, *[1] * np.ndim(start))
            return np.where(at, np.asarray(start, np.float32), np.asarray(leaf, np.float32))

        return jax.tree.map(replaced, thetas, self.theta.initial) if outside.any() else thetas, outside

    def waves(self, thetas: PyTree, layout: Layout, options: Options) -> Waves:
        """Compiled trainings under as many thetas as `thetas` has, or any other number."""
        held = 0 if len(self.points) == 1 else len(jax.tree.leaves(thetas)[0])
        return Waves(self.call(thetas), layout, options.memory, options.precision, held, options.progress)

    def train(self, waves: Waves, thetas: PyTree, seeds: np.ndarray, stop: StopRequest) -> Outcome | None:
        """Outcomes of trainings; None if a signal ended them.

        A training whose hyper-parameters are outside of their ranges has failed.

        Args:
          waves: Compiled trainings, by `waves`.
          thetas: Theta of each training, leaves `[N, ...]`.
          seeds: Seed of each training, `[N]`.
          stop: Request to end after the current chunk.
        """
        outside = np.zeros(len(seeds), bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the first call, which compiled the programs
            try:
                call = self.call(thetas)
            except UserValueError:
                thetas, outside = self.within_ranges(thetas)
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
        return Outcome(np.where(outside, np.nan, objective_of(np.stack(returns), self.objective)))

    @functools.cached_property
    def _apply(self) -> Any:
        return jax.jit(jax.vmap(lambda theta: self.theta.apply(theta, strong(self.algo.hparams))))


def stacked(thetas: Sequence[PyTree]) -> Any:
    """Thetas as one pytree of float32 leaves `[N, ...]`."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *thetas)


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
