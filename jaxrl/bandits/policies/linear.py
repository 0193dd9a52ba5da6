"""Policies for arms with features: LinUCB, linear and logistic Thompson sampling."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs.bandits.batched_last import added, runs_last
from envs.bandits.normal_draws import normal
from jaxrl.bandits.arms import NOT_NEGATIVE, POSITIVE
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.checks import check_features, check_unit_rewards
from jaxrl.checks import Settings, ranged
from jaxrl.pytrees import EnvParams, HParams, Number

# Number of steps of a bracketed Newton's method for the mode after one more reward; see `_pull_towards`.
NEWTON_STEPS = 8

__all__ = ["Coefficients", "LinTSHParams", "LinUCBHParams", "LogisticTSHParams", "lin_ts", "lin_ucb", "logistic_ts"]


class Coefficients(NamedTuple):
    """The posterior of the coefficients that all arms share.

    Attributes:
      theta: Estimate, float32 `[d]`.
      root: Square root R of the inverse R R^T of ridge + sum x x^T, float32 `[d, d]`. Rounding of the inverse
        itself would lose the difference between well-known directions and others.
      features: Features of the arms at the last pull, float32 `[K, d]`.
    """

    theta: jax.Array
    root: jax.Array
    features: jax.Array


@struct.dataclass
class LinUCBHParams(Settings):
    """Hyper-parameters of `lin_ucb`.

    Attributes:
      exploration: Number of standard deviations added to an arm's estimate; the bound is proven for `lin_ucb_radius`.
      ridge: Ridge of the least squares, above 0.
    """

    exploration: float = ranged(1.0, NOT_NEGATIVE)
    ridge: float = ranged(1.0, POSITIVE)


@struct.dataclass
class LinTSHParams(Settings):
    """Hyper-parameters of `lin_ts`.

    Attributes:
      exploration: Standard deviation of a reward, which scales the standard deviation of the coefficients.
      ridge: Ridge of the least squares, above 0: the ratio of the variance of a reward to that of the prior.
    """

    exploration: float = ranged(1.0, NOT_NEGATIVE)
    ridge: float = ranged(1.0, POSITIVE)


@struct.dataclass
class LogisticTSHParams(Settings):
    """Hyper-parameters of `logistic_ts`.

    Attributes:
      exploration: Factor of the coefficients' standard deviation; 1 gives that of the posterior.
      ridge: Inverse variance of the prior, above 0.
    """

    exploration: float = ranged(1.0, NOT_NEGATIVE)
    ridge: float = ranged(1.0, POSITIVE)


@functools.cache
def lin_ucb() -> BanditAlgorithm:
    """LinUCB: the arm whose features have the highest estimate plus a number of its standard deviations.

    Coefficients are common to all arms. A delayed reward is credited to the features that
    its arm has on arrival. The recommended arm is the best one for the features of the last pull.

    Source: Li, Chu, Langford and Schapire (2010), section 3.1; Abbasi-Yadkori, Pal and Szepesvari (2011).
    """

    def choose(key: jax.Array, state: Coefficients, view: View, hparams: LinUCBHParams) -> jax.Array:
        del key
        return argmax(_upper(view.context, state.theta, state.root, hparams.exploration), view.mask)

    return _of_features("lin-ucb", LinUCBHParams(), choose, _least_squares, check_features)


@functools.cache
def lin_ts() -> BanditAlgorithm:
    """Linear Thompson sampling: the best arm under coefficients drawn from their posterior.

    The posterior is that of normal coefficients and normal rewards; all else is as in `lin_ucb`.

    Source: Agrawal and Goyal (2013), "Thompson sampling for contextual bandits with linear payoffs", algorithm 1.
    """
    return _of_features("lin-ts", LinTSHParams(), _choose_drawn, _least_squares, check_features)


@functools.cache
def logistic_ts() -> BanditAlgorithm:
    """Logistic Thompson sampling: the best arm under coefficients drawn from a normal approximation of their posterior.

    Rewards are 1 with the probability sigmoid(theta . x), else 0. After each reward the approximation is moved to the
    mode, with the curvature there (Laplace's method, one reward at a time). It remains about a tenth nearer to the
    prior than the exact mode; all else is as in `lin_ucb`.

    Source: Chapelle and Li (2011), algorithm 3, with the whole covariance instead of its diagonal.
    """

    def check(name: str, task: Task) -> None:
        check_features(name, task)
        check_unit_rewards(name, task)

    return _of_features("logistic-ts", LogisticTSHParams(), _choose_drawn, _laplace, check)


def _of_features(
    name: str,
    hparams: HParams,
    choose: Callable[..., jax.Array],
    learn: Callable[..., tuple[jax.Array, jax.Array]],
    check: Callable[[str, Task], None],
) -> BanditAlgorithm:
    """A policy that learns coefficients by `learn(theta, root, features of the arm, reward) -> (theta, root)`."""

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> Coefficients:
        del key, params
        size = task.num_features
        root = jnp.eye(size) / jnp.sqrt(jnp.asarray(hparams.ridge, jnp.float32))
        return Coefficients(jnp.zeros(size), root, jnp.zeros((task.num_arms, size)))

    def update(state: Coefficients, view: View, action: jax.Array, reward: jax.Array, hparams: HParams) -> Coefficients:
        del hparams
        theta, root = learn(state.theta, state.root, view.context[action], reward)
        return Coefficients(theta, root, view.context)

    def recommend(state: Coefficients, hparams: HParams) -> jax.Array:
        del hparams
        return argmax(_product(state.features, state.theta))

    return BanditAlgorithm(name, hparams, init, choose, update, recommend, functools.partial(check, name))


def _choose_drawn(key: jax.Array, state: Coefficients, view: View, hparams: HParams) -> jax.Array:
    noise = _product(state.root, normal(key, state.theta.shape))
    return argmax(_product(view.context, state.theta + hparams.exploration * noise), view.mask)


@runs_last
def _product(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return added(matrix[:, i] * vector[i] for i in range(vector.shape[0]))


@runs_last
def _upper(features: jax.Array, theta: jax.Array, root: jax.Array, exploration: jax.Array) -> jax.Array:
    """The estimate of each arm `[K]` plus a number of its standard deviations |R^T x|."""
    size = theta.shape[0]
    spread = added(features[:, i, None] * root[i] for i in range(size))
    width = jnp.sqrt(added(spread[:, i] * spread[:, i] for i in range(size)))
    return added(features[:, i] * theta[i] for i in range(size)) + exploration * width


@runs_last
def _least_squares(theta: jax.Array, root: jax.Array, x: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The update after one more reward: recursive least squares, in which rounding errors fade as rewards come."""
    along, towards, score, variance = _along(theta, root, x)
    return theta + towards * ((reward - score) / (1 + variance)), _seen(root, along, towards, variance, 1.0)


@runs_last
def _laplace(theta: jax.Array, root: jax.Array, x: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The update after one more reward of 0 or 1: the mode, and the curvature there."""
    along, towards, score, variance = _along(theta, root, x)
    step = _pull_towards(reward, score, variance)
    chance = jax.nn.sigmoid(score + variance * step)
    return theta + towards * step, _seen(root, along, towards, variance, chance * (1 - chance))


def _along(theta: jax.Array, root: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """R^T x, R R^T x, theta . x and x^T R R^T x."""
    size = theta.shape[0]
    along = added(root[i] * x[i] for i in range(size))
    towards = added(root[:, i] * along[i] for i in range(size))
    return along, towards, added(x[i] * theta[i] for i in range(size)), added(along[i] ** 2 for i in range(size))


def _seen(root: jax.Array, along: jax.Array, towards: jax.Array, variance: jax.Array, weight: Number) -> jax.Array:
    """The root `[d, d]` after features x were observed with a weight; the other arguments are those of `_along`.

    Source: Potter's form of the update of Sherman and Morrison; Bierman (1977), section II.3.
    """
    grown = 1 + weight * variance
    return root - towards[:, None] * (along * (weight / (grown + jnp.sqrt(grown))))


def _pull_towards(reward: jax.Array, score: jax.Array, variance: jax.Array) -> jax.Array:
    """The root s `[]` of s = reward - sigmoid(score + variance s), which is between 0 and the s of variance 0."""
    first = reward - jax.nn.sigmoid(score)
    low, high = jnp.minimum(first, 0.0), jnp.maximum(first, 0.0)
    step = first / (1 + variance / 4)
    for _ in range(NEWTON_STEPS):
        chance = jax.nn.sigmoid(score + variance * step)
        above = step - reward + chance
        low, high = jnp.where(above < 0, step, low), jnp.where(above < 0, high, step)
        newton = step - above / (1 + variance * chance * (1 - chance))
        step = jnp.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
    return step
