"""The three compiled programs of a training call, kept for the next one."""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.layout import Layout, compile_programs, over_runs, run_on_devices
from jaxrl.loop import Loop


class Programs(NamedTuple):
    """Compiled; runs and arguments are lists over devices.

    Attributes:
      init: `(arguments) -> runs`.
      advance: `(runs, arguments, count) -> runs`; the runs given are updated in place.
      evaluate: `(runs, arguments) -> (runs, metrics, policies)`, likewise.
      metric_names: of an evaluation.
      run_shapes: of the runs of one device.
    """

    init: Callable[[Any], Any]
    advance: Callable[[Any, Any, int], Any]
    evaluate: Callable[[Any, Any], tuple[Any, Any, Any]]
    metric_names: tuple[str, ...]
    run_shapes: Any


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
      arguments: `(seed, hparams, env_params)` for each of the layout's devices.
      reserved: names that no metric may have.

    Raises:
      ValueError: a metric has a reserved name.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    precision = jax.config.values["jax_default_matmul_precision"]
    key = (identity, layout._replace(num_runs=0), precision, structure, shapes)
    if key not in _COMPILED:
        _COMPILED[key] = _compile(loop, layout, arguments, reserved)
        _compiled[0] += 1
    _COMPILED.move_to_end(key)
    while len(_COMPILED) > _most[0]:
        _COMPILED.popitem(last=False)
    _refuse(_COMPILED[key].metric_names, reserved)
    return _COMPILED[key]


def _refuse(metric_names: Collection[str], reserved: Collection[str]) -> None:
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
        return run, metrics, loop.keep(run)

    num_blocks = np.int32(layout.num_blocks)
    jit_init = jax.jit(over_runs(init, layout.block))
    jit_advance = jax.jit(over_runs(advance, layout.block, num_shared=1), donate_argnums=0)
    jit_evaluate = jax.jit(over_runs(evaluate, layout.block), donate_argnums=0)
    shapes = jax.eval_shape(jit_init, arguments[0], num_blocks)
    metric_names = tuple(jax.eval_shape(jit_evaluate, shapes, arguments[0], num_blocks)[1])
    _refuse(metric_names, reserved)

    def at(device: Any, tree: Any) -> Any:
        sharding = jax.sharding.SingleDeviceSharding(device)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)

    inits, advances, evaluates = compile_programs(
        [
            lambda device: jit_init.lower(at(device, arguments[0]), num_blocks),
            lambda device: jit_advance.lower(at(device, shapes), at(device, arguments[0]), np.int32(1), num_blocks),
            lambda device: jit_evaluate.lower(at(device, shapes), at(device, arguments[0]), num_blocks),
        ],
        layout.devices,
    )

    def everywhere(value: Any) -> list[Any]:
        return [value] * len(layout.devices)

    def evaluate_all(runs: Any, arguments: Any) -> tuple[Any, Any, Any]:
        runs, metrics, policies = zip(*run_on_devices(evaluates, runs, arguments, everywhere(num_blocks)), strict=True)
        return runs, metrics, policies

    return Programs(
        init=lambda arguments: run_on_devices(inits, arguments, everywhere(num_blocks)),
        advance=lambda runs, arguments, count: run_on_devices(
            advances, runs, arguments, everywhere(np.int32(count)), everywhere(num_blocks)
        ),
        evaluate=evaluate_all,
        metric_names=metric_names,
        run_shapes=shapes,
    )
