"""Toolbox of on-policy algorithms: an algorithm collects, evaluates and learns in its own `step`, by these tools."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from envs.base import Environment
from envs.checking import check_abstractly
from envs.errors import UserValueError
from envs.loops import in_parts
from envs.threefry import rolled, unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, Sharded, assembled, checked_network
from jaxrl.algorithms.on_policy_config import choose_network
from jaxrl.algorithms.on_policy_state import (
    Evaluation,
    Learner,
    OnPolicyPolicy,
    OnPolicyState,
    Rollout,
    Samples,
    Start,
    last_steps,
    nothing_before,
)
from jaxrl.algorithms.rollout_config import check_not_choices_alone, check_num_rows, prepared, stopped
from jaxrl.learning.action_heads import ActionHead, action_head
from jaxrl.learning.actor import Actor, Memory, Scores, head_actor, memories, recurrent_actor
from jaxrl.learning.asymmetric import (
    CentralisedActorCritic,
    Seen,
    View,
    apply_centralised,
    critic_shapes,
    facts_of,
    is_asymmetric,
    seen_by,
)
from jaxrl.learning.beliefs import Belief, believing_head
from jaxrl.learning.critics import Critic, mixture_critic, single_critic
from jaxrl.learning.levels import draw_levels, init_levels, mean_score, scored
from jaxrl.learning.losses import explained_variance
from jaxrl.learning.minibatches import row_minibatches, sequence_minibatches
from jaxrl.learning.networks import Module, apply_over, leading_axes, observation_shapes, zeros
from jaxrl.learning.normalisation import (
    init_reward_scale,
    init_statistics,
    scale_rewards,
    update_statistics,
)
from jaxrl.learning.optimisers import LEARNED, LearnedOptimiser, check_transformation, transformation
from jaxrl.learning.recurrent import first_memory, is_recurrent, step_over, unroll_over
from jaxrl.learning.rollout import (
    default_reset_pool,
    episode_ends,
    first_keys,
    longest_episode,
    reset_all,
    rollout,
    value_ends,
)
from jaxrl.learning.shards import EnvShards, averaged, own, summed
from jaxrl.pytrees import EnvParams, HParams, Mask, Observation, Params, Policy, PyTree

# Most observations, and most numbers in them, to which an accelerator applies a network at a time after a rollout,
# because the layers take memory.
MOST_OBSERVATIONS, MOST_NUMBERS = 512, 2**16

__all__ = ["OnPolicy", "agents_of", "on_policy"]


class OnPolicy(NamedTuple):
    """Tools of an algorithm on one environment with one configuration; every function is pure.

    Attributes:
      env: Environment of one agent or a crowd.
      config: Configuration, an `OnPolicyConfig`.
      head: Action head of the environment's action space.
      critic: Functions of the network's values.
      network: Network, which may be recurrent, see `jaxrl.learning.recurrent`.
      actor: Actor of the policy.
      obs_shape: Shapes of one agent's observation.
      critic_shape: Shapes of what only the critic sees, None if it sees nothing more.
      view: Kind of the critic's input.
      agents: Axes of the agents, `*A`.
      num_envs: Number of environments of one shard.
      num_rows: Number of samples of one iteration of one shard, over steps, environments and agents.
      episode_length: Time limit of episodes, in steps.
      shards: Shards of the environments, if any.
      belief: Belief of the network about a behaviour, if any.
    """

    env: Environment
    config: Any
    head: ActionHead
    critic: Critic
    network: Module
    actor: Actor
    obs_shape: Any
    critic_shape: Any
    view: View
    agents: tuple[int, ...]
    num_envs: int
    num_rows: int
    episode_length: int
    shards: EnvShards | None = None
    belief: Belief | None = None

    @property
    def centralised(self) -> bool:
        """Whether the critic takes global observations, so that minibatches are steps with all agents."""
        return isinstance(self.network, CentralisedActorCritic)

    @property
    def asymmetric(self) -> bool:
        """Whether the critic takes privileged facts of each agent, so that the network takes `Seen`."""
        return is_asymmetric(self.network)

    @property
    def remembers(self) -> bool:
        """Whether the network is recurrent, so that minibatches are sequences."""
        return is_recurrent(self.network)

    @property
    def learns_levels(self) -> bool:
        """Whether levels are played again by their scores."""
        return self.config.levels != "draws"

    @property
    def optimiser_width(self) -> int | None:
        """Number of hidden units of a learned optimiser; None where it is not learned."""
        return self.config.optimiser_width if self.config.optimiser == LEARNED else None

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return {"log_std_init": self.head.continuous} | self.config.effects

    # Before the first iteration.

    def prepare(self, hparams: HParams, num_settings: int | None = None, run_length: int | None = None) -> HParams:
        """Hyper-parameters with a resolved discount and without ineffective ones, for `Algorithm.prepare`."""
        num_steps, episode_length = self.config.num_steps, self.episode_length
        without = "an optimiser that is not learned"
        optimiser = LearnedOptimiser.effective(hparams.optimiser, self.optimiser_width, without, num_settings)
        hparams = dataclasses.replace(hparams, optimiser=optimiser)
        discount = self.critic.prepare(hparams.discount, num_steps, num_settings, episode_length)
        return prepared(hparams, self.effects, discount, num_settings, run_length)

    def init(self, key: jax.Array, hparams: HParams, env_params: EnvParams) -> OnPolicyState:
        """Initial state of a run, for `Algorithm.init`."""
        hparams = self.current(jnp.int32(0), self.prepare(hparams))
        network_key, reset_key = jax.random.split(unrolled(key))
        example, critic_example = zeros((self.obs_shape, self.critic_shape))
        example = Seen(example, critic_example) if self.asymmetric else example
        start = first_memory(self.network)
        others = [start] if self.remembers else [critic_example] if self.centralised else []
        log_std = jnp.full(self.head.num_outputs, hparams.log_std_init, jnp.float32) if self.head.continuous else None
        weights: Any = (self.network.init(network_key, example, *others), log_std)
        memory = memories(start, self.agents)
        carry = reset_all(self.env, reset_key, env_params, self.config.num_envs, self.shards, memory)
        normalised, burn_in = self.config.normalise_observation, self.config.burn_in
        scaled = self.config.normalise_reward
        return OnPolicyState(
            weights=weights,
            observations=init_statistics(self.obs_shape) if normalised else None,
            optimiser=self.transformation(hparams).init(weights),
            carry=carry,
            rewards=init_reward_scale((self.num_envs, *self.agents)) if scaled else None,
            start=nothing_before(carry, burn_in, self.agents) if burn_in else (),
            critic_observations=init_statistics(self.critic_shape) if normalised and self.view != "own" else None,
            levels=init_levels(self.config.num_levels, first_keys(reset_key, self.num_envs), self.agents)
            if self.learns_levels
            else None,
        )

    # An iteration, in the order in which an algorithm's step calls them.

    def current(self, iteration: jax.Array, hparams: HParams) -> Any:
        """Prepared hyper-parameters with values in place of curves; `scheduled` has the other schedules as well."""
        return hparams.with_curves_at(self._env_steps(iteration)) if hparams.curved else hparams

    def policy(self, state: OnPolicyState, hparams: HParams) -> OnPolicyPolicy:
        """Policy that acts, for `Algorithm.policy`."""
        clip = jax.tree.map(jnp.float32, hparams.observation_clip) if self.config.normalise_observation else None
        return OnPolicyPolicy(*state.weights, state.observations, clip, state.critic_observations)

    def collect(
        self, key: jax.Array, policy: OnPolicyPolicy, state: OnPolicyState, hparams: HParams, env_params: EnvParams
    ) -> Rollout:
        """Steps of the policy in all environments, with rewards normalised if configured."""
        noise_key, env_key = jax.random.split(key)
        shape = (self.config.num_steps, self.config.num_envs, *self.agents)
        noise = own(self.actor.noise(rolled(noise_key), shape), self.shards, axis=1)
        levels = None
        if state.levels is not None:
            pool_size = self.config.reset_pool or default_reset_pool(self.config.num_steps, self.episode_length)
            chances = hparams.level_replay, hparams.level_temperature, hparams.level_staleness
            levels = draw_levels(state.levels, env_key, pool_size, *chances)
        carry, steps, reused = rollout(
            self.env,
            env_params,
            self.actor,
            policy,
            env_key,
            state.carry,
            noise,
            self.config.reset_pool,
            self.shards,
            critic_sees=facts_of(self.env, self.view),
            with_behaviour=self.belief is not None,
            reset_keys=None if levels is None else levels.keys,
        )
        reward, rewards = steps.reward, state.rewards
        if rewards is not None:
            rate = hparams.discount.next_weight(jnp.zeros((), jnp.int32), jnp.ones(()))
            done, clip = episode_ends(steps), hparams.reward_clip
            reward, rewards = scale_rewards(rewards, reward, done, steps.active, rate, clip, self.shards)
        return Rollout(carry, steps, reward, rewards, reused, levels)

    def evaluate(
        self, policy: OnPolicyPolicy, state: OnPolicyState, rolled_out: Rollout, hparams: HParams
    ) -> Evaluation:
        """Log-probabilities, values, advantages and targets of a rollout, before anything is learned from it.

        The network is applied to the whole rollout at once, not step by step.
        """
        steps = rolled_out.steps
        num_axes = 2 + len(self.agents)
        obs, next_obs = policy.normalised(steps.obs), policy.normalised(steps.next_obs)
        critic_obs, next_critic_obs = (
            policy.normalised_critic(each) for each in (steps.critic_obs, steps.next_critic_obs)
        )
        if self.asymmetric:
            obs, next_obs = Seen(obs, critic_obs), Seen(next_obs, next_critic_obs)
            critic_obs = next_critic_obs = None
        reset, start, next_start = None, (), ()
        if self.remembers:
            memory, done = state.carry.memory, episode_ends(steps)
            # The rollout has reset memories that ended with its last step; recomputed memories need the flag again.
            burn_in = self.config.burn_in
            first = state.start.reset[:, -1] if burn_in else jnp.zeros_like(done[0])
            reset = jnp.concatenate([first[None], done[:-1]])
            outputs, value, after = unroll_over(self.network, policy.params, obs, memory, reset)
            # At a truncation, too, the value is computed from the memory of the whole episode.
            _, next_value, _ = step_over(self.network, policy.params, next_obs, after, num_axes)
            start = Start(memory)
            if burn_in:
                earlier = policy.normalised(state.start.obs)
                earlier = Seen(earlier) if self.asymmetric else earlier
                start = Start(state.start.memory, earlier, state.start.reset[:, :-1])
                next_start = last_steps(burn_in, memory, after, steps.obs, reset, done)
        else:

            def applied(obs: Observation) -> tuple[jax.Array, jax.Array]:
                return self.apply(policy.params, obs[0], obs[1], num_axes)

            num_steps, of_step = steps.reward.shape[0], steps.reward.size // steps.reward.shape[0]
            numbers = sum(leaf.size for leaf in jax.tree.leaves((obs, critic_obs))) // num_steps
            most = min(MOST_OBSERVATIONS // of_step, MOST_NUMBERS // max(numbers, 1))
            outputs, value = in_parts(applied, (obs, critic_obs), most)
            _, next_value = in_parts(applied, (next_obs, next_critic_obs), most)
        outputs = jax.lax.optimization_barrier(outputs)  # fused with a softmax the network is slow on a CPU
        scores = self.head.scores(outputs, policy.log_std)
        log_prob = self.head.log_prob(scores, steps.mask, steps.raw_action)
        done = episode_ends(steps)
        ended = value_ends(steps, self.config.time_limits)
        lam = 1.0 if hparams.lam is None else hparams.lam
        reward = rolled_out.reward
        advantage, target = self.critic.estimate(hparams.discount, lam, reward, value, next_value, ended, done)
        weight = steps.active.astype(jnp.float32)
        samples = (obs, steps.raw_action, steps.mask, log_prob, value, advantage, target, weight)
        samples = Samples(*samples, None, reset, start, critic_obs, steps.behaviour)
        return Evaluation(samples, scores, next_start)

    def scheduled(self, iteration: jax.Array, hparams: HParams) -> Any:
        """Hyper-parameters of an iteration."""
        return hparams.at(self._env_steps(iteration))

    def _env_steps(self, iteration: jax.Array) -> jax.Array:
        """Number of environment steps before an iteration, float32 `[]`."""
        return jnp.float32(self.config.steps_per_iteration) * iteration

    def finish(
        self,
        state: OnPolicyState,
        learner: Learner,
        rolled_out: Rollout,
        evaluation: Evaluation,
        metrics: Metrics,
        hparams: HParams,
    ) -> tuple[OnPolicyState, Metrics]:
        """State after an iteration, with updated statistics, and its metrics with those of all algorithms."""
        steps = rolled_out.steps
        observations = state.observations
        if observations is not None:
            observations = update_statistics(observations, steps.obs, steps.active.astype(jnp.float32), self.shards)
        critic_observations = state.critic_observations
        if critic_observations is not None:
            if self.asymmetric:
                present = steps.active.astype(jnp.float32)
            else:
                present = jnp.any(steps.active, axis=tuple(range(2, steps.active.ndim))).astype(jnp.float32)
            critic_observations = update_statistics(critic_observations, steps.critic_obs, present, self.shards)
        rows = self.rows(evaluation.samples)
        value, target = (self.critic.whole(hparams.discount, values) for values in (rows.value, rows.target))
        metrics = metrics | {
            "explained_variance": explained_variance(value, target, rows.weight, self.shards),
            "learning_rate": hparams.lr,
            "reset_reuse": summed(rolled_out.reused, self.shards).astype(jnp.float32),
        }
        levels = state.levels
        if levels is not None and rolled_out.levels is not None:
            samples, done = evaluation.samples, steps.terminated | steps.truncated
            value = self.critic.whole(hparams.discount, samples.value)
            played = (done, samples.advantage, value, rolled_out.reward, steps.active)
            levels, replayed = scored(levels, rolled_out.levels, self.config.levels, *played)
            metrics |= {"level_score": mean_score(levels), "replayed_episodes": replayed}
        after = state._replace(
            levels=levels,
            weights=learner.weights,
            observations=observations,
            optimiser=learner.optimiser,
            carry=rolled_out.carry,
            rewards=rolled_out.rewards,
            start=evaluation.next_start,
            critic_observations=critic_observations,
        )
        return after, metrics

    # Learning from samples.

    def transformation(self, hparams: HParams) -> optax.GradientTransformation:
        """Optimiser of the configuration, with the step size of prepared hyper-parameters."""
        return transformation(self.config.optimiser, hparams, hparams.lr)

    def forward(self, params: Params, batch: Samples) -> tuple[jax.Array, jax.Array]:
        """Outputs and values of the network for samples, with the leading axes of `batch.weight`."""
        if not self.remembers:
            return self.apply(params, batch.obs, batch.critic_obs, batch.weight.ndim)
        memory = self.start_memory(params, batch.start)
        return unroll_over(self.network, params, batch.obs, memory, batch.reset)[:2]

    def apply(
        self, params: Params, obs: Observation, critic_obs: Observation, num_axes: int
    ) -> tuple[jax.Array, jax.Array]:
        """Outputs and values of a network without memory for observations with `num_axes` leading axes, `*A` last."""
        if self.centralised:
            return apply_centralised(self.network, params, obs, critic_obs, num_axes, len(self.agents))
        return apply_over(self.network, params, obs, num_axes)

    def start_memory(self, params: Params, start: Start) -> Memory:
        """Memories at the start of a rollout, leaves `[envs, *A, ...]`, without gradient."""
        if start.obs is None:
            return start.memory
        obs, reset = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), (start.obs, start.reset))
        after = unroll_over(self.network, params, obs, start.memory, reset)[2]
        return jax.lax.stop_gradient(jax.tree.map(lambda leaf: leaf[-1], after))

    def check_minibatches(self, num_minibatches: int) -> None:
        """Reject minibatches that do not divide the samples of an iteration, or its sequences."""
        if self.remembers and self.num_envs % num_minibatches:
            raise UserValueError(
                f"num_minibatches must divide the {self.num_envs} environments (num_envs"
                f"{'' if self.shards is None else ' / devices'}) of a policy that remembers, which learns from whole "
                f"sequences, got {num_minibatches}"
            )
        num_steps = self.num_rows // math.prod(self.agents)
        if self.centralised and num_steps % num_minibatches:
            raise UserValueError(
                f"num_minibatches must divide the {num_steps} steps of an iteration (num_envs * num_steps"
                f"{'' if self.shards is None else ' / devices'}) with critic_sees='global', whose minibatches have all "
                f"agents of a step, got {num_minibatches}"
            )
        if self.num_rows % num_minibatches:
            raise UserValueError(
                f"num_minibatches must divide the {self.num_rows} samples of an iteration "
                f"(num_envs * num_steps * agents{'' if self.shards is None else ' / devices'}), got {num_minibatches}"
            )
        alone = self.num_rows == num_minibatches and self.shards is None
        if alone and self.config.normalise_advantage == "minibatch":
            raise UserValueError(
                "num_minibatches must leave 2 samples or more in a minibatch, whose advantages are normalised "
                f"(normalise_advantage='minibatch'), got {num_minibatches} for {self.num_rows} samples of an iteration"
            )

    def minibatches(self, key: jax.Array, samples: Samples, num_minibatches: int) -> Samples:
        """Every sample, or sequence, once, in random order; leaves `[num_minibatches, ...]`."""
        if self.remembers:
            start = row_minibatches(key, samples.start, num_minibatches)  # the same key selects the same environments
            sequences = sequence_minibatches(key, samples._replace(start=()), num_minibatches)
            return sequences._replace(start=start)
        return row_minibatches(key, self.rows(samples), num_minibatches)

    def rows(self, samples: Samples) -> Samples:
        """Samples along one axis, `[num_rows, ...]`, or steps `[num_rows / agents, *A, ...]`, without memories."""
        axes, count, alone = samples.weight.ndim, self.num_rows, samples._replace(start=())
        if self.centralised:
            axes, count = axes - len(self.agents), count // math.prod(self.agents)
        return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[axes:]), alone)

    def descent(
        self, loss: Callable[..., tuple[jax.Array, Metrics]], hparams: HParams
    ) -> Callable[[Learner, Any], tuple[Learner, Metrics]]:
        """Function that makes a step of the optimiser on a minibatch.

        Args:
          loss: Function `(weights, minibatch, hparams) -> (loss [], metrics)`; the minibatch has weights of samples
            `.weight`.
          hparams: Hyper-parameters, prepared.

        Returns:
          Function `(learner, minibatch) -> (learner, metrics)`; the metrics include `grad_norm`.
        """
        descent = self.transformation(hparams)

        def one_minibatch(learner: Learner, minibatch: PyTree) -> tuple[Learner, Metrics]:
            weights = learner.weights
            (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(weights, minibatch, hparams)
            metrics, gradient = averaged((metrics, gradient), minibatch.weight, self.shards)
            metrics["grad_norm"] = jnp.linalg.norm(ravel_pytree(gradient)[0])
            updates, optimiser = descent.update(gradient, learner.optimiser, weights)
            return learner._replace(weights=optax.apply_updates(weights, updates), optimiser=optimiser), metrics

        return one_minibatch

    # The result.

    def value(self, policy: OnPolicyPolicy, memory: Memory, obs: Observation) -> jax.Array:
        """Values of observations `[*B]`, for `Algorithm.value`."""
        num_axes = leading_axes(obs, self.obs_shape)
        if self.remembers:
            return step_over(self.network, policy.params, policy.normalised(obs), memory, num_axes)[1]
        return apply_over(self.network, policy.params, policy.normalised(obs), num_axes)[1]

    def algorithm(
        self,
        builder: str,
        hparams: Callable[..., HParams],
        init: Callable[..., OnPolicyState],
        step: Callable[..., tuple[OnPolicyState, Metrics]],
        part: Callable[[EnvShards], Algorithm],
        network: Module | None,
    ) -> Algorithm:
        """Algorithm of the given functions.

        Args:
          builder: Path `"module:name"` of its builder; the name is that of the algorithm.
          hparams: Class of the hyper-parameters, a subclass of `OnPolicyHParams`.
          init, step: Functions, as in `Algorithm`.
          part: Function that builds the same algorithm on one part of the environments.
          network: Custom network, None for one that the configuration names.
        """

        def warm_start(state: OnPolicyState, policy: OnPolicyPolicy) -> OnPolicyState:
            return state._replace(
                weights=(policy.params, policy.log_std),
                observations=policy.observations,
                critic_observations=policy.critic_observations,
            )

        def sharded(shards: EnvShards) -> Sharded:
            of_rewards: Any = (False, True) if self.config.normalise_reward else None
            of_each_env: Any = (False, False, False, True, of_rewards, False, True, False, False)
            return Sharded(part(shards), OnPolicyState(*of_each_env))

        if self.optimiser_width is not None:
            hparams = functools.partial(hparams, optimiser=LearnedOptimiser.initial(self.optimiser_width))
        return assembled(
            builder,
            self.env,
            self.config,
            hparams,
            self.effects,
            init=init,
            step=step,
            policy=self.policy,
            actor=self.actor,
            env_steps_per_iteration=self.config.steps_per_iteration,
            prepare=self.prepare,
            stopped=stopped,
            network=network,
            warm_start=warm_start,
            sharded=None if self.learns_levels else sharded,  # every part of the environments draws from one buffer
            # Values of a mixture depend on the discount, and those of some critics on what the actor does not see.
            value=None if self.critic.num_values is not None or self.view != "own" else self.value,
        )


def on_policy(
    env: Environment,
    config: Any,
    network: Module | None,
    agents: tuple[int, ...],
    shards: EnvShards | None = None,
    belief: Belief | None = None,
) -> OnPolicy:
    """Toolbox of an algorithm that collects a rollout, evaluates it, learns from it and discards it.

    Args:
      env: Environment of one agent or a crowd.
      config: Configuration, an `OnPolicyConfig`.
      network: Custom network: a hashable flax module that maps one observation to `(outputs, value)`, or a recurrent
        one, see `jaxrl.learning.recurrent`; None for the one that the configuration names.
      agents: Axes of the agents, as by `agents_of`.
      shards: Shards of the environments; None for all on one device.
      belief: Belief of the network about the environment's behaviour, which samples then contain; None for none.

    Raises:
      TypeError, ValueError: The network, or a field of the configuration, does not fit the environment.
    """
    check_transformation(config.optimiser)
    head = action_head(env.action_space(env.default_params))
    if config.critic == "mixture":
        critic = mixture_critic(config.critic_heads, config.lam_weights)
    else:
        critic = single_critic(config.lam_weights)
    critic_sees = config.critic_sees
    if critic_sees == "auto" and (network is not None or belief is not None or not config.has_critic):
        critic_sees = "own"
    env, view = seen_by(env, config.actor_sees, critic_sees)
    obs_shape, critic_shape = observation_shapes(env, agents), critic_shapes(env, view, agents)
    check_not_choices_alone(config.normalise_observation and critic_shape is None, obs_shape)
    chosen = choose_network(config, network, obs_shape, critic_shape, view, head.num_outputs, critic.num_values, belief)
    if network is not None and shards is None:
        config.report_unused()
    head = head if belief is None else believing_head(head, belief)
    if config.burn_in and not is_recurrent(chosen):
        raise UserValueError(f"burn_in has no effect on a policy that does not remember, got {config.burn_in}")
    num_envs = config.num_envs if shards is None else shards.part_of(config.num_envs)
    num_rows = num_envs * config.num_steps * math.prod(agents)
    check_num_rows(num_rows)
    if num_rows == 1 and shards is None and config.normalise_advantage == "batch":
        raise UserValueError(
            "normalise_advantage takes 'off' where an iteration has one sample (num_envs * num_steps * agents), whose "
            "normalised advantage is 0, got 'batch'"
        )
    actor = _actor(chosen, head, obs_shape)
    return OnPolicy(
        env,
        config,
        head,
        critic,
        chosen,
        actor,
        obs_shape,
        critic_shape,
        view,
        agents,
        num_envs,
        num_rows,
        longest_episode(env),
        shards,
        belief,
    )


def agents_of(env: Environment, network: Module | None) -> tuple[int, ...]:
    """Axes of the agents of an environment, after checks of the arguments of a builder.

    Raises:
      ContractError: The environment breaks a law.
      TypeError: The custom network is not hashable.
    """
    checked_network(network)
    return check_abstractly(env)


def _actor(network: Module, head: ActionHead, obs_shape: Any) -> Actor:
    """Actor that applies the network to observations as the policy sees them."""

    def seen(policy: OnPolicyPolicy, obs: Observation) -> Any:
        normalised = policy.normalised(obs)
        return Seen(normalised) if is_asymmetric(network) else normalised

    def scores(policy: OnPolicyPolicy, obs: Observation, mask: Mask) -> Scores:
        del mask
        outputs, _ = apply_over(network, policy.params, seen(policy, obs), leading_axes(obs, obs_shape))
        return head.scores(outputs, policy.log_std)

    def scores_and_memory(
        policy: OnPolicyPolicy, memory: Memory, obs: Observation, mask: Mask
    ) -> tuple[Scores, Memory]:
        del mask
        num_axes = leading_axes(obs, obs_shape)
        outputs, _, memory = step_over(network, policy.params, seen(policy, obs), memory, num_axes)
        return head.scores(outputs, policy.log_std), memory

    def initial_memory(policy: Policy = None) -> Memory:
        del policy
        return first_memory(network)

    return (
        recurrent_actor(initial_memory, scores_and_memory, head) if is_recurrent(network) else head_actor(scores, head)
    )
