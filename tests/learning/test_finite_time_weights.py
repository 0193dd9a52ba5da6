"""Finite-time weights: the mean of the n-step estimators by definition, limits, ends of episodes, derivatives, cost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reference import advantages as reference

import jaxrl
from jaxrl.discounts.parsing import BetaWeighted, prepare
from jaxrl.learning.advantages import gae, lambda_returns, mixture_ugae, rate_returns, ugae

LENGTH = 24
FAMILIES: dict[str, tuple[str, dict[str, float]]] = {
    "exp:gamma=0.9375": ("exp", {"gamma": 0.9375}),
    "exp:gamma=1": ("exp", {"gamma": 1.0}),
    "beta:mu=0.9375,eta=0.5": ("beta", {"mu": 0.9375, "eta": 0.5}),
    "hyperbolic:k=0.125": ("hyperbolic", {"k": 0.125}),
    "quasi:beta=0.5,gamma=0.9375": ("quasi", {"beta": 0.5, "gamma": 0.9375}),
    "fixed:horizon=9": ("fixed", {"horizon": 9}),
}  # parameters that float32 has exactly
LAMS = [0.0, 0.25, 0.9375, 1.0]

jitted = jax.jit(ugae, static_argnames="lam_weights")
flags = hnp.arrays(bool, LENGTH, elements=st.booleans(), fill=st.just(False))


def finite(discount: Any, lam: float, reward: Any, *data: Any) -> tuple[jax.Array, jax.Array]:
    return jitted(prepare(discount, len(reward)), lam, reward, *data, lam_weights="finite-time")


def truncated(discount: Any, lam: float, reward: Any, *data: Any) -> tuple[jax.Array, jax.Array]:
    return jitted(prepare(discount, len(reward)), lam, reward, *data)


def rollout(seed: int, shape: tuple[int, ...], ends: float = 0.05) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    reward, value, next_value = generator.normal(size=(3, *shape)).astype(np.float32)
    terminated = generator.random(shape) < ends
    return reward, value, next_value, terminated, terminated | (generator.random(shape) < ends)


def allowed(curve: np.ndarray, lam: float, reward: Any, next_value: Any, terminated: Any, done: Any) -> np.ndarray:
    """Bound of the roundings of a target, with u = 2^-24 and N steps to the end.

    S_N is a recursion of 2 roundings a step, and so off by 2 N u at most; it divides S_{N-l}, which is off by as much.
    At every step back a term passes at most 7 roundings, of its weight, the rate and the sums. In the lag form, a lag's
    power of lam and a curve have N roundings each, and N terms are added. A mixture of 10 nodes adds 12 roundings, and
    its curve is off by u itself.
    """
    data = np.abs(reward), np.abs(next_value), terminated, done
    size, undiscounted = (reference.finite_time(each, lam, *data) for each in (curve, np.ones_like(curve)))
    return 2.0**-24 * ((11 * len(size) + 16) * size + undiscounted)


@settings(max_examples=100)
@given(
    text=st.sampled_from(list(FAMILIES)),
    lam=st.one_of(st.sampled_from(LAMS), st.floats(0, 1, width=32)),
    seed=st.integers(0, 2**32 - 1),
    terminated=flags,
    done=flags,
)
def test_a_target_is_the_mean_of_the_estimators(
    text: str, lam: float, seed: int, terminated: np.ndarray, done: np.ndarray
) -> None:
    family, parameters = FAMILIES[text]
    reward, value, next_value, _, _ = rollout(seed, (LENGTH,))
    curve = reference.curve(family, LENGTH, **parameters)
    exact = reference.finite_time(curve, lam, reward, next_value, terminated, done)
    bound = allowed(curve, lam, reward, next_value, terminated, done)
    data = (lam, reward, value, next_value, terminated, done)
    advantage, target = finite(text, *data)
    assert np.all(np.abs(np.asarray(target, np.float64) - exact) <= bound)
    np.testing.assert_array_equal(advantage, np.asarray(target) - value)
    lags = finite(jaxrl.Tabulated(jaxrl.as_discount(text).curve(LENGTH)), *data)
    assert np.all(np.abs(np.asarray(lags[1], np.float64) - exact) <= bound)


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.9, 1.0])
def test_the_estimators_with_truncated_weights_are_the_reference_of_ugae(lam: float) -> None:
    reward, value, next_value, terminated, done = rollout(1, (40,))
    curve = reference.curve("hyperbolic", 40, k=0.1)
    target = []
    for row in reference.estimators(curve, reward, next_value, terminated, done):
        weights = (1 - lam) * lam ** np.arange(len(row))
        weights[-1] = lam ** (len(row) - 1)
        target.append(weights @ row)
    exact = reference.ugae(curve, lam, reward, value, next_value, terminated, done)[1]
    np.testing.assert_allclose(target, exact, rtol=0, atol=1e-13)  # float64 sums of 40 numbers of about 1


@pytest.mark.parametrize("text", ["exp:gamma=0.9375", "beta:mu=0.9375,eta=0.5", "fixed:horizon=9"])
@pytest.mark.parametrize("lam", [0.5, 0.875])
def test_the_settings_differ_by_the_weight_that_the_longest_estimator_loses(text: str, lam: float) -> None:
    family, parameters = FAMILIES[text]
    length = 64
    reward, value, next_value, terminated, done = rollout(2, (length,), ends=0.0)
    curve = reference.curve(family, length, **parameters)
    rows = reference.estimators(curve, reward, next_value, terminated, done)
    moved = np.array([lam**n * (1 - lam ** (n - 1)) / (1 - lam**n) for n in range(length, 0, -1)])
    bound = moved * [np.ptp(row) for row in rows]
    assert np.all(moved <= lam ** np.arange(length, 0, -1.0))
    data = (lam, reward, value, next_value, terminated, done)
    difference = np.abs(np.asarray(finite(text, *data)[1]) - np.asarray(truncated(text, *data)[1]))
    rounding = 2 * allowed(curve, lam, reward, next_value, terminated, done)
    assert np.all(difference <= bound + rounding)
    assert np.all(difference[: length // 4] <= lam ** (0.75 * length) * np.ptp(rows[0]) + rounding[0])
    assert difference[-8:].max() > 0.01  # near the end it is not a rounding
    assert difference[-1] <= rounding[-1]  # of one estimator


@pytest.mark.parametrize("text", ["exp:gamma=0.9375", "beta:mu=0.9375,eta=0.5", "fixed:horizon=9"])
def test_one_step_targets_are_those_of_truncated_weights(text: str) -> None:
    data = rollout(3, (LENGTH, 2))
    np.testing.assert_allclose(finite(text, 0.0, *data)[1], truncated(text, 0.0, *data)[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("text", ["exp:gamma=1", "fixed:horizon=40"])
def test_lambda_one_weighs_all_estimators_alike(text: str) -> None:
    """Powers of 2, so that the numbers are exact: a reward of 16 in 16 steps without values, at the end or before."""
    reward = np.zeros(16, np.float32)
    reward[-1] = 16.0
    nothing, ends = np.zeros(16, np.float32), np.arange(16) == 15
    target = np.asarray(finite(text, 1.0, reward, nothing, nothing, ends, ends)[1])
    np.testing.assert_array_equal(target[[0, 8, 12, 14, 15]], [1.0, 2.0, 4.0, 8.0, 16.0])
    early = np.roll(reward, 9)
    target = np.asarray(finite(text, 1.0, early, nothing, nothing, ends, ends)[1])
    np.testing.assert_array_equal(target[[0, 8, 9]], [8.0, 16.0, 0.0])  # 8 of 16 estimators contain it, and 8 of 8
    np.testing.assert_array_equal(truncated(text, 1.0, reward, nothing, nothing, ends, ends)[1], np.full(16, 16.0))


@pytest.mark.parametrize("text", ["exp:gamma=0.9375", "hyperbolic:k=0.125", "fixed:horizon=9"])
@pytest.mark.parametrize("terminates", [True, False], ids=["terminated", "truncated"])
def test_an_episode_within_a_rollout_has_its_own_end(text: str, terminates: bool) -> None:
    reward, value, next_value, terminated, done = rollout(4, (LENGTH, 2), ends=0.0)
    done[9], terminated[9] = True, terminates
    whole = finite(text, 0.9, reward, value, next_value, terminated, done)[1]
    parts = [
        finite(text, 0.9, *(each[rows] for each in (reward, value, next_value, terminated, done)))[1]
        for rows in (slice(0, 10), slice(10, LENGTH))
    ]
    np.testing.assert_allclose(whole, np.concatenate(parts), rtol=0, atol=1e-5)
    # The end of a rollout bootstraps as a truncation does, and a termination does not.
    alone = reward[9] + (0.0 if terminates else float(jaxrl.as_discount(text).curve(1)[1])) * next_value[9]
    np.testing.assert_allclose(whole[9], alone, rtol=0, atol=1e-6)


def test_nan_stays_in_its_episode() -> None:
    for text in ("0.98", "beta:0.98,0.5", "fixed:40"):
        reward, value, next_value, terminated, done = rollout(5, (40, 2), ends=0.0)
        done[19, 0] = True
        clean = np.asarray(finite(text, 0.95, reward, value, next_value, terminated, done)[1])
        reward[30, 0] = np.nan
        dirty = np.asarray(finite(text, 0.95, reward, value, next_value, terminated, done)[1])
        assert np.isnan(dirty[20:31, 0]).all()
        np.testing.assert_array_equal(dirty[:, 1], clean[:, 1])
        np.testing.assert_array_equal(dirty[:20, 0], clean[:20, 0])


def test_flags_are_shared_by_agents() -> None:
    reward, value, next_value, _, _ = rollout(6, (LENGTH, 3, 2))
    terminated, done = rollout(6, (LENGTH, 3), ends=0.1)[3:]
    for text in ("0.9375", "fixed:9"):
        shared = finite(text, 0.9, reward, value, next_value, terminated, done)[1]
        alone = finite(
            text, 0.9, *(each[:, 1, 1] for each in (reward, value, next_value)), terminated[:, 1], done[:, 1]
        )
        np.testing.assert_allclose(shared[:, 1, 1], alone[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("lam", LAMS)
def test_every_head_of_a_mixture_is_the_mean_of_its_estimators(lam: float) -> None:
    rates, weights = np.array([0.9375, 0.5, 0.0], np.float32), np.array([0.5, 0.375, 0.125], np.float32)
    reward, _, _, terminated, done = rollout(7, (LENGTH, 2))
    value, next_value = np.random.default_rng(8).normal(size=(2, LENGTH, 2, 3)).astype(np.float32)
    call = jax.jit(mixture_ugae, static_argnames="lam_weights")
    data = (rates, weights, lam, reward, value, next_value, terminated, done)
    advantage, target = call(*data, lam_weights="finite-time")
    exact, bound = np.zeros((2, LENGTH, 2, 3))
    for column, k in np.ndindex(2, 3):
        row = reward[:, column], next_value[:, column, k], terminated[:, column], done[:, column]
        curve = reference.curve("exp", LENGTH, gamma=float(rates[k]))
        exact[:, column, k] = reference.finite_time(curve, lam, *row)
        bound[:, column, k] = allowed(curve, lam, *row)
    assert np.all(np.abs(np.asarray(target, np.float64) - exact) <= bound)
    error = np.abs(np.asarray(advantage, np.float64) - (exact - value) @ weights.astype(np.float64))
    assert np.all(error <= bound @ weights + 8 * 2.0**-24 * (np.abs(exact) + np.abs(value)) @ weights)


@pytest.mark.parametrize("text", ["exp:gamma=0.9375", "beta:mu=0.9375,eta=0.5", "fixed:horizon=9"])
def test_slopes_by_lambda_are_differences_and_finite_at_its_ends(text: str) -> None:
    family, parameters = FAMILIES[text]
    reward, value, next_value, terminated, done = rollout(9, (LENGTH,))
    curve, prepared = reference.curve(family, LENGTH, **parameters), prepare(text, LENGTH)
    weight = np.random.default_rng(10).normal(size=LENGTH)

    @jax.jit
    @jax.grad
    def slope(lam: Any) -> jax.Array:
        target = ugae(prepared, lam, reward, value, next_value, terminated, done, "finite-time")[1]
        return jnp.sum(weight * target)

    def exact(lam: float) -> float:
        return float(weight @ reference.finite_time(curve, lam, reward, next_value, terminated, done))

    step = 1e-5
    for lam in (step, 0.5, 0.9, 1 - step):
        difference = (exact(lam + step) - exact(lam - step)) / (2 * step)
        np.testing.assert_allclose(slope(lam), difference, rtol=1e-3, atol=1e-3)
    # Just outside an end the slope is that at the end but for a second derivative of at most some hundreds.
    for end, inside in ((0.0, step), (1.0, 1 - step)):
        np.testing.assert_allclose(slope(end), slope(inside), rtol=0.01, atol=0.01)


def test_slopes_by_the_discount_are_differences() -> None:
    reward, value, next_value, terminated, done = rollout(11, (LENGTH,))
    reward = reward + 1

    @jax.jit
    def slopes(mu: Any, eta: Any, lam: Any) -> Any:
        def total(mu: Any, eta: Any) -> jax.Array:
            return ugae(BetaWeighted(mu, eta), lam, reward, value, next_value, terminated, done, "finite-time")[1].sum()

        return jax.grad(total, argnums=(0, 1))(mu, eta)

    def exact(mu: float, eta: float, lam: float) -> float:
        curve = reference.curve("beta", LENGTH, mu=mu, eta=eta)
        return reference.finite_time(curve, lam, reward, next_value, terminated, done).sum()

    step = 1e-5
    for lam in (0.875, 1.0):
        by_mu = (exact(0.875 + step, 0.5, lam) - exact(0.875 - step, 0.5, lam)) / (2 * step)
        by_eta = (exact(0.875, 0.5 + step, lam) - exact(0.875, 0.5 - step, lam)) / (2 * step)
        np.testing.assert_allclose(slopes(0.875, 0.5, lam), (by_mu, by_eta), rtol=1e-3)
    assert np.all(np.isfinite(slopes(0.875, 0.0, 0.0)))


def test_one_scan_carries_the_returns_and_their_weights() -> None:
    data = rollout(12, (128, 4))
    jaxpr = jax.make_jaxpr(lambda *data: ugae(0.98, 0.95, *data, lam_weights="finite-time"))(*data)
    scans = [equation for equation in jaxpr.jaxpr.eqns if equation.primitive.name == "scan"]
    assert len(scans) == 1
    assert [each.shape for each in scans[0].params["jaxpr"].out_avals[:2]] == [(1, 4), (4,)]


def test_gae_and_lambda_returns_take_the_weights() -> None:
    data = rollout(13, (LENGTH, 2))
    target = ugae(0.9375, 0.9, *data, lam_weights="finite-time")[1]
    np.testing.assert_array_equal(gae(0.9375, 0.9, *data, lam_weights="finite-time")[1], target)
    np.testing.assert_array_equal(lambda_returns(0.9375, 0.9, data[0], *data[2:], lam_weights="finite-time"), target)


REWARD, VALUE, NO = np.zeros((4, 2)), np.zeros((4, 2, 1)), np.zeros((4, 2), bool)


@pytest.mark.parametrize("wrong", ["finite", None, np.ones(2)], ids=["word", "none", "array"])
@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: ugae(0.9, 0.9, REWARD, REWARD, REWARD, NO, NO, wrong),
        lambda wrong: gae(0.9, 0.9, REWARD, REWARD, REWARD, NO, NO, wrong),
        lambda wrong: lambda_returns(0.9, 0.9, REWARD, REWARD, NO, NO, wrong),
        lambda wrong: mixture_ugae([0.9], [1.0], 0.9, REWARD, VALUE, VALUE, NO, NO, wrong),
        lambda wrong: rate_returns([0.9], 0.9, REWARD, VALUE, NO, NO, wrong),
    ],
    ids=["ugae", "gae", "lambda_returns", "mixture_ugae", "rate_returns"],
)
def test_another_value_gets_one_sentence(call: Any, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^lam_weights must be one of truncated, finite-time, got "):
        call(wrong)


@pytest.mark.parametrize("wrong", ["finite", None])
def test_a_configuration_takes_no_other_value(wrong: Any) -> None:
    with pytest.raises(ValueError, match=rf"^lam_weights must be one of truncated, finite-time, got {wrong!r}"):
        jaxrl.PPOConfig(lam_weights=wrong)


def test_monte_carlo_returns_have_no_such_weights() -> None:
    sentence = r"^lam_weights has no effect with Monte Carlo returns, got finite-time; leave it out$"
    with pytest.raises(ValueError, match=sentence):
        jaxrl.ReinforceConfig(lam_weights="finite-time")
