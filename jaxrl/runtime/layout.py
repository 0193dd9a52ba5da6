"""Layout of runs: blocks of fixed width, executed one after another on every device."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.settings import own_settings
from jaxrl.checks import check_count
from jaxrl.pytrees import PyTree
from jaxrl.runtime.accelerators.absent_device import compiler_options_of, target_of
from jaxrl.runtime.machine.memory import GIB, available
from jaxrl.runtime.machine.processors import understands
from jaxrl.runtime.machine.xla_flags import flags_in_force

CPU_BLOCK = 8
ACCELERATOR_BLOCK = 4096
TIGHT = 2 * GIB  # of free memory, below which programs are compiled one after another
LANES = 16  # number of 32-bit values in the widest vector of a CPU


class Layout(NamedTuple):
    """Placement of each run.

    Attributes:
      num_runs: Number of requested runs.
      block: Number of runs of one vmap.
      num_blocks: Number of blocks of one device, executed one after another.
      devices: Devices; each entry computes the next `num_blocks * block` runs in its own thread. A CPU device is
        repeated for every core.
    """

    num_runs: int
    block: int
    num_blocks: int
    devices: tuple[Any, ...]

    @property
    def runs_per_device(self) -> int:
        """Number of runs that one device computes, padding included."""
        return self.num_blocks * self.block

    def spread(self, tree: PyTree) -> list[list[Any]]:
        """Split leaves `[num_runs, ...]` into blocks `[block, ...]`, a list for each device; padding repeats runs."""
        tree = jax.tree.map(np.asarray, tree)

        def put(first: int, device: Any) -> Any:
            positions = np.arange(first, first + self.block) % self.num_runs
            return jax.device_put(jax.tree.map(lambda leaf: leaf[positions], tree), device)

        return [
            [put(i * self.runs_per_device + j * self.block, device) for j in range(self.num_blocks)]
            for i, device in enumerate(self.devices)
        ]

    def gather(self, parts: Sequence[Sequence[Any]]) -> Any:
        """Inverse of `spread`: leaves `[num_runs, ...]` on the host."""
        blocks = [block for part in parts for block in part]
        return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(x) for x in leaves])[: self.num_runs], *blocks)


def plan_layout(num_runs: int, block: int | None, devices: Sequence[Any] | None, cpu_block: int = CPU_BLOCK) -> Layout:
    """Choose devices and block width.

    Args:
      num_runs: Number of runs, settings times seeds.
      block: Block width; None takes the fewest blocks of at most `cpu_block` on a CPU, at most 4096
        elsewhere, evenly filled; on a CPU a width above 16 is a multiple of it, since blocks of 1,021
        take twice as long as of 1,024. Results are equal bit for bit at one width only.
      devices: JAX devices or their names, such as "gpu:0"; None takes every local device of JAX's default
        backend, with CPU devices repeated until there is one for every core that the process may use.
      cpu_block: Width of the widest block that None takes on a CPU, at most 16 or a multiple of it.
    """
    if isinstance(devices, str | jax.Device):
        raise UserTypeError(f"devices takes a list of devices, such as ['cpu:0'], got {devices!r}")
    devices = default_devices() if devices is None else tuple(map(local_device, devices))
    if not devices:
        raise UserValueError("devices must name at least one device, got none")
    if block is None:
        on_cpu = devices[0].platform == "cpu"
        widest = cpu_block if on_cpu else ACCELERATOR_BLOCK
        per_device = -(-num_runs // len(devices))
        block = -(-per_device // -(-per_device // widest))
        if on_cpu and block > LANES:
            block = -(-block // LANES) * LANES
    else:
        check_count("block", block)
    total_blocks = -(-num_runs // block)
    devices = devices[:total_blocks]
    return Layout(num_runs, block, -(-total_blocks // len(devices)), devices)


def local_device(device: Any) -> Any:
    """Local device of a name, such as "cpu:0" or "gpu:1"; a device is returned as it is.

    Raises:
      ValueError: There is no local device of that name.
    """
    if isinstance(device, jax.Device):
        return device
    local: dict[str, Any] = {}
    for platform in dict.fromkeys([jax.default_backend(), "cpu"]):
        local |= {f"{platform}:{i}": each for i, each in enumerate(jax.local_devices(backend=platform))}
    if device not in local:
        raise UserValueError(f"devices must be among {', '.join(local)}, got {device!r}")
    return local[device]


def default_devices() -> tuple[Any, ...]:
    """Every local device; on a CPU repeated, one for every core that this process may use.

    One thread of a CPU device leaves cores idle where arrays are small, and a program that is
    compiled for one device can run in several threads of it at the same time.
    """
    devices = tuple(jax.local_devices())
    if devices[0].platform != "cpu":
        return devices
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return devices * max(1, cores // len(devices))


def over_blocks(program: Callable[..., Any], num_shared: int = 0) -> Callable[..., list[Any]]:
    """Map a program of one block over the blocks of a device, one after another.

    The loop is outside the program, which is therefore the same for any number of blocks: their number changes no bit
    of the results, and the program need not slice blocks from one array, which took a quarter of the compile time.

    Args:
      program: Function of leaves `[block, ...]` and of the shared arguments.
      num_shared: Number of trailing arguments that are the same for every block, such as a trip count.

    Returns:
      Function of lists of blocks and of the shared arguments, which waits for each block and returns a list.
    """

    def walk(*arguments: Any) -> list[Any]:
        split = len(arguments) - num_shared
        done = []
        for block in zip(*arguments[:split], strict=True):
            done.append(jax.block_until_ready(program(*block, *arguments[split:])))
        return done

    return walk


def compile_programs(programs: Sequence[Callable[[Any], Any]], devices: Sequence[Any]) -> list[list[Any]]:
    """Compile programs for every device, each while the next is lowered, or one after another where memory is tight.

    One program for all devices would be compiled by other passes than a program for one, and
    round differently; and runs do not communicate.

    Args:
      programs: Functions that lower a program for a device.
      devices: Devices that execute the programs.

    Returns:
      Executables of each program, one for each device.
    """
    options = compiler_options(devices[0])
    places = [(i, device) for i in range(len(programs)) for device in dict.fromkeys(devices)]
    threads = _threads(1 if available() < TIGHT else len(places))
    with _stored_if_present(devices[0]):
        begun = [threads.submit(programs[i](device).compile, options) for i, device in places]
        executables = {place: future.result() for place, future in zip(places, begun, strict=True)}
    return [[executables[i, device] for device in devices] for i in range(len(programs))]


@contextlib.contextmanager
def _stored_if_present(device: Any) -> Iterator[None]:
    """Context in which JAX's cache on disk gets no programs for an absent device, which could not be loaded again."""
    if target_of(device) is None:
        yield
        return
    name = "jax_persistent_cache_min_compile_time_secs"  # of the process: threads of their own compile
    before = jax.config.values[name]
    jax.config.update(name, math.inf)
    try:
        yield
    finally:
        jax.config.update(name, before)


