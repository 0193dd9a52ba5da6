"""Running statistics against means and variances of all samples together."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.normalisation import (
    RunningStatistics,
    init_reward_scale,
    init_statistics,
    normalise,
    scale_rewards,
    update_statistics,
)

EPS = float(np.finfo(np.float32).eps)
SAMPLE = {"position": jax.ShapeDtypeStruct((2, 3), jnp.float32), "count": jax.ShapeDtypeStruct((), jnp.int32)}

updated = jax.jit(update_statistics)


def batches(offset: float, weights: str) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Five batches `[T, N]` of two leaves, the later ones drawn elsewhere, and their weights."""
    generator = np.random.default_rng(0)
    out = []
    for i in range(5):
        position = generator.normal(offset + i, 1 + i, size=(6, 4, 2, 3)).astype(np.float32)
        count = generator.integers(0, 10 + i, size=(6, 4)).astype(np.int32)
        weight = {
            "ones": np.ones((6, 4)),
            "some": generator.random((6, 4)) < 0.4,
            "fractions": generator.random((6, 4)) / 100,
        }[weights]
        out.append(({"position": position, "count": count}, weight.astype(np.float32)))
    return out


@pytest.mark.parametrize("weights", ["ones", "some", "fractions"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_batches_add_up_to_the_statistics_of_all_samples(offset: float, weights: str) -> None:
    statistics = init_statistics(SAMPLE)
    samples = batches(offset, weights)
    for batch, weight in samples:
        statistics = updated(statistics, batch, weight)
    weight = np.concatenate([w.ravel() for _, w in samples]).astype(np.float64)
    np.testing.assert_allclose(statistics.count, weight.sum(), rtol=40 * EPS)
    for name, shape in (("position", (2, 3)), ("count", ())):
        x = np.concatenate([batch[name].reshape(24, *shape) for batch, _ in samples]).astype(np.float64)
        mean = np.average(x, axis=0, weights=weight)
        variance = np.average((x - mean) ** 2, axis=0, weights=weight)
        assert statistics.mean[name].shape == statistics.variance[name].shape == shape
        # Five means of 24 numbers: their roundings, at most about 30 in a row, are relative to the
        # numbers' size; the variance feels an error d of a mean as d (deviation + d).
        error = 30 * EPS * np.abs(x).max()
        deviation = np.sqrt(variance.max())
        assert np.abs(np.asarray(statistics.mean[name]) - mean).max() <= error
        assert np.abs(np.asarray(statistics.variance[name]) - variance).max() <= (
            30 * EPS * np.square(x - mean).max() + 4 * error * (deviation + error)
        )


def test_statistics_that_saw_nothing_change_nothing() -> None:
    statistics = init_statistics(SAMPLE)
    assert float(statistics.count) == 0
    sample = {"position": jnp.arange(6.0).reshape(2, 3), "count": jnp.int32(7)}
    same = normalise(statistics, sample, 100.0)
    np.testing.assert_array_equal(same["position"], sample["position"])
    assert float(same["count"]) == 7


def test_a_batch_without_weight_is_left_out_bit_for_bit() -> None:
    batch, weight = batches(5.0, "ones")[0]
    for statistics in (init_statistics(SAMPLE), updated(init_statistics(SAMPLE), batch, weight)):
        again = updated(statistics, batch, np.zeros_like(weight))
        for new, old in zip(jax.tree.leaves(again), jax.tree.leaves(statistics), strict=True):
            np.testing.assert_array_equal(new, old)


def test_the_first_variance_forgets_the_initial_one() -> None:
    x = np.array([3.0, 5.0], np.float32)
    statistics = updated(init_statistics(jnp.zeros(())), x, np.ones(2, np.float32))
    assert (float(statistics.count), float(statistics.mean), float(statistics.variance)) == (2.0, 4.0, 1.0)


def test_a_sample_is_centred_scaled_and_clipped() -> None:
    statistics = RunningStatistics(jnp.float32(3), jnp.array([1.0, -2.0]), jnp.array([4.0, 0.25]))
    sample = np.array([[3.0, -2.0], [0.0, 3.0], [-90.0, -2.5]], np.float32)
    exact = np.clip((sample - [1.0, -2.0]) / [2.0, 0.5], -5, 5)
    # 1e-8 added to the variance of 0.25 changes its root by 2e-8 of it, below one rounding.
    np.testing.assert_allclose(normalise(statistics, sample, jnp.float32(5)), exact, rtol=4 * EPS)
    assert np.asarray(normalise(statistics, sample, jnp.inf))[1, 1] > 9


def test_a_constant_observation_stays_finite() -> None:
    statistics = updated(init_statistics(jnp.zeros(())), np.full(4, 3.0, np.float32), np.ones(4, np.float32))
    assert float(statistics.variance) == 0
    assert float(normalise(statistics, jnp.float32(3.0), 10.0)) == 0
    assert float(normalise(statistics, jnp.float32(4.0), 10.0)) == 10


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sums() -> None:
    """Two rollouts of two environments of two agents, against loops that add up every agent's rewards."""
    draws, shape, rate, clip = np.random.default_rng(1), (7, 2, 2), 0.9, 1.5
    scale, totals, seen = init_reward_scale(shape[1:]), np.zeros(shape[1:]), []
    for _ in range(2):
        reward = draws.normal(1.0, 3.0, shape).astype(np.float32)
        done, active = draws.random(shape) < 0.3, draws.random(shape) < 0.7
        for t, env, agent in np.ndindex(shape):
            totals[env, agent] = reward[t, env, agent] + rate * totals[env, agent]
            if active[t, env, agent]:
                seen.append(totals[env, agent])
            if done[t, env, agent]:
                totals[env, agent] = 0.0
        scaled, scale = scale_rewards(
            scale, jnp.asarray(reward), jnp.asarray(done), jnp.asarray(active), jnp.float32(rate), jnp.float32(clip)
        )
        expected = np.clip(reward / np.std(seen), -clip, clip)
        assert 0 < np.sum(np.abs(expected) == clip) < expected.size
        # Sums of at most 7 terms, and a deviation of fewer than 60 sums: fewer than 100 roundings of numbers up to 1.5.
        np.testing.assert_allclose(scaled, expected, rtol=0, atol=100 * EPS * clip)
    assert float(scale[0].count) == len(seen)


@pytest.mark.parametrize("unit", [1e-15, 1e-8, 1e15])
def test_scaled_rewards_do_not_depend_on_the_unit_of_rewards(unit: float) -> None:
    draws = np.random.default_rng(2)
    reward, done, active = draws.normal(1.0, 3.0, (7, 2)), draws.random((7, 2)) < 0.3, np.ones((7, 2), bool)

    def scaled(unit: float) -> Any:
        arguments = (jnp.float32(unit * reward), jnp.asarray(done), jnp.asarray(active))
        return scale_rewards(init_reward_scale((2,)), *arguments, jnp.float32(0.9), jnp.float32(10.0))[0]

    # 14 sums of at most 7 terms: their deviation has fewer than 100 roundings.
    np.testing.assert_allclose(scaled(unit), scaled(1.0), rtol=100 * EPS)


def test_rewards_whose_sums_do_not_vary_reach_the_bound() -> None:
    reward = jnp.array([[0.0, 0.0], [1e-8, 1e-8], [-1e15, -1e15]])
    done = active = jnp.ones((1, 2), bool)
    for row, bound in zip(reward, (0.0, 3.0, -3.0), strict=True):
        scaled, _ = scale_rewards(init_reward_scale((2,)), row[None], done, active, jnp.float32(0.9), jnp.float32(3.0))
        assert scaled.tolist() == [[bound, bound]]
