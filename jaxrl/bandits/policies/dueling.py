"""Policies that learn the best arm from comparisons."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.base import spaces
from envs.errors import UserValueError
from jaxrl.bandits.arms import NOT_NEGATIVE, Tally
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.beta import beta
from jaxrl.checks import Settings, ranged
from jaxrl.pytrees import EnvParams, Number

__all__ = ["DoubleThompsonHParams", "check_pairs", "double_thompson", "record"]


@struct.dataclass
class DoubleThompsonHParams(Settings):
    """Hyper-parameters of `double_thompson`.

    Attributes:
      exploration: Factor alpha of the confidence intervals, win share +- sqrt(alpha ln t / comparisons),
        at least 0; above 1/2 in the paper's bounds.
    """

    exploration: float = ranged(0.6, NOT_NEGATIVE)


@functools.cache
def double_thompson() -> BanditAlgorithm:
    """Double Thompson sampling: both arms of a pair from samples of the preference matrix.

    The first arm is the one that beats the most others in a sample of the posterior, among those that may still beat
    the most. The second is the one that does best against the first in a new sample, among those that the first is not
    yet known to beat. Every pair has its own Beta posterior, so nothing is assumed about how preferences are related.
    Ties go to the first arm in the order of the run, which is random; the paper draws anew each time. The state counts
    how often the row's arm was preferred to the column's, `[K, K]`.

    Source: Wu and Liu (2016), "Double Thompson sampling for dueling bandits", algorithm 1.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: DoubleThompsonHParams) -> Tally:
        del key, params, hparams
        return Tally.zeros(task.num_arms, task.num_arms)

    def choose(key: jax.Array, state: Tally, view: View, hparams: DoubleThompsonHParams) -> jax.Array:
        wins, (first_key, second_key) = state.value, jax.random.split(key)
        upper, lower = intervals(wins, view.time, hparams.exploration)
        copeland = jnp.sum(_off_diagonal(upper > 0.5), axis=1)
        sample = sample_preferences(first_key, wins)
        beaten = jnp.sum(_off_diagonal(sample > 0.5), axis=1)
        first = argmax(beaten.astype(jnp.float32), copeland == jnp.max(copeland))
        ours = jnp.arange(wins.shape[0]) == first
        won, lost = wins[:, first], wins[first]
        against = jnp.where(ours, 0.5, beta(second_key, won + 1, lost + 1))
        second = argmax(against, lower[:, first] <= 0.5)
        return jnp.stack([first, second])

    def update(state: Tally, view: View, action: jax.Array, reward: jax.Array, hparams: DoubleThompsonHParams) -> Tally:
        del view, hparams
        return state.add(record(jnp.zeros_like(state.low), action, reward))

    def recommend(state: Tally, hparams: DoubleThompsonHParams) -> jax.Array:
        del hparams
        share = (state.value + 1) / (state.value + state.value.T + 2)
        beaten = jnp.sum(_off_diagonal(share > 0.5), axis=1)
        return argmax(beaten + jnp.mean(share, axis=1))  # ties in the number of beaten arms by the mean share

    check = functools.partial(check_pairs, "double-thompson")
    return BanditAlgorithm("double-thompson", DoubleThompsonHParams(), init, choose, update, recommend, check)


def intervals(wins: jax.Array, time: jax.Array, exploration: Number) -> tuple[jax.Array, jax.Array]:
    """Confidence bounds of every preference after `time` comparisons.

    Args:
      wins: Numbers of wins of the row's arm, float32 `[K, K]`.
      time: Number of comparisons so far, int32 `[]`.
      exploration: Factor alpha, traced.

    Returns:
      Upper and lower ends, `[K, K]`: share of wins +- sqrt(alpha ln t / comparisons), where t is the
      number of the next comparison; 2 and 0 for arms not yet compared, 1/2 and 1/2
      for an arm with itself.
    """
    compared = wins + wins.T
    inverse = 1 / jnp.maximum(compared, 1.0)
    width = jnp.sqrt(exploration * jnp.log(time.astype(jnp.float32) + 1) * inverse)
    diagonal = jnp.eye(wins.shape[0], dtype=bool)
    upper = jnp.where(compared > 0, wins * inverse + width, 2.0)
    lower = jnp.where(compared > 0, wins * inverse - width, 0.0)
    return jnp.where(diagonal, 0.5, upper), jnp.where(diagonal, 0.5, lower)


def sample_preferences(key: jax.Array, wins: jax.Array) -> jax.Array:
    """A sample `[K, K]` of every pair's posterior, with a uniform prior; (b, a) is 1 less (a, b)."""
    k = wins.shape[0]
    rows, columns = np.triu_indices(k, 1)
    drawn = beta(key, wins[rows, columns] + 1, wins[columns, rows] + 1)
    place = np.zeros((k, k), np.int32)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    upper = np.arange(k)[:, None] < np.arange(k)
    return jnp.where(upper, drawn[place], 1 - drawn[place])


def record(wins: jax.Array, action: jax.Array, answer: jax.Array) -> jax.Array:
    """The wins `[K, K]` with one more comparison: `action` int32 `[2]`, `answer` 1 where its first arm is preferred."""
    first, second = (jnp.arange(wins.shape[0]) == action[:, None]).astype(jnp.float32)
    won = first[:, None] * second
    return wins + answer * won + (1 - answer) * won.T


def check_pairs(name: str, task: Task) -> None:
    """Reject a bandit whose actions are not pairs of arms, for the policy of this name."""
    space = task.env.action_space(task.env.default_params)
    if not (isinstance(space, spaces.Tuple) and len(space.spaces) == 2):
        raise UserValueError(
            f"{name} compares two arms at a time, as bandit/dueling takes them; {task.env.name} does not."
        )


def _off_diagonal(flags: jax.Array) -> jax.Array:
    return flags & ~jnp.eye(flags.shape[0], dtype=bool)
