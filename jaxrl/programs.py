"""The three compiled programs of a training call, kept for the next one."""

import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.layout import Layout, compile_programs, in_place, over_runs, run_on_devices
from jaxrl.loop import Loop


class Programs(NamedTuple):
    """Compiled; runs and arguments are lists over devices.

    Attributes:
      init: `(arguments) -> runs`.
      advance: `(runs, arguments, count) -> runs`; the runs given are updated in place.
      evaluate: `(runs, arguments) -> (runs, metrics, policies)`, likewise.
      metric_names: of an evaluation.
      run_shapes: of the runs of one device.
      evaluated_shapes: of the metrics and the policies of one device.
      executables: `{name: [one for each device]}`, to be asked for their memory and their text.
    """

    init: Callable[[Any], Any]
    advance: Callable[[Any, Any, int], Any]
    evaluate: Callable[[Any, Any], tuple[Any, Any, Any]]
    metric_names: tuple[str, ...]
    run_shapes: Any
    evaluated_shapes: tuple[Any, Any]
    executables: Mapping[str, Sequence[Any]]


# A call of a program goes through as many blocks as take about this long. While a program runs on a
# CPU, what its steps leave behind adds up, some 80 KiB an iteration of a run of PPO, until it returns.
SECONDS_PER_CALL = 0.5

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
    refuse_clashes(_COMPILED[key].metric_names, reserved)
    return _COMPILED[key]


def forget(but: Programs | None = None) -> bool:
    """Lets go of the programs of earlier calls but one, for the memory that they take; whether there were any."""
    others = [key for key, kept in _COMPILED.items() if kept is not but]
    for key in others:
        del _COMPILED[key]
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
        return run, metrics, loop.keep(run)

    def evaluate_into(given: Any, arguments: Any) -> Any:
        return evaluate(given[0], arguments)

    num_blocks = np.int32(layout.num_blocks)
    jit_init = jax.jit(over_runs(init, layout.block))
    jit_advance = jax.jit(in_place(advance, layout.block, num_shared=1), donate_argnums=0)
    jit_evaluate = jax.jit(in_place(evaluate_into, layout.block), donate_argnums=0)
    shapes = jax.eval_shape(jit_init, arguments[0], num_blocks)
    _, metrics, kept = jax.eval_shape(jax.vmap(evaluate), shapes, arguments[0])
    refuse_clashes(metrics, reserved)

    def blank() -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (metrics, kept))

    def at(device: Any, tree: Any) -> Any:
        sharding = jax.sharding.SingleDeviceSharding(device)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)

    def blank_on(device: Any) -> Any:
        return jax.jit(blank, out_shardings=jax.sharding.SingleDeviceSharding(device)).lower()

    first, last = np.int32(0), np.int32(1)
    inits, advances, blanks, evaluates = compile_programs(
        [
            lambda device: jit_init.lower(at(device, arguments[0]), num_blocks),
            lambda device: jit_advance.lower(at(device, shapes), at(device, arguments[0]), np.int32(1), first, last),
            blank_on,
            lambda device: jit_evaluate.lower(
                at(device, (shapes, metrics, kept)), at(device, arguments[0]), first, last
            ),
        ],
        layout.devices,
    )
    advance_all = [_by_pace(executable, layout.num_blocks) for executable in advances]
    evaluate_all = [_by_pace(executable, layout.num_blocks) for executable in evaluates]

    def everywhere(value: Any) -> list[Any]:
        return [value] * len(layout.devices)

    def evaluated(runs: Any, arguments: Any) -> tuple[Any, Any, Any]:
        def one(blank: Any, walk: Any) -> Any:
            return lambda runs, arguments, count: walk((runs, *blank()), arguments, count)

        each = [one(blank, walk) for blank, walk in zip(blanks, evaluate_all, strict=True)]
        runs, metrics, policies = zip(*run_on_devices(each, runs, arguments, everywhere(None)), strict=True)
        return runs, metrics, policies

    return Programs(
        init=lambda arguments: run_on_devices(inits, arguments, everywhere(num_blocks)),
        advance=lambda runs, arguments, count: run_on_devices(advance_all, runs, arguments, everywhere(count)),
        evaluate=evaluated,
        metric_names=tuple(metrics),
        run_shapes=shapes,
        evaluated_shapes=(metrics, kept),
        executables={"init": inits, "advance": advances, "blank": blanks, "evaluate": evaluates},
    )


def _by_pace(executable: Any, num_blocks: int) -> Callable[[Any, Any, int | None], Any]:
    """A program over all blocks of its device, in calls of about `SECONDS_PER_CALL`.

    Returns:
      `(runs, arguments, count) -> runs`; without a count, for a program that has none.
    """
    seconds = [math.inf]  # of one block for each of the count, as the last call took them

    def walk(runs: Any, arguments: Any, count: int | None) -> Any:
        trips = () if count is None else (np.int32(count),)
        first = 0
        while first < num_blocks:
            size = max(int(SECONDS_PER_CALL / (seconds[0] * (count or 1))), 1)
            last = min(first + size, num_blocks)
            started = time.perf_counter()
            runs = jax.block_until_ready(executable(runs, arguments, *trips, np.int32(first), np.int32(last)))
            seconds[0] = max((time.perf_counter() - started) / ((last - first) * (count or 1)), 1e-9)
            first = last
        return runs

    return walk
