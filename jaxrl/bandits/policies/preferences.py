"""Learning a reward model from preferences: the fit, and samplers of the pairs to compare."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import POSITIVE, Tally
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.policies.dueling import check_pairs, record
from jaxrl.checks import Settings, ranged
from jaxrl.pytrees import EnvParams, Number


class Preferences(NamedTuple):
    """Counts of comparisons, and the reward model.

    Attributes:
      wins: Number of times that the row's arm was preferred to the column's arm, `[K, K]`.
      rewards: Most probable rewards given the wins, up to the last rounding, float32 `[K]`.
    """

    wins: Tally
    rewards: jax.Array


@struct.dataclass
class PreferencesHParams(Settings):
    """Hyper-parameters of the policies that learn a reward model.

    Attributes:
      beta: Temperature of the policy pi, proportional to exp(reward / beta), above 0: the optimum
        of E[reward] - beta KL(pi | uniform).
      scale: Standard deviation of the normal prior of every reward in the fit, above 0.
    """

    beta: float = ranged(0.5, POSITIVE)
    scale: float = ranged(1.0, POSITIVE)


@functools.cache
def uniform_pairs() -> BanditAlgorithm:
    """Compare two different random arms, all pairs equally often on average, and fit a reward model."""

    def draw(key: jax.Array, rewards: jax.Array, beta: jax.Array) -> jax.Array:
        del beta
        flat = jnp.zeros_like(rewards)
        return draw_pair(key, flat, flat)

    return _sampler("uniform-pairs", draw)


@functools.cache
def policy_pairs() -> BanditAlgorithm:
    """Compare two different samples of the policy that the reward model implies.

    The policy is proportional to exp(reward / beta), with a uniform reference policy.
    """

    def draw(key: jax.Array, rewards: jax.Array, beta: jax.Array) -> jax.Array:
        return draw_pair(key, rewards / beta, rewards / beta)

    return _sampler("policy-pairs", draw)


@functools.cache
def pilaf() -> BanditAlgorithm:
    """Compare, with equal chances, two samples of the policy, or one of an optimistic and one of a pessimistic policy.

    As in `policy_pairs` the policy pi is the one that the reward model r implies. The other two are
    proportional to pi exp(r) and pi exp(-r). The two arms differ, because comparing an arm
    with itself carries no information.

    Source: Feng, Kwiatkowski, Zheng, Kempe and Duan (2025), "PILAF: optimal human preference
    sampling for reward modeling", arXiv:2502.04270, the practical form.
    """
    return _sampler("pilaf", functools.partial(_draw_interpolated, weigh=_evenly))


@functools.cache
def pilaf_weighted() -> BanditAlgorithm:
    """`pilaf`, with the two kinds of pairs weighted so that the information on rewards matches the policy.

    A pair is then drawn in proportion to pi(a) pi(b) / sigmoid'(r(a) - r(b)), where
    1 / sigmoid'(x) = 2 + exp(x) + exp(-x): the information of answers on the rewards, their Fisher
    information at r, is in proportion to the covariance of the arms under pi.
    """
    return _sampler("pilaf-weighted", functools.partial(_draw_interpolated, weigh=_by_mass))


def fit_rewards(wins: jax.Array, scale: Number, start: jax.Array, num_steps: int) -> jax.Array:
    """The most probable rewards of a Bradley-Terry model, by damped steps of Newton's, which cannot diverge.

    Args:
      wins: Number of times that the row's arm was preferred to the column's arm, float32 `[K, K]`.
      scale: Standard deviation of the independent normal priors around 0, traced.
      start: Start of the search, float32 `[K]`.
      num_steps: Number of Newton steps, static; one suffices if the search starts from the fit without the last
        comparison.

    Returns:
      float32 `[K]`; their sum is 0, which the prior implies because only differences matter.

    Source: damping as in Sun and Tran-Dinh (2019), "Generalized self-concordant functions", section 4:
      a logistic loss has |f'''| <= |f''|, so that a step by d along the gaps is cut to ln(1 + d).
    """
    compared = wins + wins.T

    def step(_: jax.Array, rewards: jax.Array) -> jax.Array:
        chances = jax.nn.sigmoid(rewards[:, None] - rewards)
        slope = jnp.sum(wins - compared * chances, axis=1) - rewards / scale**2
        weights = compared * chances * (1 - chances)
        curvature = jnp.diag(jnp.sum(weights, axis=1) + 1 / scale**2) - weights
        change = _solve(curvature, slope)
        gap = jnp.maximum(jnp.max(change) - jnp.min(change), 1e-6)  # the cut of smaller ones rounds to nothing
        return rewards + change * jnp.log1p(gap) / gap

    return jax.lax.fori_loop(0, num_steps, step, start)


def interpolated_logits(logits: jax.Array, reference_logits: jax.Array, beta: Number) -> tuple[jax.Array, jax.Array]:
    """The optimistic and the pessimistic policy between a policy and its reference.

    With the implied reward r = beta log(pi / pi_ref) they are proportional to pi exp(r) and pi exp(-r).

    Args:
      logits, reference_logits: Logits of pi and of pi_ref, float32 `[K]`.
      beta: Temperature, traced.

    Returns:
      Their logits, (1 + beta) h - beta h_ref and (1 - beta) h + beta h_ref.

    Source: See `pilaf`.
    """
    gap = beta * (logits - reference_logits)
    return logits + gap, logits - gap


def draw_pair(key: jax.Array, first_logits: jax.Array, second_logits: jax.Array) -> jax.Array:
    """One sample from each distribution, drawn again until the two differ: int32 `[2]`.

    Args:
      first_logits, second_logits: Logits, float32 `[K]`.
    """
    first_key, second_key = jax.random.split(key)
    first = jax.random.categorical(first_key, first_logits + _rest(second_logits))
    others = jnp.arange(first_logits.shape[0]) != first
    second = jax.random.categorical(second_key, jnp.where(others, second_logits, -jnp.inf))
    return jnp.stack([first, second]).astype(jnp.int32)


def _evenly(logits: jax.Array, optimistic: jax.Array, pessimistic: jax.Array) -> jax.Array:
    """The probability `[]` of two samples of the policy: 1/2."""
    del logits, optimistic, pessimistic
    return jnp.float32(0.5)


def _by_mass(logits: jax.Array, optimistic: jax.Array, pessimistic: jax.Array) -> jax.Array:
    """The probability in proportion to the sums over different arms of pi(a) pi(b) and of the interpolated product."""
    plain = jax.nn.logsumexp(logits + _rest(logits))
    interpolated = jax.nn.logsumexp(optimistic + _rest(pessimistic))
    return jax.nn.sigmoid(plain - interpolated)


def _rest(logits: jax.Array) -> jax.Array:
    """For each arm the log of the sum of exp(logits) over the others, `[K]`."""
    others = ~jnp.eye(logits.shape[0], dtype=bool)
    return jax.nn.logsumexp(jnp.where(others, logits, -jnp.inf), axis=1)


def _draw_interpolated(
    key: jax.Array, rewards: jax.Array, beta: jax.Array, weigh: Callable[..., jax.Array]
) -> jax.Array:
    coin_key, pair_key = jax.random.split(key)
    logits = rewards / beta
    optimistic, pessimistic = interpolated_logits(logits, jnp.zeros_like(logits), beta)
    plain = jax.random.uniform(coin_key) < weigh(logits, optimistic, pessimistic)
    return draw_pair(pair_key, jnp.where(plain, logits, optimistic), jnp.where(plain, logits, pessimistic))


def _sampler(name: str, draw: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]) -> BanditAlgorithm:
    """A policy that compares the pairs of `draw(key, rewards, beta)` and fits the rewards after every answer."""

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: PreferencesHParams) -> Preferences:
        del key, params, hparams
        return Preferences(Tally.zeros(task.num_arms, task.num_arms), jnp.zeros(task.num_arms))

    def choose(key: jax.Array, state: Preferences, view: View, hparams: PreferencesHParams) -> jax.Array:
        del view
        return draw(key, state.rewards, jnp.float32(hparams.beta))

    def update(
        state: Preferences, view: View, action: jax.Array, reward: jax.Array, hparams: PreferencesHParams
    ) -> Preferences:
        del view
        wins = state.wins.add(record(jnp.zeros_like(state.wins.low), action, reward))
        return Preferences(wins, fit_rewards(wins.value, hparams.scale, state.rewards, num_steps=1))

    def recommend(state: Preferences, hparams: PreferencesHParams) -> jax.Array:
        del hparams
        return argmax(state.rewards)

    check = functools.partial(check_pairs, name)
    return BanditAlgorithm(name, PreferencesHParams(), init, choose, update, recommend, check)


def _solve(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """The solution `[K]` of a symmetric positive definite system, by elimination without pivots."""
    augmented = jnp.concatenate([matrix, vector[:, None]], axis=1)

    def eliminate(row: jax.Array, rows: jax.Array) -> jax.Array:
        scaled = rows[row] / rows[row, row]
        rest = rows - rows[:, row, None] * scaled
        return jnp.where(jnp.arange(matrix.shape[0])[:, None] == row, scaled, rest)

    return jax.lax.fori_loop(0, matrix.shape[0], eliminate, augmented)[:, -1]
