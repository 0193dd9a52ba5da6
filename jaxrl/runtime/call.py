"""Calls, their division into parts, each a call over some settings and seeds, and the merging of the results."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.pytrees import EnvParams, HParams, Policy, PyTree
from jaxrl.results.best import Kept, complete
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.description import Description, return_range
from jaxrl.results.result import Result
from jaxrl.runtime.layout import CPU_BLOCK
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.machine.memory import available, size
from jaxrl.sweeps.batching import run_arguments, seed_list
from jaxrl.sweeps.sweep import Sweep

# Least number of bytes that the host keeps of a run: its seed, its arguments, its metrics and its policy.
BYTES_PER_RUN = 256

__all__ = ["Call", "Part", "assembled", "merged", "seeds_that_fit", "shard_of", "sharded", "split"]


class Part(NamedTuple):
    """Part of the runs of a call: each of some settings with each of some seeds.

    Attributes:
      settings: Positions among the settings, int `[s]`.
      seeds: Positions among the seeds, int `[n]`.
    """

    settings: np.ndarray
    seeds: np.ndarray

    @property
    def num_runs(self) -> int:
        """Number of runs of the part."""
        return len(self.settings) * len(self.seeds)


@dataclasses.dataclass(frozen=True)
class Call:
    """Description of a call: the loop of every run, the settings and seeds to run, and their names in a result.

    Attributes:
      loop: Loop of one run.
      identity: Identity of the loop; calls of equal identity share compiled programs.
      points: Iterations after which to evaluate, int64, increasing.
      env_steps_per_iteration: Number of environment steps of one run per iteration.
      headline: Function `(metrics of a point) -> text` for the progress bar.
      reserved: Names that no metric may have.
      prepared: Hyper-parameters as the loop takes them, leaves `[num_settings, ...]`.
      env_params: Parameters of the environment, leaves `[num_settings, ...]`.
      seeds: Seeds of the runs.
      sweep: Names of the settings; None for a single setting.
      algo, hparams: Algorithm and hyper-parameters (leaves `[num_settings, ...]`) of the result.
      attrs: Attributes of the result of the whole call.
      last_dims: Names of the trailing dimensions of metrics, see `metrics_dataset`.
      cpu_block: Width of the widest block on a CPU where no width is requested.
      start: Policies to start the runs from, leaves `[num_settings, num_seeds, ...]`; None starts from scratch.
    """

    loop: Loop
    identity: Hashable
    points: np.ndarray
    env_steps_per_iteration: int
    headline: Callable[[Mapping[str, np.ndarray]], str]
    reserved: frozenset[str]
    prepared: Any
    env_params: EnvParams
    seeds: list[int]
    sweep: Sweep | None
    algo: Any
    hparams: HParams
    attrs: Mapping[str, Any]
    last_dims: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    cpu_block: int = CPU_BLOCK
    start: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(num_settings, num_seeds)`."""
        return (1 if self.sweep is None else len(self.sweep), len(self.seeds))

    @property
    def num_runs(self) -> int:
        """Settings times seeds."""
        return math.prod(self.shape)

    @property
    def env_steps(self) -> int:
        """Environment steps of each run."""
        return int(self.points[-1]) * self.env_steps_per_iteration

    @property
    def eval_steps(self) -> list[int]:
        """Environment steps of each run at its evaluations."""
        return [int(point) * self.env_steps_per_iteration for point in self.points]

    @property
    def whole(self) -> Part:
        """All of its runs."""
        return Part(*map(np.arange, self.shape))

    def description(self) -> Description:
        """Description of the call, without how it is executed."""
        sweep, dims, coords = self.sweep, {}, {}
        if sweep is not None:
            dims = dict(zip(sweep.dims, sweep.shape, strict=True))
            coords = {path: (tuple(on), np.asarray(values)) for path, (on, values) in sweep.coords.items()}
        return Description(self.algo, self.hparams, self.env_params, self.seeds, dims, coords, self.attrs)

    def arguments(self) -> tuple[Any, Any, Any]:
        """`(seed, hparams, env_params)` of every run, leaves `[num_runs, ...]`, settings before seeds."""
        return run_arguments(self.seeds, self.prepared, self.env_params)

    def part(self, part: Part) -> Call:
        """Call over a part of the runs; a subset of the settings lies along one axis."""
        if part.num_runs == self.num_runs:
            return self
        chosen = part.settings

        def of_settings(tree: PyTree) -> Any:
            return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], tree)

        whole = len(chosen) == self.shape[0]
        return dataclasses.replace(
            self,
            prepared=of_settings(self.prepared),
            env_params=of_settings(self.env_params),
            hparams=of_settings(self.hparams),
            start=jax.tree.map(lambda leaf: leaf[np.ix_(chosen, part.seeds)], self.start),
            seeds=[self.seeds[i] for i in part.seeds],
            sweep=self.sweep if whole or self.sweep is None else self.sweep.subset(chosen),
        )

    def result(
        self, metrics: Mapping[str, np.ndarray], policies: Policy, env_steps: Sequence[int], attrs: Mapping[str, Any]
    ) -> Result:
        """Labelled result of the computed arrays.

        Args:
          metrics: Metrics `{name: [num_settings, num_seeds, num_points, ...]}`.
          policies: Policies, or `Kept`, leaves `[num_settings, num_seeds, ...]`.
          env_steps: Number of environment steps at each point.
          attrs: Attributes in addition to those of the call.
        """
        dataset = metrics_dataset(
            metrics,
            seeds=self.seeds,
            env_steps=env_steps,
            sweep=self.sweep,
            attrs={**self.attrs, **return_range(self.algo, self.env_params), **attrs},
            last_dims={name: dims for name, dims in self.last_dims.items() if name in metrics},
        )
        last, best = complete(policies)
        return Result(dataset, last, self.algo, self.hparams, self.env_params, best=best)


