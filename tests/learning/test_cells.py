"""Sequences of memory cells: of any length, with resets anywhere, and what later steps may depend on."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.attention import GTrXL
from jaxrl.learning.cells import CELLS
from jaxrl.learning.recurrent import unroll_by_steps

EPS = float(np.finfo(np.float64).eps)
WIDTH, SIZE = 3, 4
# Names and cells: each of `CELLS`, with further sizes where a cell has them.
KINDS: dict[str, Any] = {
    **{name: cell(SIZE) for name, cell in CELLS.items()},
    "gtrxl, short, deep": GTrXL(SIZE, window=3, layers=2, heads=2),
    "gtrxl, shortest": GTrXL(SIZE, window=2, heads=1),
}


def parameters(cell: Any, seed: int, shift: float = 0.3) -> Any:
    """Parameters in float64, moved away from their initial values, some of which are 0 or 1."""
    params = jax.jit(cell.init)(jax.random.key(seed), jnp.zeros(WIDTH), cell.initial_memory())
    draws = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) + shift * draws.normal(size=leaf.shape), params)


def some_memory(cell: Any, seed: int) -> Any:
    """A memory that is not empty; a whole number, which counts steps, is 1."""
    draws = np.random.default_rng(seed)

    def drawn(leaf: Any) -> Any:
        return np.int32(1) if leaf.dtype == np.int32 else 0.5 * draws.normal(size=leaf.shape)

    return jax.tree.map(drawn, cell.initial_memory())


def weighed(unroll: Any, num_steps: int, params: Any, features: Any, memory: Any, reset: Any) -> jax.Array:
    """A number that depends on the features and the memories after every step."""
    both = jax.tree.leaves(unroll(params, features, memory, reset))
    draws = np.random.default_rng(7)
    return jnp.sum(jnp.stack([jnp.sum(draws.normal(size=leaf.shape) * jnp.sin(leaf)) for leaf in both])) / num_steps


@pytest.mark.fast_rows("7-mingru")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("num_steps", [1, 2, 7, 16, 33])
def test_sequences_of_any_length_are_their_steps(name: str, num_steps: int) -> None:
    """Features, memories and gradients with respect to parameters, inputs and the memory before."""
    cell, draws = KINDS[name], np.random.default_rng(num_steps)

    def by_steps(*arguments: Any) -> Any:
        return unroll_by_steps(cell, *arguments)

    with jax.enable_x64(True):
        params, memory = parameters(cell, num_steps), some_memory(cell, num_steps)
        features = draws.normal(size=(num_steps, WIDTH))
        gradient = functools.partial(jax.grad, argnums=(0, 1, 2), allow_int=True)
        both = [
            (jax.jit(unroll), jax.jit(gradient(functools.partial(weighed, unroll, num_steps))))
            for unroll in (cell.unroll, by_steps)
        ]
        for first in (False, True):
            reset = draws.random(num_steps) < 0.2
            reset[0] = first
            got, expected = ([each(params, features, memory, reset) for each in pair] for pair in both)
            got, expected = (
                [leaf for leaf in jax.tree.leaves(each) if leaf.dtype != jax.dtypes.float0] for each in (got, expected)
            )
            for one, other in zip(got, expected, strict=True):
                # Sums of up to 8 terms of at most 4 and a function, at each step since the last reset, and their sum.
                np.testing.assert_allclose(one, other, rtol=0, atol=num_steps * 4 * 8 * 4 * EPS)


@pytest.mark.fast_rows("s5", "gtrxl, short, deep")
@pytest.mark.parametrize("name", KINDS)
def test_a_reset_is_a_fresh_start(name: str) -> None:
    """Nothing before a reset has an effect, bit for bit, and the steps after it are those of a new sequence."""
    cell, draws, num_steps, at = KINDS[name], np.random.default_rng(1), 12, 5
    with jax.enable_x64(True):
        params, unroll = parameters(cell, 1), jax.jit(cell.unroll)
        features, reset = draws.normal(size=(num_steps, WIDTH)), np.arange(num_steps) == at
        whole = unroll(params, features, some_memory(cell, 1), reset)
        other = unroll(params, np.where(np.arange(num_steps)[:, None] < at, 7.0, features), some_memory(cell, 2), reset)
        anew = unroll(params, features[at:], cell.initial_memory(), np.zeros(num_steps - at, bool))
    for one, same, fresh in zip(*map(jax.tree.leaves, (whole, other, anew)), strict=True):
        np.testing.assert_array_equal(one[at:], same[at:])
        np.testing.assert_allclose(one[at:], fresh, rtol=0, atol=num_steps * 4 * 8 * 4 * EPS)


@pytest.mark.fast_rows("mingru")
@pytest.mark.parametrize("name", KINDS)
def test_a_step_depends_on_earlier_steps_alone(name: str) -> None:
    cell, draws, num_steps, at = KINDS[name], np.random.default_rng(2), 9, 4
    with jax.enable_x64(True):
        params, unroll = parameters(cell, 2), jax.jit(cell.unroll)
        features, memory, reset = draws.normal(size=(num_steps, WIDTH)), some_memory(cell, 3), np.zeros(num_steps, bool)
        moved = features.copy()
        moved[at] += 1.0
        one, other = unroll(params, features, memory, reset), unroll(params, moved, memory, reset)
    for before, after in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(before[:at], after[:at])
    assert np.all(np.any(one[0] != other[0], axis=1)[at : at + 2])  # the shortest window


@pytest.mark.fast_rows("mingru")
@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_learns_from_its_initial_value(name: str) -> None:
    cell, draws, num_steps = KINDS[name], np.random.default_rng(3), 12
    with jax.enable_x64(True):
        params = parameters(cell, 3, shift=0.0)
        arguments = draws.normal(size=(num_steps, WIDTH)), cell.initial_memory(), np.zeros(num_steps, bool)
        slopes = jax.jit(jax.grad(functools.partial(weighed, cell.unroll, num_steps)))(params, *arguments)
    for path, leaf in jax.tree.leaves_with_path(slopes):
        assert np.all(np.isfinite(leaf)) and np.abs(leaf).max() > 1e-6, jax.tree_util.keystr(path)
