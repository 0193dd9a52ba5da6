"""Whittle's index: the payment for leaving an arm alone that makes it as good as pulling it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike

from envs.bandits.markov import Arms
from envs.bandits.restless import BudgetBandit
from envs.errors import UserValueError
from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.checks import Range, Settings, check_range, ranged
from jaxrl.pytrees import Action, EnvParams, HParams, Number, State

__all__ = ["WhittleHParams", "WhittleIndices", "highest", "require_indexable", "stay", "whittle", "whittle_indices"]

ROUNDING = 1e-6  # rounding of an advantage of 0 in float32, relative to the greatest discounted sum of rewards
NEVER = 1e30


class WhittleIndices(NamedTuple):
    """The Whittle indices of arms.

    Attributes:
      index: Indices, float32 `[..., S]`; nan throughout for an arm that has none.
      indexable: Whether the arm has an index, bool `[...]`.
    """

    index: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]
    indexable: jax.Array


@struct.dataclass
class WhittleHParams(Settings):
    """Hyper-parameters of `whittle`.

    Attributes:
      gamma: Discount factor of the sum of rewards that defines the index, in [0, 1).
    """

    gamma: float = ranged(0.95, Range(0, 1, "[)"))


class WhittleState(NamedTuple):
    """The state of Whittle's policy.

    Attributes:
      subsidy: Subsidy of each arm in each state, float32 `[N, S]`.
      indexable: Whether each arm has an index, bool `[N]`.
      budget: Number of pulls in a step, int32 `[]`.
      order: Random order of the arms, by which ties are broken, int32 `[N]`.
    """

    subsidy: jax.Array
    indexable: jax.Array
    budget: jax.Array
    order: jax.Array


def whittle_indices(transitions: ArrayLike, rewards: ArrayLike, gamma: ArrayLike) -> WhittleIndices:
    """The Whittle index of every state of arms with two actions, under discounted rewards.

    The index of a state is the subsidy for leaving the arm alone at which leaving it alone is as good as pulling it. An
    arm is indexable if the set of states in which it is best left alone only grows with the subsidy; otherwise it has
    no index. The best policy is followed from a subsidy where all states are pulled to one where none is: between two
    switches each state's advantage is affine in the subsidy, so the next switch, and a state that would switch back,
    are found exactly, by S linear systems.

    Args:
      transitions: Probabilities `[..., 2, S, S]`, first for being left alone, then for being pulled.
      rewards: Expected rewards `[..., 2, S]`.
      gamma: Discount factor in [0, 1), traced.

    Returns:
      The indices, and whether there are any. In float32 they were within 1e-6 of those in float64
      for arms whose transitions are spread out, at gamma 0.95 to 0.999, and within 4e-5 of the largest
      for nearly deterministic ones (3.8e-5 is the largest error measured). An advantage of at most 1e-6 / (1 - gamma)
      of the rewards counts as none: an arm that fails to be indexable by so small an amount counts as indexable.

    Raises:
      ValueError: Shapes do not fit, or a concrete gamma is outside [0, 1).

    Source: Whittle (1988); the path of policies after Niño-Mora (2007) and Gast, Gaujal and Khun (2023).
    """
    check_range("gamma", gamma, Range(0, 1, "[)"))
    laws, paid = jnp.asarray(transitions, jnp.float32), jnp.asarray(rewards, jnp.float32)
    num_states = laws.shape[-1]
    if laws.shape[-3:] != (2, num_states, num_states) or paid.shape != laws.shape[:-1]:
        raise UserValueError(
            "transitions and rewards must have the shapes (..., 2, S, S) and (..., 2, S), got "
            f"{laws.shape} and {paid.shape}"
        )
    batch = laws.shape[:-3]
    flat = laws.reshape(-1, 2, num_states, num_states), paid.reshape(-1, 2, num_states)
    subsidy, indexable = jax.vmap(_switches, (0, 0, None))(*flat, gamma)
    index = jnp.where(indexable[:, None], subsidy, jnp.nan)
    return WhittleIndices(index.reshape(*batch, num_states), indexable.reshape(batch))


def require_indexable(arms: Arms, gamma: float) -> None:
    """Reject instances in which an arm is not indexable.

    Args:
      arms: Instance with two actions, not traced.
      gamma: Discount factor in [0, 1).

    Raises:
      ValueError: Some arms have no Whittle index; the message names them.
    """
    indexable = np.asarray(whittle_indices(arms.transitions, arms.expected, gamma).indexable)
    if not indexable.all():
        which = ", ".join(map(str, np.flatnonzero(~indexable)))
        raise UserValueError(
            f"arms must be indexable under gamma={gamma}, but of {indexable.size} arms these are not: {which}; "
            "exact-planning serves small bandits with any arms"
        )


@functools.cache
def whittle() -> BanditAlgorithm:
    """Whittle's policy: at each step the arms of the highest indices, within the budget, and none below 0.

    For restless bandits; it knows the instance and computes the indices before the first step. It
    measures `indexable`, the share of indexable arms. An arm that is not indexable has no index: its states are
    ranked by the subsidies at which the path of policies left them, as a heuristic.

    Source: Whittle (1988), Restless bandits: activity allocation in a changing world.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: WhittleHParams) -> WhittleState:
        arms = params.arms
        switches = jax.vmap(_switches, (0, 0, None))(arms.transitions, arms.expected, hparams.gamma)
        return WhittleState(*switches, jnp.int32(task.env.budget), jax.random.permutation(key, task.num_arms))

    def choose(key: jax.Array, state: WhittleState, view: View, hparams: WhittleHParams) -> jax.Array:
        del key, hparams
        index = state.subsidy[jnp.arange(state.subsidy.shape[0]), view.context]
        return highest(index, state.budget, state.order)

    def recommend(state: WhittleState, hparams: WhittleHParams) -> jax.Array:
        del hparams
        return state.order[jnp.argmax(jnp.max(state.subsidy, axis=1)[state.order])].astype(jnp.int32)

    def check(task: Task) -> None:
        if not isinstance(task.env, BudgetBandit):
            raise UserValueError(
                f"whittle takes a restless bandit with a budget, bandit/restless or bandit/gilbert-elliott, "
                f"got {task.env.name}"
            )

    def measure(state: WhittleState) -> dict[str, jax.Array]:
        return {"indexable": jnp.mean(state.indexable.astype(jnp.float32))}

    return BanditAlgorithm("whittle", WhittleHParams(), init, choose, stay, recommend, check, measure)


