"""Derivatives of inner trainings by their theta: forward-mode differentiation through whole short trainings."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from envs.base import spaces
from envs.errors import UserValueError
from jaxrl.pytrees import EnvParams, PyTree
from jaxrl.runtime.call import Call
from jaxrl.runtime.drive.progress import Progress, StopRequest
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.options import Options
from jaxrl.runtime.training import make_train
from jaxrl.sweeps.batching import batched_env_params, run_arguments
from jaxrl.tuning.batches import Waves
from jaxrl.tuning.outer.inner_task import InnerTask, Outcome
from jaxrl.tuning.outer.probes import digest

__all__ = ["GradientTask"]


class GradientTask:
    """Trainings of one task with their derivatives, as runs of the ordinary driver whose one iteration is a training.

    The derivatives are those of the program, in forward mode: through the environment, the actions, the learning and
    the evaluation. Terms through discrete choices, such as the step of a termination, are left out.

    Args:
      task: Task of the inner trainings.

    Raises:
      ValueError: The actions are discrete, so that returns have no derivatives by the parameters of a policy.
    """

    def __init__(self, task: InnerTask) -> None:
        space = task.algo.env.action_space(task.algo.env.default_params)
        if not isinstance(space, spaces.Box):
            raise UserValueError(
                f"strategy='gradient' takes tasks of continuous actions, through which returns have derivatives, got "
                f"{type(space).__name__} of {task.name}; strategy='open-es' takes any"
            )
        self.task = task

    def call(self, thetas: PyTree) -> Call:
        """Call of a training under each of the thetas, leaves `[N, ...]`, with seeds of their own in `train`."""
        theta = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), thetas)
        count = len(jax.tree.leaves(theta)[0])
        env_params = jax.tree.map(
            lambda leaf: np.repeat(leaf, count, axis=0), batched_env_params(self.task.algo.env, None, None)
        )
        return Call(
            loop=self._loop,
            identity=("gradient", self.task.algo.functions, self.task.theta.apply, self._measure),
            points=np.asarray([1]),
            env_steps_per_iteration=self.task.env_steps_of_training,
            headline=lambda metrics: "",
            reserved=frozenset(),
            prepared=theta,
            env_params=env_params,
            seeds=[0],
            sweep=None,
            algo=self.task.algo,
            hparams=None,
            attrs={"algorithm": f"gradients of {self.task.algo.name}", "environment": self.task.name},
        )

    def waves(self, thetas: PyTree, layout: Layout, options: Options) -> Waves:
        """Compiled trainings under as many thetas as `thetas` has, or any other number."""
        self.task.call(thetas)  # for its checks
        return Waves(self.call(thetas), layout, options.memory, options.precision, 0, options.progress)

    def train(self, waves: Waves, thetas: PyTree, seeds: np.ndarray, stop: StopRequest) -> Outcome | None:
        """Outcomes of trainings, with derivatives; None if a signal ended them.

        Args:
          waves: Compiled trainings, by `waves`.
          thetas: Theta of each training, leaves `[N, ...]`.
          seeds: Seed of each training, `[N]`.
          stop: Request to end before the next wave.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the first call, which compiled the programs
            thetas, outside = self.task.within_ranges(thetas)
        call = self.call(thetas)
        _, theta, env_params = run_arguments([0], call.prepared, call.env_params)
        arguments = seeds.astype(np.uint32), theta, env_params
        done = list(waves.advance(arguments, None, 0, 1, Progress(0, enabled=False), stop, keep=False))
        if sum(len(wave.metrics["value"]) for wave in done) < len(seeds):
            return None
        value, gradient = (np.concatenate([wave.metrics[name] for wave in done]) for name in ("value", "gradient"))
        failed = outside | ~(np.isfinite(value) & np.isfinite(gradient).all(axis=1))
        return Outcome(np.where(failed, np.nan, value), gradient)

    @property
    def name(self) -> str:
        """Name of the task: that of its environment."""
        return self.task.name

    @property
    def _measure(self) -> tuple[Any, ...]:
        task = self.task
        length = task.env_steps, task.evals, task.eval_episodes
        return *length, task.objective, task.metric, digest(task.algo.hparams)

    @functools.cached_property
    def _loop(self) -> Loop:
        task = self.task
        run = make_train(task.algo, env_steps=task.env_steps, evals=task.evals, eval_episodes=task.eval_episodes)

        def objective(flat: jax.Array, unravel: Any, key: jax.Array, env_params: EnvParams) -> jax.Array:
            hparams = task.theta.apply(unravel(flat), task.algo.hparams)
            returns = run(key, hparams, env_params).metrics[task.metric]
            return returns[-1] if task.objective == "final" else jnp.mean(returns)

        def init(key: jax.Array, theta: PyTree, env_params: EnvParams) -> Outcome:
            del key, env_params
            return Outcome(jnp.zeros(()), jnp.zeros(sum(leaf.size for leaf in jax.tree.leaves(theta))))

        def advance(
            outcome: Outcome, key: jax.Array, theta: PyTree, env_params: EnvParams, first: Any, count: Any
        ) -> Outcome:
            del first, count  # one iteration
            flat, unravel = ravel_pytree(theta)

            def along(direction: jax.Array) -> tuple[jax.Array, jax.Array]:
                return jax.jvp(lambda at: objective(at, unravel, key, env_params), (flat,), (direction,))

            value, gradient = jax.vmap(along, out_axes=(None, 0))(jnp.eye(flat.size))
            return Outcome(value, gradient)

        def evaluate(outcome: Outcome, *_: Any) -> tuple[Outcome, dict[str, jax.Array]]:
            return outcome, outcome._asdict()

        return Loop(init, advance, evaluate, lambda outcome, theta: ())
