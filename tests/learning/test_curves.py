"""Curves of hyper-parameters over a run, against numpy.interp in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Curve
from jaxrl.learning.composites import as_composite, stack_composites

VALUES = (1e-3, 3e-4, 2e-3, 0.0)
AT = jax.jit(jax.vmap(Curve.at, in_axes=(None, 0)))


def test_a_curve_is_linear_between_its_points_and_exact_at_them() -> None:
    for values in (VALUES, VALUES[:2], (0.9, 1.0, 0.5), (-1.0, 2.0, 7.0, 7.0, -3.0)):
        shares = np.linspace(0, 1, 121).astype(np.float32)
        rounded = np.asarray(values, np.float32).astype(np.float64)
        exact = np.interp(shares.astype(np.float64), np.linspace(0, 1, len(values)), rounded)
        np.testing.assert_allclose(AT(Curve(values), shares), exact, rtol=0, atol=1e-6 * np.abs(values).max())
        for point in (0, len(values) - 1):
            assert AT(Curve(values), shares[[-1 if point else 0]])[0] == np.float32(values[point])


def test_a_curve_of_equal_values_has_that_value_bit_for_bit_and_another_stays_within_its_values() -> None:
    shares = np.random.default_rng(0).random(1000).astype(np.float32)
    for value in (0.1, 3e-4, 0.95):
        assert np.all(np.asarray(AT(Curve([value] * 5), shares)) == np.float32(value))
    for values in ((0.7, 1.0, 0.1), (1e-3, 0.0), (0.3, 1e-9, 0.0)):
        inside = np.asarray(AT(Curve(values), shares))
        assert inside.min() >= np.float32(min(values)) and inside.max() <= np.float32(max(values))


def test_a_stack_of_curves_has_the_values_of_each() -> None:
    curves = [Curve(VALUES), Curve(VALUES[::-1])]
    stack = stack_composites(curves)
    together = jax.vmap(Curve.at, in_axes=(0, None))(stack, jnp.float32(0.4))
    np.testing.assert_array_equal(together, [AT(curve, np.full(1, np.float32(0.4)))[0] for curve in curves])
    with pytest.raises(ValueError, match=r"equal shapes, got Curve\(\[1, 2\]\) and Curve\(\[1, 2, 3\]\)"):
        stack_composites([Curve([1, 2]), Curve([1, 2, 3])])


def test_a_curve_equals_the_one_built_from_its_string() -> None:
    curve = Curve(VALUES)
    assert str(curve) == "curve:0.001,0.0003,0.002,0" and as_composite(str(curve)) == curve
    assert hash(as_composite(" Curve: 0.001, 3e-4,0.002,0 ")) == hash(curve) and curve != Curve(VALUES[:2])
    assert as_composite("beta:0.98,0.5") is None and as_composite("0.1") is None
    assert jax.tree.unflatten(jax.tree.structure(curve), jax.tree.leaves(curve)) == curve
    with pytest.raises(AttributeError, match="Curve is immutable"):
        curve.values = VALUES
    for text, problem in (
        ("curve:1", "2 values or more"),
        ("curve:1,a", "'a' is not a number"),
        ("curve:1,inf", "finite"),
    ):
        with pytest.raises(ValueError, match=problem):
            as_composite(text)


@pytest.mark.parametrize(
    ("values", "kind", "problem"),
    [
        (0.1, TypeError, "takes a list of numbers"),
        ("1,2", TypeError, "takes a list of numbers"),
        ([1, "a"], TypeError, "takes a list of numbers"),
        ([1.0], ValueError, "takes 2 values or more"),
        ([[1.0, 2.0]], ValueError, "along one axis"),
        ([1.0, np.nan], ValueError, "takes finite values"),
    ],
)
def test_bad_values_of_curves_are_refused(values: Any, kind: Any, problem: str) -> None:
    with pytest.raises(kind, match=problem):
        Curve(values)


def test_fields_take_curves_within_their_ranges_and_no_second_schedule() -> None:
    curve = Curve([0.1, 0.5])
    hparams = jaxrl.PPOHParams(lr=curve, lam=curve, entropy_coef=curve, clip_eps=curve)
    assert hparams.curved == ["lr", "lam", "entropy_coef", "clip_eps"]
    with pytest.raises(ValueError, match=r"lam must lie in \[0, 1\], got 1.5 in curve:0.5,1.5"):
        hparams.replace(lam=Curve([0.5, 1.5]))
    for other, neutral in (("lr_end", "1"), ("clip_eps_end", "1"), ("entropy_decay_env_steps", "inf")):
        with pytest.raises(ValueError, match=f"{other} takes {neutral} where .* is a curve with its own end, got 5"):
            hparams.replace(**{other: 5.0})
    with pytest.raises(TypeError, match=r"value_coef takes a number, got Curve.*clip_eps of PPOHParams can be a Curve"):
        jaxrl.PPOHParams(value_coef=curve)
    with pytest.raises(TypeError, match=r"lr takes a number, got Curve.*no field of DQNHParams can be a Curve"):
        jaxrl.DQNHParams(lr=curve)
