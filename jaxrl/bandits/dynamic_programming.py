"""Exact plans and values for small bandits of Markov chains, by enumeration of joint states and joint actions."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.bandits.markov import Arms, MarkovBandit
from envs.errors import UserValueError
from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.checks import Range, check_range
from jaxrl.pytrees import EnvParams, HParams, Number

__all__ = [
    "JOINT_ACTIONS",
    "JOINT_PAIRS",
    "JOINT_STATES",
    "Choices",
    "Plan",
    "joint_choices",
    "joint_size",
    "joint_states",
    "plan",
    "policy_table",
    "policy_values",
    "start_value",
]

JOINT_ACTIONS = 4096  # largest number of enumerated joint actions
JOINT_PAIRS = 2**22  # largest number of pairs of joint states and joint actions
JOINT_STATES = 4096  # largest number of joint states for evaluating a policy, which takes a square matrix of that size
PRECISION = 1e-6  # error, relative to the greatest value, at which iteration ends
ITERATIONS = 100_000


class Plan(NamedTuple):
    """The best policy of a small bandit; see `plan`.

    Attributes:
      values: Discounted sum of rewards from each joint state, float32 `[X]`.
      actions: Best action in each joint state, int32 `[X, M]`.
    """

    values: jax.Array
    actions: jax.Array


class Choices(NamedTuple):
    """The joint actions that differ in their effect on the arms.

    Attributes:
      actions: Joint actions, int32 `[J, M]`.
      touched: Effect of each on each arm, int32 `[J, N]`.
    """

    actions: np.ndarray
    touched: np.ndarray


def plan(env: MarkovBandit, params: EnvParams, gamma: Number, order: jax.Array | None = None) -> Plan:
    """The best policy of a small bandit under discounted rewards, by value iteration over joint states.

    Args:
      env: Bandit, static; the number S^N of joint states times joint actions is at most `JOINT_PAIRS`.
      params: Parameters of the bandit, with the instance in `params.arms`, traced.
      gamma: Discount factor in [0, 1), traced.
      order: Joint actions `joint_choices(env).actions` in the order in which equally good ones are taken, int32 `[J]`;
        None for their own.

    Returns:
      The plan; joint states are in the order of `joint_states`. In float32 the error of its values is at most
      1e-6 / (1 - gamma) of the greatest.

    Raises:
      ValueError: The bandit is too large, there is no instance, or a concrete gamma is outside [0, 1).

    Source: Puterman (1994), section 6.6.3, for the bounds that end the iteration.
    """
    check_range("gamma", gamma, Range(0, 1, "[)"))
    arms = _arms(env, params)
    choices = joint_choices(env)
    num_states = joint_size(env)
    if num_states * len(choices.actions) > JOINT_PAIRS:
        raise UserValueError(
            f"{env.name} has {num_states:,} joint states and {len(choices.actions):,} joint actions; exact planning "
            f"takes at most {JOINT_PAIRS:,} pairs of them, so make it smaller or take another policy"
        )
    laws, rewards = jax.vmap(functools.partial(_under, arms))(jnp.asarray(choices.touched))

    def worth(values: jax.Array) -> jax.Array:
        return rewards + gamma * jax.vmap(_ahead, (0, None))(laws, values)

    values = _iterate(lambda values: jnp.max(worth(values), axis=0), num_states, gamma)
    order = jnp.arange(len(choices.actions)) if order is None else order
    best = order[jnp.argmax(worth(values)[order], axis=0)]
    return Plan(values, jnp.asarray(choices.actions)[best])


def policy_values(env: MarkovBandit, params: EnvParams, actions: jax.Array, gamma: Number) -> jax.Array:
    """The discounted sum of rewards of a policy that depends on the arms' states alone, exact up to rounding.

    Args:
      env: Bandit, static, of at most `JOINT_STATES` joint states.
      params: Parameters of the bandit, with the instance in `params.arms`, traced.
      actions: Action of the policy in each joint state, int32 `[X, M]`; see `policy_table`.
      gamma: Discount factor in [0, 1), traced.

    Returns:
      float32 `[X]`, from each joint state, with an error of at most 1e-6 / (1 - gamma) of the greatest.

    Raises:
      ValueError: The bandit is too large, there is no instance, or a concrete gamma is outside [0, 1).
    """
    check_range("gamma", gamma, Range(0, 1, "[)"))
    arms, states = _arms(env, params), joint_states(env)
    if len(states) > JOINT_STATES:
        raise UserValueError(
            f"{env.name} has {len(states):,} joint states; an exact value takes at most {JOINT_STATES:,}"
        )
    each = np.arange(env.num_arms)

    def moves(at: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        touched = env.touched(action)
        rows = arms.transitions[each, touched, at]
        return functools.reduce(lambda joint, row: jnp.ravel(joint[:, None] * row), rows), jnp.sum(
            arms.expected[each, touched, at]
        )

    law, rewards = jax.vmap(moves)(jnp.asarray(states), actions)
    return _iterate(lambda values: rewards + gamma * jnp.matmul(law, values, precision="highest"), len(states), gamma)


def policy_table(policy: BanditAlgorithm, env: MarkovBandit, params: EnvParams, hparams: HParams = None) -> jax.Array:
    """The action of a policy that does not learn, in each joint state: int32 `[X, M]`.

    Args:
      policy: Policy, such as `whittle()`, `myopic()` or `exact_planning()`.
      env: Bandit, static.
      params: Parameters of the bandit, with the instance in `params.arms`, traced.
      hparams: Hyper-parameters of the policy, its defaults if None, traced.
    """
    _arms(env, params)
    task = Task(env.num_arms, 0, env)
    policy.check(task)
    hparams = policy.hparams if hparams is None else hparams
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    state = policy.init(key, task, params, hparams)

    def choose(states: jax.Array) -> jax.Array:
        return policy.choose(key, state, View(zero, zero, None, states, params), hparams)

    return jax.vmap(choose)(jnp.asarray(joint_states(env)))


def start_value(env: MarkovBandit, params: EnvParams, values: jax.Array) -> jax.Array:
    """The mean of values `[X]` of joint states over the distribution of first states: float32 `[]`."""
    start = _arms(env, params).start
    return jnp.sum(functools.reduce(lambda joint, row: jnp.ravel(joint[:, None] * row), start) * values)


def joint_size(env: MarkovBandit) -> int:
    """The number of joint states, X."""
    return env.num_states**env.num_arms


def joint_states(env: MarkovBandit) -> np.ndarray:
    """All joint states, int32 `[X, N]`, the last arm's varying fastest."""
    return np.indices((env.num_states,) * env.num_arms).reshape(env.num_arms, -1).T.astype(np.int32)


