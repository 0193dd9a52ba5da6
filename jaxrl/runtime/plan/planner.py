"""Fitting a call into memory: block width and number of parts, from the memory of its compiled programs."""

# Names that `Exhaustion` leaves without values are not read: it then has a reason.
# pyright: reportPossiblyUnboundVariable=false

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.pytrees import PyTree
from jaxrl.runtime.accelerators.absent_device import target_of
from jaxrl.runtime.call import Call
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.machine.exhaustion import Exhaustion
from jaxrl.runtime.machine.memory import MIB, at_least, available, give_back, parse_size, resident, size
from jaxrl.runtime.plan.buffers import check_buffer
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.programs import Programs, compilations, compiled_programs, forget
from jaxrl.runtime.runs import in_force
from jaxrl.sweeps.batching import run_arguments

# Share of the free memory that a call takes where no limit is requested.
SHARE = 0.8
# Memory of a CPU thread in addition to the compiler's figures: buffers of the steps accumulate until a program
# returns, 10 to 20 MiB in the quarter of a second of a chunk, and small objects of JAX and XLA add to it: together
# 15 to 35 MiB on 16 to 4,096 runs of PPO (bench/NOTES.md).
ROOM_PER_THREAD = 40 * MIB
# Overhead of an array in addition to its numbers: 62,500 arrays of 32 bytes take 68 MiB. Each block has its own arrays.
BYTES_PER_ARRAY = 1152
# Copies of the states on the host while a checkpoint is written: one, and those of orbax and its store, 1.7 to 1.9 for
# 1,000 runs of PPO; and the memory of the libraries that write checkpoints and results.
CHECKPOINT_COPIES, WRITERS = 3.2, 48 * MIB
# Growth of the process by its programs, before they are compiled: 60 to 151 MiB for DQN on CartPole.
PROGRAMS = 256 * MIB

__all__ = ["Planner", "Sizes", "programs_of"]


class Sizes(NamedTuple):
    """Memory of compiled programs, in bytes.

    Attributes:
      state, arguments, metrics, kept: Bytes of one run: its state between chunks, its arguments, the metrics and the
        policy of an evaluation.
      arrays, evaluated_arrays: Overhead of the arrays of one block between chunks, and of an evaluation of it.
      advancing, evaluating: Bytes of the program of one block in addition to those of its runs.
      block: Block width that `advancing` and `evaluating` were compiled for.
    """

    state: int
    arguments: int
    metrics: int
    kept: int
    arrays: int
    evaluated_arrays: int
    advancing: int
    evaluating: int
    block: int


def programs_of(call: Call, layout: Layout, precision: str = "default") -> tuple[Programs, Sizes]:
    """Programs of a call and their memory; `Runs` of the same layout reuse them from the cache."""

    def of_block(leaf: PyTree) -> jax.ShapeDtypeStruct:
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
        return jax.ShapeDtypeStruct((layout.block, *np.shape(leaf)[1:]), dtype)

    arguments = jax.tree.map(of_block, run_arguments(call.seeds[:1], call.prepared, call.env_params))
    with in_force(precision):
        programs = compiled_programs(call.loop, call.identity, layout.block, layout.devices, arguments, call.reserved)
    return programs, _sizes(programs, arguments, layout.block)


def _sizes(programs: Programs, arguments: PyTree, block: int) -> Sizes:
    def of_run(tree: PyTree) -> int:
        return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) // block

    def overhead(name: str, of_one: int) -> int:
        stats = next(iter(programs.executables[name].values())).memory_analysis()
        total = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
        return max(total - stats.alias_size_in_bytes - block * of_one, 0)

    state, arguments_size = of_run(programs.run_shapes), of_run(arguments)
    metrics, kept = map(of_run, programs.evaluated_shapes)
    evaluating = overhead("evaluate", state + arguments_size + metrics + kept)
    advancing = max(overhead("advance", state + arguments_size), overhead("init", state + arguments_size))
    arrays, evaluated_arrays = (
        BYTES_PER_ARRAY * len(jax.tree.leaves(trees))
        for trees in ((programs.run_shapes, arguments), programs.evaluated_shapes)
    )
    return Sizes(state, arguments_size, metrics, kept, arrays, evaluated_arrays, advancing, evaluating, block)


