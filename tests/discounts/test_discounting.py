"""Discount families: curves, mixtures, strings, stacks, and the results of `prepare`."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import advantages as reference

from jaxrl.discounts.hazards import ExponentialHazard
from jaxrl.discounts.parsing import (
    BetaWeighted,
    Discount,
    Exponential,
    ExponentialMixture,
    FixedHorizon,
    Hyperbolic,
    QuasiHyperbolic,
    Tabulated,
    TruncatedDiscount,
    as_discount,
    prepare,
    stack,
)

ULP = 2.0**-24  # the relative rounding of float32

unit = st.floats(0, 1, width=32)
positive = st.floats(0, 1e6, width=32)
whole = st.integers(1, 10**6)
simple = st.one_of(
    st.builds(Exponential, unit),
    st.builds(QuasiHyperbolic, unit, unit),
    st.builds(Hyperbolic, positive),
    st.builds(BetaWeighted, unit, positive),
    st.builds(FixedHorizon, whole),
    st.lists(unit, max_size=6).map(lambda rest: Tabulated([1.0, *sorted(rest, reverse=True)])),
    st.lists(unit, min_size=1, max_size=6).map(lambda rates: ExponentialMixture(rates, [1 / len(rates)] * len(rates))),
)
discounts = st.recursive(simple, lambda inner: st.builds(TruncatedDiscount, inner, whole), max_leaves=3)

CASES = [
    ("exp", {"gamma": 0.98}, Exponential),
    ("exp", {"gamma": 0.0}, Exponential),
    ("exp", {"gamma": 1.0}, Exponential),
    ("quasi", {"beta": 0.7, "gamma": 0.99}, QuasiHyperbolic),
    ("hyperbolic", {"k": 0.02}, Hyperbolic),
    ("hyperbolic", {"k": 0.0}, Hyperbolic),
    ("hyperbolic", {"k": 30.0}, Hyperbolic),
    ("beta", {"mu": 0.98, "eta": 0.5}, BetaWeighted),
    ("beta", {"mu": 0.99, "eta": 2.0}, BetaWeighted),
    ("beta", {"mu": 0.9, "eta": 0.0}, BetaWeighted),
    ("beta", {"mu": 1.0, "eta": 0.7}, BetaWeighted),
    ("beta", {"mu": 0.0, "eta": 0.7}, BetaWeighted),
    ("fixed", {"horizon": 40}, FixedHorizon),
    ("table", {"curve": [1, 0.75, 0.75, 0.25]}, Tabulated),
]
IDS = [f"{name}-{'-'.join(map(str, parameters.values()))}" for name, parameters, _ in CASES]


def rounded(parameters):
    return {name: np.asarray(value, np.float32).astype(np.float64) for name, value in parameters.items()}


@given(discounts)
def test_string_parses_back_to_the_discount(discount):
    assert as_discount(str(discount)) == discount
    assert str(as_discount(str(discount))) == str(discount)


@given(st.floats(0, 1, width=32))
def test_string_of_a_float32_parameter_parses_back_to_it(gamma):
    text = str(Exponential(np.float32(gamma)))
    discount = as_discount(text)
    assert isinstance(discount, Exponential) and np.float32(discount.gamma) == np.float32(gamma)
    assert text == str(Exponential(jnp.float32(gamma)))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.98", "exp:gamma=0.98"),
        (" 1 ", "exp:gamma=1"),
        ("exp:0.9", "exp:gamma=0.9"),
        ("EXP: gamma = 0.9", "exp:gamma=0.9"),
        ("beta:0.98,0.5", "beta:mu=0.98,eta=0.5"),
        ("beta:eta=0.5,mu=0.98", "beta:mu=0.98,eta=0.5"),
        ("beta:.98,eta=.5", "beta:mu=0.98,eta=0.5"),
        ("quasi:0.9,0.99", "quasi:beta=0.9,gamma=0.99"),
        ("hyperbolic:1e-5", "hyperbolic:k=1e-05"),
        ("fixed:100", "fixed:horizon=100"),
        ("truncated:(beta:0.98,0.5),100", "truncated:inner=(beta:mu=0.98,eta=0.5),horizon=100"),
        ("truncated:horizon=9,inner=(0.5)", "truncated:inner=(exp:gamma=0.5),horizon=9"),
        ("table:1,0.9,.5", "table:1,0.9,0.5"),
    ],
)
def test_strings_are_read_and_written_in_one_form(text, canonical):
    assert str(as_discount(text)) == canonical


@pytest.mark.parametrize(
    ("value", "error", "part"),
    [
        ("bta:0.9,0.1", ValueError, "did you mean 'beta'"),
        ("beta:0.9", ValueError, "beta takes mu and eta"),
        ("beta:0.9,0.1,0.2", ValueError, "beta takes mu and eta"),
        ("beta:mu=0.9,mu=0.2", ValueError, "'mu' is given twice"),
        ("beta:0.9,nu=0.2", ValueError, "'nu' is not one of mu, eta"),
        ("truncated:(beta:0.9,0.5,100", ValueError, "parentheses do not match"),
        ("truncated:beta:0.9,0.5),100", ValueError, "parentheses do not match"),
        ("foo", ValueError, "neither a number nor"),
        ("", ValueError, "neither a number nor"),
        ("exp:gamma", ValueError, "'gamma' is not a number"),
        ("table:", ValueError, "is not a number"),
        ("exp:gamma=1.2", ValueError, r"gamma must lie in \[0, 1\], got 1.2\."),
        ("nan", ValueError, r"gamma must lie in \[0, 1\], got nan\."),
        ("beta:0.9,-1", ValueError, "eta must be at least 0"),
        (1.2, ValueError, r"gamma must lie in \[0, 1\], got 1.2\."),
        (np.asarray([0.5, 1.5]), ValueError, "gamma must lie in"),
        (None, TypeError, "not None"),
        (True, TypeError, "not True"),
        ([0.9], TypeError, r"not \[0.9\]"),
        (Exponential, TypeError, "A discount is a number"),
    ],
)
def test_a_value_that_is_not_a_discount_is_refused_in_one_sentence(value, error, part):
    with pytest.raises(error, match=part) as raised:
        as_discount(value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Exponential(-0.1), ValueError, "gamma must lie in [0, 1], got -0.1."),
        (
            lambda: as_discount("0.999999999"),
            ValueError,
            "gamma must lie in [0, 1] in float32 too, the precision in which it is used, got 0.999999999, which is 1",
        ),
        (lambda: as_discount("fixed:horizon=1e39"), ValueError, "got 1e+39, which is inf there."),
        (lambda: as_discount("hyperbolic:k=1e39"), ValueError, "k must be at least 0 and finite in float32 too"),
        (lambda: Exponential(np.array([0.9, 1e-50])), ValueError, "got 1e-50, which is 0 there."),
        (lambda: ExponentialHazard(1e39), ValueError, "mean must be at least 0 and finite in float32 too"),
        (lambda: Exponential(None), TypeError, "gamma takes a number, got None."),
        (lambda: Exponential(True), TypeError, "gamma takes a number, got True."),
        (lambda: Exponential("0.9"), TypeError, "gamma takes a number, got '0.9'."),
        (lambda: Exponential(jnp.float32(2)), ValueError, "gamma must lie in [0, 1], got 2.0."),
        (lambda: QuasiHyperbolic(1.5, 0.9), ValueError, "beta must lie in [0, 1], got 1.5."),
        (lambda: Hyperbolic(-1), ValueError, "k must be at least 0 and finite, got -1.0."),
        (lambda: Hyperbolic(math.inf), ValueError, "k must be at least 0 and finite, got inf."),
        (lambda: BetaWeighted(1.1, 0.5), ValueError, "mu must lie in [0, 1], got 1.1."),
        (lambda: BetaWeighted(0.9, math.nan), ValueError, "eta must be at least 0 and finite, got nan."),
        (lambda: FixedHorizon(0), ValueError, "horizon must be a whole number of at least 1, got 0.0."),
        (lambda: FixedHorizon(1.5), ValueError, "horizon must be a whole number of at least 1, got 1.5."),
        (
            lambda: TruncatedDiscount(0.9, 10),
            TypeError,
            "inner takes a discount family such as Exponential(0.99), got 0.9.",
        ),
        (lambda: Tabulated([0.9, 0.5]), ValueError, "curve must start at 1, got 0.9."),
        (lambda: Tabulated([1, 0.5, 0.6]), ValueError, "curve must never grow, got 0.5 at t = 1 and 0.6 after it."),
        (lambda: Tabulated([1, math.nan]), ValueError, "curve must stay within [0, 1], got nan at t = 1."),
        (lambda: Tabulated([1, 0.5, -0.5]), ValueError, "curve must stay within [0, 1], got -0.5 at t = 2."),
        (lambda: Tabulated("1,2"), TypeError, "curve takes a sequence of numbers"),
        (lambda: Tabulated([]), ValueError, "curve must start at 1, got no values."),
        (lambda: Exponential(0.9).curve(-1), ValueError, "horizon must be a whole number of at least 0, got -1"),
        (lambda: prepare(0.9, 0), ValueError, "horizon must be a whole number of at least 1, got 0"),
        (lambda: stack([]), ValueError, "stack takes at least one discount"),
        (lambda: FixedHorizon(3).mixture(9), ValueError, "FixedHorizon is not a mixture of exponentials"),
        (lambda: TruncatedDiscount(Exponential(0.9), 3).mixture(9), ValueError, "TruncatedDiscount is not a mixture"),
        (lambda: Tabulated([1, 0.5]).mixture(9), ValueError, "Tabulated is not a mixture"),
    ],
)
def test_a_bad_parameter_is_named_with_its_value(make, error, sentence):
    with pytest.raises(error) as raised:
        make()
    assert sentence in str(raised.value)


@pytest.mark.parametrize(("name", "parameters", "family"), CASES, ids=IDS)
@pytest.mark.parametrize("horizon", [0, 1, 130])
def test_curve_is_the_definition(name, parameters, family, horizon):
    discount = family(**parameters)
    expected = reference.curve(name, horizon, **rounded(parameters))
    assert discount.curve(horizon).shape == (horizon + 1,)
    # On the host: rounded once. Traced: every ratio is rounded a few times, and at most `horizon` are multiplied; one
    # minus a rounded number is off by its absolute rounding.
    np.testing.assert_allclose(discount.curve(horizon), expected, rtol=1.01 * ULP, atol=1e-37)
    traced = jax.jit(lambda discount: discount.curve(horizon))(discount)
    np.testing.assert_allclose(traced, expected, rtol=6 * ULP * (horizon + 1), atol=2 * ULP)


def test_truncated_cuts_its_inner_curve_and_the_shorter_of_two_horizons_counts():
    inner = BetaWeighted(0.9, 0.5)
    expected = np.where(np.arange(21) < 7, inner.curve(20), 0)
    np.testing.assert_array_equal(TruncatedDiscount(inner, 7).curve(20), expected)
    np.testing.assert_array_equal(TruncatedDiscount(TruncatedDiscount(inner, 30), 7).curve(20), expected)
    np.testing.assert_array_equal(TruncatedDiscount(TruncatedDiscount(inner, 7), 30).curve(20), expected)
    np.testing.assert_array_equal(TruncatedDiscount(Tabulated([1, 0.5, 0.25]), 2).curve(4), [1, 0.5, 0, 0, 0])


@pytest.mark.parametrize(
    ("mu", "eta", "near", "middle", "gammas"),
    [
        (0.99, 0.0, 63.40, 36.60, {10: 0.9044, 100: 0.3660, 500: 0.00657}),
        (0.99, 0.25, 65.21, 64.74, {}),
        (0.99, 0.5, 66.78, 99.33, {10: 0.9064, 100: 0.4422, 500: 0.0808}),
        (0.99, 0.8, 68.41, 142.06, {}),
        (0.99, 1.0, 69.37, 169.38, {10: 0.9083, 100: 0.4975, 500: 0.1653}),
        (0.98, 0.5, 50.00, 40.16, {}),
        (0.98, 0.8, 53.06, 72.54, {}),
        (0.95, 0.5, 28.26, 9.31, {}),
    ],
)
def test_weight_of_the_near_and_middle_future(mu, eta, near, middle, gammas):
    curve = np.asarray(BetaWeighted(mu, eta).curve(999), np.float64)
    # Tables of two decimals; mu in float32 moves a sum by less than 1e-3 of a percent.
    assert curve[:100].sum() == pytest.approx(near, abs=0.0051)
    assert curve[100:].sum() == pytest.approx(middle, abs=0.0051 + 1e-5 * middle)
    for t, gamma in gammas.items():
        assert curve[t] == pytest.approx(gamma, abs=5.1e-5)


@pytest.mark.parametrize(("mu", "eta"), [(0.9, 0.25), (0.99, 0.5), (0.98, 0.8), (0.95, 2.0)])
def test_partial_sum_of_the_beta_weights(mu, eta):
    horizon = 300
    curve = np.asarray(BetaWeighted(mu, eta).curve(horizon), np.float64)
    mu, eta = float(np.float32(mu)), float(np.float32(eta))
    alpha, beta = mu / (eta * (1 - mu)), 1 / eta
    closed = ((alpha + beta - 1) - (alpha + beta + horizon - 1) * curve[horizon]) / (beta - 1)
    scale = abs((alpha + beta + horizon) / (beta - 1))
    assert curve[:horizon].sum() == pytest.approx(closed, abs=ULP * (horizon + scale))


def test_beta_weights_reach_from_exponential_to_hyperbolic():
    mu = 0.98
    k = (1 - mu) / mu
    np.testing.assert_array_equal(BetaWeighted(mu, 0).curve(99), Exponential(mu).curve(99))
    # Rounding mu to float32 moves k by 2^-24 / (1 - mu) of itself, the curve by a quarter of that at most.
    tolerance = ULP / (1 - mu)
    np.testing.assert_allclose(BetaWeighted(mu, 1).curve(99), Hyperbolic(k).curve(99), rtol=tolerance)
    for eta in (0.1, 0.5, 1.0, 3.0):
        curve = np.asarray(BetaWeighted(mu, eta).curve(99))
        assert curve[1] == np.float32(mu)
        assert np.all(np.diff(curve[1:] / curve[:-1]) >= -2 * ULP)  # decreasing impatience
        assert np.all(curve[2:] > Exponential(mu).curve(99)[2:])


def test_pathworld_errors_have_their_published_values():
    paths = np.arange(15)
    k = 0.05
    with np.errstate(invalid="ignore"):
        truth = np.where(paths == 0, 0, paths * (1 - np.exp(-2 * k * paths**2)) / (2 * k * np.maximum(paths, 1) ** 2))
    alpha, beta = 40.105, 2.111

    def error(discount):
        return np.mean((np.asarray(discount.curve(196))[paths**2] * paths - truth) ** 2)

    assert error(BetaWeighted(alpha / (alpha + beta), 1 / beta)) == pytest.approx(0.0431, abs=1e-4)
    assert error(Hyperbolic(k)) == pytest.approx(0.2473, abs=1e-4)
    assert error(Exponential(0.975)) == pytest.approx(0.241, abs=1e-3)
    assert error(Exponential(0.99)) == pytest.approx(3.952, abs=1e-3)


@pytest.mark.parametrize("horizon", [1, 32, 128, 512])
@pytest.mark.parametrize("traced", [False, True], ids=["host", "traced"])
def test_mixture_sums_to_the_curve(horizon, traced):
    mus, etas = np.meshgrid([0.0, 0.01, 0.5, 0.9, 0.98, 0.99, 1.0], [0.0, 1e-6, 0.25, 1.0, 2.0])
    batch = BetaWeighted(mus.ravel(), etas.ravel())
    mixture = jax.jit(lambda batch: batch.mixture(horizon)) if traced else lambda batch: batch.mixture(horizon)
    rates, weights = (np.asarray(leaf, np.float64) for leaf in mixture(batch))
    assert rates.shape == weights.shape == (mus.size, max(2, math.ceil(1.9 * math.sqrt(horizon))))
    assert rates.min() >= 0 and rates.max() <= 1 and weights.min() >= 0
    t = np.arange(horizon + 1)
    mixed = np.einsum("sq,sqt->st", weights, rates[..., None] ** t)
    # The quadrature is good to 2^-24; a rate near 1 is rounded by 2^-25, which t steps multiply by its weight times t.
    # A float32 eigensolver adds a few 2^-24 of the matrix's norm, at most 1 / step, to nodes that step multiplies.
    rounding = 2.0**-25 * np.einsum("sq,sqt->st", weights, t * rates[..., None] ** np.maximum(t - 1, 0))
    curve = np.asarray(batch.curve(horizon), np.float64)
    assert np.all(np.abs(mixed - curve) <= 3 * ULP + (8 if traced else 1) * rounding + (2e-6 if traced else 0))


def test_quadrature_is_good_to_its_stated_error_before_rounding():
    with np.errstate(all="raise", under="ignore"):
        for mu in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999):
            for eta in (0.01, 0.1, 0.25, 0.5, 1.0, 2.0):
                form = BetaWeighted(np.float64(mu), np.float64(eta)).form()
                for horizon in (32, 512):
                    rates, weights = form.mixture(horizon)
                    mixed = (weights[:, None] * rates[:, None] ** np.arange(horizon + 1)).sum(0)
                    assert np.abs(mixed - form.curve(horizon)).max() < ULP


def test_a_single_exponential_is_exact_as_a_mixture():
    for discount, rate in [(BetaWeighted(0.97, 0.0), 0.97), (BetaWeighted(1.0, 0.7), 1.0), (Hyperbolic(0.0), 1.0)]:
        for mixture in (lambda d: d.mixture(64), jax.jit(lambda d: d.mixture(64))):
            rates, weights = mixture(discount)
            assert np.count_nonzero(weights) == 1 and np.sum(weights) == 1
            assert rates[np.argmax(weights)] == np.float32(rate)


def test_a_quasi_hyperbolic_discount_is_two_exponentials():
    rates, weights = QuasiHyperbolic(0.7, 0.9).mixture(8)
    np.testing.assert_array_equal(rates, np.array([0.9, 0.0], np.float32))
    np.testing.assert_allclose(weights, [0.7, 0.3], rtol=2 * ULP)


def test_number_of_exponentials_is_static_and_small():
    assert prepare(0.98, 128).rates.shape == (1,)
    assert prepare(QuasiHyperbolic(0.9, 0.99), 128).rates.shape == (2,)
    assert prepare(Hyperbolic(0.02), 128).rates.shape == (22,)
    assert prepare(stack([QuasiHyperbolic(0.9, 0.99), Hyperbolic(0.02)]), 128).rates.shape == (2, 23)
    assert prepare(0.98, 128).lags is None and prepare(Hyperbolic(0.02), 128).lags is None
    assert prepare(FixedHorizon(9), 128).rates is None
    prepared = prepare(0.98, 128)
    assert prepare(prepared, 7) is prepared


TEXTS = ["0.98", "beta:0.98,0.5", "hyperbolic:0.02", "quasi:0.9,0.99", "fixed:100", "table:1,0.9,0.5", "1", "0"]
MIXED = [as_discount(text) for text in [*TEXTS, "truncated:(quasi:0.9,0.95),10", "beta:1,0.3", "table:1"]]


@pytest.mark.parametrize("discount", MIXED, ids=str)
def test_next_weight_steps_along_the_curve(discount):
    prepared = prepare(discount, 8)  # steps beyond the prepared horizon

    def step(weight, t):
        return (prepared.next_weight(t, weight),) * 2

    weights = jax.lax.scan(step, jnp.float32(1), jnp.arange(300))[1]
    np.testing.assert_allclose(weights, discount.curve(300)[1:], rtol=6 * ULP * 300, atol=1e-37)


def test_stack_of_one_family_keeps_the_family():
    batch = stack(["beta:0.98,0.5", BetaWeighted(0.9, 0)])
    assert isinstance(batch, BetaWeighted)
    np.testing.assert_array_equal(batch.mu, np.asarray([0.98, 0.9], np.float32))
    assert all(leaf.dtype == np.float32 and leaf.shape == (2,) for leaf in jax.tree.leaves(batch))
    assert isinstance(
        stack([TruncatedDiscount(Exponential(0.9), 3), TruncatedDiscount(Exponential(0.8), 4)]), TruncatedDiscount
    )


def test_stack_of_many_families_holds_each():
    batch = stack(MIXED)
    assert all(leaf.dtype == np.float32 and leaf.shape[0] == len(MIXED) for leaf in jax.tree.leaves(batch))
    for curve, discount in zip(batch.curve(128), MIXED, strict=True):
        np.testing.assert_allclose(curve, discount.curve(128), rtol=4 * ULP * 128)
    prepared = prepare(batch, 128)
    mixture = np.einsum("sq,sqt->st", prepared.weights, prepared.rates[..., None] ** np.arange(129))
    np.testing.assert_allclose(mixture + prepared.lags, batch.curve(128), atol=2e-6)
    # Each part is exactly zero where the other applies.
    assert not np.any(np.any(prepared.weights, axis=-1) & np.any(prepared.lags, axis=-1))
    scan = jax.vmap(lambda p: jax.lax.scan(lambda w, t: (p.next_weight(t, w),) * 2, jnp.float32(1), jnp.arange(200))[1])
    np.testing.assert_allclose(scan(prepared), batch.curve(200)[:, 1:], rtol=6 * ULP * 200, atol=1e-37)


def test_prepare_on_the_host_and_traced_agree():
    batch = stack(MIXED)
    host, traced = prepare(batch, 64), jax.jit(lambda batch: jax.vmap(lambda d: prepare(d, 64))(batch))(batch)
    assert jax.tree.structure(host) == jax.tree.structure(traced)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves((host, traced)))
    # Where nodes nearly coincide or have no weight, single nodes may differ, but their sums may not.
    t = np.arange(65)
    sums = [np.einsum("sq,sqt->st", p.weights, np.asarray(p.rates)[..., None] ** t) for p in (host, traced)]
    np.testing.assert_allclose(*sums, atol=3e-6)
    np.testing.assert_allclose(host.lags, traced.lags, atol=64 * 6 * ULP)


@jax.tree_util.register_pytree_node_class
class Linear:
    """A user-defined family: Gamma falls linearly to 0."""

    def __init__(self, slope):
        self.slope = slope

    def curve(self, horizon):
        return jnp.maximum(0.0, 1.0 - self.slope * jnp.arange(horizon + 1))

    def tree_flatten(self):
        return (self.slope,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_own_family_needs_only_a_curve():
    own = Linear(0.1)
    assert isinstance(own, Discount) and as_discount(own) is own
    prepared = prepare(own, 20)
    np.testing.assert_array_equal(prepared.lags, own.curve(20))
    assert prepared.rates is None
    assert float(prepared.next_weight(2, prepared.lags[2])) == pytest.approx(0.7)
    assert np.isnan(prepared.next_weight(20, 0.5)), "beyond what was prepared nothing is known"
    longer = prepare(own, 20, episode_length=200)
    np.testing.assert_array_equal(longer.lags, own.curve(200))
    assert float(longer.next_weight(20, 0.5)) == 0 and longer.horizon == 200
    assert stack([Linear(0.1), Linear(0.2)]).slope.shape == (2,)
    with pytest.raises(TypeError, match=r"Linear cannot share a sweep .* Tabulated"):
        stack([own, 0.9])


def test_own_family_with_a_bad_curve_is_reported():
    class Wrong:
        def __init__(self, values):
            self.values = values

        def curve(self, horizon):
            return self.values

    with pytest.raises(ValueError, match=r"Wrong.curve\(3\) must have the shape \(4,\), got \(2,\)"):
        prepare(Wrong(jnp.ones(2)), 3)
    with pytest.raises(ValueError, match=r"Wrong.curve must start at 1, got 0.5"):
        prepare(Wrong(jnp.full(4, 0.5)), 3)
    with pytest.raises(ValueError, match=r"Wrong.curve must never grow, got 0.25 at t = 1 and 0.5 after it"):
        prepare(Wrong(jnp.array([1, 0.25, 0.5, 0.5])), 3)
    with pytest.raises(ValueError, match=r"Wrong.curve must stay within \[0, 1\], got nan at t = 1"):
        prepare(Wrong(jnp.array([1, jnp.nan, 0.5, 0.5])), 3)


@pytest.mark.parametrize("discount", MIXED, ids=str)
def test_jax_rebuilds_a_discount_from_any_leaves(discount):
    for leaf in (None, 0, -7.0, object(), "axis", jax.ShapeDtypeStruct((3,), jnp.float32)):
        rebuilt = jax.tree.map(lambda _, leaf=leaf: leaf, discount)
        assert type(rebuilt) is type(discount)
    assert jax.tree.map(lambda x: x, discount) == discount
    assert hash(jax.tree.map(lambda x: x, discount)) == hash(discount)


def test_discounts_are_equal_by_family_and_parameters():
    assert BetaWeighted(0.9, 0.5) == BetaWeighted(mu=0.9, eta=0.5)
    assert BetaWeighted(0.9, 0.5) != BetaWeighted(0.9, 0.6)
    assert Tabulated([1, 0.5]) == Tabulated(np.asarray([1, 0.5])) != Tabulated([1, 0.5, 0.5])
    assert Exponential(0.9) != Hyperbolic(0.9)
    assert len({Exponential(1), Exponential(1.0), as_discount("1")}) == 1
