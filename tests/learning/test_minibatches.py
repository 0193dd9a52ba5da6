"""Minibatches contain every sample once: single rows, or whole sequences of environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.minibatches import over_epochs, row_minibatches, sequence_minibatches


@pytest.mark.parametrize("num_minibatches", [1, 3, 12])
def test_every_row_once_and_leaves_side_by_side(num_minibatches: int) -> None:
    rows = {"a": jnp.arange(12), "b": 10 * jnp.arange(24).reshape(12, 2)}
    parts = row_minibatches(jax.random.key(1), rows, num_minibatches)
    assert parts["a"].shape == (num_minibatches, 12 // num_minibatches)
    assert sorted(np.ravel(parts["a"]).tolist()) == list(range(12))
    np.testing.assert_array_equal(parts["b"][..., 0], 20 * parts["a"])


def test_sequences_stay_whole_and_in_order() -> None:
    time, num_envs = 5, 6
    samples = 100 * jnp.arange(time)[:, None] + jnp.arange(num_envs)
    parts = np.asarray(sequence_minibatches(jax.random.key(2), {"x": samples}, 3)["x"])
    assert parts.shape == (3, time, 2)
    np.testing.assert_array_equal(parts // 100, np.broadcast_to(np.arange(time)[:, None], (3, time, 2)))
    environments = parts % 100
    np.testing.assert_array_equal(environments, environments[:, :1].repeat(time, 1))
    assert sorted(environments[:, 0].ravel().tolist()) == list(range(num_envs))


def test_each_epoch_has_its_own_shuffle() -> None:
    def one_epoch(carry: jax.Array, parts: jax.Array) -> tuple[jax.Array, jax.Array]:
        return carry + jnp.sum(parts), parts

    total, orders = over_epochs(
        jax.random.key(0), 3, lambda key: row_minibatches(key, jnp.arange(8), 2), one_epoch, jnp.int32(0)
    )
    assert total == 3 * 28
    assert len({tuple(np.ravel(order).tolist()) for order in orders}) == 3
