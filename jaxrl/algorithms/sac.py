"""Soft actor-critic: maximisation of rewards and of the entropy of the policy, of continuous or of discrete actions."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from envs.base import Environment
from envs.checking import check_abstractly
from envs.choices import choice_sizes
from envs.errors import UserValueError
from envs.loops import scan
from envs.threefry import unrolled
from jaxrl.algorithms.actor_critic import (
    ActorCriticConfig,
    ActorCriticHParams,
    actor_critic,
    checked_networks,
    common_space,
)
from jaxrl.algorithms.contract import Algorithm, Metrics, checked_config, with_hints
from jaxrl.algorithms.off_policy import OffPolicyPolicy, OffPolicyState
from jaxrl.algorithms.rollout_config import INFINITE
from jaxrl.algorithms.value_function import Nodes, Target
from jaxrl.checks import Range
from jaxrl.learning.action_heads import sample_squashed
from jaxrl.learning.actor import Memory, Scores, recurrent_actor
from jaxrl.learning.exploration import noisy_actor, persistent_actor, uniform_actor, uniform_discrete_actor
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.optimisers import ADAM_HPARAMS, adam, transformation
from jaxrl.learning.output_networks import Networks
from jaxrl.learning.q_targets import masked_values, of_branches
from jaxrl.learning.replay import Window
from jaxrl.learning.value_losses import Scale
from jaxrl.pytrees import EnvParams, Mask, Observation, Params, PyTree
from jaxrl.sweeps.distributions import SearchSpace

__all__ = ["Learner", "SACConfig", "SACHParams", "sac"]

_LOG_STD = (-20.0, 2.0)  # bounds of the logarithm of the standard deviation before tanh


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """Static configuration of SAC: changing a field recompiles.

    Attributes:
      automatic_temperature: Whether the temperature adapts to keep the entropy of the policy at its target; otherwise
        it is `temperature`, which falls if `temperature_end` is set.
    """

    automatic_temperature: bool = True

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        if self.n_step != 1:
            raise UserValueError(
                f"n_step takes 1 where values contain the entropy of every step, got {self.n_step}; td3 takes more"
            )

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        own, automatic = ("temperature_lr", "target_entropy_fraction"), self.automatic_temperature
        of_adam = dict.fromkeys(ADAM_HPARAMS, automatic or self.optimiser is None)  # which moves the temperature
        return super().effects | dict.fromkeys(own, automatic) | {"temperature_end": not automatic} | of_adam


@struct.dataclass
class SACHParams(ActorCriticHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      temperature: Reward for one nat of entropy; the initial value of an automatic temperature.
      temperature_end: Final value of a fixed temperature as a fraction of `temperature`, reached linearly over
        `anneal_env_steps`; 1 keeps it constant.
      temperature_lr: Initial step size of Adam for the logarithm of the temperature.
      target_entropy_fraction: Target entropy as a fraction of a reference: for continuous actions scaled to [-1, 1], -1
        nat per component; for discrete actions, the logarithm of the number of allowed actions, summed over several
        choices. None stands for 1 with continuous actions and 0.5 with discrete ones, the number in
        `Algorithm.hparams`.
    """

    temperature: Any = 1.0
    temperature_end: Any = 1.0
    temperature_lr: Any = 1e-3
    target_entropy_fraction: Any = None

    schedules = ActorCriticHParams.schedules | {
        "lr_end": ("lr", "policy_lr", "temperature_lr"),
        "temperature_end": ("temperature",),
    }
    ranges = ActorCriticHParams.ranges | {
        "temperature_end": Range(0, INFINITE, "[)"),
        "temperature": Range(1e-30, INFINITE, "[)"),
        "temperature_lr": Range(0, INFINITE, "[)"),
        "target_entropy_fraction": Range(-INFINITE, INFINITE, "()"),
    }


