"""The learned drift of PPO's objective, against a float64 loop over samples, and its laws for random weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference.drift import policy_loss, random_drift, total_drift

import jaxrl
from jaxrl.learning.composites import as_composite
from jaxrl.learning.drift import Drift, drift_correction
from jaxrl.learning.losses import clipped_surrogate, surrogate

EPS, SIZE = 0.2, 60
CLIP = "PPOConfig(drift='clip')"


def samples(seed: int) -> tuple[Any, Any, Any]:
    """Log-ratios within the clip, outside and far outside, advantages, and weights."""
    random = np.random.default_rng(seed)
    log_ratio = np.concatenate([random.normal(0, scale, SIZE // 3) for scale in (0.1, 0.5, 3.0)])
    numbers = log_ratio, random.normal(0, 1, SIZE), random.random(SIZE)
    return tuple(each.astype(np.float32) for each in numbers)  # pyright: ignore[reportReturnType]


@jax.jit
def loss(drift: Drift, log_ratio: Any, advantage: Any, weight: Any) -> jax.Array:
    correction = drift_correction(drift, log_ratio, advantage, weight, jnp.float32(EPS))
    return clipped_surrogate(log_ratio, advantage, weight, jnp.float32(EPS)) + correction


slopes_of = jax.jit(jax.grad(loss, argnums=1))
correction_of = jax.jit(jax.value_and_grad(drift_correction, argnums=1))


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_and_its_slopes_are_those_of_float64(seed: int) -> None:
    drift, (log_ratio, advantage, weight) = random_drift(seed), samples(seed)
    exact = policy_loss(drift, *map(np.float64, (log_ratio, advantage, weight)), eps=EPS)
    assert float(loss(drift, log_ratio, advantage, weight)) == pytest.approx(exact, rel=2e-5)
    slopes = slopes_of(drift, log_ratio, advantage, weight)
    for at in range(0, SIZE, 7):
        one = [float(each[at]) for each in (log_ratio, advantage)]
        ends = [policy_loss(drift, [one[0] + move], [one[1]], [1.0], EPS) for move in (1e-6, -1e-6)]
        share = float(weight[at]) / float(weight.sum())
        assert float(slopes[at]) == pytest.approx(share * (ends[0] - ends[1]) / 2e-6, rel=1e-3, abs=1e-6)


def test_the_drift_is_never_negative_and_vanishes_with_its_slope_where_the_policy_is_the_old_one() -> None:
    plain = jax.jit(jax.grad(surrogate))
    for seed in range(20):
        drift, (log_ratio, advantage, weight) = random_drift(seed), samples(seed)
        one: Any = np.ones(1, np.float32)
        for each, gain in zip(log_ratio, advantage, strict=True):
            value = float(loss(drift, each[None], gain[None], one)) - float(surrogate(each[None], gain[None], one))
            assert value >= -2e-6 * max(1.0, abs(np.exp(each) * gain)), "the drift is the loss without the gain"
        same: Any = np.zeros(SIZE, np.float32)
        slopes = slopes_of(drift, same, advantage, weight)
        assert np.array_equal(loss(drift, same, advantage, weight), surrogate(same, advantage, weight))
        np.testing.assert_array_equal(slopes, plain(same, advantage, weight))
    assert any(total_drift(random_drift(seed), 0.1, 1.0, EPS) == 0 for seed in range(20)), "the bound binds"


def test_the_initial_weights_leave_the_clip_unchanged() -> None:
    log_ratio, advantage, weight = samples(5)
    drift = Drift.initial(8)
    value, slopes = correction_of(drift, log_ratio, advantage, weight, EPS)
    assert float(value) == 0 and not np.any(slopes)
    of_weights = jax.jit(jax.grad(loss))(drift, log_ratio, advantage, weight)
    assert np.all(np.asarray(of_weights.out) != 0), "hidden units begin different from 0, so that all can be learned"
    assert drift == Drift.initial(8) and len(np.unique(drift.hidden)) == drift.hidden.size


def test_outliers_have_bounded_slopes() -> None:
    drift = random_drift(3)
    far = np.asarray([-60.0, -20.0, -5.0, 5.0, 20.0, 60.0], np.float32)
    _, pull = correction_of(drift, far, 0 * far - 0.1, 0 * far + 1, EPS)
    bound = np.abs(drift.out).sum() + abs(drift.offset) + np.abs(drift.out) @ np.abs(drift.hidden).sum(0)
    assert np.all(np.abs(np.asarray(pull) * len(far)) <= bound)


def test_a_drift_equals_the_one_built_from_its_string() -> None:
    drift = random_drift(7)
    assert as_composite(str(drift)) == drift and hash(as_composite(str(drift))) == hash(drift)
    assert drift != random_drift(8) and repr(drift) == "Drift(hidden[5, 4], bias[4], out[4], offset[])"
    with pytest.raises(ValueError, match="7 numbers for each hidden unit and 1, got 9"):
        as_composite("drift:1,2,3,4,5,6,7,8,9")
    with pytest.raises(ValueError, match=r"takes the shapes \(5, n\), \(n,\), \(n,\) and \(\)"):
        Drift(np.ones((4, 3)), np.ones(3), np.ones(3), 0.0)


def test_weights_fit_the_configuration() -> None:
    with pytest.raises(ValueError, match="drift has no effect with PPOConfig"):
        Drift.effective(random_drift(0), None, CLIP)
    with pytest.raises(ValueError, match="drift_width=8 hidden units, got 4"):
        Drift.effective(random_drift(0), 8, CLIP)
    with pytest.raises(TypeError, match="drift takes a Drift, or None for the initial weights, got"):
        Drift.effective(0.5, 8, CLIP)
    with pytest.raises(ValueError, match="drift_width has no effect with drift='clip', got 4"):
        jaxrl.PPOConfig(drift_width=4)
    with pytest.raises(ValueError, match="drift"):
        jaxrl.PPOConfig(drift="none")  # pyright: ignore[reportArgumentType]
    every = Drift.effective(None, 3, CLIP, 5)
    assert every.hidden.shape == (5, Drift.num_inputs, 3) and every.offset.shape == (5,)
