"""Plan of the execution of a call: layout, parts, memory and time, as a value that prints as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxrl.results.format import counted, duration
from jaxrl.runtime.accelerators.bounds import Bound
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.machine.memory import size


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """Plan of the execution of a call, with the memory and time that it takes; `print` gives a table.

    Attributes:
      name: Name of the algorithm and of the environment.
      num_settings, num_seeds: Number of settings and of seeds; their product is the number of runs.
      env_steps: Number of environment steps of one run.
      block: Number of runs of one vmap. Results are equal bit for bit at one width only.
      wanted_block: Block width that the call would have with enough memory.
      num_blocks: Number of blocks of one thread, executed one after another.
      num_devices, num_threads, device_kind: Devices; a CPU device works in several threads.
      num_parts: Number of parts of the call, executed one after another with the same programs.
      compilations: Number of different calls that are compiled.
      process, programs, states, results: Memory in bytes of the process before any run, of temporaries in all
        threads, of the states of the runs that train at the same time, and of the results on the host meanwhile.
      limit: Memory limit in bytes; None for no limit.
      on_host: Whether the limit applies to the process; otherwise it applies to each device, as `programs` and
        `states` do.
      replay: Replay buffer of a run, as text; None without one.
      seconds: Expected duration of the runs in seconds, None where nothing was measured.
      most_runs: Largest number of runs that fit into the memory of one device at a time, in blocks of this width; None
        without a limit, and on the host.
      bound: Lower bound on the time on a target; None for the devices of this machine.
    """

    name: str
    num_settings: int
    num_seeds: int
    env_steps: int
    block: int
    wanted_block: int
    num_blocks: int
    num_devices: int
    num_threads: int
    device_kind: str
    num_parts: int
    compilations: int
    process: int
    programs: int
    states: int
    results: int
    limit: int | None
    on_host: bool
    replay: str | None = None
    seconds: float | None = None
    most_runs: int | None = None
    bound: Bound | None = None

    @property
    def num_runs(self) -> int:
        """Settings times seeds."""
        return self.num_settings * self.num_seeds

    @property
    def num_slots(self) -> int:
        """Runs that train at a time, padding included."""
        return self.num_threads * self.num_blocks * self.block

    @property
    def memory(self) -> int:
        """Peak memory in bytes after compiling, of the process or device that the limit applies to."""
        own = self.programs + self.states
        return own + self.process + self.results if self.on_host else own

    @property
    def fits(self) -> bool:
        """Whether the limit is kept."""
        return self.limit is None or self.memory <= self.limit

    def layout(self, num_runs: int, devices: Sequence[Any]) -> Layout:
        """Layout of the runs of one part; the programs are the same for any number of runs."""
        return Layout(num_runs, self.block, self.num_blocks, tuple(devices)[: self.num_threads])

    @property
    def summary(self) -> str:
        """Plan in one or two lines."""
        parts = "" if self.num_parts == 1 else f" in {self.num_parts} parts one after another"
        where = counted(self.num_threads, "thread") if self.on_host else counted(self.num_devices, "device")
        text = f"{self.num_runs:,} runs{parts}, {self._blocks} in each of {where}; {self._memory_text()}"
        return f"{text}\n{self._narrowed}" if self._narrowed else text

    @property
    def _blocks(self) -> str:
        return f"{counted(self.num_blocks, 'block')} of {counted(self.block, 'run')}"

    @property
    def _narrowed(self) -> str:
        if self.block == self.wanted_block:
            return ""
        return (
            f"blocks are of {self.block} instead of {self.wanted_block} runs for lack of memory: results are not equal "
            f"bit for bit to those of blocks of {self.wanted_block}"
        )

    def _memory_text(self) -> str:
        whose = "" if self.on_host else " on each device"
        limit = "" if self.limit is None else f" of {size(self.limit)}"
        return f"about {size(self.memory)}{limit} of memory{whose}"

    @property
    def pieces(self) -> str:
        """Terms of `memory`, as text."""
        own = f"states {size(self.states)}, programs {size(self.programs)}"
        return f"{self._of_host}, {own}" if self.on_host else own

    @property
    def _of_host(self) -> str:
        return f"process {size(self.process)}, results {size(self.results)}"

    def __repr__(self) -> str:
        return f"Plan({self.summary.splitlines()[0]})"

    def __str__(self) -> str:
        settings = counted(self.num_settings, "setting")
        devices = f"{self.num_devices} x {self.device_kind}"
        part = counted(self.num_parts, "part") + (", one after another" if self.num_parts > 1 else "")
        lines = {
            "runs": f"{self.num_runs:,}: {settings} x {counted(self.num_seeds, 'seed')} of {self.name}, "
            f"{self.env_steps:,} env steps each",
            "layout": f"{self._blocks} in each of {counted(self.num_threads, 'thread')} on {devices}",
            "parts": part,
            "compilations": f"{self.compilations:,}",
            "memory": f"{self._memory_text()}: {self.pieces}",
        }
        if self.replay is not None:
            lines["replay"] = self.replay
        if self.most_runs is not None:
            where = " on each device" if self.num_devices > 1 else ""
            lines["fits"] = f"up to {counted(self.most_runs, 'run')}{where}, whose blocks take turns"
        if self.bound is not None:
            lines |= self.bound.lines()
        elif not self.on_host:
            lines["host memory"] = f"about {size(self.process + self.results)}: {self._of_host}"
        if self.seconds is not None:
            lines["time"] = f"about {duration(self.seconds)}, by a first chunk and an untrained policy's evaluation"
        if self._narrowed:
            lines["note"] = self._narrowed
        if not self.fits:
            lines["note"] = "this does not fit"
        width = max(map(len, lines))
        return "\n".join(f"{name:{width}}  {text}" for name, text in lines.items())