def seeds_that_fit(seeds: int | Sequence[int], hparams: HParams = None, name: str = "seeds") -> list[int]:
    """List of seeds (0, 1, ... for a number), rejected before it is built if the memory cannot hold the results.

    Args:
      seeds: Number of seeds, or the seeds.
      hparams: Hyper-parameters of one setting, or a `Sweep`, each of whose settings is run with every seed.
      name: Name of the argument.

    Raises:
      ValueError: `seeds` is not valid, or too many for the free memory.
    """
    if isinstance(seeds, int | np.integer):
        num_settings = len(hparams) if isinstance(hparams, Sweep) else 1
        free = available()
        most = free // (BYTES_PER_RUN * num_settings)
        if seeds > most:
            raise UserValueError(
                f"{name} must be at most {most:,} here, because results of more do not fit into the {size(free)} of "
                f"free memory, got {seeds:,}"
            )
    return seed_list(seeds, name)


def split(num_settings: int, num_seeds: int, count: int) -> list[Part]:
    """Divide the runs of a call into parts of nearly equal size: by seeds, and by settings too if seeds are too few.

    Args:
      num_settings, num_seeds: Number of settings and of seeds of the call.
      count: Number of parts; limited to the number of runs.

    Returns:
      Non-empty parts, in the order of the seeds.
    """
    settings, seeds = np.arange(num_settings), np.arange(num_seeds)
    if count <= num_seeds:
        return [Part(settings, some) for some in np.array_split(seeds, count)]
    groups = [len(some) for some in np.array_split(np.arange(min(count, num_settings * num_seeds)), num_seeds)]
    return [
        Part(some, seeds[i : i + 1]) for i, number in enumerate(groups) for some in np.array_split(settings, number)
    ]


class Assembled(NamedTuple):
    """Joined results of parts.

    Attributes:
      seeds: Positions of the seeds that every setting has.
      env_steps: Number of environment steps at the points that every part has.
      metrics: Metrics of those seeds and points, `{name: [num_settings, num_seeds, num_points, ...]}`.
      policies: Policies of those seeds, leaves `[num_settings, num_seeds, ...]`.
    """

    seeds: np.ndarray
    env_steps: list[int]
    metrics: dict[str, np.ndarray]
    policies: Kept