def shapes_on(device: Any, tree: PyTree) -> Any:
    """The shapes and types of a pytree's leaves, to be placed on a device."""
    sharding = jax.sharding.SingleDeviceSharding(device)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)


def compiler_options(device: Any) -> dict[str, Any]:
    """Options of XLA's compiler, in addition to those of the environment variable XLA_FLAGS, which take precedence.

    On a CPU, LLVM's third level of optimisation takes a fifth to a third of the compile time, and its
    programs are no faster; with vectors of 512 bits, where available, PPO takes a tenth less time
    (bench/NOTES.md).

    Args:
      device: Any, or an absent one.
    """
    if (target := target_of(device)) is not None:
        return compiler_options_of(target)
    if device.platform != "cpu":
        return {}
    options = {"xla_backend_optimization_level": 2}
    if understands("avx512f"):
        options["xla_cpu_prefer_vector_width"] = 512
    in_flags = {flag.lstrip("-").partition("=")[0] for flag in flags_in_force()}
    return {name: value for name, value in options.items() if name not in in_flags}


def run_on_devices(executables: Sequence[Any], *arguments: Sequence[Any]) -> list[Any]:
    """Call one function for every device at the same time, and wait.

    Args:
      executables: Programs, or walks over blocks, one for each entry of a layout's devices.
      *arguments: Lists of arguments, with one entry for each executable.

    Returns:
      Outputs of the executables.
    """
    each = map if len(executables) == 1 else _threads(len(executables)).map
    return jax.block_until_ready(list(each(_called, executables, *arguments)))


def _called(executable: Any, *arguments: Any) -> Any:
    with own_settings():  # a thread has settings of its own
        return executable(*arguments)


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Pool of threads that live as long as the process: new ones for every call would increase its memory."""
    return ThreadPoolExecutor(count, thread_name_prefix="jaxrl")
