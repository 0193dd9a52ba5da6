"""The learned optimiser against a float64 loop over parameters, and as Adam at its initial weights."""

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference.learned_optimiser import Corrected, random_optimiser

import jaxrl
from jaxrl.learning.composites import as_composite
from jaxrl.learning.optimisers import LearnedOptimiser, adam, optimiser_features

NUMBERS: dict[str, Any] = {"max_grad_norm": 3.0, "adam_b1": 0.8, "adam_b2": 0.95, "adam_eps": 1e-3}
LR, UPDATES = 0.02, 6


def gradients(seed: int) -> list[Any]:
    """Gradients of 12 parameters in two arrays, of very different sizes, some of them 0 or -0."""
    random, size = np.random.default_rng(seed), np.float32(10.0) ** np.arange(-4, 2)
    several = []
    for _ in range(UPDATES):
        kernel, bias = (random.normal(size=(2, 3)).astype(np.float32), random.normal(size=6).astype(np.float32) * size)
        kernel[0, 0], bias[1] = 0.0, -0.0
        several.append({"bias": bias, "kernel": kernel})
    return several


def start() -> Any:
    random = np.random.default_rng(9)
    return {"bias": np.zeros(6, np.float32), "kernel": random.normal(size=(2, 3)).astype(np.float32)}


@jax.jit
def trained(weights: LearnedOptimiser | None, params: Any, slopes: Any, shares: Any) -> Any:
    """Parameters after each of the updates."""
    hparams: Any = types.SimpleNamespace(**{name: jnp.float32(value) for name, value in NUMBERS.items()})

    def descend(carry: Any, each: Any) -> Any:
        params, state = carry
        slope, share = each
        descent = adam(hparams, jnp.float32(LR), None if weights is None else weights.at(share))
        updates, state = descent.update(slope, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    rule = None if weights is None else weights.at(shares[0])
    first = adam(hparams, jnp.float32(LR), rule).init(params)
    return jax.lax.scan(descend, (params, first), (jax.tree.map(lambda *each: jnp.stack(each), *slopes), shares))[1]


@pytest.mark.parametrize("seed", range(3))
def test_updates_are_those_of_float64(seed: int) -> None:
    weights, slopes, shares = random_optimiser(seed), gradients(seed), np.linspace(0, 1, UPDATES).astype(np.float32)
    after = trained(weights, start(), slopes, shares)
    reference = Corrected(weights, NUMBERS["adam_b1"], NUMBERS["adam_b2"], NUMBERS["adam_eps"])
    params = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start())]).astype(np.float64)
    for i, (slope, share) in enumerate(zip(slopes, shares, strict=True)):
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slope)]).astype(np.float64)
        flat *= min(1.0, NUMBERS["max_grad_norm"] / np.sqrt(np.sum(flat**2)))
        params = params - LR * reference.steps(flat, params, float(share))
        ours = np.concatenate([np.ravel(leaf[i]) for leaf in jax.tree.leaves(after)])
        # Steps of about 1, times exp(e) with |e| of a few, whose roundings are 1e-6.
        np.testing.assert_allclose(ours, params, rtol=2e-5, atol=2e-5)


def test_the_initial_weights_are_adam_bit_for_bit() -> None:
    shares = np.linspace(0, 1, UPDATES).astype(np.float32)
    for seed in range(3):
        plain = trained(None, start(), gradients(seed), shares)
        for width in (1, 4):
            ours = trained(LearnedOptimiser.initial(width), start(), gradients(seed), shares)
            jax.tree.map(_check_equal, ours, plain)
        others = trained(random_optimiser(0), start(), gradients(seed), shares)
        assert np.all(others["bias"][0] != plain["bias"][0]), "other weights move every parameter otherwise"


