"""How runs are laid out: blocks of fixed width, one after another on every device."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

CPU_BLOCK = 8
ACCELERATOR_BLOCK = 1024


class Layout(NamedTuple):
    """Where each run goes.

    Attributes:
      num_runs: that the user asked for.
      block: runs of one vmap.
      num_blocks: blocks of one device, worked through one after another.
      mesh: the devices, along one axis `runs`.
    """

    num_runs: int
    block: int
    num_blocks: int
    mesh: Mesh

    @property
    def num_slots(self) -> int:
        """Runs that are computed, padding included."""
        return self.mesh.size * self.num_blocks * self.block

    def spread(self, array: Any) -> jax.Array:
        """An array `[num_runs, ...]` as `[num_slots, ...]` over the devices; padding repeats runs."""
        padded = np.asarray(array)[np.arange(self.num_slots) % self.num_runs]
        return jax.device_put(padded, NamedSharding(self.mesh, P("runs")))

    def gather(self, array: jax.Array) -> np.ndarray:
        """An array `[num_slots, ...]` back on the host as `[num_runs, ...]`."""
        return np.asarray(array)[: self.num_runs]


def plan_layout(num_runs: int, block: int | None, devices: Sequence[Any] | None) -> Layout:
    """Chooses devices and block width.

    Args:
      num_runs: settings times seeds.
      block: the width; None takes the widest of at most 8 on a CPU, at most 1024 elsewhere,
        that leaves the least padding. Results are equal bit for bit at one width only.
      devices: None takes every local device of JAX's default backend.
    """
    devices = list(jax.local_devices() if devices is None else devices)
    if not devices:
        raise ValueError("devices must name at least one device, got none")
    if block is None:
        widest = CPU_BLOCK if devices[0].platform == "cpu" else ACCELERATOR_BLOCK
        per_device = -(-num_runs // len(devices))
        block = -(-per_device // -(-per_device // widest))
    elif isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise ValueError(f"block must be a whole number of at least 1, got {block!r}")
    total_blocks = -(-num_runs // block)
    devices = devices[:total_blocks]
    mesh = Mesh(np.array(devices), ("runs",), axis_types=(jax.sharding.AxisType.Auto,))
    return Layout(num_runs, block, -(-total_blocks // len(devices)), mesh)


def over_runs(function: Callable[..., Any], layout: Layout, num_shared: int = 0) -> Callable[..., Any]:
    """A function of one run as a function of all of them.

    Within a block the runs are one vmap, a device works through its blocks with `lax.map`, and
    devices share the runs without any communication.

    Args:
      function: of one run.
      layout: the blocks and devices.
      num_shared: trailing arguments that are the same for every run, such as a trip count.

    Returns:
      The function on leaves `[num_slots, ...]`, to be jit-compiled.
    """

    def on_device(*arguments: Any) -> Any:
        split = len(arguments) - num_shared
        runs, shared = arguments[:split], arguments[split:]
        one_block = jax.vmap(lambda *run: function(*run, *shared))
        blocked = jax.tree.map(lambda leaf: leaf.reshape(layout.num_blocks, layout.block, *leaf.shape[1:]), runs)
        out = jax.lax.map(lambda block: one_block(*block), blocked)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), out)

    def on_all(*arguments: Any) -> Any:
        split = len(arguments) - num_shared
        specs = (P("runs"),) * split + (P(),) * num_shared
        return jax.shard_map(on_device, mesh=layout.mesh, in_specs=specs, out_specs=P("runs"), check_vma=False)(
            *arguments
        )

    return on_all
