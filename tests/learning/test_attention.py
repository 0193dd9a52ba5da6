"""The gated transformer: what a step depends on, its gates at the start, and its memory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.attention import GTrXL

WIDTH, SIZE, STEPS = 3, 8, 14


def initial(cell: GTrXL, seed: int = 0, shift: float = 0.3) -> Any:
    """Parameters, moved away from their initial values."""
    params = jax.jit(cell.init)(jax.random.key(seed), jnp.zeros(WIDTH), cell.initial_memory())
    draws = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + shift * jnp.asarray(draws.normal(size=leaf.shape), jnp.float32), params)


def sequence(seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(STEPS, WIDTH)), jnp.float32)


@pytest.mark.parametrize("reset_at", [None, 9])
def test_a_step_depends_on_the_window_and_on_its_episode_alone(reset_at: int | None) -> None:
    """A change of step 7 reaches the steps of the window that begins there, in the same episode, and no others."""
    window, at = 5, 7
    cell = GTrXL(SIZE, window=window, heads=2)
    params, features, unroll = initial(cell), sequence(), jax.jit(cell.unroll)
    reset = jnp.arange(STEPS) == (STEPS if reset_at is None else reset_at)
    one = unroll(params, features, cell.initial_memory(), reset)[0]
    other = unroll(params, features.at[at].add(1.0), cell.initial_memory(), reset)[0]
    reached = [t for t in range(STEPS) if np.any(one[t] != other[t])]
    assert reached == list(range(at, min(at + window, reset_at or STEPS)))


def test_layers_extend_the_reach() -> None:
    """With two layers a change reaches twice as far beyond its own step."""
    window, at = 4, 3
    cell = GTrXL(SIZE, window=window, layers=2, heads=2)
    params, features, unroll = initial(cell), sequence(), jax.jit(cell.unroll)
    reset = jnp.zeros(STEPS, bool)
    one = unroll(params, features, cell.initial_memory(), reset)[0]
    other = unroll(params, features.at[at].add(1.0), cell.initial_memory(), reset)[0]
    reached = [t for t in range(STEPS) if np.any(one[t] != other[t])]
    assert reached == list(range(at, at + 2 * (window - 1) + 1))


def test_only_entries_within_the_count_of_the_memory_have_an_effect() -> None:
    """Entries of the memory beyond its count have no effect, whatever they contain, in either form."""
    cell = GTrXL(SIZE, window=6, heads=2)
    params, features, reset = initial(cell), sequence(), jnp.zeros(STEPS, bool)
    draws = np.random.default_rng(2)
    entries = jnp.asarray(draws.normal(size=(1, 5, SIZE)), jnp.float32)
    unroll, step = jax.jit(cell.unroll), jax.jit(cell.apply)

    def first(entries: jax.Array, count: int) -> list[np.ndarray]:
        memory = {"inputs": entries, "count": jnp.int32(count)}
        return [
            np.asarray(unroll(params, features, memory, reset)[0][0]),
            np.asarray(step(params, features[0], memory)[0]),
        ]

    for known, unseen, last in zip(
        first(entries, 2), first(entries.at[:, :3].set(9.0), 2), first(entries.at[:, 3].set(9.0), 2), strict=True
    ):
        np.testing.assert_array_equal(known, unseen)
        assert np.any(known != last)


def test_the_distance_of_a_step_is_seen() -> None:
    """A large number of the table at distance 3 makes each step repeat what was 3 steps before, in either form."""
    cell = GTrXL(SIZE, window=5, heads=2)
    params = initial(cell, shift=0.0)
    params["params"]["distance"] = jnp.zeros((1, 2, 5)).at[..., 3].set(1e4)
    features, unroll, step = sequence(), jax.jit(cell.unroll), jax.jit(cell.apply)
    one = unroll(params, features, cell.initial_memory(), jnp.zeros(STEPS, bool))
    for moved in range(8):
        changed = features.at[moved].add(1.0)
        other = unroll(params, changed, cell.initial_memory(), jnp.zeros(STEPS, bool))
        memory = jax.tree.map(lambda leaf: leaf[7], other[1])
        alone = step(params, features[8], memory)[0]
        same = np.array_equal(one[0][8], other[0][8])
        assert same == (moved != 5)
        # Gates of two products of 8 terms of at most 4 after a mean of the window.
        np.testing.assert_allclose(alone, other[0][8], rtol=0, atol=4 * 8 * 4 * float(np.finfo(np.float32).eps))


def test_gates_are_nearly_closed_at_the_start() -> None:
    """A layer changes its input by a share of sigmoid(-2) on average, and not at all under a large bias."""
    cell = GTrXL(64)
    features = jnp.asarray(np.random.default_rng(3).normal(size=(STEPS, 64)), jnp.float32)
    params: Any = jax.jit(cell.init)(jax.random.key(3), features[0], cell.initial_memory())
    assert {float(params["params"][f"{part}_gate_bias"][0, 0]) for part in ("attention", "dense")} == {2.0}
    weights = params["params"]
    entered = features @ weights["enter_kernel"] + weights["enter_bias"]

    def change(bias: float) -> np.ndarray:
        moved = weights | {f"{part}_gate_bias": jnp.full((1, 64), bias) for part in ("attention", "dense")}
        after = cell.unroll({"params": moved}, features, cell.initial_memory(), jnp.zeros(STEPS, bool))[0]
        return np.abs(np.asarray(after - entered))

    size = float(np.abs(entered).mean())
    # Two gates, each open by about sigmoid(-2) = 0.12 of the difference between its input and a candidate below 1.
    assert 0.02 * size < change(2.0).mean() < 2 * 0.15 * (size + 1)
    assert change(2.0).mean() < 0.5 * change(0.0).mean()
    assert change(40.0).max() < 1e-6


def test_the_memory_is_small() -> None:
    memory = GTrXL(64, window=16, layers=2).initial_memory()
    assert {name: leaf.shape for name, leaf in memory.items()} == {"inputs": (2, 15, 64), "count": ()}
    assert memory["inputs"].dtype == np.float32 and memory["count"].dtype == np.int32
