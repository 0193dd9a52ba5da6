"""Population-based training: runs that copy the better ones and change their hyper-parameters as they go."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import jax
import numpy as np

from envs.errors import UserValueError
from envs.files import replacing
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import check_count
from jaxrl.results.result import Result
from jaxrl.results.storage import CSV_NEWLINE, claim_directory, exclusive
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.loop import evaluation_points
from jaxrl.runtime.options import PopulationOptions, checked
from jaxrl.runtime.progress import Progress, stop_on_signals
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform
from jaxrl.tuning.space import Setting, Space
from jaxrl.tuning.trials import arguments_of, call_of
from jaxrl.tuning.waves import Waves

LINEAGE = "lineage.csv"
MEMBER_SEED = "member_seed"

__all__ = ["PopulationResult", "population_based_training"]


@dataclasses.dataclass(repr=False)
class PopulationResult:
    """A population that was trained.

    Attributes:
      result: the members at the end, one setting each under the hyper-parameters that they ended with, and
        `member_seed`, with which they trained; its curves are those of the members' places, and the
        axis `seed` has the one of the population.
      settings: `[num_rounds][num_members]`, what each member trained with in each round.
      returns: `[num_rounds, num_members]`, greedy, at the end of each round; nan for a member that failed.
      parents: int `[num_rounds, num_members]`, whose weights each member began the round with: a position
        in the round before, its own where it went on.
      env_steps: `[num_rounds]`, of each member at the end of each round.
      seeds: `[num_members]`, with which the members train; it stays with the place.
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
        """The member of the best return at the end, chosen by it: evaluate it anew to know its return."""
        return int(np.argmax(np.where(np.isfinite(self.returns[-1]), self.returns[-1], -np.inf)))

    def ancestry(self, member: int) -> list[int]:
        """Which place a member's weights were at in each round, the first to the last."""
        places = [member]
        for parents in self.parents[:0:-1]:
            places.append(int(parents[places[-1]]))
        return places[::-1]

    def schedule(self, member: int) -> list[Setting]:
        """The hyper-parameters that a member's weights were trained with in each round."""
        return [of_round[place] for of_round, place in zip(self.settings, self.ancestry(member), strict=True)]


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
    env_params: Any = None,
    seed: int = 0,
    **options: Unpack[PopulationOptions],
) -> PopulationResult:
    """Trains a population in one program, whose worst members go on from copies of the best with changed settings.

    After each round but the last, a share `replaced` of the members, those of the lowest greedy returns,
    take the whole state of a random one of the best as many (exploit), and each of their hyper-parameters
    is drawn anew with probability `redraw`, or else moved (explore): multiplied or divided by
    `perturb` under LogUniform, shifted by `(perturb - 1)` of the range under Uniform, to a neighbour
    of its value under Choice. Nothing is ever compiled but one program. Ctrl-C and SIGTERM end after
    the chunk under way, with the rounds that are done; of a call that is killed `out` has the lineage
    of these and no policies, and it cannot be gone on with.

    Args:
      algo, env_params, eval_episodes: as in `train`.
      space: `{path: Uniform | LogUniform | Choice}` of traced values; the first population is drawn from it.
      members: runs that train together, each with a seed of its own.
      env_steps: of each member.
      rounds: evenly spaced, at most one per iteration.
      replaced: share of the members, in [0, 0.5], rounded down, but one at least; 0 only trains the first
        population.
      perturb: above 1.
      redraw: a probability.
      seed: of all that is drawn.
      **options: Options that say where and how the call is carried out, see
        `jaxrl.runtime.options.PopulationOptions`; `out` also gets `lineage.csv`, after each round.

    Raises:
      ValueError, TypeError: bad arguments, before anything is compiled.
      KeyboardInterrupt: a signal came before the end of the first round.

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
        raise UserValueError("members must be at least 2, one to go on from the other, or replaced 0, got 1")
    if isinstance(perturb, bool) or not isinstance(perturb, int | float) or not 1 < perturb < math.inf:
        raise UserValueError(f"perturb must be a number above 1, such as 1.25, got {perturb!r}")
    check_count("seed", seed, 0)
    if isinstance(space, Mapping) and (static := [path for path in space if str(path).startswith("config.")]):
        raise UserValueError(
            f"{', '.join(static)} is static, and cannot change within a run: search it by jaxrl.search"
        )
    searched = Space(algo, space, env_params)
    directory = None if chosen.out is None else claim_directory(chosen.out, chosen.force)
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
        found = population.result(
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
            found.result.save(directory, force=True)
    return found


class _Population:
    """The members between two rounds, on the host."""

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
    ):
        self._space, self._points, self._episodes, self._seed = space, points, eval_episodes, seed
        self._replaced, self._perturb, self._redraw = replaced, perturb, redraw
        self._generator = np.random.default_rng([seed, 1])
        self.metrics: list[dict[str, np.ndarray]] = []
        self._policies: Any = None
        self._settings = [[space.draw(lambda path, i=i: self._stream(path, i)) for i in range(members)]]
        self._parents = [np.arange(members)]
        self._seeds = np.random.SeedSequence(seed).generate_state(members)
        self.call = self._call()

    def _stream(self, path: str, member: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, member, zlib.crc32(path.encode())])

    def _call(self) -> Any:
        per_iteration = self._space.algo.env_steps_per_iteration
        points = [int(point) * per_iteration for point in self._points]
        return call_of(self._space, self._settings[-1], [self._seed], self._episodes, points)

    def arguments(self) -> Any:
        """`(seed, hparams, env_params)` of the members, each with a seed of its own."""
        members = len(self._settings[-1])
        _, hparams, env_params = arguments_of(self._call(), members)
        return self._seeds.astype(np.uint32), hparams, env_params

    def add(self, metrics: dict[str, np.ndarray], policies: Any) -> None:
        """The end of a round."""
        self.metrics.append(metrics)
        self._policies = policies

    def best_return(self) -> float:
        """Of the last round, nan where all failed."""
        finite = self.metrics[-1]["return"][np.isfinite(self.metrics[-1]["return"])]
        return float(finite.max()) if finite.size else float("nan")

    def evolve(self) -> np.ndarray:
        """Whose states the members take into the next round, whose settings are changed where it is another's."""
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
        """What the rounds that are done come to."""
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
        """A row for each member and each round that is done."""
        import pandas

        paths, env_steps, returns = list(self._settings[0][0]), self._env_steps(), self._returns()
        rows = []
        for i, of_round in enumerate(self._settings[: len(returns)]):
            for member, setting in enumerate(of_round):
                known = [i, env_steps[i], member, self._seeds[member], self._parents[i][member]]
                rows.append([*known, *setting.values(), returns[i, member]])
        columns = ["round", "env_steps", "member", MEMBER_SEED, "parent", *paths, "return"]
        with replacing(file, None) as part:
            pandas.DataFrame(rows, None, columns, object).to_csv(
                part, index=False, na_rep="nan", lineterminator=CSV_NEWLINE
            )

    def _env_steps(self) -> np.ndarray:
        return self._points[: len(self.metrics)] * self.call.env_steps_per_iteration

    def _returns(self) -> np.ndarray:
        return np.stack([metrics["return"] for metrics in self.metrics])
