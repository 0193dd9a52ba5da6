"""Networks of action values."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.learning.networks import ACTIVATIONS, Module, orthogonal

__all__ = ["QNetwork"]


class QNetwork(nn.Module):
    """Network with outputs for each action, which represent action values in the form that a value loss defines.

    Attributes:
      encoder: Network that returns features, `[width]`.
      num_actions: Number of actions.
      num_values: Number of outputs for each action.
      duelling: Whether outputs are a state value plus an advantage minus the mean advantage over actions, each from its
        own hidden layer.
      activation: Activation function of the hidden layers, a name in `ACTIVATIONS`.
      layer_norm: Whether each hidden layer is normalised before its activation.

    Source: Wang et al. (2016), "Dueling network architectures", equation 9.
    """

    encoder: Module
    num_actions: int
    num_values: int
    duelling: bool = False
    activation: str = "relu"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> jax.Array:
        """Outputs for every action, `[num_actions, num_values]`, of one observation."""
        features = self.encoder(obs)
        chex.assert_rank(features, 1, custom_message="features")
        of_action = self._stream(features, "advantage", self.num_actions * self.num_values)
        of_action = of_action.reshape(self.num_actions, self.num_values)
        if not self.duelling:
            return of_action
        return self._stream(features, "value", self.num_values) + of_action - jnp.mean(of_action, axis=0)

    def _stream(self, features: jax.Array, name: str, width: int) -> jax.Array:
        if self.duelling:
            features = nn.Dense(features.shape[-1], kernel_init=_orthogonal(2**0.5), name=f"{name}_hidden")(features)
            if self.layer_norm:
                features = nn.LayerNorm(name=f"{name}_hidden_norm")(features)
            features = ACTIVATIONS[self.activation](features)
        return nn.Dense(width, kernel_init=_orthogonal(0.01), name=f"{name}_out")(features)


def _orthogonal(gain: float) -> Any:
    def init(key: jax.Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> jax.Array:
        return gain * orthogonal(key, *shape).astype(dtype)

    return init
