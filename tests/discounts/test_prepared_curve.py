"""`hparams.discount` has a curve, prepared or not, of one discount or of many."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algorithms.contract import prepared_for
from jaxrl.discounts.parsing import Discount, as_discount, prepare, stack

PREPARED_FOR, HORIZON = 16, 60  # the curve continues where the preparation ends
# A parameter and each factor of a running product are rounded to float32.
TOLERANCE: Any = {"rtol": 4 * HORIZON * 2.0**-24, "atol": 1e-7}
FAMILIES = [
    "exp:gamma=0.98",
    "quasi:beta=0.7,gamma=0.99",
    "hyperbolic:k=0.05",
    "beta:mu=0.98,eta=0.5",
    "fixed:horizon=40",
    "truncated:hyperbolic:0.1,horizon=30",
    "table:1,0.75,0.75,0.25",
    "mixture:0.5=0.25,0.99=0.75",
]


@flax.struct.dataclass
class HParams:
    """Hyper-parameters with only a discount."""

    discount: Any


@dataclasses.dataclass(frozen=True)
class Halves(Discount):
    """A user-defined family that only has a curve."""

    def curve(self, horizon: int) -> Any:
        return 0.5 ** np.arange(horizon + 1)


def discounts() -> list[Any]:
    inner = as_discount("hyperbolic:k=0.1")
    return [
        jaxrl.TruncatedDiscount(inner, 30) if text.startswith("truncated") else as_discount(text) for text in FAMILIES
    ]


@pytest.mark.parametrize("discount", discounts(), ids=FAMILIES)
def test_the_curve_is_the_familys_own(discount: Any) -> None:
    own = np.asarray(discount.curve(HORIZON), np.float64)
    hparams = HParams(discount)
    prepared = prepared_for(PREPARED_FOR)(hparams)
    for some in (hparams, prepared, prepared_for(PREPARED_FOR)(prepared)):
        for horizon in (1, PREPARED_FOR, HORIZON):
            np.testing.assert_allclose(some.discount.curve(horizon), own[: horizon + 1], **TOLERANCE)
    traced = jax.jit(lambda hparams: hparams.discount.curve(HORIZON))(jax.tree.map(jnp.float32, prepared))
    np.testing.assert_allclose(traced, own, **TOLERANCE)


def test_curves_of_a_batch_are_those_of_its_members() -> None:
    members = discounts()
    own = np.stack([np.asarray(member.curve(HORIZON), np.float64) for member in members])
    stacked = prepare(stack(members), PREPARED_FOR, len(members))
    np.testing.assert_allclose(stacked.curve(HORIZON), own, **TOLERANCE)
    each = jax.vmap(lambda discount: discount.curve(HORIZON))(jax.tree.map(jnp.asarray, stacked))
    np.testing.assert_allclose(each, own, **TOLERANCE)


@pytest.mark.parametrize("text", ["exp", "hyperbolic", "beta"])
def test_curves_of_one_family_in_a_sweep(text: str) -> None:
    some = {"exp": ["0.9", "0.98"], "hyperbolic": ["hyperbolic:0.1", "hyperbolic:0.02"]}
    values = some.get(text, ["beta:0.98,0.5", "beta:0.9,0"])
    sweep = jaxrl.grid(HParams(as_discount(values[0])), {"discount": values})
    prepared = prepared_for(PREPARED_FOR)(sweep.hparams, len(values))
    own = np.stack([np.asarray(as_discount(value).curve(HORIZON), np.float64) for value in values])
    np.testing.assert_allclose(prepared.discount.curve(HORIZON), own, **TOLERANCE)
    np.testing.assert_allclose(sweep.hparams.discount.curve(HORIZON), own, **TOLERANCE)


def test_a_family_with_only_a_curve_has_its_prepared_part() -> None:
    prepared = prepare(Halves(), PREPARED_FOR)
    np.testing.assert_allclose(prepared.curve(PREPARED_FOR), 0.5 ** np.arange(PREPARED_FOR + 1))
    np.testing.assert_allclose(prepared.curve(3), [1, 0.5, 0.25, 0.125])
    with pytest.raises(ValueError, match=r"^horizon must be at most the 16 steps that were prepared, got 17$"):
        prepared.curve(PREPARED_FOR + 1)
    with pytest.raises(ValueError, match="horizon"):
        prepare("0.9", 4).curve(-1)
