"""Networks of a policy without a critic."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.learning.networks import Module, dense, perceptron

__all__ = ["PolicyHead", "PolicyNetwork"]


class PolicyHead(nn.Module):
    """A perceptron from features to the outputs of an actor, beside a value of 0.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`).
      hidden: Widths of the hidden layers.
      activation: Name in `networks.ACTIVATIONS`.
    """

    num_outputs: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Outputs of the actor `[num_outputs]`, and 0 `[]`, from the features of one observation."""
        chex.assert_rank(features, 1, custom_message="features")
        hidden = perceptron(features, self.hidden, self.activation, "actor")
        return dense(self.num_outputs, 0.01, "actor_out")(hidden), jnp.zeros(())


class PolicyNetwork(nn.Module):
    """An encoder of observations and a head.

    Attributes:
      encoder: Module `(obs) -> features [F]`.
      head: Module `(features) -> (outputs, 0)`.
    """

    encoder: Module
    head: Module

    def __call__(self, obs: Any) -> Any:
        """Outputs of the actor `[num_outputs]`, and 0 `[]`, of one observation."""
        return self.head(self.encoder(obs))
