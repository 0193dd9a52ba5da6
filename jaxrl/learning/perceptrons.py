"""Hyper-parameters that are small networks: one hidden layer, whose output is 0 until its weights are learned."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import numpy as np

from envs.errors import UserTypeError, UserValueError
from jaxrl.checks import short
from jaxrl.learning.composites import Composite, as_array

__all__ = ["Perceptron"]


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
