"""Hyper-parameters of several numbers, such as curves over a run and the weights of small networks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import in_interval
from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import Range, is_concrete, short
from jaxrl.discounts.families import format_number
from jaxrl.importing import imported
from jaxrl.pytrees import PyTree

__all__ = [
    "Composite",
    "Curve",
    "Perceptron",
    "as_array",
    "as_composite",
    "check_curve_range",
    "is_composite_text",
    "stack_composites",
]

_KINDS = {  # by prefix
    "curve": "jaxrl.learning.composites:Curve",
    "drift": "jaxrl.learning.drift:Drift",
    "learned-optimiser": "jaxrl.learning.optimisers:LearnedOptimiser",
}


class Composite:
    """Base of hyper-parameters of several numbers, such as `Curve`; each subclass is a pytree of its attributes.

    Attributes are arrays, concrete or traced, which JAX replaces unchecked; a stack of them has a leading axis.

    Attributes:
      prefix: Beginning of the string form, before the colon.
      names: Names of the attributes, in the order of the numbers of the string form.
      ranks: Numbers of axes of the attributes of a single one.
      over_run: Whether the value changes over a run; it then has a function `at` of the share of the run that is over,
        `[]`, which returns the value there.
    """

    prefix: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    ranks: ClassVar[tuple[int, ...]]
    over_run: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)

        def flatten(node: PyTree) -> tuple[list[Any], None]:
            return [getattr(node, name) for name in cls.names], None

        def flatten_with_keys(node: PyTree) -> tuple[list[Any], None]:
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

    def __setattr__(self, name: str, value: object) -> None:
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


class Curve(Composite):
    """Hyper-parameter that changes over a run: values at evenly spaced points of it, and on straight lines between.

    Args:
      values: Values at K >= 2 points, `[K]`, the first at the start of the run and the last at its end, traced.

    Fields of hyper-parameters that are in `composites` of their class take it in place of a number. It covers
    `anneal_env_steps`, by default the whole run.

    Raises:
      TypeError: The values are not a sequence of numbers.
      ValueError: There are fewer than 2 values, or one is not finite.
    """

    prefix = "curve"
    names = ("values",)
    ranks = (1,)
    over_run = True
    values: Any

    def __init__(self, values: Any) -> None:
        if isinstance(values, str) or not np.shape(values):
            raise UserTypeError(f"Curve takes a list of numbers, such as [1e-3, 3e-4, 0.0], got {values!r}")
        try:
            numbers = as_array(values)
        except (TypeError, ValueError):
            raise UserTypeError(f"Curve takes a list of numbers, such as [1e-3, 3e-4, 0.0], got {values!r}") from None
        if np.ndim(numbers) != 1 or len(numbers) < 2:
            raise UserValueError(f"Curve takes 2 values or more, along one axis, got {values!r}")
        if is_concrete(numbers) and not np.all(np.isfinite(np.asarray(numbers, np.float32))):
            raise UserValueError(f"Curve takes finite values, got {values!r}")
        object.__setattr__(self, "values", numbers)

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> Self:
        return cls(numbers)

    def __repr__(self) -> str:
        if not self.is_single():
            return super().__repr__()
        return f"Curve([{str(self).partition(':')[2].replace(',', ', ')}])"

    def at(self, share: jax.Array) -> jax.Array:
        """Value after a share of the run, `[]` float32; a curve of equal values has exactly their value everywhere.

        Args:
          share: Share in [0, 1], `[]`, traced.
        """
        values = jnp.asarray(self.values, jnp.float32)
        chex.assert_rank([values, share], [1, 0], custom_message="values, share")
        position = share * (len(values) - 1)
        before = jnp.floor(position)
        here = jnp.arange(len(values)) == before  # a sum, because `vmap` would make a gather of an index
        low = jnp.sum(jnp.where(here, values, 0.0))
        high = jnp.sum(jnp.where(here, jnp.append(values[1:], values[-1]), 0.0))
        return low + (high - low) * (position - before)


def check_curve_range(name: str, curve: Curve, allowed: Range) -> None:
    """Check that all values of a curve are in a range in float32; traced ones and stacks pass.

    Raises:
      ValueError: A value is outside the range.
    """
    if not curve.is_single():
        return
    values = np.asarray(curve.values, np.float32)
    outside = values[~in_interval(values, *allowed)]
    if outside.size:
        raise UserValueError(f"{name} must lie in {allowed}, got {outside[0]} in {curve}")


def as_array(value: object) -> Any:
    """Numbers as a float32 array; arrays of JAX and tracers as they are."""
    kept = hasattr(value, "dtype") and not isinstance(value, np.ndarray | np.generic)
    return value if kept else np.asarray(value, np.float32)


class Perceptron(Composite):
    """Base of weights of a network of `width` hidden units with tanh, which a subclass gives a number of inputs.

    Args:
      hidden: Weights of the hidden layer, `[num_inputs, width]`, traced.
      bias: Biases of the hidden layer, `[width]`, traced.
      out: Weights of the output, `[width, *outputs]`, traced.
      offset: Bias of the output, `[*outputs]`, traced.

    Attributes:
      field: Name of the hyper-parameter with the weights; the field of the configuration with the width has the suffix
        `_width`.
      num_inputs: Number of inputs.
      outputs: Shape of the output, `()` or `(n,)`.

    Raises:
      ValueError: The shapes do not fit each other.
    """

    names = ("hidden", "bias", "out", "offset")
    field: ClassVar[str]
    num_inputs: ClassVar[int]
    outputs: ClassVar[tuple[int, ...]] = ()
    hidden: Any
    bias: Any
    out: Any
    offset: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.ranks = (2, 1, 1 + len(cls.outputs), len(cls.outputs))

    def __init__(self, hidden: Any, bias: Any, out: Any, offset: Any) -> None:
        for name, value in zip(self.names, (hidden, bias, out, offset), strict=True):
            object.__setattr__(self, name, as_array(value))
        shapes = tuple(np.shape(getattr(self, name)) for name in self.names)
        width = shapes[1][-1] if shapes[1] else 0
        if width < 1 or shapes != self._shapes(width):
            *takes, last = (str(shape).replace("'", "") for shape in self._shapes("n"))
            got = ", ".join(map(str, shapes))
            raise UserValueError(f"{type(self).__name__} takes the shapes {', '.join(takes)} and {last}, got {got}")

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> Self:
        last = int(np.prod(cls.outputs, dtype=int))
        width, rest = divmod(len(numbers) - last, cls.num_inputs + 1 + last)
        if width < 1 or rest:
            raise UserValueError(
                f"{cls.prefix} has {cls.num_inputs + 1 + last} numbers for each hidden unit and {last}, got "
                f"{len(numbers)}"
            )
        shapes = cls._shapes(width)
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes[:-1]])
        parts = zip(np.split(np.asarray(numbers, np.float32), ends), shapes, strict=True)
        return cls(*(part.reshape(shape) for part, shape in parts))

    @classmethod
    def initial(cls, width: int) -> Self:
        """Weights whose output is 0: random hidden units, always the same ones, and an output layer of zeros.

        Args:
          width: Number of hidden units.
        """
        random = np.random.default_rng(0)
        *units, out, offset = cls._shapes(width)
        hidden, bias = (random.uniform(-1, 1, shape).astype(np.float32) for shape in units)
        return cls(hidden, bias, np.zeros(out, np.float32), np.zeros(offset, np.float32))

    @classmethod
    def effective(cls, value: Any, width: int | None, without: str, num_settings: int | None = None) -> Any:
        """Weights of a network that is in use; None where it is not.

        Args:
          value: Value of the hyper-parameter; None stands for the initial weights.
          width: Number of hidden units; None where the network is not in use.
          without: Configuration by which it is not in use, for messages.
          num_settings: Number of settings in a batch, whose weights have a leading axis; None for a single setting.

        Raises:
          TypeError: The value is something else than such weights.
          ValueError: There are weights of a network that is not in use, or of another number of hidden units.
        """
        name = cls.field
        if value is not None and not isinstance(value, cls):
            raise UserTypeError(f"{name} takes a {cls.__name__}, or None for the initial weights, got {short(value)}")
        if width is None:
            if value is not None:
                raise UserValueError(f"{name} has no effect with {without}, got {value!r}; leave it out")
            return None
        if value is None:
            initial = cls.initial(width)
            if num_settings is None:
                return initial
            return jax.tree.map(lambda leaf: np.stack([leaf] * num_settings), initial)
        if value.width != width:
            raise UserValueError(f"{name} takes the weights of {name}_width={width} hidden units, got {value.width}")
        return value

    @property
    def width(self) -> int:
        """Number of hidden units."""
        return np.shape(self.bias)[-1]

    @classmethod
    def _shapes(cls, width: Any) -> tuple[tuple[Any, ...], ...]:
        return (cls.num_inputs, width), (width,), (width, *cls.outputs), cls.outputs


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
