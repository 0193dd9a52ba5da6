"""Targets of action values against loops in float64."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.advantages import monte_carlo
from jaxrl.learning.q_targets import bootstrap_actions, lambda_targets, n_step_targets, soft_values

RNG = np.random.default_rng(0)


def test_targets_are_those_of_a_loop() -> None:
    batch, n, agents, rates, atoms = 6, 4, 2, np.array([0.0, 0.5, 0.99]), 3
    reward = RNG.normal(size=(batch, n, agents)).astype(np.float32)
    steps = RNG.integers(1, n + 1, (batch, agents))
    ended = RNG.random((batch, agents)) < 0.4
    sizes = np.array([0.02, 0.1, 1.5])
    following = RNG.normal(size=(batch, agents, 3, atoms)).astype(np.float32)
    counts = np.arange(n)[:, None] < steps[:, None, :]
    got = n_step_targets(
        jnp.asarray(reward),
        jnp.asarray(counts),
        jnp.asarray(ended),
        jnp.asarray(following),
        jnp.float32(rates),
        jnp.float32(sizes),
    )
    for b in range(batch):
        for agent in range(agents):
            for k, rate in enumerate(rates):
                total = sum(rate**j * float(reward[b, j, agent]) for j in range(steps[b, agent])) / sizes[k]
                goes_on = 0.0 if ended[b, agent] else rate ** steps[b, agent]
                # Nine operations on numbers of single size, divided by sizes.
                np.testing.assert_allclose(
                    got[b, agent, k], total + goes_on * following[b, agent, k], rtol=1e-5, atol=1e-5 / sizes[k]
                )


@pytest.mark.parametrize("heads", ["own", "joint"])
def test_heads_continue_with_allowed_actions(heads: str) -> None:
    values = np.array([[[9.0, 0.0], [1.0, 2.0], [0.0, 3.0]]], np.float32)  # of 3 actions under 2 rates
    shares = np.array([0.5, 0.5], np.float32)
    mask = np.array([[False, True, True]])
    free = bootstrap_actions(jnp.asarray(values), jnp.asarray(shares), None, heads)  # pyright: ignore[reportArgumentType]
    masked = bootstrap_actions(jnp.asarray(values), jnp.asarray(shares), jnp.asarray(mask), heads)  # pyright: ignore[reportArgumentType]
    assert free.tolist() == ([[0, 2]] if heads == "own" else [[0, 0]])
    assert masked.tolist() == ([[1, 2]] if heads == "own" else [[1, 1]])


def test_soft_values_are_means_with_entropy() -> None:
    values = RNG.normal(size=(5, 4))
    mask = np.array([True, True, False, True])
    tau = 0.3
    value, log_policy = soft_values(jnp.float32(values), jnp.broadcast_to(mask, (5, 4)), jnp.float32(tau))
    weights = np.where(mask, np.exp(values / tau), 0.0)
    policy = weights / weights.sum(1, keepdims=True)
    logs = np.log(np.where(mask, policy, 1.0))
    np.testing.assert_allclose(value, (policy * (values - tau * logs)).sum(1), rtol=1e-5)
    np.testing.assert_allclose(np.exp(log_policy), policy, rtol=1e-5)


def test_a_final_state_without_allowed_actions_has_a_finite_soft_value() -> None:
    reward, ended, mask = jnp.float32([[3.0], [2.0]]), jnp.array([True, False]), jnp.array([[False] * 2, [True] * 2])
    value, log_policy = soft_values(jnp.float32([[5.0, -1.0], [0.0, 0.0]]), mask, jnp.float32(0.5))
    assert np.all(np.isfinite(log_policy))
    half = jnp.full(1, 0.5)
    got = n_step_targets(reward, jnp.ones((2, 1), bool), ended, value[:, None, None], half, jnp.ones(1))
    np.testing.assert_allclose(got[:, 0, 0], [3.0, 2.0 + 0.5 * 0.5 * np.log(2)], rtol=1e-6)


def lambda_return(lam: float, rate: float, reward: Any, following: Any, terminated: Any, done: Any, t: int) -> float:
    """The mean of the n-step returns of a step, weighted by powers of lambda; the last takes the remaining weight."""
    end = next((j for j in range(t, len(reward)) if done[j]), len(reward) - 1)
    total = 0.0
    for n in range(1, end - t + 2):
        last = t + n - 1
        n_step = sum(rate**j * float(reward[t + j]) for j in range(n))
        n_step += 0.0 if terminated[last] else rate**n * float(following[last])
        total += (lam ** (n - 1) if last == end else (1 - lam) * lam ** (n - 1)) * n_step
    return total


@pytest.mark.parametrize("lam", [0.0, 0.65, 1.0])
def test_lambda_targets_are_means_of_n_step_returns(lam: float) -> None:
    steps, shape, rates, sizes = 12, (3, 2), np.array([0.0, 0.5, 0.99]), np.array([0.02, 0.1, 1.5])
    reward = RNG.normal(size=(steps, *shape)).astype(np.float32)
    following = RNG.normal(size=(steps, *shape, 3)).astype(np.float32)
    terminated, truncated = RNG.random((2, steps, *shape)) < 0.15
    done = terminated | truncated
    assert (terminated & ~truncated).any() and (truncated & ~terminated).any()
    got = lambda_targets(
        lam,
        jnp.asarray(reward),
        jnp.asarray(following),
        jnp.asarray(terminated),
        jnp.asarray(done),
        jnp.float32(rates),
        jnp.float32(sizes),
    )
    assert got.shape == following.shape
    for t, (i, j), (k, rate) in itertools.product(range(steps), np.ndindex(shape), enumerate(rates)):
        value = following[..., k] * sizes[k]
        parts = reward[:, i, j], value[:, i, j], terminated[:, i, j], done[:, i, j]
        exact = lambda_return(lam, float(rate), *parts, t) / sizes[k]
        # At most 12 steps of four roundings of numbers below 16, divided by sizes.
        np.testing.assert_allclose(got[t, i, j, k], exact, rtol=0, atol=12 * 4 * 16 * 6e-8 / sizes[k])


@pytest.mark.slow
def test_lambda_one_is_monte_carlo_and_lambda_zero_is_one_step() -> None:
    reward, following = jnp.float32(RNG.normal(size=(2, 9, 4)))
    terminated, truncated = jnp.asarray(RNG.random((2, 9, 4)) < 0.2)
    done = terminated | truncated

    def of(lam: float) -> Any:
        rate, size = jnp.float32([0.9]), jnp.ones(1)
        return lambda_targets(lam, reward, following[..., None], terminated, done, rate, size)[..., 0]

    np.testing.assert_allclose(of(1.0), monte_carlo(0.9, reward, following, terminated, done), rtol=0, atol=1e-5)
    one_step = reward + 0.9 * jnp.where(terminated, 0.0, following)
    np.testing.assert_allclose(of(0.0), one_step, rtol=0, atol=2 * 8 * 6e-8)  # two roundings of numbers below 8
