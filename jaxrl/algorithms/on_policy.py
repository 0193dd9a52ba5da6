"""Common parts of on-policy algorithms: networks, acting, collecting, advantages, normalisation and schedules."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from envs.base import Environment
from envs.checking import check_abstractly
from envs.errors import UserTypeError, UserValueError
from envs.threefry import rolled, unrolled
from jaxrl.algorithms.annealing import annealed_over, stopped
from jaxrl.algorithms.arguments import check_num_rows
from jaxrl.algorithms.contract import Algorithm, Metrics, Sharded, longest_episode
from jaxrl.algorithms.observations import leading_axes, zeros
from jaxrl.algorithms.on_policy_network import choose_network, shapes_of
from jaxrl.algorithms.on_policy_parts import Learn, Learner, Parts, Samples, Start
from jaxrl.checks import effective
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.actor import Memory, Scores, head_actor, memories, recurrent_actor
from jaxrl.learning.beliefs import belief_about, believing_head
from jaxrl.learning.critics import mixture_critic, single_critic
from jaxrl.learning.losses import explained_variance
from jaxrl.learning.networks import Module, apply_over
from jaxrl.learning.normalisation import (
    RewardScale,
    RunningStatistics,
    init_reward_scale,
    init_statistics,
    normalise,
    scale_rewards,
    update_statistics,
)
from jaxrl.learning.optimisers import adam
from jaxrl.learning.recurrent import is_recurrent, step_over, unroll_over
from jaxrl.learning.rollout import Carry, Transition, episode_ends, reset_all, rollout, value_ends
from jaxrl.learning.schedules import linear_share
from jaxrl.learning.shards import EnvShards, own, summed

__all__ = ["OnPolicyPolicy", "OnPolicyState", "on_policy"]


class OnPolicyPolicy(NamedTuple):
    """Policy of an on-policy algorithm.

    Attributes:
      params: Parameters of the network.
      log_std: Log standard deviations of continuous actions, float32 `[num_outputs]`, otherwise None.
      observations: Running statistics of observations, None without normalisation.
      observation_clip: Bound of normalised observations, float32 `[]`, None without normalisation.
      global_observations: Running statistics of global observations, which the critic takes; None without them or
        without normalisation.
    """

    params: Any
    log_std: jax.Array | None
    observations: RunningStatistics | None
    observation_clip: jax.Array | None
    global_observations: RunningStatistics | None = None


class OnPolicyState(NamedTuple):
    """State of one run between iterations.

    Attributes:
      weights: Parameters of the network, and log standard deviations or None.
      observations: Running statistics of observations, None without normalisation.
      optimiser: State of the optimiser.
      carry: Environments.
      rewards: Running statistics of the exponentially discounted sum of rewards, and that sum
        `[num_envs, *A]`; None without normalisation.
      own: Additional state of the algorithm, `Learner.own`; None for most.
      start: Steps from which the memories at the start of the next rollout are recomputed, () without `burn_in`.
      global_observations: Running statistics of global observations; None without them or without normalisation.
    """

    weights: tuple[Any, jax.Array | None]
    observations: RunningStatistics | None
    optimiser: optax.OptState
    carry: Carry
    rewards: RewardScale | None
    own: Any = None
    start: Any = ()
    global_observations: RunningStatistics | None = None


def on_policy(
    name: str,
    env: Environment,
    config: Any,
    hparams: type,
    make_learn: Callable[[Parts], Learn],
    *,
    network: Module | None = None,
    builder: str | None = None,
    init_own: Callable[[Any], Any] | None = None,
    whole_episodes: bool = False,
    without: tuple[str, ...] = (),
    keeps_scores: bool = False,
    believes: bool = False,
) -> Algorithm:
    """Algorithm that collects a rollout, evaluates it, learns from it and discards it.

    Args:
      name: Name of the algorithm.
      env: Environment of one agent or a crowd.
      config: Configuration, an `OnPolicyConfig`.
      hparams: Class of the hyper-parameters, a subclass of `OnPolicyHParams`.
      make_learn: Function `(parts) -> learn`, where `learn(key, learner, samples, hparams, lr)` returns the updated
        learner and metrics. It should be a module-level function, so that equal algorithms share compiled programs.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`.
      builder: Path of the builder, see `Algorithm`.
      init_own: Module-level function `(hparams) -> Learner.own` of the initial state; None for an algorithm without it.
      whole_episodes: Whether samples whose episode does not end within the rollout get a weight of 0.
      without: Names of hyper-parameters that have no effect on this algorithm; lambda is 1 if "lam" is one of them.
      keeps_scores: Whether samples contain the scores of the policy that acted.
      believes: Whether the network has a belief about the environment's behaviour, see `learning.beliefs`; samples then
        contain the behaviour.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: The network, or a field of the configuration, does not fit the environment.
    """
    agents = check_abstractly(env)
    try:
        hash(network)
    except TypeError:
        raise UserTypeError("network must be hashable; use tuples instead of lists in its fields") from None
    differences = (init_own, whole_episodes, without, keeps_scores, believes)
    return _build(name, env, config, hparams, make_learn, network, builder, *differences, agents)


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(
    name: str,
    env: Environment,
    config: Any,
    hparams_type: Any,
    make_learn: Callable[[Parts], Learn],
    own_network: Module | None,
    builder: str | None,
    init_own: Callable[[Any], Any] | None,
    whole_episodes: bool,
    without: tuple[str, ...],
    keeps_scores: bool,
    believes: bool,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
) -> Algorithm:
    params = env.default_params
    head = action_head(env.action_space(params))
    critic = mixture_critic(config.critic_heads) if config.critic == "mixture" else single_critic()
    obs_shape, global_shape = shapes_of(env, config, agents)
    belief = belief_about(env, agents) if believes else None
    shapes = (obs_shape, global_shape, head.num_outputs, critic.num_values)
    network = choose_network(config, own_network, *shapes, belief)
    head = head if belief is None else believing_head(head, belief)
    centralised, remembers = global_shape is not None, is_recurrent(network)
    if config.burn_in and not remembers:
        raise UserValueError(f"burn_in has no effect on a policy that does not remember, got {config.burn_in}")
    episode_length = longest_episode(env)
    num_envs = config.num_envs if shards is None else shards.part_of(config.num_envs)
    batch_axes = 1 + len(agents)
    num_rows = num_envs * config.num_steps * math.prod(agents)
    check_num_rows(num_rows)
    parts = Parts(config, head, critic, network, num_envs, num_rows, shards, agents, belief)
    learn = make_learn(parts)
    effects = {  # hyper-parameters without effect on some environments and configurations
        "log_std_init": head.continuous,
        "observation_clip": config.normalise_observation,
        "reward_clip": config.normalise_reward,
        **dict.fromkeys(without, False),
    }

    def prepare(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
        changes = {
            name: effective(name, getattr(hparams, name), hparams_type.__dataclass_fields__[name].default, on)
            for name, on in effects.items()
        }
        if run_length is not None:
            changes["anneal_env_steps"] = annealed_over(hparams, run_length)
        discount = critic.prepare(hparams.discount, config.num_steps, num_settings, episode_length)
        return dataclasses.replace(hparams, discount=discount, **changes)

    def policy_of(state: OnPolicyState, hparams: Any) -> OnPolicyPolicy:
        clip = jax.tree.map(jnp.float32, hparams.observation_clip) if config.normalise_observation else None
        return OnPolicyPolicy(*state.weights, state.observations, clip, state.global_observations)

    def see(policy: OnPolicyPolicy, obs: Any) -> Any:
        return normalise(policy.observations, obs, policy.observation_clip)

    def see_globally(policy: OnPolicyPolicy, global_obs: Any) -> Any:
        return normalise(policy.global_observations, global_obs, policy.observation_clip)

    def scores(policy: OnPolicyPolicy, obs: Any, mask: Any) -> Scores:
        del mask
        outputs, _ = apply_over(network, policy.params, see(policy, obs), leading_axes(obs, obs_shape))
        return head.scores(outputs, policy.log_std)

    def first_memory(policy: Any = None) -> Memory:
        del policy
        return jax.tree.map(jnp.asarray, network.start()) if remembers else ()

    def scores_and_memory(policy: OnPolicyPolicy, memory: Memory, obs: Any, mask: Any) -> tuple[Scores, Memory]:
        del mask
        outputs, _, memory = step_over(network, policy.params, see(policy, obs), memory, leading_axes(obs, obs_shape))
        return head.scores(outputs, policy.log_std), memory

    actor = recurrent_actor(first_memory, scores_and_memory, head) if remembers else head_actor(scores, head)

    def init(key: jax.Array, hparams: Any, env_params: Any) -> OnPolicyState:
        hparams = prepare(hparams)
        network_key, reset_key = jax.random.split(unrolled(key))
        example, global_example = zeros((obs_shape, global_shape))
        others = [first_memory()] if remembers else [global_example] if centralised else []
        log_std = jnp.full(head.num_outputs, hparams.log_std_init, jnp.float32) if head.continuous else None
        weights: Any = (network.init(network_key, example, *others), log_std)
        memory = memories(first_memory(), agents)
        carry = reset_all(env, reset_key, env_params, config.num_envs, shards, memory)
        return OnPolicyState(
            weights=weights,
            observations=init_statistics(obs_shape) if config.normalise_observation else None,
            optimiser=adam(hparams, hparams.lr).init(weights),
            carry=carry,
            rewards=init_reward_scale((num_envs, *agents)) if config.normalise_reward else None,
            own=None if init_own is None else init_own(hparams),
            start=_nothing_before(carry, config.burn_in, agents) if config.burn_in else (),
            global_observations=init_statistics(global_shape) if config.normalise_observation and centralised else None,
        )

    def collect(key: jax.Array, policy: OnPolicyPolicy, carry: Carry, env_params: Any) -> tuple[Carry, Any, jax.Array]:
        noise_key, env_key = jax.random.split(key)
        shape = (config.num_steps, config.num_envs, *agents)
        noise = own(actor.noise(rolled(noise_key), shape), shards, axis=1)
        pool = config.reset_pool
        requests = {"with_global_obs": centralised, "with_behaviour": believes}
        return rollout(env, env_params, actor, policy, env_key, carry, noise, pool, shards, **requests)

    def samples_of(
        policy: OnPolicyPolicy, state: OnPolicyState, steps: Transition, reward: jax.Array, hparams: Any
    ) -> tuple[Samples, Any]:
        # Values and log-probabilities are computed for the whole rollout at once, not step by step.
        obs, next_obs = see(policy, steps.obs), see(policy, steps.next_obs)
        global_obs, next_global_obs = (see_globally(policy, each) for each in (steps.global_obs, steps.next_global_obs))
        reset, start, before = None, (), ()
        if remembers:
            memory, done = state.carry.memory, episode_ends(steps)
            # The rollout has reset memories that ended with its last step; recomputed memories need the flag again.
            first = state.start.reset[:, -1] if config.burn_in else jnp.zeros_like(done[0])
            reset = jnp.concatenate([first[None], done[:-1]])
            outputs, value, after = unroll_over(network, policy.params, obs, memory, reset)
            # At a truncation, too, the value is computed from the memory of the whole episode.
            _, next_value, _ = step_over(network, policy.params, next_obs, after, 1 + batch_axes)
            start = Start(memory)
            if config.burn_in:
                start = Start(state.start.memory, see(policy, state.start.obs), state.start.reset[:, :-1])
                before = _last_steps(config.burn_in, memory, after, steps.obs, reset, done)
        else:
            outputs, value = parts.evaluate(policy.params, obs, global_obs, 1 + batch_axes)
            _, next_value = parts.evaluate(policy.params, next_obs, next_global_obs, 1 + batch_axes)
        outputs = jax.lax.optimization_barrier(outputs)  # fused with a softmax the network is slow on a CPU
        scores = head.scores(outputs, policy.log_std)
        log_prob = head.log_prob(scores, steps.mask, steps.raw_action)
        done = episode_ends(steps)
        ended = value_ends(steps, config.time_limits)
        lam = 1.0 if hparams.lam is None else hparams.lam
        advantage, target = critic.estimate(hparams.discount, lam, reward, value, next_value, ended, done)
        weight = steps.active.astype(jnp.float32)
        if whole_episodes:
            weight = weight * jax.lax.cummax(done.astype(jnp.float32), axis=0, reverse=True)
        samples = (obs, steps.raw_action, steps.mask, log_prob, value, advantage, target, weight)
        return Samples(*samples, scores if keeps_scores else None, reset, start, global_obs, steps.behaviour), before

    def step(
        key: jax.Array, iteration: jax.Array, state: OnPolicyState, hparams: Any, env_params: Any
    ) -> tuple[OnPolicyState, Metrics]:
        hparams = prepare(hparams)
        policy = policy_of(state, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        carry, steps, reused = collect(collect_key, policy, state.carry, env_params)
        reward, rewards = steps.reward, state.rewards
        if rewards is not None:
            rate = hparams.discount.next_weight(jnp.zeros((), jnp.int32), jnp.ones(()))
            done, clip = episode_ends(steps), hparams.reward_clip
            reward, rewards = scale_rewards(rewards, reward, done, steps.active, rate, clip, shards)
        samples, before = samples_of(policy, state, steps, reward, hparams)
        env_steps = jnp.float32(config.num_envs * config.num_steps) * iteration
        lr = hparams.lr * linear_share(env_steps, hparams.lr_end, hparams.anneal_env_steps)
        hparams = hparams.at(env_steps)
        learner = Learner(state.weights, state.optimiser, state.own)
        (weights, optimiser, own_state), metrics = learn(learn_key, learner, samples, hparams, lr)
        observations = state.observations
        if observations is not None:
            observations = update_statistics(observations, steps.obs, steps.active.astype(jnp.float32), shards)
        global_observations = state.global_observations
        if global_observations is not None:
            present = jnp.any(steps.active, axis=tuple(range(2, steps.active.ndim))).astype(jnp.float32)
            global_observations = update_statistics(global_observations, steps.global_obs, present, shards)
        rows = parts.rows(samples)
        value, target = (critic.whole(hparams.discount, values) for values in (rows.value, rows.target))
        metrics["explained_variance"] = explained_variance(value, target, rows.weight, shards)
        metrics["learning_rate"] = lr
        metrics["reset_reuse"] = summed(reused, shards).astype(jnp.float32)
        after = OnPolicyState(weights, observations, optimiser, carry, rewards, own_state, before, global_observations)
        return after, metrics

    def warm(state: OnPolicyState, policy: OnPolicyPolicy) -> OnPolicyState:
        return state._replace(
            weights=(policy.params, policy.log_std),
            observations=policy.observations,
            global_observations=policy.global_observations,
        )

    def sharded(shards: EnvShards) -> Sharded:
        of_rewards: Any = (False, True) if config.normalise_reward else None
        of_each_env: Any = (False, False, False, True, of_rewards, None if init_own is None else False, True, False)
        arguments = (name, env, config, hparams_type, make_learn, own_network, builder)
        arguments += (init_own, whole_episodes, without, keeps_scores, believes, agents)
        return Sharded(_build(*arguments, shards), OnPolicyState(*of_each_env))

    return Algorithm(
        name=name,
        env=env,
        config=config,
        hparams=hparams_type(**{name: None for name, on in effects.items() if not on}),
        init=init,
        step=step,
        policy=policy_of,
        actor=actor,
        env_steps_per_iteration=config.num_envs * config.num_steps,
        prepare=prepare,
        discount=lambda hparams: hparams.discount,
        stopped=stopped,
        network=own_network,
        builder=builder,
        warm=warm,
        sharded=sharded,
    )


def _nothing_before(carry: Carry, burn_in: int, agents: tuple[int, ...]) -> Start:
    """Start of the first rollout, before there are any steps: memories at the start of an episode."""
    num_envs = jax.tree.leaves(carry.obs)[0].shape[0]
    obs = jax.tree.map(lambda leaf: jnp.zeros((num_envs, burn_in, *leaf.shape[1:]), leaf.dtype), carry.obs)
    return Start(carry.memory, obs, jnp.ones((num_envs, burn_in + 1, *agents), bool))


def _last_steps(burn_in: int, memory: Memory, after: Memory, obs: Any, reset: jax.Array, done: jax.Array) -> Start:
    """Last steps of a rollout, the memories before them, and whether an episode begins with the next rollout.

    Args:
      burn_in: Number of steps.
      memory: Memories at the start of the rollout, leaves `[N, *A, ...]`.
      after: Memories after each step, leaves `[T, N, *A, ...]`.
      obs: Observations, leaves `[T, N, *A, ...]`.
      reset, done: Whether an episode begins, or ends, with each step, bool `[T, N, *A]`.
    """
    if burn_in < done.shape[0]:
        memory = jax.tree.map(lambda leaf: leaf[-burn_in - 1], after)
    flags = jnp.concatenate([reset[-burn_in:], done[-1:]])
    obs, flags = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), (jax.tree.map(lambda x: x[-burn_in:], obs), flags))
    return Start(memory, obs, flags)
