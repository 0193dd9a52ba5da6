"""Comparisons of results: estimates against slow ones, the rule of alignment, figures, files and errors."""

import itertools
import re
import warnings

import numpy as np
import pandas
import pytest
import scipy.stats
from matplotlib.colors import to_rgb
from PIL import Image

import envs
import jaxrl
from jaxrl import plotting
from jaxrl.cli import main as cli
from jaxrl.cli.compare import references
from jaxrl.cli.named_runs import named_sources
from jaxrl.report.comparison import COMPARED
from jaxrl.report.pairs import Scores, p_value_of
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.p_values import NUM_PERMUTATIONS, corrected, improvement_p_value
from jaxrl.results.result import Result
from jaxrl.sweeps.sweep import Sweep

STEPS = {"dqn": 60_032, "pqn": 60_416, "ppo": 60_000}


def result_of(
    level=100.0, last=60_000, *, seeds=8, key=0, algorithm="dqn", environment="cartpole", metric="return", **attrs
) -> Result:
    """Metrics that rise to about a level in ten evaluations."""
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    noise = np.random.default_rng(key).normal(size=(1, len(seeds), 10)) * 10
    values = (level * np.linspace(0.1, 1, 10) + noise).astype(np.float32)
    steps = np.linspace(last / 10, last, 10).astype(int).tolist()
    attrs = {"algorithm": algorithm, "environment": environment} | attrs
    return Result(metrics_dataset({metric: values, "loss": values}, seeds=seeds, env_steps=steps, attrs=attrs), {})


def swept(values, **levels) -> Result:
    """Returns `[settings, seeds]` at one point, over one swept name."""
    ((path, at),) = levels.items()
    sweep = Sweep({path: np.asarray(at)}, {}, (path,), (len(at),), {path: ((path,), np.asarray(at))}, [{}] * len(at))
    attrs = {"algorithm": "ppo", "environment": "cartpole"}
    values = np.asarray(values, np.float32)
    data = {"return": values[..., None]}
    return Result(metrics_dataset(data, seeds=range(values.shape[1]), env_steps=[9], sweep=sweep, attrs=attrs), {})


@pytest.fixture(scope="module")
def results():
    levels = {"dqn": (100, 8), "pqn": (110, 16), "ppo": (105, 8)}
    return {
        name: result_of(level, STEPS[name], seeds=seeds, key=at, algorithm=name)
        for at, (name, (level, seeds)) in enumerate(levels.items())
    }


@pytest.fixture(scope="module")
def comparison(results):
    return jaxrl.compare(results, baseline="ppo")


@pytest.fixture(scope="module")
def on_tasks(results):
    """Three algorithms on two tasks; there are fewer runs on the second."""
    others = (result_of(-90 + 5 * at, 30_000, seeds=6, key=9 + at, environment="acrobot") for at in range(3))
    sources = {name: [one, other] for (name, one), other in zip(results.items(), others, strict=True)}
    return jaxrl.compare(sources)


def slow_values(result, step):
    """The value of each run at a step, by a loop over its evaluations."""
    steps, values = result.metrics["env_step"].values.tolist(), []
    for run in result.metrics["return"].values.astype(np.float64):
        for (left, low), (right, high) in itertools.pairwise(zip(steps, run.tolist(), strict=True)):
            if left < step <= right:
                values.append(low + (high - low) * (step - left) / (right - left))
    return values


def slow_iqm(values):
    """The mean without the lowest and the highest quarter."""
    ordered, cut = sorted(values), len(values) // 4
    return sum(ordered[cut : len(ordered) - cut]) / (len(ordered) - 2 * cut)


def slow_interval(tasks, resamples=4_000):
    """Ends of a bootstrap with draws of its own, widened as by Student's t; every run of a task is drawn again."""
    generator, runs, drawn = np.random.default_rng(5), len(tasks[0]), []
    for _ in range(resamples):
        drawn.append(slow_iqm([task[at] for task in tasks for at in generator.integers(runs, size=runs)]))
    middle, (low, high) = slow_iqm([value for task in tasks for value in task]), np.quantile(drawn, [0.025, 0.975])
    stretch = scipy.stats.t.ppf(0.975, len(tasks) * (runs - 1)) / 1.959964 * np.sqrt(runs / (runs - 1))
    return middle - stretch * (middle - low), middle + stretch * (high - middle)


def slow_chance(x, y):
    """The share of pairs that x wins, and the ends of Newcombe's interval by a search over probabilities."""
    wins = [[float(a > b) + 0.5 * (a == b) for b in y] for a in x]
    m, n, value = len(x), len(y), sum(map(sum, wins)) / (len(x) * len(y))
    parts = np.var(np.mean(wins, axis=1), ddof=1) / m, np.var(np.mean(wins, axis=0), ddof=1) / n
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (m - 1) + parts[1] ** 2 / (n - 1))
    rest = (m + n) / 2 - 1

    def variance(p):
        return p * (1 - p) * (1 + rest * (1 - p) / (2 - p) + rest * p / (1 + p)) / (m * n)

    grid = np.linspace(0, 1, 100_001)[1:-1]
    ratio = max(1.0, sum(parts) / variance(value))
    inside = grid[np.abs(value - grid) <= scipy.stats.t.ppf(0.975, degrees) * np.sqrt(ratio * variance(grid))]
    return value, inside[0], inside[-1]


