"""Oblivious adversaries: rewards chosen before the first pull, independently of the policy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from envs.bandits.checking import Unasked, agreed, check_number
from envs.errors import UserValueError

__all__ = [
    "Adversary",
    "ConstrainedAdversary",
    "ConstrainedParams",
    "ConstrainedState",
    "DriftingAdversary",
    "DriftingParams",
    "DriftingState",
    "SequenceBandit",
    "SequenceParams",
]

IN_TURN = ((0.0, 1.0), (1.0, 0.0))  # two arms that pay 1 alternately
LONGEST_PHASE = 1e9  # longest phase in pulls, such that int32 can hold the end of the following phase


class Adversary(Bandit):
    """The base class of adversaries: values change, and rewards lie in [0, 1]."""

    @property
    def stationary(self) -> bool:
        """Values change."""
        return False

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """[0, 1]."""
        return 0.0, 1.0


@struct.dataclass
class SequenceParams(BanditParams):
    """The rewards.

    Attributes:
      table: Reward of every arm at each pull, float32 `[T, K]`; it is repeated from the start after its end.
    """

    table: Any = struct.field(default_factory=lambda: np.asarray(IN_TURN, np.float32))

    def __post_init__(self) -> None:
        check_number("table", self.table)


@dataclasses.dataclass(frozen=True)
class SequenceBandit(Adversary):
    """Rewards from a table, the same in every run: the oblivious adversary of the textbook.

    Args:
      table: Rewards `[T, K]`, which also determine the number of arms; `env_params` may have another table, whose
        rewards lie in the same range. That range includes [0, 1]. In the default table two arms pay 1 alternately,
        so a policy that follows the leader is never paid.

    Raises:
      ValueError: There are fewer than two arms, or rows have different lengths.

    Source: Auer et al. (2002), "The nonstochastic multiarmed bandit problem", section 2.
    """

    num_arms: int = Unasked(2)
    table: tuple[tuple[float, ...], ...] = IN_TURN

    def __post_init__(self) -> None:
        wrong = f"table must have rows of finite numbers, one for each arm, got {self.table!r}"
        try:
            table = np.asarray(self.table, np.float64)
        except (TypeError, ValueError) as error:
            raise UserValueError(wrong) from error
        if table.ndim != 2 or not table.size or not np.all(np.isfinite(table)):
            raise UserValueError(wrong)
        rows = tuple(map(tuple, table.tolist()))
        object.__setattr__(self, "table", rows)
        object.__setattr__(self, "num_arms", agreed("num_arms", self.num_arms, len(rows[0]), "each row of table"))
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/sequence"

    @property
    def default_params(self) -> SequenceParams:
        """The given table."""
        return SequenceParams(table=np.asarray(self.table, np.float32))

    @property
    def reward_range(self) -> tuple[float, float]:
        """[0, 1], extended to the values of the table."""
        return min(0.0, *map(min, self.table)), max(1.0, *map(max, self.table))

    def check_params(self, params: SequenceParams) -> None:
        """Reject rewards outside the range, because policies rely on it."""
        (low, high), table = self.reward_range, np.asarray(params.table)
        wrong = table[(table < np.float32(low)) | (table > np.float32(high))]
        if wrong.size:
            raise UserValueError(
                f"table must lie in [{low}, {high}], the range of the bandit's own table, got {wrong[0]}; "
                "make the bandit with a table of the wider range"
            )

    def instance(self, key: jax.Array, params: SequenceParams) -> BanditState:
        """The table from its start."""
        del key
        table = jnp.asarray(params.table, jnp.float32)
        if table.ndim != 2 or table.shape[1] != self.num_arms:
            raise UserValueError(f"table must have the shape (T, {self.num_arms}), got {table.shape}")
        return BanditState(**fresh(table[0]))

    def reward(self, key: jax.Array, state: BanditState, action: jax.Array, params: SequenceParams) -> jax.Array:
        """The table's entry, which is also the value."""
        del key, params
        return state.values[action]

    def drift(self, key: jax.Array, state: BanditState, action: jax.Array, params: SequenceParams) -> BanditState:
        """The table's next row."""
        del key, action
        table = jnp.asarray(params.table, jnp.float32)
        return dataclasses.replace(state, values=table[state.time % table.shape[0]])


@struct.dataclass
class ConstrainedParams(BanditParams):
    """The lead of the best arm, and the length of phases.

    Attributes:
      gap: Difference between the best arm and the others, in (0, 1].
      growth: Ratio of the length of a phase to the length of the previous one, at least 1.
      first: Number of pulls of the first phase, at least 1.
    """

    gap: float = 0.1
    growth: float = 1.6
    first: float = 1.0

    def __post_init__(self) -> None:
        check_number("gap", self.gap, 0.0, 1.0, "(]")
        check_number("growth", self.growth, 1.0, closed="[)")
        check_number("first", self.first, 1.0, closed="[)")


@struct.dataclass
class ConstrainedState(BanditState):
    """An instance and its present state.

    Attributes:
      best: Index of the best arm, int32 `[]`.
      length: Number of pulls of this phase, float32 `[]`.
      until: Index of the pull with which the next phase starts, int32 `[]`.
      high: Whether rewards are high in this phase, bool `[]`.
    """

    best: jax.Array
    length: jax.Array
    until: jax.Array
    high: jax.Array


