"""The study on standing still: thresholds by brute force, episodes of walkers, its tables, and errors."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxrl
from bench.studies import STUDIES, least_effort, run_study, standing_still
from bench.studies.standing_still import Settings
from envs.crowd.crowd import Crowd
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result

E_S, E_W = 2.23, 1.26
BEST = np.sqrt(E_S / E_W)
SPEEDS = np.linspace(0, 2, 201)


def spent(speed: float, distance: float, weights: np.ndarray, interval: float) -> float:
    """Discounted energy of one walker at a constant speed, decision by decision."""
    total, left = 0.0, distance
    for weight in weights:
        walked = interval if speed * interval <= left else left / speed
        total += weight * (E_S + E_W * speed**2) * walked
        left -= speed * walked
    return total


def best_speed(distance: float, weights: np.ndarray, interval: float) -> float:
    return float(SPEEDS[np.argmin([spent(speed, distance, weights, interval) for speed in SPEEDS])])


@pytest.mark.parametrize(("interval", "decisions"), [(0.1, 200), (1 / 12, 200), (1 / 12, 60)])
def test_standing_is_best_beyond_half_the_distance_walked_within_the_limit(interval: float, decisions: int) -> None:
    weights = np.ones(decisions)
    threshold = interval * decisions * BEST / 2
    for share in (0.3, 0.7, 0.99):
        # A grid of 1 cm/s: the cheapest of it is next to v*.
        assert abs(best_speed(share * threshold, weights, interval) - BEST) <= 0.01
    for share in (1.01, 1.3, 1.9):
        assert best_speed(share * threshold, weights, interval) == 0


@pytest.mark.parametrize("discount", ["exp:gamma=1", "exp:gamma=0.99", "hyperbolic:k=0.01", "fixed:horizon=50"])
@pytest.mark.parametrize("distance", [2.0, 7.0, 14.0])
def test_the_reference_is_the_cheapest_constant_speed(discount: str, distance: float) -> None:
    weights = np.asarray(jaxrl.as_discount(discount).curve(200), np.float64)[:200]
    speed, cost = least_effort.cheapest(distance, weights)
    slow = [spent(each, distance, weights, least_effort.INTERVAL) for each in SPEEDS]
    # The reference's grid holds every speed of this one, and steps between them that may be cheaper.
    assert cost <= min(slow) * (1 + 1e-9)
    assert cost == pytest.approx(spent(speed, distance, weights, least_effort.INTERVAL), rel=1e-9)


@pytest.mark.parametrize("discount", ["exp:gamma=1", "exp:gamma=0.97", "hyperbolic:k=0.05"])
@pytest.mark.parametrize("distance", [1.0, 3.0, 7.0])
def test_no_change_of_speeds_gets_below_the_least(discount: str, distance: float) -> None:
    weights = np.asarray(jaxrl.as_discount(discount).curve(200), np.float64)[:200]
    bound = least_effort.least(distance, weights)
    assert bound <= least_effort.cheapest(distance, weights)[1] * (1 + 1e-6)
    generator = np.random.default_rng(0)
    costs = []
    for decisions in range(5, 201, 5):
        for change in (0.0, 0.02, 0.3):
            speeds = np.exp(change * generator.normal(size=decisions)) / weights[:decisions]
            speeds *= distance / (speeds.sum() * least_effort.INTERVAL)
            costs.append(np.sum(weights[:decisions] * (E_S + E_W * speeds**2)) * least_effort.INTERVAL)
    standing = E_S * least_effort.INTERVAL * weights.sum()
    assert min(*costs, standing) >= bound * (1 - 1e-6)
    # Some of the walks are nearly the best: 5 decisions apart, without changes.
    assert min(*costs, standing) <= bound * 1.01


def test_weights_that_vanish_leave_nothing_to_save() -> None:
    weights = np.array([1.0] * 10 + [0.0] * 190)
    assert least_effort.least(5.0, weights) == pytest.approx(E_S * 10 * least_effort.INTERVAL)


def test_the_undiscounted_threshold_is_the_closed_form_and_falls_with_impatience() -> None:
    assert abs(least_effort.THRESHOLD - 200 / 12 * BEST / 2) < 1e-9
    # Times are tried in hundredths of a decision: 0.0004 s of 8.3 s costs (0.0004 / 8.3)^2 of the energy.
    assert least_effort.threshold("exp:gamma=1") == pytest.approx(least_effort.THRESHOLD, rel=1e-7)
    actual = [least_effort.threshold(each) for each in ("exp:gamma=0.999", "exp:gamma=0.99", "exp:gamma=0.95")]
    assert least_effort.THRESHOLD > actual[0] > actual[1] > actual[2] > 0


@pytest.mark.slow_rows("0.1")
@pytest.mark.parametrize("share", [0.1, 0.7, standing_still.LONGEST_SHARE])
def test_the_walker_has_the_way_and_the_time_that_are_said(share: float) -> None:
    env = standing_still.algorithm().env
    params = standing_still.pure_params(Settings())
    params = dataclasses.replace(
        params, scenario=dataclasses.replace(params.scenario, radius=standing_still.radius_of(share))
    )
    obs, state = jax.jit(env.reset_env)(jax.random.key(0), params)
    # A circle's cosine of pi is exact, and so are sums of numbers below 16 up to a few roundings of 2^-20.
    np.testing.assert_allclose(state.totals["way"], share * least_effort.THRESHOLD, atol=8 * 2.0**-20)
    assert params.dt * 10 * params.max_steps_in_episode == pytest.approx(least_effort.TIME_LIMIT)
    assert float(obs["remaining_time"][0, 0]) == 1
    assert float(np.max(np.abs(state.walkers.position))) + 0.2 < 9.75  # the walls


def test_the_first_stage_teaches_a_share_of_the_preferred_speed_and_the_second_is_pure_energy() -> None:
    settings = Settings(lessons=(0.25,), lesson_share=0.5, env_steps=1000)
    params = standing_still.pure_params(settings)
    env = Crowd("circle", num_agents=1)
    first, second = (env.params_at(params, steps).weights for steps in (499, 500))
    gain = (
        first.potential * 2 * np.sqrt(E_S * E_W) * SPEEDS - first.bmr * E_S - first.drag * E_W * SPEEDS**2
    )  # per second, straight on
    assert abs(SPEEDS[np.argmax(gain)] - 0.25 * BEST) <= 0.005 + 1e-9  # half a step of the grid
    weights = {field.name: float(getattr(second, field.name)) for field in dataclasses.fields(second)}
    usual = {"bmr": 1.0, "drag": 1.0, "speed_exponent": 1.0, "matching_exponent": 2.0, "sigma": 0.85}
    assert weights == pytest.approx(dict.fromkeys(weights, 0.0) | usual)


def result(settings: Settings, **metrics: Any) -> Result:
    """A result whose four seeds have these numbers in every setting, of one discount at two distances."""
    algo = standing_still.algorithm()
    radius = [standing_still.radius_of(share) for share in settings.shares]
    axes = {"discount": settings.discounts, "env.weights.potential": settings.lessons, "env.scenario.radius": radius}
    sweep = jaxrl.grid(algo.hparams, axes)
    values = {name: np.asarray(each, np.float32)[:, :, None] for name, each in metrics.items()}
    return Result(metrics_dataset(values, seeds=range(4), env_steps=[100], sweep=sweep), None)


def test_the_table_counts_walking_and_standing_runs() -> None:
    settings = Settings(shares=(0.7, 1.3), discounts=("1",), lessons=(0.5,), seeds=4)
    near, far = (least_effort.least(share * least_effort.THRESHOLD, np.ones(200)) for share in (0.7, 1.3))
    actual = result(
        settings,
        success=[[1, 1, 1, 0], [0, 0, 0, np.nan]],
        mean_speed=[[1.3, 1.3, 1.3, 0.4], [0.0, 0.01, 0.3, 0.0]],
        discounted_return=[[-1.02 * near] * 4, [-far] * 4],
        energy=[[30.0] * 4, [40.0] * 4],
        optimum=[[30.0] * 4, [50.0] * 4],
    )
    frame = standing_still.standing(actual, settings)[0.5]
    assert frame["best"].tolist() == ["walk", "stand"]
    assert frame["walk"].tolist() == ["3 of 4", "0 of 4"]
    assert frame["stand"].tolist() == ["0 of 4", "2 of 4"]  # one continues without arriving, one failed
    assert frame["as is best"].tolist() == ["3 of 4", "2 of 4"]
    assert frame["cost / least"].tolist() == pytest.approx([1.02, 1.0], rel=1e-6)
    assert frame["energy / optimum"].tolist() == pytest.approx([1.0, 0.8])


def test_the_table_of_walking_counts_runs_near_the_optimal_energy_and_speed() -> None:
    settings = Settings(shares=(1.0,), discounts=("1",), lessons=(0.5,))
    actual = result(
        settings,
        energy_plus=[[10.1, 10.2, 10.4, 10.2]],
        optimum=[[10.0] * 4],
        mean_speed=[[BEST, 0.98 * BEST, BEST, 0.95 * BEST]],
        success=[[1.0] * 4],
    )
    (row,) = standing_still.walking({"2022": actual}).to_dict("records")
    assert row["within 3 %"] == "2 of 4"
    assert row["energy-plus / optimum"] == pytest.approx(1.02)
    assert row["mean speed / v*"] == pytest.approx(0.99, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"shares": ()}, r"^shares takes one or more different values, got none$"),
        ({"shares": (0.7, 0.7)}, r"^shares takes one or more different values, got 0\.7 0\.7$"),
        ({"shares": (2.0,)}, r"^shares takes numbers in \(0, 1\.5\], the limit of the arena, got 2\.0$"),
        ({"discounts": ("exp:gamma=2",)}, r"gamma must"),
        ({"discounts": ("expo:gamma=1",)}, r"'?expo'?"),
        ({"lessons": (0.5, 2.0)}, r"^lessons takes numbers in \[0, 1\], got 2\.0$"),
        ({"lessons": (0.5, 0.5)}, r"^lessons takes one or more different values, got 0\.5 0\.5$"),
        ({"lesson_share": 1.0}, r"^lesson_share must lie in \(0, 1\), got 1\.0$"),
        ({"seeds": 1}, r"^seeds must be a whole number of at least 2, got 1$"),
        ({"evals": 0}, r"^evals must be a whole number of at least 1, got 0$"),
    ],
)
def test_invalid_settings_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**changes)


@pytest.mark.slow
def test_a_small_study_writes_its_tables_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(
        shares=(0.3, 1.3),
        discounts=("exp:gamma=1", "hyperbolic:k=0.01"),
        lessons=(0.5, 0.0),
        seeds=2,
        env_steps=3200,
        guided_env_steps=1600,
        evals=1,
        eval_episodes=1,
    )
    study = run_study(STUDIES["standing-still"], settings, tmp_path / "out", progress=False)
    names = {file.name for file in study.directory.iterdir()}
    assert {
        "walking.md",
        "standing_0.5.md",
        "standing_0.md",
        "thresholds.md",
        "standing_still.png",
    } <= names
    assert "the threshold T v* / 2 is 11.086 m" in capsys.readouterr().out
    loaded = jaxrl.load_result(study.directory / "pure_energy", algo=standing_still.algorithm())
    assert loaded.metrics["success"].shape == (2, 2, 2, 2, 1)
    # A walker that does not arrive is active all of the time.
    awake = loaded.metrics["energy"].values >= E_S * least_effort.TIME_LIMIT * (1 - 1e-5)
    assert np.all(awake | (loaded.metrics["success"].values == 1))