def test_the_table_is_that_of_a_slow_computation(comparison, results):
    table = comparison.table().to_pandas().set_index("name")
    assert list(table.columns) == ["iqm", "low", "high", "seeds", "steps", *COMPARED]
    assert table["seeds"].tolist() == [8, 16, 8] and table["steps"].to_dict() == STEPS
    values = {name: slow_values(result, 60_000) for name, result in results.items()}
    for name, row in table.iterrows():
        assert row["iqm"] == pytest.approx(slow_iqm(values[name]), rel=1e-12)
        low, high = slow_interval([values[name]])
        # Both ends are estimates from 2,000 and 4,000 draws: a standard error of a few percent of the width.
        assert [row["low"], row["high"]] == pytest.approx([low, high], abs=0.1 * (high - low))
        chance = [row["better"], row["better_low"], row["better_high"]]
        if name == "ppo":
            assert np.isnan(chance).all()
        else:
            assert chance == pytest.approx(slow_chance(values[name], values["ppo"]), abs=2e-5)  # the grid's spacing
    text = str(comparison.table())
    assert "return on cartpole at 60,000 environment steps" in text and "better than ppo" in text
    row = table.loc["pqn"]
    printed = rf"pqn .* 60416 +{row['better']:.2f}  \[{row['better_low']:.2f}, {row['better_high']:.2f}\]"
    assert re.search(printed, text) and text.splitlines()[-1].split()[-3:] == ["\N{EN DASH}"] * 3


def scores_of(values, run=None) -> Scores:
    """Values of seeds from 0 on."""
    return Scores(np.asarray(values, np.float64), np.arange(len(values)), frozenset(range(len(values))), run)


def slow_distance(first, second):
    """Distance of the mean over tasks of P(first is higher) from one half, by a loop over pairs of runs."""
    pairs = zip(first, second, strict=True)
    chances = [np.mean([(a > b) + (a == b) / 2 for a in one for b in other]) for one, other in pairs]
    return abs(np.mean(chances) - 0.5)


def test_p_values_are_those_of_all_exchanges():
    draws = np.random.default_rng(3)
    for sizes in ([(4, 4)], [(3, 5)], [(3, 3), (4, 2)]):
        first = [draws.integers(0, 6, one) + 1 for one, _ in sizes]  # with ties
        second = [draws.integers(0, 6, other) for _, other in sizes]
        pools = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
        splits = [list(itertools.combinations(range(one + other), one)) for one, other in sizes]
        distances = []
        for chosen in itertools.product(*splits):
            ours = [pool[list(at)] for pool, at in zip(pools, chosen, strict=True)]
            theirs = [np.delete(pool, at) for pool, at in zip(pools, chosen, strict=True)]
            distances.append(slow_distance(ours, theirs))
        exact = np.mean(np.asarray(distances) >= slow_distance(first, second) - 1e-12)
        estimate = p_value_of([scores_of(one) for one in first], [scores_of(other) for other in second])
        # Five standard errors of a share of the permutations, and the observed order that counts among them.
        error = 5 * np.sqrt(exact * (1 - exact) / NUM_PERMUTATIONS) + 1 / NUM_PERMUTATIONS
        assert abs(estimate - exact) <= error, sizes


def test_p_values_of_pairs_exchange_the_runs_of_a_seed(monkeypatch):
    monkeypatch.setattr(Scores, "is_paired_with", lambda self, other: True)
    first, second = np.array([3.0, 5.0, 2.0, 9.0, 4.0]), np.array([1.0, 4.0, 2.0, 8.0, 5.0])
    wins = np.sign(first - second)
    exact = np.mean([abs(np.dot(signs, wins)) >= abs(wins.sum()) for signs in itertools.product((-1, 1), repeat=5)])
    estimate = p_value_of([scores_of(first)], [scores_of(second)])
    assert abs(estimate - exact) <= 5 * np.sqrt(exact * (1 - exact) / NUM_PERMUTATIONS) + 1 / NUM_PERMUTATIONS
    assert np.isnan(p_value_of([scores_of([])], [scores_of(second)]))
    assert improvement_p_value([first], [second], paired=True) == estimate
    for x, y, sentence in (
        ([[]], [[1.0]], "x has a task without a score"),
        ([[1.0]], [[np.nan]], "y has a score that is nan"),
        ([[1.0, 2.0]], [[1.0]], "paired=True takes as many scores of y as of x, got 1 and 2"),
    ):
        with pytest.raises(ValueError, match=sentence):
            improvement_p_value(x, y, paired=True)


def test_the_hypothesis_on_pairs_is_that_both_runs_can_be_exchanged(monkeypatch):
    monkeypatch.setattr("jaxrl.results.p_values.NUM_PERMUTATIONS", 99)
    draws, small = np.random.default_rng(8), 0
    for _ in range(400):  # exchangeable, and dependent
        common, both = draws.exponential(size=12), draws.normal(size=(2, 12))
        small += improvement_p_value(*[[each * common] for each in both], paired=True) <= 0.1
    assert small / 400 <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 400)
    x = draws.integers(1, 4, 200)
    y = x % 3 + 1  # of one distribution, but above x in two thirds of the pairs
    assert improvement_p_value([x], [y], paired=True) == 0.01


