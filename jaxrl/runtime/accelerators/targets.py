"""Accelerators for which programs compile without one: their memory, and the limits of their speed."""

from __future__ import annotations

from typing import NamedTuple

from envs.errors import UserValueError
from envs.spelling import near
from jaxrl.runtime.machine.memory import GIB, MIB

# Time of a kernel in seconds among many that follow one another, an estimate: an iteration of PPO on an H200 took 1.2
# us for each of 2,068 kernels with one run, and 1.7 us for each of 1,973 with 64 (docs/results/benchmarks-gpu.md). A
# TPU does not start the operations of a program one by one.
KERNEL_SECONDS = 1.4e-6
# Shares of the memory that JAX gives to programs by default: a GPU reserves the rest, a TPU keeps 0.25 of 16 GiB.
GPU_SHARE, TPU_RESERVED = 0.75, GIB // 4

__all__ = ["KERNEL_SECONDS", "TARGETS", "Target", "named_target"]


class Gpu(NamedTuple):
    """Description of one of NVIDIA's GPUs for their compiler.

    Attributes:
      capability: Compute capability.
      cores: Number of multiprocessors.
      clock: Clock in GHz.
      threads, shared, shared_of_block: Threads, and bytes of shared memory, of a multiprocessor; bytes of shared memory
        that a block may ask for.
    """

    capability: tuple[int, int]
    cores: int
    clock: float
    threads: int
    shared: int
    shared_of_block: int


class Target(NamedTuple):
    """Accelerator to compile for.

    Attributes:
      name: Name, as in `jaxrl plan --for`.
      label: Name for people.
      memory: Bytes of the device's memory.
      bandwidth: Bytes that the memory delivers in a second, at most.
      operations: Operations in a second, at most: products of float32 matrices at JAX's default precision; those of
        narrower types are faster.
      cache: Bytes of the cache that all kernels share; 0 where the compiler places arrays on the chip itself.
      gpu: Description of a GPU; None for a TPU.
      topology: Name of a TPU's topology, of which one chip is used.

    Source: NVIDIA's data sheets of T4, L4, A100 (40 GB, SXM), H100 (SXM) and H200; Google's documentation of Cloud TPU.
    """

    name: str
    label: str
    memory: int
    bandwidth: float
    operations: float
    cache: int = 0
    gpu: Gpu | None = None
    topology: str = ""

    @property
    def platform(self) -> str:
        """Platform in JAX's terms, "gpu" or "tpu"."""
        return "tpu" if self.gpu is None else "gpu"

    @property
    def usable(self) -> int:
        """Bytes of memory that JAX gives to programs by default."""
        return self.memory - TPU_RESERVED if self.gpu is None else int(GPU_SHARE * self.memory)

    @property
    def kernel_seconds(self) -> float:
        """Estimate of the time that starting a kernel takes, in seconds."""
        return 0.0 if self.gpu is None else KERNEL_SECONDS


KIB = 1024
# fmt: off
TARGETS = {
    target.name: target
    for target in (
        Target("t4", "NVIDIA T4", 15_360 * MIB, 320e9, 8.1e12, 4 * MIB,
               Gpu((7, 5), 40, 1.59, 1024, 64 * KIB, 64 * KIB)),
        Target("l4", "NVIDIA L4", 23_034 * MIB, 300e9, 60e12, 48 * MIB,
               Gpu((8, 9), 58, 2.04, 1536, 100 * KIB, 99 * KIB)),
        Target("a100", "NVIDIA A100 40GB", 40_960 * MIB, 1_555e9, 156e12, 40 * MIB,
               Gpu((8, 0), 108, 1.41, 2048, 164 * KIB, 163 * KIB)),
        Target("h100", "NVIDIA H100 80GB", 81_042 * MIB, 3_352e9, 494e12, 50 * MIB,
               Gpu((9, 0), 132, 1.98, 2048, 228 * KIB, 227 * KIB)),
        Target("h200", "NVIDIA H200", 143_771 * MIB, 4_800e9, 494e12, 50 * MIB,
               Gpu((9, 0), 132, 1.98, 2048, 228 * KIB, 227 * KIB)),
        Target("tpu-v5e", "TPU v5e", 16 * GIB, 819e9, 197e12, topology="v5e:2x2"),
        Target("tpu-v6e", "TPU v6e", 32 * GIB, 1_640e9, 918e12, topology="v6e:2x2"),
    )
}
# fmt: on


def named_target(name: object, argument: str = "target") -> Target:
    """Accelerator of a name.

    Args:
      name: Name.
      argument: Name of the argument, for the message.

    Raises:
      ValueError: There is none of that name.
    """
    if not isinstance(name, str) or name not in TARGETS:
        hint = near(name.lower(), list(TARGETS)) if isinstance(name, str) else ""
        raise UserValueError(f"{argument} must be one of {', '.join(TARGETS)}, got {name!r}{hint}")
    return TARGETS[name]