def _arms(env: MarkovBandit, params: EnvParams) -> Arms:
    if params.arms is None:
        raise UserValueError(
            f"params.arms is None; planning takes the instance, as env.known(state, params) of {env.name}"
        )
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params.arms)


@functools.cache
def joint_choices(env: MarkovBandit) -> Choices:
    """Every distinct effect on the arms, with the first action that has this effect."""
    count = math.prod(env.branches)
    if count > JOINT_ACTIONS:
        raise UserValueError(f"{env.name} has {count:,} joint actions; at most {JOINT_ACTIONS:,} are enumerated")
    actions = np.indices(env.branches).reshape(len(env.branches), -1).T.astype(np.int32)
    with jax.ensure_compile_time_eval():
        touched = np.asarray(jax.vmap(env.touched)(jnp.asarray(actions)))
    different = np.sort(np.unique(touched, axis=0, return_index=True)[1])
    return Choices(actions[different], touched[different].astype(np.int32))


def _under(arms: Arms, touched: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The effect of touching: each arm's law `[N, S, S]`, and the expected reward in each joint state `[X]`."""
    each = jnp.arange(touched.shape[0])
    rewards = functools.reduce(lambda joint, row: jnp.ravel(joint[:, None] + row), arms.expected[each, touched])
    return arms.transitions[each, touched], rewards


def _ahead(law: jax.Array, values: jax.Array) -> jax.Array:
    """The expected values `[X]` of the next joint state, where arms move by their laws `[N, S, S]`, one by one."""
    num_states = law.shape[-1]
    for arm_law in law:
        # The first axis is the arm's; it is moved to the end, so that the order is restored after all arms.
        values = jnp.ravel(jnp.matmul(arm_law, values.reshape(num_states, -1), precision="highest").T)
    return values


def _iterate(backup: Any, num_states: int, gamma: Number) -> jax.Array:
    """The fixed point `[X]` of a backup that discounts by gamma.

    Ends when all values change by nearly the same amount, and adds the limit of that change.
    """

    def unfinished(carry: tuple[Any, Any, Any]) -> jax.Array:
        values, change, count = carry
        spread = jnp.max(change) - jnp.min(change)
        return (spread > PRECISION * jnp.max(jnp.abs(values))) & (count < ITERATIONS)

    def again(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        values, _, count = carry
        after = backup(values)
        return after, after - values, count + 1

    zero = jnp.zeros(num_states)
    first = backup(zero)
    values, change, _ = jax.lax.while_loop(unfinished, again, (first, first, jnp.zeros((), jnp.int32)))
    return values + gamma / (1 - gamma) * (jnp.max(change) + jnp.min(change)) / 2