def test_p_values_do_not_depend_on_the_number_computed_at_once(monkeypatch):
    first, second = np.arange(7.0), np.arange(9.0) + 1.5
    whole = improvement_p_value([first], [second])
    monkeypatch.setattr("jaxrl.results.p_values.MOST_PERMUTED", 1_000)
    assert improvement_p_value([first], [second]) == whole


def test_a_difference_is_significant_among_any_number_of_comparisons():
    apart, near = [[np.arange(8.0)], [np.arange(8.0) + 20]], [[np.arange(8.0)], [np.arange(8.0) + 2]]
    for paired in (False, True):
        smallest = improvement_p_value([np.zeros(32)], [np.ones(32)], comparisons=1_000, paired=paired)
        assert smallest == 1 / 20_001 and smallest * 1_000 < 0.05
    # With 8 runs of each, two of the 12,870 orders are as far apart: further permutations estimate this share.
    assert abs(improvement_p_value(*apart, comparisons=2_000) - 2 / 12_870) <= 5 * np.sqrt(2 / 12_870 / 10_000)
    assert improvement_p_value(*near, comparisons=1_000) == improvement_p_value(*near)


def test_every_line_of_many_on_many_tasks_may_differ_significantly(monkeypatch):
    monkeypatch.setattr("jaxrl.results.p_values.NUM_PERMUTATIONS", 99)
    lines = {
        f"line {at}": [result_of(100.0 * (1 + at), environment=task, seeds=24) for task in ("cartpole", "acrobot")]
        for at in range(9)
    }
    comparison = jaxrl.compare(lines)
    for task in comparison.tasks:
        p_values = comparison.table(task).to_pandas()["p_value"].tolist()
        assert p_values[1:] == pytest.approx([16 / 321] * 8)  # 20 permutations of each of 16 comparisons
    assert comparison.table().to_pandas()["p_value"].tolist()[1] == pytest.approx(8 / 161)


def test_p_values_are_corrected_for_their_number():
    values = [0.01, 0.04, np.nan, 0.03, 0.005]
    # Ordered: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which is below the one before it.
    np.testing.assert_allclose(corrected(values), [0.03, 0.06, np.nan, 0.06, 0.02])
    assert corrected([0.6, 0.7]) == [1.0, 1.0] and corrected([]) == []


def test_the_p_values_of_a_table_are_corrected(comparison, results):
    rows = comparison.table().to_pandas().set_index("name")["p_value"]
    single = []
    for name in ("dqn", "pqn"):
        pair = jaxrl.compare({"ppo": results["ppo"], name: results[name]}, env_steps=60_000)
        single.append(pair.table().to_pandas().set_index("name")["p_value"][name])
    assert [rows["dqn"], rows["pqn"]] == corrected(single) and rows["pqn"] == 2 * min(single)
    assert np.isnan(rows["ppo"])


def test_the_p_values_of_tasks_are_corrected_for_lines_and_tasks(on_tasks):
    tables = {task: on_tasks.table(task).to_pandas()["p_value"].tolist() for task in on_tasks.tasks}
    values = [on_tasks.scores(task) for task in on_tasks.tasks]
    others = ("pqn", "ppo")  # after the baseline
    single = [improvement_p_value([own[name]], [own["dqn"]]) for own in values for name in others]
    assert [*tables["cartpole"][1:], *tables["acrobot"][1:]] == corrected(single)
    both = [improvement_p_value(*([own[name] for own in values] for name in (one, "dqn"))) for one in others]
    assert on_tasks.table().to_pandas()["p_value"].tolist()[1:] == corrected(both)


def test_the_gap_to_a_known_optimum_is_that_of_the_result():
    fishery = {
        name: Result(result_of(level, key=level, environment="fishery", algorithm=name).metrics, {}, jaxrl.ppo(env))
        for (name, level), env in zip((("ppo", 6), ("dqn", 7)), (envs.make("fishery"),) * 2, strict=True)
    }
    rows = jaxrl.compare(fishery).table().to_pandas().set_index("name")
    for name, result in fishery.items():
        row = result.table().to_pandas().iloc[0]
        assert rows.loc[name, "optimum"] == row["optimum"] == pytest.approx(8.25, abs=1e-4)
        assert rows.loc[name, ["gap", "gap_percent"]].tolist() == row[["gap", "gap_percent"]].tolist()
    normalised = jaxrl.compare(fishery, normalise={"fishery": (0.0, 8.25)}).table()
    assert "optimum" not in normalised.columns  # which is not on the scale of these values
    unknown = {**fishery, "other": result_of(5, key=1, environment="fishery")}
    with pytest.warns(RuntimeWarning, match=r"the environments of fishery differ in environment\.static"):
        rows = jaxrl.compare(unknown).table().to_pandas().set_index("name")
    assert np.isnan(rows.loc["other", "optimum"])
    assert rows.loc["ppo", "gap"] == rows.loc["ppo", "optimum"] - rows.loc["ppo", "iqm"]


