"""The three compiled programs of a training call, kept for the next one."""

import contextlib
import gc
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.runtime.layout import Layout, compile_programs, over_blocks, run_on_devices
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.memory import tight


class Programs(NamedTuple):
    """Compiled for blocks of one width; runs and arguments are lists over devices, of lists of blocks of any number.

    Attributes:
      init: `(arguments) -> runs`.
      advance: `(runs, arguments, count) -> runs`; the runs given are updated in place.
      evaluate: `(runs, arguments) -> (runs, metrics, policies)`, likewise.
      metric_names: of an evaluation.
      run_shapes: of the runs of one block.
      evaluated_shapes: of the metrics and the policies of one block.
      executables: `{name: [one for each device]}` of one block, to be asked for their memory and their text.
    """

    init: Callable[[Any], Any]
    advance: Callable[[Any, Any, int], Any]
    evaluate: Callable[[Any, Any], tuple[Any, Any, Any]]
    metric_names: tuple[str, ...]
    run_shapes: Any
    evaluated_shapes: tuple[Any, Any]
    executables: Mapping[str, Sequence[Any]]


# The programs of the last few calls, so that another one with other seeds or values compiles nothing.
_COMPILED: OrderedDict[Any, Programs] = OrderedDict()
_KEPT_PROGRAMS = 16
_most = [_KEPT_PROGRAMS]
_compiled = [0]


def compilations() -> int:
    """How often this process has compiled the programs of a call."""
    return _compiled[0]


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
    """Keeps as many programs as a call needs that goes from one to the other and back."""
    before = _most[0]
    _most[0] = max(before, count)
    try:
        yield
    finally:
        _most[0] = before


def compiled_programs(
    loop: Loop, identity: Hashable, layout: Layout, arguments: Any, reserved: Collection[str]
) -> Programs:
    """The programs of a training call, compiled under the precision in force, or found from an earlier call.

    Args:
      loop: of one run.
      identity: of the loop; loops that do the same have equal ones.
      layout: of the runs.
      arguments: `(seed, hparams, env_params)` of one block, or their shapes.
      reserved: names that no metric may have.

    Raises:
      ValueError: a metric has a reserved name.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    traced_under = [jax.config.values[f"jax_{name}"] for name in ("default_matmul_precision", "threefry_partitionable")]
    key = (identity, layout.block, layout.devices, *traced_under, structure, shapes)
    if key not in _COMPILED:
        with contextlib.nullcontext() if tight() else _collection_paused():
            _COMPILED[key] = _compile(loop, layout, arguments, reserved)
        _compiled[0] += 1
    _COMPILED.move_to_end(key)
    while len(_COMPILED) > _most[0]:
        _COMPILED.popitem(last=False)
    refuse_clashes(_COMPILED[key].metric_names, reserved)
    return _COMPILED[key]


@contextlib.contextmanager
def _collection_paused() -> Iterator[None]:
    """No garbage collection while programs are made: tracing makes many objects that stay, and each pass visits all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def forget(but: Programs | None = None) -> bool:
    """Lets go of the programs of earlier calls but one, for the memory that they take; whether there were any."""
    others = [key for key, kept in _COMPILED.items() if kept is not but]
    for key in others:
        del _COMPILED[key]
    if others:
        gc.collect()  # what was traced refers to itself
    return bool(others)


def refuse_clashes(metric_names: Collection[str], reserved: Collection[str]) -> None:
    """Refuse metrics that have the name of something else in a result."""
    clashes = sorted(set(metric_names) & set(reserved))
    if clashes:
        raise ValueError(f"metrics and swept paths must differ in name, got {', '.join(clashes)} for both")


def _compile(loop: Loop, layout: Layout, arguments: Any, reserved: Collection[str]) -> Programs:
    def init(arguments: Any) -> Any:
        seed, hparams, env_params = arguments
        return loop.init(jax.random.key(seed), hparams, env_params)

    def advance(run: Any, arguments: Any, count: jax.Array) -> Any:
        seed, hparams, env_params = arguments
        return loop.advance(run, jax.random.key(seed), hparams, env_params, count)

    def evaluate(run: Any, arguments: Any) -> Any:
        seed, hparams, env_params = arguments
        run, metrics = loop.evaluate(run, jax.random.key(seed), hparams, env_params)
        return run, metrics, loop.keep(run, hparams)

    jit_init = jax.jit(jax.vmap(init))
    jit_advance = jax.jit(jax.vmap(advance, in_axes=(0, 0, None)), donate_argnums=0)
    jit_evaluate = jax.jit(jax.vmap(evaluate), donate_argnums=0)
    shapes = jax.eval_shape(jit_init, arguments)
    _, metrics, kept = jax.eval_shape(jit_evaluate, shapes, arguments)
    refuse_clashes(metrics, reserved)

    def at(device: Any, tree: Any) -> Any:
        sharding = jax.sharding.SingleDeviceSharding(device)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)

    def lower_init(device: Any) -> Any:
        return jit_init.lower(at(device, arguments))

    def lower_advance(device: Any) -> Any:
        return jit_advance.lower(at(device, shapes), at(device, arguments), np.int32(1))

    def lower_evaluate(device: Any) -> Any:
        return jit_evaluate.lower(at(device, shapes), at(device, arguments))

    # First what takes longest: it is compiled while the others are lowered.
    advances, inits, evaluates = compile_programs([lower_advance, lower_init, lower_evaluate], layout.devices)

    def evaluate_all(runs: Any, arguments: Any) -> tuple[Any, Any, Any]:
        each = run_on_devices([over_blocks(one) for one in evaluates], runs, arguments)
        runs, metrics, policies = ([[block[i] for block in part] for part in each] for i in range(3))
        return runs, metrics, policies

    init_all = [over_blocks(one) for one in inits]
    advance_all = [over_blocks(one, num_shared=1) for one in advances]
    return Programs(
        init=lambda arguments: run_on_devices(init_all, arguments),
        advance=lambda runs, arguments, count: run_on_devices(
            advance_all, runs, arguments, [np.int32(count)] * len(advance_all)
        ),
        evaluate=evaluate_all,
        metric_names=tuple(metrics),
        run_shapes=shapes,
        evaluated_shapes=(metrics, kept),
        executables={"init": inits, "advance": advances, "evaluate": evaluates},
    )
