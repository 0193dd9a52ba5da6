"""Values under each rate of a discount, with a table in place of a network, against exact ones in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference.value_iteration import joint_values, own_values, random_problem

from jaxrl.algorithms.q_discount import prepare_discount
from jaxrl.learning.critics import head_sizes
from jaxrl.learning.q_targets import bootstrap_actions, n_step_targets

NUM_STATES, NUM_ACTIONS, NUM_HEADS, EPISODE = 5, 3, 8, 100


def nodes(discount: str) -> tuple[Any, Any, Any]:
    """Rates, weights and sizes of a discount, as an algorithm has them."""
    heads = "joint"
    prepared = jax.tree.map(jnp.asarray, prepare_discount(discount, heads, NUM_HEADS, EPISODE))
    return prepared.rates, prepared.weights, head_sizes(prepared)


def backup(table: jax.Array, chances: Any, rewards: Any, discount: tuple[Any, ...], heads: Any) -> jax.Array:
    """One update of all values u_k `[S, A, K]` at once: the mean over what may follow of the targets of one step."""
    rates, weights, sizes = discount
    action = bootstrap_actions(table, weights * sizes, None, heads)
    following = jnp.take_along_axis(table, action[:, None], axis=1)[:, 0]  # [S, K]
    pairs = NUM_STATES * NUM_ACTIONS
    targets = [
        n_step_targets(
            jnp.asarray(rewards, jnp.float32).reshape(pairs, 1),
            jnp.ones((pairs, 1), bool),
            jnp.zeros(pairs, bool),
            jnp.broadcast_to(following[state][:, None], (pairs, NUM_HEADS, 1)),
            rates,
            sizes,
        )[..., 0].reshape(table.shape)
        for state in range(NUM_STATES)
    ]
    return jnp.einsum("sax,xsak->sak", jnp.asarray(chances, jnp.float32), jnp.stack(targets), precision="highest")


def settled(chances: Any, rewards: Any, discount: tuple[Any, ...], heads: str, sweeps: int = 6_000) -> np.ndarray:
    """Values V_k `[S, A, K]` after many updates."""

    @jax.jit
    def run() -> jax.Array:
        start = jnp.zeros((NUM_STATES, NUM_ACTIONS, NUM_HEADS))
        return jax.lax.fori_loop(0, sweeps, lambda _, table: backup(table, chances, rewards, discount, heads), start)

    return np.asarray(run() * discount[2], np.float64)


def assert_close(values: np.ndarray, expected: np.ndarray, rates: Any, weights: Any) -> None:
    horizons = 1 / (1 - np.asarray(rates, np.float64))
    # 1e-4 of a value's own size, head by head, and of the mixture.
    for k in np.flatnonzero(np.asarray(weights)):
        np.testing.assert_allclose(values[..., k], expected[..., k], rtol=1e-4, atol=1e-4 * horizons[k])
    np.testing.assert_allclose(values @ weights, expected @ weights, rtol=1e-4, atol=1e-4 * float(horizons @ weights))


@pytest.mark.parametrize("discount", ["0.95", "quasi:0.7,0.95", "hyperbolic:0.1", "beta:0.9,0.5"])
def test_own_heads_settle_at_the_best_values_of_each_rate(discount: str) -> None:
    rates, weights, sizes = nodes(discount)
    exact = np.asarray(rates, np.float64)
    assert exact[np.asarray(weights) > 0].max() < 0.9985  # so that all settle within the updates, to 1e-4
    chances, rewards = random_problem(np.random.default_rng(3), NUM_STATES, NUM_ACTIONS)
    got = settled(chances, rewards, (rates, weights, sizes), "own")
    assert_close(got, own_values(chances, rewards, exact), rates, np.asarray(weights, np.float64))


@pytest.mark.parametrize("discount", ["0.95", "hyperbolic:0.1", "beta:0.9,0.5"])
def test_joint_heads_settle_at_the_values_of_the_policy_that_acts(discount: str) -> None:
    rates, weights, sizes = nodes(discount)
    exact, shares = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    compared = 0
    for seed in range(6):
        chances, rewards = random_problem(np.random.default_rng(seed), NUM_STATES, NUM_ACTIONS)
        known = joint_values(chances, rewards, exact, shares)
        if known is None:
            continue  # a policy that is greedy for its own mixture is not reached from this start
        got = settled(chances, rewards, (rates, weights, sizes), "joint")
        greedy = (got @ shares).argmax(1)
        if not np.array_equal(greedy, known[1]):
            continue  # another one, or none: the joint backup is not a contraction
        assert_close(got, known[0], rates, shares)
        compared += 1
    assert compared >= 2


def test_own_heads_are_worth_at_least_what_joint_heads_are() -> None:
    rates, weights, _ = nodes("hyperbolic:0.1")
    exact, shares = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    for seed in range(6):
        chances, rewards = random_problem(np.random.default_rng(seed), NUM_STATES, NUM_ACTIONS)
        known = joint_values(chances, rewards, exact, shares)
        if known is not None:
            assert np.all(own_values(chances, rewards, exact) @ shares >= known[0] @ shares - 1e-9)
