"""Stepping of environments, with time limits and resets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.abstract_checking import ContractError
from envs.arguments import described
from envs.base import Environment
from envs.errors import UserValueError
from envs.loops import scan
from envs.threefry import rolled, unrolled
from envs.wrappers.wrapper import limit
from jaxrl.learning.actor import Actor, Memory, Policy, check_memory, memories, scored
from jaxrl.learning.shards import EnvShards, own
from jaxrl.pytrees import Action, EnvParams, PyTree, State

TERMINATED, TRUNCATED = 1, 2
PER_AGENT = ("agent_terminated", "active")  # entries of `info` of environments with ends of single agents


class Transition(NamedTuple):
    """Steps of every environment; leaves `[T, N, ...]`.

    Attributes:
      obs: Observations before the step.
      next_obs: Observations after the step, before any reset.
      reward: Rewards `[T, N, *A]`.
      terminated, truncated: Ends of episodes, bool `[T, N]`; only the time limit sets `truncated`.
      agent_terminated: Ends of single agents, bool `[T, N, *A]`; equals `terminated` if the environment has none.
      active: Whether each agent takes part, bool `[T, N, *A]`; all true if the environment does not report it.
      mask: Action mask before the step, or None.
      raw_action: Action as scored by a loss, `[T, N, *A, ...]`.
      next_mask: Action mask after the step, before any reset, if requested; otherwise None.
      critic_obs, next_critic_obs: What only a critic sees, before the step, and after it before any reset, if
        requested: global observations, leaves without the agents' axes, or privileged facts; otherwise None.
      behaviour: `info["behaviour"]` of the step, if requested; otherwise None.
      memory: Memories before the step, leaves `[T, N, *A, ...]`, if requested; otherwise None.
    """

    obs: Any
    next_obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    agent_terminated: jax.Array
    active: jax.Array
    mask: Any
    raw_action: Any
    next_mask: Any = None
    critic_obs: Any = None
    next_critic_obs: Any = None
    behaviour: Any = None
    memory: Any = None


class Carry(NamedTuple):
    """Environments between rollouts: states and observations `[N, ...]`, and memories of agents `[N, *A, ...]`."""

    state: State
    obs: Any
    memory: Memory = ()


def step_once(
    env: Environment, key: jax.Array, state: State, action: Action, params: EnvParams
) -> tuple[Any, Any, jax.Array, jax.Array, jax.Array, dict[Any, Any]]:
    """One step of one environment without a reset: obs, state, reward, terminated, truncated, info.

    The time limit truncates only where the environment has not terminated.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    obs, state, reward, terminated, info = env.step_env(rolled(key), state, action, params)
    truncated = env.is_truncated(state, params) & ~terminated
    return obs, state, reward, terminated, truncated, info


def over_agents(flag: jax.Array, reward: jax.Array) -> jax.Array:
    """Broadcast a flag `[*B]` over the agents' axes of a reward `[*B, *A]`."""
    chex.assert_equal_shape_prefix([flag, reward], flag.ndim, custom_message="flag, reward")
    return jnp.broadcast_to(flag.reshape(flag.shape + (1,) * (reward.ndim - flag.ndim)), reward.shape)


def episode_ends(steps: Transition) -> jax.Array:
    """Ends of each agent's episodes, by termination or truncation, bool `[T, N, *A]`."""
    flags = [steps.terminated, steps.truncated]
    chex.assert_equal_shape_prefix([steps.reward, *flags], 2, custom_message="reward, terminated, truncated")
    return over_agents(steps.terminated | steps.truncated, steps.reward) | steps.agent_terminated


def value_ends(steps: Transition, time_limits: str) -> jax.Array:
    """Steps after which the value is 0, bool `[T, N, *A]`.

    Args:
      steps: Transitions.
      time_limits: Treatment of truncations: "terminal", as terminations, or "bootstrap".
    """
    chex.assert_equal_shape([steps.reward, steps.agent_terminated], custom_message="reward, agent_terminated")
    if time_limits == "terminal":
        return steps.agent_terminated | over_agents(steps.truncated, steps.reward)
    return steps.agent_terminated


def remembered(memory: Memory, start: Memory, ended: jax.Array) -> Memory:
    """Memories before the next step: reset to the start where an agent's episode has ended.

    Args:
      memory: Memories after a step, leaves `[*B, ...]`.
      start: Memory of one agent at the start of an episode, leaves `[...]`.
      ended: Whether the agent's episode ended with the step, bool `[*B]`.
    """
    chex.assert_tree_shape_prefix(memory, ended.shape, custom_message="memory, ended")

    def leaf(after: jax.Array, first: jax.Array) -> jax.Array:
        return jnp.where(ended.reshape(*ended.shape, *[1] * jnp.ndim(first)), first, after)

    return jax.tree.map(leaf, memory, start)


