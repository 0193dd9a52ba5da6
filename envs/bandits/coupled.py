"""Restless bandits coupled by constraints on simultaneous actions: four families of combinatorial constraints."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import check_count
from envs.bandits.checking import Unasked, agreed
from envs.bandits.declining import DecliningParams, declining_arms
from envs.bandits.markov import Arms, MarkovBandit
from envs.bandits.restless import within_budget
from envs.errors import UserValueError

__all__ = ["CapacityBandit", "CoupledBandit", "InterventionBandit", "MatchingBandit", "PathBandit"]


@dataclasses.dataclass(frozen=True)
class CoupledBandit(MarkovBandit):
    """The base class of the four families: the prior, and a default of five arms.

    The families are those of the source: arms are finite Markov chains with one law for each action on
    them. The prior (`DecliningParams`), the default constraints and the order in which actions are read are this
    project's own.

    Source: Xu, Wilder, Khalil and Tambe (2025), Reinforcement learning with combinatorial actions
    for coupled restless bandits.
    """

    num_arms: int = Unasked(5)

    @property
    def default_params(self) -> DecliningParams:
        """Arms that decline if left alone, and rise if touched."""
        return DecliningParams()

    def draw(self, key: jax.Array, params: DecliningParams) -> Arms:
        """Arms from the prior."""
        return declining_arms(key, params, (self.num_arms, self.num_arm_actions, self.num_states))


@dataclasses.dataclass(frozen=True)
class InterventionBandit(CoupledBandit):
    """Several interventions at once: each reaches several arms, and an arm may need several of them.

    An action is 0 or 1 for every intervention; if it has more than `budget` ones, the first `budget` count. An
    arm moves by the number of chosen interventions that reach it, up to `num_levels`; in the prior
    more of them lift it higher.

    Args:
      num_arms: Number of arms; omitted where `reach` is given.
      num_states, num_levels: Numbers of states and of levels of every arm.
      budget: Largest number of interventions in a step.
      reach: Table `[interventions, N]` of zeros and ones; by default there are as many interventions as
        arms, and intervention k reaches the arms k and k + 1, the last one the first arm.

    Raises:
      ValueError: The budget exceeds the number of interventions, or an intervention reaches no arm.
    """

    num_levels: int = 2
    budget: int = 2
    reach: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.reach is not None:
            object.__setattr__(self, "reach", _table("reach", self.reach))
            arms = agreed("num_arms", self.num_arms, len(self.reach[0]), "each row of reach")
            object.__setattr__(self, "num_arms", arms)
            if not all(map(any, self.reach)):
                raise UserValueError(f"reach must give an arm to every intervention, got {self.reach}")
        super().__post_init__()
        check_count("num_levels", self.num_levels, 1)
        if self.reach is None:
            eye = np.eye(self.num_arms, dtype=int)
            object.__setattr__(self, "reach", _rows(np.maximum(eye, np.roll(eye, 1, axis=1))))
        check_count("budget", self.budget, 1, len(self.branches), ", the number of interventions")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/coupled-interventions"

    @property
    def branches(self) -> tuple[int, ...]:
        """Two choices for every intervention: chosen or not."""
        return (2,) * len(self.reach or ())

    @property
    def num_arm_actions(self) -> int:
        """1 + `num_levels`: an arm is reached by 0, ..., `num_levels` or more interventions."""
        return self.num_levels + 1

    def touched(self, action: jax.Array) -> jax.Array:
        """The number of chosen interventions that reach each arm."""
        reaching = within_budget(action, self.budget) @ np.asarray(self.reach, np.int32)
        return jnp.minimum(reaching, self.num_levels)

    def draw(self, key: jax.Array, params: DecliningParams) -> Arms:
        """Arms from the prior, where more interventions lift an arm more."""
        return declining_arms(key, params, (self.num_arms, self.num_arm_actions, self.num_states), ranked=True)


@dataclasses.dataclass(frozen=True)
class WorkerBandit(CoupledBandit):
    """The base class of matching and capacities: workers sent to arms, each with a separate law on each arm.

    An action is a worker 1, ..., W for every arm, or 0 for none.
    """

    num_workers: int = Unasked(2)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_workers", self.num_workers, 1)

    @property
    def branches(self) -> tuple[int, ...]:
        """W + 1 choices for every arm: no worker, or one of the workers."""
        return (self.num_arm_actions,) * self.num_arms

    @property
    def num_arm_actions(self) -> int:
        """W + 1 actions on an arm: no worker, or one of the workers."""
        return self.num_workers + 1

    def _named(self, action: jax.Array) -> jax.Array:
        """The worker that each arm names, bool `[W, N]`."""
        return action == jnp.arange(1, self.num_workers + 1)[:, None]

    def _workers(self, assigned: jax.Array) -> jax.Array:
        """The worker of each arm, int32 `[N]`, 0 for none, from bool `[W, N]`."""
        return jnp.sum(assigned * jnp.arange(1, self.num_workers + 1)[:, None], axis=0).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class MatchingBandit(WorkerBandit):
    """Bipartite matching of workers to arms along a graph's edges, at most one arm per worker and one worker per arm.

    An action is a worker 1, ..., W for every arm, or 0 for none. If several arms name the same worker, the first of
    them with an edge to that worker gets it. Each worker has a separate law on each arm.

    Args:
      num_arms, num_workers: Numbers of arms and of workers; omitted where `edges` are given.
      num_states: Number of states of every arm.
      edges: Table `[W, N]` of zeros and ones; by default every worker can serve every arm.

    Raises:
      ValueError: There are no workers, or `edges` is not a table of zeros and ones.
    """

    edges: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.edges is not None:
            object.__setattr__(self, "edges", _table("edges", self.edges))
            workers = agreed("num_workers", self.num_workers, len(self.edges), "edges")
            arms = agreed("num_arms", self.num_arms, len(self.edges[0]), "each row of edges")
            object.__setattr__(self, "num_workers", workers)
            object.__setattr__(self, "num_arms", arms)
        super().__post_init__()
        if self.edges is None:
            object.__setattr__(self, "edges", ((1,) * self.num_arms,) * self.num_workers)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/coupled-matching"

    def touched(self, action: jax.Array) -> jax.Array:
        """The worker that each arm gets."""
        able = self._named(action) & np.asarray(self.edges, bool)
        return self._workers(able & (jnp.cumsum(able, axis=1) == 1))


@dataclasses.dataclass(frozen=True)
class CapacityBandit(WorkerBandit):
    """Capacities: every arm costs a worker a number of hours, of which each worker has a limited number per step.

    An action is a worker 1, ..., W for every arm, or 0 for none; a worker may have many arms. Each
    worker takes the arms that name it in order, until one does not fit: that arm and those after it
    are left alone. Each worker has a separate law on each arm.

    Args:
      num_arms: Number of arms; omitted where `costs` are given.
      num_workers: Number of workers; omitted where `capacities` are given.
      num_states: Number of states of every arm.
      costs: Costs `[N]`, whole numbers of at least 1; by default alternately 1 and 2.
      capacities: Capacities `[W]`, whole numbers; by default 2 for every worker.

    Raises:
      ValueError: A number is outside these ranges, or no arm fits into a capacity.
    """

    costs: tuple[int, ...] | None = None
    capacities: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.costs is not None:
            self._take("costs", _wholes("costs", self.costs, 1))
        if self.capacities is not None:
            least = 1 if self.costs is None else min(self.costs)
            capacities = _wholes("capacities", self.capacities, least, ", the least cost of an arm")
            object.__setattr__(self, "capacities", capacities)
            workers = agreed("num_workers", self.num_workers, len(capacities), "capacities")
            object.__setattr__(self, "num_workers", workers)
        super().__post_init__()
        if self.costs is None:
            object.__setattr__(self, "costs", tuple(1 + arm % 2 for arm in range(self.num_arms)))
        if self.capacities is None:
            object.__setattr__(self, "capacities", (2,) * self.num_workers)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/coupled-capacity"

    def touched(self, action: jax.Array) -> jax.Array:
        """The worker that each arm gets."""
        named = self._named(action)
        spent = jnp.cumsum(named * np.asarray(self.costs, np.int32), axis=1)
        return self._workers(named & (spent <= np.asarray(self.capacities, np.int32)[:, None]))


@dataclasses.dataclass(frozen=True)
class PathBandit(CoupledBandit):
    """Paths: the arms are the vertices of a graph, and those on a path are touched.

    An action is the `length` vertices of a path in order, beginning at any vertex. A vertex that is not a neighbour of
    the previous one is skipped: the path stays where it is.

    Args:
      num_arms: Number of arms; omitted where `neighbours` are given.
      num_states: Number of states of every arm.
      length: Number of vertices of a path, at most `num_arms`.
      neighbours: Symmetric table `[N, N]` of zeros and ones; by default a ring.

    Raises:
      ValueError: `length` is out of range, or `neighbours` is not symmetric.
    """

    length: int = 3
    neighbours: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.neighbours is not None:
            self._take("neighbours", _table("neighbours", self.neighbours))
            table = np.asarray(self.neighbours)
            if table.shape[0] != table.shape[1] or np.any(table != table.T):
                raise UserValueError(f"neighbours must be symmetric, got {self.neighbours}")
        super().__post_init__()
        check_count("length", self.length, 1, self.num_arms, ", the number of arms")
        if self.neighbours is None:
            eye = np.eye(self.num_arms, dtype=int)
            ring = np.maximum(np.roll(eye, 1, axis=0), np.roll(eye, 1, axis=1))
            object.__setattr__(self, "neighbours", _rows(ring))

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/coupled-path"

    @property
    def branches(self) -> tuple[int, ...]:
        """One choice of a vertex for every step of the path."""
        return (self.num_arms,) * self.length

    def touched(self, action: jax.Array) -> jax.Array:
        """1 for the arms on the path."""
        neighbours = jnp.asarray(self.neighbours, bool)
        at = action[0]
        on_path = jnp.arange(self.num_arms) == at
        for step in range(1, self.length):
            at = jnp.where(neighbours[at, action[step]], action[step], at)
            on_path |= jnp.arange(self.num_arms) == at
        return on_path.astype(jnp.int32)


def _table(name: str, table: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Rows of zeros and ones as tuples."""
    wrong = f"{name} must be rows of zeros and ones, all of one length, got {table!r}"
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise UserValueError(wrong) from error
    if array.ndim != 2 or not array.size or not np.all(np.isin(array, (0, 1))):
        raise UserValueError(wrong)
    return _rows(array)


def _wholes(name: str, values: Sequence[int], low: int, why: str = "") -> tuple[int, ...]:
    """Whole numbers of at least `low`, as a tuple."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        raise UserValueError(f"{name} must be a sequence of whole numbers, got {values!r}")
    for value in array.tolist():
        check_count(name, value, low, why=why)
    return tuple(array.tolist())


def _rows(table: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(entry) for entry in row) for row in table)
