"""Outer runs: evolution strategies over theta, each generation of which is a population of inner trainings."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError
from jaxrl.algorithms.strategies import Strategy
from jaxrl.pytrees import PyTree, State
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.layout import Layout, plan_layout
from jaxrl.runtime.options import Options
from jaxrl.tuning.outer.fitness import constant, fitness_of
from jaxrl.tuning.outer.inner_task import InnerTask

__all__ = ["OuterHParams", "OuterRuns", "Population"]


class OuterHParams(NamedTuple):
    """Hyper-parameters of an evolution strategy.

    Attributes:
      lr: Step size of its optimiser.
      std: Standard deviation of a population around its mean.
      std_decay: Factor of the standard deviation per generation.
    """

    lr: float
    std: float
    std_decay: float


class Population(NamedTuple):
    """Sizes of a generation.

    Attributes:
      members: Number of thetas.
      inner_seeds: Number of trainings of each theta on each task.
      shaping: Name of the shaping of fitness, see `fitness.fitness_of`.
    """

    members: int
    inner_seeds: int
    shaping: str


class OuterRuns:
    """Outer runs with the interface of `DrivenRuns`: one for each outer seed, an iteration of which is a generation.

    All members of a generation train with equal seeds (common random numbers), which differ between generations and
    outer seeds; the trainings of all outer runs are runs of the ordinary driver, in blocks on all devices.

    Args:
      tasks: Tasks of the inner trainings.
      strategy: Evolution strategy on theta.
      hparams: Hyper-parameters of the strategy.
      population: Sizes of a generation.
      seeds: Outer seeds.
      options: Options of the execution.
      stop: Request to end, which a signal sets; a generation that it ends is begun again by a resumed call.

    Attributes:
      iteration: Number of generations done.
      layout: Layout of the trainings of one task.
    """

    def __init__(
        self,
        tasks: Sequence[InnerTask],
        strategy: Strategy,
        hparams: OuterHParams,
        population: Population,
        seeds: Sequence[int],
        options: Options,
        stop: StopRequest,
    ):
        self.iteration = 0
        self._tasks, self._strategy, self._hparams, self._population = tasks, strategy, hparams, population
        self._seeds, self._stop = list(seeds), stop
        self._keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
        self._initial = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tasks[0].theta.initial)
        self._states: Any = self._begin()
        self._metrics = {name: np.full(shape, np.nan, np.float32) for name, shape in self._metric_shapes().items()}
        thetas = self._flat(jax.tree.map(np.asarray, self._ask(self._states, 0)[0]))
        layout = plan_layout(len(jax.tree.leaves(thetas)[0]), options.block, options.devices)
        self._waves = [task.waves(thetas, layout, options) for task in tasks]
        self.layout: Layout = self._waves[0].layout

    @property
    def shapes(self) -> tuple[Any, dict[str, jax.ShapeDtypeStruct]]:
        """Shapes of `states()`, and of the metrics of `evaluate()`."""
        metrics = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in self._metric_shapes().items()}
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.states()), metrics

    def start(self) -> None:
        """Does nothing: an outer run has begun."""

    def advance(self, count: int) -> None:
        """Advances by `count` generations, or fewer where a signal ends one."""
        for _ in range(count):
            if not self._generation():
                return

    def evaluate(self) -> tuple[dict[str, np.ndarray], Any]:
        """Metrics of the last generation, and the learned theta: leaves `[num_seeds, ...]`."""
        return dict(self._metrics), self.kept()

    def states(self) -> Any:
        """States of the strategies and metrics of the last generation, leaves `[num_seeds, ...]`."""
        return jax.tree.map(np.asarray, (self._states, self._metrics))

    def kept(self) -> Any:
        """Learned theta of each outer run, leaves `[num_seeds, ...]`."""
        return jax.tree.map(np.asarray, jax.vmap(self._strategy.solution)(self._states))

    def again(self) -> Any:
        raise NotImplementedError("an outer run keeps its last theta alone")

    def put(self, states: State, iteration: int) -> None:
        """Sets the runs to states that `states()` returned."""
        self._states, self._metrics = jax.tree.map(np.asarray, states)
        self._states, self.iteration = jax.tree.map(jnp.asarray, self._states), iteration

    def inner_seeds(self, generation: int) -> np.ndarray:
        """Seeds of the trainings of a generation, uint32 `[num_seeds, inner_seeds]`."""
        count = self._population.inner_seeds
        return np.stack([np.random.SeedSequence([seed, generation]).generate_state(count) for seed in self._seeds])

    def _begin(self) -> Any:
        def begin(key: jax.Array) -> Any:
            return self._strategy.init(key, self._initial, None, None, self._hparams)

        return jax.jit(jax.vmap(begin))(self._generation_keys(-1))

    def _generation_keys(self, generation: int) -> jax.Array:
        return jax.vmap(lambda key: jax.random.fold_in(key, np.uint32(generation + 1)))(self._keys)

    def _ask(self, states: State, generation: int) -> tuple[Any, Any]:
        """Population of a generation, leaves `[num_seeds, members, ...]`, and the states after it."""
        return self._asking(self._generation_keys(generation), states)

    @functools.cached_property
    def _asking(self) -> Any:
        def ask(key: jax.Array, state: State) -> Any:
            return self._strategy.ask(jax.random.fold_in(key, 0), state, self._hparams)

        return jax.jit(jax.vmap(ask))

    @functools.cached_property
    def _telling(self) -> Any:
        def tell(key: jax.Array, population: PyTree, fitness: jax.Array, state: State) -> Any:
            return self._strategy.tell(jax.random.fold_in(key, 1), population, fitness, state, self._hparams)

        return jax.jit(jax.vmap(tell))

    def _flat(self, thetas: PyTree) -> Any:
        """A theta for each training of a task, leaves `[num_seeds * members * inner_seeds, ...]`."""
        count = self._population.inner_seeds

        def flat(leaf: np.ndarray) -> np.ndarray:
            return np.repeat(leaf.reshape(-1, *leaf.shape[2:]), count, axis=0)

        return jax.tree.map(flat, thetas)

    def _generation(self) -> bool:
        """One generation; False if a signal ended it, which leaves the states as they were."""
        thetas, asked = self._ask(self._states, self.iteration)
        flat = self._flat(jax.tree.map(np.asarray, thetas))
        runs, members = len(self._seeds), self._population.members
        inner = self.inner_seeds(self.iteration)
        seeds = np.broadcast_to(inner[:, None], (runs, members, inner.shape[1])).reshape(-1)
        scores = np.empty((runs, members, len(self._tasks), inner.shape[1]), np.float32)
        for i, (task, waves) in enumerate(zip(self._tasks, self._waves, strict=True)):
            objectives = task.train(waves, flat, seeds, self._stop)
            if objectives is None:
                return False
            scores[:, :, i] = objectives.reshape(runs, members, -1)
        columns = scores.reshape(runs, members, -1)
        if self.iteration == 0 and all(map(constant, columns)):
            self._refuse_constant(scores)
        fitness = np.stack([fitness_of(each, self._population.shaping) for each in columns])
        self._states = self._telling(self._generation_keys(self.iteration), thetas, fitness, asked)
        self._metrics = self._measured(scores)
        self.iteration += 1
        return True

    def _refuse_constant(self, scores: np.ndarray) -> None:
        task = self._tasks[0]
        raise UserValueError(
            f"the objective must tell thetas apart, got the same {task.metric} for all {self._population.members} "
            f"members of the first generation, such as {scores.flat[0]:g} on {task.name}: raise inner_steps or std"
        )

    def _metric_shapes(self) -> dict[str, tuple[int, ...]]:
        runs, size = len(self._seeds), sum(leaf.size for leaf in jax.tree.leaves(self._initial))
        names = ("return", "best_return", "spread", "failed", "distance")
        shapes: dict[str, tuple[int, ...]] = {name: (runs,) for name in names}
        if len(self._tasks) > 1:
            shapes["task_return"] = (runs, len(self._tasks))
        return shapes | {"theta": (runs, size)}

    def _measured(self, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Metrics of a generation from the scores `[num_seeds, members, num_tasks, inner_seeds]`."""
        of_members = _mean(_mean(scores, 3), 2)  # tasks count alike, however many of their trainings failed
        of_tasks = _mean(_mean(scores, 3), 1)
        flat = [np.asarray(leaf).reshape(len(self._seeds), -1) for leaf in jax.tree.leaves(self.kept())]
        theta = np.concatenate(flat, axis=1)
        start = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(self._initial)])
        finite = np.isfinite(of_members)
        metrics = {
            "return": _mean(of_tasks, 1),
            "best_return": np.max(of_members, 1, where=finite, initial=-np.inf),
            "spread": np.sqrt(_mean((of_members - _mean(of_members, 1)[:, None]) ** 2, 1)),
            "failed": (~np.isfinite(scores)).sum((1, 2, 3)),
            "distance": np.linalg.norm(theta - start, axis=1),
            "task_return": of_tasks,
            "theta": theta,
        }
        return {name: metrics[name].astype(np.float32) for name in self._metric_shapes()}


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of the finite values along an axis; NaN where there is none."""
    finite = np.isfinite(values)
    total = np.sum(values, axis, where=finite, dtype=np.float64)
    count = finite.sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
