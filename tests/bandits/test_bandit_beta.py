"""Beta and gamma variates against their distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.bandits.beta import beta, gamma

# The least p-value that passes: with some 30 of them in this file, chance fails one in 300 such files.
LEVEL = 1e-4


def single(values):
    """An array-like value as float32."""
    return np.asarray(values, np.float32)


@pytest.mark.slow
def test_beta_and_gamma_variates_have_their_distributions():
    """By Kolmogorov-Smirnov tests where float32 has enough values, elsewhere by the frequency of values near 1 or 0."""
    pairs = [(1, 1), (1, 5), (0.5, 0.5), (3, 1e4), (1e6, 2e6), (7.5, 2), (0.7, 40), (1.5, 0.1), (0.01, 0.02)]
    alpha, other = jnp.asarray(pairs, jnp.float32).T
    keys = jax.random.split(jax.random.key(3), 20000)

    def draw(key):
        return beta(key, alpha, other), gamma(key, alpha)

    betas, gammas = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(draw))(keys))
    assert np.all((betas >= 0) & (betas <= 1))
    for (a, b), ratio, draws in zip(pairs, betas.T, gammas.T, strict=True):
        if b >= 0.5:
            assert stats.kstest(ratio, stats.beta(a, b).cdf).pvalue > LEVEL, (a, b)
        assert stats.binomtest(int(np.sum(ratio > 0.9)), ratio.size, stats.beta(a, b).sf(0.9)).pvalue > LEVEL, (a, b)
        if a >= 0.5:
            assert stats.kstest(draws, stats.gamma(a).cdf).pvalue > LEVEL, a
    correlation = np.corrcoef(stats.rankdata(betas, axis=0).T)[np.triu_indices(len(pairs), 1)]
    assert np.max(np.abs(correlation)) < 5 / np.sqrt(len(keys))  # 36 pairs, each of deviation 1 / sqrt(n)


@pytest.mark.slow
def test_variates_do_not_follow_from_their_neighbours():
    """Bits are the same whether or not other lanes of a batch have more rejections or shapes below 1."""
    shapes = single(np.r_[np.full(60, 1.0), np.linspace(1, 40, 140)]).reshape(2, 100)
    keys = jax.random.split(jax.random.key(0), 3)
    scale = single([1, 1, 100])[:, None, None]
    batch = jax.jit(jax.vmap(lambda key, scale: gamma(key, shapes * scale)))
    other = single([1, 1, 0.001])[:, None, None]
    np.testing.assert_array_equal(batch(keys, scale)[:2], batch(keys, other)[:2])


def test_beta_variates_of_odd_shapes():
    """A shape of 0 gives the limit, NaN ends the loop, and keys may have any implementation."""
    a, b = (single(x) for x in ([0, 2, np.nan, 1e-30], [2, 0, 1, 1e-30]))
    draws = np.asarray(jax.jit(beta)(jax.random.key(0, impl="rbg"), a, b))
    np.testing.assert_array_equal(draws[:3], [0, 1, np.nan])
    assert draws[3] in (0, 1)
