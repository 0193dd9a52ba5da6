"""Faults of discount curves, their mixtures of exponentials, and their properties."""

from planting import Fault

FAULTS = (
    Fault(
        "curve-shifted-by-one-step",
        "jaxrl/discounts/form.py",
        "1.0 - self.step / (1.0 + t * (self.eta * self.step))",
        "1.0 - self.step / (1.0 + (t + 1) * (self.eta * self.step))",
        "tests/discounts/test_discounting.py::test_curve_is_the_definition",
    ),
    Fault(
        "horizon-one-step-too-long",
        "jaxrl/discounts/form.py",
        "curve = curve * (xp.arange(horizon + 1) < columns.horizon)",
        "curve = curve * (xp.arange(horizon + 1) <= columns.horizon)",
        "tests/discounts/test_discounting.py::test_curve_is_the_definition",
    ),
    Fault(
        "first-drop-at-every-step",
        "jaxrl/discounts/form.py",
        "ratio * xp.where(t == 0, self.beta, 1.0)",
        "ratio * self.beta",
        "tests/discounts/test_discounting.py::test_curve_is_the_definition",
    ),
    Fault(
        "hyperbolic-with-the-wrong-step",
        "jaxrl/discounts/families.py",
        "step=self.k / (1.0 + self.k), eta=1.0",
        "step=self.k, eta=1.0",
        "tests/discounts/test_discounting.py::test_curve_is_the_definition",
    ),
    Fault(
        "weight-beyond-the-horizon",
        "jaxrl/discounts/form.py",
        "following = jnp.where(t + 1 < form.horizon, following, 0.0)",
        "following = jnp.where(t < form.horizon, following, 0.0)",
        "tests/discounts/test_discounting.py::test_next_weight_steps_along_the_curve",
    ),
    Fault(
        "table-read-one-step-early",
        "jaxrl/discounts/form.py",
        "after = jnp.where(t + 1 <= last, form.table[jnp.minimum(t + 1, last)], form.tail)",
        "after = jnp.where(t <= last, form.table[jnp.minimum(t, last)], form.tail)",
        "tests/discounts/test_discounting.py::test_next_weight_steps_along_the_curve",
    ),
    Fault(
        "mixture-without-the-rest-of-the-first-step",
        "jaxrl/discounts/form.py",
        "xp.concatenate([weights * beta, 1.0 - beta], axis=-1)",
        "xp.concatenate([weights * beta, 0.0 * beta], axis=-1)",
        "tests/discounts/test_discounting.py::test_a_quasi_hyperbolic_discount_is_two_exponentials",
    ),
    Fault(
        "quadrature-with-weights-of-amplitudes",
        "jaxrl/discounts/form.py",
        "weights = vectors[..., 0, :] ** 2",
        "weights = abs(vectors[..., 0, :]) / abs(vectors[..., 0, :]).sum(-1, keepdims=True)",
        "tests/discounts/test_discounting.py::test_mixture_sums_to_the_curve",
    ),
    Fault(
        "shorter-horizon-ignored",
        "jaxrl/discounts/families.py",
        "horizon = (np if is_concrete(self) else jnp).minimum(horizon, form.horizon)",
        "horizon = (np if is_concrete(self) else jnp).maximum(horizon, form.horizon)",
        "tests/discounts/test_discounting.py::"
        "test_truncated_cuts_its_inner_curve_and_the_shorter_of_two_horizons_counts",
    ),
    Fault(
        "stacked-tables-that-never-end",
        "jaxrl/discounts/form.py",
        "row[len(form.table) :] = form.tail",
        "row[len(form.table) :] = 1.0",
        "tests/discounts/test_discounting.py::test_stack_of_many_families_holds_each",
    ),
    Fault(
        "mixed-and-cut-parts-both-counted",
        "jaxrl/discounts/form.py",
        "lags = curve * (1 - mixed)",
        "lags = curve",
        "tests/learning/test_advantages.py::test_the_part_that_does_not_apply_changes_no_bit",
    ),
    Fault(
        "few-nodes-of-another-sum",
        "jaxrl/discounts/mixtures.py",
        "rates, root = np.clip(rates, 0.0, 1.0), vectors.T @ (basis.T @ root)",
        "rates, root = np.clip(rates, 0.0, 1.0), np.full(count, count**-0.5)",
        "tests/discounts/test_mixtures.py::test_eight_exponentials_stand_for_a_curve",
    ),
    Fault(
        "total-without-the-first-weight",
        "jaxrl/discounts/properties.py",
        "total = 1.0 + form.beta * (total - 1.0)\n        diverges",
        "total = form.beta * total\n        diverges",
        "tests/discounts/test_discount_properties.py::test_totals_and_horizons_of_every_family",
    ),
    Fault(
        "variance-without-its-last-factor",
        "jaxrl/discounts/properties.py",
        "variance = form.mu * form.step**2 * form.eta / (1.0 + form.eta * form.step)",
        "variance = form.mu * form.step**2 * form.eta",
        "tests/discounts/test_discount_properties.py::test_rate_variance_is_that_of_the_mixture",
    ),
    Fault(
        "survival-at-half-the-rate",
        "jaxrl/discounts/hazards.py",
        "return 1.0 / (1.0 + self.mean * t)",
        "return 1.0 / (1.0 + self.mean * t / 2.0)",
        "tests/discounts/test_discount_fit.py::test_an_exponential_prior_is_hyperbolic_discounting",
    ),
    Fault(
        "heads-of-equal-size",
        "jaxrl/discounts/mixtures.py",
        "return horizons / jnp.sum(discount.weights * horizons)",
        "return horizons / horizons",
        "tests/learning/test_critics.py::test_heads_have_the_size_of_their_horizons",
    ),
)
