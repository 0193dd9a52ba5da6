"""Theta: the numbers that an outer loop learns, and their place among the hyper-parameters of an algorithm."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxrl.pytrees import HParams


class Theta(NamedTuple):
    """Numbers that an outer loop learns.

    Attributes:
      name: Name for results, such as "discount".
      initial: Pytree of float32 arrays at which learning starts. The numbers are unconstrained: `apply` maps them to
        the ranges of the hyper-parameters.
      apply: Function `(theta, hparams) -> hparams` that puts the numbers into the hyper-parameters of one run; pure, to
        be vmapped over a population.
    """

    name: str
    initial: Any
    apply: Callable[[Any, HParams], HParams]
