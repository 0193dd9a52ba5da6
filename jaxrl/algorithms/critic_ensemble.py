"""An ensemble of critics of actions, under an exponential discount or a mixture of exponentials."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms.actor_critic_config import ActorCriticConfig
from jaxrl.algorithms.contract import Metrics
from jaxrl.algorithms.observations import zeros
from jaxrl.algorithms.value_step import Nodes, Target, descend, row_errors, window_atoms
from jaxrl.learning import value_losses
from jaxrl.learning.networks import Module, apply_over
from jaxrl.learning.optimisers import adam
from jaxrl.learning.q_targets import mixture_values
from jaxrl.learning.replay import Window

__all__ = ["Critics", "critics_of", "scale_of"]


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
        keys = jax.random.split(key, self.num_critics)
        return jax.vmap(self.network.init, in_axes=(0, None))(keys, zeros(inputs))

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
        atoms = window_atoms(batch, batch.reward, following.atoms, nodes, self.time_limits)
        return following._replace(atoms=atoms)

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
        scale, descent = scale_of(hparams), adam(hparams, hparams.lr)
        params, optimiser, error, metrics = descend(
            self.values, params, optimiser, chosen, target, batch.active, weight, nodes.shares, scale, descent
        )
        return params, optimiser, row_errors(error, batch.active), metrics


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
