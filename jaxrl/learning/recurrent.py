"""Recurrent networks: an encoder, a memory and heads; stepping and unrolling of custom recurrent networks.

A recurrent network is a flax module that is called as `(obs, memory) -> (outputs, value, memory)` on one observation
and the memory of one agent, and has a method `initial_memory() -> memory`, the memory at the start of an episode: a
pytree of real arrays. In algorithms without a value next to the outputs, it returns `(outputs, memory)`. It may have a
method `unroll(params, obs, memory, reset) -> (outputs, value, memories)` that does the same for a sequence, leaves
`[T, ...]`, faster than step by step; `reset`, bool `[T]`, is True for steps before which the memory is reset to the
initial one, and `memories` are those after each step. A memory cell has the same interface with features instead of
observations: `(features, memory) -> (features, memory)`, with `initial_memory` and optionally `unroll`.
"""

import inspect
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from envs.errors import UserTypeError, UserValueError
from envs.loops import scan
from jaxrl.learning.networks import last_layers, perceptron, returned
from jaxrl.learning.rollout import remembered
from jaxrl.pytrees import Memory, Observation, Params, PyTree

__all__ = [
    "Heads",
    "RecurrentActorCritic",
    "RecurrentNetwork",
    "check_recurrent",
    "check_remembering",
    "first_memory",
    "is_recurrent",
    "part_of",
    "step_over",
    "unroll",
    "unroll_by_steps",
    "unroll_over",
]


