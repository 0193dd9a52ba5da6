"""Twin delayed deep deterministic policy gradients, with DDPG as a setting, for continuous actions."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from envs.base import Environment
from envs.checking import check_abstractly
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
from jaxrl.algorithms.value_function import Nodes
from jaxrl.checks import Range, check_count
from jaxrl.learning.actor import Memory, Scores
from jaxrl.learning.exploration import noisy_actor, uniform_actor
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.optimisers import transformation
from jaxrl.learning.output_networks import Networks
from jaxrl.learning.replay import Window
from jaxrl.pytrees import EnvParams, Mask, Observation, Params, PyTree
from jaxrl.sweeps.distributions import SearchSpace


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Config(ActorCriticConfig):
    """Static configuration of TD3: changing a field recompiles.

    `TD3Config(policy_delay=1, target_smoothing=False, num_critics=1)` is DDPG.

    Attributes:
      policy_delay: Number of gradient steps of the critics for each update of the policy and the target networks.
      target_smoothing: Whether clipped normal noise is added to the actions of targets.
    """

    policy_delay: int = 2
    target_smoothing: bool = True

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_count("policy_delay", self.policy_delay)

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | dict.fromkeys(("target_noise", "target_noise_clip"), self.target_smoothing)


@struct.dataclass
class TD3HParams(ActorCriticHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      noise_std: Standard deviation of the exploration noise, for actions scaled to [-1, 1].
      noise_std_end: Final deviation as a fraction of `noise_std`, reached linearly over `anneal_env_steps`; 1 keeps it
        constant.
      target_noise: Standard deviation of the noise of actions in targets, on the same scale.
      target_noise_clip: Bound of the absolute noise of actions in targets.
    """

    noise_std: Any = 0.1
    noise_std_end: Any = 1.0
    target_noise: Any = 0.2
    target_noise_clip: Any = 0.5

    schedules = ActorCriticHParams.schedules | {"noise_std_end": ("noise_std",)}
    ranges = ActorCriticHParams.ranges | {
        **dict.fromkeys(("noise_std", "noise_std_end", "target_noise", "target_noise_clip"), Range(0, INFINITE, "[)")),
    }


class Learner(NamedTuple):
    """State of learning of TD3.

    Attributes:
      policy: Parameters of the policy.
      target_policy: Parameters of the target network of the policy.
      critics: Parameters of the critics, leaves `[num_critics, ...]`.
      targets: Parameters of the target networks of the critics.
      optimisers: States of the optimiser for the policy and for the critics.
      noise_std: Standard deviation of the exploration noise, float32 `[]`.
    """

    policy: Params
    target_policy: Params
    critics: Params
    targets: Params
    optimisers: tuple[Any, Any]
    noise_std: jax.Array


@with_hints
def td3(env: Environment, config: TD3Config | None = None, network: Networks | None = None) -> Algorithm:
    """Twin delayed DDPG on an environment with continuous actions.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the networks.
      config: Configuration; the defaults if None.
      network: Custom networks, `jaxrl.Networks(actor=..., critic=...)`, of which one suffices; None for those of the
        configuration.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment, or actions are discrete or without bounds; before
        anything is compiled.

    Source: Fujimoto et al. (2018), arXiv 1802.09477; Lillicrap et al. (2016), arXiv 1509.02971, for DDPG.
    """
    return _build(env, checked_config(config, TD3Config), checked_networks("td3", network), check_abstractly(env))


