"""Policies that pull the arm with the highest mean, except in a share of pulls or in a first phase of exploration."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.bandits.arms import NOT_NEGATIVE, ArmSums, add, best_mean, means, no_sums, one_hot, untried_first
from jaxrl.bandits.base import BanditAlgorithm, View, argmax
from jaxrl.bandits.checks import check_arms
from jaxrl.checks import Range, Settings, ranged


@struct.dataclass
class EpsilonGreedyHParams(Settings):
    """Hyper-parameters of `epsilon_greedy`.

    Attributes:
      epsilon: Share of pulls of a random arm, at least 0; where it decays, the numerator over t^decay,
        c K / d^2 in the paper.
      decay: Exponent of the share min(1, epsilon / t^decay) at the pull number t; at least 0, 0 keeps it constant.
    """

    epsilon: float = ranged(0.1, NOT_NEGATIVE)
    decay: float = ranged(0.0, NOT_NEGATIVE)


@struct.dataclass
class ExploreThenCommitHParams(Settings):
    """Hyper-parameters of `explore_then_commit`.

    Attributes:
      pulls_per_arm: Number m of pulls of each arm before committing; at least 1, with fractions rounded up.
    """

    pulls_per_arm: float = ranged(50.0, Range(1, float("inf"), "[)"))


@functools.cache
def epsilon_greedy() -> BanditAlgorithm:
    """Epsilon-greedy: a random arm in a share of pulls, which may decay, and otherwise the arm with the highest mean.

    Arms that have not been pulled yet precede the arm with the highest mean.

    Source: Auer, Cesa-Bianchi and Fischer (2002), figure 3; Sutton and Barto (2018), section 2.2.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: EpsilonGreedyHParams) -> jax.Array:
        coin, which = jax.random.uniform(key, (2,))
        mask = jnp.ones(state.pulls.shape, bool) if view.mask is None else view.mask
        rank = jnp.cumsum(mask.astype(jnp.int32))  # the number of an arm among those that may be pulled, from 1
        drawn = jnp.minimum((which * rank[-1]).astype(jnp.int32), rank[-1] - 1)
        explore = coin < decayed(hparams.epsilon, hparams.decay, view)
        return jnp.where(explore, argmax(rank > drawn), untried_first(state, means(state), view))

    check = functools.partial(check_arms, "epsilon-greedy")
    return BanditAlgorithm("epsilon-greedy", EpsilonGreedyHParams(), no_sums, choose, add, best_mean, check)


@functools.cache
def explore_then_commit() -> BanditAlgorithm:
    """Explore, then commit: every arm m times in turn, and from then on the one with the highest mean.

    Rewards after the commitment have no effect.

    Source: Lattimore and Szepesvari (2020), algorithm 1.
    """

    def choose(key: jax.Array, state: ArmSums, view: View, hparams: ExploreThenCommitHParams) -> jax.Array:
        del key
        short = state.pulls < hparams.pulls_per_arm
        if view.mask is not None:
            short &= view.mask
        return jnp.where(jnp.any(short), argmax(-state.pulls, short), argmax(means(state), view.mask))

    def update(
        state: ArmSums, view: View, action: jax.Array, reward: jax.Array, hparams: ExploreThenCommitHParams
    ) -> ArmSums:
        del view
        counted = one_hot(state.pulls, action) * (state.pulls < hparams.pulls_per_arm)
        return ArmSums(state.counted.add(counted), state.received.add(counted * reward))

    check = functools.partial(check_arms, "explore-then-commit")
    return BanditAlgorithm("explore-then-commit", ExploreThenCommitHParams(), no_sums, choose, update, best_mean, check)


def decayed(start: jax.Array | float, decay: jax.Array | float, view: View) -> jax.Array:
    """start / t^decay at the pull number t = 1, 2, ..."""
    return start / (view.time + 1).astype(jnp.float32) ** decay
