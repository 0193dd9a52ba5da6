"""Hyper-parameters of several numbers: small pytrees of arrays with a string from which they are made again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import jax
import numpy as np

from envs.errors import UserValueError
from jaxrl.checks import is_concrete
from jaxrl.discounts.families import format_number
from jaxrl.importing import imported

__all__ = ["Composite", "as_array", "as_composite", "is_composite_text", "stack_composites"]

_KINDS = {"curve": "jaxrl.learning.curves:Curve", "drift": "jaxrl.learning.drift:Drift"}  # by prefix


class Composite:
    """Base of hyper-parameters of several numbers, such as `Curve`; each subclass is a pytree of its attributes.

    Attributes are arrays, concrete or traced, which JAX replaces unchecked; a stack of them has a leading axis.

    Attributes:
      prefix: Beginning of the string form, before the colon.
      names: Names of the attributes, in the order of the numbers of the string form.
      ranks: Numbers of axes of the attributes of a single one.
    """

    prefix: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    ranks: ClassVar[tuple[int, ...]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)

        def flatten(node: Any) -> tuple[list[Any], None]:
            return [getattr(node, name) for name in cls.names], None

        def flatten_with_keys(node: Any) -> tuple[list[Any], None]:
            return [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in cls.names], None

        def unflatten(_: None, leaves: Iterable[Any]) -> Any:
            return cls._of(leaves)

        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)

    @classmethod
    def _of(cls, leaves: Iterable[Any]) -> Self:
        """One with these attributes, unchecked."""
        node = object.__new__(cls)
        for name, leaf in zip(cls.names, leaves, strict=True):
            object.__setattr__(node, name, leaf)
        return node

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> Self:
        """One from the numbers of its string form.

        Raises:
          ValueError: No value has this many numbers, or they are out of range.
        """
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set")

    def is_single(self) -> bool:
        """Whether this is one value of known numbers, neither a stack nor traced."""
        leaves = [getattr(self, name) for name in self.names]
        arrays = all(isinstance(leaf, np.ndarray | np.generic | jax.Array) for leaf in leaves)
        return arrays and is_concrete(leaves) and self.ranks == tuple(map(np.ndim, leaves))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        own, others = jax.tree.leaves(self), jax.tree.leaves(other)
        if not is_concrete((own, others)):
            return self is other
        return all(np.array_equal(one, another) for one, another in zip(own, others, strict=True))

    def __hash__(self) -> int:
        return hash((type(self), str(self)))

    def __str__(self) -> str:
        """String from which `as_composite` makes this again (the `repr` of a traced one or a stack)."""
        if not self.is_single():
            return repr(self)
        numbers = np.concatenate([np.ravel(np.asarray(getattr(self, name))) for name in self.names])
        return f"{self.prefix}:{','.join(map(format_number, numbers))}"

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}{list(np.shape(getattr(self, name)))}" for name in self.names)
        return f"{type(self).__name__}({shapes})"


def as_array(value: Any) -> Any:
    """Numbers as a float32 array; arrays of JAX and tracers as they are."""
    kept = hasattr(value, "dtype") and not isinstance(value, np.ndarray | np.generic)
    return value if kept else np.asarray(value, np.float32)


def as_composite(text: str) -> Composite | None:
    """Hyper-parameter from its string form, such as "curve:0.001,0.0003,0"; None for a string of another form.

    Raises:
      ValueError: The string has the prefix of one, and does not parse.
    """
    if not is_composite_text(text):
        return None
    numbers = []
    for part in text.partition(":")[2].split(","):
        try:
            numbers.append(float(part))
        except ValueError:
            raise UserValueError(f"{text!r} does not parse: {part.strip()!r} is not a number") from None
    if not all(map(math.isfinite, numbers)):
        raise UserValueError(f"{text!r} does not parse: its numbers must be finite")
    kind: type[Composite] = imported(_KINDS[_prefix(text)])
    return kind.from_numbers(numbers)


def is_composite_text(text: str) -> bool:
    """Whether a string has the prefix of a string form."""
    return ":" in text and _prefix(text) in _KINDS


def _prefix(text: str) -> str:
    return text.partition(":")[0].strip().lower()


def stack_composites(members: list[Any]) -> Any:
    """Stack of hyper-parameters of one kind, float32 `[S, ...]`, for many settings in one program.

    Raises:
      ValueError: Their arrays have different shapes.
    """
    shapes = {(type(member), tuple(np.shape(leaf) for leaf in jax.tree.leaves(member))) for member in members}
    if len(shapes) > 1:
        listing = " and ".join(dict.fromkeys(map(repr, members)))
        raise UserValueError(f"the settings of a sweep take hyper-parameters of equal shapes, got {listing}")
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *members)
