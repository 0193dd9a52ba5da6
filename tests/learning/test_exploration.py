"""Exploration: the law of correlated noise, its memory, discrete actions with it, and uniform actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from envs.base import spaces
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.actor import memories
from jaxrl.learning.exploration import (
    CORRELATION,
    Walk,
    correlated,
    gumbel_of,
    noisy_actor,
    persistent_actor,
    uniform_actor,
)

HEAD = action_head(spaces.Box(-1.0, 3.0, (2,)))


def actor(with_memory: bool):
    def scores(policy, memory, obs, mask):
        walk = {CORRELATION: jnp.full(obs.shape[:-1], 0.9)} if with_memory else {}
        return {"mean": obs, "std": jnp.ones_like(obs), **walk}, memory

    def act(noise, scores):
        return jnp.clip(scores["mean"] if noise is None else scores["mean"] + scores["std"] * noise, -1.0, 1.0)

    return noisy_actor(lambda policy: (), scores, act, HEAD, with_memory)


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


def test_a_walk_is_reset_at_the_start_of_an_episode() -> None:
    noisy = actor(True)
    start = noisy.initial_memory(None)
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
    assert actor(False).initial_memory(None) == ()


def test_uniform_actions_fill_the_bounds() -> None:
    uniform = uniform_actor(actor(True), HEAD)
    memory = uniform.initial_memory(None)
    action, raw, after = uniform.choose(uniform.noise(jax.random.key(0), (4_000,)), {}, memory, False, None)
    assert after is memory
    assert action.shape == (4_000, 2) and raw.min() < -0.99 and raw.max() > 0.99
    assert action.min() >= -1 and action.max() <= 3
    # The mean and the mean square of a uniform number on [-1, 1] are 0 and 1 / 3; five standard errors.
    np.testing.assert_allclose(np.mean(raw, axis=0), 0.0, atol=5 * (1 / 3 / 4_000) ** 0.5)
    np.testing.assert_allclose(np.mean(raw**2, axis=0), 1 / 3, atol=5 * (4 / 45 / 4_000) ** 0.5)


def test_gumbel_noise_is_at_the_quantiles_of_normal_noise() -> None:
    normal = np.linspace(-12.0, 12.0, 97, dtype=np.float32)
    expected = -np.log(-scipy.stats.norm.logcdf(normal.astype(np.float64)))  # from -4.3 to 75
    # Both logarithms are rounded, the inner one to a few units in the last place of its value.
    np.testing.assert_allclose(gumbel_of(jnp.asarray(normal)), expected, rtol=2e-6, atol=2e-6)


def persistent(correlation: float):
    def scores(policy, memory, obs, mask):
        return {"logits": obs, CORRELATION: jnp.full(obs.shape[:-1], correlation)}, memory

    return persistent_actor(lambda policy: (), scores, action_head(spaces.Discrete(3)))


def actions_of(correlation: float, logits: jax.Array, mask: jax.Array | None, steps: int, runs: int) -> np.ndarray:
    """Actions `[steps, runs]` of independent episodes with the same scores at every step."""
    acting = persistent(correlation)
    scores, memory = acting.scores(
        None, memories(acting.initial_memory(None), (runs,)), jnp.broadcast_to(logits, (runs, 3)), mask
    )
    rows = []
    for key in jax.random.split(jax.random.key(3), steps):
        action, raw, memory = acting.choose(acting.noise(key, (runs,)), scores, memory, False, mask)
        np.testing.assert_array_equal(action, raw)
        rows.append(np.asarray(action))
    return np.array(rows)


def test_persistent_actions_have_the_probabilities_of_constant_scores() -> None:
    runs = 20_000
    logits = jnp.float32([1.0, 0.0, -1.0])
    probability = np.asarray(jax.nn.softmax(logits))
    actions = actions_of(0.9, logits, None, 4, runs)
    # Of independent runs at one step; the standard error of a share is at most half the root of 1 / runs. Five of them.
    for row in actions:
        np.testing.assert_allclose(np.bincount(row, minlength=3) / runs, probability, atol=2.5 / runs**0.5)


def test_persistent_actions_repeat_more_often_than_independent_ones() -> None:
    runs = 20_000
    repeats = {}
    for correlation in (0.0, 0.9, 1.0):
        first, second = actions_of(correlation, jnp.zeros(3), None, 2, runs)
        repeats[correlation] = np.mean(first == second)
    np.testing.assert_allclose(repeats[0.0], 1 / 3, atol=2.5 / runs**0.5)
    assert repeats[0.9] > 0.6 and repeats[1.0] == 1.0


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_persistent_actions_respect_masks(allowed: int) -> None:
    mask = jnp.broadcast_to(jnp.arange(3) == allowed, (50, 3))
    assert (actions_of(0.9, jnp.float32([5.0, 0.0, -5.0]), mask, 3, 50) == allowed).all()


def test_a_greedy_persistent_action_ignores_the_walk() -> None:
    acting = persistent(0.9)
    walk = Walk(jnp.float32([-9.0, 9.0, 0.0]), jnp.ones((), bool))
    scores, walk = acting.scores(None, walk, jnp.float32([0.2, 0.1, 0.0]), None)
    action, _, after = acting.choose(None, scores, walk, True, None)
    assert int(action) == 0 and after is walk
    for greedy in (False, jnp.bool_(False)):
        action, _, _ = acting.choose(jnp.zeros(3), scores, walk, greedy, None)
        assert int(action) == 1
    action, _, _ = acting.choose(jnp.zeros(3), scores, walk, jnp.bool_(True), None)
    assert int(action) == 0
