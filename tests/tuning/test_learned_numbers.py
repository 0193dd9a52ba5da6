"""Hyper-parameters within ranges as theta, and thetas by their names."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.tuning.learned.registry import theta_named

RANGES: dict[str, Any] = {
    "lr": jaxrl.LogUniform(1e-5, 1e-2),
    "lam": jaxrl.Uniform(0.5, 1.0),
    "discount.gamma": jaxrl.Uniform(0.9, 1.0),
}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=16, hidden=(4,)))


def value(number: float, low: float, high: float, logarithmic: bool) -> float:
    """Float64 reference of the value that a number stands for."""
    share = 1 / (1 + math.exp(-number))
    return low * (high / low) ** share if logarithmic else low + share * (high - low)


def test_numbers_start_at_their_own_values_and_stay_within_their_ranges(algo: Algorithm):
    theta = jaxrl.learned_numbers(algo, RANGES)
    hparams: Any = theta.apply(jax.tree.map(jnp.asarray, theta.initial), algo.hparams)
    np.testing.assert_allclose([hparams.lr, hparams.lam, hparams.discount.gamma], [2.5e-4, 0.95, 0.99], rtol=1e-5)
    for number in (-80.0, -1.3, 0.4, 80.0):
        moved: Any = theta.apply(dict.fromkeys(RANGES, jnp.float32(number)), algo.hparams)
        expected = [value(number, 1e-5, 1e-2, True), value(number, 0.5, 1.0, False), value(number, 0.9, 1.0, False)]
        np.testing.assert_allclose([moved.lr, moved.lam, moved.discount.gamma], expected, rtol=2e-5)
        ends = {"lr": (1e-5, 1e-2), "lam": (0.5, 1.0)}
        assert all(np.float32(low) <= getattr(moved, name) <= np.float32(high) for name, (low, high) in ends.items())
    assert moved.clip_eps == algo.hparams.clip_eps


def test_ranges_must_fit(algo: Algorithm):
    with pytest.raises(
        ValueError, match=r"^ranges takes ends on both sides of .* lr, 0.00025, got 0.01 to 0.1; its own"
    ):
        jaxrl.learned_numbers(algo, {"lr": jaxrl.Uniform(0.01, 0.1)})
    with pytest.raises(ValueError, match=r"^'learning_rate' is not a hyper-parameter of ppo; did you mean 'lr'"):
        jaxrl.learned_numbers(algo, {"learning_rate": jaxrl.Uniform(0.01, 0.1)})
    with pytest.raises(ValueError, match=r"^'discount' is not a number"):
        jaxrl.learned_numbers(algo, {"discount": jaxrl.Uniform(0.01, 0.1)})
    with pytest.raises(TypeError, match=r"^lr takes a range, Uniform or LogUniform, got 0.1$"):
        jaxrl.learned_numbers(algo, {"lr": 0.1})  # pyright: ignore[reportArgumentType]
    for path, high in (("lam", 1.2), ("discount.gamma", 1.1), ("adam_b1", 1.0)):
        message = rf"^ranges has an end of {path} that ppo does not take: .* got {high}"
        with pytest.raises(ValueError, match=message):
            jaxrl.learned_numbers(algo, {path: jaxrl.Uniform(0.5, high)})
    with pytest.raises(ValueError, match=r"^ranges takes at least one path"):
        jaxrl.learned_numbers(algo, {})


def test_thetas_have_names_and_are_learned_together(algo: Algorithm):
    theta = theta_named(algo, ["discount:curve", "lam=0.8:1"])
    assert theta.name == "discount + lam" and set(theta.initial) == {"discount", "lam"}
    hparams: Any = theta.apply(theta.initial, algo.hparams)
    np.testing.assert_allclose(hparams.discount.curve(100), 0.99 ** np.arange(101), atol=1e-6)
    assert float(hparams.lam) == pytest.approx(0.95)
    assert theta_named(algo, ["schedule:lr"]).name == "schedule of lr"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "^--theta takes names of numbers to learn"),
        (["drifts"], r"there is no theta 'drifts'; did you mean 'drift'\?"),
        (["drift"], r"^learned_drift takes PPO with PPOConfig\(drift='learned'\)"),
        (["lrr=1e-4:1e-3"], r"^'lrr' is not a hyper-parameter of ppo; did you mean 'lr'"),
        (["discount:line"], "^form must be one of mixture, curve, got 'line'$"),
        (
            ["discount", "discount:curve"],
            "^--theta takes one theta for each hyper-parameter, got discount and",
        ),
        (["discount", "discount.gamma=0.9:1"], "^--theta takes one theta for each hyper-parameter, got discount and"),
        (["schedule"], "^--theta takes schedule:NAME, such as schedule:lr, got schedule$"),
        (["drift:x"], "^--theta takes drift, got drift:x$"),
        (
            ["optimiser"],
            "^learned_optimiser takes an on-policy algorithm whose .* has optimiser='learned', got",
        ),
        (["optimiser:8"], "^--theta takes optimiser, got optimiser:8$"),
        (["lam=0.9,0.99"], "^--theta takes ranges, such as lam=1e-4:1e-2 or lam=log:1e-4:1e-2, got Choice"),
    ],
    ids=[
        "nothing",
        "spelling",
        "clip",
        "path",
        "form",
        "twice",
        "parameter",
        "schedule",
        "width",
        "adam",
        "units",
        "choice",
    ],
)
def test_wrong_names_are_refused(algo: Algorithm, words: list[str], message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        theta_named(algo, words)
