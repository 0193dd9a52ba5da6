"""Sequences of steps by which networks with a memory learn, whose steps are the rows of a batch."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.learning.recurrent import first_memory, step_over, unroll_over
from jaxrl.learning.rollout import remembered
from jaxrl.pytrees import Action, Memory, Params, PyTree

__all__ = ["Recalled", "Sequences", "after_windows", "in_order", "recalled_outputs", "unroll_rows"]


@struct.dataclass
class Sequences:
    """Sequences of steps in order of time. Those after the burn-in are the rows of a batch, `[T * B, *A, ...]`.

    Attributes:
      inputs: Inputs of a network, leaves `[burn_in + T, B, *A, ...]`.
      reset: Whether an episode began with the step, bool `[burn_in + T, B, *A]`.
      memory: Memories before the first step, leaves `[B, *A, ...]`; of C networks `[C, B, *A, ...]`.
      action: Actions taken, `[burn_in + T, B, *A, ...]`, None if not required.
      burn_in: Number of first steps, static, from which only memories are computed, without gradients.
      last: Rows of the last steps of windows that begin at each row, int32 `[T * B]`; None for windows of one step.
    """

    inputs: Any
    reset: jax.Array
    memory: Memory
    action: Any = None
    burn_in: int = struct.field(pytree_node=False, default=0)
    last: jax.Array | None = None

    def rows(self) -> Any:
        """Inputs of the steps after the burn-in, leaves `[T * B, *A, ...]`."""
        return jax.tree.map(lambda leaf: _as_rows(leaf[self.burn_in :]), self.inputs)


class Recalled(NamedTuple):
    """Inputs of a network at single steps, leaves `[*B, ...]`, and the memories before them.

    Attributes:
      inputs: Inputs, leaves `[*B, ...]`.
      memory: Memories, leaves `[*B, ...]`; of C networks `[C, *B, ...]`.
    """

    inputs: Any
    memory: Memory


def in_order(
    steps: PyTree,
    done: jax.Array,
    memory: Memory,
    action: Action = None,
    burn_in: int = 0,
    last: jax.Array | None = None,
) -> Sequences:
    """Sequences of the steps of a rollout.

    Args:
      steps: Inputs of a network, leaves `[T, N, *A, ...]`.
      done: Whether an agent's episode ended with the step, bool `[T, N, *A]`.
      memory: Memories before the first step, leaves `[N, *A, ...]`, reset if an episode began with it.
      action: Actions taken, `[T, N, *A, ...]`, None if not required.
      burn_in: Number of first steps from which only memories are computed, static.
      last: Rows of the last steps of windows, as in `Sequences`.
    """
    chex.assert_tree_shape_prefix(steps, done.shape, custom_message="steps, done")
    return Sequences(steps, jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]]), memory, action, burn_in, last)


def after_windows(network: Any, params: Params, sequences: Sequences) -> Memory:
    """Memories after the last steps of the windows of each row, leaves `[T * B, *A, ...]`, as of `unroll_rows`."""
    reset, last = sequences.reset, sequences.last
    num_rows = (len(reset) - sequences.burn_in) * reset.shape[1]
    chex.assert_shape([] if last is None else [last], (num_rows,), custom_message="last, reset")
    after = unroll_rows(network, params, sequences)[2]
    return after if last is None else jax.tree.map(lambda leaf: leaf[last], after)


def unroll_rows(network: Any, params: Params, sequences: Sequences) -> tuple[Any, Memory, Memory]:
    """Unroll a recurrent network along sequences whose steps are the rows of a batch.

    Args:
      network: Recurrent network `(inputs, memory) -> (outputs, memory)`.
      params: Parameters of the network.
      sequences: Sequences, with memories of one network.

    Returns:
      Outputs, and the memories before and after each step, leaves `[T * B, *A, ...]`. The memory after the last step of
      an episode is that of the episode, not yet reset.
    """
    memory, count = sequences.memory, sequences.burn_in
    chex.assert_tree_shape_prefix(memory, sequences.reset.shape[1:], custom_message="memory, reset")
    inputs = jax.tree.map(lambda leaf: leaf[count:], sequences.inputs)
    if count:
        earlier = jax.tree.map(lambda leaf: leaf[:count], sequences.inputs)
        _, memories = unroll_over(network, jax.lax.stop_gradient(params), earlier, memory, sequences.reset[:count])
        memory = jax.lax.stop_gradient(jax.tree.map(lambda leaf: leaf[-1], memories))
    reset = sequences.reset[count:]
    outputs, after = unroll_over(network, params, inputs, memory, reset)
    before = jax.tree.map(lambda first, leaf: jnp.concatenate([first[None], leaf[:-1]]), memory, after)
    before = remembered(before, first_memory(network), reset)
    outputs, before, after = jax.tree.map(_as_rows, (outputs, before, after))
    return outputs, before, after


def recalled_outputs(network: Any, params: Params, inputs: PyTree, num_axes: int) -> tuple[Any, Memory]:
    """Outputs of a recurrent network, and the memories after each input, leaves `[*B, ...]`.

    Args:
      network: Recurrent network `(inputs, memory) -> (outputs, memory)`.
      params: Parameters of the network.
      inputs: `Sequences`, or `Recalled` inputs.
      num_axes: Number of leading axes `[*B]` of recalled inputs.
    """
    if isinstance(inputs, Recalled):
        shape = jax.tree.leaves(inputs.inputs)[0].shape[:num_axes]
        chex.assert_tree_shape_prefix(inputs.memory, shape, custom_message="memory, inputs")
        return step_over(network, params, inputs.inputs, inputs.memory, num_axes)
    outputs, _, after = unroll_rows(network, params, inputs)
    return outputs, after


def _as_rows(leaf: jax.Array) -> jax.Array:
    return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])
