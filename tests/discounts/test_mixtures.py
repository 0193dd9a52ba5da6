"""Mixtures of few exponentials: their distance from the curve, and their errors."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference.advantages import curve as exact_curve

from jaxrl.discounts.form import to_host
from jaxrl.discounts.mixtures import few_nodes, with_nodes
from jaxrl.discounts.parsing import as_discount, prepare, stack

HORIZON = 1024
HEADS = 8


def few(discount: str, count: int = HEADS, horizon: int = HORIZON) -> tuple[np.ndarray, np.ndarray]:
    rates, weights = to_host(as_discount(discount)).form().broadcast().mixture(horizon)
    return few_nodes(rates, weights, count, horizon)


def curve_of(rates: np.ndarray, weights: np.ndarray, horizon: int) -> np.ndarray:
    return np.sum(weights * np.asarray(rates, np.float64) ** np.arange(horizon + 1)[:, None], axis=1)


def rounded(**parameters: float) -> dict[str, float]:
    return {name: float(np.float32(value)) for name, value in parameters.items()}


# The bounds are those that few_nodes states.
BOUNDS = {(0.98, 128): 1e-6, (0.98, 1024): 6e-6, (0.5, 128): 1e-5, (0.5, 1024): 3e-4}


@pytest.mark.parametrize("horizon", [128, 1024])
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("mu", [1.0, 0.999, 0.99, 0.98, 0.9, 0.7, 0.5])
def test_eight_exponentials_stand_for_a_curve(mu: float, eta: float, horizon: int) -> None:
    rates, weights = few(f"beta:mu={mu},eta={eta}", horizon=horizon)
    error = curve_of(rates, weights, horizon) - exact_curve("beta", horizon, **rounded(mu=mu, eta=eta))
    assert np.abs(error).max() <= BOUNDS[0.98 if mu >= 0.98 else 0.5, horizon]
    assert np.all(weights >= 0) and np.all(rates >= 0) and np.all(rates <= 1)
    np.testing.assert_allclose(weights.sum(), 1.0, atol=1e-12)  # the value of the curve at 0


def test_more_exponentials_come_closer() -> None:
    exact = exact_curve("hyperbolic", HORIZON, **rounded(k=0.02))
    errors = [np.abs(curve_of(*few("hyperbolic:k=0.02", count), HORIZON) - exact).max() for count in (1, 2, 4, 8)]
    # The error falls geometrically with the number: every doubling gains more than the previous one.
    gains = [before / after for before, after in itertools.pairwise(errors)]
    assert 1 < gains[0] < gains[1] < gains[2], errors


@pytest.mark.parametrize(("discount", "nodes"), [("0.9", 1), ("1", 1), ("0", 1), ("quasi:beta=0.5,gamma=0.9", 2)])
def test_discounts_of_few_exponentials_keep_them(discount: str, nodes: int) -> None:
    rates, weights = few(discount)
    assert np.count_nonzero(weights) == nodes
    np.testing.assert_array_equal(rates[weights == 0], 0.0)
    np.testing.assert_allclose(curve_of(rates, weights, 64), as_discount(discount).curve(64), atol=1e-6)


def test_a_mixed_stack_is_its_members_each_with_all_heads() -> None:
    members = ["0.9", "quasi:beta=0.5,gamma=0.9", "hyperbolic:k=0.02", "beta:mu=0.98,eta=0.5"]
    together = with_nodes(prepare(stack(members), 128), HEADS, HORIZON)
    assert together.lags is None and together.mixture_curve is None
    for row, member in enumerate(members):
        alone = with_nodes(prepare(member, 128), HEADS, HORIZON)
        # A few float32 roundings of the parameters, of which the form keeps both mu and 1 - mu.
        in_stack, by_itself = (
            curve_of(x[0], x[1], 128)
            for x in ((together.rates[row], together.weights[row]), (alone.rates, alone.weights))
        )
        np.testing.assert_allclose(in_stack, by_itself, atol=1e-5)
        np.testing.assert_allclose(in_stack, as_discount(member).curve(128), atol=1e-5)


def test_nodes_once_chosen_stay_concrete_or_traced() -> None:
    once = with_nodes(prepare("hyperbolic:k=0.02", 16), HEADS, HORIZON)
    twice = with_nodes(once, HEADS, HORIZON)
    traced = jax.jit(lambda discount: with_nodes(discount, HEADS, HORIZON))(once)
    for other in (twice, traced):
        np.testing.assert_array_equal(other.rates, once.rates)
        np.testing.assert_array_equal(other.weights, once.weights)


def test_traced_nodes_are_padded_or_refused() -> None:
    def nodes(gamma: Any) -> Any:
        actual = with_nodes(prepare(as_discount(gamma), 16), 2, HORIZON)
        return actual.rates, actual.weights

    rates, weights = jax.jit(nodes)(jnp.float32(0.9))
    np.testing.assert_array_equal(rates, np.array([0.9, 0], np.float32))
    np.testing.assert_array_equal(weights, [1, 0])

    def many(discount: Any) -> Any:
        return with_nodes(prepare(discount, 64), HEADS, HORIZON).rates

    with pytest.raises(
        ValueError,
        match=r"^a mixture critic of 8 heads takes a traced discount of at most 8 .* got one of \d+; prepare",
    ):
        jax.jit(many)(as_discount("beta:mu=0.98,eta=0.5"))


@pytest.mark.parametrize("discount", ["fixed:horizon=10", "truncated:horizon=10,inner=(0.9)", "table:1,0.5"])
def test_a_discount_that_is_not_a_mixture_is_refused(discount: str) -> None:
    sentence = (
        r"^critic='mixture' takes a discount that is a mixture of exponentials, which {} is not; use critic='single'"
    )
    with pytest.raises(ValueError, match=sentence.format("custom")):
        with_nodes(prepare(discount, 16), HEADS, HORIZON, "custom")
    with pytest.raises(ValueError, match=sentence.format("the discount of setting 1")):
        with_nodes(prepare(stack(["0.9", discount]), 16), HEADS, HORIZON)
