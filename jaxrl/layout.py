"""How runs are laid out: blocks of fixed width, one after another on every device."""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.memory import give_back, tight
from jaxrl.processors import understands

CPU_BLOCK = 8
ACCELERATOR_BLOCK = 1024


class Layout(NamedTuple):
    """Where each run goes.

    Attributes:
      num_runs: that the user asked for.
      block: runs of one vmap.
      num_blocks: blocks of one device, worked through one after another.
      devices: each entry works on the next `num_blocks * block` runs, in a thread of its own; a
        CPU device stands here once for every core.
    """

    num_runs: int
    block: int
    num_blocks: int
    devices: tuple[Any, ...]

    @property
    def runs_per_device(self) -> int:
        """Runs that one device computes, padding included."""
        return self.num_blocks * self.block

    @property
    def slots_per_device(self) -> int:
        """Runs that one device has room for: two blocks at least.

        To take the only block out of its blocks would be nothing, and the compiler would join what comes
        before and after with it: another program than that of several blocks, which rounds otherwise.
        """
        return max(self.num_blocks, 2) * self.block

    def spread(self, tree: Any) -> list[Any]:
        """Leaves `[num_runs, ...]` as leaves `[slots_per_device, ...]` of each device; padding repeats runs."""
        first = np.arange(len(self.devices))[:, None] * self.runs_per_device
        slots = (first + np.arange(self.slots_per_device)) % self.num_runs
        return [
            jax.device_put(jax.tree.map(lambda leaf, mine=mine: np.asarray(leaf)[mine], tree), device)
            for mine, device in zip(slots, self.devices, strict=True)
        ]

    def gather(self, parts: Sequence[Any]) -> Any:
        """What `spread` spread, back on the host with leaves `[num_runs, ...]`."""
        count = self.runs_per_device
        return jax.tree.map(
            lambda *leaves: np.concatenate([np.asarray(x[:count]) for x in leaves])[: self.num_runs], *parts
        )


