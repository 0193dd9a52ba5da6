"""Common parts of off-policy algorithms: collecting, the replay buffer, sampling and the schedule of updates."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.threefry import rolled, unrolled
from jaxrl.algorithms.contract import Metrics
from jaxrl.algorithms.observations import check_normalised, has_mask, observation_shapes
from jaxrl.algorithms.off_policy_config import OffPolicyConfig
from jaxrl.learning.actor import Actor, memories
from jaxrl.learning.normalisation import RunningStatistics, init_statistics, normalise, update_statistics
from jaxrl.learning.priorities import (
    Priorities,
    init_priorities,
    prioritised_rows,
    update_priorities,
    write_priorities,
)
from jaxrl.learning.replay import Ring, Rows, Window, init_buffer, uniform_rows, window, write
from jaxrl.learning.rollout import Carry, Transition, reset_all, rollout

_LEAST_ERROR = 1e-6  # keeps every priority above 0

__all__ = ["Method", "OffPolicyPolicy", "OffPolicyState", "off_policy_functions"]


class OffPolicyPolicy(NamedTuple):
    """Policy of an off-policy algorithm.

    Attributes:
      acting: Parameters of the network and of exploration; their type depends on the algorithm.
      observations: Running statistics of observations, None without normalisation.
      observation_clip: Bound of normalised observations, float32 `[]`, None without normalisation.
    """

    acting: Any
    observations: RunningStatistics | None
    observation_clip: jax.Array | None

    def see(self, obs: Any) -> Any:
        """Observations normalised for the network."""
        return normalise(self.observations, obs, self.observation_clip)


class OffPolicyState(NamedTuple):
    """State of one run between iterations.

    Attributes:
      learner: Parameters, target parameters and optimiser state; their type depends on the algorithm.
      observations: Running statistics of observations, None without normalisation.
      carry: States of the environments between two rollouts, leaves `[num_envs, ...]`.
      buffer: Transitions, leaves `[capacity, num_envs, ...]`.
      priorities: Priorities of the transitions, None with uniform replay.
    """

    learner: Any
    observations: RunningStatistics | None
    carry: Carry
    buffer: Transition
    priorities: Priorities | None


class Method(NamedTuple):
    """Functions in which off-policy algorithms differ.

    Attributes:
      actor: Actor for policies of type `OffPolicyPolicy`.
      init: Function `(key, hparams) -> learner`.
      scheduled: Function `(learner, hparams, env_steps) -> learner`, called once at the beginning of each iteration.
      acting: Function `(learner, hparams) -> acting`, the value of `OffPolicyPolicy.acting`.
      warming: Actor of the random actions of the warm-up, with memories of the same structure as those of `actor`.
      learn: Function `(key, learner, window, weight, hparams, count) -> (learner, error [B], metrics)` of one gradient
        step after `count` previous ones, int32 `[]`, shared by the runs; `weight` `[B, *A]`; observations of `window`
        are normalised.
    """

    actor: Actor
    init: Callable[[jax.Array, Any], Any]
    scheduled: Callable[[Any, Any, jax.Array], Any]
    acting: Callable[[Any, Any], Any]
    warming: Actor
    learn: Callable[[jax.Array, Any, Window, jax.Array, Any, jax.Array], tuple[Any, jax.Array, Metrics]]


def off_policy_functions(
    env: Environment,
    config: OffPolicyConfig,
    agents: tuple[int, ...],
    prepare: Callable[[Any], Any],
    method: Method,
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Functions `init`, `step` and `policy` of an algorithm that learns from a replay buffer.

    Args:
      env: Environment of one agent, or a crowd.
      config: Configuration.
      agents: Shape of the axes of agents.
      prepare: Function `(hparams) -> hparams`, as `Algorithm.prepare`.
      method: Functions of the algorithm.
    """
    obs_shape, with_mask = observation_shapes(env, agents), has_mask(env)
    check_normalised(config.normalise_observation, obs_shape)
    num_envs, capacity, warm_slots = config.num_envs, config.capacity, config.warm_up // config.num_envs

    def policy_of(state: OffPolicyState, hparams: Any) -> OffPolicyPolicy:
        return policy_from(method.acting(state.learner, hparams), state.observations, hparams)

    def policy_from(acting: Any, observations: RunningStatistics | None, hparams: Any) -> OffPolicyPolicy:
        clip = jax.tree.map(jnp.float32, hparams.observation_clip) if config.normalise_observation else None
        return OffPolicyPolicy(acting, observations, clip)

    def collect(
        key: jax.Array, actor: Actor, policy: OffPolicyPolicy, carry: Carry, env_params: Any, num_steps: int
    ) -> tuple[Carry, Transition, jax.Array]:
        noise_key, env_key = jax.random.split(key)
        noise = actor.noise(rolled(noise_key), (num_steps, num_envs, *agents))
        # A warm-up is as long as several iterations.
        pool = None if config.reset_pool is None else config.reset_pool * num_steps // config.num_steps
        return rollout(env, env_params, actor, policy, env_key, carry, noise, pool, with_next_mask=with_mask)

    def seen(observations: RunningStatistics | None, steps: Transition) -> RunningStatistics | None:
        if observations is None:
            return None
        return update_statistics(observations, steps.obs, steps.active.astype(jnp.float32))

    def init(key: jax.Array, hparams: Any, env_params: Any) -> OffPolicyState:
        hparams = prepare(hparams)
        learner_key, reset_key, collect_key = jax.random.split(unrolled(key), 3)
        learner = method.init(learner_key, hparams)
        observations = init_statistics(obs_shape) if config.normalise_observation else None
        policy = policy_from(method.acting(learner, hparams), observations, hparams)
        carry = reset_all(env, reset_key, env_params, num_envs, memory=memories(method.actor.start(policy), agents))
        carry, steps, _ = collect(collect_key, method.warming, policy, carry, env_params, warm_slots)
        buffer = write(init_buffer(steps, capacity), steps, jnp.int32(0))
        priorities = None
        if config.replay == "prioritised":
            priorities = write_priorities(init_priorities(config.buffer_size), jnp.int32(0), config.warm_up)
        return OffPolicyState(learner, seen(observations, steps), carry, buffer, priorities)

    def drawn(key: jax.Array, priorities: Priorities | None, ring: Ring, hparams: Any) -> tuple[Rows, jax.Array | None]:
        if priorities is None:
            return uniform_rows(key, ring.filled, num_envs, config.batch_size), None
        beta = jnp.float32(hparams.priority_beta)
        return prioritised_rows(key, priorities, ring.filled, num_envs, config.batch_size, beta)

    def step(
        key: jax.Array, iteration: jax.Array, state: OffPolicyState, hparams: Any, env_params: Any
    ) -> tuple[OffPolicyState, Metrics]:
        chex.assert_rank(iteration, 0, custom_message="iteration")
        hparams = prepare(hparams)
        env_steps = jnp.float32(config.steps_per_iteration) * iteration
        learner = method.scheduled(state.learner, hparams, env_steps)
        collect_key, learn_key = jax.random.split(unrolled(key))
        policy = policy_from(method.acting(learner, hparams), state.observations, hparams)
        carry, steps, reused = collect(collect_key, method.actor, policy, state.carry, env_params, config.num_steps)
        before = Ring.at(iteration, warm_slots, config.num_steps, capacity)
        ring = before.after(config.num_steps, capacity)
        buffer = write(state.buffer, steps, before.end)
        priorities = state.priorities
        if priorities is not None:
            priorities = write_priorities(priorities, before.end * num_envs, config.steps_per_iteration)
        observations = seen(state.observations, steps)
        see = policy_from(None, observations, hparams).see
        newest = (ring.end - 1) % capacity

        def update(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, Metrics]:
            learner, priorities = carry
            key, number = inputs
            draw_key, key = jax.random.split(key)
            rows, index = drawn(draw_key, priorities, ring, hparams)
            batch = window(buffer, rows, newest, config.n_step)
            batch = batch._replace(obs=see(batch.obs), next_obs=see(batch.next_obs))
            active = batch.active.astype(jnp.float32)
            weight = active * rows.weight.reshape(-1, *[1] * len(agents))
            learner, error, metrics = method.learn(key, learner, batch, weight, hparams, number)
            if priorities is not None and index is not None:
                priority = (jnp.abs(error) + _LEAST_ERROR) ** hparams.priority_alpha
                priorities = update_priorities(priorities, index, priority)
            return (learner, priorities), metrics

        count = iteration * config.num_updates + jnp.arange(config.num_updates, dtype=jnp.int32)
        keys = jax.random.split(learn_key, config.num_updates)
        (learner, priorities), metrics = jax.lax.scan(update, (learner, priorities), (keys, count))
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["reset_reuse"] = reused.astype(jnp.float32)
        return OffPolicyState(learner, observations, carry, buffer, priorities), metrics

    return init, step, policy_of
