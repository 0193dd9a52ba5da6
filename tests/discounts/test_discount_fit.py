"""Exact fits, nearest fits, and errors."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from jaxrl.discounts.fitting import fit
from jaxrl.discounts.hazards import ConstantHazard, ExponentialHazard, GammaHazard, SampledHazard, UniformHazard
from jaxrl.discounts.parsing import BetaWeighted, Hyperbolic, as_discount


@pytest.mark.parametrize(
    ("prior", "density", "high"),
    [
        (ExponentialHazard(0.05), lambda h: np.exp(-h / 0.05) / 0.05, 3),
        (UniformHazard(0.01, 0.09), lambda h: 1 / 0.08 if 0.01 <= h <= 0.09 else 0.0, 0.1),
        (GammaHazard(2.5, 0.02), lambda h: h**1.5 * np.exp(-h / 0.02) / math.gamma(2.5) / 0.02**2.5, 2),
    ],
)
def test_the_curve_of_a_prior_is_its_laplace_transform(prior, density, high):
    for t in (0, 1, 7, 60):
        value = scipy.integrate.quad(
            lambda h, t=t: density(h) * np.exp(-h * t), 0, high, points=(0.01, 0.09), limit=200
        )[0]
        assert prior.curve(60)[t] == pytest.approx(value, rel=1e-6)


def test_a_prior_of_no_width_is_a_constant_hazard():
    np.testing.assert_allclose(UniformHazard(0.02, 0.02).curve(50), ConstantHazard(0.02).curve(50), rtol=1e-14)
    np.testing.assert_allclose(SampledHazard([0.02, 0.02]).curve(50), ConstantHazard(0.02).curve(50), rtol=1e-14)


def test_an_exponential_prior_is_hyperbolic_discounting():
    discount = fit(ExponentialHazard(0.05), 300)
    assert discount.eta == pytest.approx(1, abs=1e-9)
    assert discount.mu == pytest.approx(1 / 1.05, abs=1e-12)
    np.testing.assert_allclose(discount.curve(300), Hyperbolic(0.05).curve(300), rtol=1e-5)
    gamma = fit(GammaHazard(1, 0.05), 300)
    assert (gamma.mu, gamma.eta) == pytest.approx((discount.mu, discount.eta), abs=1e-9)


def test_a_constant_hazard_is_exponential_discounting():
    discount = fit(ConstantHazard(0.02), 300)
    assert discount.eta == 0 and discount.mu == pytest.approx(math.exp(-0.02), abs=1e-12)


@pytest.mark.parametrize("mu", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0, 2.5])
def test_beta_weights_are_found_again(mu, eta):
    mu, eta = float(np.float32(mu)), float(np.float32(eta))
    discount = fit(BetaWeighted(mu, eta), 400)
    assert (discount.mu, discount.eta) == pytest.approx((mu, eta), abs=1e-6)


@pytest.mark.parametrize("target", [UniformHazard(0, 0.1), GammaHazard(2, 0.03), "quasi:0.8,0.99", "fixed:40"])
def test_no_other_beta_weights_come_nearer(target):
    curve = np.asarray((as_discount(target) if isinstance(target, str) else target).curve(196), np.float64)

    def error(mu, eta):
        t = np.arange(196)
        ratios = 1 - (1 - mu) / (1 + t * eta * (1 - mu))
        return ((np.concatenate([[1.0], np.cumprod(ratios)]) - curve) ** 2).sum()

    actual = fit(target, 196)
    searched = scipy.optimize.brute(
        lambda x: error(*x), ((0.5, 1.0), (0.0, 3.0)), Ns=60, finish=scipy.optimize.fmin, full_output=False
    )
    least = error(np.clip(searched[0], 0, 1), max(searched[1], 0))
    assert error(actual.mu, actual.eta) <= least * (1 + 1e-6) + 1e-14


def test_fits_to_sampled_rates_approximate_the_discount_of_their_distribution():
    rates = np.random.default_rng(0).exponential(0.05, 20_000)
    discount = fit(SampledHazard(rates), 200)
    # The curve is a mean of 20,000 numbers in [0, 1], so its standard deviation is at most 0.0035.
    assert np.abs(np.asarray(discount.curve(200)) - Hyperbolic(0.05).curve(200)).max() < 4 * 0.0035
    assert discount.eta == pytest.approx(1, abs=0.1)


def test_weights_choose_which_delays_count():
    target = as_discount("quasi:0.8,0.99")
    near, far = np.zeros(301), np.zeros(301)
    near[:10], far[100:] = 1, 1
    for weights in (near, far):
        chosen = np.abs(np.asarray(fit(target, 300, weights=weights).curve(300)) - target.curve(300))
        even = np.abs(np.asarray(fit(target, 300).curve(300)) - target.curve(300))
        assert (weights * chosen**2).sum() < 0.5 * (weights * even**2).sum()


def test_a_curve_that_never_falls_is_no_discounting():
    assert fit(np.ones(9)) == BetaWeighted(1, 0)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: fit([0.9, 0.5, 0.2]), ValueError, "curve must start at 1, got 0.9."),
        (lambda: fit([1, 0.5, 0.6, 0.7]), ValueError, "curve must never grow, got 0.5 at t = 1 and 0.6 after it."),
        (lambda: fit([1, math.nan, 0.6]), ValueError, "curve must stay within [0, 1], got nan at t = 1."),
        (lambda: fit(np.r_[1.0, np.full(2000, -1)]), ValueError, "curve must stay within [0, 1], got -1 at t = 1."),
        (lambda: fit([1, 0.5]), ValueError, "curve must have at least 3 values to determine mu and eta, got 2."),
        (lambda: fit(np.ones((3, 3))), ValueError, "curve must be one-dimensional, got the shape (3, 3)."),
        (lambda: fit([]), ValueError, "curve must start at 1, got no values."),
        (lambda: fit([1, 0.5, 0.2], 9), TypeError, "horizon applies to a discount or a prior"),
        (lambda: fit("hyperbolic:0.02"), TypeError, "fit needs a horizon, such as fit('hyperbolic:k=0.02', horizon="),
        (lambda: fit(0.9, 1), ValueError, "horizon must be a whole number of at least 2, got 1"),
        (
            lambda: fit("fixed:100", 50),
            ValueError,
            "horizon must reach the end of fixed:horizon=100, at 100, got 50.",
        ),
        (lambda: fit([1, 0.5, 0.2], weights=[1, 1]), ValueError, "weights must have the curve's shape (3,), got (2,)."),
        (lambda: fit([1, 0.5, 0.2], weights=[1, 1, -1]), ValueError, "weights must be finite, at least 0"),
        (lambda: fit(BetaWeighted(np.ones(3), 0.5), 9), ValueError, "fit takes one discount, got a stack"),
        (lambda: fit(None, 9), TypeError, "A discount is a number"),
        (lambda: ExponentialHazard(-1), ValueError, "mean must be a hazard rate, a number of at least 0"),
        (lambda: ConstantHazard(math.nan), ValueError, "rate must be a hazard rate"),
        (lambda: UniformHazard(0.2, 0.1), ValueError, "high must be at least low, got low 0.2 and high 0.1."),
        (lambda: GammaHazard(0, 1), ValueError, "shape must be above 0, got 0."),
        (lambda: SampledHazard([]), ValueError, "rates must be a sequence of at least one rate"),
        (lambda: SampledHazard([0.1, -0.1]), ValueError, "rates must be a hazard rate"),
    ],
)
def test_wrong_arguments_get_one_sentence(call, error, sentence):
    with pytest.raises(error) as raised:
        call()
    assert sentence in str(raised.value) and "\n" not in str(raised.value)
