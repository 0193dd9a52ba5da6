"""Lower and upper bounds of regret: closed forms by hand, shapes, and errors."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from jaxrl.bandits import bounds

MEANS = [0.9, 0.8, 0.8, 0.5]


def test_lai_robbins_slope_is_the_sum_of_gaps_over_divergences():
    divergence = {mean: mean * math.log(mean / 0.9) + (1 - mean) * math.log((1 - mean) / 0.1) for mean in MEANS[1:]}
    by_hand = 0.1 / divergence[0.8] * 2 + 0.4 / divergence[0.5]
    np.testing.assert_allclose(bounds.lai_robbins(MEANS), by_hand, rtol=1e-12)
    np.testing.assert_allclose(bounds.lai_robbins([MEANS, MEANS]), [by_hand, by_hand], rtol=1e-12)


@pytest.mark.parametrize(
    ("rewards", "law"),
    [
        ("gaussian", lambda mean: stats.norm(mean, 1.5)),
        ("exponential", lambda mean: stats.expon(scale=mean)),
        ("poisson", lambda mean: stats.poisson(mean)),
    ],
)
def test_divergences_equal_their_integrals(rewards, law):
    worse, best = law(0.7), law(2.0)
    if rewards == "poisson":
        counts = np.arange(100)
        divergence = np.sum(worse.pmf(counts) * (worse.logpmf(counts) - best.logpmf(counts)))
    else:
        low, high = (0, 60) if rewards == "exponential" else (-20, 20)
        divergence = integrate.quad(lambda x: worse.pdf(x) * (worse.logpdf(x) - best.logpdf(x)), low, high, limit=200)[
            0
        ]
    # The integral's own error is 1e-8 of it.
    np.testing.assert_allclose(bounds.lai_robbins([0.7, 2.0], rewards, sigma=1.5), 1.3 / divergence, rtol=1e-6)


def test_arms_that_are_best_or_distinguished_at_once_add_nothing():
    assert bounds.lai_robbins([0.5, 0.5]) == 0
    assert bounds.lai_robbins([1.0, 0.5]) == 0
    assert bounds.ucb1_bound([0.5, 0.5], 100) == 0


def test_bounds_of_instances_by_hand():
    gaps, steps = np.array([0.0, 0.1, 0.1, 0.4]), 1000
    inverse = 10 + 10 + 2.5
    np.testing.assert_allclose(bounds.gaps_of(MEANS), gaps, atol=1e-15)
    expected = 8 * math.log(steps) * inverse + (1 + math.pi**2 / 3) * 0.6
    np.testing.assert_allclose(bounds.ucb1_bound(MEANS, steps), expected, rtol=1e-12)
    expected = 10 * math.log(steps) * (0.16 / 0.1 * 2 + 0.25 / 0.4 + 6)
    np.testing.assert_allclose(bounds.ucb_v_bound(MEANS, steps), expected, rtol=1e-12)
    np.testing.assert_allclose(bounds.moss_bound(MEANS, steps), 19.5 * math.sqrt(4000) + 0.6, rtol=1e-12)
    expected = sum(gap * (20 + 920 * math.exp(-20 * gap**2)) for gap in gaps)
    np.testing.assert_allclose(bounds.explore_then_commit_bound(MEANS, steps, 20), expected, rtol=1e-12)
    hardness = max(2 / 0.01, 3 / 0.01, 4 / 0.16)
    expected = 3 * 2 * math.exp(-10_000 / (8 * hardness * 2))
    np.testing.assert_allclose(bounds.sequential_halving_bound(MEANS, 10_000), expected, rtol=1e-12)


def test_bounds_without_an_instance_by_hand():
    root = math.sqrt(10 * 1000 * math.log(10))
    np.testing.assert_allclose(bounds.minimax(10, [1, 1000]), [1 / 20, 5.0])
    np.testing.assert_allclose(bounds.minimax(10, 1000, constant=1), 100)
    np.testing.assert_allclose(bounds.thompson_bound(10, 1000), root / math.sqrt(2))
    np.testing.assert_allclose(bounds.exp3_bound(10, 1000), 2 * root)
    np.testing.assert_allclose(bounds.exp3_bound(10, 1000, rate=2.0), 2.5 * root)
    np.testing.assert_allclose(
        bounds.exp3_ix_bound(10, 1000), 4 * root + (2 * math.sqrt(1e4 / math.log(10)) + 1) * math.log(40)
    )
    np.testing.assert_allclose(
        bounds.exp3_s_bound(10, 1000, 3), 2 * math.sqrt((math.e - 1) * 1e4 * (3 * math.log(1e4) + math.e))
    )
    np.testing.assert_allclose(bounds.tsallis_inf_bound(10, 1000), 401)
    radius = math.sqrt(2) * 3 + 0.5 * math.sqrt(2 * math.log(20) + 4 * math.log(1 + 1000 * 9 / 8))
    np.testing.assert_allclose(bounds.lin_ucb_radius(4, 1000, 0.5, ridge=2, norm=3), radius)
    np.testing.assert_allclose(
        bounds.lin_ucb_bound(4, 1000, radius, ridge=2, norm=3), radius * math.sqrt(8 * 1000 * 4 * math.log(1126))
    )


@pytest.mark.parametrize("name", sorted(bounds.BOUNDS))
def test_bounds_of_policies_grow_with_steps_and_exceed_the_unavoidable_regret(name):
    steps = np.array([100, 1000, 10_000])
    instances = np.random.default_rng(0).uniform(size=(7, 1, 5))
    regret = np.broadcast_to(bounds.BOUNDS[name](instances, steps), (7, 3))
    assert np.all(np.diff(regret) > 0)
    unavoidable = bounds.lai_robbins(instances) * np.log(steps[-1])
    assert np.all(bounds.ucb1_bound(instances, steps[-1]) > unavoidable)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bounds.lai_robbins([0.5]), "means must be the finite means of two or more arms, got"),
        (lambda: bounds.lai_robbins([0.5, 1.5]), r"means must lie in \[0, 1\], got 1.5"),
        (lambda: bounds.lai_robbins([0.5, 0.0], "poisson"), "means of poisson rewards must be above 0, got 0"),
        (lambda: bounds.lai_robbins([0.5, 0.4], "beta"), "rewards must be one of bernoulli, gaussian"),
        (lambda: bounds.lai_robbins([0.5, 0.4], "gaussian", -1.0), "sigma must be above 0, got -1"),
        (lambda: bounds.minimax(10, 0), "steps must be at least 1, got 0"),
    ],
)
def test_bad_arguments_of_bounds_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