def stay(state: State, view: View, action: Action, reward: Any, hparams: HParams) -> Any:
    """The state unchanged, the `update` of a policy that does not learn."""
    del view, action, reward, hparams
    return state


def highest(index: jax.Array, budget: jax.Array | int, order: jax.Array) -> jax.Array:
    """The action that pulls the arms of the highest indices above 0, at most `budget` of them: int32 `[N]`.

    Args:
      index: Index of each arm, `[N]`.
      budget: Largest number of arms that are pulled.
      order: Arms in the order in which those of equal indices are pulled, int32 `[N]`.
    """
    sorted_arms = order[jnp.argsort(-index[order], stable=True)]
    rank = jnp.argsort(sorted_arms, stable=True)
    return ((rank < budget) & (index > 0)).astype(jnp.int32)


def _switches(transitions: jax.Array, rewards: jax.Array, gamma: Number) -> tuple[jax.Array, jax.Array]:
    """The subsidies at which states switch to being left alone, `[S]`, and whether no state switches back, `[]`.

    A policy's values are affine in the subsidy, and with them the advantage of pulling over
    leaving alone, `fixed + per_subsidy * subsidy` in each state.
    """
    num_states = rewards.shape[-1]
    tolerance = ROUNDING * jnp.max(jnp.abs(rewards)) / (1 - gamma)

    def switch(_: object, carry: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        alone, switched_at, subsidy, indexable = carry
        law = jnp.where(alone[:, None], transitions[0], transitions[1])
        paid = jnp.stack([jnp.where(alone, rewards[0], rewards[1]), alone.astype(jnp.float32)], axis=1)
        # Only differences of values matter. The part that states have in common is subtracted from the rewards, so
        # that differences are not lost to the rounding of large numbers.
        values = _values(law, paid - (1 - gamma) * _values(law, paid, gamma)[:1], gamma)
        gain = gamma * jnp.matmul(transitions[1] - transitions[0], values, precision="highest")
        fixed, per_subsidy = rewards[1] - rewards[0] + gain[:, 0], gain[:, 1] - 1
        falling = per_subsidy < 0
        zero = jnp.where(falling, -fixed / jnp.where(falling, per_subsidy, 1.0), NEVER)
        zero = jnp.where(alone, jnp.inf, zero)
        first = jnp.argmin(zero)
        here = jnp.arange(num_states) == first
        reached = zero[first] < NEVER
        subsidy = jnp.where(reached, jnp.maximum(zero[first], subsidy), subsidy)
        back = alone & (fixed + per_subsidy * subsidy > tolerance)
        indexable &= reached & ~jnp.any(back)
        return alone | here, jnp.where(here, subsidy, switched_at), subsidy, indexable

    start = (jnp.zeros(num_states, bool), jnp.zeros(num_states), jnp.float32(-NEVER), jnp.ones((), bool))
    _, switched_at, _, indexable = jax.lax.fori_loop(0, num_states, switch, start)
    return switched_at, indexable


def _values(law: jax.Array, paid: jax.Array, gamma: Number) -> jax.Array:
    """The discounted sums `[S, R]` of R kinds of rewards under a law `[S, S]`.

    By elimination of one state after another. Only the probabilities of leaving a state are used, never that of
    staying or a difference, so rounding errors do not grow as gamma approaches 1.

    Source: Grassmann, Taksar and Heyman (1985), for chains that end with probability 1 - gamma.
    """
    num_states = law.shape[0]
    states = jnp.arange(num_states)

    def eliminate(k: Number, system: jax.Array) -> jax.Array:
        row = system[k]
        leaving = row[num_states] + jnp.sum(jnp.where(states > k, row[:num_states], 0.0))
        row = row / leaving
        return jnp.where((states == k)[:, None], row, system + system[:, k, None] * row)

    ending = jnp.full((num_states, 1), 1 - gamma)
    system = jnp.concatenate([gamma * law, ending, paid], axis=1)
    return jax.lax.fori_loop(0, num_states, eliminate, system)[:, num_states + 1 :]
