"""Squashed normal samples: log-probabilities against float64 up to the bounds, and a density that integrates to 1."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.learning.action_heads import sample_squashed

RNG = np.random.default_rng(0)


def in_double(mean: np.ndarray, log_std: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std, noise = (np.asarray(leaf, np.float64) for leaf in (mean, log_std, noise))
    before = mean + np.exp(log_std) * noise
    log_cosh = np.logaddexp(before, -before) - np.log(2)
    log_normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(before), (log_normal + 2 * log_cosh).sum(-1)


def test_log_probabilities_are_exact_up_to_the_bounds() -> None:
    shape = (2_000, 3)
    mean = (RNG.normal(size=shape) * 10 ** RNG.uniform(-3, 2, shape)).astype(np.float32)
    log_std = RNG.uniform(-20, 2, shape).astype(np.float32)
    noise = RNG.normal(size=shape).astype(np.float32)
    action, log_prob = sample_squashed(jnp.asarray(mean), jnp.asarray(log_std), jnp.asarray(noise))
    expected_action, expected = in_double(mean, log_std, noise)
    assert np.sum(np.abs(action) == 1) > 1_000  # saturated in float32
    # tanh has slope 1 at most, and its argument an error of two roundings.
    before = np.abs(mean) + np.exp(log_std) * np.abs(noise)
    bound = 4 * np.finfo(np.float32).eps
    np.testing.assert_array_less(np.abs(action - expected_action), bound * (1 + before))
    # Three components of a few terms each, of the size of the argument of tanh and of log_std.
    size = np.sum(1 + before + np.abs(log_std) + noise**2, axis=-1)
    np.testing.assert_array_less(np.abs(log_prob - expected), 2 * bound * size)


def test_the_density_integrates_to_one() -> None:
    noise = np.linspace(-8, 8, 4_001, dtype=np.float32)[:, None]
    for mean, log_std in ((0.0, 0.0), (1.5, -1.0), (-0.5, 0.5)):
        means, log_stds = np.full(noise.shape, mean, np.float32), np.full(noise.shape, log_std, np.float32)
        action, _ = in_double(means, log_stds, noise)  # distinct in float64
        _, log_prob = sample_squashed(jnp.asarray(means), jnp.asarray(log_stds), jnp.asarray(noise))
        # The trapezoid rule errs by some times h^2 / 12, with steps h of the argument of tanh up to 0.0066.
        np.testing.assert_allclose(np.trapezoid(np.exp(np.float64(log_prob)), action[:, 0]), 1.0, atol=1e-4)


def test_gradients_are_finite_where_actions_saturate() -> None:
    def total(mean: jax.Array, log_std: jax.Array, noise: jax.Array) -> jax.Array:
        return sample_squashed(mean, log_std, noise)[1]

    mean, log_std, noise = jnp.float32([[60.0, -60.0, 0.0]]), jnp.zeros((1, 3)), jnp.float32([[0.5, 0.5, 0.0]])
    gradient = jax.grad(lambda mean, log_std: jnp.sum(total(mean, log_std, noise)), argnums=(0, 1))
    of_mean, of_log_std = gradient(mean, log_std)
    # The slopes are 2 tanh(u) by the mean, and that times the noise less 1 by the logarithm of the deviation.
    np.testing.assert_allclose(of_mean, [[2.0, -2.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(of_log_std, [[0.0, -2.0, -1.0]], rtol=1e-6)
