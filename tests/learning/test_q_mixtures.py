"""Values under each rate of a discount, with a table in place of a network, against exact ones in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference.value_iteration import joint_values, own_values, policy_values, random_problem

from jaxrl.algorithms.value_function import prepare_discount
from jaxrl.discounts.mixtures import head_sizes
from jaxrl.learning.q_targets import bootstrap_actions, n_step_targets

DISCOUNTS = ["0.95", "quasi:0.7,0.95", "hyperbolic:0.1", "beta:0.9,0.5"]
NUM_ACTIONS, NUM_HEADS, EPISODE = 3, 8, 100


def nodes(discount: str) -> tuple[Any, Any, Any]:
    """Rates, weights and sizes of a discount, as in an algorithm."""
    heads = "joint"
    prepared = jax.tree.map(jnp.asarray, prepare_discount(discount, heads, NUM_HEADS, EPISODE))
    return prepared.rates, prepared.weights, head_sizes(prepared)


def backup(table: jax.Array, chances: Any, rewards: Any, discount: tuple[Any, ...], heads: Any) -> jax.Array:
    """One update of all values u_k `[S, A, K]` at once: the mean of one-step targets over possible next states."""
    rates, weights, sizes = discount
    num_states, batch = len(rewards), len(rewards) * rewards.size  # every pair with every state that may follow
    action = bootstrap_actions(table, weights * sizes, None, heads)
    following = jnp.take_along_axis(table, action[:, None], axis=1)[:, 0]  # [S, K]
    targets = n_step_targets(
        jnp.repeat(jnp.asarray(rewards, jnp.float32).ravel(), num_states)[:, None],
        jnp.ones((batch, 1), bool),
        jnp.zeros(batch, bool),
        jnp.tile(following, (rewards.size, 1))[..., None],
        rates,
        sizes,
    ).reshape(*rewards.shape, num_states, -1)
    return jnp.einsum("sax,saxk->sak", jnp.asarray(chances, jnp.float32), targets, precision="highest")


def settled(
    chances: Any, rewards: Any, discount: tuple[Any, ...], heads: str, sweeps: int = 6_000
) -> tuple[np.ndarray, bool]:
    """Values V_k `[S, A, K]` after many updates, and whether another update changes none of their next actions."""

    @jax.jit
    def run() -> tuple[jax.Array, jax.Array]:
        start = jnp.zeros((*rewards.shape, NUM_HEADS))
        last = jax.lax.fori_loop(0, sweeps, lambda _, table: backup(table, chances, rewards, discount, heads), start)
        return last, backup(last, chances, rewards, discount, heads)

    last, after = run()
    shares = discount[1] * discount[2]
    before, later = (bootstrap_actions(table, shares, None, "joint") for table in (last, after))
    return np.asarray(last * discount[2], np.float64), bool(jnp.all(before == later))


def assert_close(values: np.ndarray, expected: np.ndarray, rates: Any, weights: Any) -> None:
    horizons = 1 / (1 - np.asarray(rates, np.float64))
    # 1e-4 of a value's own size, head by head, and of the mixture.
    for k in np.flatnonzero(np.asarray(weights)):
        np.testing.assert_allclose(values[..., k], expected[..., k], rtol=1e-4, atol=1e-4 * horizons[k])
    np.testing.assert_allclose(values @ weights, expected @ weights, rtol=1e-4, atol=1e-4 * float(horizons @ weights))


SETTLED = {("quasi:0.7,0.95", 5): 4}  # of six problems; all of them under the other discounts and sizes
SIZES = [5, pytest.param(30, marks=pytest.mark.slow)]


@pytest.mark.parametrize("num_states", SIZES)
@pytest.mark.parametrize("discount", DISCOUNTS)
def test_own_heads_settle_at_the_best_values_of_each_rate(discount: str, num_states: int) -> None:
    rates, weights, sizes = nodes(discount)
    exact = np.asarray(rates, np.float64)
    assert exact[np.asarray(weights) > 0].max() < 0.9985  # so that all settle within the updates, to 1e-4
    chances, rewards = random_problem(np.random.default_rng(3), num_states, NUM_ACTIONS)
    values, _ = settled(chances, rewards, (rates, weights, sizes), "own")
    assert_close(values, own_values(chances, rewards, exact), rates, np.asarray(weights, np.float64))


@pytest.mark.fast_rows("quasi:0.7,0.95-5")
@pytest.mark.parametrize("num_states", SIZES)
@pytest.mark.parametrize("discount", DISCOUNTS)
def test_joint_heads_settle_at_the_values_of_the_policy_that_acts(discount: str, num_states: int) -> None:
    """If they converge, then to an equilibrium: a policy that is greedy for its own mixture; there may be several.

    They may not converge, because the joint backup is not a contraction; it is known on how many of six problems they
    do.
    """
    rates, weights, sizes = nodes(discount)
    exact, shares = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    problems, compared = 6, 0
    for seed in range(problems):
        chances, rewards = random_problem(np.random.default_rng(seed), num_states, NUM_ACTIONS)
        values, at_rest = settled(chances, rewards, (rates, weights, sizes), "joint")
        if not at_rest:
            continue
        policy = (values @ shares).argmax(1)
        of_policy = np.stack([policy_values(chances, rewards, rate, policy) for rate in exact], axis=-1)
        np.testing.assert_array_equal((of_policy @ shares).argmax(1), policy)  # an equilibrium
        assert_close(values, of_policy, rates, shares)
        compared += 1
    assert compared == SETTLED.get((discount, num_states), problems)


def test_own_heads_are_worth_at_least_as_much_as_joint_heads() -> None:
    rates, weights, _ = nodes("hyperbolic:0.1")
    exact, shares = np.asarray(rates, np.float64), np.asarray(weights, np.float64)
    compared = 0
    for seed in range(6):
        chances, rewards = random_problem(np.random.default_rng(seed), 5, NUM_ACTIONS)
        known = joint_values(chances, rewards, exact, shares)
        if known is not None:
            compared += 1
            assert np.all(own_values(chances, rewards, exact) @ shares >= known[0] @ shares - 1e-9)
    assert compared
