"""Linear recurrences against loops in float64, and the initial values and limits of the cells built on them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from jaxrl.learning.linear_cells import S5, MinGRU, linear_recurrence

EPS = float(np.finfo(np.float32).eps)
SIZE = 4
recurrence: Any = linear_recurrence


@pytest.mark.slow_rows("64", "7")
@pytest.mark.parametrize("num_steps", [1, 2, 7, 8, 9, 64])
def test_the_recurrence_is_a_loop(num_steps: int) -> None:
    draws = np.random.default_rng(num_steps)
    size, phase = draws.uniform(0.8, 0.999, SIZE), draws.uniform(0, 3, SIZE)
    decay = size * np.exp(1j * phase)
    inputs = draws.normal(size=(num_steps, SIZE)) + 1j * draws.normal(size=(num_steps, SIZE))
    state = draws.normal(size=SIZE) + 1j * draws.normal(size=SIZE)
    reset = draws.random(num_steps) < 0.1
    arguments = ((jnp.float32(part.real), jnp.float32(part.imag)) for part in (decay, inputs, state))
    got = recurrence(*arguments, jnp.asarray(reset))
    expected = []
    for t in range(num_steps):
        state = decay * np.where(reset[t], 0, state) + inputs[t]
        expected.append(state)
    # Sums of up to 64 terms of at most 4, and powers by at most 6 products.
    np.testing.assert_allclose(np.asarray(got[0]) + 1j * np.asarray(got[1]), expected, rtol=0, atol=64 * 4 * 6 * EPS)


def looped(decay: Any, inputs: Any, start: Any, reset: Any) -> Any:
    """The recurrence one step after the other, on complex or real arrays with a factor of each step."""
    states = []
    for t in range(len(reset)):
        start = decay[t] * jnp.where(reset[t], 0.0, start) + inputs[t]
        states.append(start)
    return jnp.stack(states)


def parts_of(array: Any) -> Any:
    return (array.real, array.imag) if np.iscomplexobj(array) else (array,)


def joined(parts: Any) -> Any:
    return parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]


@pytest.mark.fast_rows("7-real", "16-real")
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("num_steps", [1, 2, 7, 16, 33])
def test_a_recurrence_with_a_factor_of_each_step_is_a_loop(num_steps: int, kind: str) -> None:
    """States, and gradients with respect to factors, inputs and start; some factors are tiny, 0 or 1."""
    draws = np.random.default_rng(num_steps)

    def drawn(*shape: int) -> Any:
        numbers = draws.normal(size=shape)
        return numbers if kind == "real" else numbers + 1j * draws.normal(size=shape)

    decay, inputs, start = drawn(num_steps, SIZE), drawn(num_steps, SIZE), drawn(SIZE)
    decay *= draws.uniform(0.8, 1.0, decay.shape) / np.abs(decay)  # so that a step has an effect on the last one
    decay[:, 0] *= np.resize([1e-200, 1.0, 0.0], num_steps)
    reset, weights = draws.random(num_steps) < 0.05, draws.normal(size=(2, num_steps, SIZE))

    def number(states: Any) -> jax.Array:
        return sum((jnp.sum(w * jnp.sin(part)) for w, part in zip(weights, states, strict=False)), jnp.float64(0))

    with jax.enable_x64(True):
        arguments = tuple(map(parts_of, (decay, inputs, start)))

        def of_blocks(*a: Any) -> Any:
            return recurrence(*a, jnp.asarray(reset))

        def loop(*a: Any) -> Any:
            decay, inputs, start = map(joined, a)
            states = looped(decay, inputs, start, reset)
            return (jnp.real(states), jnp.imag(states)) if kind == "complex" else (states,)

        results = []
        for function in (of_blocks, loop):
            gradient = jax.grad(lambda *a: number(function(*a)), (0, 1, 2))  # noqa: B023
            results.append((jax.jit(function)(*arguments), jax.jit(gradient)(*arguments)))
        for got, expected in zip(*map(jax.tree.leaves, results), strict=True):
            assert got.dtype == np.float64
            # States are sums of up to 33 terms of at most 4, and gradients sums of as many products of two of them.
            np.testing.assert_allclose(got, expected, rtol=0, atol=33 * 33 * 4 * 4 * float(np.finfo(np.float64).eps))


def test_gates_that_keep_nothing_or_everything_lose_no_accuracy() -> None:
    """Shares of 1e-30 over hundreds of steps, whose products are no numbers of float32, as a loop in float64."""
    num_steps, draws = 300, np.random.default_rng(0)
    share = np.where(draws.random((num_steps, SIZE)) < 0.5, 1e-30, 1.0)
    inputs, reset = draws.normal(size=(num_steps, SIZE)), np.zeros(num_steps, bool)
    (got,) = jax.jit(linear_recurrence)((jnp.float32(share),), (jnp.float32(inputs),), (jnp.ones(SIZE),), reset)
    expected = np.empty((num_steps, SIZE))
    state = np.ones(SIZE)
    for t in range(num_steps):
        state = np.float64(np.float32(share[t])) * state + np.float32(inputs[t])
        expected[t] = state
    # Sums of the inputs since a share of 1e-30, fewer than 32 of at most 5.
    np.testing.assert_allclose(got, expected, rtol=0, atol=32 * 32 * 5 * EPS)


def test_a_step_holds_its_input(key: jax.Array) -> None:
    """The factors of S5 are those of the differential equation dh/dt = rate h + u with a constant input u."""
    cell = S5(SIZE, steps=(1e-4, 1.0))
    weights = cell.init(key, jnp.zeros(1), cell.initial_memory())["params"]
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), weights)
        one_unit: Any = {**exact, "input_kernel": np.eye(2, 2 * SIZE)}
        decay, gain = cell._held(one_unit, jnp.array([1.0, 0.0]))
        for n in range(SIZE):
            rate, step = -np.exp(exact["log_rate"][n]) + 1j * exact["frequency"][n], np.exp(exact["log_step"][n])
            held = expm(step * np.array([[rate, 1.0], [0.0, 0.0]]))
            np.testing.assert_allclose(decay[0][n] + 1j * decay[1][n], held[0, 0], rtol=1e-13)
            if n == 0:  # the input enters the first unit alone
                np.testing.assert_allclose(gain[0][n] + 1j * gain[1][n], held[0, 1], rtol=1e-13)


def test_a_short_step_of_float32_keeps_its_digits() -> None:
    """The gain of a step of 1e-6 is 1e-6 up to the rounding of float32, which the difference exp(z) - 1 would lose."""
    cell = S5(2)
    weights = {
        "log_rate": jnp.log(jnp.array([0.5, 0.5])),
        "frequency": jnp.array([0.0, 3.0]),
        "log_step": jnp.full(2, np.log(1e-6)),
        "input_kernel": jnp.array([[1.0, 1.0, 0.0, 0.0]]),
    }
    _, gain = cell._held(weights, jnp.ones(1))
    step = np.exp(np.float64(weights["log_step"][0]))
    # (exp(z) - 1) / rate is step (1 + z / 2), and z is below 4e-6; some ten roundings, and that of exp(-13.8).
    np.testing.assert_allclose(gain[0], step, rtol=4e-6 + (10 + 14) * EPS)


def test_initial_values_of_a_state_space(key: jax.Array) -> None:
    cell = S5(2000)
    weights = jax.jit(cell.init)(key, jnp.zeros(1), cell.initial_memory())["params"]
    np.testing.assert_allclose(np.exp(weights["log_rate"]), 0.5, rtol=4 * EPS)
    np.testing.assert_allclose(weights["frequency"], np.pi * np.arange(2000), rtol=4 * EPS)
    log_step = np.asarray(weights["log_step"], np.float64)
    assert log_step.min() >= np.log(0.001) - 1e-5 and log_step.max() <= np.log(0.1) + 1e-5
    # Uniform: the mean of 2000 is within 5 of its standard errors, 1 / sqrt(12 * 2000) of the width each.
    width = np.log(0.1) - np.log(0.001)
    np.testing.assert_allclose(log_step.mean(), np.log(0.01), atol=5 * width / np.sqrt(12 * 2000))


def test_a_minimal_unit_stays_between_its_candidates(key: jax.Array) -> None:
    """Its memory is a weighted mean of candidates, so that it never exceeds the largest of them."""
    cell, draws = MinGRU(SIZE), np.random.default_rng(1)
    features = jnp.asarray(draws.normal(size=(50, SIZE)), jnp.float32)
    params: Any = cell.init(key, features[0], cell.initial_memory())
    memory = cell.unroll(params, features, cell.initial_memory(), jnp.zeros(50, bool))[0]
    candidates = features @ params["params"]["input_kernel"][:, SIZE:]
    # A mean of at most 50 numbers, each rounded twice.
    bound = np.abs(candidates).max(axis=0) * (1 + 100 * EPS)
    assert np.all(np.abs(memory) <= bound) and np.any(np.abs(memory[1:]) > np.abs(candidates[1:]))
