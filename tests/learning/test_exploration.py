"""Exploration of continuous actions: the law of correlated noise, its memory, and uniform actions."""

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.exploration import CORRELATION, Walk, correlated, noisy_actor, uniform_actor

HEAD = action_head(spaces.Box(-1.0, 3.0, (2,)))


def actor(with_memory: bool):
    def scores(policy, obs, mask):
        walk = {CORRELATION: jnp.full(obs.shape[:-1], 0.9)} if with_memory else {}
        return {"mean": obs, "std": jnp.ones_like(obs), **walk}

    def act(noise, scores):
        return jnp.clip(scores["mean"] if noise is None else scores["mean"] + scores["std"] * noise, -1.0, 1.0)

    return noisy_actor(scores, act, HEAD, with_memory)


def test_correlated_noise_is_standard_normal_at_every_step() -> None:
    runs, steps = 20_000, 5
    draws = jax.random.normal(jax.random.key(0), (steps, runs, 1))
    walk, rows = Walk(jnp.zeros((runs, 1)), jnp.zeros(runs, bool)), []
    for noise in draws:
        walk = correlated(walk, noise, jnp.full(runs, 0.9))
        rows.append(np.asarray(walk.noise)[:, 0])
    covariance = np.cov(np.array(rows))
    lags = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    # The variance of an entry is at most 2 / runs; five standard errors.
    np.testing.assert_allclose(covariance, 0.9**lags, atol=5 * (2 / runs) ** 0.5)


def test_a_walk_begins_anew_where_an_episode_begins() -> None:
    noisy = actor(True)
    start = noisy.start(None)
    obs, noise = jnp.zeros(2), jnp.float32([0.5, -0.25])
    scores, memory = noisy.scores(None, start, obs, None)
    action, raw, memory = noisy.choose(noise, scores, memory, False, None)
    np.testing.assert_array_equal(raw, noise)  # of a first step
    np.testing.assert_allclose(action, [2.0, 0.5])  # from -1 to 3
    _, raw, after = noisy.choose(jnp.zeros(2), scores, memory, False, None)
    np.testing.assert_allclose(raw, 0.9 * noise, rtol=1e-6)
    _, greedy, kept = noisy.choose(None, scores, after, True, None)
    np.testing.assert_array_equal(greedy, [0.0, 0.0])
    np.testing.assert_array_equal(kept.noise, after.noise)
    assert actor(False).start(None) == ()


def test_uniform_actions_fill_the_bounds() -> None:
    uniform = uniform_actor(actor(True), HEAD)
    memory = uniform.start(None)
    action, raw, after = uniform.choose(uniform.noise(jax.random.key(0), (4_000,)), {}, memory, False, None)
    assert after is memory
    assert action.shape == (4_000, 2) and raw.min() < -0.99 and raw.max() > 0.99
    assert action.min() >= -1 and action.max() <= 3
    # The mean and the mean square of a uniform number on [-1, 1] are 0 and 1 / 3; five standard errors.
    np.testing.assert_allclose(np.mean(raw, axis=0), 0.0, atol=5 * (1 / 3 / 4_000) ** 0.5)
    np.testing.assert_allclose(np.mean(raw**2, axis=0), 1 / 3, atol=5 * (4 / 45 / 4_000) ** 0.5)
