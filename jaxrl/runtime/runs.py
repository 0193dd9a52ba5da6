"""Runs that advance together on all devices: their states, and the operations on them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError
from jaxrl.pytrees import PyTree, State
from jaxrl.runtime.call import Call
from jaxrl.runtime.layout import Layout, over_blocks, run_on_devices
from jaxrl.runtime.programs import cached, compiled_programs, over_runs


class Runs:
    """Runs between two chunks, their states on the devices of a layout.

    Results are equal bit for bit at one block width, whichever runs share a block: some runs may be removed,
    others inserted, and states may be moved to the host and back.

    Args:
      call: Call whose programs are compiled here, or cached from an earlier call.
      arguments: Arguments `(seed, hparams, env_params)`, leaves `[layout.num_runs, ...]`.
      layout: Layout of the runs.
      precision: Precision of matrix products.
      states: States of the runs, as returned by `states()`; None initialises them.
      iteration: Iteration of the states.

    Attributes:
      iteration: Number of iterations done by every run.
      compile_seconds: Time in seconds that compiling the programs took.
    """

    def __init__(
        self,
        call: Call,
        arguments: tuple[Any, ...],
        layout: Layout,
        *,
        precision: str = "default",
        states: State = None,
        iteration: int = 0,
    ) -> None:
        self.arguments, self.layout, self.precision = arguments, layout, precision
        self.iteration = iteration
        self._spread = layout.spread(arguments)
        started = time.perf_counter()
        with in_force(precision):
            self._programs = compiled_programs(
                call.loop, call.identity, layout.block, layout.devices, self._spread[0][0], call.reserved
            )
        num_shared = {"init": 0, "advance": 2, "evaluate": 1}  # arguments shared by all blocks: iterations
        self._walks = {
            name: [over_blocks(program, num_shared[name]) for program in programs]
            for name, programs in self.executables.items()
        }
        self._call = call
        self._start = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), call.start)
        self.compile_seconds = time.perf_counter() - started
        self._initial = states
        self._runs: Any = None

    def start(self) -> None:
        """Place the runs on their devices, initialised or with given states; the first `advance` does so too."""
        if self._runs is None:
            begun = self._initial is None
            self._runs = run_on_devices(self._walks["init"], self._spread) if begun else self._placed(self._initial)
            if begun and self._start is not None:
                self._runs = self._warmed(self._runs)
            self._initial = self._start = None

    def advance(self, count: int) -> None:
        """Advance every run by `count` iterations, and wait for them."""
        self.start()
        each = self._on_each(self.iteration), self._on_each(count)
        self._runs = run_on_devices(self._walks["advance"], self._runs, self._spread, *each)
        self.iteration += count

    def evaluate(self) -> tuple[dict[str, np.ndarray], Any]:
        """Metrics since the previous evaluation, and policies to keep: leaves `[num_runs, ...]` on the host."""
        self.start()
        each = run_on_devices(self._walks["evaluate"], self._runs, self._spread, self._on_each(self.iteration))
        self._runs, metrics, kept = ([[block[i] for block in part] for part in each] for i in range(3))
        return dict(self.layout.gather(metrics)), self.layout.gather(kept)

    def states(self) -> Any:
        """States on the host, leaves `[num_runs, ...]`; typed keys as their words, as `states=` accepts them."""
        self.start()
        return self.layout.gather([[jax.tree.map(key_words, block) for block in part] for part in self._runs])

    def kept(self) -> Any:
        """Current policies that a result keeps, leaves `[num_runs, ...]` on the host."""
        self.start()
        keep = self._mapped("keep", self._call.loop.keep, (self._runs[0][0], self._spread[0][0][1]))
        parts = zip(self._runs, self._spread, strict=True)
        return self.layout.gather([[keep(run, at[1]) for run, at in zip(*part, strict=True)] for part in parts])

    def again(self) -> Any:
        """Policies that a result keeps, with returns of a further evaluation; leaves `[num_runs, ...]` on the host."""
        evaluated = self._call.loop.again
        assert evaluated is not None

        def of_one(run: PyTree, arguments: PyTree, iteration: jax.Array) -> Any:
            seed, hparams, env_params = arguments
            return evaluated(run, jax.random.key(seed), hparams, env_params, iteration)

        self.start()
        key, block = ("again", self._call.identity, self.layout.block), self.layout.block
        shapes = (self._runs[0][0], self._spread[0][0])
        with in_force(self.precision):
            program = cached(key, shapes, lambda: jax.jit(over_runs(of_one, block, 2)))
            walks = [over_blocks(program, 1)] * len(self.layout.devices)
            return self.layout.gather(run_on_devices(walks, self._runs, self._spread, self._on_each(self.iteration)))

    def put(self, states: State, iteration: int) -> None:
        """Set the runs to states that `states()` of these or equal runs returned.

        Raises:
          ValueError: The states are those of another algorithm or network.
        """
        self._runs, self._initial, self.iteration = None, states, iteration

    @property
    def executables(self) -> Mapping[str, Sequence[Any]]:
        """Programs of a block by name, one for each thread, for inspection of their memory and text."""
        return {
            name: [of_device[device] for device in self.layout.devices]
            for name, of_device in self._programs.executables.items()
        }

    @property
    def shapes(self) -> tuple[Any, dict[str, jax.ShapeDtypeStruct]]:
        """Shapes of `states()`, and of the metrics of `evaluate()`."""
        words = jax.eval_shape(lambda block: jax.tree.map(key_words, block), self._programs.run_shapes)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.layout.num_runs, *leaf.shape[1:]), leaf.dtype),
            (words, dict(self._programs.evaluated_shapes[0])),
        )

    def _mapped(self, name: str, function: Callable[..., Any], arguments: PyTree) -> Callable[..., Any]:
        """Map a function of one run over a block; the compiled function is cached between calls."""
        key = (name, self._call.identity, self.layout.block)
        return cached(key, arguments, lambda: jax.jit(jax.vmap(function)))

    def _on_each(self, number: int) -> list[np.int32]:
        """Number repeated for every device."""
        return [np.int32(number)] * len(self.layout.devices)

    def _warmed(self, runs: PyTree) -> Any:
        """Initialised runs with the policies that they start from."""
        assert self._call.loop.warm is not None
        policies = self.layout.spread(self._start)
        warm = self._mapped("warm", self._call.loop.warm, (runs[0][0], policies[0][0]))
        return [[warm(*each) for each in zip(*part, strict=True)] for part in zip(runs, policies, strict=True)]

    def _placed(self, states: State) -> Any:
        shapes = self._programs.run_shapes
        expected, got = jax.tree.structure(shapes), jax.tree.structure(states)
        if expected != got:
            raise UserValueError(
                f"states must be those of the same algorithm: they have the structure {got}, not {expected}"
            )
        for (path, shape), state in zip(jax.tree.leaves_with_path(shapes), jax.tree.leaves(states), strict=True):
            takes = jax.eval_shape(key_words, shape)
            if np.shape(state)[1:] != takes.shape[1:] or np.asarray(state).dtype != takes.dtype:
                raise UserValueError(
                    f"states{jax.tree_util.keystr(path)} must be {takes.dtype}{list(takes.shape[1:])} for each run, "
                    f"got {np.asarray(state).dtype}{list(np.shape(state)[1:])}"
                )
        parts = self.layout.spread(states)
        return [[jax.tree.map(like_shape, block, shapes) for block in part] for part in parts]


def in_force(precision: str) -> contextlib.AbstractContextManager[Any]:
    """Context with a precision of matrix products; "default" leaves it to JAX's configuration."""
    return contextlib.nullcontext() if precision == "default" else jax.default_matmul_precision(precision)


def _is_key(leaf: PyTree) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def key_words(leaf: PyTree) -> Any:
    """Key data (`jax.random.key_data`) of a typed key; other leaves unchanged."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def like_shape(leaf: PyTree, shape: Any) -> Any:
    """Inverse of `key_words`: a typed key from its key data, if `shape` is that of a key."""
    if not _is_key(shape):
        return leaf
    return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(jnp.empty((), shape.dtype)))