def test_without_other_evaluations_the_estimates_are_those_of_the_result():
    one, other = result_of(key=1), result_of(key=2, algorithm="ppo")
    comparison = jaxrl.compare({"one": one, "other": other})
    for result, row in zip((one, other), comparison.table().rows, strict=True):
        assert row[1:4] == result.table().rows[0][:3]
    assert comparison.notes == []


def test_the_matrix_holds_for_every_pair(comparison, results):
    matrix = comparison.matrix()
    assert matrix.sizes == {"name": 3, "than": 3} and not matrix["paired"].any()
    for one, other in itertools.permutations(results, 2):
        cell = matrix.sel(name=one, than=other)
        expected = slow_chance(*(slow_values(results[name], 60_000) for name in (one, other)))
        assert [float(cell[name]) for name in ("better", "low", "high")] == pytest.approx(expected, abs=2e-5)
    assert np.isnan(np.diag(matrix["better"])).all()
    cell = matrix.sel(name="pqn", than="dqn")
    assert f"{float(cell['better']):.2f} [{float(cell['low']):.2f}, {float(cell['high']):.2f}]" in str(comparison)


def test_values_are_compared_where_all_results_have_been():
    """Eight runs that rise by one in ten steps, evaluated at other steps."""

    def line(steps):
        values = np.asarray(steps)[None, None, :] / 10 + np.arange(8)[:, None]
        attrs = {"algorithm": "ppo", "environment": "cartpole"}
        return Result(metrics_dataset({"return": values}, seeds=range(8), env_steps=steps, attrs=attrs), {})

    sources = {"short": line([100, 200, 300]), "long": line([250, 500, 750, 1000])}
    comparison = jaxrl.compare(sources)
    assert comparison.steps == {"cartpole": 300}
    expected = 30 + np.arange(8)
    for values in comparison.scores().values():
        np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert comparison.notes == [
        "Values are those at 300 environment steps, interpolated linearly within each run between two evaluations.",
        "Some results are longer than is compared (long to 1,000).",
    ]
    np.testing.assert_allclose(jaxrl.compare(sources, env_steps=260).scores()["short"], expected - 4, rtol=1e-12)
    with pytest.raises(ValueError, match="env_steps is 301, and short on cartpole ends at 300"):
        jaxrl.compare(sources, env_steps=301)
    with pytest.raises(ValueError, match="env_steps is 200 environment steps, and long is evaluated there from 250 on"):
        jaxrl.compare(sources, env_steps=200)
    with pytest.raises(ValueError, match="short on cartpole ends at 200 environment steps, and long is evaluated"):
        jaxrl.compare({**sources, "short": line([100, 200])})


def test_runs_that_failed_by_then_are_left_out_and_counted(results):
    failing = result_of(algorithm="sac", last=60_600)
    failing.metrics["loss"][2, 5:] = np.nan
    failing.metrics["return"][4, -1] = np.inf  # after 54,540 steps, between which and 60,600 values are interpolated
    comparison = jaxrl.compare({"dqn": results["dqn"], "sac": failing})
    table = comparison.table().to_pandas()
    assert table["failed"].tolist() == [0, 2] and table["seeds"].tolist() == [8, 6]
    rest = np.delete(slow_values(failing, 60_032), [2, 4])
    assert table["iqm"].tolist()[1] == pytest.approx(slow_iqm(rest), rel=1e-12)
    figure = comparison.plot()
    assert "sac (2 of 8 failed)" in figure.axes[0].get_legend_handles_labels()[1]


def test_settings_of_a_sweep_are_lines_and_pairs():
    values = np.random.default_rng(3).normal([[0.0], [0.4]], size=(2, 8))
    result = swept(values, lr=[1e-3, 1e-2])
    comparison = jaxrl.compare({"ppo": result})
    assert comparison.names == ["ppo: lr 0.001", "ppo: lr 0.01"]
    matrix = comparison.matrix().sel(name="ppo: lr 0.01", than="ppo: lr 0.001")
    wins = int((values[1].astype(np.float32) > values[0].astype(np.float32)).sum())
    exact = scipy.stats.binomtest(wins, 8).proportion_ci(0.95)
    assert bool(matrix["paired"]) and float(matrix["better"]) == wins / 8
    assert [float(matrix["low"]), float(matrix["high"])] == pytest.approx([exact.low, exact.high], rel=1e-9)
    assert not jaxrl.compare({"ppo": result, "a2c": result_of(last=9)}).matrix()["paired"][0, 2]


