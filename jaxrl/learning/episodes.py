"""Whole episodes of many policies, without automatic resets."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.base import Environment, agent_axes
from envs.threefry import rolled, unrolled
from jaxrl.learning.actor import Actor, Policy, memories
from jaxrl.learning.normalisation import RunningStatistics, update_statistics
from jaxrl.learning.rollout import Carry, agents_ended, remembered, step_once
from jaxrl.pytrees import EnvParams, PyTree

__all__ = ["Episodes", "population_episodes"]


class Episodes(NamedTuple):
    """Episodes of a population.

    Attributes:
      returns: Discounted returns, means over the episodes of a policy and over the agents that take part, `[P]`.
      length: Mean length of an episode, `[]`.
      observations: Statistics of observations, updated with those of these episodes; None if none are kept.
    """

    returns: jax.Array
    length: jax.Array
    observations: RunningStatistics | None


def population_episodes(
    env: Environment,
    params: EnvParams,
    actor: Actor,
    policies: Policy,
    keys: jax.Array,
    next_weight: Callable[[jax.Array, jax.Array], jax.Array],
    observations: RunningStatistics | None = None,
) -> Episodes:
    """Greedy episodes of every policy of a population, each to its end.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      actor: Actor of the policies.
      policies: Policies, leaves `[P, ...]`.
      keys: Random keys of the episodes, `[P, K]`; equal keys give equal first states and equal random numbers.
      next_weight: Function `(t, Gamma(t)) -> Gamma(t + 1)`, the discount step by step.
      observations: Statistics of observations so far, None to keep none.

    Returns:
      Returns, length and statistics; rewards of an agent count from its first active step on.
    """
    chex.assert_rank(keys, 2, custom_message="keys")
    size = keys.shape
    first_keys, step_keys = jnp.moveaxis(jax.vmap(jax.vmap(jax.random.split))(unrolled(keys)), -1, 0)
    obs, state = _over(lambda key: env.reset_env(rolled(key), params), 2)(first_keys)
    of_one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), obs)
    agents = agent_axes(env.observation_space(env.default_params), of_one)
    # A start that depends on the policy, such as a learned one, has the population's axis.
    start = jax.vmap(actor.initial_memory)(policies)
    memory = jax.vmap(lambda policy: memories(actor.initial_memory(policy), (size[1], *agents)))(policies)

    def one_step(policy: Policy, start: PyTree, key: jax.Array, t: jax.Array, carry: Carry, present: jax.Array) -> Any:
        mask = env.action_mask(carry.state, params)
        scores, memory = actor.scores(policy, carry.memory, carry.obs, mask)
        action, _, memory = actor.choose(None, scores, memory, True, mask)
        key = jax.random.fold_in(key, t)
        obs, state, reward, terminated, truncated, info = step_once(env, key, carry.state, action, params)
        done = terminated | truncated
        memory = remembered(memory, start, agents_ended(reward, done, info))
        present = present | info["active"] if "active" in info else jnp.ones_like(present)
        gain = jnp.sum(jnp.where(present, reward, 0.0)) if "active" in info else jnp.sum(reward)
        return Carry(state, obs, memory), gain, done, present

    over_episodes = jax.vmap(one_step, in_axes=(None, None, 0, None, 0, 0))
    over_population = jax.vmap(over_episodes, in_axes=(0, 0, 0, None, 0, 0))

    def body(loop: PyTree) -> Any:
        t, weight, alive, carry, present, returns, length, observations = loop
        if observations is not None:
            taking_part = jnp.broadcast_to(alive.reshape(*size, *[1] * len(agents)), (*size, *agents))
            observations = update_statistics(observations, carry.obs, taking_part.astype(jnp.float32))
        carry, gain, done, now = over_population(policies, start, step_keys, t, carry, present)
        present = jnp.where(alive.reshape(*size, *[1] * len(agents)), now, present)
        returns = returns + jnp.where(alive, weight * gain, 0.0)
        return t + 1, next_weight(t, weight), alive & ~done, carry, present, returns, length + alive, observations

    none = jnp.zeros(size)
    begun = (jnp.zeros((), jnp.int32), jnp.ones(()), jnp.ones(size, bool), Carry(state, obs, memory))
    loop = (*begun, jnp.zeros((*size, *agents), bool), none, none, observations)
    *_, present, returns, length, observations = jax.lax.while_loop(lambda loop: jnp.any(loop[2]), body, loop)
    people = jnp.maximum(jnp.sum(present.reshape(*size, -1), axis=2), 1) if math.prod(agents) else 1
    return Episodes(jnp.mean(returns / people, axis=1), jnp.mean(length), observations)


def _over(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    for _ in range(axes):
        function = jax.vmap(function)
    return function