def search_space(algo: Algorithm) -> SearchSpace:
    """Default search space of TD3."""
    return common_space(algo)


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: TD3Config, own: Networks | None, agents: tuple[int, ...]) -> Algorithm:
    agent = actor_critic("td3", env, config, agents, own=own)
    replay = agent.replay

    def scores(policy: OffPolicyPolicy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        del mask
        outputs, memory = agent.recalled(policy.acting.params, memory, policy.normalised(obs))
        std = jnp.broadcast_to(jnp.asarray(policy.acting.noise_std), outputs.shape)
        return {"mean": jnp.tanh(outputs), "std": std} | agent.correlation(policy, outputs), memory

    def act(noise: jax.Array | None, scores: Scores) -> jax.Array:
        return scores["mean"] if noise is None else jnp.clip(scores["mean"] + scores["std"] * noise, -1.0, 1.0)

    actor = noisy_actor(agent.initial_memory, scores, act, agent.head, agent.correlated_noise)

    def policy_of(learner: Learner, observations: Any, hparams: TD3HParams) -> OffPolicyPolicy:
        """Policy with the exploration noise of the last iteration."""
        acting = agent.acting(learner.policy, hparams)._replace(noise_std=learner.noise_std)
        return replay.policy_of(acting, observations, hparams)

    def init(key: jax.Array, hparams: TD3HParams, env_params: EnvParams) -> OffPolicyState:
        hparams = agent.prepare(hparams)
        network_key, reset_key, collect_key = jax.random.split(unrolled(key), 3)
        policy, critics = agent.init(network_key)
        optimiser = transformation(config.optimiser, hparams, hparams.lr)
        states = optimiser.init(policy), optimiser.init(critics)
        learner = Learner(policy, policy, critics, critics, states, jnp.float32(hparams.noise_std))
        keys, acting = (reset_key, collect_key), agent.acting(policy, hparams)
        random_actor, recall = uniform_actor(actor, agent.head), agent.recall(critics)
        return replay.init(keys, learner, acting, actor, random_actor, hparams, env_params, recall)

    def next_actions(key: jax.Array, policy: Params, obs: Observation, hparams: TD3HParams) -> jax.Array:
        action = jnp.tanh(agent.outputs(policy, obs))
        if not config.target_smoothing:
            return action
        bound = hparams.target_noise_clip
        noise = jnp.clip(hparams.target_noise * jax.random.normal(key, action.shape), -bound, bound)
        return jnp.clip(action + noise, -1.0, 1.0)

    def improved(learner: Learner, batch: Window, hparams: TD3HParams, nodes: Nodes) -> Learner:
        """One gradient step of the policy on its critics, and an update of the target networks."""
        members = slice(1 if config.dropped_atoms is None else None)  # the first critic, or all
        params = jax.tree.map(lambda leaf: leaf[members], learner.critics)

        def loss(policy: Params) -> jax.Array:
            outputs = agent.values(params, batch.critic_obs, jnp.tanh(agent.outputs(policy, batch.obs)))
            q = agent.critics.value(outputs, nodes.shares, agent.scale(hparams))
            q = q[0] if config.dropped_atoms is None else jnp.mean(q, axis=0)
            return -weighted_mean(q, batch.active.astype(jnp.float32))

        of_policy, of_critics = learner.optimisers
        gradient = jax.grad(loss)(learner.policy)
        descent = transformation(config.optimiser, hparams, hparams.policy_lr)
        updates, of_policy = descent.update(gradient, of_policy, learner.policy)
        policy: Any = optax.apply_updates(learner.policy, updates)
        targets = optax.incremental_update(learner.critics, learner.targets, hparams.target_rate)
        target_policy = optax.incremental_update(policy, learner.target_policy, hparams.target_rate)
        optimisers = of_policy, of_critics
        return learner._replace(policy=policy, target_policy=target_policy, targets=targets, optimisers=optimisers)

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: TD3HParams, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        """One gradient step, after `count` previous ones, which are shared by the runs."""
        nodes, scale = Nodes.of(hparams.discount), agent.scale(hparams)
        policy, targets = learner.target_policy, learner.targets
        action = next_actions(key, policy, agent.after(policy, batch), hparams)
        next_values = agent.lowest(agent.values(targets, agent.after_critics(targets, batch), action), nodes, scale)
        of_policy, of_critics = learner.optimisers
        critics, of_critics, error, metrics = agent.descend(
            learner.critics, of_critics, batch, next_values, weight, nodes, hparams
        )
        learner = learner._replace(critics=critics, optimisers=(of_policy, of_critics))
        if config.policy_delay == 1:
            return improved(learner, batch, hparams, nodes), error, metrics
        due = (count + 1) % config.policy_delay == 0  # not batched, so that this remains a branch under vmap
        learner = jax.lax.cond(due, lambda old: improved(old, batch, hparams, nodes), lambda old: old, learner)
        return learner, error, metrics

    def step(
        key: jax.Array, iteration: jax.Array, state: OffPolicyState, hparams: TD3HParams, env_params: EnvParams
    ) -> tuple[OffPolicyState, Metrics]:
        hparams = agent.scheduled(iteration, hparams)
        collect_key, learn_key = jax.random.split(unrolled(key))
        learner = state.learner._replace(noise_std=jnp.float32(hparams.noise_std))
        policy = policy_of(learner, state.observations, hparams)
        recall = agent.recall(learner.critics)
        experience = replay.collect(collect_key, iteration, actor, policy, state, env_params, recall)

        def update(carry: PyTree, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, Metrics]:
            learner, priorities = carry
            key, count = inputs
            draw_key, key = jax.random.split(key)
            drawn = replay.draw(draw_key, experience, priorities, hparams)
            learner, error, metrics = learn(key, learner, drawn.batch, drawn.weight, hparams, count)
            return (learner, replay.update_priorities(priorities, drawn, error, hparams)), metrics

        updates = replay.updates(learn_key, iteration)
        (learner, priorities), metrics = scan(update, (learner, experience.priorities), updates, steps_of_turn=1)
        state, metrics = replay.finish(learner, priorities, experience, metrics)
        return state, metrics | {"learning_rate": hparams.lr}

    def warm_start(state: OffPolicyState, policy: OffPolicyPolicy) -> OffPolicyState:
        weights = policy.acting.params
        learner = state.learner._replace(policy=weights, target_policy=weights)
        return replay.warm_started(state, learner, actor, policy)

    def policy(state: OffPolicyState, hparams: TD3HParams) -> OffPolicyPolicy:
        return policy_of(state.learner, state.observations, hparams)

    return agent.algorithm(f"{__name__}:td3", TD3HParams, init, step, warm_start, actor, policy)