@dataclasses.dataclass(frozen=True)
class Planner:
    """Fits a call into memory.

    Args:
      call: Whole call.
      layout: Layout that the call would have with enough memory.
      limit: Memory limit in bytes; None for no limit.
      checkpoints: Whether checkpoints of the states are written.
    """

    call: Call
    layout: Layout
    limit: int | None
    checkpoints: bool = False

    @property
    def on_host(self) -> bool:
        """Whether the devices share the memory of the process."""
        return self.layout.devices[0].platform == "cpu"

    @classmethod
    def of(cls, call: Call, layout: Layout, memory: int | str | None, checkpoints: bool = False) -> Planner:
        """Planner with a limit of a given size, or of a share of the free memory.

        Raises:
          ValueError: `memory` is not a size.
        """
        asked = None if memory is None else parse_size(memory)
        if layout.devices[0].platform != "cpu":
            return cls(call, layout, _device_limit(layout.devices, asked), checkpoints)
        has, free = resident(), available()
        most = has + free if asked is not None else has + int(SHARE * free)
        return cls(call, layout, most if asked is None else min(asked, most), checkpoints)

    def at(self, sizes: Sizes, block: int, num_parts: int, process: int) -> Plan:
        """Plan with blocks of a given width and a given number of parts.

        Args:
          sizes: Sizes of compiled programs.
          block: Block width.
          num_parts: Number of parts.
          process: Memory of the process before any run, in bytes.
        """
        runs = self.runs_of_part(num_parts)
        total_blocks = -(-runs // block)
        threads = min(len(self.layout.devices), total_blocks)
        devices = self.layout.devices[:threads]
        num_blocks = -(-total_blocks // threads)
        # Threads of the whole process, or of one device.
        here = threads if self.on_host else max(devices.count(device) for device in set(devices))
        slots, wider = here * num_blocks * block, block / sizes.block
        room = here * ROOM_PER_THREAD if self.on_host else 0
        advancing = here * sizes.advancing * wider
        evaluating = here * (sizes.evaluating * wider + num_blocks * sizes.evaluated_arrays)
        evaluating += slots * (sizes.metrics + sizes.kept)
        points, every = len(self.call.points), self.call.num_runs if num_parts > 1 else 0
        # The policies of this evaluation and of the last; the metrics of all evaluations, and their stack at the end.
        held = 2 * points * sizes.metrics * (runs + every) + sizes.kept * (runs + 2 * every)
        phases = [(advancing + room, held), (evaluating + room, held + runs * sizes.kept)]
        if self.checkpoints:
            phases.append((room, held + WRITERS + int(CHECKPOINT_COPIES * runs * sizes.state)))
        programs, results = max(phases, key=lambda phase: phase[0] + phase[1] if self.on_host else phase[0])
        attrs = self.call.attrs
        return Plan(
            name=f"{attrs['algorithm']} on {attrs['environment']}",
            num_settings=self.call.shape[0],
            num_seeds=self.call.shape[1],
            env_steps=self.call.env_steps,
            block=block,
            wanted_block=self.layout.block,
            num_blocks=num_blocks,
            num_devices=len(set(devices)),
            num_threads=threads,
            device_kind=devices[0].device_kind,
            num_parts=num_parts,
            compilations=1,
            process=process,
            programs=int(programs),
            states=slots * (sizes.state + sizes.arguments) + here * num_blocks * sizes.arrays,
            results=int(results),
            limit=self.limit,
            on_host=self.on_host,
            most_runs=self._most_runs(sizes, block, here),
        )

    def _most_runs(self, sizes: Sizes, block: int, here: int) -> int | None:
        """Largest number of runs that a device's memory holds in blocks of a given width, as `at` counts it.

        Args:
          sizes: Sizes of compiled programs.
          block: Block width.
          here: Number of threads of the device.

        Returns:
          Number of runs; None without a limit, and on the host, where results take memory as well.
        """
        if self.limit is None or self.on_host:
            return None
        wider = block / sizes.block
        of_block = block * (sizes.state + sizes.arguments) + sizes.arrays
        evaluated = of_block + block * (sizes.metrics + sizes.kept) + sizes.evaluated_arrays
        # Metrics and policies are there in evaluations alone, and each phase has a program of its own.
        phases = [(sizes.advancing, of_block), (sizes.evaluating, evaluated)]
        blocks = min((self.limit - int(here * program * wider)) // max(here * each, 1) for program, each in phases)
        return max(blocks, 0) * here * block

    def compiled(
        self, call: Call, layout: Layout, num_parts: int, precision: str = "default"
    ) -> tuple[Programs, Sizes, Plan]:
        """Programs of one part, their memory, and the plan with them.

        If the plan does not fit, the programs of earlier calls are released and it is made again.

        Args:
          call: Call of one part.
          layout: Layout of the part.
          num_parts: Number of parts.
          precision: Precision of matrix products.
        """
        before = compilations()
        programs, sizes = programs_of(call, layout, precision)
        if compilations() > before:
            give_back()
        planned = self.at(sizes, layout.block, num_parts, resident())
        if not planned.fits and forget(but=programs):
            give_back()
            planned = self.at(sizes, layout.block, num_parts, resident())
        return programs, sizes, planned

    def fit(self, precision: str = "default") -> Plan:
        """Plan with the widest blocks and the fewest parts that fit; its programs are compiled.

        Raises:
          ValueError: Not even blocks of one run fit; without compiling, where a replay buffer is the reason.
        """
        check_buffer(self.call, self.limit, self._holds)
        layout, num_parts = self.layout, 1
        while True:
            with Exhaustion() as exhaustion:  # compilers try programs out on some devices
                programs, sizes, compiled = self.compiled(self.call, layout, num_parts, precision)
            if exhaustion.reason:
                wider, block = layout.block, exhaustion.narrower(layout.block)
                layout = self.layout_of(layout.num_runs, num_parts, block)
                exhaustion.warn(wider, block, "from the start")
                continue
            if compiled.fits:
                return compiled
            del programs
            forget()
            planned = self.fitted(sizes, compiled.process, compiled)
            num_parts = planned.num_parts
            layout = self.layout_of(self.runs_of_part(num_parts), num_parts, planned.block)

    def _holds(self, state: int) -> bool:
        """Whether one run at a time fits, by the bytes of its state and an estimate of those of the process."""
        sizes = Sizes(state, 0, 0, 0, 0, 0, 0, 0, block=1)
        return self.at(sizes, 1, self.call.num_runs, resident() + PROGRAMS).fits

    def layout_of(self, num_runs: int, num_parts: int, block: int) -> Layout:
        """Layout of the runs of one part, on the devices of the largest part: programs are compiled for these alone."""
        most = max(self.runs_of_part(num_parts), num_runs)
        devices = self.layout.devices[: -(-most // block)]
        return Layout(num_runs, block, -(-num_runs // (block * len(devices))), devices)

    def fitted(self, sizes: Sizes, process: int, refused: Plan | None = None) -> Plan:
        """Plan with the fewest parts that fits, at the widest block width at which any does.

        Args:
          sizes: Sizes of compiled programs.
          process: Memory of the process before any run, in bytes.
          refused: Plan that is known not to fit, whatever the sizes; the new plan has fewer slots or narrower blocks.

        Raises:
          ValueError: Not even blocks of one run fit.
        """
        block = self.layout.block if refused is None else refused.block
        num_parts, fewer_than = 1 if refused is None else refused.num_parts + 1, refused
        smallest: Plan | None = None
        while True:
            most = -(-self.call.num_runs // block)
            while True:
                planned = self.at(sizes, block, min(num_parts, most), process)
                if planned.fits and (fewer_than is None or planned.num_slots < fewer_than.num_slots):
                    return planned
                smallest = planned if smallest is None else min(smallest, planned, key=lambda plan: plan.memory)
                if num_parts >= most:
                    break
                num_parts = max(num_parts + 1, num_parts * 17 // 16)
            if block == 1:
                raise UserValueError(
                    f"memory must be at least {at_least(smallest.memory)} for this call, got {size(self.limit or 0)}: "
                    f"it takes {smallest.pieces}"
                )
            block, num_parts, fewer_than = block // 2, 1, None

    def runs_of_part(self, num_parts: int) -> int:
        """Number of runs of the largest part that `split` makes."""
        num_settings, num_seeds = self.call.shape
        if num_parts <= num_seeds:
            return num_settings * -(-num_seeds // num_parts)
        return -(-num_settings // (num_parts // num_seeds))


def _device_limit(devices: Sequence[Any], asked: int | None) -> int | None:
    """Bytes that may be taken of each device: those of the device with the least free memory."""
    free = []
    for device in set(devices):
        if (target := target_of(device)) is not None:
            free.append(target.usable)
            continue
        stats = device.memory_stats()
        if stats and "bytes_limit" in stats:
            free.append(int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0)))
    if not free:
        return asked
    return int(SHARE * min(free)) if asked is None else min(asked, min(free))
