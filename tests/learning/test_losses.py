"""Losses against loops that add up one sample at a time, in float64."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.losses import (
    approximate_kl,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    policy_gradient,
    quadratic_surrogate,
    standardise,
    surrogate,
    weighted_mean,
)

EPS = float(np.finfo(np.float32).eps)
SIZE = 40
WEIGHTS = ["ones", "some", "fractions"]


def numbers(seed: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, SIZE).astype(np.float32)


def weights(kind: str) -> np.ndarray:
    random = np.random.default_rng(99).random(SIZE)
    chosen: Any = {"ones": np.ones(SIZE), "some": random < 0.5, "fractions": random / SIZE}[kind]
    return chosen.astype(np.float32)


def mean_by_hand(x: Any, weight: np.ndarray) -> float:
    total = share = 0.0
    for value, w in zip(x, weight, strict=True):
        total += float(value) * float(w)
        share += float(w)
    return total / share


def assert_close(actual: Any, exact: float, size: float = 1.0) -> None:
    """Within the roundings of a sum of 40 numbers of at most `size`, and of their few operations."""
    assert abs(float(actual) - exact) <= (SIZE + 10) * EPS * max(size, abs(exact))


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weighted_mean(kind: str) -> None:
    x, weight = numbers(0), weights(kind)
    assert_close(weighted_mean(jnp.asarray(x), jnp.asarray(weight)), mean_by_hand(x, weight))
    grid = weighted_mean(jnp.asarray(x.reshape(8, 5)), jnp.asarray(weight.reshape(8, 5)))
    assert_close(grid, mean_by_hand(x, weight))


def test_a_mean_without_weight_is_zero() -> None:
    assert float(weighted_mean(jnp.ones(3), jnp.zeros(3))) == 0
    assert np.all(np.isfinite(standardise(jnp.ones(3), jnp.zeros(3))))
    assert jax.grad(lambda x: weighted_mean(x, jnp.zeros(3)))(jnp.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", WEIGHTS)
def test_standardise(kind: str) -> None:
    x, weight = 7 + 3 * numbers(1), weights(kind)
    mean = mean_by_hand(x, weight)
    deviation = math.sqrt(mean_by_hand([(float(v) - mean) ** 2 for v in x], weight))
    got = np.asarray(standardise(jnp.asarray(x), jnp.asarray(weight)))
    # The roundings of a mean of numbers up to 16, divided by a deviation of more than 2.
    exact = np.where(weight > 0, (x - mean) / deviation, 0.0)
    np.testing.assert_allclose(got, exact, rtol=0, atol=(SIZE + 10) * 16 * EPS / 2)


def test_constants_are_standardised_to_zero() -> None:
    assert standardise(jnp.full(8, 3.0), jnp.ones(8)).tolist() == [0.0] * 8
    ones = np.ones(SIZE, np.float32)
    for constant in np.asarray([0.1, -7e14, 3e-9, 0.0], np.float32):
        assert not np.any(jax.jit(standardise)(np.full(SIZE, constant), ones))
        rounded = np.where(np.arange(SIZE) % 3, constant, np.nextafter(constant, np.float32(np.inf)))
        assert constant == 0 or not np.any(jax.jit(standardise)(rounded, ones))


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("unit", [1e-30, 1e-8, 1e-4, 1e15, 1e30])
def test_the_unit_of_rewards_changes_neither_advantages_nor_explained_variance(kind: str, unit: float) -> None:
    """Squares of the smallest and largest of these are not among the numbers of float32."""
    target, prediction, weight = 7 + 3 * numbers(1), 7 + numbers(8), weights(kind)
    standard, explained = jax.jit(standardise), jax.jit(explained_variance)
    scaled = np.float32(unit) * target
    mean = mean_by_hand(target, weight)
    deviation = math.sqrt(mean_by_hand([(float(v) - mean) ** 2 for v in target], weight))
    # As in `test_standardise`, and one rounding of numbers up to 16 by the product with the unit.
    exact = np.where(weight > 0, (target - mean) / deviation, 0.0)
    np.testing.assert_allclose(standard(scaled, weight), exact, rtol=0, atol=(SIZE + 11) * 16 * EPS / 2)
    whole = explained(prediction, target, weight)
    assert_close(explained(np.float32(unit) * prediction, scaled, weight), float(whole), size=16)
    assert abs(float(explained(np.zeros_like(scaled), scaled, weight))) <= (SIZE + 10) * EPS
    assert abs(float(explained(np.full_like(scaled, scaled[0]), scaled, weight))) <= (SIZE + 10) * 16 * EPS


def test_non_finite_values_yield_nan_unless_they_are_masked_out() -> None:
    """So that a run which diverges is reported, unless the number belongs to an agent that takes no part."""
    x, ones, others = (np.asarray(row, np.float32) for row in ([0, 1, 2, 3], [1, 1, 1, 1], [1, 0, 1, 1]))
    standard, explained = jax.jit(standardise), jax.jit(explained_variance)
    for wrong in (np.nan, np.inf, -np.inf):
        changed = np.asarray([0, wrong, 2, 3], np.float32)
        assert np.all(np.isnan(standard(changed, ones)))
        assert np.isnan(explained(x, changed, ones))
        assert np.isnan(explained(changed, x, ones))
        np.testing.assert_array_equal(standard(changed, others), standard(x, others))


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("clip_eps", [0.0, 0.2])
def test_clipped_surrogate(kind: str, clip_eps: float) -> None:
    log_ratio, advantage, weight = numbers(2, 0.4), numbers(3), weights(kind)
    terms = []
    for difference, a in zip(log_ratio, advantage, strict=True):
        ratio = math.exp(difference)
        if a >= 0:
            terms.append(-min(ratio, 1 + clip_eps) * float(a))
        else:
            terms.append(-max(ratio, 1 - clip_eps) * float(a))
    got = clipped_surrogate(jnp.asarray(log_ratio), jnp.asarray(advantage), jnp.asarray(weight), jnp.float32(clip_eps))
    assert_close(got, mean_by_hand(terms, weight), size=4)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_policy_gradient(kind: str) -> None:
    log_prob, advantage, weight = -np.abs(numbers(2)), numbers(3), weights(kind)
    exact = mean_by_hand([-float(p) * float(a) for p, a in zip(log_prob, advantage, strict=True)], weight)
    assert_close(policy_gradient(jnp.asarray(log_prob), jnp.asarray(advantage), jnp.asarray(weight)), exact, size=8)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_surrogate(kind: str) -> None:
    log_ratio, advantage, weight = numbers(2, 0.4), numbers(3), weights(kind)
    exact = mean_by_hand([-math.exp(x) * float(a) for x, a in zip(log_ratio, advantage, strict=True)], weight)
    assert_close(surrogate(jnp.asarray(log_ratio), jnp.asarray(advantage), jnp.asarray(weight)), exact, size=8)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("eps", [0.05, 0.3])
def test_quadratic_surrogate(kind: str, eps: float) -> None:
    log_ratio, advantage, weight = numbers(2, 0.4), numbers(3), weights(kind)
    terms = []
    for difference, a in zip(log_ratio.tolist(), advantage.tolist(), strict=True):
        ratio = math.exp(difference)
        terms.append(-(a * ratio - abs(a) * (ratio - 1) ** 2 / (2 * eps)))
    got = quadratic_surrogate(jnp.asarray(log_ratio), jnp.asarray(advantage), jnp.asarray(weight), jnp.float32(eps))
    assert_close(got, mean_by_hand(terms, weight), size=float(np.abs(terms).max()))


def test_where_the_ratio_is_one_all_losses_have_the_policy_gradient() -> None:
    start, advantage, weight = jnp.zeros(SIZE), jnp.asarray(numbers(3)), jnp.asarray(weights("fractions"))
    exact = jax.grad(policy_gradient)(start, advantage, weight)
    np.testing.assert_array_equal(jax.grad(surrogate)(start, advantage, weight), exact)
    for eps in (0.1, 0.3):
        for loss in (clipped_surrogate, quadratic_surrogate):
            np.testing.assert_array_equal(jax.grad(loss)(start, advantage, weight, jnp.float32(eps)), exact)


def test_the_quadratic_surrogate_is_best_at_its_distance_and_falls_beyond() -> None:
    eps = 0.2
    ratio = jnp.array([1.1, 1.2, 1.5, 0.9, 0.8, 0.5])
    advantage = jnp.array([2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    gradient = jax.grad(quadratic_surrogate)(jnp.log(ratio), advantage, jnp.ones(6), jnp.float32(eps))
    # -r (A - |A| (r - 1) / eps), averaged over 6: towards 1 + sign(A) eps from both sides.
    exact = -np.asarray(ratio) * (np.asarray(advantage) - 2 * (np.asarray(ratio) - 1) / eps) / 6
    # r - 1 from the float32 logarithm of r: a rounding of 1 each, times 2 / eps.
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=8 * EPS * 2 / eps)
    assert np.sign(gradient).tolist()[::2] == [-1, 1, 1] and np.sign(gradient).tolist()[3::2] == [1, -1]


def test_the_surrogate_pushes_only_inside_the_trusted_interval() -> None:
    log_ratio = jnp.log(jnp.array([1.5, 1.1, 0.5, 1.5, 0.9, 0.5]))
    advantage = jnp.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    gradient = jax.grad(clipped_surrogate)(log_ratio, advantage, jnp.ones(6), jnp.float32(0.2))
    # d(ratio A) / d(log ratio) = ratio A where it is not clipped, averaged over 6.
    np.testing.assert_allclose(gradient, np.array([0, -1.1, -0.5, 1.5, 0.9, 0]) / 6, rtol=8 * EPS)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("clip_eps", [0.0, 0.3, math.inf])
def test_clipped_value_loss(kind: str, clip_eps: float) -> None:
    value, old_value, target, weight = numbers(4), numbers(5), numbers(6), weights(kind)
    terms = []
    for v, old, goal in zip(value.tolist(), old_value.tolist(), target.tolist(), strict=True):
        clipped = old + min(max(v - old, -clip_eps), clip_eps)
        terms.append(0.5 * max((v - goal) ** 2, (clipped - goal) ** 2))
    got = clipped_value_loss(
        jnp.asarray(value), jnp.asarray(old_value), jnp.asarray(target), jnp.asarray(weight), jnp.float32(clip_eps)
    )
    assert_close(got, mean_by_hand(terms, weight), size=16)


def test_an_infinite_clip_is_the_plain_squared_error() -> None:
    value, old_value, target = (jnp.asarray(numbers(seed)) for seed in (4, 5, 6))
    loss, gradient = jax.value_and_grad(clipped_value_loss)(value, old_value, target, jnp.ones(SIZE), jnp.inf)
    error = np.asarray(value, np.float64) - np.asarray(target)
    assert_close(loss, 0.5 * float(np.mean(error**2)), size=16)
    # old + (value - old) rounds differently from value, hence a tie or a hair's difference.
    np.testing.assert_allclose(gradient, error / SIZE, rtol=0, atol=16 * 4 * EPS / SIZE)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_approximate_kl(kind: str) -> None:
    log_ratio, weight = numbers(7, 0.3), weights(kind)
    terms = [math.exp(x) - 1 - x for x in log_ratio.tolist()]
    assert_close(approximate_kl(jnp.asarray(log_ratio), jnp.asarray(weight)), mean_by_hand(terms, weight))


def test_the_kl_of_tiny_changes_keeps_its_digits_and_sign() -> None:
    log_ratio = jnp.array([1e-3, -1e-3])
    # x^2 / 2 up to x^3; expm1 and the subtraction of numbers of 1e-3 leave eps * 1e-3 each.
    assert abs(float(approximate_kl(log_ratio, jnp.ones(2))) - 5e-7) <= 1e-9 + 4 * EPS * 1e-3
    assert float(approximate_kl(jnp.zeros(2), jnp.ones(2))) == 0


@pytest.mark.parametrize("kind", WEIGHTS)
def test_explained_variance(kind: str) -> None:
    prediction, target, weight = numbers(8), 2 * numbers(9) + 1, weights(kind)
    error = [float(t) - float(p) for p, t in zip(prediction, target, strict=True)]
    mean_error, mean_target = mean_by_hand(error, weight), mean_by_hand(target, weight)
    residual = mean_by_hand([(e - mean_error) ** 2 for e in error], weight)
    total = mean_by_hand([(float(t) - mean_target) ** 2 for t in target], weight)
    got = explained_variance(jnp.asarray(prediction), jnp.asarray(target), jnp.asarray(weight))
    assert_close(got, 1 - residual / total, size=16)


def test_explained_variance_is_one_when_perfect_and_zero_for_a_constant() -> None:
    target, ones = jnp.asarray(numbers(9)), jnp.ones(SIZE)
    assert float(explained_variance(target + 2, target, ones)) == pytest.approx(1, abs=(SIZE + 10) * EPS)
    assert float(explained_variance(jnp.full(SIZE, 4.0), target, ones)) == pytest.approx(0, abs=(SIZE + 10) * 16 * EPS)
    assert float(explained_variance(target, jnp.ones(SIZE), ones)) == 0
    assert float(explained_variance(2 * ones, ones, ones)) == 1
