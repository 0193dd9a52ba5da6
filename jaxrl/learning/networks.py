"""Actor-critic networks, and the interface for custom flax modules."""

import functools
import math
from collections.abc import Callable
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.learning.pooling import largest_product
from jaxrl.pytrees import Params

# flax's module under another name: only this file and others of its folder import flax.linen.
Module = nn.Module

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "silu": nn.silu,
}
INCREASING = ("tanh", "relu", "leaky_relu", "elu")  # activations with which a maximum commutes


POOLINGS = ("mean", "masked-mean", "max", "attention")


def flatten_observation(obs: Any) -> jax.Array:
    """One observation, an array or a dictionary of arrays, as a float32 vector."""
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(obs)])


class MLPActorCritic(nn.Module):
    """Two multilayer perceptrons, or one with two heads, from one observation.

    Orthogonal initial weights with gain sqrt(2), .01 for the actor's last layer and 1 for the
    critic's, as is usual for PPO.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`); None for an encoder, which
        returns the features of a shared trunk.
      hidden: Widths of the hidden layers.
      activation: Name in `ACTIVATIONS`.
      shared_trunk: Whether actor and critic share the hidden layers.
      num_values: Number of values of the critic; None for one, without an axis.
      layer_norm: Whether each hidden layer is normalised before its activation.
    """

    num_outputs: int | None
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    num_values: int | None = None
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation."""
        features = flatten_observation(obs)
        if self.num_outputs is None:
            return self._features(features, "trunk")
        actor = self._features(features, "trunk" if self.shared_trunk else "actor")
        critic = actor if self.shared_trunk else self._features(features, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, features: jax.Array, name: str) -> jax.Array:
        return perceptron(features, self.hidden, self.activation, name, self.layer_norm)


class CNNActorCritic(nn.Module):
    """Two convolutional networks, or one with two heads, from one array `[height, width, channels]`.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`); None for an encoder, which
        returns the features of a shared trunk.
      channels: Numbers of channels of the 3 x 3 convolutions, with padded borders.
      strides: Strides of the convolutions.
      hidden: Widths of the hidden layers that follow.
      activation: Name in `ACTIVATIONS`.
      shared_trunk: Whether actor and critic share all but the last layer.
      num_values: Number of values of the critic; None for one, without an axis.
      layer_norm: Whether each convolution and hidden layer is normalised before its activation.
    """

    num_outputs: int | None
    channels: tuple[int, ...] = (16, 32)
    strides: tuple[int, ...] = (1, 1)
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared_trunk: bool = False
    num_values: int | None = None
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation.

        Unsigned integers of 8 bits, such as pixels, are divided by 255.
        """
        chex.assert_rank(obs, 3, custom_message="obs")
        image = obs.astype(jnp.float32) / (255.0 if obs.dtype == jnp.uint8 else 1.0)
        if self.num_outputs is None:
            return self._features(image, "trunk")
        actor = self._features(image, "trunk" if self.shared_trunk else "actor")
        critic = actor if self.shared_trunk else self._features(image, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, image: jax.Array, name: str) -> jax.Array:
        for i, (channels, stride) in enumerate(zip(self.channels, self.strides, strict=True)):
            image = _Convolution(channels, stride, name=f"{name}_convolution_{i}")(image)
            if self.layer_norm:
                # Over the whole layer, with a scale and an offset for each channel.
                image = nn.LayerNorm(reduction_axes=(-3, -2, -1), name=f"{name}_convolution_{i}_norm")(image)
            image = ACTIVATIONS[self.activation](image)
        return perceptron(jnp.ravel(image), self.hidden, self.activation, name, self.layer_norm)


class _Convolution(nn.Module):
    """A 3 x 3 convolution with padded borders, as the product of all patches of an image with one matrix.

    In a batch of runs the kernels of `nn.Conv` become the groups of one convolution, and those of its gradients, which
    take longer on a CPU than a batch of products.

    Attributes:
      channels: Number of channels of the result.
      stride: Distance of the patches.
    """

    channels: int
    stride: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        """Image `[ceil(height / stride), ceil(width / stride), channels]`."""
        kernel = self.param("kernel", _convolution_init, (3, 3, image.shape[-1], self.channels))
        bias = self.param("bias", nn.initializers.zeros, (self.channels,))
        ends = [(-(-size // self.stride) - 1) * self.stride + 1 for size in image.shape[:2]]  # of the first pixels
        borders = [max(end + 2 - size, 0) for end, size in zip(ends, image.shape[:2], strict=True)]
        padded = jnp.pad(image, [*((border // 2, border - border // 2) for border in borders), (0, 0)])
        shifted = [
            padded[y : y + ends[0] : self.stride, x : x + ends[1] : self.stride] for y in range(3) for x in range(3)
        ]
        return jnp.concatenate(shifted, axis=-1) @ kernel.reshape(-1, self.channels) + bias


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
      with_action: Whether observations are joined with an action by `output_networks.with_action`.

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

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`, of one observation."""
        chex.assert_rank(obs["neighbours"], 2, custom_message="neighbours")
        chex.assert_shape(obs["neighbours_present"], obs["neighbours"].shape[:1], custom_message="neighbours_present")
        if self.num_outputs is None:
            return self._features(obs, "trunk")
        actor, critic = self._features(obs, "actor"), self._features(obs, "critic")
        return last_layers(actor, critic, self.num_outputs, self.num_values)

    def _features(self, obs: Any, name: str) -> jax.Array:
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
        kernel = self.param("kernel", _dense_init(np.sqrt(2)), (rows.shape[-1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        return largest_product(rows, present, kernel) + bias


def perceptron(
    features: jax.Array, widths: tuple[int, ...], activation: str, name: str, layer_norm: bool = False
) -> jax.Array:
    """Features after the hidden layers `name_0`, `name_1`, ... of the calling module.

    Args:
      features: Input of the first layer, `[width]`.
      widths: Widths of the layers.
      activation: Name in `ACTIVATIONS`.
      name: Prefix of the layers' names.
      layer_norm: Whether each layer is normalised before its activation.

    Source: Ba, Kiros and Hinton (2016), "Layer normalization".
    """
    for i, width in enumerate(widths):
        features = dense(width, np.sqrt(2), f"{name}_{i}")(features)
        if layer_norm:
            features = nn.LayerNorm(name=f"{name}_{i}_norm")(features)
        features = ACTIVATIONS[activation](features)
    return features


def last_layers(
    actor: jax.Array, critic: jax.Array, num_outputs: int, num_values: int | None
) -> tuple[jax.Array, jax.Array]:
    """Last layers of the calling module: outputs, and the value or the values."""
    return last_of_actor(actor, num_outputs), last_of_critic(critic, num_values)


def last_of_actor(features: jax.Array, num_outputs: int) -> jax.Array:
    """Last layer of the actor, `actor_out`, of the calling module: outputs `[num_outputs]`."""
    return dense(num_outputs, 0.01, "actor_out")(features)


def last_of_critic(features: jax.Array, num_values: int | None) -> jax.Array:
    """Last layer of the critic, `critic_out`, of the calling module: the value `[]`, or values `[num_values]`."""
    values = dense(1 if num_values is None else num_values, 1.0, "critic_out")(features)
    return values[0] if num_values is None else values


def _convolution_init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    return np.sqrt(2) * orthogonal(key, math.prod(shape[:-1]), shape[-1]).reshape(shape).astype(dtype)


def dense(width: int, gain: float, name: str) -> nn.Dense:
    """Dense layer with orthogonal initial weights of a gain."""
    return nn.Dense(width, kernel_init=_dense_init(gain), name=name)


def _dense_init(gain: float) -> Callable[..., jax.Array]:
    """Orthogonal initial weights of a gain."""

    def kernel_init(key: jax.Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> jax.Array:
        return gain * orthogonal(key, *shape).astype(dtype)

    return kernel_init


@functools.partial(jax.jit, static_argnums=(1, 2))
def orthogonal(key: jax.Array, rows: int, columns: int) -> jax.Array:
    """Random matrix with orthonormal columns, or rows if those are fewer, by Gram-Schmidt.

    The distribution is uniform over such matrices. Every vector is projected twice, which gives orthogonality up to
    rounding. LAPACK is not used: its batched calls can deadlock by starving each other of threads in one program of
    JAX 0.10 on a CPU.

    Args:
      key: Random key, traced.
      rows, columns: Numbers of rows and columns, static.

    Returns:
      Matrix, float32 `[rows, columns]`.

    Source: Giraud, Langou and Rozloznik (2005), "The loss of orthogonality in the Gram-Schmidt process".
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    length, count = max(rows, columns), min(rows, columns)
    vectors = jax.random.normal(key, (length, count)).T

    def add(i: Any, basis: jax.Array) -> jax.Array:
        vector = vectors[i]
        for _ in range(2):
            along = jnp.matmul(basis, vector, precision="highest")
            vector = vector - jnp.matmul(along, basis, precision="highest")
        return basis.at[i].set(vector / jnp.linalg.norm(vector))

    basis = jax.lax.fori_loop(0, count, add, jnp.zeros_like(vectors))
    return basis.T if rows >= columns else basis


