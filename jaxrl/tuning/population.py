"""Population-based training: runs copy better runs and change their hyper-parameters during training."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import jax
import numpy as np

from envs.errors import UserValueError
from envs.settings import own_settings
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_count
from jaxrl.pytrees import EnvParams, Policy
from jaxrl.results.result import Result
from jaxrl.results.storage import claim_directory, exclusive, write_csv
from jaxrl.runtime.drive.progress import Progress, stop_on_signals
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import PopulationOptions, checked
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform
from jaxrl.tuning.batches import Waves
from jaxrl.tuning.run_trials import arguments_of, call_of
from jaxrl.tuning.space import Setting, Space

LINEAGE = "lineage.csv"
MEMBER_SEED = "member_seed"

__all__ = ["PopulationResult", "population_based_training"]


@dataclasses.dataclass(repr=False)
class PopulationResult:
    """A trained population.

    Attributes:
      result: Members at the end as settings, labelled by their last hyper-parameters and by `member_seed`,
        the seed with which they trained; its curves are those of the positions of members, and the axis `seed` holds
        the single seed of the population.
      settings: Hyper-parameters of each member in each round, `[num_rounds][num_members]`.
      returns: Greedy return at the end of each round, `[num_rounds, num_members]`; nan for a failed member.
      parents: Member with whose weights each member began the round, int `[num_rounds, num_members]`: a position in the
        previous round, its own if it continued.
      env_steps: Environment steps of each member at the end of each round, `[num_rounds]`.
      seeds: Seeds of the members, `[num_members]`; a seed stays with its position.
    """

    result: Result
    settings: list[list[Setting]]
    returns: np.ndarray
    parents: np.ndarray
    env_steps: np.ndarray
    seeds: np.ndarray

    def __repr__(self) -> str:
        rounds, members = self.returns.shape
        return (
            f"PopulationResult({members} members, {rounds} rounds up to {int(self.env_steps[-1]):,} env steps; best: "
            f"member {self.best}, {self.returns[-1, self.best]:.5g})"
        )

    @property
    def best(self) -> int:
        """The member with the best return at the end, which is biased by the selection: evaluate the member again."""
        return int(np.argmax(np.where(np.isfinite(self.returns[-1]), self.returns[-1], -np.inf)))

    def ancestry(self, member: int) -> list[int]:
        """Positions of a member's weights in each round, from the first to the last."""
        places = [member]
        for parents in self.parents[:0:-1]:
            places.append(int(parents[places[-1]]))
        return places[::-1]

    def schedule(self, member: int) -> list[Setting]:
        """The hyper-parameters with which a member's weights were trained in each round."""
        return [of_round[place] for of_round, place in zip(self.settings, self.ancestry(member), strict=True)]