def _check_equal(ours: Any, plain: Any) -> None:
    """Equal bits; from JAX 0.11 on, XLA fuses the two programs differently, and each update rounds a parameter anew."""
    if jax.__version_info__ < (0, 11):
        np.testing.assert_array_equal(np.asarray(ours).view(np.int32), np.asarray(plain).view(np.int32))
    else:
        rounding = UPDATES * 2.0**-23
        np.testing.assert_allclose(ours, plain, rtol=rounding, atol=rounding * LR)


def test_all_weights_can_be_learned_from_the_start() -> None:
    shares, initial = np.linspace(0, 1, UPDATES).astype(np.float32), LearnedOptimiser.initial(4)
    slopes = [{"bias": each["bias"] + 0.1, "kernel": each["kernel"]} for each in gradients(0)]
    slope = jax.grad(lambda weights: jnp.sum(trained(weights, start(), slopes, shares)["bias"][-1]))(initial)
    assert np.all(np.asarray(slope.out) != 0) and np.all(np.asarray(slope.offset) != 0)
    assert initial == LearnedOptimiser.initial(4) and len(np.unique(initial.hidden)) == initial.hidden.size


def features(scale: float = 1.0, of_params: float = 1.0, eps: float = 0.0) -> Any:
    """Features of three parameters."""
    slope, param, size = np.asarray([[-3.0, 0.5, 1e-3], [1.0, 0.0, -9.0], [1.0, 0.5, 2.0]], np.float32)
    slope, param, size = np.float32(scale) * slope, np.float32(of_params) * param, np.float32(scale) * size + eps
    momenta = np.stack([slope, slope / 2, -slope])
    numbers = np.float32(0.3), np.float32(eps)
    return np.asarray(optimiser_features(*map(jnp.asarray, (slope, slope / size, size, momenta, param, *numbers))))


def test_features_are_bounded_and_free_of_units() -> None:
    for scale, of_params in ((1.0, 1.0), (1e6, 1e3), (1e-6, 1e-3)):
        np.testing.assert_allclose(features(scale, of_params), features(), rtol=1e-4, atol=1e-6)
        assert np.all(np.abs(features(scale, of_params, 1e-5)) <= 1)
    nothing = jnp.zeros(3)
    values = optimiser_features(nothing, nothing, nothing + 1e-5, jnp.zeros((3, 3)), nothing, jnp.ones(()), 1e-5)  # pyright: ignore[reportArgumentType]
    expected = [0, -1, 0, 0, 0, 0, 0, 0, 1]
    np.testing.assert_array_equal(values, np.broadcast_to(np.asarray(expected)[:, None], (9, 3)))


def test_weights_equal_those_built_from_their_string() -> None:
    weights = random_optimiser(7)
    assert as_composite(str(weights)) == weights and str(weights).startswith("learned-optimiser:")
    assert repr(weights) == "LearnedOptimiser(hidden[9, 3], bias[3], out[3, 2], offset[2])"
    with pytest.raises(ValueError, match="learned-optimiser has 12 numbers for each hidden unit and 2, got 9"):
        as_composite("learned-optimiser:1,2,3,4,5,6,7,8,9")
    with pytest.raises(ValueError, match=r"takes the shapes \(9, n\), \(n,\), \(n, 2\) and \(2,\), got \(9, 3\), "):
        LearnedOptimiser(np.ones((9, 3)), np.ones(3), np.ones((3, 1)), np.ones(1))


def test_weights_fit_the_configuration() -> None:
    with pytest.raises(ValueError, match="optimiser_width has no effect with an optimiser that is not learned, got 8"):
        jaxrl.PPOConfig(optimiser_width=8)
    with pytest.raises(TypeError, match=r"^optimiser takes a function .*, or 'learned', got 'learnt'$"):
        jaxrl.PPOConfig(optimiser="learnt")
    with pytest.raises(
        TypeError, match=r"such as 'optax:adamw', got 'learned'; on-policy algorithms alone take 'learned'$"
    ):
        jaxrl.DQNConfig(optimiser="learned")
    with pytest.raises(TypeError, match="optimiser takes a LearnedOptimiser, got a function"):
        jaxrl.A2CHParams(optimiser=optax.sgd)
