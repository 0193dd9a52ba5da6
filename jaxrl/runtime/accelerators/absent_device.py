"""Devices that are not there, described to the compilers of JAX's plugins, which need no more than the description."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import Any

from envs.errors import MissingPackageError, UserValueError, installing
from jaxrl.results.format import reason
from jaxrl.runtime.accelerators.targets import Gpu, Target

CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
# Variables that keep the library of TPUs from asking Google's servers which machine this is.
TPU_VARIABLES = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile at a time
}
GPU_TEXT = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_core: {gpu.shared} shared_memory_per_block_optin: {gpu.shared_of_block}
  threads_per_core_limit: {gpu.threads} core_count: {gpu.cores} clock_rate_ghz: {gpu.clock}
  memory_bandwidth: {bandwidth} l2_cache_size: {target.cache} device_memory_size: {target.memory}
  cuda_compute_capability {{ major: {gpu.capability[0]} minor: {gpu.capability[1]} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{target.label}"
"""

_TARGETS: dict[Any, Target] = {}

__all__ = ["absent_device", "compiler_options_of", "target_of"]


def absent_device(target: Target) -> Any:
    """Device of an accelerator, for which programs can be compiled but not executed.

    Args:
      target: Accelerator.

    Raises:
      ImportError: The plugin with the compiler is not installed.
      ValueError: The plugin refuses, with its reason.
    """
    try:
        device = _device(target)
    except RuntimeError as error:  # JAX's own errors are among these
        hint = "" if os.environ.get("JAX_PLATFORMS") == "cpu" else "; set JAX_PLATFORMS=cpu before JAX starts"
        raise UserValueError(
            f"target cannot be {target.name}, because its compiler refuses: {reason(error)}{hint}"
        ) from error
    _TARGETS[device] = target
    return device


def target_of(device: Any) -> Target | None:
    """Accelerator that an absent device stands for; None for a device of this machine."""
    return _TARGETS.get(device)


def compiler_options_of(target: Target) -> dict[str, Any]:
    """Options of XLA's compiler for an absent device: a GPU's kernels cannot be tried out, so estimates choose them."""
    return {"xla_gpu_autotune_level": 0} if target.gpu is not None else {}


@functools.cache
def _device(target: Target) -> Any:
    from jax.experimental import topologies

    if target.gpu is None:
        if importlib.util.find_spec("libtpu") is None:
            raise _missing(target, "tpu")
        with _environment({**TPU_VARIABLES, "TPU_ACCELERATOR_TYPE": _accelerator_type(target)}):
            return topologies.get_topology_desc(topology_name=target.topology, platform="tpu").devices[0]
    if not any(importlib.util.find_spec(plugin) for plugin in CUDA_PLUGINS):
        raise _missing(target, "cuda12")
    text = GPU_TEXT.format(target=target, gpu=target.gpu, bandwidth=int(target.bandwidth), fpus=_fpus(target.gpu))
    return topologies.get_topology_desc("", "cuda", target_config=text, topology="1x1x1").devices[0]


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _accelerator_type(target: Target) -> str:
    return {"v5e": "v5litepod-4"}.get(target.topology.partition(":")[0], f"{target.topology.partition(':')[0]}-4")


def _fpus(gpu: Gpu) -> int:
    """Number of float32 units of a multiprocessor."""
    return 128 if gpu.capability >= (8, 6) else 64


def _missing(target: Target, extra: str) -> MissingPackageError:
    return MissingPackageError(
        f"a plan for {target.name} needs the compiler of an extra: {installing(extra)}, on Linux"
    )
