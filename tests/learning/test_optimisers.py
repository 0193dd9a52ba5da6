"""Schedules at their beginning, on the way and beyond their end."""

import jax.numpy as jnp
import numpy as np

from jaxrl.learning.optimisers import linear_share, tenth_share

EPS = float(np.finfo(np.float32).eps)
STEPS = (0.0, 25.0, 100.0, 150.0)


def test_a_linear_schedule_stays_at_its_end() -> None:
    shares = [float(linear_share(jnp.float32(step), jnp.float32(0.2), jnp.float32(100.0))) for step in STEPS]
    np.testing.assert_allclose(shares, [1.0, 0.8, 0.2, 0.2], rtol=0, atol=2 * EPS)
    assert float(linear_share(jnp.float32(1e6), jnp.float32(0.2), jnp.float32(np.inf))) == 1.0


def test_an_exponential_schedule_falls_to_a_tenth() -> None:
    shares = [float(tenth_share(jnp.float32(step), jnp.float32(100.0))) for step in STEPS]
    # A power of a number whose exponent is rounded, times log 10.
    np.testing.assert_allclose(shares, [1.0, 0.1**0.25, 0.1, 0.1**1.5], rtol=8 * EPS)
    assert float(tenth_share(jnp.float32(1e6), jnp.float32(np.inf))) == 1.0