def test_further_seeds_of_one_name_are_pooled(results):
    halves = [Result(results["pqn"].metrics.isel(seed=part), {}) for part in (slice(0, 10), slice(10, 16))]
    pooled = jaxrl.compare({"pqn": halves, "ppo": results["ppo"]})
    whole = jaxrl.compare({"pqn": results["pqn"], "ppo": results["ppo"]})
    assert pooled.table().rows == whole.table().rows
    assert [np.size(line.get_xdata()) for line in pooled.plot().axes[0].lines] == [10, 10]
    with pytest.raises(ValueError, match=r"2 results of 'pqn' on cartpole have seed 0; give them different names"):
        jaxrl.compare({"pqn": [results["pqn"], results["dqn"]], "ppo": results["ppo"]})
    halves[1] = Result(halves[1].metrics.assign_attrs(algorithm="other"), {})
    with pytest.raises(ValueError, match=r"2 results of 'pqn' on cartpole differ in algorithm; give them"):
        jaxrl.compare({"pqn": halves, "ppo": results["ppo"]})


def test_several_tasks_are_normalised_and_averaged(on_tasks):
    assert on_tasks.tasks == ["cartpole", "acrobot"] and on_tasks.names == ["dqn", "pqn", "ppo"]
    raw = {task: on_tasks.scores(task) for task in on_tasks.tasks}
    ends = {
        task: (np.concatenate([*runs.values()]).min(), np.concatenate([*runs.values()]).max())
        for task, runs in raw.items()
    }
    table, matrix = on_tasks.table().to_pandas().set_index("name"), on_tasks.matrix()
    for name in on_tasks.names:
        scaled = [(raw[task][name][:6] - low) / (high - low) for task, (low, high) in ends.items()]
        np.testing.assert_allclose(on_tasks.scores()[name], scaled, rtol=1e-12)
        assert table.loc[name, "iqm"] == pytest.approx(slow_iqm(np.concatenate(scaled)), rel=1e-12)
        low, high = slow_interval(scaled)
        assert [table.loc[name, "low"], table.loc[name, "high"]] == pytest.approx([low, high], abs=0.1 * (high - low))
        assert table.loc[name, "seeds"] == 6 and table.loc[name, "steps"] == STEPS[name] + 30_000
    for one, other in itertools.permutations(on_tasks.names, 2):
        alone = [slow_chance(raw[task][one], raw[task][other]) for task in on_tasks.tasks]  # of all runs
        middle = np.mean([value for value, *_ in alone])
        half = [np.sqrt(sum((value - ends[at]) ** 2 for value, *ends in alone)) / 2 for at in (0, 1)]
        cell = [float(matrix[part].sel(name=one, than=other)) for part in ("better", "low", "high")]
        assert cell == pytest.approx([middle, middle - half[0], middle + half[1]], abs=4e-5)
    notes = " ".join(on_tasks.notes)
    assert "lowest and highest compared run" in notes and "take equally many runs of each" in notes
    assert on_tasks.table("acrobot").to_pandas()["iqm"].max() < 0
    with pytest.raises(ValueError, match="task is 'acrobat'; did you mean 'acrobot'"):
        on_tasks.table("acrobat")


def test_values_are_normalised_by_the_requested_bounds(results):
    comparison = jaxrl.compare(results, normalise={"cartpole": (10, 110)})
    expected = (slow_iqm(slow_values(results["dqn"], 60_000)) - 10) / 100
    assert comparison.table().rows[0][1] == pytest.approx(expected, rel=1e-12)
    alone, plain = comparison.table("cartpole"), jaxrl.compare(results).table()
    assert alone.rows == plain.rows and alone.title == plain.title  # of a task by name, its own values
    np.testing.assert_array_equal(comparison.scores("cartpole")["dqn"], slow_values(results["dqn"], 60_000))
    assert "normalised return" in str(comparison) and "10 and 110 on cartpole" in comparison.notes[-1]
    with pytest.raises(ValueError, match="normalise lacks 'cartpole'"):
        jaxrl.compare(results, normalise={"acrobot": (0, 1)})
    with pytest.raises(
        ValueError, match=r"normalise has \(1, 1\) for 'cartpole'; it takes two numbers .*second is larger"
    ):
        jaxrl.compare(results, normalise={"cartpole": (1, 1)})
    with pytest.raises(TypeError, match=r"normalise is 5; it takes two numbers for each task, such as \{"):
        jaxrl.compare(results, normalise=5)  # pyright: ignore[reportArgumentType]


def test_tasks_have_names_of_their_own_or_those_of_the_environments(results):
    plain, stacked = result_of(), result_of(key=1, environment="frame_stack(cartpole)")
    both = jaxrl.compare({"plain": {"cartpole": plain}, "stacked": {"cartpole": stacked}})
    assert both.tasks == ["cartpole"] and both.names == ["plain", "stacked"]
    with pytest.raises(ValueError, match=r"'plain' is on cartpole, 'stacked' is on frame_stack\(cartpole\)\): give"):
        jaxrl.compare({"plain": plain, "stacked": stacked})
    partly = jaxrl.compare({"a": [plain, result_of(environment="acrobot")], "b": result_of(key=1)})
    assert partly.tasks == ["cartpole"] and "Left out, since not all have results on them: acrobot." in partly.notes
    names = {"dqn": "cartpole", "ppo": "acrobot"}
    unnamed = [
        result_of(key=i, algorithm=a, environment=e)
        for i, (a, e) in enumerate(itertools.product(names, names.values()))
    ]
    assert jaxrl.compare(unnamed).names == ["dqn", "ppo"] and len(jaxrl.compare(unnamed).tasks) == 2


