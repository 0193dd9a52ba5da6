"""Memory cells by name, and those that are gated by their memory: the gated recurrent unit, long short-term memory.

A cell is called as `(features [F], memory) -> (features, memory)`, and runs along a sequence by `unroll(params,
features [T, F], memory, reset [T]) -> (features [T, ...], memories [T, ...])`, see `learning.recurrent`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.loops import scan
from jaxrl.learning.attention import GTrXL
from jaxrl.learning.linear_cells import LRU, S5, MinGRU
from jaxrl.learning.networks import orthogonal_gates
from jaxrl.learning.rollout import remembered
from jaxrl.pytrees import Memory, Params, PyTree

__all__ = ["CELLS", "GRU", "LSTM", "FlaxCell", "cell_of"]

Saved = Sequence[jax.Array]  # `[..., size]` each


class GRU(nn.Module):
    """The gated recurrent unit; its features are its memory, "hidden", float32 `[size]`.

    r = sigmoid(W_r x + b_r + U_r h), z = sigmoid(W_z x + b_z + U_z h), n = tanh(W_n x + b_n + r (U_n h + c)),
    h' = (1 - z) n + z h. Every W and U is initially orthogonal.

    Attributes:
      size: Size of the memory.

    Source: Cho et al. (2014), arXiv 1406.1078, with the reset gate applied after the product, as in cuDNN.
    """

    size: int

    def initial_memory(self) -> dict[str, jax.Array]:
        """Zeros."""
        return {"hidden": jnp.zeros(self.size)}

    @nn.compact
    def __call__(self, features: jax.Array, memory: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Features after one step, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        weights = _weights(self, features.shape[0], self.size, 3)
        weights["candidate_bias"] = self.param("candidate_bias", nn.initializers.zeros, (self.size,))
        recalled = memory["hidden"] @ weights["kernel"] + self._bias(weights)
        memory, _ = GRU_GATES.step(_driven(weights, features), recalled, memory)
        return memory["hidden"], memory

    def unroll(self, params: Params, features: jax.Array, memory: Memory, reset: jax.Array) -> tuple[Any, Any]:
        """Features and memories after each step."""
        chex.assert_shape([features, reset], [(*reset.shape, None), (None,)], custom_message="features, reset")
        weights = params["params"]
        driven, start = _driven(weights, features), self.initial_memory()
        memories: Any = _along_sequence(GRU_GATES, weights["kernel"], self._bias(weights), driven, memory, start, reset)
        return memories["hidden"], memories

    def _bias(self, weights: Params) -> jax.Array:
        """Bias of the products with the hidden values: the candidate's alone."""
        return jnp.concatenate([jnp.zeros(2 * self.size), weights["candidate_bias"]])