def agents_ended(reward: jax.Array, done: jax.Array, info: dict[Any, Any]) -> jax.Array:
    """Whether each agent's episode is over after a step of one environment, bool `[*A]`."""
    chex.assert_rank(done, 0, custom_message="done")
    ended = over_agents(done, reward)
    return ended | info["agent_terminated"] if "agent_terminated" in info else ended


def first_observation(env: Environment, key: jax.Array, params: EnvParams) -> tuple[Any, Any]:
    """Observation and action mask at the start of an episode."""
    obs, state = env.reset_env(key, params)
    return obs, env.action_mask(state, params)


def reset_all(
    env: Environment,
    key: jax.Array,
    params: EnvParams,
    num_envs: int,
    shards: EnvShards | None = None,
    memory: Memory = (),
) -> Carry:
    """Start episodes in `num_envs` environments, or in those of one shard.

    Args:
      env: Environment, static.
      key: Random key.
      params: Parameters of the environment, traced.
      num_envs: Number of environments of all shards.
      shards: Shards of which these environments are one, if any.
      memory: Memory of the agents of one environment at the start of an episode, `[*A, ...]`.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")
    keys = own(first_keys(key, num_envs), shards)
    return _begun(env, keys, params)._replace(memory=memories(memory, keys.shape))


def first_keys(key: jax.Array, num_envs: int) -> jax.Array:
    """Keys by which `reset_all` starts the episodes, `[num_envs]`, with the rounds of Threefry written out."""
    chex.assert_rank(key, {0, 1}, custom_message="key")
    return jax.random.split(unrolled(key), num_envs)


def _begun(env: Environment, keys: jax.Array, params: EnvParams) -> Carry:
    obs, state = jax.vmap(env.reset_env, in_axes=(0, None))(rolled(keys), params)
    return Carry(state, obs)


def longest_episode(env: Environment) -> int:
    """Time limit of an environment's default parameters, in steps."""
    with jax.ensure_compile_time_eval():
        return int(limit(env, env.default_params))


