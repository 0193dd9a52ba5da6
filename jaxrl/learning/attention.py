"""A memory cell that attends to the last steps: the gated transformer with a sliding window.

Its interface is that of `learning.cells`. A step alone, as for acting, costs time in proportion to the window; a
sequence is computed in parallel.
"""

import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.learning.networks import orthogonal, orthogonal_gates
from jaxrl.pytrees import Memory, Params

__all__ = ["GTrXL"]

Layer = dict[str, jax.Array]  # parameters of one layer

_GATE_BIAS = 2.0  # initial bias towards the input of a gate
_SMALLEST_VARIANCE = 1e-6  # added before the root of a layer normalisation


class GTrXL(nn.Module):
    """The gated transformer: layers of attention to the last steps of an episode and of two dense layers, with gates.

    x = W f + b enters the first layer. A layer is x' = g1(x, relu(attention(norm(x)))), x'' = g2(x', relu(W2 relu(W1
    norm(x') + b1) + b2)): only the inputs of the submodules are normalised, so that x passes unchanged where the gates
    are closed. A gate is g(x, y) = (1 - z) x + z tanh(W y + U (r x)), r = sigmoid(W_r y + U_r x), z = sigmoid(W_z y +
    U_z x - bias), where the bias is initially 2. The features are those of the last layer, `[size]`.

    A step attends to itself and to at most `window` - 1 steps before it in the same episode. The score of a step is
    q k / sqrt(size / heads) plus a learned number for each head and each distance in steps, initially 0: one number of
    a table, and so the same for a step alone and in a sequence. The relative encodings of the paper need a product for
    each distance. With several layers, information passes through up to `layers` * (`window` - 1) steps.

    The memory, "inputs", float32 `[layers, window - 1, size]`, has the normalised inputs of attention of the last
    steps, the newest last, which takes half the memory of their keys and values; and "count", int32 `[]`, is how many
    of them belong to the episode. Gradients run through the memory within a sequence.

    Attributes:
      size: Width of the layers, a multiple of `heads`.
      window: Number of steps that a step attends to, itself included; at least 2.
      layers: Number of layers.
      heads: Number of heads of attention.

    Source: Parisotto et al. (2019), "Stabilizing transformers for reinforcement learning", arXiv 1910.06764.
    """

    size: int
    window: int = 16
    layers: int = 1
    heads: int = 4

    def initial_memory(self) -> dict[str, jax.Array]:
        """An empty window: zeros."""
        return {"inputs": jnp.zeros((self.layers, self.window - 1, self.size)), "count": jnp.int32(0)}

    @nn.compact
    def __call__(self, features: jax.Array, memory: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Features after one step, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        params = self._parameters(features.shape[0])
        features = features @ params["enter_kernel"] + params["enter_bias"]
        inputs = []
        for index in range(self.layers):
            layer = _layer(params, index)
            normed = _normalised(features, layer, "attention")
            window = jnp.concatenate([memory["inputs"][index], normed[None]])
            attended = _attended_by_one(layer, window, memory["count"], self.heads)
            features = _after_attention(layer, features, attended)
            inputs.append(window[1:])
        count = jnp.minimum(memory["count"] + 1, self.window - 1)
        return features, {"inputs": jnp.stack(inputs), "count": count}

    def unroll(self, params: Params, features: jax.Array, memory: Memory, reset: jax.Array) -> tuple[Any, Any]:
        """Features and memories after each step."""
        chex.assert_shape([features, reset], [(*reset.shape, None), (None,)], custom_message="features, reset")
        weights, before = params["params"], memory
        features = features @ weights["enter_kernel"] + weights["enter_bias"]
        length, num_steps = self.window - 1, reset.shape[0]
        episode = jnp.cumsum(reset.astype(jnp.int32))
        of_memory = jnp.where(jnp.arange(length) >= length - before["count"], 0, -1)
        episodes = jnp.concatenate([of_memory, episode])  # of the steps of the memory and of the sequence
        # The window after step t; a step of another episode is empty.
        ahead = np.arange(num_steps)[:, None] + np.arange(1, length + 1)
        kept = jnp.concatenate([jnp.zeros(length, jnp.int32), episode])[ahead] == episode[:, None]
        inputs = []
        for index in range(self.layers):
            layer = _layer(weights, index)
            steps = jnp.concatenate([before["inputs"][index], _normalised(features, layer, "attention")])
            attended = _attended_by_all(layer, steps, episodes, self.window, self.heads)
            features = _after_attention(layer, features, attended)
            inputs.append(jnp.where(kept[..., None], steps[ahead], 0.0))
        count = jnp.sum(episodes[ahead] == episode[:, None], axis=1, dtype=jnp.int32)
        return features, {"inputs": jnp.stack(inputs, axis=1), "count": count}

    def _parameters(self, width: int) -> dict[str, jax.Array]:
        """Parameters of the first layer's input, and those of all layers, `[layers, ...]`."""
        size, layers, zeros = self.size, self.layers, nn.initializers.zeros
        weights = {
            "enter_kernel": self.param("enter_kernel", orthogonal_gates(1), (width, size)),
            "enter_bias": self.param("enter_bias", zeros, (size,)),
            # Of queries, keys, values and all heads together; of the two dense layers.
            "attention_kernel": self.param("attention_kernel", _squares, (layers, size, 4 * size)),
            "distance": self.param("distance", zeros, (layers, self.heads, self.window)),
            "dense_kernel": self.param("dense_kernel", _squares, (layers, size, 2 * size)),
            "dense_bias": self.param("dense_bias", zeros, (layers, 2 * size)),
        }
        for part in ("attention", "dense"):
            own = {
                f"{part}_scale": (nn.initializers.ones, size),
                f"{part}_shift": (zeros, size),
                # Of y: r, z and the candidate; of x: r and z; of r x: the candidate.
                f"{part}_gate_kernel": (_squares, size, 6 * size),
                f"{part}_gate_bias": (nn.initializers.constant(_GATE_BIAS), size),
            }
            weights |= {name: self.param(name, initial, (layers, *shape)) for name, (initial, *shape) in own.items()}
        return weights


def _squares(key: jax.Array, shape: tuple[int, int, int]) -> jax.Array:
    """Initial weights `[layers, size, count * size]` of orthogonal matrices, concatenated along columns."""
    layers, size, columns = shape
    matrices = jax.vmap(lambda key: orthogonal(key, size, size))(jax.random.split(key, layers * columns // size))
    return matrices.reshape(layers, -1, size, size).transpose(0, 2, 1, 3).reshape(shape)


def _layer(weights: Params, index: int) -> Layer:
    """Parameters of one layer."""
    return {name: leaf[index] for name, leaf in weights.items() if not name.startswith("enter")}


def _normalised(features: jax.Array, layer: Layer, part: str) -> jax.Array:
    """Input of the submodule `part` of a layer, after its layer normalisation over the last axis."""
    centred = features - jnp.mean(features, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    normed = centred * jax.lax.rsqrt(variance + _SMALLEST_VARIANCE)
    return normed * layer[f"{part}_scale"] + layer[f"{part}_shift"]


def _gated(stay: jax.Array, change: jax.Array, layer: Layer, part: str) -> jax.Array:
    """The stream `stay` after the output `change` of the submodule `part` of a layer, `[..., size]`."""
    kernel, bias = layer[f"{part}_gate_kernel"], layer[f"{part}_gate_bias"]
    size = bias.shape[0]
    driven, recalled = change @ kernel[:, : 3 * size], stay @ kernel[:, 3 * size : 5 * size]
    mixed = nn.sigmoid(driven[..., :size] + recalled[..., :size])
    opened = nn.sigmoid(driven[..., size : 2 * size] + recalled[..., size:] - bias)
    candidate = jnp.tanh(driven[..., 2 * size :] + (mixed * stay) @ kernel[:, 5 * size :])
    return (1.0 - opened) * stay + opened * candidate


def _after_attention(layer: Layer, features: jax.Array, attended: jax.Array) -> jax.Array:
    """Features after a layer, from its input and the values that it attends to, `[..., size]` each."""
    size = features.shape[-1]
    features = _gated(features, nn.relu(attended @ layer["attention_kernel"][:, 3 * size :]), layer, "attention")
    kernel, bias = layer["dense_kernel"], layer["dense_bias"]
    hidden = nn.relu(_normalised(features, layer, "dense") @ kernel[:, :size] + bias[:size])
    return _gated(features, nn.relu(hidden @ kernel[:, size:] + bias[size:]), layer, "dense")


def _attended_by_one(layer: Layer, window: jax.Array, count: jax.Array, heads: int) -> jax.Array:
    """Values that the last step of a window `[window, size]` attends to, `[size]`.

    Queries and sums are multiplied by the kernels of keys and values, not the steps of the window, which would take a
    matrix product for each of them.
    """
    length, size = window.shape
    of_query, of_key, of_value = jnp.split(layer["attention_kernel"][:, : 3 * size], 3, axis=1)
    of_key, of_value = (kernel.reshape(size, heads, -1) for kernel in (of_key, of_value))
    query = (window[-1] @ of_query).reshape(heads, -1)
    asked = jnp.einsum("hd,fhd->hf", query, of_key) / math.sqrt(size // heads)
    scores = asked @ window.T + layer["distance"][:, ::-1]
    filled = jnp.arange(length) >= length - 1 - count
    shares = jax.nn.softmax(jnp.where(filled, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hf,fhd->hd", shares @ window, of_value).reshape(size)


def _attended_by_all(layer: Layer, steps: jax.Array, episodes: jax.Array, window: int, heads: int) -> jax.Array:
    """Values that each step after the first `window` - 1 of `[window - 1 + T, size]` attends to, `[T, size]`.

    Blocks of `window` steps attend to themselves and to the block before, so that the cost grows with T, not its
    square; `episodes`, int32 `[window - 1 + T]`, is the number of the episode of each step, -1 for an empty one.
    """
    size = steps.shape[1]
    num_steps = steps.shape[0] - (window - 1)
    count = -(-num_steps // window)
    missing = [(1, count * window - num_steps)]  # a step before the first, to fill a block, and those after the last
    blocks = jnp.pad(steps, [*missing, (0, 0)]).reshape(count + 1, window, size)
    numbers = jnp.pad(episodes, missing, constant_values=-1).reshape(count + 1, window)
    query = blocks[1:] @ layer["attention_kernel"][:, :size]
    of_memory = blocks @ layer["attention_kernel"][:, size : 3 * size]
    key, value = jnp.split(jnp.concatenate([of_memory[:-1], of_memory[1:]], axis=1), 2, axis=-1)
    query, key, value = (leaf.reshape(*leaf.shape[:2], heads, -1) for leaf in (query, key, value))
    distance = np.arange(window)[:, None] + window - np.arange(2 * window)
    near = (distance >= 0) & (distance < window)
    scores = jnp.einsum("bihd,bjhd->bhij", query, key) / math.sqrt(size // heads)
    scores = scores + layer["distance"][:, np.clip(distance, 0, window - 1)]
    same = numbers[1:, :, None] == jnp.concatenate([numbers[:-1], numbers[1:]], axis=1)[:, None, :]
    shares = jax.nn.softmax(jnp.where((near & same)[:, None], scores, -jnp.inf), axis=-1)
    attended = jnp.einsum("bhij,bjhd->bihd", shares, value)
    return attended.reshape(count * window, size)[:num_steps]
