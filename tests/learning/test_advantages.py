"""UGAE against a float64 double loop, its special cases, its derivatives and its cost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reference import advantages as reference

from jaxrl.discounts.parsing import (
    BetaWeighted,
    Exponential,
    FixedHorizon,
    Hyperbolic,
    QuasiHyperbolic,
    Tabulated,
    TruncatedDiscount,
    as_discount,
    prepare,
    stack,
)
from jaxrl.learning.advantages import gae, lambda_returns, monte_carlo, ugae

LAMS = [0.0, 0.3, 0.95, 1.0]
LENGTH = 24

jitted = jax.jit(ugae)


def rollout(seed, shape, ends=0.05, scale=1.0):
    """A random reward, value, next_value, terminated and done, with both flags true at times."""
    generator = np.random.default_rng(seed)
    reward, value, next_value = (scale * generator.normal(size=(3, *shape))).astype(np.float32)
    terminated = generator.random(shape) < ends
    done = (terminated & (generator.random(shape) < 0.5)) | (generator.random(shape) < ends)
    return reward, value, next_value, terminated, done | terminated


def consistent(seed, shape):
    """A rollout whose next value is the value of the next step, wherever the episode continues."""
    reward, value, next_value, terminated, done = rollout(seed, shape)
    next_value[:-1] = np.where(done[:-1], next_value[:-1], value[1:])
    return reward, value, next_value, terminated, done


def expected(curve, lam, reward, value, next_value, terminated, done):
    """Advantages by the double loop, over every column of `[T, *B]`."""
    columns = [np.reshape(x, (len(reward), -1)) for x in (reward, value, next_value, terminated, done)]
    lam = float(np.float32(lam))
    out = [reference.ugae(curve, lam, *[x[:, b] for x in columns])[0] for b in range(columns[0].shape[1])]
    return np.stack(out, axis=1).reshape(np.shape(reward))


def assert_close(actual, exact, relative=1e-5):
    assert np.abs(np.asarray(actual, np.float64) - exact).max() <= relative * max(1.0, np.abs(exact).max())


def up_to(high):
    """Float32 numbers from 0 to the largest one that is at most `high`."""
    return st.floats(0, float(np.float32(high)), width=32)


def families(draw):
    """One of every family with its first step at most 0.99, and its float64 curve."""
    name = draw(st.sampled_from(["exp", "quasi", "hyperbolic", "beta", "fixed", "table", "truncated"]))
    if name in ("exp", "truncated"):
        parameters = {"gamma": draw(up_to(0.99))}
        discount, exact = Exponential(**parameters), reference.curve("exp", LENGTH, **parameters)
        if name == "truncated":
            horizon = draw(st.integers(1, 2 * LENGTH))
            discount, exact = TruncatedDiscount(discount, horizon), np.where(np.arange(LENGTH + 1) < horizon, exact, 0)
        return discount, exact
    if name == "quasi":
        parameters = {"beta": draw(up_to(1)), "gamma": draw(up_to(0.99))}
        family = QuasiHyperbolic
    elif name == "hyperbolic":
        parameters, family = {"k": float(np.float32(1 / 99)) + draw(up_to(50))}, Hyperbolic
        parameters["k"] = float(np.float32(parameters["k"]))
    elif name == "beta":
        parameters, family = {"mu": draw(up_to(0.99)), "eta": draw(up_to(2))}, BetaWeighted
    elif name == "fixed":
        parameters, family = {"horizon": draw(st.integers(1, 2 * LENGTH))}, FixedHorizon
    else:
        rest = draw(st.lists(up_to(1), max_size=2 * LENGTH))
        values = np.zeros(2 * LENGTH + 1)  # of one shape, so that one compilation suffices
        values[: len(rest) + 1] = [1.0, *sorted(rest, reverse=True)]
        parameters, family = {"curve": values}, Tabulated
    return family(**parameters), reference.curve(name, LENGTH, **parameters)


@settings(max_examples=150)
@given(
    case=st.composite(families)(),
    lam=st.sampled_from(LAMS),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    terminated=hnp.arrays(bool, LENGTH, elements=st.booleans(), fill=st.just(False)),
    done=hnp.arrays(bool, LENGTH, elements=st.booleans(), fill=st.just(False)),
)
def test_ugae_is_the_double_loop(case, lam, seed, scale, terminated, done):
    discount, curve = case
    reward, value, next_value, _, _ = rollout(seed, (LENGTH,), scale=scale)
    exact = expected(curve, lam, reward, value, next_value, terminated, done)
    for given_as in (discount, prepare(discount, LENGTH)):  # resolved while traced, and on the host
        advantage, target = jitted(given_as, lam, reward, value, next_value, terminated, done)
        assert_close(advantage, exact)
        assert_close(target, exact + value)


LONG = [
    ("exp", {"gamma": 0.99}, Exponential),
    ("quasi", {"beta": 0.7, "gamma": 0.99}, QuasiHyperbolic),
    ("hyperbolic", {"k": 1 / 99}, Hyperbolic),
    ("beta", {"mu": 0.99, "eta": 0.5}, BetaWeighted),
    ("beta", {"mu": 0.99, "eta": 2.0}, BetaWeighted),
    ("beta", {"mu": 0.5, "eta": 2.0}, BetaWeighted),
    ("fixed", {"horizon": 100}, FixedHorizon),
]


@pytest.mark.parametrize(("name", "parameters", "family"), LONG, ids=lambda x: str(x) if isinstance(x, dict) else None)
@pytest.mark.parametrize("length", [32, 128, 512])
def test_ugae_is_the_double_loop_at_any_length(name, parameters, family, length):
    parameters = {key: float(np.float32(value)) for key, value in parameters.items()}
    data = rollout(length, (length,), ends=0.002)
    data[0][:] = 1.0  # a constant reward adds up the errors of the curve
    exact = expected(reference.curve(name, length, **parameters), 1.0, *data)
    for given_as in (family(**parameters), prepare(family(**parameters), length)):
        assert_close(jitted(given_as, 1.0, *data)[0], exact)


@pytest.mark.slow
@pytest.mark.parametrize("length", [32, 128, 512])
@pytest.mark.parametrize("lam", LAMS)
def test_mixture_scan_and_lag_form_agree(length, lam):
    data = rollout(1, (length, 3), ends=0.01)
    for discount in (Exponential(0.99), QuasiHyperbolic(0.8, 0.98), BetaWeighted(0.99, 0.5), Hyperbolic(0.02)):
        lag_form = jitted(Tabulated(discount.curve(length)), lam, *data)[0]
        assert_close(jitted(discount, lam, *data)[0], np.asarray(lag_form, np.float64))


@pytest.mark.parametrize("mu", [0.999, 0.9999, 1.0])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_ugae_near_no_discounting_keeps_a_derived_bound(mu, eta):
    length = 256
    mu, eta = float(np.float32(mu)), float(np.float32(eta))
    data = rollout(2, (length,), ends=0.0)
    data[0][:] = 1.0
    curve = reference.curve("beta", length, mu=mu, eta=eta)
    exact = expected(curve, 1.0, *data)
    # Gamma(t) is off by the quadrature's 2^-24 and by t roundings of a rate (2^-25 each); the scan rounds its sum, at
    # most `length`, a few times a step, each 2^-24 of it.
    t = np.arange(length)
    bound = np.sum(2.0**-24 + t * 2.0**-25) + 3 * length * length * 2.0**-24
    for given_as in (BetaWeighted(mu, eta), prepare(BetaWeighted(mu, eta), length)):
        assert np.abs(np.asarray(jitted(given_as, 1.0, *data)[0]) - exact).max() <= bound


def agreement(length, mu, eta, lam, seed):
    """The two float32 forms and the exact targets of a random rollout, and bounds of their roundings alone."""
    mu, eta, lam = (float(np.float32(value)) for value in (mu, eta, lam))
    reward, value, next_value, terminated, done = rollout(seed, (length,), ends=0.002)
    if seed % 2:
        reward[:] = 1.0  # a constant reward adds up the errors of the curve
    data = (lam, reward, value, next_value, terminated, done)
    curve = reference.curve("beta", length, mu=mu, eta=eta)
    exact = reference.ugae_by_lags(curve, lam, reward, next_value, terminated, done)
    size = reference.ugae_by_lags(curve, lam, reward, next_value, terminated, done, power=0)
    sizes_by_lag = reference.ugae_by_lags(curve, lam, reward, next_value, terminated, done, power=1)
    prepared = prepare(BetaWeighted(mu, eta), length)
    # With u = 2^-24: at every step back a term passes 6 roundings and a rate rounded once, 7 u; then it is one of Q
    # weighed ones that are added, (Q + 2) u; the quadrature itself does not appear.
    scan_bound = 2.0**-24 * (7 * sizes_by_lag + (len(prepared.rates) + 2) * size)
    # Of `lag` multiplied lam; a curve rounded once, three products, and at most T terms added one after another.
    lag_bound = 2.0**-24 * (sizes_by_lag + (length + 4) * size)
    scan = np.asarray(jitted(prepared, *data)[1], np.float64)
    lags = np.asarray(jitted(Tabulated(BetaWeighted(mu, eta).curve(length)), *data)[1], np.float64)
    return scan, lags, exact, scan_bound, lag_bound


ANY_LENGTH = {"length": st.sampled_from([32, 128, 512, 2048]), "lam": st.floats(0, 1), "seed": st.integers(0, 99)}


@pytest.mark.slow
@settings(max_examples=30)
@given(mu=st.floats(0.5, 0.99), eta=st.floats(0, 2), **ANY_LENGTH)
def test_mixture_scan_and_lag_form_agree_within_their_roundings(length, mu, eta, lam, seed):
    scan, lags, exact, scan_bound, lag_bound = agreement(length, mu, eta, lam, seed)
    assert np.all(np.abs(scan - exact) <= scan_bound)
    assert np.all(np.abs(lags - exact) <= lag_bound)
    assert np.all(np.abs(scan - lags) <= scan_bound + lag_bound)


@pytest.mark.slow
@settings(max_examples=400)
@given(mu=st.floats(0.5, 0.99), eta=st.floats(0, 2), **ANY_LENGTH)
def test_mixture_scan_and_lag_form_agree_within_their_roundings_everywhere(length, mu, eta, lam, seed):
    scan, lags, _, scan_bound, lag_bound = agreement(length, mu, eta, lam, seed)
    assert np.all(np.abs(scan - lags) <= scan_bound + lag_bound)


@pytest.mark.slow_rows("512")
@pytest.mark.parametrize("length", [32, 128, 512, pytest.param(2048, marks=pytest.mark.slow)])
def test_the_number_of_nodes_limits_nothing(length):
    """In float64 the nodes are within one float32 rounding of the curve, lag by lag, and so of any target."""
    for mu in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99):
        for eta in (0.01, 0.1, 0.5, 1.0, 2.0):
            form = BetaWeighted(np.float64(mu), np.float64(eta)).form()
            rates, weights = form.mixture(length)
            doubled = form.mixture(4 * length)
            assert len(doubled[0]) >= 2 * len(rates) - 1
            t = np.arange(length + 1)
            errors = [np.abs(w @ r[:, None] ** t - form.curve(length)) for r, w in ((rates, weights), doubled)]
            assert errors[0].max() < 2.0**-24
            # Twice as many would be better in float64, which is more accurate.
            assert errors[1].max() < 1e-12


def test_twice_the_nodes_are_no_better_in_float32():
    errors = np.zeros(2)
    for mu, eta in [(0.5, 2.0), (0.7, 1.0), (0.9, 1.0), (0.95, 0.5), (0.99, 2.0)]:
        for seed in (1, 3):
            data = rollout(seed, (512,), ends=0.002)
            data[0][:] = 1.0
            curve = reference.curve("beta", 512, mu=float(np.float32(mu)), eta=eta)
            exact = reference.ugae_by_lags(curve, 1.0, data[0], *data[2:])
            for column, horizon in enumerate((512, 4 * 512)):
                target = jitted(prepare(BetaWeighted(mu, eta), horizon), 1.0, *data)[1]
                errors[column] += np.abs(np.asarray(target, np.float64) - exact).max() / np.abs(exact).max()
    # Each is a sum of ten roundings; if the nodes set the limit, there would be a factor of thousands.
    assert errors[0] < 2.5 * errors[1]


def test_the_fast_reference_is_the_double_loop():
    reward, value, next_value, terminated, done = rollout(30, (40,), ends=0.05)
    for lam in LAMS:
        curve = reference.curve("beta", 40, mu=0.9, eta=0.5)
        double_loop = reference.ugae(curve, lam, reward, value, next_value, terminated, done)[1]
        fast = reference.ugae_by_lags(curve, lam, reward, next_value, terminated, done)
        np.testing.assert_allclose(fast, double_loop, atol=1e-13)


@pytest.mark.parametrize("lam", LAMS)
def test_exponential_is_gae(lam):
    data = consistent(3, (128, 3))
    gamma = float(np.float32(0.98))
    exact = np.stack([reference.gae(gamma, np.float32(lam), *[x[:, b] for x in data]) for b in range(3)], axis=1)
    assert_close(ugae(0.98, lam, *data)[0], exact)
    advantage, target = gae(0.98, lam, *data)
    np.testing.assert_array_equal(advantage, ugae("exp:gamma=0.98", lam, *data)[0])
    np.testing.assert_array_equal(target, lambda_returns(0.98, lam, data[0], *data[2:]))


@pytest.mark.parametrize("lam", LAMS)
def test_ugae_is_linear_in_the_curve(lam):
    data = rollout(4, (64, 2))
    one, other = BetaWeighted(0.9, 1.0).curve(64), FixedHorizon(20).curve(64)
    targets = [jitted(Tabulated(curve), lam, *data)[1] for curve in (one, other, 0.25 * one + 0.75 * other)]
    assert_close(targets[2], np.asarray(0.25 * targets[0] + 0.75 * targets[1], np.float64))


@pytest.mark.slow
def test_undiscounted_is_gae_without_discount():
    data = consistent(5, (64, 2))
    exact = np.stack([reference.gae(1.0, np.float32(0.95), *[x[:, b] for x in data]) for b in range(2)], axis=1)
    for discount in (1, BetaWeighted(1, 0.5), Hyperbolic(0), FixedHorizon(65), Tabulated(np.ones(65))):
        assert_close(jitted(discount, 0.95, *data)[0], exact)


@pytest.mark.slow
def test_myopic_is_the_reward_alone():
    data = rollout(6, (64, 2))
    for discount in (0, FixedHorizon(1), Tabulated([1]), QuasiHyperbolic(0, 0.9), BetaWeighted(0, 0)):
        for lam in LAMS:
            # A mixture weighs the reward twice, and the weights add up to 1 within rounding.
            np.testing.assert_allclose(jitted(discount, lam, *data)[1], data[0], rtol=1e-6)


@pytest.mark.slow
def test_one_step_targets_see_the_first_step_alone():
    data = rollout(7, (64, 2))
    reward, _, next_value, terminated, _ = data
    k = 0.02 / 0.98
    exact = reward + 0.98 * np.where(terminated, 0, next_value).astype(np.float64)
    for discount in (0.98, BetaWeighted(0.98, 0.5), BetaWeighted(0.98, 2), Hyperbolic(k), Tabulated([1, 0.98])):
        assert_close(jitted(discount, 0, *data)[1], exact)


@pytest.mark.parametrize("discount", [0.98, "beta:0.98,0.5", "fixed:9"])
def test_monte_carlo_is_lambda_one(discount):
    data = rollout(8, (64, 2))
    reward, _, next_value, terminated, done = data
    np.testing.assert_array_equal(
        monte_carlo(discount, reward, next_value, terminated, done), ugae(discount, 1.0, *data)[1]
    )
    # Values within an episode do not count.
    ends = done | terminated | (np.arange(64) == 63)[:, None]
    within = np.where(ends, next_value, 1e6)
    np.testing.assert_array_equal(
        monte_carlo(discount, reward, within, terminated, done),
        monte_carlo(discount, reward, next_value, terminated, done),
    )


@pytest.mark.parametrize("discount", [0.5, "beta:0.5,0.5", "fixed:2"])
def test_truncation_bootstraps_termination_does_not_and_wins(discount):
    reward, value, next_value = np.zeros(3), np.zeros(3), np.full(3, 8.0)
    first = float(as_discount(discount).curve(1)[1])

    def target(terminated, done):
        flags = np.asarray(terminated, bool), np.asarray(done, bool)
        return np.asarray(ugae(discount, 1.0, reward, value, next_value, *flags)[1])

    tail = [8 * float(as_discount(discount).curve(2)[2]), 8 * first]
    np.testing.assert_allclose(target([0, 0, 0], [1, 0, 0]), [8 * first, *tail], rtol=1e-6, atol=1e-6)
    for done in ([1, 0, 0], [0, 0, 0]):
        np.testing.assert_allclose(target([1, 0, 0], done), [0, *tail], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(target([0, 0, 1], [0, 0, 1]), [0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("discount", [0.9, "beta:0.9,0.5", "fixed:9", "table:1,0.5"])
def test_a_rollout_of_one_step(discount):
    first = float(as_discount(discount).curve(1)[1])
    advantage, target = ugae(discount, 0.95, [[1.0, 1.0]], [[0.5, 0.5]], [[2.0, 2.0]], [[True, False]], [[True, False]])
    np.testing.assert_allclose(target, [[1.0, 1.0 + 2.0 * first]], rtol=1e-6)
    np.testing.assert_allclose(advantage, np.asarray(target) - 0.5, rtol=1e-6)


@pytest.mark.slow_rows("0.9")
@pytest.mark.parametrize("discount", [0.9, "beta:0.9,0.5", "fixed:9"])
def test_flags_are_shared_by_trailing_axes(discount):
    reward, value, next_value, _, _ = rollout(9, (32, 3, 2))
    terminated, done = rollout(9, (32, 3), ends=0.1)[3:]
    spread: Any = [np.repeat(flag[..., None], 2, axis=-1) for flag in (terminated, done)]
    shared = ugae(discount, 0.95, reward, value, next_value, terminated, done)
    for one, other in zip(shared, ugae(discount, 0.95, reward, value, next_value, *spread), strict=True):
        np.testing.assert_array_equal(one, other)
    # One agent's own termination, and a shared end of the episode.
    ugae(discount, 0.95, reward, value, next_value, spread[0], done)
    alone = ugae(discount, 0.95, reward[:, 1, 1], value[:, 1, 1], next_value[:, 1, 1], terminated[:, 1], done[:, 1])
    np.testing.assert_allclose(shared[0][:, 1, 1], alone[0], rtol=1e-5, atol=1e-5)


FAMILIES = ["0.98", "beta:0.98,0.5", "hyperbolic:0.02", "quasi:0.9,0.99", "fixed:10", "table:1,0.9,0.5", "beta:1,0.3"]
FAMILIES = [*FAMILIES, "truncated:(quasi:0.9,0.95),10", "0", "1", "mixture:0.5=0.5,0.99=0.5"]


@pytest.mark.slow
def test_mixed_stack_is_bit_for_bit_a_stack_of_copies():
    data = rollout(10, (64, 2))
    mixed = stack(FAMILIES)
    run = jax.jit(jax.vmap(lambda discount: ugae(discount, 0.95, *data)[0]))
    for source in (mixed, prepare(mixed, 64)):  # traced and on the host
        together = run(source)
        for row, text in enumerate(FAMILIES):
            copies = jax.tree.map(lambda leaf, row=row: np.repeat(leaf[row : row + 1], len(FAMILIES), axis=0), source)
            np.testing.assert_array_equal(run(copies), np.repeat(together[row : row + 1], len(FAMILIES), axis=0))
            assert_close(together[row], np.asarray(ugae(text, 0.95, *data)[0], np.float64))


@pytest.mark.parametrize(("one", "other"), [("0.98", "fixed:10"), ("beta:0.98,0.5", "table:1,0.9,0.5")])
def test_the_part_that_does_not_apply_changes_no_bit(one, other):
    """With a lag part of zeros or without one, with weights of zeros or without any."""
    data = rollout(11, (64, 2))
    for kept, text in enumerate((one, other)):
        prepared = jax.tree.map(lambda leaf, kept=kept: leaf[kept], prepare(stack([one, other]), 64))
        part = {"lags": None} if kept == 0 else {"rates": None, "weights": None, "mixture_curve": None}
        whole, alone = (ugae(p, 0.95, *data)[0] for p in (prepared, prepared.replace(**part)))
        np.testing.assert_array_equal(whole, alone, err_msg=text)


@pytest.mark.slow
def test_parameters_and_lam_map_under_vmap():
    data = rollout(12, (32, 2))
    mus, lams = np.asarray([0.9, 0.98, 1.0], np.float32), np.asarray([0.0, 0.95, 1.0], np.float32)
    mapped = jax.vmap(lambda mu, lam: ugae(BetaWeighted(mu, 0.5), lam, *data)[0])(mus, lams)
    for row, mu, lam in zip(mapped, mus, lams, strict=True):
        assert_close(row, np.asarray(jitted(BetaWeighted(mu, 0.5), lam, *data)[0], np.float64))


@pytest.mark.slow
def test_nan_stays_in_its_episode():
    for discount in (0.98, "beta:0.98,0.5", "fixed:40"):
        reward, value, next_value, terminated, done = rollout(13, (40, 2), ends=0.0)
        done = done.copy()
        done[19, 0] = True
        clean = np.asarray(ugae(discount, 0.95, reward, value, next_value, terminated, done)[0])
        reward = reward.copy()
        reward[30, 0] = np.nan
        dirty = np.asarray(ugae(discount, 0.95, reward, value, next_value, terminated, done)[0])
        assert np.isnan(dirty[20:31, 0]).all()
        np.testing.assert_array_equal(dirty[:, 1], clean[:, 1])
        np.testing.assert_array_equal(dirty[:20, 0], clean[:20, 0])


def total(mu, eta, lam, *data):
    return ugae(BetaWeighted(mu, eta), lam, *data)[0].sum()


reverse_slopes = jax.jit(jax.grad(total, argnums=(0, 1)))
forward_slopes = jax.jit(jax.jacfwd(total, argnums=(0, 1)))


@pytest.mark.slow_rows("0.95-0.0")
@pytest.mark.parametrize("eta", [0.0, 1e-4, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("lam", [0.95, 1.0])
def test_gradients_through_beta_weights(eta, lam):
    length, mu, step = 48, 0.95, 1e-5
    data = rollout(14, (length, 2), ends=0.03)
    data[0][:] += 1.0

    def exact(mu, eta):  # in float64, so that a difference means something; defined for eta < 0 too
        return expected(reference.curve("beta", length, mu=mu, eta=eta), lam, *data).sum()

    differences = [
        (exact(mu + step, eta) - exact(mu - step, eta)) / (2 * step),
        (exact(mu, eta + step) - exact(mu, eta - step)) / (2 * step),
    ]
    np.testing.assert_allclose(reverse_slopes(mu, eta, lam, *data), differences, rtol=0.01)
    np.testing.assert_allclose(forward_slopes(mu, eta, lam, *data), differences, rtol=0.01)


def assert_slopes_are_differences(length, mu, eta, lam, seed):
    """Compare reverse and forward derivatives with central differences in float64; rewards and values are positive."""
    mu, eta, lam, step = *(float(np.float32(value)) for value in (mu, eta, lam)), 1e-5
    reward, value, next_value, terminated, done = (
        np.abs(x) if x.dtype != bool else x for x in rollout(seed, (length,))
    )
    reward = reward + np.float32(0.1)

    def exact(mu, eta):
        curve = reference.curve("beta", length, mu=mu, eta=eta)
        return reference.ugae_by_lags(curve, lam, reward, next_value, terminated, done).sum()

    differences = [
        (exact(mu + step, eta) - exact(mu - step, eta)) / (2 * step),
        (exact(mu, eta + step) - exact(mu, eta - step)) / (2 * step),
    ]
    data = (reward, value, next_value, terminated, done)
    for slopes in (reverse_slopes(mu, eta, lam, *data), forward_slopes(mu, eta, lam, *data)):
        assert np.all(np.isfinite(slopes))
        # eta has no effect at lam = 0, and little effect near it: there, 1 % of the larger slope's scale.
        np.testing.assert_allclose(slopes, differences, rtol=0.01, atol=1e-6 * abs(differences[0]))


@settings(max_examples=25)
@given(
    mu=st.floats(0.5, 0.99), eta=st.one_of(st.just(0.0), st.floats(0, 2)), lam=st.floats(0, 1), seed=st.integers(0, 9)
)
@pytest.mark.slow
def test_slopes_are_differences_everywhere(mu, eta, lam, seed):
    assert_slopes_are_differences(48, mu, eta, lam, seed)


@pytest.mark.slow
@settings(max_examples=40)
@given(mu=st.floats(0.5, 0.99), eta=st.one_of(st.just(0.0), st.floats(0, 2)), **ANY_LENGTH)
def test_slopes_are_differences_at_every_length(length, mu, eta, lam, seed):
    assert_slopes_are_differences(length, mu, eta, lam, seed)


@pytest.mark.slow_rows("0.0-0.0")
@pytest.mark.parametrize("mu", [0.0, 1e-6, 0.5, 0.9999, 1.0])
@pytest.mark.parametrize("eta", [0.0, 1e-12, 1e-6, 1.0, 10.0])
def test_slopes_are_finite_at_the_edges(mu, eta):
    reward, value, next_value, terminated, done = rollout(31, (48,))
    for lam in (0.0, 0.95, 1.0):
        for slopes in (reverse_slopes, forward_slopes):
            assert np.all(np.isfinite(slopes(mu, eta, lam, reward, value, next_value, terminated, done)))


@pytest.mark.parametrize(
    ("make", "name", "parameters"),
    [
        (Exponential, "exp", {"gamma": 0.95}),
        (QuasiHyperbolic, "quasi", {"beta": 0.8, "gamma": 0.95}),
        (Hyperbolic, "hyperbolic", {"k": 0.1}),
    ],
)
@pytest.mark.fast_rows("Exponential")
def test_gradients_through_the_other_families(make, name, parameters):
    length, step = 32, 1e-6
    data = rollout(15, (length,))
    data[0][:] += 1.0
    slopes = jax.grad(lambda discount: ugae(discount, 0.9, *data)[0].sum())(make(**parameters))
    for key, value in parameters.items():
        sides = [reference.curve(name, length, **(parameters | {key: value + side})) for side in (step, -step)]
        above, below = (expected(curve, 0.9, *data).sum() for curve in sides)
        assert float(getattr(slopes, key)) == pytest.approx((above - below) / (2 * step), rel=0.01)


@pytest.mark.slow_rows("0.95", "fixed:10")
@pytest.mark.parametrize("discount", [0.95, "beta:0.95,0.5", "fixed:10"])
def test_gradients_through_rewards_values_and_lam(discount):
    data = rollout(16, (24,))
    reward, value, next_value, terminated, done = data
    weight = np.random.default_rng(0).normal(size=24)
    prepared = prepare(discount, 24)
    curve = np.asarray(as_discount(discount).curve(24), np.float64)

    def total(lam, reward, value, next_value):
        return (weight * ugae(prepared, lam, reward, value, next_value, terminated, done)[0]).sum()

    slopes = jax.grad(total, argnums=(0, 1, 2, 3))(0.9, reward, value, next_value)

    def exact(lam, reward, value, next_value):
        return (weight * reference.ugae(curve, lam, reward, value, next_value, terminated, done)[0]).sum()

    difference = (exact(0.9 + 1e-6, *data[:3]) - exact(0.9 - 1e-6, *data[:3])) / 2e-6
    assert float(slopes[0]) == pytest.approx(difference, rel=0.01)
    for position in range(3):
        for t in (0, 7, 23):  # linear in each, so that a difference of 1 is exact
            moved = [array.astype(np.float64) for array in data[:3]]
            moved[position][t] += 1
            difference = exact(float(np.float32(0.9)), *moved) - exact(float(np.float32(0.9)), *data[:3])
            assert float(slopes[position + 1][t]) == pytest.approx(difference, rel=1e-4, abs=1e-5)


def memory(discount, length, derivative):
    """Bytes of scratch memory that the compiler requests."""

    def total(discount, *data):
        return (ugae(discount, 0.95, *data)[0] ** 2).sum()

    call = jax.grad(total) if derivative else total
    compiled = jax.jit(call).lower(discount, *rollout(0, (length, 4))).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


@pytest.mark.slow_rows("gradient")
@pytest.mark.parametrize("derivative", [False, True], ids=["value", "gradient"])
def test_lag_form_takes_memory_linear_in_time(derivative):
    discounts = {length: Tabulated(Hyperbolic(0.02).curve(length)) for length in (256, 1024)}
    short, long = (memory(discount, length, derivative) for length, discount in discounts.items())
    assert long < 6 * short
    assert long < 4 * 1024 * 1024 // 2  # less than half of one [T, T] array


def test_exponential_carries_one_return_through_one_scan():
    jaxpr = jax.make_jaxpr(lambda *data: ugae(0.98, 0.95, *data))(*rollout(0, (128, 4)))
    scans = [equation for equation in jaxpr.jaxpr.eqns if equation.primitive.name == "scan"]
    assert len(scans) == 1
    assert scans[0].params["jaxpr"].out_avals[0].shape == (1, 4)


class Linear:
    """A user-defined family that is not a pytree: Gamma falls linearly to 0."""

    def curve(self, horizon):
        return jnp.maximum(0.0, 1.0 - jnp.arange(horizon + 1) / 10)


@pytest.mark.slow
def test_own_family_runs_lag_by_lag():
    data = rollout(17, (32, 2))
    curve = np.maximum(0, 1 - np.arange(33) / 10)
    assert_close(ugae(Linear(), 0.95, *data)[0], expected(curve, 0.95, *data))
    assert_close(jax.jit(lambda *data: ugae(Linear(), 0.95, *data))(*data)[0], expected(curve, 0.95, *data))


def call(**changes):
    reward, value, next_value, terminated, done = rollout(0, (8, 2))
    arguments: Any = {"discount": 0.9, "lam": 0.95, "reward": reward, "value": value, "next_value": next_value}
    return ugae(**(arguments | {"terminated": terminated, "done": done} | changes))


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"discount": 1.1}, ValueError, "gamma must lie in [0, 1], got 1.1."),
        ({"discount": None}, TypeError, "A discount is a number, a string or a Discount"),
        ({"lam": 1.5}, ValueError, "lam must lie in [0, 1], got 1.5."),
        ({"lam": float("nan")}, ValueError, "lam must lie in [0, 1], got nan."),
        ({"lam": None}, TypeError, "lam takes a number in [0, 1], got None."),
        ({"lam": np.ones(3)}, ValueError, "lam must be a scalar, got the shape (3,)"),
        ({"reward": np.float32(1)}, ValueError, "reward must be time-major"),
        ({"reward": np.zeros((0, 2))}, ValueError, "reward must be time-major"),
        ({"value": np.zeros(8)}, ValueError, "value must have reward's shape (8, 2), got (8,)."),
        ({"next_value": np.zeros((9, 2))}, ValueError, "next_value must have reward's shape (8, 2), got (9, 2)."),
        ({"terminated": np.zeros((8, 2))}, ValueError, "terminated must be bool, got float32."),
        ({"done": np.zeros((2, 8), bool)}, ValueError, "done must have reward's shape (8, 2) or its leading axes"),
        ({"discount": prepare(0.9, 4)}, ValueError, "discount was prepared for 4 steps, and reward has 8."),
        ({"discount": stack([0.9, 0.8])}, ValueError, "discount holds a stack of 2 discounts"),
        ({"discount": stack(["fixed:3", "fixed:4"])}, ValueError, "discount holds a stack of 2 discounts"),
    ],
)
def test_bad_input_gets_one_sentence(changes, error, sentence):
    with pytest.raises(error) as raised:
        call(**changes)
    assert sentence in str(raised.value)
