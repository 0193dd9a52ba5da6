"""Networks that treat all neighbours in an observation alike."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from envs.choices import Choices, encoded
from envs.loops import traced_platform
from jaxrl.learning.networks import ACTIVATIONS, dense, dense_init, flatten_observation, last_layers, perceptron
from jaxrl.pytrees import Observation, PyTree

POOLINGS = ("mean", "masked-mean", "max", "attention")
INCREASING = ("tanh", "relu", "leaky_relu", "elu")  # activations with which a maximum commutes

__all__ = ["POOLINGS", "RelationActorCritic", "largest_product"]


class RelationActorCritic(nn.Module):
    """Two networks, for actor and critic, that treat all neighbours of an agent alike.

    An observation is a dictionary with the rows "neighbours" `[K, F]`, with "neighbours_present"
    `[K]`, 1 for a neighbour and 0 for padding, and other leaves ("own", "rays"). Each row goes through
    one perceptron, the other leaves through another; the features of the rows are pooled, joined with the others, and
    go through a third.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`); None for an encoder, which
        returns features.
      own_hidden, neighbour_hidden, hidden: Widths before and after the join.
      pooling: Reduction over rows: "mean" over all K slots, padding included, as in the papers; "masked-mean" and "max"
        over the neighbours that are present; "attention" of the agent to the neighbours that are present.
      own_scale, neighbour_scale: Factors of the other leaves, apart from an action, and of the rows.
      activation: Name in `ACTIVATIONS`.
      num_values: Number of values of the critic; None for one, without an axis.
      layer_norm: Whether each hidden layer is normalised before its activation.
      with_action: Whether observations are joined with an action by `networks.with_action`.
      choices: Choices in observations, by `choices.choices_of`; `own_scale` and `neighbour_scale` scale their one-hot
        vectors.

    Source: Kwiatkowski et al. (2023), "Understanding reinforcement learned crowds"; Zaheer et al. (2017), "Deep sets".
    """

    num_outputs: int | None
    own_hidden: tuple[int, ...] = (64,)
    neighbour_hidden: tuple[int, ...] = (64,)
    hidden: tuple[int, ...] = (64, 64)
    pooling: str = "mean"
    own_scale: float = 1.0
    neighbour_scale: float = 1.0
    activation: str = "tanh"
    num_values: int | None = None
    layer_norm: bool = False
    with_action: bool = False
    choices: Choices = ()

    @nn.compact
    def __call__(self, obs: Observation) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation."""
        chex.assert_rank(obs["neighbours"], 2, custom_message="neighbours")
        chex.assert_shape(obs["neighbours_present"], obs["neighbours"].shape[:1], custom_message="neighbours_present")
        obs = encoded(obs, self.choices)
        if self.num_outputs is None:
            return self._features(obs, "trunk")
        actor, critic = self._features(obs, "actor"), self._features(obs, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, obs: Observation, name: str) -> jax.Array:
        rest = {part: leaf for part, leaf in obs.items() if part not in ("neighbours", "neighbours_present")}
        own = self._perceptron(self._scaled(rest), self.own_hidden, f"{name}_own")
        rows, present = self.neighbour_scale * obs["neighbours"], obs["neighbours_present"] > 0.5
        if self._takes_maximum_first:
            pooled = self._largest(rows, present, f"{name}_neighbour")
            return self._perceptron(jnp.concatenate([own, pooled]), self.hidden, name)
        rows = self._perceptron(rows, self.neighbour_hidden, f"{name}_neighbour")
        if self.pooling == "mean":
            pooled = jnp.mean(rows, axis=0)
        elif self.pooling == "masked-mean":
            pooled = jnp.sum(jnp.where(present[:, None], rows, 0.0), axis=0) / jnp.maximum(jnp.sum(present), 1)
        elif self.pooling == "max":
            pooled = jnp.where(jnp.any(present), jnp.max(jnp.where(present[:, None], rows, -1e9), axis=0), 0.0)
        else:
            pooled = self._attend(own, rows, present, f"{name}_attention")
        return self._perceptron(jnp.concatenate([own, pooled]), self.hidden, name)

    @property
    def _takes_maximum_first(self) -> bool:
        """Whether the maximum over rows commutes with the last activation, which takes less time."""
        increasing = self.activation in INCREASING and not self.layer_norm
        return self.pooling == "max" and increasing and bool(self.neighbour_hidden)

    def _largest(self, rows: jax.Array, present: jax.Array, name: str) -> jax.Array:
        """Maximum over the rows that are present of their features, `[width]`; 0 where none is."""
        rows = self._perceptron(rows, self.neighbour_hidden[:-1], name)
        last = _LargestOutput(self.neighbour_hidden[-1], name=f"{name}_{len(self.neighbour_hidden) - 1}")
        return jnp.where(jnp.any(present), ACTIVATIONS[self.activation](last(rows, present)), 0.0)

    def _scaled(self, rest: Any) -> jax.Array:
        """Numbers of the leaves other than the rows, of which an action is not scaled."""
        if not self.with_action:
            return self.own_scale * flatten_observation(rest)
        own = self.own_scale * flatten_observation(rest["own"]["observation"])
        return jnp.concatenate([flatten_observation(rest["own"]["action"]), own])

    def _attend(self, own: jax.Array, rows: jax.Array, present: jax.Array, name: str) -> jax.Array:
        """Attention of the agent to the rows, `[width]`."""
        width = rows.shape[-1]
        query = dense(width, 1.0, f"{name}_query")(own)
        keys, values = dense(width, 1.0, f"{name}_key")(rows), dense(width, 1.0, f"{name}_value")(rows)
        scores = jnp.where(present, keys @ query / np.sqrt(width), -1e9)
        return jnp.where(jnp.any(present), nn.softmax(scores) @ values, 0.0)

    def _perceptron(self, features: jax.Array, widths: tuple[int, ...], name: str) -> jax.Array:
        return perceptron(features, widths, self.activation, name, self.layer_norm)


class _LargestOutput(nn.Module):
    """The largest output of a dense layer over rows.

    Attributes:
      width: Number of outputs.
    """

    width: int

    @nn.compact
    def __call__(self, rows: jax.Array, present: jax.Array) -> jax.Array:
        """Largest outputs `[width]` over the rows `[K, F]` that are present, bool `[K]`, if any is."""
        kernel = self.param("kernel", dense_init(np.sqrt(2)), (rows.shape[-1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        return largest_product(rows, present, kernel) + bias


def largest_product(rows: jax.Array, present: jax.Array, kernel: jax.Array) -> jax.Array:
    """Largest entries of the products of rows and a kernel.

    The gradient of an output is that of the row that attains the maximum, or the mean over several such rows.

    Args:
      rows: Rows, `[K, F]`.
      present: Rows over which the maximum is taken, bool `[K]`.
      kernel: Kernel, `[F, width]`.

    Returns:
      Maxima `[width]`; -1e9 where no row is present.
    """
    chex.assert_rank([rows, kernel], 2, custom_message="rows, kernel")
    chex.assert_shape(present, rows.shape[:1], custom_message="present")
    return _largest(rows, present, kernel)


@jax.custom_vjp
def _largest(rows: jax.Array, present: jax.Array, kernel: jax.Array) -> jax.Array:
    return _largest_product_forward(rows, present, kernel)[0]


def _largest_product_forward(rows: jax.Array, present: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Any]:
    products = jnp.where(present[:, None], rows @ kernel, -1e9)
    largest = jnp.max(products, axis=0)
    return largest, (rows, present, kernel, products, largest)


def _largest_product_backward(residuals: PyTree, gradient: jax.Array) -> tuple[jax.Array, None, jax.Array]:
    rows, present, kernel, products, largest = residuals
    attains = jnp.where(present[:, None] & (products == largest), 1.0, 0.0)
    # One product sums the rows that attain each maximum and, by a row of ones, counts them. On a CPU this takes about
    # half of the time of the gradient of `jnp.max`, which is a matrix of the size of the products. On a CPU,
    # rows that are transposed first have the order of XLA's fast product; for a GPU, one run then fails to compile.
    if traced_platform() == "cpu":
        extended = jnp.concatenate([rows.T, jnp.ones_like(rows[:, :1].T)])
    else:
        extended = jnp.concatenate([rows, jnp.ones_like(rows[:, :1])], axis=1).T
    summed = extended @ attains
    share = gradient / jnp.maximum(summed[-1], 1.0)
    return (attains * share) @ kernel.T, None, summed[:-1] * share


_largest.defvjp(_largest_product_forward, _largest_product_backward)
