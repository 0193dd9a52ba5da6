"""The support of histograms of action values: a range for each head, from the rewards, the discount and time limits."""

from typing import Any

import numpy as np
import pytest

import envs
import jaxrl
from jaxrl.algorithms.action_values import action_values
from jaxrl.algorithms.off_policy import off_policy

MOUNTAIN_CAR = envs.make("mountain-car")  # with a time limit of 200 steps


def support(config: jaxrl.DQNConfig, **hparams: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Ends of the support by head, and the prepared discount."""
    q = action_values("dqn", off_policy(MOUNTAIN_CAR, config, ()))
    prepared = q.prepare(jaxrl.dqn(MOUNTAIN_CAR, config).hparams.replace(**hparams))
    scale = q.scale(prepared)
    return np.asarray(scale.low, np.float64), np.asarray(scale.high, np.float64), prepared.discount


@pytest.mark.parametrize("value_loss", ["categorical", "hl-gauss"])
@pytest.mark.parametrize(
    ("time_limits", "discount", "steps"),
    [
        ("bootstrap", 0.995, 1 / 0.005),  # more than the 127 of an episode
        ("bootstrap", 0.9999, 400.0),
        ("bootstrap", 1.0, 400.0),
        ("bootstrap", 0.0, 1.0),
        ("terminal", 0.995, (1 - 0.995**200) / 0.005),
        ("terminal", 1.0, 200.0),
        ("terminal", 0.0, 1.0),
    ],
)
def test_the_support_holds_every_value(value_loss: Any, time_limits: Any, discount: float, steps: float) -> None:
    config = jaxrl.DQNConfig(value_loss=value_loss, time_limits=time_limits)
    low, high, _ = support(config, discount=discount, reward_low=-2.0, reward_high=3.0)
    # The rate is rounded to float32, so that 1 - rate has a relative error of 2^-25 / 0.005 at most where it counts.
    np.testing.assert_allclose([low, high], [[-2 * steps], [3 * steps]], rtol=2e-5)


def test_each_head_has_its_support() -> None:
    config = jaxrl.DQNConfig(value_loss="categorical", heads="joint", num_heads=4)
    low, high, discount = support(config, discount="hyperbolic:k=0.02")
    rates, weights = np.asarray(discount.rates, np.float64), np.asarray(discount.weights, np.float64)
    horizons = (rates[:, None] ** np.arange(discount.horizon)).sum(axis=1)
    sizes = horizons / (weights @ horizons)
    np.testing.assert_allclose(high, np.minimum(1 / (1 - rates), 400) / sizes, rtol=1e-4)
    np.testing.assert_array_equal(low, -high)
    # The values of a reward of 1 forever, by head and by the mixture, lie within the supports.
    assert np.all(horizons / sizes <= (1 + 1e-4) * high)


def test_the_value_after_an_end_belongs_to_the_support() -> None:
    low, high, _ = support(jaxrl.DQNConfig(value_loss="categorical"), discount=0.9, reward_low=1.0, reward_high=2.0)
    np.testing.assert_allclose([low, high], [[0], [20]], rtol=1e-5)


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (1.0, 1.0), (np.array([-1.0, 3.0]), np.array([1.0, 2.0]))])
def test_bounds_in_the_wrong_order_are_refused(low: Any, high: Any) -> None:
    config = jaxrl.DQNConfig(value_loss="hl-gauss")
    q = action_values("dqn", off_policy(MOUNTAIN_CAR, config, ()))
    hparams = jaxrl.dqn(MOUNTAIN_CAR, config).hparams.replace(reward_low=low, reward_high=high)
    with pytest.raises(ValueError, match=r"^reward_low must be below reward_high, got [-\d. ]+ and [\d. ]+$"):
        q.prepare(hparams)


def test_too_few_bins_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^num_atoms must be a whole number of at least 6 with value_loss='hl-gauss', got 5$"
    ):
        jaxrl.DQNConfig(value_loss="hl-gauss", num_atoms=5)
