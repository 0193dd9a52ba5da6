"""One run whose environments are distributed over all devices, including those of other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from envs.errors import UserValueError
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import PyTree, State
from jaxrl.runtime.call import Call
from jaxrl.runtime.hosts.lost_processes import in_step
from jaxrl.runtime.hosts.processes import broadcast_array
from jaxrl.runtime.layout import compiler_options
from jaxrl.runtime.loop import Run, make_loop
from jaxrl.runtime.programs import cached, functions_of, refuse_clashes
from jaxrl.runtime.runs import in_force, key_words, like_shape

AXIS = "environments"


class _Programs(NamedTuple):
    """Programs compiled for the devices of a mesh; a run is a pytree of arrays distributed over it."""

    init: Any
    advance: Any
    evaluate: Any
    keep: Callable[[Any, Any], Any]
    metric_shapes: Mapping[str, Any]
    run_shapes: Any


class ShardedRun:
    """One run between two chunks: environments divided equally among the devices, all other state replicated.

    Has the methods of `Runs`; every process calls the same methods in the same order. Gradients, moments and
    running statistics are those of all samples.

    Args:
      call: Call of one run.
      devices: Devices of the run, in the same order in every process.
      precision: Precision of matrix products.

    Attributes:
      iteration: Number of iterations done.

    Raises:
      ValueError: Environments or minibatches do not divide among the devices, or a metric has a
        reserved name.
    """

    def __init__(self, call: Call, devices: Sequence[Any], precision: str = "default") -> None:
        self.iteration = 0
        self._mesh = Mesh(np.asarray(devices), (AXIS,))
        self._arguments = self._placed(jax.tree.map(lambda leaf: np.asarray(leaf)[0], call.arguments()))
        with in_force(precision):
            self._programs = cached(
                (call.identity, self._mesh), self._arguments, lambda: _compiled(call, self._mesh, self._arguments)
            )
        refuse_clashes(self._programs.metric_shapes, call.reserved)
        self._run: Any = None

    @property
    def shapes(self) -> tuple[Any, dict[str, jax.ShapeDtypeStruct]]:
        """Shapes of `states()`, and of the metrics of `evaluate()`."""
        words = jax.eval_shape(lambda run: jax.tree.map(key_words, run), self._programs.run_shapes)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), (words, dict(self._programs.metric_shapes))
        )

    def advance(self, count: int) -> None:
        """Advance the run by `count` iterations, and wait for them."""
        with in_step():
            self._run = jax.block_until_ready(
                self._programs.advance(
                    self._started(), self._arguments, self._placed(self.iteration), self._placed(count)
                )
            )
        self.iteration += count

    def evaluate(self) -> tuple[dict[str, np.ndarray], Any]:
        """Metrics since the previous evaluation, and the policy to keep: leaves `[1, ...]` on the host."""
        with in_step():
            self._run, metrics, kept = self._programs.evaluate(
                self._started(), self._arguments, self._placed(self.iteration)
            )
            return jax.tree.map(_one_of_one, (metrics, kept))

    def states(self) -> Any:
        """Whole state on the host, leaves `[1, ...]`, including the environments of all processes; keys as words."""

        def whole(leaf: jax.Array) -> np.ndarray:
            words = key_words(leaf)
            if not (words.is_fully_addressable or words.is_fully_replicated):
                # Leaf by leaf: no device must hold all environments at once.
                words = jax.jit(lambda x: x, out_shardings=NamedSharding(self._mesh, PartitionSpec()))(words)
            return _one_of_one(words)

        with in_step():
            return jax.tree.map(whole, self._started())

    def kept(self) -> Any:
        """Current policy that a result keeps, leaves `[1, ...]` on the host."""
        return jax.tree.map(_one_of_one, self._programs.keep(self._started(), self._arguments[1]))

    def put(self, states: State, iteration: int) -> None:
        """Set the run to states that `states()` returned, on any number of devices.

        Args:
          states: States in process 0; None in others.
          iteration: Iteration of the states.

        Raises:
          ValueError: The states are those of another algorithm or network.
        """
        shapes, structure = jax.tree.flatten(self._programs.run_shapes)
        words = [jax.eval_shape(key_words, shape) for shape in shapes]
        checked = [None] * len(words) if states is None else self._checked(states, words)
        leaves = []
        for leaf, word, shape in zip(checked, words, shapes, strict=True):
            host = broadcast_array(leaf, word.shape, word.dtype) if jax.process_count() > 1 else leaf
            leaves.append(like_shape(_array(host, shape.sharding), shape))
        self._run, self.iteration = structure.unflatten(leaves), iteration

    def _checked(self, states: State, words: Sequence[Any]) -> list[np.ndarray]:
        leaves = [np.asarray(leaf)[0] for leaf in jax.tree.leaves(states)]
        got = [(leaf.shape, leaf.dtype) for leaf in leaves]
        expected = [(word.shape, word.dtype) for word in words]
        if got != expected:
            raise UserValueError(f"states must be those of the same algorithm: they are {got}, not {expected}")
        return leaves

    def _started(self) -> Any:
        if self._run is None:
            self._run = self._programs.init(self._arguments)
        return self._run

    def _placed(self, tree: PyTree) -> Any:
        """Replicate a pytree that is the same in every process over all devices."""
        everywhere = NamedSharding(self._mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: _array(leaf, everywhere), tree)


def _compiled(call: Call, mesh: Mesh, arguments: PyTree) -> _Programs:
    assert call.algo.sharded is not None
    sharded = call.algo.sharded(EnvShards(AXIS, mesh.size))
    loop = make_loop(sharded.algo, int(call.attrs["eval_episodes"]))
    init, advance, evaluate = functions_of(loop)
    flags: tuple[Any, ...] = (sharded.of_each_env, False, False)
    of_each_env = Run(*flags)
    run, rest = jax.tree.map(_spec, of_each_env), PartitionSpec()
    # Without the check of varying axes, which environments' scans do not pass.
    shard = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
    jit_init = jax.jit(shard(init, in_specs=rest, out_specs=run))
    jit_advance = jax.jit(shard(advance, in_specs=(run, rest, rest, rest), out_specs=run), donate_argnums=0)
    jit_evaluate = jax.jit(shard(evaluate, in_specs=(run, rest, rest), out_specs=(run, rest, rest)), donate_argnums=0)

    def on_mesh(of_each_env: bool, leaf: PyTree) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, _spec(of_each_env)))

    number = on_mesh(False, np.zeros((), np.int32))  # of iterations
    shapes = jax.eval_shape(jit_init, arguments)
    shapes = jax.tree.map(on_mesh, jax.tree.broadcast(of_each_env, shapes), shapes)
    options = compiler_options(mesh.devices.flat[0])
    return _Programs(
        init=jit_init.lower(arguments).compile(options),
        advance=jit_advance.lower(shapes, arguments, number, number).compile(options),
        evaluate=jit_evaluate.lower(shapes, arguments, number).compile(options),
        keep=loop.keep,
        metric_shapes=jax.eval_shape(jit_evaluate, shapes, arguments, number)[1],
        run_shapes=shapes,
    )


def _spec(of_each_env: bool) -> PartitionSpec:
    return PartitionSpec(AXIS) if of_each_env else PartitionSpec()


def _array(host: Any, at: NamedSharding) -> jax.Array:
    array = np.asarray(host)
    array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return jax.make_array_from_callback(array.shape, at, lambda index: jnp.asarray(array[index]))


def _one_of_one(leaf: jax.Array) -> np.ndarray:
    return np.asarray(leaf)[None]
