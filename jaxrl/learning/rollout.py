"""Stepping environments: the one place that decides time limits and resets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.threefry import rolled, unrolled
from jaxrl.learning.shards import EnvShards, own

TERMINATED, TRUNCATED = 1, 2
PER_AGENT = ("agent_terminated", "active")  # of `info`, where an environment has more to say than its flags


class Transition(NamedTuple):
    """Steps of every environment; leaves `[T, N, ...]`.

    Attributes:
      obs: before the step.
      next_obs: after it, before any reset.
      reward: `[T, N, *A]`.
      terminated, truncated: bool `[T, N]`; the time limit alone sets `truncated`.
      agent_terminated: bool `[T, N, *A]`; `terminated` where the environment does not say more.
      active: bool `[T, N, *A]`; all true where the environment does not say more.
      mask: the action mask before the step, or None.
      extras: what `choose` returned beside the action.
    """

    obs: Any
    next_obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    agent_terminated: jax.Array
    active: jax.Array
    mask: Any
    extras: Any


class Carry(NamedTuple):
    """The environments between two rollouts: states and observations, leaves `[N, ...]`."""

    state: Any
    obs: Any


def step_once(
    env: Environment, key: jax.Array, state: Any, action: Any, params: Any
) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[Any, Any]]:
    """One step of one environment without a reset: obs, state, reward, terminated, truncated, info.

    The time limit truncates only where the environment has not terminated.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    obs, state, reward, terminated, info = env.step_env(rolled(key), state, action, params)
    truncated = env.is_truncated(state, params) & ~terminated
    return obs, state, reward, terminated, truncated, info


def reset_all(env: Environment, key: jax.Array, params: Any, num_envs: int, shards: EnvShards | None = None) -> Carry:
    """Fresh episodes in `num_envs` environments, or in one shard's share of them."""
    chex.assert_rank(key, {0, 1}, custom_message="key")
    return _begun(env, own(jax.random.split(unrolled(key), num_envs), shards), params)


def _begun(env: Environment, keys: jax.Array, params: Any) -> Carry:
    obs, state = jax.vmap(env.reset_env, in_axes=(0, None))(rolled(keys), params)
    return Carry(state, obs)


def default_reset_pool(num_steps: int) -> int:
    """Fresh states that a rollout keeps ready for each environment: room for a reset every 8 steps."""
    return max(2, -(-num_steps // 8))


def rollout(
    env: Environment,
    params: Any,
    choose: Callable[[Any, Any, Any], tuple[Any, Any]],
    key: jax.Array,
    carry: Carry,
    inputs: Any,
    reset_pool: int | None = None,
    shards: EnvShards | None = None,
) -> tuple[Carry, Transition, jax.Array]:
    """Steps every environment `T` times, resetting where an episode ends.

    Fresh states come from a pool per environment, drawn in bulk beforehand, each given out
    once and in order; only when an environment needs more than its pool holds does it start
    over, and every such reuse is counted.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      choose: Function `(obs, mask, input) -> (action, extras)` on leaves `[N, ...]`.
      key: Random key of the environments; randomness for `choose` is in `inputs`.
      carry: Environments before the first step, leaves `[N, ...]`.
      inputs: Inputs of `choose`, leaves `[T, ...]`, one slice for each step.
      reset_pool: Number of fresh states per environment, `default_reset_pool(T)` if None.
      shards: Parts of which these N environments are one, if any; an environment's random numbers do not depend on
        the number of parts.

    Returns:
      The environments afterwards, transitions `[T, N, ...]`, and the number of reused fresh
      states, int32 `[]`.

    Raises:
      ValueError: `reset_pool` is below 1.
    """
    num_envs = jax.tree.leaves(carry.obs)[0].shape[0]
    num_in_all = num_envs * (1 if shards is None else shards.count)
    num_steps = jax.tree.leaves(inputs)[0].shape[0]
    chex.assert_rank(key, {0, 1}, custom_message="key")
    chex.assert_tree_shape_prefix(carry, (num_envs,), custom_message="carry")
    chex.assert_tree_shape_prefix(inputs, (num_steps,), custom_message="inputs")
    pool_size = default_reset_pool(num_steps) if reset_pool is None else reset_pool
    if pool_size < 1:
        raise ValueError(f"reset_pool must be at least 1, got {reset_pool}")
    reset_key, step_key = jax.random.split(unrolled(key))
    keys = own(jax.random.split(unrolled(reset_key), (num_in_all, pool_size)), shards)
    # The first states of all environments, then the second of all: environments that have begun about as often, as
    # most have, read side by side.
    pool = _begun(env, keys.T.reshape(-1), params)
    # An index without a sign needs no code for negative ones.
    first_slots = jnp.arange(num_envs, dtype=jnp.uint32)

    def step(key: jax.Array, state: Any, action: Any) -> tuple[Any, ...]:
        obs, state, reward, terminated, truncated, info = step_once(env, key, state, action, params)
        # Every array that a step writes costs a CPU as much as many numbers in it: the two flags are
        # one number until the loop is over, and what an environment does not tell is made after it.
        ended = jnp.where(terminated, TERMINATED, jnp.where(truncated, TRUNCATED, 0)).astype(jnp.int8)
        told = {name: jnp.broadcast_to(info[name], reward.shape) for name in PER_AGENT if name in info}
        return Carry(state, obs), (obs, reward, ended, told)

    def one_step(loop: tuple[Carry, jax.Array, jax.Array], step_input: Any) -> tuple[Any, Any]:
        (state, obs), used, t = loop
        mask = jax.vmap(env.action_mask, in_axes=(0, None))(state, params)
        action, extras = choose(obs, mask, step_input)
        keys = own(jax.random.split(jax.random.fold_in(step_key, t), num_in_all), shards)
        after, told = jax.vmap(step)(keys, state, action)
        done = told[2] != 0
        slot = first_slots + num_envs * jax.lax.rem(used, jnp.uint32(pool_size))

        def reset(new: jax.Array, fresh: jax.Array) -> jax.Array:
            ready = fresh.at[slot].get(mode="promise_in_bounds")
            return jnp.where(done.reshape(num_envs, *[1] * (new.ndim - 1)), ready, new)

        return (jax.tree.map(reset, after, pool), used + done, t + 1), (obs, mask, extras, told)

    start = (carry, jnp.zeros(num_envs, jnp.uint32), jnp.zeros((), jnp.int32))
    (carry, used, _), (obs, mask, extras, told) = jax.lax.scan(one_step, start, inputs)
    next_obs, reward, ended, per_agent = told
    terminated, truncated = ended == TERMINATED, ended == TRUNCATED
    of_all_agents = terminated.reshape(*terminated.shape, *[1] * (reward.ndim - terminated.ndim))
    transitions = Transition(
        obs,
        next_obs,
        reward,
        terminated,
        truncated,
        agent_terminated=per_agent.get("agent_terminated", jnp.broadcast_to(of_all_agents, reward.shape)),
        active=per_agent.get("active", jnp.ones(reward.shape, bool)),
        mask=mask,
        extras=extras,
    )
    return carry, transitions, jnp.sum(jnp.maximum(used.astype(jnp.int32) - pool_size, 0))