@dataclasses.dataclass(frozen=True)
class ConstrainedAdversary(Adversary):
    """One arm always leads by the same gap, while all rewards rise and fall together: an oblivious adversary.

    Rewards are 0 and 1. In high phases the best arm pays with probability 1 and the others with
    1 - gap, in low ones with gap and 0; phases grow by a constant factor. Stochastic policies,
    which compare what arms paid at different times, are misled; a best-of-both-worlds policy keeps
    a logarithmic regret.

    Args:
      num_arms: Number of arms, K; the best one is drawn uniformly.

    Raises:
      ValueError: There are fewer than two arms.

    Source: Zimmert and Seldin (2021), "Tsallis-INF", section 5, the stochastically constrained
    adversary of Wei and Luo (2018), in rewards instead of losses.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/constrained-adversary"

    @property
    def default_params(self) -> ConstrainedParams:
        """The paper's growth of 1.6."""
        return ConstrainedParams()

    def instance(self, key: jax.Array, params: ConstrainedParams) -> ConstrainedState:
        """The first phase, which is high."""
        best = jax.random.randint(key, (), 0, self.num_arms)
        length, high = jnp.asarray(params.first, jnp.float32), jnp.ones((), bool)
        values = self._values(best, high, params)
        return ConstrainedState(**fresh(values), best=best, length=length, until=_whole(length), high=high)

    def reward(
        self, key: jax.Array, state: ConstrainedState, action: jax.Array, params: ConstrainedParams
    ) -> jax.Array:
        """1 with the value's probability, else 0."""
        del params
        return (jax.random.uniform(key) < state.values[action]).astype(jnp.float32)

    def drift(
        self, key: jax.Array, state: ConstrainedState, action: jax.Array, params: ConstrainedParams
    ) -> ConstrainedState:
        """Start the next phase once this one is over."""
        del key, action
        over = state.time >= state.until
        length = jnp.where(over, jnp.minimum(state.length * params.growth, LONGEST_PHASE), state.length)
        high = state.high ^ over
        return dataclasses.replace(
            state,
            values=self._values(state.best, high, params),
            length=length,
            until=jnp.where(over, state.time + _whole(length), state.until),
            high=high,
        )

    def _values(self, best: jax.Array, high: jax.Array, params: ConstrainedParams) -> jax.Array:
        ahead = params.gap * (jnp.arange(self.num_arms) == best)
        return jnp.asarray(ahead + jnp.where(high, 1 - params.gap, 0.0), jnp.float32)


@struct.dataclass
class DriftingParams(BanditParams):
    """The speed at which the lead moves.

    Attributes:
      period: Number of pulls in which every arm leads once, above 0.
    """

    period: float = 2000.0

    def __post_init__(self) -> None:
        check_number("period", self.period, 0.0)


@struct.dataclass
class DriftingState(BanditState):
    """An instance and its present state.

    Attributes:
      phases: Phases in periods, evenly spaced in a random order, float32 `[K]`.
    """

    phases: jax.Array


@dataclasses.dataclass(frozen=True)
class DriftingAdversary(Adversary):
    """Deterministic rewards in [0, 1] whose lead drifts from arm to arm: an oblivious adversary.

    Arm k pays (1 + cos(2 pi (t / period - phase_k))) / 2 at the pull t. Over whole periods all arms
    pay the same, so no fixed arm is better than another, and following the lead pays twice as much.

    Args:
      num_arms: Number of arms, K.

    Raises:
      ValueError: There are fewer than two arms.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/drifting-adversary"

    @property
    def default_params(self) -> DriftingParams:
        """A period of two thousand pulls."""
        return DriftingParams()

    def instance(self, key: jax.Array, params: DriftingParams) -> DriftingState:
        """Phases in a random order with a random offset."""
        order_key, first_key = jax.random.split(key)
        order = jax.random.permutation(order_key, self.num_arms)
        phases = (order + jax.random.uniform(first_key)) / jnp.float32(self.num_arms)
        return DriftingState(**fresh(_cosine(jnp.zeros((), jnp.int32), phases, params)), phases=phases)

    def reward(self, key: jax.Array, state: DriftingState, action: jax.Array, params: DriftingParams) -> jax.Array:
        """The value itself."""
        del key, params
        return state.values[action]

    def drift(self, key: jax.Array, state: DriftingState, action: jax.Array, params: DriftingParams) -> DriftingState:
        """The values at the next pull."""
        del key, action
        return dataclasses.replace(state, values=_cosine(state.time, state.phases, params))


def _cosine(time: jax.Array, phases: jax.Array, params: DriftingParams) -> jax.Array:
    turns = jnp.mod(time.astype(jnp.float32), params.period) / params.period - phases
    return (1 + jnp.cos(2 * math.pi * turns)) / 2


def _whole(length: jax.Array) -> jax.Array:
    """Number of pulls of a phase, int32."""
    return jnp.rint(length).astype(jnp.int32)
