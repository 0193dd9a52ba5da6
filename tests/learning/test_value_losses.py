"""Value losses against float64 NumPy, one number at a time."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import value_losses
from jaxrl.learning.value_losses import SIGMA_BINS, Scale, value_loss

LOW, HIGH, DELTA, COUNT = -3.0, 5.0, 0.7, 9
SCALE = Scale(jnp.float32(LOW), jnp.float32(HIGH), jnp.float32(DELTA))
RNG = np.random.default_rng(0)
# A loss is a sum of at most 81 products of numbers of single size, rounded to float32.
TOLERANCE = 81 * 2.0**-24


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) <= DELTA else DELTA * (abs(error) - 0.5 * DELTA)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def slow_edges() -> np.ndarray:
    """Edges of the bins, of which 3 standard deviations of a target lie beyond each end of the support."""
    width = (HIGH - LOW) / (COUNT - 6 * SIGMA_BINS)
    return LOW + width * (np.arange(COUNT + 1) - 3 * SIGMA_BINS)


def slow_value(kind: str, outputs: np.ndarray) -> float:
    if kind in ("squared", "huber", "quantile"):
        return outputs.mean()
    edges = slow_edges()
    support = np.linspace(LOW, HIGH, COUNT) if kind == "categorical" else (edges[1:] + edges[:-1]) / 2
    return float(np.exp(log_softmax(outputs)) @ support)


def slow_loss(kind: str, outputs: np.ndarray, atoms: np.ndarray, probabilities: np.ndarray) -> float:
    mean = float(atoms @ probabilities)
    if kind == "squared":
        return 0.5 * (outputs[0] - mean) ** 2
    if kind == "huber":
        return huber(outputs[0] - mean)
    if kind == "quantile":
        total = 0.0
        for i, quantile in enumerate(outputs):
            level = (2 * i + 1) / (2 * len(outputs))
            for atom, probability in zip(atoms, probabilities, strict=True):
                error = atom - quantile
                total += probability * abs(level - (error < 0)) * huber(error) / DELTA
        return total
    target = np.zeros(COUNT)
    if kind == "categorical":
        step = (HIGH - LOW) / (COUNT - 1)
        for atom, probability in zip(atoms, probabilities, strict=True):
            place = (min(max(atom, LOW), HIGH) - LOW) / step
            lower, upper = math.floor(place), math.ceil(place)
            if lower == upper:
                target[lower] += probability
            else:
                target[lower] += probability * (upper - place)
                target[upper] += probability * (place - lower)
    else:
        edges = slow_edges()
        width = edges[1] - edges[0]
        centre = min(max(mean, LOW), HIGH)
        below = [0.5 * (1 + math.erf((edge - centre) / (SIGMA_BINS * width * math.sqrt(2)))) for edge in edges]
        target = np.diff(below) / (below[-1] - below[0])
    return float(-target @ log_softmax(outputs))


def drawn(kind: str, batch: int) -> tuple[Any, ...]:
    loss: Any = value_loss(kind, COUNT)  # pyright: ignore[reportArgumentType]
    outputs = 2 * RNG.normal(size=(batch, loss.num_outputs))
    atoms = RNG.uniform(LOW - 2, HIGH + 2, (batch, COUNT))
    atoms[0] = np.linspace(LOW, HIGH, COUNT)  # at those of the support
    probabilities = RNG.dirichlet(np.ones(COUNT), batch)
    return loss, outputs.astype(np.float32), atoms.astype(np.float32), probabilities.astype(np.float32)


@pytest.mark.parametrize("kind", ["squared", "huber", "quantile", "categorical", "hl-gauss"])
def test_values_and_losses_are_those_of_their_definitions(kind: str) -> None:
    loss, outputs, atoms, probabilities = drawn(kind, 20)
    rows = [each.astype(np.float64) for each in (outputs, atoms, probabilities)]
    values = [slow_value(kind, row) for row in rows[0]]
    losses = [slow_loss(kind, *row) for row in zip(*rows, strict=True)]
    np.testing.assert_allclose(loss.value(outputs, SCALE), values, rtol=TOLERANCE, atol=TOLERANCE * 5)
    np.testing.assert_allclose(
        loss.loss(outputs, atoms, probabilities, SCALE), losses, rtol=8 * TOLERANCE, atol=8 * TOLERANCE
    )


@pytest.mark.slow_rows("hl-gauss")
@pytest.mark.parametrize("kind", ["squared", "huber", "quantile", "categorical", "hl-gauss"])
def test_targets_get_no_gradient_and_outputs_that_of_differences(kind: str) -> None:
    loss, outputs, atoms, probabilities = drawn(kind, 1)
    slopes = jax.grad(lambda *arrays: loss.loss(*arrays, SCALE)[0], argnums=(0, 1, 2))(outputs, atoms, probabilities)
    assert not np.any(slopes[1]) and not np.any(slopes[2])
    for i in range(outputs.shape[1]):
        step = np.zeros(outputs.shape[1])
        step[i] = 1e-5
        ends = [
            slow_loss(
                kind,
                *(
                    row.astype(np.float64)[0] + shift
                    for row, shift in zip((outputs, atoms, probabilities), (sign * step, 0.0, 0.0), strict=True)
                ),
            )
            for sign in (1, -1)
        ]
        # Central differences are exact up to 1e-10 where no error crosses a bound within the step.
        np.testing.assert_allclose(slopes[0][0, i], (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["categorical", "hl-gauss"])
def test_a_histogram_learns_the_value_within_its_support(kind: str) -> None:
    loss: Any = value_loss(kind, 51)  # pyright: ignore[reportArgumentType]
    for target in (LOW, -2.0, 0.3, 4.0, HIGH):
        atoms = jnp.full((1, 1), target)

        def body(_: Any, outputs: jax.Array, atoms: jax.Array = atoms) -> jax.Array:
            return outputs - 5.0 * jax.grad(lambda x: loss.loss(x, atoms, jnp.ones((1, 1)), SCALE)[0])(outputs)

        outputs = jax.lax.fori_loop(0, 500, body, jnp.zeros((1, 51)))
        # A hundredth of the support, much less than a bin.
        np.testing.assert_allclose(loss.value(outputs, SCALE), target, atol=0.01 * (HIGH - LOW))


@pytest.mark.parametrize("form", ["projection", "_scattered", "_multiplied"])
def test_atoms_are_divided_between_their_neighbours_in_every_form(form: str) -> None:
    place = RNG.uniform(0, COUNT - 1, (3, 2, 40)).astype(np.float32)
    place[..., :COUNT] = np.arange(COUNT)  # at those of the support, both ends included
    probabilities = RNG.dirichlet(np.ones(40), (3, 2)).astype(np.float32)
    expected = np.zeros((3, 2, COUNT))
    for i, j, k in np.ndindex(place.shape):
        for point in range(COUNT):
            expected[i, j, point] += max(0.0, 1 - abs(float(place[i, j, k]) - point)) * float(probabilities[i, j, k])
    function = jax.jit(jax.vmap(functools.partial(getattr(value_losses, form), count=COUNT)))
    actual = function(place, probabilities)
    # Sums of at most 40 products; a share, of a place of up to 8, is exact up to 8 * 2^-24.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=(40 + 8) * 2.0**-24)
    one = function(place[..., :1], probabilities[..., :1])
    np.testing.assert_allclose(one.sum(axis=-1), probabilities[..., 0], rtol=2.0**-22)


def test_a_projection_keeps_float32_where_jax_has_float64() -> None:
    arrays = np.array([[0.5, 8.0]], np.float32), np.array([[0.25, 0.75]], np.float32)
    with jax.enable_x64(True):
        actual = jax.jit(functools.partial(value_losses.projection, count=COUNT))(*arrays)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual[0], [0.125, 0.125, 0, 0, 0, 0, 0, 0, 0.75])


def test_one_quantile_with_a_far_bound_is_half_of_the_squared_error() -> None:
    outputs, atoms = jnp.asarray(RNG.normal(size=(2, 7, 1)), jnp.float32)
    one = jnp.ones((7, 1))
    far = Scale(huber_delta=jnp.float32(100.0))
    quantile = value_loss("quantile", 1).loss(outputs, atoms, one, far)
    squared = value_loss("squared", 1).loss(outputs, atoms, one, far)
    np.testing.assert_allclose(100.0 * quantile, 0.5 * squared, rtol=2.0**-20)
