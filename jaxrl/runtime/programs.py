"""Cache of compiled programs for later calls: the three programs of a block of runs, and any others."""

import contextlib
import functools
import gc
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from envs.errors import UserValueError
from envs.loops import traced_for, traced_platform
from jaxrl.pytrees import PyTree
from jaxrl.runtime.layout import compile_programs, shapes_on
from jaxrl.runtime.loop import Loop
from jaxrl.runtime.machine.memory import give_back

T = TypeVar("T")

__all__ = [
    "Programs",
    "cached",
    "clear_programs",
    "compilations",
    "compiled_programs",
    "forget",
    "functions_of",
    "over_runs",
    "refuse_clashes",
    "room_for",
]


class Programs(NamedTuple):
    """Programs compiled for one block of runs.

    Attributes:
      executables: Programs `{name: {device: program}}`: `init(arguments) -> runs`,
        `advance(runs, arguments, iteration, count) -> runs` and
        `evaluate(runs, arguments, iteration) -> (runs, metrics, policies)`; the latter two update the runs in place.
      metric_names: Names of the metrics of an evaluation.
      run_shapes: Shapes of the runs.
      evaluated_shapes: Shapes of the metrics and of the policies.
    """

    executables: Mapping[str, Mapping[Any, Any]]
    metric_names: tuple[str, ...]
    run_shapes: Any
    evaluated_shapes: tuple[Any, Any]


class _Cache:
    """Programs of the last calls, so that a call with other seeds or values compiles nothing.

    Attributes:
      programs: Programs by the key that they were compiled for, the most recently used one last.
      most: Largest number of programs that are kept.
      compilations: Number of compilations of this process so far.
    """

    def __init__(self) -> None:
        self.programs: OrderedDict[Hashable, Any] = OrderedDict()
        self.most = 16
        self.compilations = 0


_CACHE = _Cache()


def compilations() -> int:
    """Number of times that this process has compiled the programs of a call."""
    return _CACHE.compilations


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
    """Keep at least `count` programs, for a call that alternates between as many."""
    before = _CACHE.most
    _CACHE.most = max(before, count)
    try:
        yield
    finally:
        _CACHE.most = before


def cached(key: Hashable, arguments: PyTree, compile: Callable[[], T]) -> T:
    """Programs compiled under the current precision, or those of an earlier call.

    Args:
      key: Identity of the programs and of their devices.
      arguments: Pytree with the shapes that they take.
      compile: Function that compiles them.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    settings = ("default_matmul_precision", "threefry_partitionable", "default_prng_impl")
    traced_under = [jax.config.values[f"jax_{name}"] for name in settings]
    whole = (key, *traced_under, structure, shapes)
    if whole not in _CACHE.programs:
        with _collection_paused():
            _CACHE.programs[whole] = compile()
        _CACHE.compilations += 1
    _CACHE.programs.move_to_end(whole)
    while len(_CACHE.programs) > _CACHE.most:
        _CACHE.programs.popitem(last=False)
    return _CACHE.programs[whole]


def compiled_programs(
    loop: Loop, identity: Hashable, block: int, devices: Sequence[Any], arguments: PyTree, reserved: Collection[str]
) -> Programs:
    """Programs of a block of runs, compiled under the current precision, or cached from an earlier call.

    Args:
      loop: Loop of one run.
      identity: Identity of the loop; loops that compute the same have equal ones.
      block: Number of runs of one vmap.
      devices: Devices that execute the programs; repeated ones count once.
      arguments: Arguments `(seed, hparams, env_params)` of one block, or their shapes.
      reserved: Names that no metric may have.

    Raises:
      ValueError: A metric has a reserved name.
    """
    different = tuple(dict.fromkeys(devices))
    programs = cached((identity, block, different), arguments, lambda: _compile(loop, different, arguments, reserved))
    refuse_clashes(programs.metric_names, reserved)
    return programs


@contextlib.contextmanager
def _collection_paused() -> Iterator[None]:
    """Disable garbage collection while tracing, which makes many long-lived objects that each pass would visit."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def forget(but: Any = None) -> bool:
    """Delete the programs of earlier calls except `but`, to free their memory; return whether there were any."""
    others = [key for key, programs in _CACHE.programs.items() if programs is not but]
    for key in others:
        del _CACHE.programs[key]
    if others:
        gc.collect()  # traced functions are in reference cycles
    return bool(others)