def test_the_figure_has_a_legend_and_a_colour_for_each(comparison, results):
    (ax,) = comparison.plot().axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["dqn", "pqn", "ppo"]
    assert [line.get_color() for line in ax.lines] == list(plotting.COLOURS[:3])
    bands = [tuple(np.asarray(each.get_facecolor())[0, :3]) for each in ax.collections]
    assert bands == [to_rgb(colour) for colour in plotting.COLOURS[:3]]
    assert ax.get_title() == "cartpole: interquartile mean of 8 to 16 runs, 95% interval"
    for line, (name, result) in zip(ax.lines, results.items(), strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_xdata(), result.metrics["env_step"])  # evaluations of its own
        middle = [slow_iqm(column) for column in result.metrics["return"].values.T.astype(float)]
        np.testing.assert_allclose(line.get_ydata(), middle, rtol=1e-6)


def test_the_figure_of_several_tasks_has_a_panel_for_each_and_one_legend(on_tasks):
    figure = on_tasks.plot()
    assert [ax.get_title() for ax in figure.axes] == on_tasks.tasks
    assert [ax.get_legend() for ax in figure.axes] == [None, None]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == on_tasks.names


def test_profiles_are_shares_of_runs_over_tasks(on_tasks):
    ax = on_tasks.profiles()
    assert ax.get_legend_handles_labels()[1] == on_tasks.names and "normalised return" in ax.get_xlabel()
    for line, runs in zip(ax.lines, on_tasks.scores().values(), strict=True):
        levels, share = line.get_data()
        expected = [sum(value > level for value in runs.ravel()) / runs.size for level in levels]
        np.testing.assert_allclose(share, expected, atol=1e-12)


def test_of_a_regret_less_is_better():
    regrets = {name: result_of(level, key=level, metric="regret") for name, level in (("bad", 300), ("good", 100))}
    comparison = jaxrl.compare(regrets, baseline="bad")
    assert comparison.metric == "regret" and comparison.table().rows[1][-4] == 1.0
    ax = comparison.profiles()
    assert ax.get_ylabel() == "share of runs at or below the threshold"
    levels, share = np.asarray(ax.lines[1].get_data())
    np.testing.assert_allclose(share, [(comparison.scores()["good"] <= level).mean() for level in levels], atol=1e-12)


def test_a_metric_without_a_direction_has_no_probabilities(results):
    comparison = jaxrl.compare(results, metric="loss")
    assert "better" not in comparison.table().columns and "unknown whether higher or lower" in str(comparison)
    with pytest.raises(ValueError, match="unknown whether higher values are better; pass better='higher'"):
        comparison.matrix()
    lower = jaxrl.compare(results, metric="loss", better="lower").matrix()["better"]
    np.testing.assert_allclose(lower, 1 - jaxrl.compare(results).matrix()["better"], rtol=1e-12)  # equal values


def test_results_with_fewer_environment_steps_than_their_presets_are_named():
    tuned_for = jaxrl.preset("dqn", "cartpole").env_steps
    ends = {"short": tuned_for - 1, "whole": tuned_for, "untuned": 300}
    origins = {name: "defaults" if name == "untuned" else "preset of dqn on cartpole" for name in ends}
    sources = {}
    for at, (name, end) in enumerate(ends.items()):
        attrs = {"algorithm": "dqn", "environment": "cartpole", "settings_from": origins[name]}
        values = np.arange(8.0).reshape(1, 4, 2) + at
        data = metrics_dataset({"return": values}, seeds=range(4), env_steps=[100, end], attrs=attrs)
        sources[name] = Result(data, {})
    del sources["untuned"].metrics.attrs["settings_from"]  # as in an older result
    sentences = jaxrl.compare(sources, env_steps=300).notes
    shorter = f"short {tuned_for - 1:,} of {tuned_for:,}"
    assert f"Some results have fewer environment steps than their preset ({shorter})." in sentences
    assert not [each for each in jaxrl.compare([sources["whole"], sources["untuned"]]).notes if "preset" in each]


def test_settings_that_differ_are_listed_and_presets_against_defaults_warned_of(results):
    origins = {"dqn": "preset of dqn on cartpole", "mine": "defaults"}
    sources = {}
    for at, (name, origin) in enumerate(origins.items()):
        result = result_of(key=at, settings_from=origin, eval_episodes=64, block=at)
        result.loaded = {"hparams": {"lr": 10.0**-at, "lam": 0.95}, "devices": [], "versions": {"jax": str(at)}}
        sources[name] = result
    with pytest.warns(RuntimeWarning, match="on cartpole mine starts from defaults, and dqn from the preset of dqn on"):
        comparison = jaxrl.compare(sources)
    table = comparison.differences.to_pandas().set_index("setting")
    assert table.to_dict("index") == {"settings_from": origins, "hparams.lr": {"dqn": "1", "mine": "0.1"}}
    assert "hparams.lr     1" in str(comparison)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxrl.compare({"dqn": sources["dqn"], "old": results["pqn"]})  # of which the origin is not recorded
        jaxrl.compare({"mine": sources["mine"], "other": result_of(key=4, settings_from="defaults")})


