"""Mixtures of given exponentials: curves, estimates, properties and errors against float64 sums and other families."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import advantages as reference

import envs
import jaxrl
from jaxrl.discounts import properties
from jaxrl.discounts.fitting import fit_mixture
from jaxrl.discounts.parsing import as_discount, prepare, stack
from jaxrl.learning.advantages import ugae

ULP = 2.0**-24
RATES, WEIGHTS = [0.0, 0.5, 0.9, 0.99, 1.0], [0.125, 0.0, 0.25, 0.5, 0.125]
TEXT = "mixture:0=0.125,0.5=0,0.9=0.25,0.99=0.5,1=0.125"


def exact(rates: Any, weights: Any, horizon: int) -> np.ndarray:
    """Gamma(0) ... Gamma(horizon) in float64, one delay and one rate after the other."""
    rates, weights = (np.asarray(each, np.float32).astype(np.float64) for each in (rates, weights))
    total = float(np.sum(weights))
    return np.array([sum(w * r**t for r, w in zip(rates, weights, strict=True)) / total for t in range(horizon + 1)])


def rollout(seed: int, length: int) -> Any:
    generator = np.random.default_rng(seed)
    floats = generator.normal(size=(3, length)).astype(np.float32)
    terminated, truncated = generator.random((2, length)) < 0.05
    return [*floats, terminated, terminated | truncated]


@st.composite
def mixtures(draw: Any) -> jaxrl.ExponentialMixture:
    rates = draw(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=6))
    shares = np.asarray([draw(st.integers(1, 9)) for _ in rates], np.float32)
    return jaxrl.ExponentialMixture(np.asarray(rates, np.float32), shares / shares.sum())


@given(mixtures())
def test_a_string_parses_back_and_a_curve_is_the_sum(mixture: jaxrl.ExponentialMixture) -> None:
    again: Any = as_discount(str(mixture))
    assert str(again) == str(mixture)
    np.testing.assert_array_equal(np.float32(again.rates), mixture.rates)
    np.testing.assert_array_equal(np.float32(again.weights), mixture.weights)
    assert hash(again) == hash(mixture)
    curve = np.asarray(mixture.curve(40))
    np.testing.assert_allclose(curve, exact(mixture.rates, mixture.weights, 40), rtol=1.01 * ULP, atol=1e-37)
    assert curve[0] == 1 and np.all(np.diff(curve) <= 0)


def test_strings_are_read_and_written_in_one_form() -> None:
    assert str(as_discount(" MIXTURE: .9 = 0.25 , 0.99=.75")) == "mixture:0.9=0.25,0.99=0.75"
    assert str(as_discount("mixture:1e-5=1.0")) == "mixture:1e-05=1"
    cut = "truncated:inner=(mixture:0.9=0.25,0.99=0.75),horizon=7"
    assert str(as_discount(cut)) == cut
    np.testing.assert_allclose(as_discount(cut).curve(9)[5:], [*exact([0.9, 0.99], [0.25, 0.75], 6)[5:], 0, 0, 0])


@pytest.mark.parametrize("horizon", [1, 40, 2000])
def test_traced_curves_and_steps_are_the_sum(horizon: int) -> None:
    expected = exact(RATES, WEIGHTS, horizon)
    arrays = jnp.float32(RATES), jnp.float32(WEIGHTS)
    traced = jax.jit(lambda rates, weights: jaxrl.ExponentialMixture(rates, weights).curve(horizon))(*arrays)
    np.testing.assert_allclose(traced, expected, rtol=(4 * horizon + 8) * ULP)
    # One step from the exact weight: a mean rate, rounded a few times; a power is off by its exponent, t log(rate).
    t = np.arange(horizon)
    for source in (TEXT, stack([TEXT, "0.9", "mixture:0.5=1"])):
        prepared = prepare(source, 16)
        prepared = prepared if isinstance(source, str) else jax.tree.map(lambda leaf: leaf[0], prepared)
        steps = prepared.next_weight(t, jnp.float32(expected[:-1]))
        np.testing.assert_allclose(steps, expected[1:], rtol=32 * ULP)
    assert prepare(TEXT, 4).next_weight(np.arange(3), np.zeros(3, np.float32)).tolist() == [0, 0, 0]


def test_steps_stay_on_a_curve_that_only_its_slowest_rate_still_has() -> None:
    prepared = prepare("mixture:0.5=0.75,0.9=0.25,0.99=0", 8)
    for t, rate in ((100, 0.9), (5000, 0.9), (100_000, 0.9)):
        step = float(prepared.next_weight(np.int32(t), np.float32(0.5)))
        assert step == pytest.approx(0.5 * rate, rel=1e-6)
    assert float(prepare("mixture:0=1", 8).next_weight(np.int32(0), np.float32(1))) == 0


def test_one_two_and_many_rates_are_other_families() -> None:
    length, data = 48, rollout(0, 48)
    beta = jaxrl.BetaWeighted(0.97, 0.7)
    pairs = [
        (jaxrl.ExponentialMixture([0.97], [1.0]), jaxrl.Exponential(0.97), 1),
        (jaxrl.ExponentialMixture([0.97, 0.0], [0.75, 0.25]), jaxrl.QuasiHyperbolic(0.75, 0.97), 2),
        (jaxrl.ExponentialMixture(*beta.mixture(length)), beta, beta.mixture(length)[0].shape[-1]),
    ]
    for mixture, family, count in pairs:
        own = prepare(mixture, length)
        assert own.rates.shape == (count,) and own.lags is None and own.mixture_curve is None
        np.testing.assert_allclose(mixture.curve(length), family.curve(length), rtol=2e-6)
        np.testing.assert_allclose(own.rates, prepare(family, length).rates, rtol=1e-6)
        for one, other in zip(ugae(mixture, 0.95, *data), ugae(family, 0.95, *data), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-5)
    one, other = (ugae(discount, 0.95, *data)[0] for discount in pairs[0][:2])
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_ugae_is_the_double_loop(lam: float) -> None:
    data = rollout(1, 40)
    expected, _ = reference.ugae(exact(RATES, WEIGHTS, 40), float(np.float32(lam)), *data)
    mixture, mixed = as_discount(TEXT), stack([TEXT, "beta:0.9,0.5", "fixed:9"])
    cut, _ = reference.ugae(np.where(np.arange(41) < 7, exact(RATES, WEIGHTS, 40), 0), float(np.float32(lam)), *data)
    jitted = jax.jit(ugae)
    for source in (mixture, prepare(mixture, 40), jax.tree.map(lambda leaf: leaf[0], prepare(mixed, 40))):
        np.testing.assert_allclose(jitted(source, lam, *data)[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jitted(as_discount(f"truncated:({TEXT}),7"), lam, *data)[0], cut, rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_differences() -> None:
    data = rollout(2, 24)

    def of_weights(weights: Any) -> Any:
        return jnp.sum(ugae(jaxrl.ExponentialMixture(jnp.float32([0.5, 0.9, 0.99]), weights), 0.9, *data)[0])

    def in_float64(weights: np.ndarray) -> float:
        curve = sum(
            w * np.float64(np.float32(r)) ** np.arange(25) for r, w in zip([0.5, 0.9, 0.99], weights, strict=True)
        )
        return float(np.sum(reference.ugae(curve / weights.sum(), float(np.float32(0.9)), *data)[0]))

    start, width = np.array([0.2, 0.3, 0.5]), 1e-6
    slopes = jax.grad(of_weights)(jnp.float32(start))
    differences = [(in_float64(start + d) - in_float64(start - d)) / (2 * width) for d in width * np.eye(3)]
    np.testing.assert_allclose(slopes, differences, rtol=1e-3, atol=1e-3)


def test_a_stack_holds_mixtures_of_any_number_and_other_families() -> None:
    texts = [TEXT, "mixture:0.9=0.25,0.99=0.75", "0.9", "quasi:0.7,0.9", "fixed:9", "hyperbolic:0.1", "table:1,0.5"]
    same = stack([TEXT, TEXT.replace("0.99=", "0.98=")])
    assert isinstance(same, jaxrl.ExponentialMixture) and same.rates.shape == (2, 5)
    for some in (texts, texts[:2], texts[:4], [TEXT, "0.9"]):
        batch, own = stack(some), np.stack([np.asarray(as_discount(text).curve(50)) for text in some])
        np.testing.assert_allclose(batch.curve(50), own, atol=1e-6)
        np.testing.assert_allclose(prepare(batch, 50).curve(50), own, atol=1e-6)
        many = jax.vmap(lambda each: each.curve(50))(jax.tree.map(jnp.float32, batch))
        np.testing.assert_allclose(many, own, atol=2e-5)
    assert prepare(stack(texts[:2]), 50).rates.shape == (2, 5)  # no exponential in excess
    assert prepare(stack(texts[:4]), 50).rates.shape == (4, 7)


def test_properties_are_those_of_long_sums() -> None:
    rates, weights = np.array([0.0, 0.6, 0.98], np.float32), np.array([0.25, 0.25, 0.5])
    mixture, quasi = jaxrl.ExponentialMixture(rates, weights), jaxrl.as_discount("quasi:0.7,0.98")
    curve = exact(rates, weights, 4000)
    mean = np.dot(rates.astype(float), weights)
    variance = np.dot((rates.astype(float) - mean) ** 2, weights)
    horizon = int(np.argmax(np.cumsum(curve) >= (1 - math.exp(-1)) * curve.sum()))
    mixed = stack([mixture, quasi, "beta:0.98,0.5"])
    for source in (mixture, jax.tree.map(jnp.float32, mixture)):
        for run in (lambda function, source=source: function(source), lambda f, source=source: jax.jit(f)(source)):
            assert run(properties.total_sum) == pytest.approx(curve.sum(), rel=2e-6)
            assert run(properties.effective_horizon) == horizon
            assert run(properties.rate_variance) == pytest.approx(variance, rel=1e-5)
            ratios = run(lambda d: properties.one_step_rates(d, 200))
            np.testing.assert_allclose(ratios, curve[1:201] / curve[:200], rtol=2e-6)
    for function in (properties.total_sum, properties.effective_horizon, properties.rate_variance):
        each = [float(function(one)) for one in (mixture, quasi, "beta:0.98,0.5")]
        np.testing.assert_allclose(function(mixed), each, rtol=1e-5)
    assert properties.total_sum(TEXT) == properties.effective_horizon(TEXT) == math.inf
    assert properties.total_sum("mixture:0.5=1,1=0") == pytest.approx(2)
    slowest = float(properties.effective_horizon(jaxrl.ExponentialMixture([1 - 2.0**-24], [1.0])))
    assert slowest == pytest.approx(2.0**24, rel=1e-6)
    cut = jaxrl.TruncatedDiscount(mixture, 30)
    assert properties.total_sum(cut) == pytest.approx(curve[:30].sum(), rel=1e-6)
    within = np.cumsum(curve[:30]) >= (1 - math.exp(-1)) * curve[:30].sum()
    assert properties.effective_horizon(cut) == np.argmax(within)


def test_fits_recover_weights_and_stay_near_other_curves() -> None:
    weights = [0.25, 0.0, 0.5, 0.25]
    mixture = jaxrl.ExponentialMixture([0.0, 0.8, 0.95, 0.99], weights)
    recovered = fit_mixture(mixture, mixture.rates, horizon=200)
    np.testing.assert_allclose(recovered.weights, weights, atol=1e-6)
    rates = 1 - 1 / np.geomspace(1, 800, 12)
    near = fit_mixture("hyperbolic:k=0.02", rates, horizon=200)
    assert np.abs(np.asarray(near.curve(200)) - jaxrl.Hyperbolic(0.02).curve(200)).max() < 1e-3
    # The least squares over the simplex: no shift of weight from one rate to another is nearer.
    powers, goal = rates ** np.arange(201)[:, None], np.asarray(jaxrl.Exponential(0.9).curve(200), np.float64)
    best = np.asarray(fit_mixture(0.9, rates, horizon=200).weights, np.float64)
    gradient = powers.T @ (powers @ best - goal)
    assert np.max(gradient[best > 1e-6]) - np.min(gradient) < 1e-5
    beta = jaxrl.fit(jaxrl.ExponentialMixture(*jaxrl.BetaWeighted(0.95, 0.5).mixture(100)), horizon=100)
    assert beta.mu == pytest.approx(0.95, abs=1e-5) and beta.eta == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: jaxrl.ExponentialMixture([0.9, 1.5], [0.5, 0.5]), ValueError, "rates must lie in [0, 1], got 1.5."),
        (lambda: jaxrl.ExponentialMixture([math.nan], [1]), ValueError, "rates must lie in [0, 1], got nan."),
        (lambda: jaxrl.ExponentialMixture([0.999999999], [1]), ValueError, "rates must lie in [0, 1] in float32 too"),
        (
            lambda: jaxrl.ExponentialMixture([0.9, 0.5], [1.5, -0.5]),
            ValueError,
            "weights must be at least 0 and finite",
        ),
        (lambda: jaxrl.ExponentialMixture([0.9, 0.5], [0.5, math.nan]), ValueError, "and finite, got nan."),
        (
            lambda: jaxrl.ExponentialMixture([0.9, 0.5], [0.5, 0.49]),
            ValueError,
            "weights must sum to 1, got weights that",
        ),
        (lambda: jaxrl.ExponentialMixture([0.9], [1 + 2.0**-22]), ValueError, "weights must sum to 1"),
        (
            lambda: jaxrl.ExponentialMixture([0.9, 0.5], [1.0]),
            ValueError,
            "of at least one exponential, got (2,) and (1,)",
        ),
        (lambda: jaxrl.ExponentialMixture([], []), ValueError, "rates and weights must have one shape"),
        (lambda: jaxrl.ExponentialMixture(0.9, 1.0), TypeError, "rates takes a sequence of numbers such as"),
        (lambda: jaxrl.ExponentialMixture([0.9], [True]), TypeError, "weights takes a number, got True."),
        (lambda: as_discount("mixture:0.9"), ValueError, "mixture takes rate=weight for each exponential, got '0.9'"),
        (lambda: as_discount("mixture:0.9=a"), ValueError, "'a' is not a number"),
        (
            lambda: as_discount("mixture:0.9=0.5,0.5=0.4"),
            ValueError,
            "weights must sum to 1, got weights that sum to 0.9",
        ),
        (lambda: fit_mixture(0.9, [1.5], horizon=9), ValueError, "rates must lie in [0, 1], got 1.5."),
        (lambda: fit_mixture(0.9, [0.5]), TypeError, "fit_mixture needs a horizon"),
    ],
)
def test_bad_arguments_of_mixtures_are_named_with_their_values(
    make: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as raised:
        make()
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("count", [1, 3, 12, 64, 1000])
def test_weights_of_a_softmax_in_float32_sum_to_1(count: int) -> None:
    logits = np.random.default_rng(count).normal(scale=5, size=(200, count)).astype(np.float32)
    jaxrl.ExponentialMixture(np.full((200, count), 0.9), jax.nn.softmax(logits))  # raises no error


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "td3"])
def test_heads_of_every_critic_are_its_exponentials(name: str) -> None:
    heads: Any = {
        "ppo": {"critic": "mixture", "critic_heads": 3},
        "dqn": {"heads": "joint", "num_heads": 3},
        "sac": {"heads": "joint", "num_heads": 3},
        "td3": {"heads": "joint", "num_heads": 3},
    }[name]
    env = envs.make("pendulum" if name in ("sac", "td3") else "cartpole")
    config = {"ppo": jaxrl.PPOConfig, "dqn": jaxrl.DQNConfig, "sac": jaxrl.SACConfig, "td3": jaxrl.TD3Config}[name]
    algo = getattr(jaxrl, name)(env, config(**heads))
    texts = ["mixture:0.5=0.25,0.9=0.25,0.98=0.5", "mixture:0.9=1", "0.9"]
    discount: Any = algo.prepare(jaxrl.grid(algo.hparams, {"discount": texts}).hparams, 3).discount
    np.testing.assert_allclose(np.sort(discount.rates[0]), [0.5, 0.9, 0.98], rtol=1e-6)
    np.testing.assert_allclose(discount.weights[0][np.argsort(discount.rates[0])], [0.25, 0.25, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(discount.rates[1], discount.rates[2])
    np.testing.assert_array_equal(discount.weights[1], discount.weights[2])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_training_under_one_rate_is_that_under_the_exponential(name: str, tmp_path: Path) -> None:
    env = envs.make("cartpole")
    if name == "ppo":
        algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=4, num_steps=32))
    else:
        algo = jaxrl.dqn(env, jaxrl.DQNConfig(heads="joint", num_heads=2, prefill=64, buffer_size=512))
    texts = ["mixture:0.9=1", "exp:gamma=0.9", "mixture:0.9=0.5,0.99=0.5", "mixture:0.9=0.5,0.99=0.5,0.5=0"]
    sweep = jaxrl.grid(algo.hparams, {"discount": texts})
    result = jaxrl.train(algo, sweep, seeds=2, env_steps=640, eval_episodes=4, out=tmp_path / name, block=8)
    for metric in ("return", "discounted_return"):
        values = result.metrics[metric].values
        np.testing.assert_allclose(values[0], values[1], rtol=1e-4)
        np.testing.assert_allclose(values[2], values[3], rtol=1e-4)
    assert np.any(result.metrics["discounted_return"].values[1] != result.metrics["discounted_return"].values[2])
    loaded = jaxrl.load_result(tmp_path / name)
    assert list(loaded.metrics["discount"].values) == texts
    restored: Any = loaded.hparams.discount
    np.testing.assert_allclose(restored.curve(30), result.hparams.discount.curve(30), rtol=1e-6)


def test_a_sweep_has_its_strings_as_coordinates() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=8))
    mixtures = [TEXT, "mixture:0.9=1", "0.9", jaxrl.ExponentialMixture([0.5, 0.75], [0.5, 0.5])]
    sweep = jaxrl.grid(algo.hparams, {"discount": mixtures})
    assert list(sweep.coords["discount"][1]) == [TEXT, "mixture:0.9=1", "exp:gamma=0.9", "mixture:0.5=0.5,0.75=0.5"]
    assert sweep.index(discount="mixture: 0.90=1") == 1