def plan_layout(num_runs: int, block: int | None, devices: Sequence[Any] | None, cpu_block: int = CPU_BLOCK) -> Layout:
    """Chooses devices and block width.

    Args:
      num_runs: settings times seeds.
      block: the width; None takes the fewest blocks of at most `cpu_block` on a CPU, at most 1024
        elsewhere, evenly filled. Results are equal bit for bit at one width only.
      devices: JAX's or their names, such as "gpu:0"; None takes every local device of JAX's default
        backend, and CPU devices over and over until there is one for every core that the process may use.
      cpu_block: the widest block that None takes on a CPU.
    """
    devices = default_devices() if devices is None else tuple(map(local_device, devices))
    if not devices:
        raise ValueError("devices must name at least one device, got none")
    if block is None:
        widest = cpu_block if devices[0].platform == "cpu" else ACCELERATOR_BLOCK
        per_device = -(-num_runs // len(devices))
        block = -(-per_device // -(-per_device // widest))
    elif isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise ValueError(f"block must be a whole number of at least 1, got {block!r}")
    total_blocks = -(-num_runs // block)
    devices = devices[:total_blocks]
    return Layout(num_runs, block, -(-total_blocks // len(devices)), devices)


def local_device(device: Any) -> Any:
    """A device by its name, such as "cpu:0" or "gpu:1", or the device itself.

    Raises:
      ValueError: there is none of that name here.
    """
    if isinstance(device, jax.Device):
        return device
    here: dict[str, Any] = {}
    for platform in dict.fromkeys([jax.default_backend(), "cpu"]):
        here |= {f"{platform}:{i}": found for i, found in enumerate(jax.local_devices(backend=platform))}
    if device not in here:
        raise ValueError(f"devices must be among {', '.join(here)}, got {device!r}")
    return here[device]


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


def over_runs(function: Callable[..., Any], block: int, num_shared: int = 0) -> Callable[..., Any]:
    """A function of one run as a function of a device's runs: a loop over blocks, a vmap within each.

    Args:
      function: of one run.
      block: runs of one vmap.
      num_shared: trailing arguments that are the same for every run, such as a trip count.

    Returns:
      A function of leaves `[num_blocks * block, ...]`, of the shared arguments, and last of
      `num_blocks`. That number is an argument on purpose: a loop that the compiler knows to run
      once would be compiled into something that may round otherwise.
    """

    def on_device(*arguments: Any) -> Any:
        split = len(arguments) - num_shared - 1
        shared, num_blocks = arguments[split:-1], arguments[-1]
        one_block = jax.vmap(lambda *run: function(*run, *shared))
        slots = jax.tree.leaves(arguments[:split])[0].shape[0]

        # Not reshape(-1, ...): a leaf may have nothing in it, such as the pillars of a scene without any.
        def in_blocks(leaf: Any) -> Any:
            return leaf.reshape(slots // block, block, *leaf.shape[1:])

        blocks = jax.tree.map(in_blocks, arguments[:split])

        def at(i: Any) -> Any:
            return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False), blocks)

        def work(i: Any, out: Any) -> Any:
            done = one_block(*at(i))
            return jax.tree.map(lambda every, one: jax.lax.dynamic_update_index_in_dim(every, one, i, 0), out, done)

        shapes = jax.eval_shape(one_block, *jax.eval_shape(at, 0))
        out = jax.tree.map(lambda leaf: jnp.zeros((slots // block, *leaf.shape), leaf.dtype), shapes)
        out = jax.lax.fori_loop(0, num_blocks, work, out)
        return jax.tree.map(lambda leaf: leaf.reshape(slots, *leaf.shape[2:]), out)

    return on_device


def in_place(function: Callable[..., Any], block: int, num_shared: int = 0) -> Callable[..., Any]:
    """`over_runs` for a function that changes runs: it writes over the runs that it is given, some blocks at a time.

    Args:
      function: `(run, *arguments, *shared) -> run`, of one run.
      block: runs of one vmap.
      num_shared: trailing arguments that are the same for every run.

    Returns:
      A function of leaves `[num_blocks * block, ...]`, of the shared arguments, and last of two
      numbers: the blocks from the first of them up to the second are worked through, others stay.
      Where the runs are donated nothing takes memory twice.
    """

    def on_device(runs: Any, *arguments: Any) -> Any:
        split = len(arguments) - num_shared - 2
        shared, (first, last) = arguments[split:-2], arguments[-2:]
        slots = jax.tree.leaves(runs)[0].shape[0]
        one_block = jax.vmap(lambda *run: function(*run, *shared))

        def in_blocks(leaf: Any) -> Any:
            return leaf.reshape(slots // block, block, *leaf.shape[1:])

        rest = jax.tree.map(in_blocks, arguments[:split])

        def at(tree: Any, i: Any) -> Any:
            return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False), tree)

        def work(i: Any, every: Any) -> Any:
            given = at(every, i)

            def written(all: Any, given: Any, done: Any) -> Any:
                """What a function gives back as it got it stands there already."""
                return all if done is given else jax.lax.dynamic_update_index_in_dim(all, done, i, 0)

            return jax.tree.map(written, every, given, one_block(given, *at(rest, i)))

        done = jax.lax.fori_loop(first, last, work, jax.tree.map(in_blocks, runs))
        return jax.tree.map(lambda leaf: leaf.reshape(slots, *leaf.shape[2:]), done)

    return on_device


def compile_programs(programs: Sequence[Callable[[Any], Any]], devices: Sequence[Any]) -> list[list[Any]]:
    """Compiles programs for every device, side by side, or one after another where memory is tight.

    One program for all devices would be compiled by other passes than a program for one, and
    round otherwise; and runs have nothing to tell each other.

    Args:
      programs: each lowers itself for a device.
      devices: where they will run.

    Returns:
      For each program its executables, one for each device.
    """
    different = list(dict.fromkeys(devices))
    lowered = [lower(device) for lower in programs for device in different]
    options = compiler_options(devices[0].platform)

    def compile_and_give_back(program: Any) -> Any:
        executable = program.compile(options)
        give_back()
        return executable

    if tight():
        compiled = iter([compile_and_give_back(program) for program in lowered])
    else:
        compiled = iter(_threads(len(lowered)).map(lambda program: program.compile(options), lowered))
    by_device = [{device: next(compiled) for device in different} for _ in programs]
    return [[executables[device] for device in devices] for executables in by_device]


def compiler_options(platform: str) -> dict[str, Any]:
    """What XLA's compiler is told, beside what the environment tells it.

    On a CPU, LLVM's third level of optimisation takes a fifth to a third of the time that compiling
    takes, and its programs are no faster; and with vectors of 512 bits, where there are any, PPO takes
    a tenth less time (bench/NOTES.md). What XLA_FLAGS names is left to it.

    Args:
      platform: of the devices, "cpu" or another.
    """
    if platform != "cpu":
        return {}
    options = {"xla_backend_optimization_level": 2}
    if understands("avx512f"):
        options["xla_cpu_prefer_vector_width"] = 512
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in flags}


def run_on_devices(executables: Sequence[Any], *arguments: Sequence[Any]) -> list[Any]:
    """Runs one program on every device at the same time, and waits.

    Args:
      executables: one for each entry of a layout's devices.
      *arguments: of each argument, likewise one for each.

    Returns:
      What each gave.
    """

    def call(executable: Any, *each: Any) -> Any:
        return jax.block_until_ready(executable(*each))

    if len(executables) == 1:
        return [call(executables[0], *(argument[0] for argument in arguments))]
    return list(_threads(len(executables)).map(call, executables, *arguments))


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process: new ones for every call would grow its memory."""
    return ThreadPoolExecutor(count, thread_name_prefix="jaxrl")
