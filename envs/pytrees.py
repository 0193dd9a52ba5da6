"""Names of pytrees in signatures: what a value is for, where its structure is that of an environment."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from jax.typing import ArrayLike
else:
    ArrayLike = Any  # so that checks of arguments and statistics need not load JAX

PyTree: TypeAlias = Any
Params: TypeAlias = PyTree  # parameters of an environment
State: TypeAlias = PyTree  # state of an environment
Observation: TypeAlias = PyTree  # an array, or a dictionary of arrays; with leading axes for agents and for steps
Action: TypeAlias = PyTree  # an array, or a tuple or dictionary of arrays
Mask: TypeAlias = PyTree  # allowed actions: an array, one for each choice of an action, or None
Memory: TypeAlias = PyTree  # what an agent remembers within an episode; `()` without a memory
DiscountLike: TypeAlias = Any  # None, a number, a curve, a discount's string, or an object with a method `curve`
Number: TypeAlias = ArrayLike  # a number or an array of numbers, concrete or traced