TWO = {"a": result_of(), "b": result_of(key=1)}


@pytest.mark.parametrize(
    ("sources", "options", "error", "sentence"),
    [
        ({}, {}, ValueError, "results is empty"),
        (
            {"a": result_of()},
            {},
            ValueError,
            "results has one result with one setting, 'a'; compare takes at least two",
        ),
        (
            TWO,
            {"baseline": "bb"},
            ValueError,
            "baseline is 'bb'; did you mean 'b'",
        ),
        (TWO, {"baseline": 3}, ValueError, "baseline is 3; it takes a, b"),
        (TWO, {"env_steps": 0}, ValueError, "env_steps"),
        (TWO, {"metric": "retrun"}, ValueError, "metric is 'retrun'.*'return'"),
        (TWO, {"confidence": 95}, ValueError, "confidence is 95"),
        (
            TWO,
            {"better": "more"},
            ValueError,
            "better must be one of higher, low",
        ),
        ({"a": result_of(), "b": 3}, {}, TypeError, "results takes run directories and results, got 3"),
        ({1: result_of(), "b": result_of(key=1)}, {}, TypeError, "the name of a result must be a string, got 1"),
        (
            {"agent": result_of(), "bandit": result_of(metric="regret")},
            {},
            ResultError,
            "different metrics, the regret of bandit and return of agent; metric= takes one that all have: loss",
        ),
        (
            {
                "a": result_of(return_low=1.0, return_high=500.0),
                "b": result_of(key=1, return_low=1.0, return_high=200.0),
            },
            {},
            ValueError,
            r"returns on cartpole have different meanings: their ranges are \[1, 200\] of b and \[1, 500\] of a",
        ),
    ],
)
def test_results_that_cannot_be_compared_and_bad_options_are_refused(sources, options, error, sentence):
    with pytest.raises(error, match=sentence):
        jaxrl.compare(sources, **options)


def test_returns_of_other_environments_and_discounts_have_other_meanings():
    one, other = result_of(metric="discounted_return"), result_of(key=1, metric="discounted_return")
    for result, discount, limit in ((one, "exp:gamma=0.9", 500), (other, "exp:gamma=0.99", 200)):
        result.loaded = {"hparams": {"discount": discount}, "env_params": {"limit": [limit]}, "devices": []}
    with pytest.raises(ValueError, match="which is under different discounts here"):
        jaxrl.compare({"a": one, "b": other}, metric="discounted_return")
    one.metrics.attrs["eval_discount"] = "hyperbolic:k=0.5"  # one evaluated again, and then both
    with pytest.raises(ValueError, match="which is under different discounts here"):
        jaxrl.compare({"a": one, "b": other}, metric="discounted_return")
    other.metrics.attrs["eval_discount"] = "hyperbolic:k=0.5"
    with pytest.warns(RuntimeWarning, match=r"environments of cartpole differ in env_params\.limit, so that"):
        jaxrl.compare({"a": one, "b": other}, metric="discounted_return")
    del one.metrics.attrs["eval_discount"], other.metrics.attrs["eval_discount"]
    other.loaded = {"hparams": {"discount": "exp:gamma=0.9"}, "env_params": {"limit": [200]}, "devices": []}
    with pytest.warns(RuntimeWarning, match=r"environments of cartpole differ in env_params\.limit, so that"):
        jaxrl.compare({"a": one, "b": other}, metric="discounted_return")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, results):
    directory = tmp_path_factory.mktemp("runs")
    for name, result in results.items():
        result.save(directory / name)
    (directory / "empty").mkdir()
    return directory


