"""Programs of `train` that are compiled for absent accelerators, and what is recorded of each."""

import dataclasses
import math
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax

import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from jaxrl import presets
from jaxrl.algorithms.off_policy import OffPolicyState
from jaxrl.algorithms.registry import rebuilt
from jaxrl.bandits.runner import bandit_call
from jaxrl.learning.cells import CELLS
from jaxrl.runtime.accelerators.absent_device import absent_device
from jaxrl.runtime.accelerators.bounds import of_an_iteration
from jaxrl.runtime.accelerators.program_text import Program, read_program
from jaxrl.runtime.accelerators.targets import TARGETS
from jaxrl.runtime.call import Call
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.plan.planner import programs_of
from jaxrl.runtime.training import points_of, training_call

HOST_OPERATIONS = ("infeed", "outfeed", "send", "recv")
HOST_TARGETS = ("callback", "host_compute", "MoveToHost", "ffi_python")
# Algorithms and environments with their presets.
ON_CARTPOLE = ("ppo", "a2c", "reinforce", "spo", "mdpo", "ppo_kl", "dqn", "pqn", "evolve")
PRESETS = {
    **{name: (name, "cartpole") for name in ON_CARTPOLE},
    "sac": ("sac", "pendulum"),
    "td3": ("td3", "pendulum"),
    "crowd": ("ppo", "crowd/circle"),
    "minatar": ("ppo", "gymnax/Breakout-MinAtar"),
}
# Changes of a preset's configuration.
CHANGED: Mapping[str, tuple[tuple[str, str], Mapping[str, Any]]] = {
    **{memory: (("ppo", "memory/repeat-first"), {"memory": memory}) for memory in CELLS},
    "heads": (("dqn", "cartpole"), {"heads": "joint"}),
    "prioritised": (("dqn", "cartpole"), {"replay": "prioritised"}),
}
HYPERBOLIC = "hyperbolic:k=0.02"
POLICIES = {"ucb": jaxrl.bandits.ucb1, "thompson": jaxrl.bandits.thompson}
CASES = (*PRESETS, *CHANGED, *POLICIES)
# Programs that are compiled for every target and for other numbers of runs.
EVERYWHERE = ("ppo", "dqn", "crowd")
RUNS, FEWEST, MOST = 256, 1, 4096
USUAL, OTHERS = ("h100", "tpu-v5e"), ("t4", "a100", "tpu-v6e")

__all__ = ["CASES", "Cell", "cells", "measured", "sizes_of_buffer", "whole_arrays"]


class Cell(NamedTuple):
    """One compilation: a case, the name of a target, and a number of runs."""

    case: str
    target: str
    runs: int

    def __str__(self) -> str:
        return f"{self.case}/{self.target}/{self.runs}"


# More than the memory of the device, 15.75 GiB: replay buffers of 19 GB, and temporary arrays of 40.35 GiB.
TOO_LARGE = (Cell("dqn", "tpu-v5e", MOST), Cell("crowd", "tpu-v5e", MOST))


def cells() -> list[Cell]:
    """All compilations, in the order of the table."""
    usual = [Cell(case, target, RUNS) for case in CASES for target in USUAL]
    widths = [Cell(case, target, runs) for case in EVERYWHERE for target in USUAL for runs in (FEWEST, MOST)]
    others = [Cell(case, target, RUNS) for case in EVERYWHERE for target in OTHERS]
    return [cell for cell in [*usual, *widths, *others] if cell not in TOO_LARGE]


def call_of(case: str) -> Call:
    """The call of a case, with one seed."""
    if case in POLICIES:
        return bandit_call(POLICIES[case](), BernoulliBandit(), steps=10_000, runs=[0], points=10)
    pair, changes = CHANGED[case] if case in CHANGED else (PRESETS[case], {})
    preset = presets.preset(*pair)
    algo = preset.on()
    if changes:
        hparams = dataclasses.replace(algo.hparams, discount=HYPERBOLIC) if case == "heads" else algo.hparams
        algo = rebuilt(algo, dataclasses.replace(algo.config, **changes))._replace(hparams=hparams)
    points = points_of(algo, preset.env_steps, 10, 64)
    return training_call(algo, None, seeds=[0], points=points, eval_episodes=64, env_params=None)


def measured(cell: Cell) -> dict[str, Any]:
    """Compile a cell; return the figures and facts of its programs.

    Bytes are those of one run; work is that of one iteration of the block.
    """
    call, target = call_of(cell.case), TARGETS[cell.target]
    device = absent_device(target)
    started = time.perf_counter()
    compiled, sizes = programs_of(call, plan_layout(cell.runs, cell.runs, [device]))
    seconds = time.perf_counter() - started
    executables = {name: compiled.executables[name][device] for name in compiled.executables}
    texts = {name: read_program(executable.as_text()) for name, executable in executables.items()}
    memory = {name: executable.memory_analysis() for name, executable in executables.items()}
    work = of_an_iteration(texts["advance"])
    state = sizes.state * cell.runs
    buffer = sizes_of_buffer(compiled.run_shapes)
    return {
        "seconds": round(seconds, 1),
        "state": sizes.state,
        "temporary": {name: each.temp_size_in_bytes // cell.runs for name, each in memory.items()},
        "kernels": work.kernels,
        "bytes": work.bytes,
        "operations": work.operations,
        "doubles": sum(_doubles(text) for text in texts.values()),
        "host": sorted({name for text in texts.values() for name in _on_host(text)}),
        "aliased": min(memory[name].alias_size_in_bytes for name in ("advance", "evaluate")) / max(state, 1),
        "buffer": max(buffer, default=0),
        "copied": whole_arrays(("copy", "copy-start"), texts["advance"], buffer),
        "selected": whole_arrays(("select",), texts["advance"], buffer),
    }


def sizes_of_buffer(run_shapes: Any) -> list[int]:
    """Bytes of each array of a block that has an entry for every slot of a replay buffer; none without a buffer."""
    state = getattr(run_shapes, "state", None)
    if not isinstance(state, OffPolicyState):
        return []
    of_slots: list[Any] = [state.buffer]
    if state.priorities is not None:
        of_slots.append(state.priorities.leaves)
    if state.memories is not None:
        of_slots += [state.memories.policy, state.memories.critics]
    return [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(of_slots)]


def _doubles(program: Program) -> int:
    """Number of instructions with a result in double precision."""
    return sum(any(array.dtype in ("f64", "c128") for array in each.arrays) for each in program.instructions())


def _on_host(program: Program) -> list[str]:
    """Operations that wait for the host."""
    calls = [each.line for each in program.instructions() if each.opcode == "custom-call"]
    targets = [line.split('custom_call_target="')[1].split('"')[0] for line in calls]
    waiting = [target for target in targets if any(part in target for part in HOST_TARGETS)]
    return waiting + [each.opcode for each in program.instructions() if each.opcode in HOST_OPERATIONS]


def whole_arrays(opcodes: Collection[str], program: Program, sizes: Collection[int]) -> int:
    """Number of operations of some kinds on a whole array of a replay buffer, or on one larger than all of these.

    Args:
      opcodes: Kinds of operations.
      program: Program.
      sizes: Bytes of the arrays.
    """
    largest = max(sizes, default=math.inf)
    results = [{array.bytes for array in each.arrays} for each in program.instructions() if each.opcode in opcodes]
    return sum(any(size in sizes or size >= largest for size in each) for each in results)