def assembled(shape: tuple[int, int], parts: Sequence[tuple[Part, Result]]) -> Assembled:
    """Join the runs of parts, each at its place in the whole.

    Args:
      shape: Shape `(num_settings, num_seeds)` of the whole.
      parts: Parts with their results.

    Raises:
      ResultError: No seed is present under every setting, or no point in every part.
    """
    present = np.zeros(shape, bool)
    for part, _ in parts:
        present[np.ix_(part.settings, part.seeds)] = True
    seeds = np.flatnonzero(present.all(axis=0))
    if not len(seeds):
        raise ResultError("the parts hold no seed under every setting: a result needs at least one")
    results = [result for _, result in parts]
    points = [result.metrics["env_step"].values for result in results]
    # A stopped part was evaluated where it stopped, possibly between the points of the others.
    env_steps = functools.reduce(np.intersect1d, points)
    if not len(env_steps):
        raise ResultError("the parts have no evaluation at the same env step: a result needs at least one")
    kept = [np.isin(at, env_steps) for at in points]

    def whole(*leaves: PyTree) -> np.ndarray:
        every = np.zeros((*shape, *leaves[0].shape[2:]), leaves[0].dtype)
        for (part, _), leaf in zip(parts, leaves, strict=True):
            every[np.ix_(part.settings, part.seeds)] = leaf
        return every[:, seeds]

    metrics = {
        str(name): whole(*(result.values(str(name))[:, :, at] for result, at in zip(results, kept, strict=True)))
        for name in results[0].metrics.data_vars
    }
    policies = jax.tree.map(whole, *(Kept(result.policies, result.best) for result in results))
    return Assembled(seeds, [int(step) for step in env_steps], metrics, policies)


def merged(call: Call, parts: Sequence[tuple[Part, Result]], attrs: Mapping[str, Any]) -> Result:
    """Result of a call from the results of its parts: the seeds that every setting has, at the points that all have.

    Raises:
      ResultError: No seed is present under every setting, or no point in every part.
    """
    joined = assembled(call.shape, parts)
    chosen = call.part(Part(np.arange(call.shape[0]), joined.seeds))
    return chosen.result(joined.metrics, joined.policies, joined.env_steps, attrs)


def shard_of(shard: str | tuple[int, int]) -> tuple[int, int]:
    """Index and number of shards, from `"0/4"` or `(0, 4)`.

    Raises:
      ValueError: `shard` is neither.
    """
    if isinstance(shard, str) and (match := re.fullmatch(r"(\d+)/(\d+)", shard)):
        index, count = map(int, match.groups())
    elif isinstance(shard, tuple) and len(shard) == 2 and all(type(number) is int for number in shard):
        index, count = shard
    else:
        raise UserValueError(f"shard must be i/n, such as 0/4 for the first of four, got {shard!r}")
    if not 0 <= index < count:
        raise UserValueError(f"shard must be i/n with i from 0 to n - 1, got {index}/{count}")
    return index, count


def sharded(call: Call, index: int, count: int) -> Call:
    """Call over the runs of one shard; its attributes describe the whole for `merge`.

    Raises:
      ValueError: There are more shards than runs.
    """
    parts = split(*call.shape, count)
    if count > len(parts):
        raise UserValueError(f"shard takes at most as many shards as there are runs, {len(parts)}, got {index}/{count}")
    described = call.description()
    coords = {path: [list(dims), values.tolist()] for path, (dims, values) in described.coords.items()}
    dims, shape = list(described.dims), list(described.dims.values())
    whole = {"seeds": call.seeds, "dims": dims, "shape": shape, "coords": coords}
    part = call.part(parts[index])
    return dataclasses.replace(part, attrs={**part.attrs, "shard": f"{index}/{count}", "whole": json.dumps(whole)})
