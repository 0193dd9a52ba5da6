"""Policies that search for the best arm: successive elimination, sequential halving, top-two Thompson sampling."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.scipy.special import xlogy

from jaxrl.bandits.arms import POSITIVE, ArmSums, Tally, add, means, no_sums, one_hot
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.beta import beta
from jaxrl.bandits.checks import check_arms, check_unit_rewards
from jaxrl.checks import Range, Settings, check_count, ranged
from jaxrl.pytrees import EnvParams, HParams

__all__ = [
    "Contest",
    "NoHParams",
    "SuccessiveEliminationHParams",
    "TopTwoHParams",
    "sequential_halving",
    "successive_elimination",
    "top_two_thompson",
    "top_two_transportation",
]


class Contest(NamedTuple):
    """The arms that may still be the best, with the pulls and rewards of each.

    Attributes:
      running: Whether an arm may still be the best, bool `[K]`.
      arms: Pulls that count, and their rewards.
    """

    running: jax.Array
    arms: ArmSums


class Posterior(NamedTuple):
    """The Beta posterior of each arm's mean.

    Attributes:
      won, lost: Parameters of the posterior, `[K]`: 1 plus the sum of rewards, and 1 plus the sum of 1 - reward.
    """

    won: Tally
    lost: Tally

    @property
    def alpha(self) -> jax.Array:
        """The first parameter, float32 `[K]`."""
        return self.won.value

    @property
    def beta(self) -> jax.Array:
        """The second parameter, float32 `[K]`."""
        return self.lost.value


@struct.dataclass
class SuccessiveEliminationHParams(Settings):
    """Hyper-parameters of `successive_elimination`.

    Attributes:
      delta: Probability with which the best arm may be lost, in (0, 1).
      sigma: Scale of sub-Gaussian rewards; 0.5 holds for all in [0, 1].
    """

    delta: float = ranged(0.05, Range(0, 1, "()"))
    sigma: float = ranged(0.5, POSITIVE)


@struct.dataclass
class NoHParams(Settings):
    """No parameters."""


@struct.dataclass
class TopTwoHParams(Settings):
    """Hyper-parameters of the top-two policies.

    Attributes:
      leader: Probability of pulling the leading arm rather than its challenger, in [0, 1].
    """

    leader: float = ranged(0.5, Range(0, 1))


@functools.cache
def successive_elimination() -> BanditAlgorithm:
    """Successive elimination: all arms in turn, except those that are significantly worse than another.

    An arm is eliminated when its mean of t pulls is below another's by two radii, each
    sigma sqrt(2 ln(4 K t^2 / delta) / t). The last remaining arm is pulled for the rest of the run.

    Source: Even-Dar, Mannor and Mansour (2006), section 3.1.
    """

    def update(
        state: Contest, view: View, action: jax.Array, reward: jax.Array, hparams: SuccessiveEliminationHParams
    ) -> Contest:
        state = state._replace(arms=add(state.arms, view, action, reward, hparams))
        pulls = state.arms.pulls
        num_arms = pulls.shape[0]
        least = jnp.min(jnp.where(state.running, pulls, jnp.inf))
        level = least >= jnp.max(jnp.where(state.running, pulls, 0.0))
        log = jnp.log(4 * num_arms / jnp.asarray(hparams.delta, jnp.float32)) + 2 * jnp.log(least)
        radius = hparams.sigma * jnp.sqrt(2 * log / least)
        means = _running_means(state)
        kept = state.running & (means > jnp.max(means) - 2 * radius)
        return state._replace(running=jnp.where(level & (least > 0), kept, state.running))

    name = "successive-elimination"
    check = functools.partial(check_arms, name)
    return BanditAlgorithm(name, SuccessiveEliminationHParams(), _all_running, _in_turn, update, _best_running, check)


@functools.cache
def sequential_halving() -> BanditAlgorithm:
    """Sequential halving: rounds of equal length, each of which eliminates the worse half of the arms.

    The horizon T is divided into ceil(log2 K) rounds; in one with S arms each is pulled
    floor(T / (S ceil(log2 K))) times, at least once. The remainder of T goes to the winner. If T is below K ceil(log2
    K), the rounds are not completed. Each round discards the counts of earlier ones.

    Source: Karnin, Koren and Somekh (2013), algorithm 3.
    """

    def update(state: Contest, view: View, action: jax.Array, reward: jax.Array, hparams: NoHParams) -> Contest:
        state = state._replace(arms=add(state.arms, view, action, reward, hparams))
        pulls = state.arms.pulls
        left = jnp.sum(state.running, dtype=jnp.int32)
        rounds = math.ceil(math.log2(pulls.shape[0]))
        each = jnp.maximum(view.horizon // (left * rounds), 1)
        over = (left > 1) & jnp.all(~state.running | (pulls >= each))
        target = jnp.where(over, (left + 1) // 2, left)
        means = _running_means(state)

        def drop(running: jax.Array) -> jax.Array:
            # The last of the worst, so that the first of equal arms remains.
            worst = running.shape[0] - 1 - jnp.argmin(jnp.where(running, means, jnp.inf)[::-1])
            return running & (jnp.arange(running.shape[0]) != worst)

        running = jax.lax.while_loop(lambda running: jnp.sum(running) > target, drop, state.running)
        return Contest(running, jax.tree.map(lambda leaf: jnp.where(over, 0.0, leaf), state.arms))

    name = "sequential-halving"
    check = functools.partial(check_arms, name)
    return BanditAlgorithm(name, NoHParams(), _all_running, _in_turn, update, _best_running, check)


@functools.cache
def top_two_thompson(resamples: int = 16) -> BanditAlgorithm:
    """Top-two Thompson sampling: the best arm of a posterior draw, or that of the next draw with another best arm.

    For rewards in [0, 1], with a uniform prior of each mean. The more certain the posterior is about an arm, the more
    draws it takes until another arm wins; after `resamples` draws without success, the challenger is that of
    `top_two_transportation`.

    Args:
      resamples: Number of draws for one pull, at least 1; all are drawn at once, which is the cost of a pull.

    Source: Russo (2016), "Simple Bayesian algorithms for best arm identification", section 3.
    """
    check_count("resamples", resamples)
    return _top_two("top-two-thompson", resamples)


@functools.cache
def top_two_transportation() -> BanditAlgorithm:
    """Top-two transportation cost: the best arm of a posterior draw, or the arm that is least clearly worse.

    The measure of clarity is the cost of making both means equal: the sum over the two of pulls
    times KL(mean, mean of both). For rewards in [0, 1], with a uniform prior of each mean.

    Source: Shang, de Heide, Kaufmann, Menard and Valko (2020), section 3.
    """
    return _top_two("top-two-transportation", 0)


def _top_two(name: str, resamples: int) -> BanditAlgorithm:
    def init(key: jax.Array, task: Task, params: EnvParams, hparams: TopTwoHParams) -> Posterior:
        del key, params, hparams
        none = Tally.zeros(task.num_arms)
        return Posterior(none.add(jnp.ones(task.num_arms)), none.add(jnp.ones(task.num_arms)))

    def choose(key: jax.Array, state: Posterior, view: View, hparams: TopTwoHParams) -> jax.Array:
        draws_key, coin_key = jax.random.split(key)
        shape = (1 + resamples, *state.alpha.shape)
        draws = beta(draws_key, jnp.broadcast_to(state.alpha, shape), jnp.broadcast_to(state.beta, shape))
        winners = jax.vmap(argmax, (0, None))(draws, view.mask)
        leader = winners[0]
        challenger = argmax(-_transportation(state, leader), view.mask)
        if resamples:
            other = winners != leader
            challenger = jnp.where(jnp.any(other), winners[jnp.argmax(other)], challenger)
        return jnp.where(jax.random.uniform(coin_key) < hparams.leader, leader, challenger)

    def update(state: Posterior, view: View, action: jax.Array, reward: jax.Array, hparams: TopTwoHParams) -> Posterior:
        del view, hparams
        pulled = one_hot(state.won.low, action)
        return Posterior(state.won.add(pulled * reward), state.lost.add(pulled * (1 - reward)))

    def recommend(state: Posterior, hparams: TopTwoHParams) -> jax.Array:
        del hparams
        return argmax(state.alpha / (state.alpha + state.beta))

    return BanditAlgorithm(
        name, TopTwoHParams(), init, choose, update, recommend, functools.partial(check_unit_rewards, name)
    )


def _transportation(state: Posterior, leader: jax.Array) -> jax.Array:
    """Evidence that each arm is worse than the leader, `[K]`, 0 where it is better; largest for the leader itself."""
    weight = state.alpha + state.beta
    mean = state.alpha / weight
    leads = jnp.arange(mean.shape[0]) == leader
    of_leader, weight_of_leader = (jnp.sum(jnp.where(leads, value, 0.0)) for value in (mean, weight))
    both = (weight * mean + weight_of_leader * of_leader) / (weight + weight_of_leader)
    cost = weight * _divergence(mean, both) + weight_of_leader * _divergence(of_leader, both)
    return jnp.where(leads, jnp.finfo(jnp.float32).max, jnp.where(mean < of_leader, jnp.maximum(cost, 0.0), 0.0))


def _divergence(mean: jax.Array, other: jax.Array) -> jax.Array:
    return xlogy(mean, mean / other) + xlogy(1 - mean, (1 - mean) / (1 - other))


def _all_running(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> Contest:
    return Contest(jnp.ones(task.num_arms, bool), no_sums(key, task, params, hparams))


def _in_turn(key: jax.Array, state: Contest, view: View, hparams: HParams) -> jax.Array:
    """The least pulled of the running arms; an eliminated arm only if no running arm is awake."""
    del key, hparams
    awake = state.running if view.mask is None else state.running & view.mask
    turn = jnp.where(awake, -state.arms.pulls, -jnp.finfo(jnp.float32).max)
    return argmax(turn, view.mask)


def _running_means(state: Contest) -> jax.Array:
    """Mean rewards, -inf for arms that are eliminated or were not pulled."""
    return jnp.where(state.running & (state.arms.pulls > 0), means(state.arms), -jnp.inf)


def _best_running(state: Contest, hparams: HParams) -> jax.Array:
    del hparams
    return argmax(jnp.where(state.running, jnp.maximum(_running_means(state), jnp.finfo(jnp.float32).min), -jnp.inf))
