"""Names of pytrees in signatures: what a pytree is for, where its structure is that of an algorithm or environment."""

from typing import Any, TypeAlias

PyTree: TypeAlias = Any
HParams: TypeAlias = PyTree  # hyper-parameters of an algorithm
EnvParams: TypeAlias = PyTree  # parameters of an environment
Params: TypeAlias = PyTree  # parameters of networks
Memory: TypeAlias = PyTree  # what a policy remembers within an episode; `()` without a memory
State: TypeAlias = PyTree  # state of an algorithm, or of an environment
Policy: TypeAlias = PyTree  # what an algorithm's actor acts by

__all__ = ["EnvParams", "HParams", "Memory", "Params", "Policy", "PyTree", "State"]
