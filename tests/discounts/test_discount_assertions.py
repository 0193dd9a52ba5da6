"""Discounts reject arrays of wrong shapes and name the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flax import struct
from leaf_functions import assert_complete, assert_refused

from jaxrl.discounts import families, fitting, form, mixtures, parsing, properties
from jaxrl.discounts.families import BetaWeighted, Hyperbolic, QuasiHyperbolic
from jaxrl.discounts.form import Form, Prepared

ONE, TWO, THREE = np.float32(0.9), np.full(2, 0.9, np.float32), np.full(3, 0.9, np.float32)
PREPARED = parsing.prepare(0.9, 4)


class Short:
    """A user-defined discount with a curve that ends too early."""

    def curve(self, horizon: int) -> np.ndarray:
        return np.ones(horizon)


@struct.dataclass
class Own:
    """A user-defined discount, with a parameter to stack."""

    rate: Any

    def curve(self, horizon: int) -> Any:
        return self.rate ** np.arange(horizon + 1)


def prepared(rates: Any, weights: Any) -> Prepared:
    return Prepared(rates, weights, None, None, Form(ONE, ONE), 4)


CALLS: list[tuple[str, str, Callable[[], Any]]] = [
    ("families.check_curve", "values", lambda: families.check_curve(np.ones(()))),
    ("families.format_number", "value", lambda: families.format_number(TWO)),
    ("form.Form.broadcast", "eta", lambda: Form(THREE, 1 - THREE, eta=TWO).broadcast()),
    ("form.Form.broadcast", "table", lambda: Form(ONE, ONE, table=ONE, tail=ONE).broadcast()),
    ("form.Form.broadcast", "table", lambda: Form(THREE, THREE, table=np.ones((2, 5)), tail=ONE).broadcast()),
    ("form.Form.broadcast", "weights", lambda: Form(THREE, THREE, rates=TWO, weights=np.ones((2, 2))).broadcast()),
    ("form.Form.ratio", "t", lambda: Form(THREE, 1 - THREE).ratio(np.arange(2))),
    ("form.Prepared.next_weight", "weight", lambda: PREPARED.next_weight(np.arange(3), TWO)),
    ("form._beta_nodes", "eta", lambda: form._beta_nodes(TWO, TWO, THREE, 2, np)),
    ("form.prepare_form", "beta", lambda: form.prepare_form(Form(THREE, 1 - THREE, beta=TWO), 4)),
    ("form.stack_forms", "forms", lambda: form.stack_forms([Form(TWO, TWO), Form(TWO, TWO)])),
    ("form.stack_forms", "forms", lambda: form.stack_forms([Form(ONE, ONE, table=np.ones((2, 3)), tail=ONE)])),
    ("families.Family.curve", "eta", lambda: BetaWeighted(THREE, TWO).curve(3)),
    ("families.Family.mixture", "beta", lambda: QuasiHyperbolic(TWO, THREE).mixture(3)),
    ("fitting._least_squares", "roots", lambda: fitting._least_squares(np.ones(4), np.ones(3))),
    ("mixtures.few_nodes", "weights", lambda: mixtures.few_nodes(THREE, TWO, 2, 9)),
    ("mixtures.few_nodes", "rates", lambda: mixtures.few_nodes(np.ones((2, 2)), np.ones((2, 2)), 2, 9)),
    ("mixtures.head_sizes", "discount.rates", lambda: mixtures.head_sizes(prepared(np.ones((2, 3)), np.ones((2, 3))))),
    ("mixtures.with_nodes", "discount.weights", lambda: mixtures.with_nodes(prepared(THREE, TWO), 4, 9)),
    ("parsing.prepare", "batch_size", lambda: parsing.prepare(Own(TWO), 3, batch_size=3)),
    ("parsing.stack", "forms", lambda: parsing.stack([Hyperbolic(TWO), BetaWeighted(TWO, TWO)])),
    ("properties.partial_sum", "discount.curve", lambda: properties.partial_sum(Short(), 5)),
    ("properties.partial_sum", "eta", lambda: properties.partial_sum(BetaWeighted(THREE, TWO), 5)),
    ("properties.total_sum", "eta", lambda: properties.total_sum(BetaWeighted(THREE, TWO))),
    ("properties.effective_horizon", "eta", lambda: properties.effective_horizon(BetaWeighted(THREE, TWO))),
    ("properties.future_weights", "discount.curve", lambda: properties.future_weights(Short(), (5, 9))),
    ("properties.future_shares", "discount.curve", lambda: properties.future_shares(Short(), (5, 9))),
    ("properties.one_step_rates", "discount.curve", lambda: properties.one_step_rates(Short(), 5)),
    ("properties.rate_variance", "eta", lambda: properties.rate_variance(BetaWeighted(THREE, TWO))),
    ("properties._late_steps", "missing", lambda: properties._late_steps(TWO, TWO, THREE, np)),
]

# Helpers with the assertions of the functions that call them first.
ASSERTING = frozenset({"_common_shape", "broadcast", "_form", "_curve", "future_weights"})
ANY_SHAPE = "works element by element, on any shape"
EXEMPT = {
    "families.as_number": "refuses all but numbers and arrays of them by a TypeError",
    "fitting.target_curve": "takes what fit does",
    "fitting.fit_mixture": "refuses a user's curve and rates by ValueErrors, which test_exponential_mixture holds",
    "fitting.fit": "refuses a user's curve and weights by ValueErrors, which test_discount_fit holds",
    "form.checked_horizon": "takes a number, and refuses all else by a ValueError",
    "form.to_host": ANY_SHAPE,
    "hazards.ConstantHazard.laplace": ANY_SHAPE,
    "hazards.ExponentialHazard.laplace": ANY_SHAPE,
    "hazards.GammaHazard.laplace": ANY_SHAPE,
    "hazards.Hazard.laplace": "declares what the priors compute, on any shape",
    "hazards.SampledHazard.laplace": ANY_SHAPE,
    "hazards.UniformHazard.laplace": ANY_SHAPE,
    "mixtures.geometric_sum": ANY_SHAPE,
    "parsing.as_discount": "takes numbers, strings and discounts, and passes arrays of any shape on",
    "parsing.discount_name": "takes a discount, any",
    "parsing.stack": "takes a list of what as_discount takes; the forms of it are those of form.stack_forms",
}


@pytest.mark.parametrize(
    ("argument", "call"), [row[1:] for row in CALLS], ids=[f"{name}-{argument}" for name, argument, _ in CALLS]
)
def test_a_wrong_shape_is_refused_by_the_name_of_its_argument(argument: str, call: Callable[[], Any]) -> None:
    assert_refused(call, argument)


def test_every_function_of_arrays_opens_with_assertions() -> None:
    assert_complete("discounts", EXEMPT, {name for name, _, _ in CALLS}, ASSERTING)
