"""Loops have the same results in the form for accelerators as in that for CPUs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs import loops
from envs.threefry import unrolled

STEPS = 21  # which no number of steps of a turn divides
EPS = float(np.finfo(np.float32).eps)


def both(function: Any, *arguments: Any) -> tuple[Any, Any]:
    """Results of a function as traced for a CPU, and for an accelerator."""
    on_cpu = jax.jit(function)(*arguments)
    with loops.traced_for("gpu"):
        return on_cpu, jax.jit(lambda *arguments: function(*arguments))(*arguments)


def assert_equal_bits(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert left.dtype == right.dtype
        if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        np.testing.assert_array_equal(left, right)


@pytest.mark.fast_rows("1-True", "8-False")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps_of_turn", [1, loops.STEPS_OF_TURN])
def test_results_of_every_type_are_the_same_bits(reverse: bool, steps_of_turn: int):
    def step(carry: Any, now: Any) -> tuple[Any, Any]:
        key, total = carry
        key, own = jax.random.split(key)
        total = total + now["x"]
        results = {
            "float": jax.random.normal(own, (3,)),
            "nothing": None,
            "integer": -now["i"],
            "flag": now["x"] > 0.5,
            "narrow": jnp.int8(-3) * now["i"].astype(jnp.int8),
            "image": jnp.full((9, 9), now["i"], jnp.uint8),  # wider than what is packed
            "half": total.astype(jnp.float16),
            "quarter": total.astype(jnp.float8_e4m3fn),
            "key": own,
            "empty": jnp.zeros((0, 2)),
            "nan": jnp.where(now["x"] > 0.5, jnp.nan, total),
        }
        return (key, total), results

    def run(key: jax.Array, x: jax.Array) -> Any:
        inputs = {"x": x, "i": jnp.arange(STEPS)}
        return loops.scan(step, (key, jnp.float32(0)), inputs, reverse=reverse, steps_of_turn=steps_of_turn)

    keys, x = jax.random.split(jax.random.key(0), 4), jax.random.uniform(jax.random.key(1), (4, STEPS))
    assert_equal_bits(*both(jax.vmap(run), keys, x))


def test_a_loop_without_inputs_or_results():
    def run(x: jax.Array) -> Any:
        return loops.scan(lambda x, _: (2.0 * x, None), x, length=STEPS)

    assert_equal_bits(*both(run, jnp.float32(1.5)))


def test_gradients_pass_through_packed_results():
    def step(total: jax.Array, now: jax.Array) -> Any:
        return total + now, (now * now, now > 0, total, jnp.int32(3))

    def loss(x: jax.Array) -> jax.Array:
        _, (squares, positive, sums, threes) = loops.scan(step, jnp.float32(0), x)
        return jnp.sum(squares) + jnp.sum(jnp.where(positive, jnp.sin(sums), sums) * threes)

    on_cpu, elsewhere = both(jax.grad(loss), jax.random.normal(jax.random.key(0), (STEPS,)))
    np.testing.assert_allclose(elsewhere, on_cpu, rtol=0, atol=STEPS * 4 * EPS)


def test_a_turn_of_an_accelerator_has_several_steps_and_writes_one_array():
    def run(x: jax.Array) -> Any:
        return loops.scan(lambda x, _: (x + 1.0, (x, x > 2.0, 2.0 * x)), x, length=32)

    with loops.traced_for("tpu"):
        (equation,) = [each for each in jax.make_jaxpr(run)(0.0).eqns if each.primitive.name == "scan"]
    assert equation.params["unroll"] == loops.STEPS_OF_TURN
    assert len(equation.outvars) == 1 + 2  # the carry; two floats in one array; a flag, which is alone


def test_the_platform_is_that_of_the_context():
    key = jax.random.key(0)
    assert loops.traced_platform() == jax.default_backend()
    with loops.traced_for("gpu"):
        assert loops.traced_platform() == "gpu"
        assert unrolled(key) is key
    assert envs.unrolled(key) is not key


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("most", [1, 5, 6, 100])
def test_parts_have_the_values_and_the_gradients_of_the_whole(most: int, recompute: bool):
    x, weights = jax.random.normal(jax.random.key(0), (12, 3)), jax.random.normal(jax.random.key(1), (3, 2))

    def loss(weights: jax.Array, x: jax.Array) -> Any:
        features, total = loops.in_parts(lambda x: (jnp.tanh(x @ weights), jnp.sum(x, axis=1)), x, most, recompute)
        return jnp.sum(features * jnp.sin(total)[:, None]), features

    (one, gradient), (other, in_parts) = (
        (result[0][1], result[1]) for result in both(jax.value_and_grad(loss, has_aux=True), weights, x)
    )
    rounding = 12 * 3 * 4 * EPS
    np.testing.assert_allclose(other, one, rtol=0, atol=rounding)
    np.testing.assert_allclose(in_parts, gradient, rtol=0, atol=12 * rounding)


@pytest.mark.parametrize(("most", "sizes"), [(1, {1}), (5, {4}), (6, {6}), (100, {12}), (0, {1}), (11, {6}), (7, {6})])
def test_parts_are_of_about_equal_sizes(most: int, sizes: set[int]):
    assert sizes_of_parts(12, most) == sizes


def test_a_number_of_entries_without_divisors_has_a_last_part():
    assert sizes_of_parts(127, 64) == {64, 63}
    x = jax.random.normal(jax.random.key(0), (127, 2))
    on_cpu, in_parts = both(lambda x: loops.in_parts(lambda x: (jnp.sin(x), x[:, 0]), x, 50, recompute=True), x)
    assert_equal_bits(on_cpu, in_parts)


def sizes_of_parts(length: int, most: int) -> set[int]:
    sizes = set()

    def function(x: jax.Array) -> jax.Array:
        sizes.add(x.shape[0])
        return x

    with loops.traced_for("gpu"):
        jax.make_jaxpr(lambda x: loops.in_parts(function, x, most))(jnp.zeros((length, 3)))
    return sizes
