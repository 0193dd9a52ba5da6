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
from jaxrl.algorithms.actor_critic import Acting, algorithm, parts_of
from jaxrl.algorithms.actor_critic_config import ActorCriticConfig, ActorCriticHParams
from jaxrl.algorithms.arguments import checked_config, with_hints
from jaxrl.algorithms.contract import Algorithm, Metrics
from jaxrl.algorithms.critic_ensemble import scale_of
from jaxrl.algorithms.off_policy_config import INFINITE
from jaxrl.algorithms.value_step import Nodes
from jaxrl.checks import Range, check_count
from jaxrl.learning.actor import Scores
from jaxrl.learning.exploration import uniform_actor
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.optimisers import adam
from jaxrl.learning.replay import Window


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


@struct.dataclass
class TD3HParams(ActorCriticHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      noise_std: Standard deviation of the exploration noise, for actions scaled to [-1, 1].
      target_noise: Standard deviation of the noise of actions in targets, on the same scale.
      target_noise_clip: Bound of the absolute noise of actions in targets.
    """

    noise_std: Any = 0.1
    target_noise: Any = 0.2
    target_noise_clip: Any = 0.5

    ranges = ActorCriticHParams.ranges | {
        **dict.fromkeys(("noise_std", "target_noise", "target_noise_clip"), Range(0, INFINITE, "[)")),
    }


class Learner(NamedTuple):
    """State of learning of TD3.

    Attributes:
      policy: Parameters of the policy.
      target_policy: Parameters of the target network of the policy.
      critics: Parameters of the critics, leaves `[num_critics, ...]`.
      targets: Parameters of the target networks of the critics.
      optimisers: States of Adam for the policy and for the critics.
    """

    policy: Any
    target_policy: Any
    critics: Any
    targets: Any
    optimisers: tuple[Any, Any]


@with_hints
def td3(env: Environment, config: TD3Config | None = None) -> Algorithm:
    """Twin delayed DDPG on an environment with continuous actions.

    Args:
      env: Environment of one agent, or a crowd, whose agents share the networks.
      config: Configuration; the defaults if None.

    Raises:
      ContractError: The environment breaks a law.
      TypeError, ValueError: A field does not fit the environment, or actions are discrete or without bounds; before
        anything is compiled.

    Source: Fujimoto et al. (2018), arXiv 1802.09477; Lillicrap et al. (2016), arXiv 1509.02971, for DDPG.
    """
    return _build(env, checked_config(config, TD3Config), check_abstractly(env))


@functools.lru_cache(maxsize=64)  # equal arguments give the same functions, which are then compiled once
def _build(env: Environment, config: TD3Config, agents: tuple[int, ...]) -> Algorithm:
    parts = parts_of("td3", env, config, agents, 1)
    critics = parts.critics

    def scores(acting: Acting, outputs: jax.Array) -> Scores:
        return {"mean": jnp.tanh(outputs), "std": jnp.broadcast_to(jnp.asarray(acting.noise_std), outputs.shape)}

    def act(noise: jax.Array | None, scores: Scores) -> jax.Array:
        return scores["mean"] if noise is None else jnp.clip(scores["mean"] + scores["std"] * noise, -1.0, 1.0)

    def init_learner(key: jax.Array, hparams: Any) -> Learner:
        policy, params = parts.init(key)
        optimiser = adam(hparams, hparams.lr)
        return Learner(policy, policy, params, params, (optimiser.init(policy), optimiser.init(params)))

    def next_actions(key: jax.Array, policy: Any, obs: Any, hparams: Any) -> jax.Array:
        action = jnp.tanh(parts.outputs(policy, obs))
        if not config.target_smoothing:
            return action
        bound = hparams.target_noise_clip
        noise = jnp.clip(hparams.target_noise * jax.random.normal(key, action.shape), -bound, bound)
        return jnp.clip(action + noise, -1.0, 1.0)

    def improved(learner: Learner, batch: Window, hparams: Any, nodes: Nodes) -> Learner:
        """One gradient step of the policy on its critics, and an update of the target networks."""
        judges = slice(1 if config.dropped_atoms is None else None)  # the first critic, or all
        params = jax.tree.map(lambda leaf: leaf[judges], learner.critics)

        def loss(policy: Any) -> jax.Array:
            values = parts.values(params, batch.obs, jnp.tanh(parts.outputs(policy, batch.obs)))
            q = critics.value(values, nodes, scale_of(hparams))
            q = q[0] if config.dropped_atoms is None else jnp.mean(q, axis=0)
            return -weighted_mean(q, batch.active.astype(jnp.float32))

        of_policy, of_critics = learner.optimisers
        gradient = jax.grad(loss)(learner.policy)
        updates, of_policy = adam(hparams, hparams.policy_lr).update(gradient, of_policy, learner.policy)
        policy: Any = optax.apply_updates(learner.policy, updates)
        targets = optax.incremental_update(learner.critics, learner.targets, hparams.target_rate)
        target_policy = optax.incremental_update(policy, learner.target_policy, hparams.target_rate)
        return Learner(policy, target_policy, learner.critics, targets, (of_policy, of_critics))

    def learn(
        key: jax.Array, learner: Learner, batch: Window, weight: jax.Array, hparams: Any, count: jax.Array
    ) -> tuple[Learner, jax.Array, Metrics]:
        nodes, scale = Nodes.of(hparams.discount), scale_of(hparams)
        action = next_actions(key, learner.target_policy, batch.next_obs, hparams)
        following = critics.lowest(parts.values(learner.targets, batch.next_obs, action), nodes, scale)
        target = critics.target(batch, following, nodes)

        def taken(params: Any) -> jax.Array:
            return parts.values(params, batch.obs, batch.raw_action)

        of_policy, of_critics = learner.optimisers
        params, of_critics, error, metrics = critics.descend(
            learner.critics, of_critics, taken, target, batch, weight, hparams, nodes
        )
        learner = learner._replace(critics=params, optimisers=(of_policy, of_critics))
        if config.policy_delay == 1:
            return improved(learner, batch, hparams, nodes), error, metrics
        # The number of gradient steps is shared by the runs, so that this stays a branch under vmap.
        due = (count + 1) % config.policy_delay == 0
        learner = jax.lax.cond(due, lambda old: improved(old, batch, hparams, nodes), lambda old: old, learner)
        return learner, error, metrics

    effects = {"target_noise": config.target_smoothing, "target_noise_clip": config.target_smoothing}
    actor = parts.actor(scores, act)
    return algorithm(
        f"{__name__}:td3",
        env,
        config,
        agents,
        actor,
        uniform_actor(actor, parts.head),
        TD3HParams,
        effects,
        init_learner,
        learn,
    )