@own_settings()
def population_based_training(
    algo: Algorithm,
    space: Mapping[str, Uniform | LogUniform | Choice],
    *,
    members: int = 16,
    env_steps: int,
    rounds: int = 10,
    replaced: float = 0.25,
    perturb: float = 1.25,
    redraw: float = 0.25,
    eval_episodes: int = 64,
    env_params: EnvParams = None,
    seed: int = 0,
    **options: Unpack[PopulationOptions],
) -> PopulationResult:
    """Train a population in one program; its worst members restart from copies of the best with changed settings.

    After each round except the last, the share `replaced` of the members with the lowest greedy returns
    copy the whole state of a random member among the same number of best ones (exploit), and each of their
    hyper-parameters is resampled with probability `redraw`, or else perturbed (explore): multiplied or divided
    by `perturb` under LogUniform, shifted by `(perturb - 1)` of the range under Uniform, moved to a neighbour
    of its value under Choice. Only one program is compiled. Ctrl-C and SIGTERM end the call after
    the current chunk, with the completed rounds. After a killed call, `out` holds the lineage
    of the completed rounds and no policies, and the call cannot be resumed.

    Args:
      algo, env_params, eval_episodes: Algorithm, environment parameters and episodes per evaluation, as in `train`.
      space: Distributions of traced values, `{path: Uniform | LogUniform | Choice}`; the first population is
        drawn from them.
      members: Number of runs that train together, each with its own seed.
      env_steps: Number of environment steps of each member.
      rounds: Number of rounds, evenly spaced, at most one per iteration.
      replaced: Share of the members replaced after each round, in [0, 0.5], rounded down but at least one member;
        0 only trains the first population.
      perturb: Factor of perturbations, above 1.
      redraw: Probability of resampling a hyper-parameter.
      seed: Random seed of all draws.
      **options: Options on where and how the call runs, see
        `jaxrl.runtime.options.PopulationOptions`; `out` also gets `lineage.csv`, after each round.

    Raises:
      ValueError, TypeError: An argument is invalid; raised before anything is compiled.
      KeyboardInterrupt: A signal came before the end of the first round.

    Source: Jaderberg et al. (2017), "Population based training of neural networks".
    """
    for name, value in {"members": members, "env_steps": env_steps, "rounds": rounds}.items():
        check_count(name, value)
    check_count("eval_episodes", eval_episodes)
    chosen = checked(population_based_training, PopulationOptions, options)
    for name, value, low, high in (("replaced", replaced, 0.0, 0.5), ("redraw", redraw, 0.0, 1.0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise UserValueError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}")
    if replaced and members < 2:
        raise UserValueError("members must be at least 2, or replaced must be 0, got members=1")
    if isinstance(perturb, bool) or not isinstance(perturb, int | float) or not 1 < perturb < math.inf:
        raise UserValueError(f"perturb must be a number above 1, such as 1.25, got {perturb!r}")
    check_count("seed", seed, 0)
    if isinstance(space, Mapping) and (static := [path for path in space if str(path).startswith("config.")]):
        raise UserValueError(
            f"{', '.join(static)} is static, and cannot change within a run: search it by jaxrl.search"
        )
    searched = Space(algo, space, env_params)
    directory = None if chosen.out is None else claim_directory(chosen.out, chosen.force, checkpoints=True)
    points = evaluation_points(env_steps, rounds, algo.env_steps_per_iteration)
    population = _Population(searched, members, points, replaced, perturb, redraw, eval_episodes, seed)
    layout = plan_layout(members, chosen.block, chosen.devices)
    total = int(points[-1]) * algo.env_steps_per_iteration * members
    progress = chosen.progress
    with exclusive(directory, chosen.force), Progress(total, progress) as bar, stop_on_signals(progress) as stop:
        bar.phase("compiling")
        started = time.perf_counter()
        waves = Waves(population.call, layout, chosen.memory, chosen.precision, members, progress)
        compile_seconds, started = time.perf_counter() - started, time.perf_counter()
        bar.start()
        states, iteration = None, 0
        for i, point in enumerate(points.tolist()):
            last = i + 1 == len(points)
            arguments = population.arguments()
            done = list(waves.advance(arguments, states, iteration, point, bar, stop, keep=not last))
            if sum(len(wave.metrics["return"]) for wave in done) < members:
                break
            metrics, policies, states = jax.tree.map(lambda *leaves: np.concatenate(leaves), *done)
            iteration = point
            population.add(metrics, policies)
            bar.report(f"best return {population.best_return():.1f}")
            if directory is not None:
                population.write_lineage(directory / LINEAGE)
            if not last:
                parents = population.evolve()
                states = jax.tree.map(lambda leaf, parents=parents: leaf[parents], states)
        if not population.metrics:
            raise KeyboardInterrupt(stop.signal)
        trained = population.result(
            {
                "block": waves.layout.block,
                "precision": chosen.precision,
                "compile_seconds": compile_seconds,
                "run_seconds": time.perf_counter() - started,
                "interrupted": int(len(population.metrics) < len(points)),
                "stopped_by_signal": stop.signal or 0,
            }
        )
        if directory is not None:
            trained.result.save(directory, force=True)
    return trained


class _Population:
    """The state of the members between two rounds, on the host."""

    def __init__(
        self,
        space: Space,
        members: int,
        points: np.ndarray,
        replaced: float,
        perturb: float,
        redraw: float,
        eval_episodes: int,
        seed: int,
    ) -> None:
        self._space, self._points, self._episodes, self._seed = space, points, eval_episodes, seed
        self._replaced, self._perturb, self._redraw = replaced, perturb, redraw
        self._generator = np.random.default_rng([seed, 1])
        self.metrics: list[dict[str, np.ndarray]] = []
        self._policies: Any = None
        self._settings = [[space.drawn(seed, member) for member in range(members)]]
        self._parents = [np.arange(members)]
        self._seeds = np.random.SeedSequence(seed).generate_state(members)
        self.call = self._call()

    def _call(self) -> Any:
        per_iteration = self._space.algo.env_steps_per_iteration
        points = [int(point) * per_iteration for point in self._points]
        return call_of(self._space, self._settings[-1], [self._seed], self._episodes, points)

    def arguments(self) -> Any:
        """`(seed, hparams, env_params)` of the members, each with its own seed."""
        members = len(self._settings[-1])
        _, hparams, env_params = arguments_of(self._call(), members)
        return self._seeds.astype(np.uint32), hparams, env_params

    def add(self, metrics: dict[str, np.ndarray], policies: Policy) -> None:
        """Record the end of a round."""
        self.metrics.append(metrics)
        self._policies = policies

    def best_return(self) -> float:
        """The best return of the last round, nan if all members failed."""
        finite = self.metrics[-1]["return"][np.isfinite(self.metrics[-1]["return"])]
        return float(finite.max()) if finite.size else float("nan")

    def evolve(self) -> np.ndarray:
        """The member whose state each member takes into the next round; changes the settings of replaced members."""
        returns, settings = self.metrics[-1]["return"], self._settings[-1]
        order = np.argsort(-np.where(np.isfinite(returns), returns, -np.inf), kind="stable")
        count = max(int(self._replaced * len(order)), 1) if self._replaced else 0
        parents = np.arange(len(order))
        if count:
            parents[order[-count:]] = self._generator.choice(order[:count], size=count)
        self._parents.append(parents)
        self._settings.append(
            [
                settings[i]
                if parent == i
                else {path: self._explored(path, settings[parent][path]) for path in settings[i]}
                for i, parent in enumerate(parents)
            ]
        )
        return parents

    def _explored(self, path: str, label: Any) -> Any:
        distribution = self._space.distributions[path]
        if self._generator.random() < self._redraw:
            return self._space.draw(lambda _: self._generator)[path]
        up = self._generator.random() < 0.5
        if isinstance(distribution, Choice):
            labels = self._space.labels(path)
            return labels[min(max(labels.index(label) + (1 if up else -1), 0), len(labels) - 1)]
        if isinstance(distribution, LogUniform):
            moved = label * self._perturb if up else label / self._perturb
        else:
            moved = label + (1 if up else -1) * (self._perturb - 1) * (distribution.high - distribution.low)
        return min(max(moved, distribution.low), distribution.high)

    def result(self, attrs: Mapping[str, Any]) -> PopulationResult:
        """The result of the completed rounds."""
        done, members = len(self.metrics), len(self._settings[0])
        del self._settings[done:], self._parents[done:]
        call = self._call()
        kept = np.arange(members)
        if call.sweep is not None:
            sweep = call.sweep.subset(kept)
            coords = {**sweep.coords, MEMBER_SEED: (sweep.dims, self._seeds.astype(np.int64))}
            call = dataclasses.replace(
                call,
                sweep=dataclasses.replace(sweep, coords=coords),
                hparams=jax.tree.map(lambda leaf: leaf[kept], call.hparams),
                env_params=jax.tree.map(lambda leaf: leaf[kept], call.env_params),
            )
        metrics = {name: np.stack([m[name] for m in self.metrics], axis=1)[:, None] for name in self.metrics[0]}
        policies = jax.tree.map(lambda leaf: leaf[:, None], self._policies)
        env_steps = self._env_steps()
        result = call.result(metrics, policies, env_steps.tolist(), attrs)
        parents = np.stack(self._parents)
        return PopulationResult(result, self._settings, self._returns(), parents, env_steps, self._seeds)

    def write_lineage(self, file: Path) -> None:
        """Write a row for each member and each completed round."""
        paths, env_steps, returns = list(self._settings[0][0]), self._env_steps(), self._returns()
        rows = []
        for i, of_round in enumerate(self._settings[: len(returns)]):
            for member, setting in enumerate(of_round):
                known = [i, env_steps[i], member, self._seeds[member], self._parents[i][member]]
                rows.append([*known, *setting.values(), returns[i, member]])
        columns = ["round", "env_steps", "member", MEMBER_SEED, "parent", *paths, "return"]
        write_csv(file, columns, rows)

    def _env_steps(self) -> np.ndarray:
        return self._points[: len(self.metrics)] * self.call.env_steps_per_iteration

    def _returns(self) -> np.ndarray:
        return np.stack([metrics["return"] for metrics in self.metrics])
