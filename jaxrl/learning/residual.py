"""Residual networks with normalised layers, after SimBa."""

import chex
import flax.linen as nn
import jax

from jaxrl.learning.networks import ACTIVATIONS, MLPActorCritic, dense

__all__ = ["ResidualActorCritic", "residual_blocks"]

_EXPANSION = 4  # width within a block, in widths of the block


class ResidualActorCritic(MLPActorCritic):
    """`MLPActorCritic` with a residual block for each hidden layer, all of one width, and `layer_norm` without effect.

    Source: Lee et al. (2024), "SimBa: simplicity bias for scaling up parameters in deep reinforcement learning", arXiv
    2410.09754; its normalisation of observations is a setting of the algorithms, `normalise_observation`.
    """

    def _features(self, features: jax.Array, name: str) -> jax.Array:
        return residual_blocks(features, self.hidden, self.activation, name)


def residual_blocks(features: jax.Array, widths: tuple[int, ...], activation: str, name: str) -> jax.Array:
    """Features after a linear layer, residual blocks and a layer normalisation of the calling module.

    A block adds to its input two layers of the normalised input, of which the first is four times as wide and the
    second is linear.

    Args:
      features: Input, `[width]`.
      widths: Width of each block, all equal.
      activation: Name in `ACTIVATIONS`.
      name: Prefix of the layers' names.

    Returns:
      Features, `[widths[0]]`.
    """
    chex.assert_rank(features, 1, custom_message="features")
    features = dense(widths[0], 1.0, f"{name}_in")(features)
    for i, width in enumerate(widths):
        hidden = nn.LayerNorm(name=f"{name}_{i}_norm")(features)
        hidden = ACTIVATIONS[activation](_layer(_EXPANSION * width, f"{name}_{i}_wide")(hidden))
        features = features + _layer(width, f"{name}_{i}_out")(hidden)
    return nn.LayerNorm(name=f"{name}_norm")(features)


def _layer(width: int, name: str) -> nn.Dense:
    return nn.Dense(width, kernel_init=nn.initializers.he_normal(), name=name)
