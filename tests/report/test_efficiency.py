"""Environment steps until runs reach a level, compared with slow searches and exact coverage."""

import math

import numpy as np
import pytest
import scipy.stats

import jaxrl
from jaxrl.report.efficiency import first_steps, median_interval
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result


def result_of(values: np.ndarray, environment: str = "cartpole", metric: str = "return") -> Result:
    """Metrics `[seeds, points]` of a result, evaluated after every 100 steps."""
    points = values.shape[1]
    attrs = {"algorithm": "ppo", "environment": environment}
    data = {metric: values[None].astype(np.float32)}
    steps = [100 * (i + 1) for i in range(points)]
    return Result(metrics_dataset(data, seeds=range(len(values)), env_steps=steps, attrs=attrs), {})


def slow_first_step(values: np.ndarray, good: np.ndarray, steps: np.ndarray, level: float) -> float:
    """The first of a fine grid of steps at which the interpolated run is at the level."""
    begun = next((i for i, each in enumerate(values) if np.isfinite(each)), len(good))
    values, good, steps = values[begun:], good[begun:], steps[begun:]
    ended = next((i for i, each in enumerate(good) if not each), len(good))
    if ended == 0:
        return math.inf
    for step in np.arange(steps[0], steps[ended - 1] + 0.25, 0.5):
        if np.interp(step, steps[:ended], values[:ended]) >= level:
            return float(step)
    return math.inf


@pytest.mark.parametrize("direction", [1, -1])
def test_first_steps_are_those_of_a_slow_search(direction: int) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(40, 6)).cumsum(axis=1)
    finite = generator.random((40, 6)) > 0.1
    finite = np.minimum.accumulate(finite, axis=1)
    steps = np.asarray([10, 20, 40, 50, 80, 100])
    values[finite[:, 0] & (np.arange(40) % 2 == 0), 0] = np.nan  # of a metric that begins later
    assert np.any(np.isnan(values[:, 0]) & finite[:, 1] & (values[:, 1] >= 1.0))
    got = first_steps(values * direction, finite, steps, 1.0 * direction, direction)
    expected = np.asarray([slow_first_step(*row, steps, 1.0) for row in zip(values, finite, strict=True)])
    assert np.isinf(expected).sum() in range(5, 36)  # both kinds occur
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    reached = np.isfinite(expected)
    np.testing.assert_allclose(got[reached], expected[reached], atol=0.5)  # width of the grid


@pytest.mark.parametrize("count", [6, 8, 17, 32])
def test_the_interval_of_a_median_has_its_nominal_coverage(count: int) -> None:
    """The ranks are the narrowest whose binomial probability is at least the confidence."""
    _, low, high = median_interval(np.arange(1.0, count + 1), 0.95)
    lower, upper = int(low), int(high)
    assert lower + upper == count + 1

    def coverage(rank: int) -> float:
        return float(scipy.stats.binom.cdf(count - rank, count, 0.5) - scipy.stats.binom.cdf(rank - 1, count, 0.5))

    assert coverage(lower) >= 0.95 > coverage(lower + 1)


def test_intervals_of_few_and_infinite_values_are_nan_and_infinite() -> None:
    assert all(map(math.isnan, median_interval(np.zeros(0), 0.95)))
    median, low, high = median_interval(np.asarray([3.0, 1.0, 2.0]), 0.95)
    assert median == 2.0 and math.isnan(low) and math.isnan(high)
    median, low, high = median_interval(np.asarray([1.0] * 3 + [np.inf] * 5), 0.95)
    assert median == math.inf and low == 1.0 and high == math.inf
    assert median_interval(np.asarray([1.0, 3.0]), 0.5)[0] == 2.0


def test_a_comparison_has_the_steps_to_a_level() -> None:
    fast, slow = np.tile([0.0, 10.0, 20.0], (8, 1)), np.tile([0.0, 5.0, 10.0], (8, 1))
    slow[:5] = 0.0
    comparison = jaxrl.compare({"fast": result_of(fast), "slow": result_of(slow)})
    rows = comparison.steps_to(10.0).to_pandas().set_index("name")
    assert rows.loc["fast", ["median", "low", "high", "reached", "seeds"]].tolist() == [200.0, 200.0, 200.0, 1.0, 8]
    assert rows.loc["slow", "median"] == math.inf and rows.loc["slow", "reached"] == pytest.approx(3 / 8)
    assert "200" in str(comparison.steps_to(10.0, "cartpole"))


def test_a_metric_of_training_counts_from_its_first_value() -> None:
    """With `eval_at_start=True` it is nan at step 0, in all runs."""
    values = np.tile([np.nan, 10.0, 20.0], (1, 8, 1)).astype(np.float32)
    attrs = {"algorithm": "ppo", "environment": "cartpole"}
    metrics = {"return": np.nan_to_num(values), "reward": values}
    results = {
        name: Result(metrics_dataset(metrics, seeds=range(8), env_steps=[0, 100, 200], attrs=attrs), {})
        for name in ("one", "other")
    }
    comparison = jaxrl.compare(results, metric="reward")
    assert [row[1:5] for row in comparison.steps_to(5.0).rows] == [(100.0, 100.0, 100.0, 1.0)] * 2
    assert [row[1:5] for row in comparison.steps_to(15.0).rows] == [(150.0, 150.0, 150.0, 1.0)] * 2
    assert jaxrl.compare(results).steps_to(5.0).rows[0][1] == 50.0


def test_steps_count_up_to_the_last_that_all_lines_have() -> None:
    long, short = np.tile([0.0, 5.0, 10.0, 20.0], (6, 1)), np.tile([0.0, 10.0], (6, 1))
    comparison = jaxrl.compare({"long": result_of(long), "short": result_of(short)})
    assert comparison.steps["cartpole"] == 200
    rows = comparison.steps_to(10.0).to_pandas().set_index("name")
    assert rows.loc["long", "median"] == math.inf and rows.loc["short", "median"] == 200.0
    one_late = np.concatenate([short[:5], np.zeros((1, 2))])
    text = str(jaxrl.compare({"one": result_of(one_late), "other": result_of(short)}).steps_to(10.0))
    assert "[200, inf]" in text and "within 200" in text


def test_bad_levels_and_tasks_are_one_sentence() -> None:
    values = np.tile([0.0, 10.0, 20.0], (4, 1))
    on = {name: [result_of(values), result_of(values, "acrobot")] for name in ("one", "other")}
    several = jaxrl.compare(on)
    with pytest.raises(ValueError, match="task takes one of the tasks, cartpole, acrobot, got None"):
        several.steps_to(10.0)
    with pytest.raises(ValueError, match="level takes a finite value of return, got nan"):
        several.steps_to(math.nan, "acrobot")
    unknown = jaxrl.compare({name: result_of(values, metric="loss") for name in ("one", "other")}, metric="loss")
    with pytest.raises(ValueError, match="it is unknown whether higher values are better"):
        unknown.steps_to(10.0)
