"""An ensemble of critics of actions, under an exponential discount or a mixture of exponentials."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms.actor_critic_config import ActorCriticConfig
from jaxrl.algorithms.contract import Metrics
from jaxrl.learning import value_losses
from jaxrl.learning.critics import head_sizes
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.networks import Module, apply_over
from jaxrl.learning.optimisers import adam
from jaxrl.learning.q_targets import mixture_values, n_step_targets
from jaxrl.learning.replay import Window

__all__ = ["Critics", "Nodes", "Target", "critics_of", "scale_of"]


class Nodes(NamedTuple):
    """The exponentials of a discount, each `[K]`.

    Attributes:
      rates: Rates of the exponentials.
      sizes: Scales of the values under each rate, by which outputs of the critics are smaller.
      shares: Weights of the outputs in a value, which sum to 1.
    """

    rates: jax.Array
    sizes: jax.Array
    shares: jax.Array

    @staticmethod
    def of(discount: Any) -> "Nodes":
        """The exponentials of a prepared discount."""
        sizes = head_sizes(discount)
        weights = jnp.asarray(discount.weights, jnp.float32)
        return Nodes(jnp.asarray(discount.rates, jnp.float32), sizes, weights * sizes)


class Target(NamedTuple):
    """Distributions of values under each exponential: atoms and probabilities, `[*B, K, M]`."""

    atoms: jax.Array
    probabilities: jax.Array


class Critics(NamedTuple):
    """Ensemble of critics, as functions of its parameters, leaves `[num_critics, ...]`.

    Outputs for a value have axes `[num_critics, *B, num_heads, num_outputs]`.

    Attributes:
      network: Network of one critic.
      num_critics: Number of critics.
      num_heads: Number of exponentials K of the discount.
      values: Representation of values.
      time_limits: Treatment of time limits, as in `OffPolicyConfig`.
      dropped_atoms: Number of dropped quantiles of each critic, as in `ActorCriticConfig`.
    """

    network: Module
    num_critics: int
    num_heads: int
    values: value_losses.ValueLoss
    time_limits: str
    dropped_atoms: int | None = None

    def init(self, key: jax.Array, inputs: Any) -> Any:
        """Parameters, leaves `[num_critics, ...]`, from the shapes of one input of the network."""
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), inputs)
        return jax.vmap(self.network.init, in_axes=(0, None))(jax.random.split(key, self.num_critics), example)

    def outputs(self, params: Any, inputs: Any, num_axes: int) -> jax.Array:
        """Outputs for the values of inputs `[*B, ...]` with `num_axes` leading axes."""
        outputs = jax.vmap(lambda one: apply_over(self.network, one, inputs, num_axes))(params)
        return outputs.reshape(*outputs.shape[:-1], self.num_heads, self.values.num_outputs)

    def value(self, outputs: jax.Array, nodes: Nodes, scale: value_losses.Scale) -> jax.Array:
        """Values under the discount, `[num_critics, *B]`."""
        return mixture_values(self.values.value(outputs, scale), nodes.shares)

    def objective(self, outputs: jax.Array, nodes: Nodes, scale: value_losses.Scale) -> jax.Array:
        """Values for a policy to maximise, `[*B]`: of the lowest critic, or the mean where targets drop quantiles."""
        return (jnp.min if self.dropped_atoms is None else jnp.mean)(self.value(outputs, nodes, scale), axis=0)

    def lowest(self, outputs: jax.Array, nodes: Nodes, scale: value_losses.Scale) -> Target:
        """Distribution of the critic whose value is lowest, or of the lowest quantiles of all critics, `[*B, K, M]`.

        Source: Kuznetsov et al. (2020), arXiv 2005.04269, for quantiles of all critics.
        """
        if self.dropped_atoms is not None:
            together = jnp.moveaxis(outputs, 0, -2).reshape(*outputs.shape[1:-1], -1)
            kept = self.num_critics * (self.values.num_outputs - self.dropped_atoms)
            return Target(*self.values.distribution(jnp.sort(together, axis=-1)[..., :kept], scale))
        which = jnp.argmin(self.value(outputs, nodes, scale), axis=0)
        chosen = jnp.take_along_axis(outputs, which[None, ..., None, None], axis=0)[0]
        return Target(*self.values.distribution(chosen, scale))

    def target(self, batch: Window, following: Target, nodes: Nodes) -> Target:
        """Target of the first step of each window, from the distribution after its last step."""
        ended = batch.terminated | batch.truncated if self.time_limits == "terminal" else batch.terminated
        atoms = n_step_targets(batch.reward, batch.counts, ended, following.atoms, nodes.rates, nodes.sizes)
        return Target(*jax.lax.stop_gradient((atoms, following.probabilities)))

    def descend(
        self,
        params: Any,
        optimiser: optax.OptState,
        chosen: Callable[[Any], jax.Array],
        target: Target,
        batch: Window,
        weight: jax.Array,
        hparams: Any,
        nodes: Nodes,
    ) -> tuple[Any, optax.OptState, jax.Array, Metrics]:
        """One step of Adam of all critics towards a target.

        Args:
          params: Parameters.
          optimiser: State of Adam.
          chosen: Function `(params) -> outputs` of the actions taken, `[num_critics, B, *A, K, num_outputs]`.
          target: Target, `[B, *A, K, M]`.
          batch: Transitions.
          weight: Weights of the transitions in the loss, `[B, *A]`.
          hparams: Hyper-parameters, prepared.
          nodes: Exponentials of the discount.

        Returns:
          Parameters, state of Adam, mean absolute error of each row `[B]`, and metrics.
        """
        scale = scale_of(hparams)
        active = batch.active.astype(jnp.float32)

        def loss(params: Any) -> tuple[jax.Array, jax.Array]:
            outputs = chosen(params)
            by_head = self.values.loss(outputs, target.atoms, target.probabilities, scale)
            total = jnp.sum(mixture_values(by_head, nodes.shares) * weight) / jnp.maximum(jnp.sum(active), 1)
            return total, self.value(outputs, nodes, scale)

        (total, value), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, optimiser = adam(hparams, hparams.lr).update(gradient, optimiser, params)
        goal = mixture_values(value_losses.expected(target.atoms, target.probabilities), nodes.shares)
        error, value = jnp.mean(jnp.abs(goal - value), axis=0), jnp.mean(value, axis=0)
        rows = tuple(range(1, active.ndim))
        of_row = jnp.sum(error * active, axis=rows) / jnp.maximum(jnp.sum(active, axis=rows), 1)
        metrics = {
            "value_loss": total,
            "q": weighted_mean(value, active),
            "q_error": weighted_mean(error, active),
            "grad_norm": optax.tree.norm(gradient),
        }
        return optax.apply_updates(params, updates), optimiser, of_row, metrics


def critics_of(config: ActorCriticConfig, network: Callable[[int], Module]) -> Critics:
    """Ensemble of critics of a configuration.

    Args:
      config: Configuration.
      network: Function `(num_values) -> network`, a critic with this number of outputs for an action.
    """
    num_heads = 1 if config.heads == "single" else config.num_heads
    values = value_losses.value_loss(config.value_loss, config.num_atoms)
    critic = network(num_heads * values.num_outputs)
    return Critics(critic, config.num_critics, num_heads, values, config.time_limits, config.dropped_atoms)


def scale_of(hparams: Any) -> value_losses.Scale:
    """Scale of the value loss."""
    return value_losses.Scale(
        huber_delta=None if hparams.huber_delta is None else jnp.asarray(hparams.huber_delta, jnp.float32)
    )
