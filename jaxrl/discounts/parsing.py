"""Discounts: sequences Gamma(0) = 1 >= Gamma(1) >= ..., from numbers, strings or families; stacks of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import chex
import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserTypeError, UserValueError
from envs.spelling import near
from jaxrl.checks import is_concrete
from jaxrl.discounts.exponential_mixture import ExponentialMixture
from jaxrl.discounts.families import (
    FAMILIES,
    BetaWeighted,
    Exponential,
    Family,
    FixedHorizon,
    Hyperbolic,
    QuasiHyperbolic,
    Tabulated,
    TruncatedDiscount,
    check_curve,
)
from jaxrl.discounts.form import Form, Prepared, checked_horizon, prepare_form, stack_forms, to_host
from jaxrl.pytrees import DiscountLike

__all__ = [
    "GAMMA_HINT",
    "BetaWeighted",
    "Discount",
    "Exponential",
    "ExponentialMixture",
    "Family",
    "FixedHorizon",
    "Hyperbolic",
    "Prepared",
    "QuasiHyperbolic",
    "Tabulated",
    "TruncatedDiscount",
    "as_discount",
    "discount_name",
    "prepare",
    "stack",
]

EXAMPLES = (
    "0.98, 'exp:gamma=0.98', 'beta:mu=0.98,eta=0.5', 'beta:0.98,0.5', 'hyperbolic:k=0.02', "
    "'quasi:beta=0.9,gamma=0.99', 'mixture:0.9=0.25,0.99=0.75', 'fixed:horizon=100' or 'table:1,0.9,0.5'"
)
# Largest number of values stored per run for a family that only has a curve; more would fill the memory.
LONGEST_EPISODE = 2**17
GAMMA_HINT = "gamma is not a field: use discount=0.99 or another discount, such as 'beta:0.98,0.5'"
_PREFIXES = {family.prefix: family for family in (*FAMILIES, ExponentialMixture)}


@runtime_checkable
class Discount(Protocol):
    """The protocol of discounts: a pytree with a curve.

    A user-defined family needs no more than this: a pytree (a `flax.struct.dataclass`, say) whose parameters are its
    leaves. `ugae` applies it lag by lag, in O(T^2) time and O(T) memory.
    """

    def curve(self, horizon: int) -> Any:
        """Gamma(0) ... Gamma(horizon), `[horizon + 1]`, with Gamma(0) = 1."""
        ...


def as_discount(value: object) -> Discount:
    """A discount from a number, a string or a discount.

    Args:
      value: Number or array (the rate of an `Exponential`; may be traced), string such as `"beta:mu=0.98,eta=0.5"` or
        `"beta:0.98,0.5"`, or discount, which is returned unchanged.

    Returns:
      The discount; `str` of it is the string that parses back to it.

    Raises:
      ValueError: The string does not parse, or a parameter is out of range.
      TypeError: `value` is anything else.
    """
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, Discount) and not isinstance(value, type):
        return value
    if isinstance(value, int | float | np.generic | np.ndarray | jax.Array) and not isinstance(value, bool):
        return Exponential(value)
    raise UserTypeError(f"A discount is a number, a string or a Discount, such as {EXAMPLES}, not {value!r}.")


def prepare(
    discount: DiscountLike, horizon: int, batch_size: int | None = None, episode_length: int | None = None
) -> Prepared:
    """Resolve a discount, once, for rollouts of at most `horizon` steps.

    Concrete parameters are resolved on the host in float64, traced ones by an eigenvalue decomposition in float32,
    whose rates differ by up to 6.3e-6; call this function outside the training loop. The number of exponentials Q is
    static: 1 for `Exponential`, 2 for `QuasiHyperbolic`, ceil(1.9 sqrt(horizon)) otherwise, and one more where beta is
    present too.

    Args:
      discount: Number, string or discount, as in `as_discount`; stack of discounts (every leaf of the result then has
        its leading axis); or `Prepared`, which is returned unchanged.
      horizon: Number of steps, at least 1, static.
      batch_size: Size S of a stack of a user-defined family, with leaves `[S, ...]`; None for a single discount.
        The families of this package ignore it.
      episode_length: Time limit of episodes, in steps, up to which a family that only has a curve is resolved if it
        exceeds the horizon; `next_weight` of the other families is defined for every delay.

    Returns:
      The prepared discount, float32.

    Raises:
      ValueError: A user-defined curve has another shape, does not start at 1, grows, or is not finite, or episodes have
        no time limit for it.
    """
    if isinstance(discount, Prepared):
        return discount
    horizon = checked_horizon(horizon, 1)
    discount = as_discount(discount)
    if isinstance(discount, Family | Form):
        resolved = to_host(discount) if is_concrete(discount) else discount
        return prepare_form(resolved if isinstance(resolved, Form) else resolved.form(), horizon)
    reach = _reach(discount, horizon, episode_length)
    if batch_size is None:
        return Prepared(None, None, None, _checked_curve(discount, horizon, reach), None, reach)
    chex.assert_tree_shape_prefix(discount, (batch_size,), custom_message="discount, batch_size")
    # One by one, not by vmap: a curve may be written in NumPy, and may branch on its parameters.
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], discount) for i in range(batch_size)]
    lags = jnp.stack([_checked_curve(member, horizon, reach) for member in members])
    return Prepared(None, None, None, lags, None, reach)


def stack(discounts: Sequence[Any]) -> Any:
    """One discount whose leaves are `[S]`, for `jax.vmap` over a sweep.

    Args:
      discounts: Sequence of S single discounts, each as in `as_discount`, all concrete.

    Returns:
      The same family if all are of one; otherwise the common form, with neutral values (eta 0, beta 1, no horizon,
      no table) where a family lacks a parameter. In both cases all S run in one program.

    Raises:
      TypeError: A user-defined family, which has no common form, is combined with others.
    """
    members = [as_discount(discount) for discount in discounts]
    if not members:
        raise UserValueError("stack takes at least one discount, got none.")
    layouts = {(jax.tree.structure(d), tuple(np.shape(leaf) for leaf in jax.tree.leaves(d))) for d in members}
    if len(layouts) == 1:
        return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *members)
    forms = []
    for member in members:
        if not isinstance(member, Family):
            name = type(member).__name__
            raise UserTypeError(f"{name} cannot share a sweep with other families; give it as Tabulated(its curve).")
        forms.append(to_host(member).form())
    return stack_forms(forms)


def discount_name(discount: DiscountLike) -> str:
    """Name of a discount, or of the first of a stack, for an error message."""
    if isinstance(discount, Form | Prepared):
        return "the discount"
    family = as_discount(discount)
    if not isinstance(family, Family) or not is_concrete(family):
        return type(family).__name__
    return str(family if family.is_single() else jax.tree.map(lambda leaf: np.asarray(leaf)[0], family))


def _reach(discount: Discount, horizon: int, episode_length: int | None) -> int:
    """Number of steps up to which a discount that only has a curve is resolved."""
    if episode_length is None:
        return horizon
    if episode_length > LONGEST_EPISODE:
        raise UserValueError(
            f"{type(discount).__name__} only has a curve, which evaluation needs up to the time limit of episodes: "
            f"max_steps_in_episode must be at most {LONGEST_EPISODE}, got {episode_length}; set a limit with "
            f"envs.wrappers.time_limit, or use the family nearest to the curve, from jaxrl.fit."
        )
    return max(horizon, episode_length)


def _checked_curve(discount: Discount, horizon: int, reach: int) -> jax.Array:
    """The curve up to `horizon`, bit for bit, and extended to `reach`."""
    known = _curve(discount, horizon)
    return known if reach == horizon else jnp.concatenate([known, _curve(discount, reach)[horizon + 1 :]])


def _curve(discount: Discount, horizon: int) -> jax.Array:
    curve = jnp.asarray(discount.curve(horizon), jnp.float32)
    name = type(discount).__name__
    if curve.shape != (horizon + 1,):
        raise UserValueError(f"{name}.curve({horizon}) must have the shape ({horizon + 1},), got {curve.shape}.")
    if is_concrete(curve):
        check_curve(np.asarray(curve), f"{name}.curve")
    return curve


def _parse(text: str) -> Discount:
    stripped = text.strip()
    if _is_number(stripped):
        return Exponential(float(stripped))
    prefix, colon, rest = stripped.partition(":")
    prefix = prefix.strip().lower()
    if not colon:
        raise _unparsed(text, "it is neither a number nor 'family:parameters'")
    if prefix not in _PREFIXES:
        raise _unparsed(text, f"the families are {', '.join(_PREFIXES)}{near(prefix, _PREFIXES).rstrip('?')}")
    parts = _split(rest, text)
    if prefix == "table":
        return Tabulated([_parse_number(part, text) for part in parts])
    if prefix == "mixture":
        pairs = [part.partition("=") for part in parts]
        for part, (_, equals, _) in zip(parts, pairs, strict=True):
            if not equals:
                raise _unparsed(text, f"mixture takes rate=weight for each exponential, got {part!r}")
        columns = zip(
            *((_parse_number(rate, text), _parse_number(weight, text)) for rate, _, weight in pairs), strict=True
        )
        return ExponentialMixture(*map(list, columns))
    names = [field.name for field in dataclasses.fields(_PREFIXES[prefix])]  # pyright: ignore[reportArgumentType]
    values: dict[str, Any] = {}
    for position, part in enumerate(parts):
        name, value = names[min(position, len(names) - 1)], part
        if "=" in part.partition("(")[0]:
            name, _, value = (piece.strip() for piece in part.partition("="))
        elif position >= len(names):
            raise _unparsed(text, f"{prefix} takes {' and '.join(names)}")
        if name not in names or name in values:
            problem = "is given twice" if name in values else f"is not one of {', '.join(names)}"
            raise _unparsed(text, f"{name!r} {problem}")
        if name != "inner":
            values[name] = _parse_number(value, text)
        else:
            values[name] = _parse(value[1:-1] if value.startswith("(") and value.endswith(")") else value)
    if len(values) != len(names):
        raise _unparsed(text, f"{prefix} takes {' and '.join(names)}")
    return _PREFIXES[prefix](**values)


def _split(text: str, whole: str) -> list[str]:
    """The parts between commas that no parenthesis encloses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth != 0:
        raise _unparsed(whole, "its parentheses do not match")
    return [part.strip() for part in parts]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_number(text: str, whole: str) -> float:
    if not _is_number(text):
        raise _unparsed(whole, f"{text!r} is not a number")
    return float(text)


def _unparsed(text: str, reason: str) -> ValueError:
    return UserValueError(f"The discount {text!r} does not parse ({reason}): it takes {EXAMPLES}.")
