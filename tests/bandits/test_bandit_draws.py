"""Normal variates and functions with the runs last equal those with the runs first."""

import jax
import numpy as np
import pytest

from envs.bandits.batched_last import added, first_highest, highest, runs_last
from envs.bandits.normal_draws import normal
from envs.threefry import unrolled


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_keys_of_every_implementation_draw_normal_variates(implementation):
    assert np.isfinite(normal(unrolled(jax.random.key(0, impl=implementation)), (3,))).all()


@pytest.mark.slow
def test_normal_variates_are_those_of_jax_random():
    """Bit for bit, except for one or two roundings of float32 from the compilation of products and sums."""
    keys = jax.random.split(jax.random.key(1), 400)
    actual = jax.jit(jax.vmap(lambda key: normal(key, (10, 5))))(keys)
    expected = jax.jit(jax.vmap(lambda key: jax.random.normal(key, (10, 5))))(keys)
    np.testing.assert_allclose(actual, expected, rtol=4 * 2.0**-23, atol=2.0**-23)
    np.testing.assert_allclose(normal(keys[3], (10, 5)), expected[3], rtol=4 * 2.0**-23, atol=2.0**-23)
    assert len(np.unique(np.asarray(actual))) > 0.99 * actual.size  # no word counts twice


@runs_last
def rows_times(rows, vector, scale):
    return added(rows[:, i] * vector[i] for i in range(vector.shape[0])) * scale, scale


def test_runs_last_is_vmap_of_any_depth_with_arguments_that_all_runs_share():
    numbers = np.random.default_rng(0)
    rows, vector = (numbers.integers(-9, 9, shape).astype(np.float32) for shape in ((4, 3, 6, 5), (4, 5)))
    inner = jax.vmap(rows_times, (0, None, None))
    product, scale = jax.jit(jax.vmap(inner, (0, 0, None)))(rows, vector, 2.0)
    np.testing.assert_array_equal(product, 2 * np.einsum("abij,aj->abi", rows, vector))
    assert scale.shape == (4, 3) and np.all(scale == 2)
    np.testing.assert_array_equal(rows_times(rows[1, 2], vector[1], 2.0)[0], product[1, 2])


@pytest.mark.parametrize("num_arms", [1, 2, 3, 7, 10, 100])
def test_the_first_of_the_highest(num_arms):
    values = np.random.default_rng(num_arms).integers(0, 4, (200, num_arms)).astype(np.float32)
    values[0] = -np.inf
    np.testing.assert_array_equal(jax.vmap(first_highest)(values), np.argmax(values, axis=1))
    np.testing.assert_array_equal(jax.vmap(highest)(values), values.max(axis=1))
    values[:, 0] = np.nan
    np.testing.assert_array_equal(jax.vmap(first_highest)(values), num_arms - 1)
