"""Exact Bayes-optimal play of the repeated lever game against a finite population of scripted partners."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.cooperation.partners import RULES, Behaviour, View, option_of_rule
from envs.errors import UserValueError

MAX_BELIEFS = 300_000
DIGITS = 12

__all__ = ["action_chances", "best_return", "best_rewards"]


def action_chances(members: Behaviour, payoffs: np.ndarray) -> np.ndarray:
    """The probability of every action of every member in every situation.

    Args:
      members: Scripted partners, leaves `[P]`.
      payoffs: Payoff of each lever `[n]`.

    Returns:
      float64 `[P, n + 2, n + 2, n + 2, n + 1]`, with the axes: member, the partner's own last lever, the other agent's
      last lever, the other agent's lever before that, and action. Levers are shifted by 1, from -1 (none yet) to n
      (pulled none).
    """
    num_levers = len(payoffs)
    option = np.asarray(_options(jax.tree.map(jnp.asarray, members), jnp.asarray(payoffs)))
    random = np.asarray(members.rule) == RULES.index("random")
    rate = np.where(random, 1.0, np.asarray(members.rate, np.float64))[:, None, None, None, None]
    uniform = np.where(np.arange(num_levers + 1) < num_levers, 1 / num_levers, 0.0)
    return (1 - rate) * (option[..., None] == np.arange(num_levers + 1)) + rate * uniform


@jax.jit  # once for all members of one shape
def _options(members: Behaviour, payoffs: jax.Array) -> jax.Array:
    """The option of every member's rule without chance in every situation, int32 `[P, n + 2, n + 2, n + 2]`."""
    num_levers = len(payoffs)
    pulled = jnp.arange(-1, num_levers + 1)

    def of(member: Behaviour, own: jax.Array, last: jax.Array, before: jax.Array) -> jax.Array:
        paid = (own == last) & (own >= 0) & (own < num_levers)
        return option_of_rule(member, own, View(payoffs, jnp.stack([last, before]), jnp.ones((), bool), paid))

    function: Any = of
    for argument in (3, 2, 1, 0):
        function = jax.vmap(function, in_axes=tuple(0 if i == argument else None for i in range(4)))
    return function(members, pulled, pulled, pulled)


def best_return(members: Behaviour, weights: np.ndarray, payoffs: np.ndarray, curve: np.ndarray) -> float:
    """The largest expected discounted return of any policy that remembers everything; see `best_rewards`."""
    return float(np.dot(curve, best_rewards(members, weights, payoffs, curve)))


def best_rewards(members: Behaviour, weights: np.ndarray, payoffs: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """The expected reward of each step under a policy that remembers everything and has the largest expected return.

    Reachable beliefs over members are enumerated forward, merged where both belief and situation are equal, and valued
    backward, in float64. Of several best levers the first is pulled.

    Args:
      members: Scripted partners, leaves `[P]`.
      weights: Relative prior probability of each `[P]`, above 0.
      payoffs: Payoff of each lever `[n]`.
      curve: Discount of the reward of each step `[T]`.

    Returns:
      float64 `[T]`.

    Raises:
      ValueError: More beliefs than `MAX_BELIEFS` can be reached.
    """
    num_levers = len(payoffs)
    num_actions = num_levers + 1
    chances = action_chances(members, payoffs)
    chances, weights = _merged(chances, np.asarray(weights, np.float64))
    beliefs, situations = weights[None] / weights.sum(), np.zeros((1, 3), np.int64)
    stages = []
    for time in range(len(curve)):
        own, last, before = situations.T
        likelihood = np.moveaxis(chances[:, own, last, before], 0, -1)  # [N, actions, members]
        joint = beliefs[:, None] * likelihood
        chance = joint.sum(axis=-1)  # [N, actions]
        following = None
        if time + 1 < len(curve):
            node, action = np.nonzero(chance > 0)
            after = joint[node, action] / chance[node, action][:, None]
            first_after, belief = _unique(np.rint(after * 10.0**DIGITS).astype(np.int64))
            # The partner's action, any reply to it and the last one make the next situation.
            first, group = _unique(np.stack([action, last[node], belief], axis=-1))
            count = len(first) * num_actions
            if count > MAX_BELIEFS:
                raise UserValueError(
                    f"optimum takes at most {MAX_BELIEFS} beliefs, got {count} after {time + 1} steps; take fewer "
                    "steps, fewer partners, or fewer partners with a rate above 0"
                )
            reply = np.arange(num_actions)
            following = (node, action, group[:, None] * num_actions + reply)
            parts = (action[first, None] + 1, reply + 1, last[node[first], None])
            situations = np.stack(np.broadcast_arrays(*parts), axis=-1).reshape(-1, 3)
            beliefs = np.repeat(after[first_after][belief[first]], num_actions, axis=0)
        stages.append((chance, following))
    value, replies = np.zeros(0), []
    for discount, (chance, following) in zip(curve[::-1], stages[::-1], strict=True):
        worth = np.concatenate([discount * chance[:, :num_levers] * payoffs, np.zeros((len(chance), 1))], axis=1)
        if following is not None:
            node, action, index = following
            np.add.at(worth, node, chance[node, action][:, None] * value[index])
        value = worth.max(axis=1)
        replies.append(np.argmax(worth, axis=1))
    reached, rewards = np.ones(1), []
    for (chance, following), reply in zip(stages, replies[::-1], strict=True):
        paid = np.append(payoffs, 0.0)[reply] * chance[np.arange(len(reply)), reply]
        rewards.append(np.dot(reached, paid))
        if following is not None:
            node, action, index = following
            after = index[np.arange(len(node)), reply[node]]
            reached = np.bincount(after, reached[node] * chance[node, action], minlength=index.max() + 1)
    return np.array(rewards)


def _unique(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of one row of each group of equal rows `[N, K]`, and the group of each row `[N]`."""
    order = np.lexsort(rows.T)
    starts = np.concatenate([[True], np.any(rows[order][1:] != rows[order][:-1], axis=1)])
    group = np.empty(len(rows), np.int64)
    group[order] = np.cumsum(starts) - 1
    return order[starts], group


def _merged(chances: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge members that act alike in every situation into one, with the sum of their weights."""
    flat = chances.reshape(len(chances), -1)
    _, first, index = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    return chances[first], np.bincount(index.ravel(), weights)
