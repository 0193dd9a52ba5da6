"""Common parts of algorithms that learn action values: network, heads, epsilon-greedy actor and gradient step."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from envs.base import Environment, spaces
from envs.errors import UserTypeError
from envs.threefry import unrolled
from jaxrl.algorithms.contract import Algorithm, Metrics, longest_episode
from jaxrl.algorithms.off_policy import OffPolicyPolicy
from jaxrl.algorithms.q_config import QConfig
from jaxrl.algorithms.q_discount import prepare_discount
from jaxrl.checks import effective
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning import value_losses
from jaxrl.learning.actor import Actor, Scores, memoryless
from jaxrl.learning.critics import head_sizes
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.networks import apply_over
from jaxrl.learning.optimisers import adam
from jaxrl.learning.q_networks import QNetwork
from jaxrl.learning.q_targets import masked_values, mixture_values
from jaxrl.learning.schedules import linear_share
from jaxrl.sweeps.distributions import Choice, LogUniform, Uniform

Space = dict[str, Uniform | LogUniform | Choice]

__all__ = ["Acting", "ActionValues", "Space", "action_values", "common_space"]


class Acting(NamedTuple):
    """Parameters of acting.

    Attributes:
      params: Parameters of the network.
      epsilon: Probability of a random action, float32 `[]`.
      shares: Shares of the heads in a value, float32 `[K]`.
      scale: Parameters of the value loss.
    """

    params: Any
    epsilon: jax.Array
    shares: jax.Array
    scale: value_losses.Scale


class ActionValues(NamedTuple):
    """Action values of an algorithm on one environment.

    Attributes:
      config: Configuration.
      network: Network of the numbers that represent values.
      loss: Representation and loss of values.
      num_heads: Number of heads K.
      obs_shape: Shapes of one observation of one agent.
      episode_length: Time limit of episodes, in steps.
    """

    config: QConfig
    network: QNetwork
    loss: value_losses.ValueLoss
    num_heads: int
    obs_shape: Any
    episode_length: int

    def prepare(self, hparams: Any, num_settings: int | None = None) -> Any:
        """Hyper-parameters with a resolved discount and without those that have no effect, as `Algorithm.prepare`."""
        defaults = type(hparams).__dataclass_fields__
        changes = {
            name: effective(name, getattr(hparams, name), defaults[name].default, on)
            for name, on in self.config.effects.items()
        }
        discount = prepare_discount(
            hparams.discount, self.config.heads, self.num_heads, self.episode_length, num_settings
        )
        return dataclasses.replace(hparams, discount=discount, **changes)

    def outputs(self, params: Any, obs: Any, num_axes: int) -> jax.Array:
        """Outputs of the network for observations with `num_axes` leading axes, `[*B, num_actions, K, num_outputs]`."""
        outputs = apply_over(self.network, params, obs, num_axes)
        return outputs.reshape(*outputs.shape[:-1], self.num_heads, self.loss.num_outputs)

    def shares(self, hparams: Any) -> jax.Array:
        """Shares of the heads in a value, float32 `[K]`."""
        return jnp.asarray(hparams.discount.weights, jnp.float32) * head_sizes(hparams.discount)

    def scale(self, hparams: Any) -> value_losses.Scale:
        """Parameters of the value loss."""
        delta = None if hparams.huber_delta is None else jnp.float32(hparams.huber_delta)
        if self.config.value_loss not in value_losses.WITH_SUPPORT:
            return value_losses.Scale(huber_delta=delta)
        # The largest possible return for rewards of 1; outputs of all heads have the scale of the whole value.
        weights, rates = jnp.asarray(hparams.discount.weights), jnp.asarray(hparams.discount.rates)
        total = jnp.sum(weights * jnp.sum(rates[:, None] ** jnp.arange(hparams.discount.horizon), axis=1))
        return value_losses.Scale(hparams.reward_low * total, hparams.reward_high * total, delta)

    def initial(self, key: jax.Array, hparams: Any) -> Acting:
        """Initial values, with random parameters."""
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.obs_shape)
        params = self.network.init(key, example)
        return Acting(params, jnp.float32(hparams.epsilon_start), self.shares(hparams), self.scale(hparams))

    def scheduled(self, acting: Acting, hparams: Any, env_steps: jax.Array) -> Acting:
        """Values with the probability of a random action after `env_steps` environment steps, `[]`."""
        fallen = 1 - linear_share(env_steps, 0.0, hparams.epsilon_anneal_env_steps)
        epsilon = hparams.epsilon_start + (hparams.epsilon_end - hparams.epsilon_start) * fallen
        return Acting(acting.params, jnp.float32(epsilon), self.shares(hparams), self.scale(hparams))

    def actor(self) -> Actor:
        """Epsilon-greedy actor, whose policies are `OffPolicyPolicy` with `Acting`."""
        num_actions = self.network.num_actions

        def scores(policy: OffPolicyPolicy, obs: Any, mask: Any) -> Scores:
            del mask
            acting = policy.acting
            num_axes = jax.tree.leaves(obs)[0].ndim - len(jax.tree.leaves(self.obs_shape)[0].shape)
            by_head = self.loss.value(self.outputs(acting.params, policy.see(obs), num_axes), acting.scale)
            q = mixture_values(by_head, acting.shares)
            return {"q": q, "epsilon": jnp.broadcast_to(acting.epsilon, q.shape[:-1])}

        def choose(noise: Any, scores: Scores, greedy: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
            best = jnp.argmax(masked_values(scores["q"], mask), axis=-1).astype(jnp.int32)
            if isinstance(greedy, bool) and greedy:
                return best, best
            # The largest of independent uniform numbers selects each allowed action with equal probability.
            anything = jnp.argmax(masked_values(noise[..., 1:], mask), axis=-1).astype(jnp.int32)
            explores = (noise[..., 0] < scores["epsilon"]) & jnp.logical_not(greedy)
            action = jnp.where(explores, anything, best)
            return action, action

        return memoryless(
            scores, lambda key, shape: jax.random.uniform(unrolled(key), (*shape, num_actions + 1)), choose
        )

    def descend(
        self,
        acting: Acting,
        optimiser: optax.OptState,
        batch: Any,
        target: tuple[jax.Array, jax.Array],
        weight: jax.Array,
        hparams: Any,
        lr: Any,
    ) -> tuple[Acting, optax.OptState, jax.Array, Metrics]:
        """One step of Adam towards targets.

        Args:
          acting: Current values.
          optimiser: State of Adam.
          batch: Samples with `obs` as the network gets them, `raw_action` and `active`, leaves `[*B, ...]`.
          target: Atoms and probabilities of the targets, `[*B, K, M]`.
          weight: Weights of the samples' losses, `[*B]`, 0 where not active.
          hparams: Hyper-parameters, prepared.
          lr: Step size, `[]`.

        Returns:
          Updated values, state of Adam, errors of the values `[*B]` before the step, and metrics.
        """
        scale, shares, (atoms, probabilities) = acting.scale, acting.shares, jax.lax.stop_gradient(target)

        def loss(params: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            outputs = self.outputs(params, batch.obs, batch.active.ndim)
            taken = batch.raw_action[..., None, None, None]
            chosen = jnp.take_along_axis(outputs, taken, axis=-3)[..., 0, :, :]
            by_head = self.loss.loss(chosen, atoms, probabilities, scale)
            total = jnp.sum(mixture_values(by_head, shares) * weight) / jnp.maximum(jnp.sum(batch.active), 1)
            value = mixture_values(self.loss.value(chosen, scale), shares)
            error = mixture_values(value_losses.expected(atoms, probabilities), shares) - value
            return total, (value, error)

        (total, (value, error)), gradient = jax.value_and_grad(loss, has_aux=True)(acting.params)
        updates, optimiser = adam(hparams, lr).update(gradient, optimiser, acting.params)
        active = batch.active.astype(jnp.float32)
        metrics = {
            "value_loss": total,
            "q": weighted_mean(value, active),
            "q_error": weighted_mean(jnp.abs(error), active),
            "grad_norm": optax.tree.norm(gradient),
        }
        return acting._replace(params=optax.apply_updates(acting.params, updates)), optimiser, error, metrics


def action_values(name: str, env: Environment, config: QConfig, agents: tuple[int, ...]) -> ActionValues:
    """Action values of the algorithm `name` on an environment with agents of the shape `agents`.

    Raises:
      TypeError: The actions are not discrete.
      ValueError: A field of the configuration does not fit the observations.
    """
    params = env.default_params
    space = env.action_space(params)
    if not isinstance(space, spaces.Discrete):
        raise UserTypeError(
            f"{name} takes an environment with a Discrete action space, got {space!r}; "
            "envs.wrappers.discretise_actions makes bounded numbers discrete"
        )
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    config.check_observation(obs)
    obs_shape = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(agents) :], leaf.dtype), obs)
    num_heads = 1 if config.heads == "single" else config.num_heads
    loss = value_losses.value_loss(config.value_loss, config.num_atoms)
    outputs = num_heads * loss.num_outputs
    network = QNetwork(config.encoder(obs_shape), space.n, outputs, config.duelling, config.activation)
    return ActionValues(config, network, loss, num_heads, obs_shape, longest_episode(env))


def common_space(algo: Algorithm, own: Space) -> Space:
    """Default search space: the common entries, and those of an algorithm, `own`."""
    space: Space = {
        "lr": LogUniform(1e-4, 1e-2),
        "epsilon_end": LogUniform(0.01, 0.2),
        "epsilon_anneal_env_steps": LogUniform(1e3, 1e5),
        **own,
    }
    if isinstance(algo.hparams.discount, Exponential):
        space["discount"] = Choice([0.9, 0.95, 0.98, 0.99, 0.995])
    return space
