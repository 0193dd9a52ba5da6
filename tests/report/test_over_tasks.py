"""The report over several tasks: estimates against slow references in float64, and the page in a browser."""

import io
import json
import re

import numpy as np
import pandas
import pytest
import scipy.stats
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

import envs
import jaxrl
from jaxrl.report.benchmark_page import write_page
from jaxrl.report.over_tasks import report_over_tasks
from jaxrl.report.page import write_reports
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result
from jaxrl.results.statistics import probability_of_improvement

REFERENCES = {"hill": (10.0, 110.0), "lake": (-20.0, 0.0), "cave": (0.0, 1.0)}
SEEDS = {"hill": 12, "lake": 8, "cave": 10, "unknown": 4}
LINES = {"ppo": ("hill", "lake", "unknown"), "a2c": ("hill", "lake"), "sac": ("cave", "lake")}
STEPS = np.arange(1, 21) * 500


def result_of(task: str, key: int) -> Result:
    """Returns that rise from the lower to near the upper reference of a task."""
    low, high = REFERENCES.get(task, (0.0, 1.0))
    noise = np.random.default_rng(key).normal(size=(1, SEEDS[task], 1))
    values = low + (high - low) * (np.linspace(0.1, 0.9, len(STEPS)) + 0.1 * noise)
    attrs = {"algorithm": str(key), "environment": task}
    metrics = metrics_dataset(
        {"return": values.astype(np.float32)}, seeds=range(SEEDS[task]), env_steps=STEPS.tolist(), attrs=attrs
    )
    return Result(metrics, {})


@pytest.fixture(scope="module")
def tasks() -> dict[str, dict[str, Result]]:
    """Results of three lines, each on some of the tasks; two runs of one failed."""
    by_task: dict[str, dict[str, Result]] = {}
    for at, (name, own) in enumerate(LINES.items()):
        for place, task in enumerate(own):
            by_task.setdefault(task, {})[name] = result_of(task, 10 * at + place)
    by_task["lake"]["a2c"].metrics["return"][2:4, -1] = np.nan
    return by_task


def scores(tasks: dict[str, dict[str, Result]], name: str, task: str, point: int = -1) -> np.ndarray:
    """Normalised returns of the runs that did not fail there."""
    values = tasks[task][name].values("return")[0, :, point].astype(np.float64)
    low, high = REFERENCES[task]
    return (values[np.isfinite(values)] - low) / (high - low)


def over(tasks: dict[str, dict[str, Result]], name: str, point: int = -1) -> np.ndarray:
    """Scores of a line, `[tasks, runs]`, with as many runs of each task as there are of the one with the fewest."""
    each = [scores(tasks, name, task, point) for task in tasks if task in REFERENCES and name in tasks[task]]
    return np.stack([values[: min(map(len, each))] for values in each])


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_estimates_agree_with_slow_references(tasks, confidence):
    report = report_over_tasks(tasks, REFERENCES, note="Zero is chance.", confidence=confidence)
    entry, tail = report["metrics"]["normalised_return"], 0.5 + confidence / 2
    names = [line["label"] for line in report["lines"]]
    assert names == list(LINES) and report["percent"] == f"{100 * confidence:g} %"
    for at, name in enumerate(names):
        values = over(tasks, name)
        middle, *ends, mean, low, high, seeds, failed = entry["numbers"][at]
        assert middle == pytest.approx(scipy.stats.trim_mean(values.ravel(), 0.25), abs=1e-12)
        spread = resampled_deviation(values)
        student = scipy.stats.t.ppf(tail, values.shape[0] * (values.shape[1] - 1))
        half = student * spread * np.sqrt(values.shape[1] / (values.shape[1] - 1))
        # The width of the interval; of 2,000 resamples here and there, quantiles and deviations err by 2 to 3 %.
        assert ends[1] - ends[0] == pytest.approx(2 * half, rel=0.15)
        runs = values.mean(axis=0)
        half = scipy.stats.t.ppf(tail, len(runs) - 1) * scipy.stats.sem(runs)
        assert [mean, low, high] == pytest.approx([runs.mean(), runs.mean() - half, runs.mean() + half], abs=1e-12)
        assert (seeds, failed) == (values.shape[1], 2 if name == "a2c" else 0)
        curve = entry["curves"]["iqm"][at][0]
        for point in (0, 7, 19):
            expected = scipy.stats.trim_mean(over(tasks, name, point).ravel(), 0.25)
            assert curve[point] == pytest.approx(expected, rel=1e-5)  # six digits
        thresholds, bands = entry["profile"]["tau"][::20], [part[::20] for part in entry["profile"]["lines"][at]]
        for tau, share, *ends in zip(thresholds, *bands, strict=True):
            above = scipy.stats.binomtest(int((values > tau).sum()), values.size).proportion_ci(confidence, "exact")
            assert [share, *ends] == pytest.approx([np.mean(values > tau), above.low, above.high], abs=1e-4)
    assert entry["tasks"] == [2, 2, 2]
    assert report["steps"] == [list(range(5, 101, 5))] * 3


