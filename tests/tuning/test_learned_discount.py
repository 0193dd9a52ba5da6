"""A learned discount: both maps from theta against float64 loops, their starts, and trainings of a population."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest

import envs
import jaxrl
from jaxrl.discounts.parsing import as_discount
from jaxrl.discounts.properties import partial_sum
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.learned.discount import hazard_curve, learned_discount, learned_rates
from jaxrl.tuning.outer.probes import require_effect

ULP = 2.0**-24
HORIZON = 60
THETAS = np.random.default_rng(0).normal(-3, 3, size=(20, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def algo() -> Any:
    return jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=16))


def softmax_mixture(theta: np.ndarray, rates: np.ndarray, horizon: int) -> np.ndarray:
    """Gamma(0) ... Gamma(horizon) in float64, one exponential after the other."""
    shares = [math.exp(float(number)) for number in theta]
    curve = np.zeros(horizon + 1)
    for share, rate in zip(shares, rates.astype(np.float32), strict=True):
        curve += share / math.fsum(shares) * float(rate) ** np.arange(horizon + 1)
    return curve


def survival(theta: np.ndarray, horizon: int, length: int | None = None) -> np.ndarray:
    """Gamma(0) ... Gamma(length) in float64 by its definition, one step after the other."""
    size, total, curve = len(theta), 0.0, [1.0]
    for step in range(length or horizon):
        # 0 at delay 0, size - 1 at the last one and beyond
        place = (size - 1) * min(1.0, math.log(1 + step) / math.log(horizon))
        left = min(int(place), size - 2)
        height = float(theta[left]) + (place - left) * (float(theta[left + 1]) - float(theta[left]))
        total += math.log1p(math.exp(-abs(height))) + max(height, 0.0)
        curve.append(math.exp(-total))
    return np.array(curve)


def curves(theta: Any, thetas: Any, hparams: Any, horizon: int) -> np.ndarray:
    """Curves of the hyper-parameters of a population, applied in one program."""
    many = jax.jit(jax.vmap(lambda each: theta.apply(each, hparams)))(thetas)
    return np.asarray(many.discount.curve(horizon), np.float64)


def test_a_mixture_is_that_of_a_softmax(algo: Any) -> None:
    theta = learned_discount(algo, size=6, horizon=HORIZON)
    rates = np.asarray(theta.apply(theta.initial, algo.hparams).discount.rates)
    assert rates[0] == 0 and rates[-1] == pytest.approx(1 - 1 / (4 * HORIZON))
    scales = 1 / (1 - learned_rates(6, HORIZON, as_discount("hyperbolic:1")))
    np.testing.assert_allclose(scales[1:] / scales[:-1], (4 * HORIZON) ** 0.2, rtol=1e-6)
    actual = curves(theta, THETAS, algo.hparams, HORIZON)
    expected = [softmax_mixture(each, rates, HORIZON) for each in THETAS]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert np.all(actual[:, 0] == 1) and np.all(np.diff(actual) <= 0)


def test_a_curve_is_that_of_a_hazard_rate(algo: Any) -> None:
    theta = learned_discount(algo, "curve", size=6, horizon=HORIZON)
    actual = curves(theta, THETAS, algo.hparams, 503)
    expected = np.array([survival(each, HORIZON, 500) for each in THETAS])
    np.testing.assert_allclose(actual[:, :501], expected, rtol=1e-3, atol=1e-30)
    large = expected > 0.1  # where the sum of hazards is not large, and so its rounding is small
    np.testing.assert_allclose(actual[:, :501][large], expected[large], rtol=64 * ULP)
    assert np.all(actual[:, 0] == 1) and np.all(np.diff(actual) <= 0)
    assert np.all(actual[:, 501:] == 0)  # beyond the time limit


@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_a_curve_never_grows_in_float32(scale: float) -> None:
    thetas = np.random.default_rng(1).normal(-12, scale, size=(64, 8)).astype(np.float32)
    many = np.asarray(jax.vmap(lambda each: hazard_curve(each, 3000))(thetas))
    assert np.all(many[:, 0] == 1) and np.all(np.diff(many) <= 0) and np.all(many >= 0)
    for each in many[:4]:
        jaxrl.Tabulated(each)  # raises no error


@pytest.mark.slow_rows("curve")
@pytest.mark.parametrize("form", ["mixture", "curve"])
def test_derivatives_are_those_of_differences(form: Any, algo: Any) -> None:
    theta = learned_discount(algo, form, size=6, horizon=HORIZON)

    def total(each: Any) -> Any:
        return partial_sum(theta.apply(each, algo.hparams).discount, HORIZON)

    def in_float64(each: np.ndarray) -> float:
        if form == "curve":
            return float(survival(each, HORIZON)[:HORIZON].sum())
        rates = np.asarray(theta.apply(theta.initial, algo.hparams).discount.rates)
        return float(softmax_mixture(each, rates, HORIZON)[:HORIZON].sum())

    slopes = jax.jit(jax.vmap(jax.grad(total)))
    for each, slope in zip(THETAS[:4].astype(np.float64), slopes(THETAS[:4]), strict=True):
        steps = 1e-5 * np.eye(6)
        differences = [(in_float64(each + step) - in_float64(each - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(slope, differences, rtol=2e-3, atol=2e-4)
    far = np.array([[-80] * 6, [80] * 6, [80, -80] * 3], np.float32)
    assert np.all(np.isfinite(slopes(far)))


@pytest.mark.parametrize(
    ("start", "mixture", "curve"),
    [
        (None, 0.016, 2e-7),  # the algorithm's own, 0.99
        ("0.9", 0.025, 2e-7),
        ("1", 0.045, 0.011),
        ("0", 0.045, 2e-7),
        ("hyperbolic:k=0.02", 0.013, 5e-4),
        ("beta:mu=0.98,eta=0.5", 0.013, 5e-4),
        ("quasi:beta=0.7,gamma=0.99", 0.01, 3e-3),
        (jaxrl.hazards.UniformHazard(0.0, 0.05), 0.02, 2e-3),
    ],
)
def test_learning_starts_near_a_discount(start: Any, mixture: float, curve: float, algo: Any) -> None:
    goal = np.asarray((algo.hparams.discount if start is None else as_discount(start)).curve(500), np.float64)
    for form, most in (("mixture", mixture), ("curve", curve)):
        theta: Any = learned_discount(algo, form, start, horizon=500)  # type: ignore[arg-type]
        assert theta.name == "discount" and theta.initial.dtype == np.float32
        assert theta.initial.shape == ((12,) if form == "mixture" else (8,)) and np.all(np.abs(theta.initial) <= 20)
        begun = theta.apply(theta.initial, algo.hparams).discount.curve(500)
        assert np.max(np.abs(np.asarray(begun, np.float64) - goal)) < most


@pytest.mark.parametrize(
    ("start", "num_steps", "horizon", "size"),
    [
        (None, 16, 16, 8),
        (None, 128, 128, 8),
        (None, 1024, 500, 8),
        ("0.5", 128, 19, 8),
        ("0", 128, 2, 2),
        (0.9, 5, 5, 5),
    ],
)
def test_every_number_of_a_curve_is_read_by_a_rollout(start: Any, num_steps: int, horizon: int, size: int) -> None:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=num_steps, num_minibatches=1, hidden=(4,))
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    theta: Any = learned_discount(algo, "curve", start)
    assert theta.apply.horizon == horizon and theta.initial.shape == (size,)
    goal = np.asarray((algo.hparams.discount if start is None else as_discount(start)).curve(horizon), np.float64)
    curve = jax.jit(lambda each: theta.apply(each, algo.hparams).discount.curve(min(num_steps, 500)))
    begun = np.asarray(curve(theta.initial), np.float64)
    np.testing.assert_allclose(begun[: horizon + 1], goal, atol=2e-7)
    for number in range(size):  # of which none changes only lags beyond the rollout
        moved = theta.initial + 0.25 * np.eye(size, dtype=np.float32)[number]
        assert not np.array_equal(curve(moved), begun.astype(np.float32)), number
    require_effect(theta, algo._replace(hparams=dataclasses.replace(algo.hparams, discount=as_discount(0.99))))


@pytest.mark.parametrize("horizon", range(2, 20))
def test_the_largest_size_of_a_curve_is_the_last_with_an_effect_of_each_number(horizon: int, algo: Any) -> None:
    def moves(size: int) -> bool:
        """Whether each number of theta changes a curve in float64."""
        theta = np.full(size, -3.0)
        curve = survival(theta, horizon)
        return all(not np.array_equal(survival(theta + row, horizon), curve) for row in 0.25 * np.eye(size))

    most = max(size for size in range(2, horizon + 1) if all(moves(each) for each in range(2, size + 1)))
    assert learned_discount(algo, "curve", horizon=horizon, size=most).initial.shape == (most,)
    with pytest.raises(ValueError, match=f"^size must be at most {most} for a curve over {horizon} steps"):
        learned_discount(algo, "curve", horizon=horizon, size=most + 1)


def test_the_start_moves_with_the_spread_and_keeps_the_rates_of_a_mixture(algo: Any) -> None:
    own = jaxrl.ExponentialMixture([0.0, 0.8, 0.97], [0.25, 0.25, 0.5])
    theta = learned_discount(algo, start=own, size=3, spread=1e-3)
    begun: Any = theta.apply(theta.initial, algo.hparams).discount
    np.testing.assert_allclose(begun.rates, own.rates, rtol=1e-6)
    np.testing.assert_allclose(begun.weights, own.weights, atol=1e-3)
    with pytest.warns(
        RuntimeWarning, match=r"starts at a curve that differs from fixed:horizon=50 by up to 0\.\d+, at a"
    ):
        learned_discount(algo, start="fixed:horizon=50")


def test_algorithms_with_heads_learn_as_many_rates() -> None:
    env = envs.make("cartpole")
    several = [
        jaxrl.ppo(env, jaxrl.PPOConfig(critic="mixture", critic_heads=5)),
        jaxrl.dqn(env, jaxrl.DQNConfig(heads="joint", num_heads=5)),
    ]
    for algo in several:
        theta = learned_discount(algo)
        batch = jax.vmap(lambda each, theta=theta, algo=algo: theta.apply(each, algo.hparams))(THETAS[:3, :5])
        prepared = algo.prepare(jax.tree.map(np.asarray, batch), 3)
        rates = theta.apply(theta.initial, algo.hparams).discount.rates
        np.testing.assert_allclose(prepared.discount.rates, np.tile(rates, (3, 1)), rtol=1e-6)
        np.testing.assert_allclose(prepared.discount.weights, jax.nn.softmax(THETAS[:3, :5]), rtol=1e-5)
        with pytest.raises(ValueError, match=f"form must be 'mixture' for {algo.name}, whose heads are exponentials"):
            learned_discount(algo, "curve")


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"form": "curves"}, ValueError, "form must be one of mixture, curve, got 'curves'"),
        ({"size": 1}, ValueError, "size must be a whole number of at least 2, got 1"),
        (
            {"form": "curve", "size": 9, "horizon": 5},
            ValueError,
            "size must be at most 5 for a curve over 5 steps",
        ),
        ({"horizon": 1}, ValueError, "horizon must be a whole number of at least 2, got 1"),
        ({"spread": 0}, ValueError, "spread must be a number in (0, 1), got 0"),
        ({"start": "bta:0.9"}, ValueError, "did you mean 'beta'"),
        ({"start": [0.9]}, TypeError, "A discount is a number"),
    ],
)
def test_a_wrong_argument_is_named(options: Any, error: type[Exception], sentence: str, algo: Any) -> None:
    with pytest.raises(error) as raised:
        learned_discount(algo, **options)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


def test_algorithms_that_learn_by_no_such_discount_are_refused(algo: Any) -> None:
    with pytest.raises(ValueError, match=r"takes dqn with DQNConfig\(heads='joint'\), got heads='single'"):
        learned_discount(jaxrl.dqn(envs.make("cartpole")))
    with pytest.raises(TypeError, match="takes an algorithm with a discount, which ppo does not have"):
        learned_discount(algo._replace(hparams=()))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["mixture", "curve"])
def test_a_population_trains_in_one_program_as_each_member_does(form: Any, algo: Any) -> None:
    theta = learned_discount(algo, form)
    thetas = theta.initial + np.array([[0.0], [0.5], [-0.5]], np.float32) * np.linspace(
        -1, 1, theta.initial.size, dtype=np.float32
    )
    hparams = jax.tree.map(np.asarray, jax.vmap(lambda each: theta.apply(each, algo.hparams))(thetas))
    names = ["start", "up", "down"]
    sweep = Sweep(
        hparams, {}, ("member",), (3,), {"member": (("member",), np.asarray(names))}, [{"member": m} for m in names]
    )
    options: Any = {"seeds": 2, "env_steps": 256, "evals": 2, "eval_episodes": 4, "block": 2}
    together = jaxrl.train(algo, sweep, **options)
    assert together.metrics["return"].dims[:1] == ("member",) and together.metrics["return"].shape == (3, 2, 2)
    assert np.all(np.isfinite(together.metrics["discounted_return"]))
    for member in range(3):
        discount: Any = jax.tree.map(lambda leaf, member=member: np.asarray(leaf)[member], hparams.discount)
        alone = jaxrl.train(algo, algo.hparams.replace(discount=discount), **options)
        for metric in ("return", "discounted_return"):
            np.testing.assert_array_equal(together.metrics[metric].values[member], alone.metrics[metric].values)
    assert np.any(together.metrics["discounted_return"].values[0] != together.metrics["discounted_return"].values[1])
