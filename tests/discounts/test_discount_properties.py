"""Sums, horizons, shares, rates: against long float64 sums and the reference's table."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import advantages as reference
from scipy.special import gammaln

from jaxrl.discounts import properties
from jaxrl.discounts.parsing import BetaWeighted, Exponential, FixedHorizon, Hyperbolic, as_discount, stack

ULP = 2.0**-24

# mu, eta, total, near, middle, far, effective horizon, first t with Gamma(t) < 1/e, deviation of the rate
TABLE = [
    (0.99, 0.0, 100, 63.40, 36.60, 0.00, 99, 100, 0.0),
    (0.99, 0.25, 133, 65.21, 64.74, 3.04, 157, 113, 0.00497),
    (0.99, 0.5, 199, 66.78, 99.33, 29.03, 340, 129, 0.00702),
    (0.99, 0.8, 496, 68.41, 142.06, 120.73, 6612, 152, 0.00886),
    (0.99, 1.0, math.inf, 69.37, 169.38, 219.63, math.inf, 171, 0.00990),
    (0.98, 0.5, 99, 50.00, 40.16, 7.88, 168, 64, 0.01393),
    (0.98, 0.8, 246, 53.06, 72.54, 51.79, 3262, 76, 0.01757),
    (0.95, 0.5, 39, 28.26, 9.31, 1.28, 65, 25, 0.03404),
]


@pytest.mark.parametrize("traced", [False, True], ids=["host", "traced"])
@pytest.mark.parametrize(("mu", "eta", "total", "near", "middle", "far", "horizon", "below", "deviation"), TABLE)
def test_the_table_of_properties(mu, eta, total, near, middle, far, horizon, below, deviation, traced):
    discount = BetaWeighted(mu, eta)
    apply = (lambda function: jax.jit(function)(discount)) if traced else (lambda function: function(discount))
    # Half of the last digit, and 1 - mu rounded to float32, which moves no sum by more than 1e-5 of itself; a product
    # of t traced ratios is rounded t times, at most 1000 times where most of a sum lies.
    relative = 1e-5 + (1000 * ULP if traced else 0)
    assert apply(properties.total_sum) == pytest.approx(total, rel=relative)
    weights = apply(properties.future_weights)
    for weight, expected in zip(weights, (near, middle, far), strict=True):
        assert weight == pytest.approx(expected, abs=0.0051 + relative * expected)
    assert apply(properties.effective_horizon) == horizon
    assert math.sqrt(apply(properties.rate_variance)) == pytest.approx(deviation, abs=5.1e-6)
    assert np.argmax(np.asarray(discount.curve(300)) < math.exp(-1)) == below
    np.testing.assert_allclose(apply(properties.future_shares), weights / weights.sum(), rtol=1e-6)


@pytest.mark.parametrize("mu", [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
@pytest.mark.parametrize("eta", [0.0, 1e-8, 1e-3, 0.3, 0.6, 0.75, 0.9, 0.95])
@pytest.mark.parametrize("traced", [False, True], ids=["host", "traced"])
def test_total_and_horizon_are_those_of_the_whole_curve(mu, eta, traced):
    """The share beyond T steps has the closed form (1 + (T - 1) e) Gamma(T) / (1 - e), from the partial sum."""
    discount = BetaWeighted(mu, eta)
    total, horizon = properties.total_sum, properties.effective_horizon
    if traced:
        total, horizon = jax.jit(total), jax.jit(horizon)
    sum_, n = float(total(discount)), float(horizon(discount))
    mu, eta = float(np.float32(mu)), float(np.float32(eta))
    if mu == 1:
        assert sum_ == n == math.inf
        return
    spread = eta * (1 - mu)
    assert sum_ == pytest.approx((1 - spread) / ((1 - mu) * (1 - eta)), rel=8 * ULP / (1 - eta))
    if n > 200_000:  # too many steps for a plain sum
        alpha, beta = mu / spread, 1 / eta
        ends = gammaln(alpha + n) - gammaln(alpha), gammaln(alpha + beta - 1 + n) - gammaln(alpha + beta - 1)
        assert ends[0] - ends[1] == pytest.approx(-1, abs=1e-4)
        return
    t = np.arange(int(n) + 1 + max(2, int(1e-4 * n)))
    beyond = np.cumsum(np.log((mu + t * spread) / (1 + (t - 1) * spread))) if mu > 0 else np.full(len(t), -np.inf)
    first = int(np.argmax(beyond <= -1))
    # Traced, the logarithm is off by some roundings, which move its crossing by its slope.
    slack = 0 if not traced or first < 64 else math.ceil(64 * ULP / -(beyond[first] - beyond[first - 1]))
    assert abs(n - first) <= slack


@pytest.mark.parametrize("eta", [1.0, 1.5, 2.0])
def test_the_total_diverges_from_eta_one_on(eta):
    assert properties.total_sum(BetaWeighted(0.9, eta)) == math.inf
    assert properties.effective_horizon(BetaWeighted(0.9, eta)) == math.inf
    assert properties.total_sum(BetaWeighted(0.0, eta)) == 1
    # The limit is also approached for eta just below 1.
    assert properties.total_sum(BetaWeighted(0.9, 0.9999)) > 9000


def test_the_limits_are_exponential_and_hyperbolic():
    mu, k = 0.98, 0.02 / 0.98
    for function in (
        properties.total_sum,
        properties.effective_horizon,
        properties.rate_variance,
        lambda d: properties.partial_sum(d, 500),
        properties.future_shares,
        lambda d: properties.one_step_rates(d, 100),
    ):
        np.testing.assert_array_equal(function(BetaWeighted(mu, 0)), function(Exponential(mu)))
        # mu and k are rounded apart: 1 - mu to 2^-25 of 1, and so to 2^-25 / 0.02 of itself.
        np.testing.assert_allclose(function(BetaWeighted(mu, 1)), function(Hyperbolic(k)), rtol=4 * ULP / (1 - mu))
    harmonic = (1 / (1 + k * np.arange(500))).sum()
    assert properties.partial_sum(Hyperbolic(k), 500) == pytest.approx(harmonic, rel=1e-6)


CASES = {
    "0.98": (50, 49),
    "0": (1, 0),
    "1": (math.inf, math.inf),
    "quasi:beta=0.5,gamma=0.99": (50.5, 98),
    "quasi:beta=0,gamma=1": (1, 0),
    "quasi:beta=0.9,gamma=1": (math.inf, math.inf),
    "hyperbolic:k=0.02": (math.inf, math.inf),
    "fixed:horizon=100": (100, 63),  # 64 > 63.2 of 100
    "truncated:(1),7": (7, 4),
    "truncated:(0),7": (1, 0),
    "truncated:(0.99),50": ((1 - 0.99**50) / 0.01, 28),
    "truncated:(quasi:beta=0.5,gamma=0.99),300": (1 + 0.5 * ((1 - 0.99**300) / 0.01 - 1), 90),
    "truncated:(beta:0.99,0.5),500": (reference.curve("beta", 499, mu=0.99, eta=0.5).sum(), 163),
    "truncated:(hyperbolic:0.1),1000": (reference.curve("hyperbolic", 999, k=0.1).sum(), 171),
    "table:1,0.9,0.5": (2.4, 1),
    "truncated:(table:1,0.9,0.5,0.25),2": (1.9, 1),
    "beta:mu=0,eta=2": (1, 0),
}


@pytest.mark.fast_rows(
    "0.98", "quasi:beta=0.5,gamma=0.99", "hyperbolic:k", "truncated:(0.99)", "table:1,0.9,0.5", "beta:mu=0"
)
@pytest.mark.parametrize("text", CASES)
def test_totals_and_horizons_of_every_family(text):
    discount = as_discount(text)
    total, horizon = CASES[text]
    # 1 - gamma is off by 2^-25, which is 3e-6 of 0.01.
    assert properties.total_sum(text) == pytest.approx(total, rel=1e-5)
    assert properties.effective_horizon(text) == horizon
    if math.isfinite(total):
        curve = np.asarray(discount.curve(5000), np.float64)
        assert curve.sum() == pytest.approx(total, rel=1e-5)
        assert np.argmax(np.cumsum(curve) >= (1 - math.exp(-1)) * curve.sum()) == horizon
        # Known while traced too, unless Beta weights are cut at a traced horizon.
        if not text.startswith(("truncated:(beta", "truncated:(hyperbolic", "truncated:(table")):
            assert jax.jit(properties.total_sum)(discount) == pytest.approx(total, rel=1e-5)
            assert jax.jit(properties.effective_horizon)(discount) == horizon


def test_properties_of_stacks_equal_those_of_their_members():
    texts = [text for text in CASES if not text.startswith("truncated:(hyp")]
    batch = stack(texts)
    np.testing.assert_allclose(properties.total_sum(batch), [CASES[text][0] for text in texts], rtol=1e-5)
    np.testing.assert_array_equal(properties.effective_horizon(batch), [CASES[text][1] for text in texts])
    for function in (
        properties.future_weights,
        properties.future_shares,
        lambda d: properties.one_step_rates(d, 9),
        lambda d: properties.partial_sum(d, 50),
    ):
        np.testing.assert_allclose(function(batch), [function(text) for text in texts], rtol=1e-5)
    betas = stack(["beta:0.99,0.5", "beta:0.98,1", "beta:0.9,0"])
    for function in (properties.total_sum, properties.effective_horizon, properties.rate_variance):
        mapped = jax.jit(jax.vmap(function))(betas)
        np.testing.assert_allclose(mapped, function(betas), rtol=1e-5)


@pytest.mark.parametrize("text", ["0.98", "beta:0.98,0.5", "hyperbolic:0.02", "quasi:0.9,0.99", "fixed:20", "0", "1"])
def test_one_step_rates_rebuild_the_curve(text):
    discount = as_discount(text)
    for function in (properties.one_step_rates, jax.jit(properties.one_step_rates, static_argnums=1)):
        rates = np.asarray(function(discount, 50), np.float64)
        np.testing.assert_allclose(np.cumprod(rates), discount.curve(50)[1:], rtol=51 * 4 * ULP, atol=1e-37)
    if text.startswith(("beta", "hyp")):
        assert np.all(np.diff(rates) > 0)


def test_one_step_rates_do_not_underflow_and_stay_zero_at_the_end():
    np.testing.assert_array_equal(properties.one_step_rates("0.5", 400), np.full(400, 0.5))
    np.testing.assert_array_equal(properties.one_step_rates("table:1,0.5,0.5", 5), [0.5, 1, 0, 0, 0])
    np.testing.assert_array_equal(properties.one_step_rates("fixed:2", 4), [1, 0, 0, 0])
    np.testing.assert_array_equal(properties.one_step_rates("beta:0,2", 3), [0, 0, 0])


@pytest.mark.parametrize("text", ["0.9", "beta:0.9,0.5", "beta:0.98,2", "hyperbolic:0.1", "quasi:0.7,0.95", "1"])
def test_rate_variance_is_that_of_the_mixture(text):
    rates, weights = (np.asarray(leaf, np.float64) for leaf in stack([text]).mixture(200))
    variance = (weights * rates**2).sum() - (weights * rates).sum() ** 2  # of the one member of the stack
    # Nodes and weights are rounded to float32, and two numbers near 1 are subtracted.
    assert properties.rate_variance(text) == pytest.approx(variance, abs=1e-6)
    assert jax.jit(properties.rate_variance)(as_discount(text)) == pytest.approx(variance, abs=1e-6)


FUNCTIONS = {
    "partial_sum": lambda d: properties.partial_sum(d, 200),
    "total_sum": properties.total_sum,
    "effective_horizon": properties.effective_horizon,
    "far": lambda d: properties.future_shares(d, (10, 100, 300))[2],
    "rate": lambda d: properties.one_step_rates(d, 30)[-1],
    "rate_variance": properties.rate_variance,
}


@pytest.mark.slow_rows("far")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_finite_and_those_of_differences(name):
    function = FUNCTIONS[name]
    slopes = jax.jit(jax.grad(lambda mu, eta: function(BetaWeighted(mu, eta)), argnums=(0, 1)))
    for mu in (0.0, 0.5, 0.95, 1.0):
        for eta in (0.0, 0.5, 1.0, 2.0):
            assert all(np.isfinite(slope) for slope in slopes(mu, eta)), (mu, eta)
    if name == "effective_horizon":
        assert slopes(0.95, 0.5) == (0, 0)  # whole numbers
        return
    for eta in (0.25, 0.6):
        actual = slopes(0.9, eta)
        for position, width in enumerate((1 / 512, 1 / 64)):
            low, high = np.asarray([0.9, eta]), np.asarray([0.9, eta])
            low[position] -= width
            high[position] += width
            difference = (float(function(BetaWeighted(*high))) - float(function(BetaWeighted(*low)))) / (2 * width)
            if name == "rate" and position == 0:  # nearly flat
                continue
            assert float(actual[position]) == pytest.approx(difference, rel=0.02), (eta, position)


@pytest.mark.slow
def test_derivatives_through_stacks_with_cuts_are_finite():
    batch = stack(["0.98", "fixed:30", "quasi:0.5,0.9", "truncated:(0.9),10", "1", "0"])
    for function in (properties.total_sum, lambda d: properties.partial_sum(d, 20)):
        for row in range(6):
            one = jax.tree.map(lambda leaf, row=row: jnp.asarray(leaf[row]), batch)
            slopes = jax.jit(jax.grad(function))(one)
            assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(slopes)), row


class Linear:
    def curve(self, horizon):
        return jnp.maximum(0.0, 1.0 - jnp.arange(horizon + 1) / 10)


def test_a_family_of_ones_own_has_the_values_of_its_curve():
    assert properties.partial_sum(Linear(), 30) == pytest.approx(5.5)
    np.testing.assert_allclose(properties.future_weights(Linear(), (2, 20)), [1.9, 3.6], rtol=1e-6)
    assert properties.one_step_rates(Linear(), 20)[0] == pytest.approx(0.9)
    for function in (properties.total_sum, properties.effective_horizon, properties.rate_variance):
        with pytest.raises(TypeError, match=r"cannot extend Linear, which only has a curve"):
            function(Linear())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: properties.partial_sum(0.9, 0), "horizon must be a whole number of at least 1, got 0"),
        (lambda: properties.one_step_rates(0.9, -1), "horizon must be a whole number of at least 1, got -1"),
        (lambda: properties.future_weights(0.9, (10, 5)), "boundaries must be delays that grow from above 0"),
        (lambda: properties.future_shares(0.9, ()), "boundaries must be delays that grow from above 0, got ()."),
        (lambda: properties.rate_variance("fixed:9"), "mixtures of exponentials, which FixedHorizon is not"),
        (lambda: properties.rate_variance("table:1,0"), "mixtures of exponentials, which Tabulated is not"),
        (lambda: properties.rate_variance(stack([0.9, "fixed:9"])), "which a member of this stack is not"),
        (lambda: properties.total_sum("beta:1.2,0.5"), "mu must lie in [0, 1], got 1.2."),
        (lambda: properties.total_sum("beta:0.9,-0.5"), "eta must be at least 0 and finite, got -0.5."),
        (
            lambda: jax.jit(properties.total_sum)(as_discount("truncated:(beta:0.9,0.5),9")),
            "needs that horizon untraced",
        ),
        (lambda: FixedHorizon(0), "horizon must be a whole number of at least 1, got 0.0."),
    ],
)
def test_wrong_arguments_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as raised:
        call()
    assert "\n" not in str(raised.value)