def resampled_deviation(values: np.ndarray) -> float:
    """Standard deviation of the IQM of runs that are resampled within each task."""
    draws, (_, count) = np.random.default_rng(1), values.shape
    resampled = np.concatenate([row[draws.integers(count, size=(2000, count))] for row in values], axis=1)
    return float(scipy.stats.trim_mean(resampled, 0.25, axis=1).std())


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_two_lines_are_compared_over_the_tasks_of_both(tasks, confidence):
    report = report_over_tasks(tasks, REFERENCES, confidence=confidence)
    entry, names = report["metrics"]["normalised_return"], list(LINES)
    for base, one in enumerate(names):
        for line, other in enumerate(names):
            common = [task for task in REFERENCES if one in tasks[task] and other in tasks[task]]
            assert entry["common"][str(base)][line] == len(common)
            if line == base:
                assert entry["better"][str(base)][line] is None
                continue
            sides = [[scores(tasks, name, task) for task in common] for name in (other, one)]
            wins = [np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y]) for x, y in zip(*sides, strict=True)]
            chance = probability_of_improvement(*sides, confidence=confidence)
            assert entry["better"][str(base)][line] == pytest.approx(
                [np.mean(wins), float(chance.low), float(chance.high)],
                abs=5e-5,  # four digits
            )
            assert entry["paired"][str(base)][line] is False
    (note,) = [note for note in report["notes"] if "left out" in note]
    assert note.endswith("left out: unknown.")
    assert report["failures"]["total"] == 2 and report["failures"]["listed"][0]["line"] == "a2c on lake"
    assert report["differences"]["cave"] == ["\N{EN DASH}", "\N{EN DASH}", "10 seeds x 10,000 steps"]


def test_intervals_end_where_the_range_of_returns_ends():
    metrics = result_of("hill", 1).metrics
    metrics["return"][:] = 110.0
    metrics["return"][:4] = 10.0
    metrics.attrs |= {"return_low": 10.0, "return_high": 110.0}
    report = report_over_tasks({"hill": {"ppo": Result(metrics, {})}}, REFERENCES, confidence=0.99)
    entry = report["metrics"]["normalised_return"]
    _, _, high, mean, _, mean_high, *_ = entry["numbers"][0]
    assert entry["numbers"][0][0] < 0.9 and mean < 0.9 and high == mean_high == 1.0  # beyond it without the range
    assert entry["better"] == {}  # of a single line


@pytest.mark.parametrize("left", [0, 1])
def test_estimates_of_few_runs_have_no_interval(left):
    results = {task: {"ppo": result_of(task, 3)} for task in ("hill", "lake")}
    results["lake"]["ppo"].metrics["return"][left:, -1] = np.nan
    report = report_over_tasks(results, REFERENCES)
    entry = report["metrics"]["normalised_return"]
    middle, low, high, mean, *_ = entry["numbers"][0]
    assert low is None and high is None
    if left:
        pair = [scores(results, "ppo", task)[0] for task in ("hill", "lake")]
        assert [middle, mean] == pytest.approx([np.mean(pair)] * 2)
    else:
        assert middle is None and mean is None and entry["profile"]["lines"] == [None]


def test_a_curve_begins_at_the_first_evaluation():
    late = result_of("hill", 1).metrics.isel(env_step=[4, 9, 14, 19])
    entry = report_over_tasks({"hill": {"ppo": Result(late, {})}}, REFERENCES)["metrics"]["normalised_return"]
    curve = entry["curves"]["iqm"][0][0]
    assert curve[:4] == [None] * 4 and None not in curve[4:]