def clear_programs() -> None:
    """Release the memory of all compiled programs of this process, for loops over many networks or environments.

    The programs of the last 16 calls are kept otherwise, some 30 MiB for each small network. Results, algorithms and
    policies can be used afterwards as before, and are compiled again. JAX's own caches are cleared as well.
    """
    forget()
    jax.clear_caches()
    gc.collect()
    give_back()


def refuse_clashes(metric_names: Collection[str], reserved: Collection[str]) -> None:
    """Reject metrics whose names have another use in a result."""
    clashes = sorted(set(metric_names) & set(reserved))
    if clashes:
        raise UserValueError(f"metrics and swept paths must differ in name, got {', '.join(clashes)} for both")


def functions_of(loop: Loop) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The functions of one run that programs compile, see `Programs.executables`: init, advance and evaluate."""

    def init(arguments: PyTree) -> Any:
        seed, hparams, env_params = arguments
        return loop.init(jax.random.key(seed), hparams, env_params)

    def advance(run: PyTree, arguments: PyTree, iteration: jax.Array, count: jax.Array) -> Any:
        seed, hparams, env_params = arguments
        return loop.advance(run, jax.random.key(seed), hparams, env_params, iteration, count)

    def evaluate(run: PyTree, arguments: PyTree, iteration: jax.Array) -> Any:
        seed, hparams, env_params = arguments
        run, metrics = loop.evaluate(run, jax.random.key(seed), hparams, env_params, iteration)
        return run, metrics, loop.keep(run, hparams)

    return init, advance, evaluate


def over_runs(function: Callable[..., Any], block: int, num_mapped: int) -> Callable[..., Any]:
    """Map a function of one run over a block.

    The program of a block of one for a CPU has no axis of runs inside: XLA sums and multiplies along an axis of
    length 1 more slowly than without it.

    Args:
      function: Function of `num_mapped` arguments of one run and of arguments that all runs share.
      block: Number of runs of the block.
      num_mapped: Number of arguments that have an axis of runs, which come first.

    Returns:
      Function of the same arguments and with the same results, with an axis of runs `[block, ...]` in front. It has
      the name of `function`, by which profiles and the compilation cache name its program.
    """

    @functools.wraps(function)
    def of_one(*arguments: Any) -> Any:
        runs = jax.tree.map(lambda leaf: jax.lax.squeeze(leaf, [0]), arguments[:num_mapped])
        return jax.tree.map(lambda leaf: jax.lax.expand_dims(leaf, [0]), function(*runs, *arguments[num_mapped:]))

    if block == 1 and traced_platform() == "cpu":
        return of_one

    @functools.wraps(function)
    def of_block(*arguments: Any) -> Any:
        return jax.vmap(function, [0] * num_mapped + [None] * (len(arguments) - num_mapped))(*arguments)

    return of_block


def _compile(loop: Loop, devices: Sequence[Any], arguments: PyTree, reserved: Collection[str]) -> Programs:
    with traced_for(devices[0].platform):
        return _compiled(loop, devices, arguments, reserved)


def _compiled(loop: Loop, devices: Sequence[Any], arguments: PyTree, reserved: Collection[str]) -> Programs:
    init, advance, evaluate = functions_of(loop)
    block = len(jax.tree.leaves(arguments)[0])
    jit_init = jax.jit(over_runs(init, block, 1))
    jit_advance = jax.jit(over_runs(advance, block, 2), donate_argnums=0)
    jit_evaluate = jax.jit(over_runs(evaluate, block, 2), donate_argnums=0)
    shapes = jax.eval_shape(jit_init, arguments)
    _, metrics, policies = jax.eval_shape(jit_evaluate, shapes, arguments, np.int32(0))
    refuse_clashes(metrics, reserved)

    lowered = {  # the slowest first: it is compiled while the others are lowered
        "advance": lambda at: jit_advance.lower(*shapes_on(at, (shapes, arguments)), np.int32(0), np.int32(1)),
        "init": lambda at: jit_init.lower(shapes_on(at, arguments)),
        "evaluate": lambda at: jit_evaluate.lower(*shapes_on(at, (shapes, arguments)), np.int32(0)),
    }
    compiled = compile_programs(list(lowered.values()), devices)
    return Programs(
        executables={name: dict(zip(devices, each, strict=True)) for name, each in zip(lowered, compiled, strict=True)},
        metric_names=tuple(metrics),
        run_shapes=shapes,
        evaluated_shapes=(metrics, policies),
    )