def default_reset_pool(num_steps: int, longest: int) -> int:
    """Number of fresh states per environment for a rollout: one per 8 steps, and at least 2 from 3 steps on.

    Args:
      num_steps: Number of steps of the rollout.
      longest: Time limit of the environment, in steps; if it is below 8, there is a state for each multiple of it.
    """
    return max(min(2, -(-num_steps // 2)), -(-num_steps // min(8, longest)))


def fresh_keys(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Keys of the fresh states of a rollout with this key, `[*shape]`, with the rounds of Threefry written out."""
    chex.assert_rank(key, {0, 1}, custom_message="key")
    return jax.random.split(unrolled(jax.random.split(unrolled(key))[0]), shape)


def rollout(
    env: Environment,
    params: EnvParams,
    actor: Actor,
    policy: Policy,
    key: jax.Array,
    carry: Carry,
    noise: PyTree,
    reset_pool: int | None = None,
    shards: EnvShards | None = None,
    *,
    num_steps: int | None = None,
    with_next_mask: bool = False,
    critic_sees: Callable[[State, EnvParams], Any] | None = None,
    with_behaviour: bool = False,
    kept: Callable[[Any], Any] = lambda obs: obs,
    recorded: Callable[[Memory], Any] | None = None,
    reset_keys: jax.Array | None = None,
) -> tuple[Carry, Transition, jax.Array]:
    """Step every environment `T` times, resetting where an episode ends.

    Fresh states come from a pool per environment, drawn in bulk beforehand and used in order; if an environment needs
    more states than its pool holds, it reuses them from the first one, and every reuse is counted. An agent's memory is
    reset where its episode ended.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      actor: Actor of the policy.
      policy: Policy of one run.
      key: Random key of the environments; acting uses `noise`.
      carry: Environments, `[N, ...]`, with memories of the actor's structure.
      noise: Noise of the actor, leaves `[T, N, *A, ...]`.
      reset_pool: Number of fresh states per environment; None takes `default_reset_pool` of T and the time limit of the
        environment's default parameters.
      shards: Shards of which these N environments are one, if any; an environment's random numbers do
        not depend on the number of shards.
      num_steps: Number of steps T, static; None takes the length of the noise.
      with_next_mask: Whether transitions have `next_mask`, static.
      critic_sees: Function of a state and the parameters, whose results are `critic_obs`; None for none.
      with_behaviour: Whether transitions have `behaviour`, static.
      kept: Function of observations `[N, ...]`, whose results take their place in transitions.
      recorded: Function of memories, whose results are `memory` of transitions; None for none.
      reset_keys: Keys of the fresh states, `[N, pool]`, in the order of their use; None draws `reset_pool` of them.

    Returns:
      Environments after the rollout, transitions `[T, N, ...]`, and the number of reused fresh states, int32 `[]`.

    Raises:
      ValueError: `reset_pool` is below 1.
      ContractError: The memories of `carry` are not those of the actor, or the actor returns other ones.
    """
    num_envs = jax.tree.leaves(carry.obs)[0].shape[0]
    num_in_all = num_envs * (1 if shards is None else shards.count)
    if num_steps is None:
        num_steps = int(jax.tree.leaves(noise)[0].shape[0])
    chex.assert_rank(key, {0, 1}, custom_message="key")
    chex.assert_tree_shape_prefix(carry, (num_envs,), custom_message="carry")
    chex.assert_tree_shape_prefix(noise, (num_steps,), custom_message="noise")
    pool_size = default_reset_pool(num_steps, longest_episode(env)) if reset_pool is None else reset_pool
    if pool_size < 1:
        raise UserValueError(f"reset_pool must be at least 1, got {reset_pool}")
    reset_key, step_key = jax.random.split(unrolled(key))
    if reset_keys is None:
        keys = own(jax.random.split(unrolled(reset_key), (num_in_all, pool_size)), shards)
    else:
        chex.assert_shape(reset_keys, (num_envs, None), custom_message="reset_keys")
        keys, pool_size = reset_keys, reset_keys.shape[1]
    # The first states of all environments, then the second of all: environments with equal numbers of resets, as most
    # have, read adjacent memory.
    pool = _begun(env, keys.T.reshape(-1), params)
    first_memory = actor.initial_memory(policy)
    if jax.tree.structure(carry.memory) != jax.tree.structure(first_memory):
        raise ContractError(
            f"carry must have the memories of its actor, which starts from {described(first_memory)}, got "
            f"{described(carry.memory)}; see the argument memory of reset_all"
        )
    # An unsigned index needs no code for negative values.
    first_slots = jnp.arange(num_envs, dtype=jnp.uint32)

    def step(key: jax.Array, state: State, action: Action) -> tuple[Any, ...]:
        obs, state, reward, terminated, truncated, info = step_once(env, key, state, action, params)
        # Each array written in a step is costly on a CPU: the two flags are one number until the loop is over, and the
        # defaults of missing entries are made after it.
        ended = jnp.where(terminated, TERMINATED, jnp.where(truncated, TRUNCATED, 0)).astype(jnp.int8)
        per_agent = {name: jnp.broadcast_to(info[name], reward.shape) for name in PER_AGENT if name in info}
        over = agents_ended(reward, terminated | truncated, info)
        behaviour = info["behaviour"] if with_behaviour else None
        return Carry(state, obs), over, (obs, reward, ended, per_agent, behaviour)

    def critic_observations(state: State) -> Any:
        return None if critic_sees is None else jax.vmap(critic_sees, in_axes=(0, None))(state, params)

    def one_step(loop: tuple[Carry, jax.Array, jax.Array], noise: PyTree) -> tuple[Any, Any]:
        (state, obs, before), used, t = loop
        mask = jax.vmap(env.action_mask, in_axes=(0, None))(state, params)
        scores, memory = scored(actor, policy, before, obs, mask)
        action, raw_action, memory = actor.choose(noise, scores, memory, False, mask)
        check_memory(before, memory)
        keys = own(jax.random.split(jax.random.fold_in(step_key, t), num_in_all), shards)
        after, over, facts = jax.vmap(step)(keys, state, action)
        next_mask = jax.vmap(env.action_mask, in_axes=(0, None))(after.state, params) if with_next_mask else None
        critic_obs = critic_observations(state), critic_observations(after.state)
        done = facts[2] != 0
        slot = first_slots + num_envs * jax.lax.rem(used, jnp.uint32(pool_size))

        def reset(new: jax.Array, fresh: jax.Array) -> jax.Array:
            ready = fresh.at[slot].get(mode="promise_in_bounds")
            return jnp.where(done.reshape(num_envs, *[1] * (new.ndim - 1)), ready, new)

        begun = jax.tree.map(reset, after, pool)._replace(memory=remembered(memory, first_memory, over))
        facts = (kept(facts[0]), *facts[1:])
        record = None if recorded is None else recorded(before)
        return (begun, used + done, t + 1), (kept(obs), mask, raw_action, next_mask, critic_obs, facts, record)

    start = (carry, jnp.zeros(num_envs, jnp.uint32), jnp.zeros((), jnp.int32))
    (carry, used, _), run = scan(one_step, start, noise, length=num_steps)
    obs, mask, raw_action, next_mask, (critic_obs, next_critic_obs), facts, memory = run
    next_obs, reward, ended, per_agent, behaviour = facts
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
        raw_action=raw_action,
        next_mask=next_mask,
        critic_obs=critic_obs,
        next_critic_obs=next_critic_obs,
        behaviour=behaviour,
        memory=memory,
    )
    return carry, transitions, jnp.sum(jnp.maximum(used.astype(jnp.int32) - pool_size, 0))