class Learner(NamedTuple):
    """State of learning of SAC.

    Attributes:
      policy: Parameters of the policy.
      critics: Parameters of the critics, leaves `[num_critics, ...]`.
      targets: Parameters of the target networks of the critics.
      log_temperature: Logarithm of an automatic temperature, float32 `[]`; None for a fixed one.
      optimisers: States of the optimiser for the policy and for the critics, and of Adam for the logarithm of the
        temperature.
    """

    policy: Params
    critics: Params
    targets: Params
    log_temperature: jax.Array | None
    optimisers: tuple[Any, Any, Any]


@with_hints
def sac(env: Environment, config: SACConfig | None = None, network: Networks | None = None) -> Algorithm:
    """Soft actor-critic on an environment with continuous actions, or with discrete ones of one or several choices.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the networks.
      config: Configuration; the defaults if None.
      network: Custom networks, `jaxrl.Networks(actor=..., critic=...)`, of which one suffices; None for those of the
        configuration.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment, or continuous actions are without bounds; before
        anything is compiled.

    Source: Haarnoja et al. (2018), arXiv 1801.01290 and 1812.05905; Christodoulou (2019), arXiv 1910.07207, for
    discrete actions; Tavakoli, Pardo and Kormushev (2018), arXiv 1711.08946, for critics of several
    choices.
    """
    return _build(env, checked_config(config, SACConfig), checked_networks("sac", network), check_abstractly(env))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of SAC."""
    return common_space(algo)


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: SACConfig, own: Networks | None, agents: tuple[int, ...]) -> Algorithm:
    discrete = bool(choice_sizes(env.action_space(env.default_params)))
    defaults = {"target_entropy_fraction": 0.5 if discrete else 1.0}
    outputs_per_component = 1 if discrete else 2
    agent = actor_critic(
        "sac", env, config, agents, outputs_per_component, takes_discrete=True, defaults=defaults, own=own
    )
    replay, branches = agent.replay, agent.head.branches

    # The policy: a normal distribution squashed by tanh, of which losses use one sample for each observation, or
    # probabilities of discrete actions, over which losses sum exactly (Christodoulou, 2019). Several choices are
    # independent: their entropies add up, the value of an action is the mean over the values of its choices, and the
    # loss improves each choice by its own values, which are means over the other choices.

    def normal(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and logarithm of the standard deviation before tanh, `[*B, n]`."""
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, *_LOG_STD)

    def sampled(key: jax.Array, policy: Params, obs: Observation) -> tuple[jax.Array, jax.Array]:
        """Actions `[B, *A, n]` and their log-probabilities `[B, *A]`."""
        mean, log_std = normal(agent.outputs(policy, obs))
        return sample_squashed(mean, log_std, jax.random.normal(key, mean.shape))

    def probabilities(policy: Params, obs: Observation, mask: Mask) -> tuple[jax.Array, jax.Array]:
        """Probabilities and their logarithms, `[B, *A, num_actions]`, finite for actions that a mask forbids, too."""
        outputs = agent.outputs(policy, obs)
        if branches is None:
            log_prob = jax.nn.log_softmax(masked_values(outputs, mask))
        else:
            parts = zip(of_branches(outputs, branches), of_branches(mask, branches), strict=True)
            log_prob = jnp.concatenate([jax.nn.log_softmax(masked_values(*part)) for part in parts], axis=-1)
        return jnp.exp(log_prob), log_prob

    def scores(policy: OffPolicyPolicy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        del mask
        outputs, memory = agent.recalled(policy.acting.params, memory, policy.normalised(obs))
        if discrete:
            return {"logits": outputs} | agent.correlation(policy, outputs), memory
        mean, log_std = normal(outputs)
        return {"mean": mean, "std": jnp.exp(log_std)} | agent.correlation(policy, outputs), memory

    def act(noise: jax.Array | None, scores: Scores) -> jax.Array:
        return jnp.tanh(scores["mean"] if noise is None else scores["mean"] + scores["std"] * noise)

    if discrete:
        kind = persistent_actor if agent.correlated_noise else recurrent_actor
        actor = kind(agent.initial_memory, scores, agent.head)
        random_actor = uniform_discrete_actor(actor)
    else:
        actor = noisy_actor(agent.initial_memory, scores, act, agent.head, agent.correlated_noise)
        random_actor = uniform_actor(actor, agent.head)

    def init(key: jax.Array, hparams: SACHParams, env_params: EnvParams) -> OffPolicyState:
        hparams = agent.prepare(hparams)
        network_key, reset_key, collect_key = jax.random.split(unrolled(key), 3)
        policy, critics = agent.init(network_key)
        automatic = config.automatic_temperature
        log_temperature = jnp.log(jnp.asarray(hparams.temperature, jnp.float32)) if automatic else None
        optimiser = transformation(config.optimiser, hparams, hparams.lr)
        of_temperature = optimiser if config.optimiser is None else adam(hparams, hparams.lr)
        states = optimiser.init(policy), optimiser.init(critics), of_temperature.init(jnp.zeros(()))
        learner = Learner(policy, critics, critics, log_temperature, states)
        keys, acting = (reset_key, collect_key), agent.acting(policy, hparams)
        return replay.init(keys, learner, acting, actor, random_actor, hparams, env_params, agent.recall(critics))

    def next_distribution(
        key: jax.Array, learner: Learner, batch: Window, temperature: jax.Array, nodes: Nodes, scale: Scale
    ) -> Target:
        """Distribution of values with entropy at the next observations, `[B, *A, K, M]`."""
        next_obs = agent.after(learner.policy, batch)
        next_critic_obs = agent.after_critics(learner.targets, batch)
        if not discrete:
            action, log_prob = sampled(key, learner.policy, next_obs)
            lowest = agent.lowest(agent.values(learner.targets, next_critic_obs, action), nodes, scale)
            return _with_entropy(lowest, log_prob, temperature, nodes)
        share, log_prob = probabilities(learner.policy, next_obs, batch.next_mask)
        log_prob = jnp.where(share > 0, log_prob, 0.0)  # these actions have the weight 0
        lowest = agent.lowest(agent.values(learner.targets, next_critic_obs), nodes, scale)
        if branches is not None:  # the mean of D values, to which D entropies are added
            share, log_prob = share / len(branches), log_prob * len(branches)
        atoms, of_atoms = _with_entropy(lowest, log_prob, temperature, nodes)
        weights = share[..., None, None] * of_atoms
        # The atoms of all actions, [B, *A, K, num_actions * M].
        return Target(
            *(
                jnp.moveaxis(leaf, -3, -2).reshape(*share.shape[:-1], -1, share.shape[-1] * leaf.shape[-1])
                for leaf in (atoms, weights)
            )
        )

    def policy_loss(
        policy: Params,
        key: jax.Array,
        critics: Params,
        batch: Window,
        temperature: jax.Array,
        nodes: Nodes,
        scale: Scale,
    ) -> tuple[jax.Array, jax.Array]:
        """Loss of the policy `[]`, and its entropy `[]`."""
        active = batch.active.astype(jnp.float32)
        if not discrete:
            action, log_prob = sampled(key, policy, batch.obs)
            q = agent.objective(agent.values(critics, batch.critic_obs, action), nodes, scale)
            return weighted_mean(temperature * log_prob - q, active), -weighted_mean(log_prob, active)
        q = agent.objective(agent.values(critics, batch.critic_obs), nodes, scale)
        share, log_prob = probabilities(policy, batch.obs, batch.mask)
        entropy = -jnp.sum(jnp.where(share > 0, share * log_prob, 0.0), axis=-1)
        mean_q = jnp.sum(share * q, axis=-1)
        return weighted_mean(-temperature * entropy - mean_q, active), weighted_mean(entropy, active)

    def target_entropy(batch: Window) -> jax.Array:
        """Target entropy at a fraction of 1, `[]`."""
        if not discrete:
            return jnp.float32(-agent.head.num_outputs)
        if batch.mask is None and branches is None:
            return jnp.log(jnp.float32(agent.head.num_outputs))
        if batch.mask is None:
            return jnp.float32(sum(math.log(count) for count in branches or ()))

        def of_choice(mask: jax.Array) -> jax.Array:
            allowed = jnp.maximum(jnp.sum(mask, axis=-1), 1).astype(jnp.float32)
            return weighted_mean(jnp.log(allowed), batch.active.astype(jnp.float32))

        return jax.tree.reduce(jnp.add, jax.tree.map(of_choice, batch.mask))

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: SACHParams
    ) -> tuple[Learner, jax.Array, Metrics]:
        """One gradient step of the critics, the policy and the temperature."""
        next_key, key = jax.random.split(key)
        nodes, scale, log_temperature = Nodes.of(hparams.discount), agent.scale(hparams), learner.log_temperature
        temperature = jnp.asarray(hparams.temperature if log_temperature is None else jnp.exp(log_temperature))
        of_policy, of_critics, of_temperature = learner.optimisers

        next_values = next_distribution(next_key, learner, batch, temperature, nodes, scale)
        critics, of_critics, error, metrics = agent.descend(
            learner.critics, of_critics, batch, next_values, weight, nodes, hparams
        )
        (loss, entropy), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
            learner.policy, key, critics, batch, temperature, nodes, scale
        )
        descent = transformation(config.optimiser, hparams, hparams.policy_lr)
        updates, of_policy = descent.update(gradient, of_policy, learner.policy)
        policy: Any = optax.apply_updates(learner.policy, updates)
        if log_temperature is not None:
            surplus = entropy - hparams.target_entropy_fraction * target_entropy(batch)
            update, of_temperature = adam(hparams, hparams.temperature_lr).update(surplus, of_temperature)
            log_temperature = log_temperature + jnp.asarray(update)
        targets = optax.incremental_update(critics, learner.targets, hparams.target_rate)
        metrics |= {"policy_loss": loss, "entropy": entropy, "current_temperature": temperature}
        optimisers = (of_policy, of_critics, of_temperature)
        return Learner(policy, critics, targets, log_temperature, optimisers), error, metrics

    def step(
        key: jax.Array, iteration: jax.Array, state: OffPolicyState, hparams: SACHParams, env_params: EnvParams
    ) -> tuple[OffPolicyState, Metrics]:
        hparams = agent.scheduled(iteration, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        policy = agent.policy(state, hparams)
        recall = agent.recall(state.learner.critics)
        experience = replay.collect(collect_key, iteration, actor, policy, state, env_params, recall)

        def update(carry: PyTree, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, Metrics]:
            learner, priorities = carry
            key, _ = inputs
            draw_key, key = jax.random.split(key)
            drawn = replay.draw(draw_key, experience, priorities, hparams)
            learner, error, metrics = learn(key, learner, drawn.batch, drawn.weight, hparams)
            return (learner, replay.update_priorities(priorities, drawn, error, hparams)), metrics

        updates = replay.updates(learn_key, iteration)
        (learner, priorities), metrics = scan(update, (state.learner, experience.priorities), updates, steps_of_turn=1)
        state, metrics = replay.finish(learner, priorities, experience, metrics)
        return state, metrics | {"learning_rate": hparams.lr}

    def warm_start(state: OffPolicyState, policy: OffPolicyPolicy) -> OffPolicyState:
        learner = state.learner._replace(policy=policy.acting.params)
        return replay.warm_started(state, learner, actor, policy)

    return agent.algorithm(f"{__name__}:sac", SACHParams, init, step, warm_start, actor)


def _with_entropy(target: Target, log_prob: jax.Array, temperature: jax.Array, nodes: Nodes) -> Target:
    """Distribution of values `[*B, K, M]`, to which the entropy of actions with log-probability `[*B]` is added."""
    bonus = -temperature * log_prob[..., None] / nodes.sizes  # in the units of each exponential
    return target._replace(atoms=target.atoms + bonus[..., None])
