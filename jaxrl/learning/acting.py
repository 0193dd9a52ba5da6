"""Single steps of a policy in an environment, without automatic resets."""

from typing import Any, NamedTuple

import chex
import jax

from envs.base import Environment, agent_axes
from envs.threefry import rolled, unrolled
from jaxrl.learning.actor import Actor, Memory, Policy, Scores, check_memory, memories, scored
from jaxrl.learning.rollout import Carry, agents_ended, remembered, reset_all, step_once
from jaxrl.pytrees import EnvParams, Observation

__all__ = ["Acted", "act_once", "agents_of", "begin"]


class Acted(NamedTuple):
    """One step of a policy in one environment.

    Attributes:
      carry: Environment after the step, before any reset; its memory is reset where an agent's episode has ended.
      mask: Action mask before the step, or None.
      scores: Scores of the actions, `{name: [*A, ...]}`.
      memory: Memory by which the scores were computed, leaves `[*A, ...]`.
      action: Action as the environment takes it, leaves `[*A, ...]`.
      raw: Action as `Actor.log_prob` takes it.
      reward: Reward, `[*A]`.
      terminated, truncated: Ends of the episode, bool `[]`.
      info: Further facts about the step, see `envs.base.Environment`.
    """

    carry: Carry
    mask: Any
    scores: Scores
    memory: Memory
    action: Any
    raw: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: dict[Any, Any]


def begin(
    env: Environment, params: EnvParams, actor: Actor, policy: Policy, key: jax.Array, num_episodes: int
) -> tuple[Carry, jax.Array, tuple[int, ...]]:
    """First states of episodes.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      actor: Actor of the policy.
      policy: Policy of one run, traced.
      key: Random key, traced.
      num_episodes: Number of episodes N.

    Returns:
      Environments with memories, leaves `[N, ...]`; the random key of the steps; and the axes of the agents, `*A`.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    reset_key, step_key = jax.random.split(unrolled(key))
    first = reset_all(env, reset_key, params, num_episodes)
    agents = agents_of(env, first.obs)
    start_memory = actor.initial_memory(policy)
    return first._replace(memory=memories(start_memory, (num_episodes, *agents))), step_key, agents


def agents_of(env: Environment, obs: Observation) -> tuple[int, ...]:
    """Axes of the agents, `*A`, in observations of several environments, leaves `[N, *A, ...]`."""
    of_one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), obs)
    return agent_axes(env.observation_space(env.default_params), of_one)


def act_once(
    env: Environment,
    params: EnvParams,
    actor: Actor,
    policy: Policy,
    key: jax.Array,
    carry: Carry,
    agents: tuple[int, ...],
    greedy: bool | jax.Array,
) -> Acted:
    """One step of a policy in one environment, without a reset.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      actor: Actor of the policy.
      policy: Policy of one run, traced.
      key: Random key of the action and of the environment, traced.
      carry: Environment before the step, leaves `[...]`.
      agents: Axes of the agents, `*A`.
      greedy: Whether to take the most likely action instead of a sampled one, traced or static.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")
    act_key, env_key = jax.random.split(key)
    mask = env.action_mask(carry.state, params)
    scores, memory = scored(actor, policy, carry.memory, carry.obs, mask)
    action, raw, memory = actor.choose(actor.noise(rolled(act_key), agents), scores, memory, greedy, mask)
    check_memory(carry.memory, memory)
    obs, state, reward, terminated, truncated, info = step_once(env, env_key, carry.state, action, params)
    over = agents_ended(reward, terminated | truncated, info)
    after = Carry(state, obs, remembered(memory, actor.initial_memory(policy), over))
    return Acted(after, mask, scores, carry.memory, action, raw, reward, terminated, truncated, info)