class LSTM(nn.Module):
    """Long short-term memory; its features are "hidden" of its memory, "cell" and "hidden", float32 `[size]` each.

    i, f, o = sigmoid(W x + b + U h) each, g = tanh(W_g x + b_g + U_g h), c' = f c + i g, h' = o tanh(c'). Every W and U
    is initially orthogonal, and the bias of f is 1.

    Attributes:
      size: Size of each of the two arrays of the memory.

    Source: Hochreiter and Schmidhuber (1997); the forget gate's bias: Jozefowicz et al. (2015).
    """

    size: int

    def initial_memory(self) -> dict[str, jax.Array]:
        """Zeros."""
        return {"cell": jnp.zeros(self.size), "hidden": jnp.zeros(self.size)}

    @nn.compact
    def __call__(self, features: jax.Array, memory: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Features after one step, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        weights = _weights(self, features.shape[0], self.size, 4, first_bias=(0.0, 1.0, 0.0, 0.0))
        recalled = memory["hidden"] @ weights["kernel"]
        memory, _ = LSTM_GATES.step(_driven(weights, features), recalled, memory)
        return memory["hidden"], memory

    def unroll(self, params: Params, features: jax.Array, memory: Memory, reset: jax.Array) -> tuple[Any, Any]:
        """Features and memories after each step."""
        chex.assert_shape([features, reset], [(*reset.shape, None), (None,)], custom_message="features, reset")
        weights = params["params"]
        driven, start, nothing = _driven(weights, features), self.initial_memory(), jnp.zeros(4 * self.size)
        memories: Any = _along_sequence(LSTM_GATES, weights["kernel"], nothing, driven, memory, start, reset)
        return memories["hidden"], memories


class FlaxCell(nn.Module):
    """Recurrent cell of flax, such as `flax.linen.GRUCell(32)`, with the arguments in the order of this module.

    Attributes:
      cell: Cell of flax whose initial carry does not depend on the key.
    """

    cell: Any

    def initial_memory(self) -> Any:
        """Initial carry."""
        return self.cell.initialize_carry(jax.random.key(0), (1,))

    @nn.compact
    def __call__(self, features: jax.Array, memory: Memory) -> tuple[jax.Array, Any]:
        """Features after one step, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        memory, features = self.cell(memory, features)
        return features, memory


CELLS: dict[str, Callable[..., Any]] = {
    "gru": GRU,
    "lstm": LSTM,
    "lru": LRU,
    "mingru": MinGRU,
    "s5": S5,
    "gtrxl": GTrXL,
}


def cell_of(memory: str, size: int, activation: str, window: int, layers: int, heads: int) -> Any:
    """Memory cell of a name in `CELLS`, with the arguments that it takes.

    Args:
      memory: Name in `CELLS`.
      size: Number of units.
      activation: Name in `networks.ACTIVATIONS`, for "lru" and "s5".
      window, layers, heads: Numbers of steps, layers and heads of "gtrxl".
    """
    own = {"window": window, "layers": layers, "heads": heads} if memory == "gtrxl" else {}
    own |= {"activation": activation} if memory in ("lru", "s5") else {}
    return CELLS[memory](size, **own)


def _weights(cell: nn.Module, width: int, size: int, count: int, first_bias: tuple[float, ...] = ()) -> dict[str, Any]:
    """Concatenated parameters of `count` gates of the calling cell."""

    def bias(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        del key
        return jnp.repeat(jnp.array(first_bias), size) if first_bias else jnp.zeros(shape)

    return {
        "input_kernel": cell.param("input_kernel", orthogonal_gates(count), (width, count * size)),
        "bias": cell.param("bias", bias, (count * size,)),
        "kernel": cell.param("kernel", orthogonal_gates(count), (size, count * size)),
    }


def _driven(weights: Params, features: jax.Array) -> jax.Array:
    """Input of the gates from the features, `[..., gates * size]`."""
    return features @ weights["input_kernel"] + weights["bias"]


class Gates(NamedTuple):
    """Arithmetic of a cell on elements, by functions of its memory, a dictionary with the entry "hidden".

    Attributes:
      step: Function `(driven, recalled, memory) -> (memory, saved)`: the inputs of the gates from the features and from
        the hidden values, `[..., gates * size]`, and the memory before the step.
      back: Function `(saved, before, of_memory) -> (of_driven, of_recalled, of_before)` of gradients; `before` is the
        memory before the step, and `of_before` leaves out what reaches it through `recalled`.
    """

    step: Callable[[jax.Array, jax.Array, dict[str, jax.Array]], tuple[dict[str, jax.Array], Saved]]
    back: Callable[[Saved, dict[str, jax.Array], dict[str, jax.Array]], tuple[jax.Array, jax.Array, Any]]


def _gru_step(driven: jax.Array, recalled: jax.Array, memory: dict[str, jax.Array]) -> tuple[Any, Saved]:
    hidden = memory["hidden"]
    size = hidden.shape[-1]
    reset, update = jnp.split(nn.sigmoid(driven[..., : 2 * size] + recalled[..., : 2 * size]), 2, axis=-1)
    candidate = jnp.tanh(driven[..., 2 * size :] + reset * recalled[..., 2 * size :])
    saved = reset, update, candidate, recalled[..., 2 * size :]
    return {"hidden": (1.0 - update) * candidate + update * hidden}, saved


def _gru_back(saved: Saved, before: dict[str, jax.Array], of_memory: dict[str, jax.Array]) -> tuple[Any, Any, Any]:
    (reset, update, candidate, recalled), of_hidden = saved, of_memory["hidden"]
    of_candidate = of_hidden * (1.0 - update) * (1.0 - candidate * candidate)
    of_update = of_hidden * (before["hidden"] - candidate) * update * (1.0 - update)
    of_reset = of_candidate * recalled * reset * (1.0 - reset)
    of_driven = jnp.concatenate([of_reset, of_update, of_candidate], axis=-1)
    of_recalled = jnp.concatenate([of_reset, of_update, of_candidate * reset], axis=-1)
    return of_driven, of_recalled, {"hidden": of_hidden * update}


def _lstm_step(driven: jax.Array, recalled: jax.Array, memory: dict[str, jax.Array]) -> tuple[Any, Saved]:
    gates = jnp.split(driven + recalled, 4, axis=-1)
    enter, forget, leave = map(nn.sigmoid, gates[:3])
    candidate = jnp.tanh(gates[3])
    cell = forget * memory["cell"] + enter * candidate
    shown = jnp.tanh(cell)
    return {"cell": cell, "hidden": leave * shown}, (enter, forget, leave, candidate, shown)


def _lstm_back(saved: Saved, before: dict[str, jax.Array], of_memory: dict[str, jax.Array]) -> tuple[Any, Any, Any]:
    enter, forget, leave, candidate, shown = saved
    of_cell = of_memory["cell"] + of_memory["hidden"] * leave * (1.0 - shown * shown)
    of_gates = jnp.concatenate(
        [
            of_cell * candidate * enter * (1.0 - enter),
            of_cell * before["cell"] * forget * (1.0 - forget),
            of_memory["hidden"] * shown * leave * (1.0 - leave),
            of_cell * enter * (1.0 - candidate * candidate),
        ],
        axis=-1,
    )
    return of_gates, of_gates, {"cell": of_cell * forget, "hidden": jnp.zeros_like(of_cell)}


GRU_GATES = Gates(_gru_step, _gru_back)
LSTM_GATES = Gates(_lstm_step, _lstm_back)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _along_sequence(
    gates: Gates,
    kernel: jax.Array,
    bias: jax.Array,
    driven: jax.Array,
    memory: dict[str, jax.Array],
    start: dict[str, jax.Array],
    reset: jax.Array,
) -> dict[str, jax.Array]:
    """Memories after each step of a sequence; gradients are taken backwards, not forwards (`jax.jvp`).

    Args:
      gates: Arithmetic of the cell, static.
      kernel, bias: Matrix and bias of the products with the hidden values, `[size, gates * size]` and
        `[gates * size]`.
      driven: Inputs of the gates from the features, `[T, gates * size]`.
      memory, start: Memory before the first step, and at the start of an episode, leaves `[size]`; gradients do not
        reach the latter, which is a constant.
      reset: Whether the memory is reset before each step, bool `[T]`.

    Returns:
      Leaves `[T, size]`.
    """
    return _gated_forward(gates, kernel, bias, driven, memory, start, reset)[0]


def _gated_forward(
    gates: Gates, kernel: jax.Array, bias: jax.Array, driven: jax.Array, memory: Memory, start: PyTree, reset: jax.Array
) -> tuple[Any, Any]:
    def one_step(before: Memory, now: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        driven, reset_next = now
        after, saved = gates.step(driven, before["hidden"] @ kernel + bias, before)
        # One array, since each that is written costs time.
        return remembered(after, start, reset_next), jnp.concatenate([*(after[name] for name in names), *saved])

    names = sorted(memory)
    resets = jnp.concatenate([reset, jnp.zeros((1,), bool)])
    packed = scan(one_step, remembered(memory, start, resets[0]), (driven, resets[1:]))[1]
    parts = jnp.split(packed, packed.shape[-1] // kernel.shape[0], axis=-1)
    memories = dict(zip(names, parts[: len(names)], strict=True))
    return memories, (kernel, memories, memory, start, packed[:, kernel.shape[0] * len(memory) :], reset)


def _gated_backward(gates: Gates, residuals: PyTree, of_memories: PyTree) -> tuple[Any, ...]:
    kernel, memories, memory, start, saved, reset = residuals
    size, num_driven = kernel.shape
    earlier = jax.tree.map(lambda first, leaf: jnp.concatenate([first[None], leaf])[:-1], memory, memories)
    before = remembered(earlier, start, reset)

    def backwards(later: PyTree, now: PyTree) -> tuple[Any, Any]:
        of_memory, before, saved, reset = now
        of_memory = jax.tree.map(jnp.add, of_memory, later)
        of_driven, of_recalled, of_before = gates.back(jnp.split(saved, saved.shape[-1] // size), before, of_memory)
        of_before["hidden"] += of_recalled @ kernel.T
        of_earlier = jax.tree.map(lambda leaf: jnp.where(reset, 0.0, leaf), of_before)
        return of_earlier, jnp.concatenate([of_driven, of_recalled])

    nothing = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), of_memories)
    of_memory, packed = scan(backwards, nothing, (of_memories, before, saved, reset), reverse=True)
    of_driven, of_recalled = packed[:, :num_driven], packed[:, num_driven:]
    return before["hidden"].T @ of_recalled, jnp.sum(of_recalled, axis=0), of_driven, of_memory, None, None


_along_sequence.defvjp(_gated_forward, _gated_backward)
