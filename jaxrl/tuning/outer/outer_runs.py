"""Outer runs: learners of theta, each generation of which is a population of inner trainings."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError
from jaxrl.pytrees import PyTree, State
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.layout import Layout, plan_layout
from jaxrl.runtime.options import Options
from jaxrl.tuning.outer.gradient_task import GradientTask
from jaxrl.tuning.outer.inner_task import InnerTask, Outcome
from jaxrl.tuning.outer.learners import Learner

__all__ = ["OuterRuns"]


class OuterRuns:
    """Outer runs with the interface of `DrivenRuns`: one for each outer seed, an iteration of which is a generation.

    All members of a generation train with equal seeds (common random numbers), which differ between generations and
    outer seeds; the trainings of all outer runs are runs of the ordinary driver, in blocks on all devices.

    Args:
      tasks: Tasks of the inner trainings.
      learner: Learner of theta.
      initial: Theta at the start.
      inner_seeds: Number of trainings of each theta on each task.
      seeds: Outer seeds.
      options: Options of the execution.
      block: Number of trainings of one vmap, if they fit into memory.
      stop: Request to end, which a signal sets; a generation that it ends is begun again by a resumed call.
      narrowed: Function that records a narrower block, after a device ran out of memory.

    Attributes:
      iteration: Number of generations done.
    """

    def __init__(
        self,
        tasks: Sequence[InnerTask | GradientTask],
        learner: Learner,
        initial: PyTree,
        inner_seeds: int,
        seeds: Sequence[int],
        options: Options,
        block: int,
        stop: StopRequest,
        narrowed: Callable[[int], object] = lambda block: None,
    ) -> None:
        self.iteration = 0
        self._narrowed = narrowed
        self._tasks, self._learner, self._inner_seeds = tasks, learner, inner_seeds
        self._seeds, self._stop = list(seeds), stop
        self._whole = options.shard is None
        self._keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
        self._initial = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), initial)
        begin = jax.jit(jax.vmap(lambda key: learner.begin(key, self._initial)))
        self._states: Any = begin(self._generation_keys(-1))
        self._metrics = {name: np.full(shape, np.nan, np.float32) for name, shape in self._metric_shapes().items()}
        count = len(self._seeds) * learner.members * inner_seeds
        thetas = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), self._initial)
        self._waves = [task.waves(thetas, plan_layout(count, block, options.devices), options) for task in tasks]
        if (narrowest := min(waves.layout.block for waves in self._waves)) < block:  # one width for all tasks
            layout = plan_layout(count, narrowest, options.devices)
            self._waves = [task.waves(thetas, layout, options) for task in tasks]
        self._block = self.layout.block

    @property
    def layout(self) -> Layout:
        """Layout of the trainings of the task with the narrowest blocks."""
        return min((waves.layout for waves in self._waves), key=lambda layout: layout.block)

    @property
    def shapes(self) -> tuple[Any, dict[str, jax.ShapeDtypeStruct]]:
        """Shapes of `states()`, and of the metrics of `evaluate()`."""
        metrics = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in self._metric_shapes().items()}
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.states()), metrics

    def start(self) -> None:
        """Do nothing: an outer run has begun."""

    def advance(self, count: int) -> None:
        """Advance by `count` generations, or fewer where a signal ends one."""
        for _ in range(count):
            if not self._generation():
                return

    def evaluate(self) -> tuple[dict[str, np.ndarray], Any]:
        """Metrics of the last generation, and the learned theta: leaves `[num_seeds, ...]`."""
        return dict(self._metrics), self.kept()

    def states(self) -> Any:
        """States of the learners and metrics of the last generation, leaves `[num_seeds, ...]`."""
        return jax.tree.map(np.asarray, (self._states, self._metrics))

    def kept(self) -> dict[str, np.ndarray]:
        """Learned thetas as arrays `[num_seeds, ...]` by their paths, in the order of the leaves."""
        learned = jax.vmap(self._learner.solution)(self._states)
        return {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in jax.tree.leaves_with_path(learned)}

    def again(self) -> Any:
        raise NotImplementedError("an outer run keeps only its last theta")

    def put(self, states: State, iteration: int) -> None:
        """Set the runs to states that `states()` returned."""
        self._states, self._metrics = jax.tree.map(np.asarray, states)
        self._states, self.iteration = jax.tree.map(jnp.asarray, self._states), iteration

    def inner_seeds(self, generation: int) -> np.ndarray:
        """Seeds of the trainings of a generation, uint32 `[num_seeds, inner_seeds]`."""
        count = self._inner_seeds
        return np.stack([np.random.SeedSequence([seed, generation]).generate_state(count) for seed in self._seeds])

    def thetas(self) -> Any:
        """Thetas of the next generation, leaves `[num_seeds, members, ...]`."""
        return jax.tree.map(np.asarray, self._ask(self._states, self.iteration)[0])

    def _generation_keys(self, generation: int) -> jax.Array:
        return jax.vmap(lambda key: jax.random.fold_in(key, np.uint32(generation + 1)))(self._keys)

    def _ask(self, states: State, generation: int) -> tuple[Any, Any]:
        return self._asking(self._generation_keys(generation), states)

    @functools.cached_property
    def _asking(self) -> Callable[..., Any]:
        return jax.jit(jax.vmap(lambda key, state: self._learner.ask(jax.random.fold_in(key, 0), state)))

    @functools.cached_property
    def _telling(self) -> Callable[..., Any]:
        def tell(key: jax.Array, thetas: PyTree, lessons: jax.Array, state: State) -> Any:
            return self._learner.tell(jax.random.fold_in(key, 1), thetas, lessons, state)

        return jax.jit(jax.vmap(tell))

    def _flat(self, thetas: PyTree) -> Any:
        """A theta for each training of a task, leaves `[num_seeds * members * inner_seeds, ...]`."""

        def flat(leaf: np.ndarray) -> np.ndarray:
            return np.repeat(leaf.reshape(-1, *leaf.shape[2:]), self._inner_seeds, axis=0)

        return jax.tree.map(flat, thetas)

    def _generation(self) -> bool:
        """One generation; False if a signal ended it, which leaves the states as they were."""
        thetas, asked = self._ask(self._states, self.iteration)
        flat = self._flat(jax.tree.map(np.asarray, thetas))
        inner = self.inner_seeds(self.iteration)
        shape = (len(self._seeds), self._learner.members, inner.shape[1])
        seeds = np.broadcast_to(inner[:, None], shape).reshape(-1)
        outcomes = []
        for task, waves in zip(self._tasks, self._waves, strict=True):
            outcome = task.train(waves, flat, seeds, self._stop)
            if outcome is None:
                return False
            outcomes.append(jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), outcome))
        if self.layout.block < self._block:
            self._block = self.layout.block
            self._narrowed(self._block)
        of_tasks: Outcome = jax.tree.map(lambda *leaves: np.stack(leaves, axis=2), *outcomes)
        columns = jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:2], -1, *leaf.shape[4:]), of_tasks)
        if self.iteration == 0 and (reason := self._learner.check(columns)) is not None:
            if self._whole:
                raise UserValueError(reason)
            warnings.warn(
                f"if the other shards are like this one, nothing is learned: {reason}", RuntimeWarning, stacklevel=8
            )
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], columns) for i in range(len(self._seeds))]
        lessons = np.stack([self._learner.lessons(outcome) for outcome in each])
        self._states = self._telling(self._generation_keys(self.iteration), thetas, lessons, asked)
        self._metrics = self._measured(of_tasks.value)
        self.iteration += 1
        return True

    def _metric_shapes(self) -> dict[str, tuple[int, ...]]:
        runs, size = len(self._seeds), sum(leaf.size for leaf in jax.tree.leaves(self._initial))
        names = ("return", "best_return", "spread", "failed", "distance")
        shapes: dict[str, tuple[int, ...]] = {name: (runs,) for name in names}
        if len(self._tasks) > 1:
            shapes["task_return"] = (runs, len(self._tasks))
        return shapes | {"theta": (runs, size)}

    def _measured(self, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Metrics of a generation from the objectives `[num_seeds, members, num_tasks, inner_seeds]`."""
        of_members = _mean(_mean(scores, 3), 2)  # tasks count alike, however many of their trainings failed
        of_tasks = _mean(_mean(scores, 3), 1)
        flat = [leaf.reshape(len(self._seeds), -1) for leaf in self.kept().values()]
        theta = np.concatenate(flat, axis=1)
        start = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(self._initial)])
        best = np.max(of_members, 1, where=np.isfinite(of_members), initial=-np.inf)
        metrics = {
            "return": _mean(of_tasks, 1),
            "best_return": np.where(np.isfinite(best), best, np.nan),
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