def test_the_command_prints_the_comparison_and_writes_the_three_formats(runs, comparison, tmp_path, capsys):
    out = tmp_path / "comparison"
    paths = [str(runs / name) for name in STEPS]
    assert cli.main(["compare", *paths, "--baseline", "ppo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(str(comparison.table())) and f"Wrote {out}." in printed
    for figure in ("curves", "profiles"):
        with Image.open(out / f"{figure}.png") as picture:
            assert picture.size == (960, 630)
        assert (out / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        assert "<svg" in (out / f"{figure}.svg").read_text()
    frame = comparison.table().to_pandas()
    pandas.testing.assert_frame_equal(pandas.read_csv(out / "table.csv"), frame, rtol=1e-12)
    assert len(pandas.read_csv(out / "matrix.csv")) == 6
    assert comparison.save(out) == out and not (out / "steps.csv").exists()  # again
    assert comparison.save(out, level=200) == out
    frame = pandas.read_csv(out / "steps.csv").set_index("task")
    assert frame["median"].tolist() == comparison.steps_to(200).to_pandas()["median"].tolist()
    assert set(frame.index) == {"cartpole"}
    (out / "thesis.txt").touch()
    assert cli.main(["compare", *paths, "--out", str(out)]) == 2 and not capsys.readouterr().out  # before it computes
    with pytest.raises(FileExistsError, match=r"holds other files, such as thesis\.txt; choose a new directory"):
        comparison.save(out)
    with pytest.raises(ValueError, match="a picture's name ends in"):
        comparison.save(tmp_path / "x.docx")


def test_the_tables_of_an_earlier_comparison_are_replaced_or_deleted(on_tasks, results, tmp_path, monkeypatch):
    for name in ("curves", "profiles"):
        monkeypatch.setattr(f"jaxrl.report.saving.draw_{name}", lambda *_: None)
    tables = {"table", "differences", "matrix"}
    on_tasks.save(tmp_path, level={"cartpole": 50})
    assert {file.stem for file in tmp_path.glob("*.csv")} == {*tables, "tasks", "steps"}
    alone = jaxrl.compare(results)
    alone.save(tmp_path)
    assert {file.stem for file in tmp_path.glob("*.csv")} == tables
    alone.save(tmp_path, level=50)
    assert {file.stem for file in tmp_path.glob("*.csv")} == {*tables, "steps"}
    jaxrl.compare(results, metric="loss").save(tmp_path)
    assert {file.stem for file in tmp_path.glob("*.csv")} == {"table", "differences"}


def test_the_command_takes_names_and_tasks(runs, on_tasks, tmp_path, capsys):
    for name, at in (("dqn", 0), ("ppo", 1)):
        result_of(-90 + at, 30_000, key=at, algorithm=name, environment="acrobot").save(tmp_path / name)
    words = [f"{name}={folder / name}" for folder in (runs, tmp_path) for name in ("dqn", "ppo")]
    assert cli.main(["compare", *words, "--normalise", "cartpole=0:500", "acrobot=-500:0"]) == 0
    assert "normalised return over 2 tasks" in capsys.readouterr().out
    at_levels = ["--level", "cartpole=100", "acrobot=-89.5", "--out", str(tmp_path / "out")]
    assert cli.main(["compare", *words, *at_levels]) == 0
    printed = capsys.readouterr().out
    assert "until return on cartpole is 100" in printed and "until return on acrobot is -89.5" in printed
    steps = pandas.read_csv(tmp_path / "out" / "steps.csv")
    assert steps["task"].tolist() == ["cartpole"] * 2 + ["acrobot"] * 2 and steps["name"].tolist() == ["dqn", "ppo"] * 2
    paths = [str(runs / name) for name in ("dqn", "ppo")]
    assert cli.main(["compare", *paths, "--level", "-100", "--out", str(tmp_path / "curves.png")]) == 0
    assert "until return on cartpole is -100" in capsys.readouterr().out
    for level, sentence in (
        (["x"], "--level takes a number, such as 475, or TASK=LEVEL, got x"),
        (["1", "2"], "--level takes one number, or TASK=LEVEL for each task, got 1 2"),
        (["1"], "level takes a value for each of cartpole, acrobot, such as {'cartpole': 1.0}"),
        (["cartpol=1"], "task is 'cartpol'; did you mean 'cartpole'?"),
        (["cartpole=nan"], "level takes a finite value of return, got nan"),
    ):
        assert cli.main(["compare", *words, "--level", *level]) == 2
        out, error = capsys.readouterr()
        assert sentence in error and not out
    with pytest.raises(ValueError, match=r"^level takes effect only with a directory as path, got .*\.png'$"):
        jaxrl.compare(dict(zip("ab", paths, strict=True))).save(tmp_path / "curves.png", level=1.0)
    expected = {name: [str(runs / name), str(tmp_path / name)] for name in ("dqn", "ppo")}
    assert named_sources(words) == expected
    (folder := tmp_path / "lr=1").mkdir()
    assert named_sources([str(folder)]) == [str(folder)]  # a directory with this name
    assert references(["a=b=1:2"]) == {"a=b": (1.0, 2.0)}


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("compare dqn empty", "does not hold a complete result: metrics.nc, config.json is missing"),
        ("compare dqn", "has one result with one setting, 'dqn'; compare takes at least two"),
        ("compare dqn ppo --baseline ppoo", "baseline is 'ppoo'; did you mean 'ppo'"),
        (
            "compare dqn ppo --normalise cartpole=1",
            "--normalise takes TASK=LOW:HIGH, such as cartpole=9.5:500, or benchmark, got",
        ),
        ("compare dqn dqn", "results has dqn twice"),
        ("plot dqn empty", "does not hold a complete result"),
        ("plot dqn ppo --out x.docx", "a picture's name ends in"),
    ],
)
def test_bad_commands_get_one_sentence(runs, monkeypatch, capsys, command, sentence):
    monkeypatch.chdir(runs)
    assert cli.main(command.split()) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_several_runs_are_plotted_in_one_figure(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [str(runs / name) for name in STEPS]
    assert cli.main(["plot", *names, "--out", "all.svg"]) == 0 and "Wrote all.svg." in capsys.readouterr().out
    assert cli.main(["plot", f"mine={names[0]}", names[1]]) == 0 and (tmp_path / "return.png").is_file()
    values = np.random.default_rng(0).normal(size=(2, 4))
    for name in ("one", "two"):
        swept(values, lr=[1e-3, 1e-2]).save(name)
    assert cli.main(["plot", "one", "two", "--x", "lr", "--out", "lr.pdf"]) == 0 and (tmp_path / "lr.pdf").is_file()