class Heads(nn.Module):
    """Two perceptrons, of the actor and of the critic, from the features of one observation.

    Attributes:
      num_outputs: Number of outputs that the action head takes (`ActionHead.num_outputs`).
      hidden: Widths of the hidden layers of each.
      activation: Name in `networks.ACTIVATIONS`.
      num_values: Number of values of the critic; None for one, without an axis.
    """

    num_outputs: int
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    num_values: int | None = None

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Outputs of the actor `[num_outputs]` and the value `[]`, or values `[num_values]`."""
        chex.assert_rank(features, 1, custom_message="features")
        actor, critic = (perceptron(features, self.hidden, self.activation, name) for name in ("actor", "critic"))
        return last_layers(actor, critic, self.num_outputs, self.num_values)


class RecurrentActorCritic(nn.Module):
    """An encoder of observations, a memory, and heads: actor and critic share all but the heads.

    Attributes:
      encoder: Module `(obs) -> features [F]`.
      cell: Memory cell: one of `cells.CELLS`, `cells.FlaxCell` of a cell of flax, or a custom one.
      heads: Module `(features) -> (outputs, value)`.
    """

    encoder: nn.Module
    cell: Any
    heads: Any

    def initial_memory(self) -> Memory:
        """Memory of one agent at the start of an episode."""
        return self.cell.initial_memory()

    def __call__(self, obs: Observation, memory: Memory) -> tuple[jax.Array, jax.Array, Memory]:
        """Outputs, value and the memory after one observation."""
        features, memory = self.cell(self.encoder(obs), memory)
        outputs, value = self.heads(features)
        return outputs, value, memory

    def unroll(
        self, params: Params, obs: Observation, memory: Memory, reset: jax.Array
    ) -> tuple[jax.Array, jax.Array, Memory]:
        """Outputs, values and memories after each observation of a sequence; only the cell is sequential."""
        chex.assert_rank(reset, 1, custom_message="reset")
        encoded = jax.vmap(self.encoder.apply, in_axes=(None, 0))(part_of(params, "encoder"), obs)
        features, memories = unroll(self.cell, part_of(params, "cell"), encoded, memory, reset)
        outputs, value = jax.vmap(self.heads.apply, in_axes=(None, 0))(part_of(params, "heads"), features)
        return outputs, value, memories


class RecurrentNetwork(nn.Module):
    """An encoder, a memory, and last layers, `(inputs, memory) -> (outputs, memory)`: a policy, or values of actions.

    Attributes:
      encoder: Module `(inputs) -> features [F]`.
      cell: Memory cell, as in `RecurrentActorCritic`.
      head: Module `(features) -> outputs`.
    """

    encoder: nn.Module
    cell: Any
    head: nn.Module

    def initial_memory(self) -> Memory:
        """Memory of one agent at the start of an episode."""
        return self.cell.initial_memory()

    def __call__(self, inputs: PyTree, memory: Memory) -> tuple[jax.Array, Memory]:
        """Outputs and the memory after one input."""
        features, memory = self.cell(self.encoder(inputs), memory)
        outputs: Any = self.head(features)
        return outputs, memory

    def unroll(self, params: Params, inputs: PyTree, memory: Memory, reset: jax.Array) -> tuple[jax.Array, Memory]:
        """Outputs and memories after each input of a sequence; only the cell is sequential."""
        chex.assert_rank(reset, 1, custom_message="reset")
        encoded = jax.vmap(self.encoder.apply, in_axes=(None, 0))(part_of(params, "encoder"), inputs)
        features, memories = unroll(self.cell, part_of(params, "cell"), encoded, memory, reset)
        outputs: Any = jax.vmap(self.head.apply, in_axes=(None, 0))(part_of(params, "head"), features)
        return outputs, memories


def first_memory(network: Any) -> Memory:
    """Memory of one agent at the start of an episode, () for a network without memory."""
    return jax.tree.map(jnp.asarray, network.initial_memory()) if is_recurrent(network) else ()


def part_of(params: Params, name: str) -> Params:
    """Parameters of one part of a module; a part without parameters has no entry."""
    parts: Any = params["params"]
    return {"params": parts[name]} if name in parts else {}


def is_recurrent(network: Any) -> bool:
    """Whether a network is recurrent, that is, its class has a method `initial_memory`."""
    return inspect.isfunction(getattr(type(network), "initial_memory", None))


def step_over(network: Any, params: Params, obs: Observation, memory: Memory, num_axes: int) -> Any:
    """Results of a recurrent network for observations and memories with `num_axes` leading axes."""
    function = network.apply
    for _ in range(num_axes):
        function = jax.vmap(function, in_axes=(None, 0, 0))
    return function(params, obs, memory)


def unroll_over(network: Any, params: Params, obs: Observation, memory: Memory, reset: jax.Array) -> Any:
    """Unroll a recurrent network along sequences.

    Args:
      network: Recurrent network.
      params: Parameters of the network.
      obs: Observations, leaves `[T, *B, ...]`.
      memory: Memories before the first observation, leaves `[*B, ...]`.
      reset: Whether the memory is reset to the start before each observation, bool `[T, *B]`.

    Returns:
      Results of the network, leaves `[T, *B, ...]`; the last one is the memories after each observation.
    """
    chex.assert_tree_shape_prefix(obs, reset.shape, custom_message="obs, reset")
    chex.assert_tree_shape_prefix(memory, reset.shape[1:], custom_message="memory, reset")

    def function(params: Params, obs: Observation, memory: Memory, reset: jax.Array) -> Any:
        return unroll(network, params, obs, memory, reset)

    for _ in range(reset.ndim - 1):
        function = jax.vmap(function, in_axes=(None, 1, 0, 1), out_axes=1)
    return function(params, obs, memory, reset)


def unroll(module: Any, params: Params, inputs: PyTree, memory: Memory, reset: jax.Array) -> Any:
    """Unroll a network or a cell along one sequence, by its method `unroll` if it has one.

    Args:
      module: Recurrent network or memory cell.
      params: Parameters of the module.
      inputs: Observations or features, leaves `[T, ...]`.
      memory: Memory before the first input.
      reset: Whether the memory is reset to the start before each input, bool `[T]`.
    """
    if hasattr(module, "unroll"):
        return module.unroll(params, inputs, memory, reset)
    return unroll_by_steps(module, params, inputs, memory, reset)


def unroll_by_steps(module: Any, params: Params, inputs: PyTree, memory: Memory, reset: jax.Array) -> Any:
    """Unroll a recurrent network or a cell along one sequence, step by step.

    Args:
      module: Recurrent network or memory cell.
      params: Parameters of the module.
      inputs: Observations or features, leaves `[T, ...]`.
      memory: Memory before the first input.
      reset: Whether the memory is reset to the start before each input, bool `[T]`.

    Returns:
      Outputs of the module, leaves `[T, ...]`; the last one is the memories after each step.
    """
    chex.assert_rank(reset, 1, custom_message="reset")
    chex.assert_tree_shape_prefix(inputs, reset.shape, custom_message="inputs, reset")
    start = module.initial_memory()

    def step(memory: Memory, now: PyTree) -> tuple[Memory, Any]:
        inputs, reset = now
        results = module.apply(params, inputs, remembered(memory, start, reset))
        return results[-1], results

    return scan(step, memory, (inputs, reset))[1]


def check_recurrent(network: Any, obs: Observation, num_outputs: int, num_values: int | None = None) -> None:
    """Reject a recurrent network that the algorithm cannot use, before anything is compiled.

    Args:
      network: Flax module with a method `initial_memory`.
      obs: Shapes of one observation.
      num_outputs: Number of outputs that the action head needs.
      num_values: Number of values that the critic needs; None for one, without an axis.

    Raises:
      TypeError, ValueError: The outputs do not have the required structure, shapes or types.
    """
    values = "value []" if num_values is None else f"values [{num_values}], one for each head of the mixture critic"
    takes = f"(outputs [{num_outputs}], {values}, memory) for one observation and memory"
    shapes = ((num_outputs,), () if num_values is None else (num_values,))
    check_remembering("network", network, {"obs": obs}, takes, shapes)


def check_remembering(
    name: str, network: Any, inputs: dict[str, Any], takes: str, required: tuple[tuple[int, ...], ...]
) -> None:
    """Reject a recurrent network whose results differ from the required ones, before anything is compiled.

    Args:
      name: Name of the argument, for error messages.
      network: Flax module with a method `initial_memory`.
      inputs: Shapes of its first argument, by name.
      takes: Results that are required, for error messages.
      required: Shapes of the results before the memory.

    Raises:
      TypeError, ValueError: The results do not have the required structure, shapes or types.
    """
    cell = getattr(network, "cell", None)
    if isinstance(cell, nn.RNNCellBase):
        raise UserTypeError(
            f"cell must have a method initial_memory, got flax's {type(cell).__name__}; use cells.FlaxCell of it"
        )
    start: Any = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, network.initial_memory()))  # pyright: ignore
    if not jax.tree.leaves(start):
        raise UserTypeError(f"{name}.initial_memory() must give a memory of at least one array, got {start!r}")
    for leaf in jax.tree.leaves(start):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise UserTypeError(
                f"{name}.initial_memory() must give real arrays, got {leaf.dtype}{list(leaf.shape)}; "
                "keep real and imaginary parts apart"
            )
    got = returned(name, network, {**inputs, "memory": start})
    if not isinstance(got, tuple) or len(got) != len(required) + 1:
        raise UserTypeError(f"{name} must return {takes}, got {jax.tree.map(jnp.shape, got)}")
    shapes = tuple(getattr(leaf, "shape", type(leaf).__name__) for leaf in got[:-1])
    if shapes != required:
        raise UserValueError(
            f"{name} must return {takes}, got shape{'s' * (len(shapes) > 1)} {' and '.join(map(str, shapes))}"
        )
    before, after = (_described(memory) for memory in (start, got[-1]))
    if before != after:
        raise UserValueError(f"{name} must return a memory like its initial_memory, {before}, got {after}")


def _described(memory: Memory) -> dict[str, str]:
    return {
        jax.tree_util.keystr(path) or "memory": f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree.leaves_with_path(memory)
    }
