"""The report over several tasks: estimates against slow references in float64, and the page in a browser."""

import json
import re

import numpy as np
import pytest
import scipy.stats
from selenium.webdriver.common.by import By

import jaxrl
from jaxrl.report.benchmark_page import write_page
from jaxrl.report.over_tasks import report_over_tasks
from jaxrl.report.page import write_reports
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result

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


def test_estimates_agree_with_slow_references(tasks):
    report = report_over_tasks(tasks, REFERENCES, note="Zero is chance.")
    entry = report["metrics"]["normalised_return"]
    names = [line["label"] for line in report["lines"]]
    assert names == list(LINES)
    for at, name in enumerate(names):
        values = over(tasks, name)
        middle, _, _, mean, low, high, seeds, failed = entry["numbers"][at]
        assert middle == pytest.approx(scipy.stats.trim_mean(values.ravel(), 0.25), abs=1e-12)
        runs = values.mean(axis=0)
        half = scipy.stats.t.ppf(0.975, len(runs) - 1) * scipy.stats.sem(runs)
        assert [mean, low, high] == pytest.approx([runs.mean(), runs.mean() - half, runs.mean() + half], abs=1e-12)
        assert (seeds, failed) == (values.shape[1], 2 if name == "a2c" else 0)
        curve = entry["curves"]["iqm"][at][0]
        for point in (0, 7, 19):
            expected = scipy.stats.trim_mean(over(tasks, name, point).ravel(), 0.25)
            assert curve[point] == pytest.approx(expected, rel=1e-5)  # six digits
        thresholds, (share, *_) = entry["profile"]["tau"], entry["profile"]["lines"][at]
        assert share[::20] == pytest.approx([np.mean(values > tau) for tau in thresholds[::20]], abs=5e-5)
    assert entry["tasks"] == [2, 2, 2]
    assert report["steps"] == [list(range(5, 101, 5))] * 3


def test_two_lines_are_compared_over_the_tasks_of_both(tasks):
    report = report_over_tasks(tasks, REFERENCES)
    entry, names = report["metrics"]["normalised_return"], list(LINES)
    for base, one in enumerate(names):
        for line, other in enumerate(names):
            common = [task for task in REFERENCES if one in tasks[task] and other in tasks[task]]
            if line == base:
                assert entry["better"][str(base)][line] is None
                continue
            assert entry["common"][str(base)][line] == len(common)
            wins = []
            for task in common:
                ours, theirs = scores(tasks, other, task), scores(tasks, one, task)
                wins.append(np.mean([(a > b) + 0.5 * (a == b) for a in ours for b in theirs]))
            chance, low, high = entry["better"][str(base)][line]
            assert chance == pytest.approx(np.mean(wins), abs=5e-5) and low < chance < high  # four digits
            assert entry["paired"][str(base)][line] is False
    (note, *_) = [note for note in report["notes"] if "left out" in note]
    assert note.endswith("left out: unknown.")
    assert report["failures"]["total"] == 2 and report["failures"]["listed"][0]["line"] == "a2c on lake"
    assert report["differences"]["cave"] == ["\N{EN DASH}", "\N{EN DASH}", "10 seeds x 10,000 steps"]


def test_the_page_shows_all_tasks_first(tasks, browser, tmp_path):
    overview = report_over_tasks(tasks, REFERENCES)
    file = write_reports(tasks, tmp_path / "x.html", title="All", description="Tasks.", overview=overview)
    browser.get_log("browser")
    browser.get(file.as_uri())
    options = [option.text for option in browser.find_elements(By.CSS_SELECTOR, "#task option")]
    assert options == ["all tasks", "hill", "lake", "unknown", "cave"]
    heads = [heading.text for heading in browser.find_elements(By.CSS_SELECTOR, "#table thead th")]
    row = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#table tbody tr:nth-child(2) > *")]
    assert row[heads.index("Tasks")] == "2" and row[heads.index("Seeds")] == "6" and row[heads.index("Failed")] == "2"
    cells = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#matrix tbody tr:first-child td")]
    assert cells[0] == "\N{EN DASH}" and re.fullmatch(r"0\.\d\d \[0\.\d\d, 0\.\d\d\], 2", cells[1])
    assert "over the tasks of both" in browser.find_element(By.ID, "matrix-help").text
    assert "after 100 % of a run's environment steps" in browser.find_element(By.ID, "table-help").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def test_the_page_of_the_benchmark_has_a_report_over_its_tasks(tmp_path):
    whole = jaxrl.benchmark.load()
    kept = [each for each in whole.cells if each.environment in ("delayed-choice", "motor/dc-finite")]
    file = write_page(jaxrl.benchmark.Benchmark(whole.directory, tuple(kept)), tmp_path / "x.html")
    (text,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', file.read_text())
    reports = json.loads(text)["tasks"]
    assert list(reports) == ["all tasks", "motor/dc-finite", "delayed-choice"]
    overview = reports["all tasks"]
    assert any(note.endswith("left out: motor/dc-finite.") for note in overview["notes"])
    place = [line["label"] for line in overview["lines"]].index("a2c")
    entry, there = overview["metrics"]["normalised_return"], reports["delayed-choice"]
    low, high, _ = jaxrl.benchmark.reference(whole, "delayed-choice")
    plain = there["metrics"]["return"]["numbers"][[line["label"] for line in there["lines"]].index("a2c")]
    assert entry["numbers"][place][0] == pytest.approx((plain[0] - low) / (high - low), abs=1e-6)
    alone = jaxrl.benchmark.Benchmark(whole.directory, tuple(each for each in kept if "motor" in each.environment))
    (text,) = re.findall(r'id="report">(.*?)</script>', write_page(alone, tmp_path / "y.html").read_text())
    assert list(json.loads(text)["tasks"]) == ["motor/dc-finite"]  # no task of an overview