def test_bad_arguments_are_refused(tasks, tmp_path):
    with pytest.raises(
        ValueError, match=r"^references takes returns of at least one of hill, lake, unknown, cave, got"
    ):
        report_over_tasks(tasks, {})
    ranges = jaxrl.grid(jaxrl.ppo(envs.make("cartpole")).hparams, {"lr": [0.1, 0.2]})
    values = {"return": np.zeros((2, 3, 1), np.float32)}
    swept = Result(metrics_dataset(values, seeds=range(3), env_steps=[10], sweep=ranges, attrs={}), {})
    with pytest.raises(ValueError, match=r"^tasks takes results of one setting, and ppo on hill has several"):
        report_over_tasks({"hill": {"ppo": swept}}, REFERENCES)
    with pytest.raises(ValueError, match=r"^tasks has the name 'all tasks', which is that of the overview"):
        write_reports({"all tasks": tasks["hill"]}, tmp_path / "x.html", title="", description="", overview={})


def test_the_page_shows_all_tasks_first(tasks, browser, tmp_path):
    overview = report_over_tasks(tasks, REFERENCES)
    file = write_reports(tasks, tmp_path / "x.html", title="All", description="Tasks.", overview=overview)
    browser.get_log("browser")
    browser.get(file.as_uri())

    def texts(selector: str) -> list[str]:
        return [element.text for element in browser.find_elements(By.CSS_SELECTOR, selector)]

    assert texts("#task option") == ["all tasks", "hill", "lake", "unknown", "cave"]
    row = dict(zip(texts("#table thead th"), texts("#table tbody tr:nth-child(2) > *"), strict=True))
    assert (row["Tasks"], row["Seeds per task"], row["Failed"]) == ("2", "6", "2")
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, 0\.\d{3}\] unpaired, tasks: 2", row["P(better)"])
    cells = texts("#matrix tbody tr:first-child td")
    assert cells[0] == "\N{EN DASH}" and re.fullmatch(r"0\.\d\d \[0\.\d\d, 0\.\d\d\], 2", cells[1])
    assert "over the tasks of both" in browser.find_element(By.ID, "matrix-help").text
    assert "after 100 % of a run's environment steps" in browser.find_element(By.ID, "table-help").text
    assert texts("#failures tbody td")[:2] == ["2", "10,000 environment steps"]
    assert texts("#differences-title") == ["Runs by task"]
    saving = "blob.text().then((text) => { window.saved = text; }); return 'data:,';"
    browser.execute_script(f"URL.createObjectURL = (blob) => {{ {saving} }};")
    browser.find_element(By.ID, "download-table").click()
    WebDriverWait(browser, 10).until(lambda _: browser.execute_script("return window.saved"))
    table = pandas.read_csv(io.StringIO(browser.execute_script("return window.saved")))
    assert table["tasks"].tolist() == [2, 2, 2] and table["p_better_tasks"].tolist()[1:] == [2, 1]
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def test_the_page_of_the_benchmark_has_a_report_over_its_tasks(tmp_path):
    whole = jaxrl.benchmark.load()
    idle = next(each for each in whole.cells if each.name == "a2c on mountain-car")  # no better than random actions
    kept = [idle, *(each for each in whole.cells if each.environment == "delayed-choice")]
    file = write_page(jaxrl.benchmark.Benchmark(whole.directory, tuple(kept)), tmp_path / "x.html")
    (text,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', file.read_text())
    reports = json.loads(text)["tasks"]
    assert list(reports) == ["all tasks", "mountain-car", "delayed-choice"]
    overview = reports["all tasks"]
    assert any(note.endswith("left out: mountain-car.") for note in overview["notes"])
    place = [line["label"] for line in overview["lines"]].index("a2c")
    entry, there = overview["metrics"]["normalised_return"], reports["delayed-choice"]
    low, high, _ = jaxrl.benchmark.reference(whole, "delayed-choice")
    plain = there["metrics"]["return"]["numbers"][[line["label"] for line in there["lines"]].index("a2c")]
    assert entry["numbers"][place][0] == pytest.approx((plain[0] - low) / (high - low), abs=1e-6)
    alone = jaxrl.benchmark.Benchmark(whole.directory, (idle,))
    (text,) = re.findall(r'id="report">(.*?)</script>', write_page(alone, tmp_path / "y.html").read_text())
    assert list(json.loads(text)["tasks"]) == ["mountain-car"]  # no task of an overview