def apply_over(network: nn.Module, params: Params, obs: Any, num_axes: int) -> Any:
    """Applies a network to observations with `num_axes` leading axes."""
    function = network.apply
    for _ in range(num_axes):
        function = jax.vmap(function, in_axes=(None, 0))
    return function(params, obs)


def check_network(network: nn.Module, obs: Any, num_outputs: int, num_values: int | None = None) -> None:
    """Rejects a network whose outputs the algorithm cannot use, before anything is compiled.

    Args:
      network: Flax module, called as `network.apply(params, obs)` on one observation.
      obs: Shapes of one observation.
      num_outputs: Number of outputs that the action head needs.
      num_values: Number of values that the critic needs; None for one, without an axis.

    Raises:
      TypeError, ValueError: The outputs do not have the required structure or shapes.
    """
    values = "value []" if num_values is None else f"values [{num_values}], one for each head of the mixture critic"
    required = f"(outputs [{num_outputs}], {values})"
    if not isinstance(network, nn.Module):
        raise UserTypeError(f"network must be a flax.linen module, got {type(network).__name__}")
    got = jax.eval_shape(lambda key, x: network.init_with_output(key, x)[0], jax.random.key(0), obs)
    if not isinstance(got, tuple) or len(got) != 2:
        raise UserTypeError(f"network must return {required} for one observation, got {jax.tree.map(jnp.shape, got)}")
    shapes = tuple(getattr(leaf, "shape", type(leaf).__name__) for leaf in got)
    if shapes != ((num_outputs,), () if num_values is None else (num_values,)):
        raise UserValueError(
            f"network must return {required} for one observation, got shapes {shapes[0]} and {shapes[1]}"
        )
