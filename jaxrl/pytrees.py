"""Names of pytrees in signatures: what a pytree is for, where its structure is that of an algorithm or environment."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeAlias

import jax

from envs.pytrees import Action as Action
from envs.pytrees import DiscountLike as DiscountLike
from envs.pytrees import Mask as Mask
from envs.pytrees import Memory as Memory
from envs.pytrees import Number as Number
from envs.pytrees import Observation as Observation
from envs.pytrees import PyTree as PyTree

HParams: TypeAlias = PyTree  # hyper-parameters of an algorithm
EnvParams: TypeAlias = PyTree  # parameters of an environment
Params: TypeAlias = PyTree  # parameters of networks
State: TypeAlias = PyTree  # state of an algorithm, or of an environment
Policy: TypeAlias = PyTree  # what an algorithm's actor acts by


def register_fields(kind: type[Any]) -> None:
    """Make a dataclass a pytree of its fields, which JAX rebuilds unchecked from any leaves (axes, gradients)."""

    def flatten(node: Any) -> tuple[list[Any], None]:
        return [getattr(node, field.name) for field in dataclasses.fields(kind)], None

    def flatten_with_keys(node: Any) -> tuple[list[Any], None]:
        keys = [jax.tree_util.GetAttrKey(field.name) for field in dataclasses.fields(kind)]
        return list(zip(keys, flatten(node)[0], strict=True)), None

    def unflatten(_: None, leaves: Iterable[Any]) -> Any:
        node = object.__new__(kind)
        for field, leaf in zip(dataclasses.fields(kind), leaves, strict=True):
            object.__setattr__(node, field.name, leaf)
        return node

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
