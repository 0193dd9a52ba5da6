"""The policies of soft actor-critic, of continuous and of discrete actions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.base import Environment, spaces
from jaxrl.algorithms.actor_critic import Acting, parts_of
from jaxrl.algorithms.critic_ensemble import Critics, critics_of
from jaxrl.algorithms.observations import leading_axes, observation_shapes, zeros
from jaxrl.algorithms.off_policy import OffPolicyPolicy
from jaxrl.algorithms.sac_config import SACConfig
from jaxrl.algorithms.value_step import Nodes, Target
from jaxrl.learning.action_heads import action_head, sample_squashed
from jaxrl.learning.actor import Actor, Scores, head_actor
from jaxrl.learning.exploration import CORRELATION, persistent_actor, uniform_actor
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.networks import apply_over
from jaxrl.learning.output_networks import OutputNetwork, QNetwork
from jaxrl.learning.q_targets import masked_values
from jaxrl.learning.replay import Window
from jaxrl.learning.value_losses import Scale

__all__ = ["SoftPolicy", "continuous_policy", "discrete_policy"]

_LOG_STD = (-20.0, 2.0)  # bounds of the logarithm of the standard deviation before tanh


class SoftPolicy(NamedTuple):
    """Functions in which policies of soft actor-critic differ, for B transitions of agents `*A`.

    Attributes:
      critics: Ensemble of critics.
      actor: Actor of the policy.
      warming: Actor of the random actions of the warm-up.
      init: Function `(key) -> (policy, critics)`, parameters.
      following: Function `(key, policy, targets, batch, temperature, nodes, scale) -> Target`, the distribution of
        values with entropy at the next observations, `[B, *A, K, M]`.
      taken: Function `(critics, batch) -> outputs`, of the actions taken, `[num_critics, B, *A, K, num_outputs]`.
      loss: Function `(key, policy, critics, batch, temperature, nodes, scale) -> (loss [], entropy [])`.
      target_entropy: Function `(batch) -> []`, the target entropy at a fraction of 1.
    """

    critics: Critics
    actor: Actor
    warming: Actor
    init: Callable[[jax.Array], tuple[Any, Any]]
    following: Callable[[jax.Array, Any, Any, Window, jax.Array, Nodes, Scale], Target]
    taken: Callable[[Any, Window], jax.Array]
    loss: Callable[[jax.Array, Any, Any, Window, jax.Array, Nodes, Scale], tuple[jax.Array, jax.Array]]
    target_entropy: Callable[[Window], jax.Array]


def with_entropy(target: Target, log_prob: jax.Array, temperature: jax.Array, nodes: Nodes) -> Target:
    """Distribution of values `[*B, K, M]`, to which the entropy of actions with log-probability `[*B]` is added."""
    bonus = -temperature * log_prob[..., None] / nodes.sizes  # in the units of each exponential
    return target._replace(atoms=target.atoms + bonus[..., None])


def continuous_policy(env: Environment, config: SACConfig, agents: tuple[int, ...]) -> SoftPolicy:
    """Normal policy squashed by tanh; losses use one sample for each observation."""
    parts = parts_of("sac", env, config, agents, 2, "Discrete or a Box of floats")
    critics = parts.critics

    def distribution(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, *_LOG_STD)

    def scores(acting: Acting, outputs: jax.Array) -> Scores:
        del acting
        mean, log_std = distribution(outputs)
        return {"mean": mean, "std": jnp.exp(log_std)}

    def act(noise: jax.Array | None, scores: Scores) -> jax.Array:
        return jnp.tanh(scores["mean"] if noise is None else scores["mean"] + scores["std"] * noise)

    def sampled(key: jax.Array, policy: Any, obs: Any) -> tuple[jax.Array, jax.Array]:
        mean, log_std = distribution(parts.outputs(policy, obs))
        return sample_squashed(mean, log_std, jax.random.normal(key, mean.shape))

    def following(
        key: jax.Array, policy: Any, targets: Any, batch: Window, temperature: jax.Array, nodes: Nodes, scale: Scale
    ) -> Target:
        action, log_prob = sampled(key, policy, batch.next_obs)
        lowest = critics.lowest(parts.values(targets, batch.next_obs, action), nodes, scale)
        return with_entropy(lowest, log_prob, temperature, nodes)

    def loss(
        key: jax.Array, policy: Any, params: Any, batch: Window, temperature: jax.Array, nodes: Nodes, scale: Scale
    ) -> tuple[jax.Array, jax.Array]:
        action, log_prob = sampled(key, policy, batch.obs)
        q = critics.objective(parts.values(params, batch.obs, action), nodes, scale)
        active = batch.active.astype(jnp.float32)
        return weighted_mean(temperature * log_prob - q, active), -weighted_mean(log_prob, active)

    actor = parts.actor(scores, act)
    return SoftPolicy(
        critics=critics,
        actor=actor,
        warming=uniform_actor(actor, parts.head),
        init=parts.init,
        following=following,
        taken=lambda params, batch: parts.values(params, batch.obs, batch.raw_action),
        loss=loss,
        target_entropy=lambda batch: jnp.float32(-parts.head.num_outputs),
    )


def discrete_policy(env: Environment, config: SACConfig, agents: tuple[int, ...], space: spaces.Discrete) -> SoftPolicy:
    """Categorical policy; losses use exact sums over actions.

    Source: Christodoulou (2019), arXiv 1910.07207.
    """
    walks = config.noise == "ornstein-uhlenbeck"
    shapes, axes = observation_shapes(env, agents), 1 + len(agents)
    head = action_head(space)
    network = OutputNetwork(config.encoder(shapes), space.n, 0.01)
    critics = critics_of(
        config, lambda num_values: QNetwork(config.encoder(shapes), space.n, num_values, activation=config.activation)
    )

    def init(key: jax.Array) -> tuple[Any, Any]:
        policy_key, critic_key = jax.random.split(key)
        return network.init(policy_key, zeros(shapes)), critics.init(critic_key, shapes)

    def scores(policy: OffPolicyPolicy, obs: Any, mask: Any) -> Scores:
        del mask
        logits = apply_over(network, policy.acting.params, policy.see(obs), leading_axes(obs, shapes))
        walk = {CORRELATION: jnp.broadcast_to(policy.acting.correlation, logits.shape[:-1])} if walks else {}
        return {"logits": logits} | walk

    def probabilities(policy: Any, obs: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
        """Probabilities and their logarithms, `[B, *A, num_actions]`, finite for actions that a mask forbids, too."""
        log_prob = jax.nn.log_softmax(masked_values(apply_over(network, policy, obs, axes), mask))
        return jnp.exp(log_prob), log_prob

    def following(
        key: jax.Array, policy: Any, targets: Any, batch: Window, temperature: jax.Array, nodes: Nodes, scale: Scale
    ) -> Target:
        del key
        share, log_prob = probabilities(policy, batch.next_obs, batch.next_mask)
        log_prob = jnp.where(share > 0, log_prob, 0.0)  # these actions have the weight 0
        lowest = critics.lowest(critics.outputs(targets, batch.next_obs, axes), nodes, scale)
        atoms, of_atoms = with_entropy(lowest, log_prob, temperature, nodes)
        weights = share[..., None, None] * of_atoms
        # The atoms of all actions, [B, *A, K, num_actions * M].
        return Target(
            *(
                jnp.moveaxis(leaf, -3, -2).reshape(*share.shape[:-1], -1, share.shape[-1] * leaf.shape[-1])
                for leaf in (atoms, weights)
            )
        )

    def taken(params: Any, batch: Window) -> jax.Array:
        index = batch.raw_action[None, ..., None, None, None]
        return jnp.take_along_axis(critics.outputs(params, batch.obs, axes), index, axis=-3)[..., 0, :, :]

    def loss(
        key: jax.Array, policy: Any, params: Any, batch: Window, temperature: jax.Array, nodes: Nodes, scale: Scale
    ) -> tuple[jax.Array, jax.Array]:
        del key
        q = critics.objective(critics.outputs(params, batch.obs, axes), nodes, scale)
        share, log_prob = probabilities(policy, batch.obs, batch.mask)
        entropy = -jnp.sum(jnp.where(share > 0, share * log_prob, 0.0), axis=-1)
        active = batch.active.astype(jnp.float32)
        mean_q = jnp.sum(share * q, axis=-1)
        return weighted_mean(-temperature * entropy - mean_q, active), weighted_mean(entropy, active)

    def target_entropy(batch: Window) -> jax.Array:
        if batch.mask is None:
            return jnp.log(jnp.float32(space.n))
        allowed = jnp.maximum(jnp.sum(batch.mask, axis=-1), 1).astype(jnp.float32)
        return weighted_mean(jnp.log(allowed), batch.active.astype(jnp.float32))

    def scores_in_warm_up(policy: Any, memory: Any, obs: Any, mask: Any) -> tuple[Scores, Any]:
        scores, memory = actor.scores(policy, memory, obs, mask)
        return scores | {"logits": jnp.zeros_like(scores["logits"])}, memory

    actor = persistent_actor(scores, head) if walks else head_actor(scores, head)
    warming = actor._replace(scores=scores_in_warm_up)
    return SoftPolicy(critics, actor, warming, init, following, taken, loss, target_entropy)
