"""Compilation in less than half of its usual time, for tests that compare numbers within a tolerance."""

from collections.abc import Callable
from typing import Any

import jax

# Without LLVM's optimisations, and with XLA's older kernels for fused operations, which JAX 0.11 selects by XLA_FLAGS
# alone: for a step of SAC 3.6 s of processor time in place of 9.0 s. The program computes the same, up to rounding.
OPTIONS: dict[str, bool | int | str] = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 11):
    OPTIONS["xla_cpu_use_fusion_emitters"] = False


def quick_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled in little time on a CPU; for short programs, since it runs slower."""
    return jax.jit(function, compiler_options=OPTIONS if jax.default_backend() == "cpu" else None)
