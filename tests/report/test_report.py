"""The page that compares runs: its contents, its appearance in a browser, and errors."""

import html
import itertools
import json
import re
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
import xarray
from previous_format import write_json
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.support.wait import WebDriverWait

import envs
import jaxrl
from jaxrl.cli import main as cli
from jaxrl.report import data as report_data
from jaxrl.report.importance import importance
from jaxrl.report.page import write_report, write_reports
from jaxrl.report.search import read_search
from jaxrl.results import statistics
from jaxrl.results.checksums import checksum_of_file
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.loading import load_metrics, load_result
from jaxrl.results.result import Result
from jaxrl.sweeps.sweep import Sweep
from jaxrl.tuning.result import claim, write_search
from jaxrl.tuning.shared_study import Outcome

STEPS = (1000, 2000, 3000, 4000)
ATTRS = {
    "algorithm": "ppo",
    "environment": "cartpole",
    "block": 8,
    "compile_seconds": 3.25,
    "run_seconds": 61.5,
    "env_steps_per_second": 4096.5,
    "interrupted": 0,
    "num_devices": 1,
    "device_kind": "cpu",
}


def sweep_of(**values) -> Sweep:
    """A grid over plain numbers or strings."""
    grid = list(itertools.product(*values.values()))
    columns = {path: np.asarray([row[i] for row in grid]) for i, path in enumerate(values)}
    coords = {path: ((path,), np.asarray(levels)) for path, levels in values.items()}
    settings = [dict(zip(values, row, strict=True)) for row in grid]
    return Sweep(columns, {}, tuple(values), tuple(map(len, values.values())), coords, settings)


def result_of(
    level: npt.ArrayLike = 100.0, seeds=12, key=0, sweep=None, attrs=None, metrics=("return", "length", "value_loss")
) -> Result:
    """Metrics that rise with the steps to about a level for each setting, with scatter over the seeds."""
    generator = np.random.default_rng(key)
    count = 1 if sweep is None else len(sweep)
    shape = (count, seeds, len(STEPS))
    levels = np.broadcast_to(np.asarray(level, np.float64), count)[:, None, None]
    values = {}
    for place, name in enumerate(metrics):
        noise = generator.normal(size=(count, seeds, 1)) * 10 + generator.normal(size=shape)
        values[name] = (levels * np.linspace(0.25, 1, len(STEPS)) / (1 + place) + noise).astype(np.float32)
    dataset = metrics_dataset(values, seeds=range(seeds), env_steps=STEPS, sweep=sweep, attrs=ATTRS | (attrs or {}))
    return Result(dataset, {})


def bandit_of(level, key=0) -> Result:
    """Regrets and pulls of two arms, as of a bandit policy."""
    result = result_of(level, key=key, metrics=("regret", "reward"), attrs={"environment": "bandit/bernoulli"})
    result.metrics["pulls"] = (("seed", "env_step", "arm"), np.ones((12, len(STEPS), 2), np.float32))
    return result


def data_of(file) -> dict:
    (text,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', file.read_text())
    return json.loads(text)


def report_of(tmp_path, runs, **options) -> dict:
    return data_of(write_report(runs, tmp_path / "report.html", **options))


def test_a_known_optimum_adds_columns_of_the_gap(tmp_path):
    known, unknown = (
        Result(result_of(6, seeds=4).metrics, {}, jaxrl.ppo(envs.make(name), jaxrl.PPOConfig()))
        for name in ("fishery", "pendulum")
    )
    data = report_of(tmp_path, {"known": known, "unknown": unknown})
    (one, other), row = data["metrics"]["return"]["optima"], known.table().to_pandas().iloc[0]
    assert one == [row["optimum"], row["gap"], row["gap_percent"], None] and other == [None] * 4
    assert one[0] == pytest.approx(8.25, abs=1e-4) and one[1] == one[0] - data["metrics"]["return"]["numbers"][0][0]
    assert data["metrics"]["length"]["optima"] is None


def test_a_bound_is_no_optimum(tmp_path):
    bounded = Result(result_of(6, seeds=4).metrics, {}, jaxrl.ppo(envs.make("memory/concentration"), jaxrl.PPOConfig()))
    assert report_of(tmp_path, {"bounded": bounded})["metrics"]["return"]["optima"] == [[None, None, None, 1.0]]


def test_a_metric_without_a_value_before_training_begins_later(tmp_path):
    result = result_of()
    result.metrics.coords["env_step"] = [0, *STEPS[1:]]
    result.metrics["value_loss"][:, 0] = np.nan
    metrics = report_of(tmp_path, {"a": result})["metrics"]
    for curves in metrics["value_loss"]["curves"].values():
        ((value, low, high),) = curves
        assert value[0] is low[0] is high[0] is None and None not in [*value[1:], *low[1:], *high[1:]]
    assert None not in metrics["return"]["curves"]["iqm"][0][0]


def test_a_label_is_no_formula_in_the_table_that_is_downloaded(tmp_path):
    names = ["=HYPERLINK(1)", "plain", "-1"]
    data = report_of(tmp_path, {name: result_of(key=i) for i, name in enumerate(names)})
    assert [(line["label"], line["cell"]) for line in data["lines"]] == list(
        zip(names, ["'=HYPERLINK(1)", "plain", "-1"], strict=True)
    )
    page = (tmp_path / "report.html").read_text()
    assert "[lines[line].cell, ...metric().numbers" in page


def test_estimates_are_those_of_the_table_and_of_the_statistics(tmp_path):
    runs = {"low": result_of(100, key=1), "high": result_of(110, key=2)}
    data = report_of(tmp_path, runs)
    assert [line["label"] for line in data["lines"]] == ["low", "high"]
    assert list(data["metrics"]) == ["return", "length", "value_loss"] and data["first"] == "return"
    for metric, reported in data["metrics"].items():
        for at, run in enumerate(runs.values()):
            ((iqm, low, high, mean, seeds),) = run.table(metric).rows
            assert reported["numbers"][at][:4] == [iqm, low, high, mean]
            assert reported["numbers"][at][6:] == [seeds, 0]
            printed = str(run.table(metric)).splitlines()[-1].split("  ")
            assert reported["cells"][at][:3] == [text.strip() for text in printed if text][:3]
            final = run.values(metric)[0, :, -1].astype(np.float64)
            half = scipy.stats.sem(final) * scipy.stats.t.ppf(0.975, 11)
            # The mean of 12 numbers of size 100, in float64.
            np.testing.assert_allclose(
                reported["numbers"][at][4:6], [final.mean() - half, final.mean() + half], rtol=1e-12
            )
            curve = np.array(reported["curves"]["iqm"][at])
            expected = statistics.iqm(run.values(metric)[0].astype(np.float64).T)
            np.testing.assert_allclose(curve[0], expected, rtol=5e-6)  # six digits
            np.testing.assert_allclose(curve[:, -1], [iqm, low, high], rtol=5e-6)
    x, y = (run.values("return")[0, :, -1] for run in runs.values())
    better = statistics.probability_of_improvement(y, x)  # of unknown programs
    assert data["metrics"]["return"]["paired"] == {"0": [None, False], "1": [False, None]}
    assert data["metrics"]["return"]["better"]["0"][0] is None
    np.testing.assert_allclose(data["metrics"]["return"]["better"]["0"][1], [float(part) for part in better], atol=5e-5)
    against = [1 - float(part) for part in (better.value, better.high, better.low)]
    np.testing.assert_allclose(data["metrics"]["return"]["better"]["1"][0], against, atol=5e-5)
    profile = data["metrics"]["return"]["profile"]
    for scores, (value, low, high) in zip((x, y), profile["lines"], strict=True):
        np.testing.assert_allclose(value, [(scores > tau).mean() for tau in profile["tau"]], atol=5e-5)
        assert value[0] == 1 and value[-1] == 0 and np.all(np.array(low) <= high)


def test_less_is_better_for_a_regret_and_unknown_for_a_loss(tmp_path):
    data = report_of(tmp_path, {"bad": bandit_of(300, 1), "good": bandit_of(100, 2)})
    regret = data["metrics"]["regret"]
    assert (data["first"], data["unit"], data["estimate"], regret["direction"]) == ("regret", "pulls", "mean", -1)
    assert "pulls" not in data["metrics"]  # a number for each arm
    assert regret["better"]["0"][1][0] == 1.0 and regret["better"]["1"][0][0] == 0.0
    shares = np.array(regret["profile"]["lines"])[:, 0]
    assert np.all(shares[1] >= shares[0]) and shares[0, 0] == 0 and shares[0, -1] == 1
    assert data["metrics"]["reward"]["direction"] == 1
    reported = report_of(tmp_path, {"a": result_of(), "b": result_of(key=1)})["metrics"]
    assert {name: one["direction"] for name, one in reported.items()} == {"return": 1, "length": 0, "value_loss": 0}
    assert reported["length"]["better"] == {}
    reported = report_of(tmp_path, {"a": result_of(), "b": result_of(key=1)}, lower=["length"])["metrics"]
    assert reported["length"]["direction"] == -1 and set(reported["length"]["better"]) == {"0", "1"}


def test_returns_under_different_discounts_are_not_compared(tmp_path):
    sweep = sweep_of(discount=["exp:gamma=0.9", "exp:gamma=0.99"])
    names = ("return", "discounted_return")
    reported = report_of(tmp_path, [result_of([90, 100], sweep=sweep, metrics=names)])["metrics"]
    assert reported["return"]["direction"] == 1
    assert (
        reported["discounted_return"]["direction"] == 0 and "no common scale" in reported["discounted_return"]["note"]
    )
    again = result_of([90, 100], sweep=sweep, metrics=names)
    again.metrics.attrs["eval_discount"] = "exp:gamma=0.9"
    assert report_of(tmp_path, [again])["metrics"]["discounted_return"]["direction"] == 1
    reported = report_of(tmp_path, {"a": result_of(metrics=names), "b": result_of(metrics=names, key=1)})["metrics"]
    assert reported["discounted_return"]["direction"] == 1


def test_only_differences_are_listed(tmp_path):
    one = result_of(attrs={"block": 8})
    other = result_of(key=1, seeds=13, attrs={"block": 16, "run_seconds": 1.0})
    one.loaded = {"hparams": {"lr": 1e-3, "lam": 0.95}, "versions": {"jax": "0.11.2", "python": "3.12.1"}}
    other.loaded = {"hparams": {"lr": [1e-3, 3e-4], "lam": 0.95}, "versions": {"jax": "0.10.2", "python": "3.12.1"}}
    data = report_of(tmp_path, {"a": one, "b": other})
    assert data["differences"] == {
        "hparams.lr": ["0.001", "0.001, 0.0003"],
        "seeds": ["0 to 11", "0 to 12"],
        "block": ["8", "16"],
        "versions.jax": ["0.11.2", "0.10.2"],
    }
    facts = data["runs"][0]["facts"]
    assert facts["Algorithm"] == "ppo" and facts["Environment"] == "cartpole" and facts["JAX"] == "0.11.2"
    assert facts["Time"] == "65 s, of which 3.2 s compiling" and facts["Devices"] == "1 x cpu"
    assert data["runs"][1]["config"]["hparams"]["lr"] == [1e-3, 3e-4]


def test_notes_warn_of_runs_that_are_not_comparable(tmp_path):
    one = result_of(seeds=3, attrs={"interrupted": 1})
    other = result_of(key=1, attrs={"environment": "pendulum", "shard": "0/2", "one_hot": "observation: 5 choices"})
    other = Result(other.metrics.isel(env_step=slice(0, 3)), {})
    with pytest.warns(RuntimeWarning, match="a was interrupted: it ends at 4,000 steps"):
        notes = " ".join(report_of(tmp_path, {"a": one, "b": other})["notes"])
    for part in ("different environments (cartpole, pendulum)", "a was interrupted", "4,000 of a, 3,000 of b"):
        assert part in notes
    assert "b is the shard 0/2" in notes and "Fewer than 10 seeds in a" in notes
    assert (
        notes.count("as one-hot vectors")
        == notes.count("Networks of b read choices as one-hot vectors (observation: 5 choices).")
        == 1
    )


def test_runs_that_failed_are_listed_and_left_out(tmp_path):
    result = result_of()
    result.metrics["value_loss"][3, 1:] = np.nan
    result.metrics["return"][7, 1] = np.inf
    data = report_of(tmp_path, {"a": result})
    assert data["failures"] == {
        "listed": [
            {"line": "a", "seed": 3, "metrics": ["value_loss"], "since": 2000, "at_the_end": True},
            {"line": "a", "seed": 7, "metrics": ["return"], "since": 2000, "at_the_end": False},
        ],
        "total": 2,
        "runs": 12,
    }
    reported = data["metrics"]["return"]
    assert reported["numbers"][0][6:] == [11, 1]
    good = np.delete(result.values("return")[0], [3, 7], axis=0)
    assert reported["curves"]["mean"][0][0][1] == pytest.approx(good[:, 1].mean(), rel=5e-6)
    result.metrics["return"][:] = np.nan
    data = report_of(tmp_path, {"a": result, "b": result_of()})
    assert data["failures"]["total"] == 12 and data["metrics"]["return"]["numbers"][0][0] is None
    assert data["metrics"]["return"]["better"]["1"][0] is None


def test_one_seed_has_no_interval(tmp_path):
    reported = report_of(tmp_path, {"a": result_of(seeds=1), "b": result_of()})["metrics"]["return"]
    assert reported["numbers"][0][1:3] == [None, None] and reported["cells"][0][1] == "\N{EN DASH}"
    assert reported["better"]["1"][0][1:] == [None, None]
    assert reported["curves"]["iqm"][0][1] == [None] * 4 and reported["profile"]["lines"][0][1][0] is None


def test_seeds_cost_no_room_and_many_settings_little(tmp_path, monkeypatch):
    few = write_report({"a": result_of(seeds=10)}, tmp_path / "few.html").stat().st_size
    many = write_report({"a": result_of(seeds=400)}, tmp_path / "many.html").stat().st_size
    assert many - few < 4_000  # the seeds' numbers in config.json
    monkeypatch.setattr(report_data, "MOST_LINES", 20)
    monkeypatch.setattr(statistics, "MAX_RESAMPLED", 10**7)
    sweep = sweep_of(lr=np.arange(30.0))
    result = result_of(50 * np.arange(30.0), seeds=2, sweep=sweep, metrics=("return",))
    data = report_of(tmp_path, {"a": result}, baseline="lr 3")
    assert [line["label"] for line in data["lines"]] == ["lr 3", *(f"lr {i}" for i in range(11, 30))]
    assert data["left_out"] == 10 and data["shown"] == list(range(12, 20)) and data["baseline"] == 0
    assert list(data["metrics"]["return"]["better"]) == ["0"]


@pytest.mark.slow
def test_a_thousand_seeds_of_several_settings_are_less_than_a_few_megabytes(tmp_path):
    sweep = sweep_of(lr=[1e-4, 3e-4, 1e-3], lam=[0.9, 0.95])
    names = ("return", *(f"metric_{i}" for i in range(15)))
    result = result_of(np.arange(6.0), seeds=1000, sweep=sweep, metrics=names)
    assert write_report({"a": result}, tmp_path / "x.html").stat().st_size < 1_000_000


def test_importance_on_a_grid_is_the_analysis_of_variance():
    sweep = sweep_of(lr=[1.0, 2.0, 3.0], lam=[0.0, 1.0], kind=["a", "b"])
    lr, lam, kind = np.meshgrid([-10, 0, 10], [-3, 3], [-1, 1], indexing="ij")
    means = 100 + lr + lam + lam * kind / 3
    result = result_of(seeds=4, sweep=sweep, metrics=("return",))
    spread = np.array([-1.0, 1.0, -1.0, 1.0])  # of variance 4/3
    result.metrics["return"][..., -1] = means[..., None] + spread
    actual = importance(result, "return")
    assert actual is not None and actual.method == "anova" and actual.left_out == 0
    total = 200 / 3 + 9 + 1
    np.testing.assert_allclose(actual.shares["lr"], 200 / 3 / total, rtol=1e-5)  # metrics are float32
    np.testing.assert_allclose([actual.shares["lam"], actual.shares["kind"]], [9 / total, 0], rtol=1e-5, atol=1e-12)
    assert list(actual.shares) == ["lr", "lam", "kind"] and next(iter(actual.pairs)) == ("lam", "kind")
    np.testing.assert_allclose(actual.pairs["lam", "kind"], 1 / total, rtol=1e-4)
    np.testing.assert_allclose(actual.noise, 4 / 3 / 4 / total, rtol=1e-5)


def test_importance_in_a_random_design_is_association():
    generator = np.random.default_rng(0)
    lr, kind = generator.uniform(size=40), np.array(["a", "b", "c"])[generator.integers(3, size=40)]
    coords = {"lr": (("setting",), lr), "kind": (("setting",), kind)}
    sweep = Sweep({"lr": lr}, {}, ("setting",), (40,), coords, [{}] * 40)
    level = 100 - 50 * np.exp(lr) + 20 * (kind == "b")
    result = result_of(level, seeds=3, sweep=sweep, metrics=("return",))
    actual = importance(result, "return")
    assert actual is not None and actual.method == "association" and not actual.pairs
    means = result.values("return")[:, :, -1].astype(np.float64).mean(axis=1)
    assert actual.shares["lr"] == pytest.approx(np.asarray(scipy.stats.spearmanr(lr, means))[0] ** 2, rel=1e-9)
    f = float(np.asarray(scipy.stats.f_oneway(*(means[kind == level] for level in "abc")))[0])
    assert actual.shares["kind"] == pytest.approx((f - 1) * 2 / (f * 2 + 37), rel=1e-9)  # epsilon squared of F
    alone = Sweep({"lr": lr}, {}, ("setting",), (40,), {"lr": (("setting",), lr)}, [{}] * 40)
    of_one = importance(result_of(level, seeds=3, sweep=alone, metrics=("return",)), "return")
    assert of_one is not None and of_one.method == "association"  # not a grid of one axis
    assert of_one.shares["lr"] == pytest.approx(actual.shares["lr"], rel=1e-9)
    result.metrics["return"][0] = np.nan
    left = importance(result, "return")
    assert left is not None and left.left_out == 1
    assert importance(result_of(), "return") is None


SPACE = {"lr": "log:0.0001:0.1", "lam": "0.8:1.0", "discount": "0.9,0.99", "config.num_steps": "16,32"}


def search_of(directory, tested=True, complete=20, test_seeds=range(1_000_000, 1_000_012)) -> Outcome:
    """The directory of a search: trials whose return falls with lr, of which some were stopped and one failed.

    Returns the incumbent, or another trial if none is complete.
    """
    generator = np.random.default_rng(0)
    trials = []
    for number in range(complete + 6):
        lr = float(10 ** generator.uniform(-4, -1))
        setting = {
            "lr": lr,
            "lam": float(generator.uniform(0.8, 1)),
            "discount": ("exp:gamma=0.9", "exp:gamma=0.99")[number % 2],
            "config.num_steps": (16, 32)[number // 2 % 2],
        }
        returns = [100 - 20 * float(np.log10(lr)) + offset for offset in (-1.0, 0.0, 4.0)]
        state = "complete" if number < complete else "failed" if number == complete else "pruned"
        returns = [float("nan")] * 3 if state == "failed" else returns
        trials.append(Outcome(number, state, setting, float(np.mean(returns)), returns, 96))
    directory.mkdir()
    identity = {
        "algorithm": "ppo",
        "environment": "cartpole",
        "space": SPACE,
        "env_steps": 4000,
        "seeds": [0, 1, 2],
        "eval_episodes": 4,
        "aggregate": "mean",
        "hparams": {"lr": 3e-4, "lam": 0.95},
    }
    best = max(trials[:complete] or trials[-1:], key=lambda trial: trial.score)
    for key, (name, level) in enumerate({"incumbent": 140.0, "default": 100.0}.items()):
        result = result_of(level, key=key)
        result.metrics = result.metrics.assign_coords(seed=list(test_seeds))
        result.save(directory / name)
    files = {name: checksum_of_file(directory / name / "config.json") for name in ("default", "incumbent") if tested}
    write_search(directory, "ppo-cartpole", identity, trials, {"files": files})
    return best


def test_the_report_of_a_search_has_its_test_its_trials_and_importances(tmp_path):
    best = search_of(tmp_path / "sweep")
    data = report_of(tmp_path, [tmp_path / "sweep"])
    assert [line["label"] for line in data["lines"]] == ["sweep/default", "sweep/incumbent"] and data["baseline"] == 0
    reported = data["metrics"]["return"]
    for at, name in enumerate(("default", "incumbent")):
        ((iqm, low, high, *_),) = load_metrics(tmp_path / "sweep" / name).table("return").rows
        assert reported["numbers"][at][:3] == [iqm, low, high]
    assert reported["better"]["0"][1][0] == 1.0  # 140 against 100, which scatter by 10
    none, actual = reported["importance"]
    shares = dict(actual["shares"])
    assert none is None and actual["run"] == "sweep, complete trials" and actual["method"] == "association"
    assert actual["settings"] == 20 and actual["left_out"] == 0
    assert shares["lr"] == 1.0 and set(shares) == set(SPACE)  # the return falls with lr and with nothing else
    assert max(share for path, share in shares.items() if path != "lr") < 0.5
    assert data["metrics"]["length"]["importance"] == [None, None] and data["swept"] == 1
    facts = data["runs"][1]["facts"]
    assert facts["Study"] == "ppo-cartpole: 26 trials, 20 complete, 5 stopped by halving, 1 failed"
    assert facts["Tuning seeds"] == "0 to 2" and facts["Test seeds"] == "1000000 to 1000011"
    assert facts["Incumbent"].startswith(
        f"trial {best.number}, mean final return {best.score:.2f} over the tuning seeds"
    )
    assert f"lr={best.setting['lr']:.7g}" in facts["Its values"] and "lam=0.8:1.0" in facts["Searched"]
    assert "Study" not in data["runs"][0]["facts"]
    (note,) = [note for note in data["notes"] if "search" in note]
    assert "test seeds, which no trial used" in note and "20 complete trials" in note


def test_test_seeds_that_trials_have_seen_are_reported(tmp_path):
    search_of(tmp_path / "sweep", test_seeds=range(2, 14))
    assert "some of which its trials used" in " ".join(report_of(tmp_path, [tmp_path / "sweep"])["notes"])


def test_of_a_search_without_a_test_come_its_trials(tmp_path):
    best = search_of(tmp_path / "sweep", tested=False)
    data = report_of(tmp_path, {"mine": tmp_path / "sweep"})
    assert len(data["lines"]) == 20 and list(data["metrics"]) == ["return"]
    ends = [row[3] for row in data["metrics"]["return"]["numbers"]]
    assert max(ends) == pytest.approx(best.score, rel=1e-6)
    assert ends.index(max(ends)) == best.number
    (actual,) = data["metrics"]["return"]["importance"]
    assert dict(actual["shares"])["lr"] == 1.0
    assert "mine is a search without results on test seeds" in data["notes"][0]
    assert "Devices" not in data["runs"][0]["facts"] and "search.json" in data["runs"][0]["again"]
    assert report_of(tmp_path, [tmp_path / "sweep", result_of()])["first"] == "return"  # among others


def test_a_search_without_information_gets_one_sentence(tmp_path):
    search_of(tmp_path / "begun", complete=0)
    with pytest.raises(ResultError, match=r"begun holds a search without a complete trial\.$"):
        write_report([tmp_path / "begun"], tmp_path / "x.html")
    search_of(tmp_path / "cut")
    reported = json.loads((tmp_path / "cut" / "search.json").read_text())
    for name, value in (("seeds", ...), ("trials", {"a": 1}), ("trials", [[1]]), ("trials", [{"a": 1}]), ("found", 1)):
        write_json(
            tmp_path / "cut" / "search.json", {k: v for k, v in (reported | {name: value}).items() if v is not ...}
        )
        with pytest.raises(ResultError, match=r"cut holds a search that is damaged: "):
            write_report([tmp_path / "cut"], tmp_path / "x.html")
    (tmp_path / "cut" / "search.json").write_text('{"study": ')
    with pytest.raises(ResultError, match="cut holds a search that is damaged: Expecting value"):
        write_report([tmp_path / "cut"], tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_every_byte_of_a_search_is_guarded(tmp_path):
    search_of(tmp_path / "sweep", complete=2)
    file, reported = tmp_path / "sweep" / "search.json", json.loads((tmp_path / "sweep" / "search.json").read_text())
    content = file.read_bytes()
    identity = {name: reported[name] for name in reported if name not in ("study", "trials", "found", "checksum")}
    claim(tmp_path / "sweep", identity, "ppo-cartpole")  # as the same search does
    for at in range(0, len(content), len(content) // 40):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x01]) + content[at + 1 :])
        with pytest.raises(
            ResultError, match=r"search\.json is damaged, or was changed by hand|search that is damaged"
        ):
            read_search(tmp_path / "sweep")
        with pytest.raises(ResultError, match=r"search\.json is damaged, .*: delete it, and the same search writes it"):
            claim(tmp_path / "sweep", identity, "ppo-cartpole")
    (tmp_path / "sweep" / "trials.csv").write_text("damaged")
    file.write_bytes(content)
    result_of(3.0).save(tmp_path / "other")
    (tmp_path / "sweep" / "default").rename(tmp_path / "kept")
    (tmp_path / "other").rename(tmp_path / "sweep" / "default")
    with pytest.raises(ResultError, match=r"default belongs to another search than search\.json: run"):
        read_search(tmp_path / "sweep")
    assert read_search(tmp_path / "sweep", trust=True).tests
    (tmp_path / "sweep" / "default").rename(tmp_path / "other")
    (tmp_path / "kept").rename(tmp_path / "sweep" / "default")
    assert len(read_search(tmp_path / "sweep").trials.settings) == 2


def test_runs_are_named_by_the_shortest_distinct_ends_of_their_paths(tmp_path):
    for name in ("x/a", "y/a"):
        result_of().save(tmp_path / name)
    data = report_of(tmp_path, [tmp_path / "x" / "a", tmp_path / "y" / "a", result_of(key=1), result_of(key=2)])
    assert [run["name"] for run in data["runs"]] == ["x/a", "y/a", "ppo (1)", "ppo (2)"]
    directories = [run["facts"]["Directory"] for run in data["runs"]]
    assert directories == [str(tmp_path / "x" / "a"), str(tmp_path / "y" / "a"), *["in memory, not saved"] * 2]


def test_the_directory_of_a_saved_or_loaded_result_is_stated(tmp_path):
    saved, memory = result_of(key=1), result_of(key=2)
    saved.save(tmp_path / "a")
    loaded = load_result(tmp_path / "a")
    data = report_of(tmp_path, {"saved": saved, "loaded": loaded, "memory": memory})
    directories = [run["facts"]["Directory"] for run in data["runs"]]
    assert directories == [str(tmp_path / "a")] * 2 + ["in memory, not saved"]


def test_a_label_is_text_and_nothing_else(tmp_path):
    name = "</script><script>alert(1)</script> & __DATA__"
    page = write_report({name: result_of()}, tmp_path / "x.html", title=name).read_text()
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count(html.escape(name)) == 2
    assert data_of(tmp_path / "x.html")["lines"][0]["label"] == name


def test_the_page_refers_to_nothing_outside(tmp_path):
    page = write_report({"a": result_of()}, tmp_path / "x.html").read_text()
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)|\bsrc=|<iframe|fetch\(|XMLHttp", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]


@pytest.mark.parametrize(
    ("runs", "options", "error", "sentence"),
    [
        ([], {}, ValueError, "runs is empty; it takes at least one run directory"),
        (["nowhere"], {}, ResultError, "nowhere is not a run directory: there is no such directory"),
        (["empty"], {}, ResultError, "empty does not hold a complete result: metrics.nc, config.json is missing"),
        (["a", "a"], {}, ValueError, "runs has .*a twice; a comparison takes different runs"),
        (["a", "b/../a"], {}, ValueError, r"runs has .*b/../a twice, which is .*/a; a comparison"),
        (["a", "bandit"], {}, ResultError, "no metric in common: a has return, length, value_loss; bandit has regret"),
        (["a"], {"out": "x.htm"}, ValueError, r"out is '.*x.htm'; a report's name ends in .html"),
        (["a"], {"out": "file/x.html"}, ValueError, "x.html cannot be written: File exists"),
        (["a"], {"out": "folder.html"}, ValueError, "folder.html cannot be written: Is a directory"),
        (["a"], {"metric": "retrun"}, ValueError, "metric is 'retrun', .* did you mean 'return'"),
        (["a"], {"lower": ["returns"]}, ValueError, "lower is 'returns', .* did you mean 'return'"),
        (["a"], {"lower": ["length"], "higher": ["length"]}, ValueError, "lower names 'length', and so does higher"),
        (["a", "b"], {"baseline": "c"}, ValueError, "baseline is 'c'; it takes a setting's label, such as 'a'"),
        (["a"], {"confidence": 95}, ValueError, "confidence is 95; it takes a number between 0 and 1"),
        ([3], {}, TypeError, "runs takes run directories and results, got 3"),
    ],
)
def test_wrong_arguments_get_one_sentence(tmp_path, runs, options, error, sentence):
    (tmp_path / "file").write_text("in the way")
    for name in ("empty", "folder.html"):
        (tmp_path / name).mkdir()
    for name, result in {"a": result_of(), "b": result_of(key=1), "bandit": bandit_of(9)}.items():
        if name in map(str, runs):
            result.save(tmp_path / name)
    (tmp_path / "b").mkdir(exist_ok=True)
    out = tmp_path / options.get("out", "report.html")
    others = {name: value for name, value in options.items() if name != "out"}
    with pytest.raises(error, match=sentence) as reported:
        write_report([tmp_path / run if isinstance(run, str) else run for run in runs], out, **others)
    assert "\n" not in str(reported.value)
    assert not (tmp_path / "report.html").exists() and not list(tmp_path.glob("**/.*"))


def test_the_command_writes_the_page_and_reports_mistakes(tmp_path, capsys):
    for name in ("a", "b"):
        result_of(key=ord(name)).save(tmp_path / name)
    paths = [str(tmp_path / name) for name in ("a", "b")]
    out = tmp_path / "new" / "x.html"
    assert cli.main(["report", *paths, "--out", str(out), "--baseline", "b", "--lower", "value_loss", "length"]) == 0
    assert capsys.readouterr().out.startswith(f"Wrote {out} (")
    data = data_of(out)
    assert data["baseline"] == 1 and data["metrics"]["length"]["direction"] == -1
    assert cli.main(["report", paths[0], paths[0], "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "twice" in error and error.count("\n") == 1
    named = [f"first={paths[0]}", paths[1]]
    assert cli.main(["report", *named, "--out", str(out), "--baseline", "first"]) == 0
    assert [line["label"] for line in data_of(out)["lines"]] == ["first", "b"]
    assert cli.main(["report", f"b={paths[0]}", paths[1], "--out", str(out)]) == 2
    assert f"RUN takes a name for {paths[1]}, since b is that of {paths[0]}: NAME={paths[1]}" in capsys.readouterr().err
    assert cli.main(["report", "b=", "--out", str(out)]) == 2
    assert "RUN takes a directory behind its name, such as b=runs/mine, got b=" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "lr=0.1" / "a"), "--out", str(out)]) == 2
    assert str(tmp_path / "lr=0.1" / "a") in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["report", "--help"])
    assert "usage: jaxrl report" in capsys.readouterr().out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The directories of two runs of 64 seeds, which differ in their returns and in a hyper-parameter."""
    directory = tmp_path_factory.mktemp("runs")
    for name, level, block in (("low", 100, 8), ("high", 120, 16)):
        result = result_of(level, seeds=64, key=level, attrs={"block": block})
        if name == "high":
            result.metrics["value_loss"][5, 2:] = np.nan
        result.save(directory / name)
    return [directory / "low", directory / "high"]


@pytest.fixture
def page(browser, runs, tmp_path):
    """The browser with the report on both."""
    write_report(runs, tmp_path / "x.html", title="Low & high")
    browser.get_log("browser")
    browser.get((tmp_path / "x.html").as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def find(page, selector):
    return page.find_elements("css selector", selector)


def choose(page, control, value):
    find(page, f"#{control} option[value='{value}']")[0].click()


def wait_for(page, condition):
    """Wait until a page that loads itself anew meets a condition."""
    WebDriverWait(page, 10, ignored_exceptions=[StaleElementReferenceException]).until(lambda _: condition())


def cells(page):
    return [[cell.text for cell in find(row, "th, td")] for row in find(page, "#table tbody tr")]


def test_the_page_opens_with_curves_tables_and_differences(page):
    assert page.title == "Low & high"
    for chart in ("curves", "profile"):
        assert len(find(page, f"#{chart} path.line")) == len(find(page, f"#{chart} path.band")) == 2
    assert [key.text for key in find(page, ".key")] == ["low", "high"]
    assert page.find_element("id", "direction").text == "higher is better"
    texts = [[cell.text for cell in find(row, "th, td")] for row in find(page, "#differences tbody tr")]
    assert texts == [["block", "8", "16"]]
    failed = [[cell.text for cell in find(row, "th, td")] for row in find(page, "#failures tbody tr")]
    assert failed == [["high", "5", "3,000 environment steps", "value_loss"]]
    assert not page.find_element("id", "importance-section").is_displayed()


def test_the_table_is_that_of_the_result(page, runs):
    from jaxrl.results.loading import load_metrics

    for metric in ("return", "length"):
        choose(page, "metric", metric)
        for row, directory in zip(cells(page), runs, strict=True):
            table = load_metrics(directory).table(metric)
            printed = [text.strip() for text in str(table).splitlines()[-1].split("  ") if text]
            assert row[:4] == [directory.name, *printed[:3]]
    assert [heading.text for heading in find(page, "#table thead th")][-2:] == ["Seeds", "Failed"]
    assert [row[-2:] for row in cells(page)] == [["64", "0"], ["63", "1"]]


def test_a_legend_entry_hides_and_shows_its_curve(page):
    low, high = find(page, ".key")
    high.click()
    assert high.get_attribute("aria-pressed") == "false"
    assert [
        len(find(page, f"#{chart} [data-line='{line}']")) for chart in ("curves", "profile") for line in (0, 1)
    ] == [
        *(1, 0),
        *(1, 0),
    ]
    low.send_keys(" ")  # by the keyboard
    assert find(page, "#curves path.line") == [] and "hidden" in page.find_element("id", "curves").text
    page.find_element("id", "all").click()
    assert len(find(page, "#curves path.line")) == 2 and low.get_attribute("aria-pressed") == "true"


def test_another_metric_changes_curves_table_and_direction(page):
    before = find(page, "#curves path.line")[0].get_attribute("d"), cells(page)
    assert "return per episode" in page.find_element("id", "curves").text
    choose(page, "metric", "value_loss")
    assert find(page, "#curves path.line")[0].get_attribute("d") != before[0] and cells(page) != before[1]
    assert "value loss" in page.find_element("id", "curves").text
    assert page.find_element("id", "direction").text == ""
    assert "P(better)" not in page.find_element("id", "table").text


def test_the_baseline_and_the_estimate_can_be_chosen(page, runs):
    chances = [row[5] for row in cells(page)]
    assert chances[0] == "baseline"
    choose(page, "baseline", 1)
    now = [row[5] for row in cells(page)]
    assert now[1] == "baseline" and "“high”" in page.find_element("id", "table-help").text
    first, second = (float(text.split(" ")[0]) for text in (chances[1], now[0]))
    assert first > 0.8 and first + second == pytest.approx(1, abs=1.1e-3)  # each to three decimals
    before = find(page, "#curves path.line")[0].get_attribute("d")
    choose(page, "estimate", "mean")
    assert find(page, "#curves path.line")[0].get_attribute("d") != before


def test_scales_zoom_and_reset(page):
    from selenium.webdriver.common.action_chains import ActionChains

    def line():
        return find(page, "#curves path.line")[0].get_attribute("d")

    linear, reset = line(), page.find_element("id", "reset")
    choose(page, "y-scale", "log")
    logarithmic = line()
    assert logarithmic != linear and not reset.is_enabled()
    choose(page, "y-scale", "linear")
    assert line() == linear
    drawing = find(page, "#curves svg")[0]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawing)
    drag = ActionChains(page).move_to_element_with_offset(drawing, -100, 0)
    drag.click_and_hold().move_by_offset(200, 60).release().perform()
    assert line() != linear and reset.is_enabled()
    reset.click()
    assert line() == linear and not reset.is_enabled()
    chart = page.find_element("id", "curves")
    chart.send_keys("+")
    assert line() != linear
    chart.send_keys("0")
    assert line() == linear


def test_pointing_reads_values_and_intervals(page, runs, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains

    drawing = find(page, "#curves svg")[0]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawing)
    ActionChains(page).move_to_element_with_offset(drawing, drawing.size["width"] // 2 - 20, 0).perform()
    tip = find(page, "#curves .tip")[0]
    reported = data_of(tmp_path / "x.html")["metrics"]["return"]["curves"]["iqm"]
    value, low, high = (part[-1] for part in reported[1])
    lines = tip.text.splitlines()
    assert lines[0] == "4,000 environment steps" and lines[1].startswith("high: ")  # the higher curve first
    numbers = [float(text) for text in re.findall(r"[\d.]+", lines[1])]
    np.testing.assert_allclose(numbers, [value, low, high], rtol=5e-4)  # four digits
    chart = page.find_element("id", "curves")
    chart.send_keys("\ue012")  # left
    assert tip.text.startswith("3,000 environment steps")
    assert page.find_element("id", "said").get_attribute("textContent").startswith("3,000 environment steps; high")
    chart.send_keys("\ue00c")  # escape
    assert not tip.is_displayed()


def test_a_heading_sorts_the_table(page):
    def names():
        return [row[0] for row in cells(page)]

    assert names() == ["low", "high"]
    find(page, "#table thead button")[1].click()
    assert names() == ["high", "low"]
    assert find(page, "#table thead th")[1].get_attribute("aria-sort") == "descending"
    find(page, "#table thead button")[1].click()
    assert names() == ["low", "high"]


def test_the_configuration_and_the_table_can_be_downloaded(page, tmp_path, runs):
    import pandas

    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path / "got")})
    page.find_element("id", "download-table").click()
    find(page, "#again summary")[0].click()
    find(page, "#again button")[0].click()
    end = time.monotonic() + 10
    files = [tmp_path / "got" / name for name in ("return.csv", "low-config.json")]
    while not all(file.exists() for file in files) and time.monotonic() < end:
        time.sleep(0.05)
    table, config = pandas.read_csv(files[0]), json.loads(files[1].read_text())
    assert table["setting"].tolist() == ["low", "high"] and table["seeds"].tolist() == [64, 63]
    saved = json.loads((runs[0] / "config.json").read_text())
    assert config == {name: value for name, value in saved.items() if name not in ("checksum", "files")}


def test_the_page_shows_a_known_optimum_and_the_gap(browser, tmp_path):
    known, unknown, bounded = (
        Result(result_of(6, seeds=4).metrics, {}, jaxrl.ppo(envs.make(name), jaxrl.PPOConfig()))
        for name in ("fishery", "pendulum", "memory/concentration")
    )
    results = {"known": known, "unknown": unknown, "bounded": bounded}
    browser.get_log("browser")
    browser.get(write_report(results, tmp_path / "x.html").as_uri())
    heads = [heading.text for heading in find(browser, "#table thead th")]
    at, row = heads.index("Optimum"), known.table().to_pandas().iloc[0]
    assert heads[at + 1] == "Gap"
    assert "The gap is the optimum less the IQM" in browser.find_element("id", "table-help").text
    first, second, third = cells(browser)
    assert first[at] == "8.25" and second[at : at + 2] == ["\N{EN DASH}"] * 2
    assert third[at : at + 2] == ["\N{LESS-THAN OR EQUAL TO} 1", "\N{EN DASH}"]
    ((gap, percent),) = re.findall(r"^(-?[\d.]+) \((-?[\d.]+) %\)$", first[at + 1])
    assert float(gap) == pytest.approx(row["gap"], rel=5e-3)  # three digits
    assert float(percent) == pytest.approx(row["gap_percent"], abs=5e-3)
    choose(browser, "metric", "length")
    assert "Optimum" not in browser.find_element("id", "table").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def test_the_matrix_has_the_probabilities_of_all_pairs_that_are_shown(browser, tmp_path):
    results = {name: result_of(100 + 4 * at, seeds=12, key=at) for at, name in enumerate(("a", "b", "c"))}
    file = write_report(results, tmp_path / "x.html")
    browser.get(file.as_uri())

    def rows():
        return [[cell.text for cell in find(row, "th, td")] for row in find(browser, "#matrix tbody tr")]

    probabilities = data_of(file)["metrics"]["return"]["better"]
    for base, column in ((0, 1), (1, 2), (2, 3)):
        for line, row in enumerate(rows()):
            expected = probabilities[str(base)][line]
            text = "\N{EN DASH}" if line == base else "{:.2f} [{:.2f}, {:.2f}]".format(*expected)
            assert row[column] == text
    find(browser, ".key")[0].click()  # with two settings, the table of final values says the same
    assert not browser.find_element("id", "matrix-section").is_displayed()


def test_a_reader_selects_one_of_several_tasks(browser, tmp_path):
    tasks = {
        task: {name: result_of(level + at, key=at, attrs={"environment": task}) for at, name in enumerate(names)}
        for task, level, names in (("cartpole", 100, ("ppo", "a2c")), ("lq/scalar", 20, ("ppo", "sac")))
    }
    file = write_reports(tasks, tmp_path / "x.html", title="All & more", description="Two tasks.")
    browser.get(file.as_uri())
    assert browser.title == "All & more"
    assert [option.text for option in find(browser, "#task option")] == ["cartpole", "lq/scalar"]
    assert [key.text for key in find(browser, ".key")] == ["ppo", "a2c"]
    choose(browser, "task", "lq/scalar")
    wait_for(browser, lambda: [key.text for key in find(browser, ".key")] == ["ppo", "sac"])
    assert browser.current_url.endswith("#lq%2Fscalar")
    assert find(browser, "#task option:checked")[0].text == "lq/scalar"
    assert float(cells(browser)[0][1]) == pytest.approx(20, abs=5)
    for place in ("#%zz", "#other"):
        browser.get("about:blank")
        browser.get(file.as_uri() + place)
        assert [key.text for key in find(browser, ".key")] == ["ppo", "a2c"]
        assert f"There is no task {place[1:]}: this is cartpole" in browser.find_element("id", "said").get_attribute(
            "textContent"
        )
    with pytest.raises(ValueError, match=r"a report's name ends in \.html"):
        write_reports(tasks, tmp_path / "x.txt", title="", description="")


def test_a_report_has_lines_of_the_benchmark(browser, tmp_path, capsys):
    result = result_of(100, attrs={"environment": "delayed-choice"})
    result.save(tmp_path / "mine")
    assert cli.main(["report", str(tmp_path / "mine"), "--to", "benchmark", "--out", str(tmp_path / "x.html")]) == 0
    data = data_of(tmp_path / "x.html")
    have = jaxrl.benchmark.load()
    names = [f"benchmark {name}" for name in have.results("delayed-choice")]
    assert [line["label"] for line in data["lines"]] == ["mine", *names] and len(names) >= 7
    browser.get((tmp_path / "x.html").as_uri())
    widths = [line.get_attribute("stroke-width") for line in find(browser, "#curves path.line")]
    assert widths == ["4"] + ["2"] * len(names)
    place = names.index("benchmark a2c") + 1
    assert data["steps"][place] == [0, STEPS[-1]]  # where the run ends, before the second evaluation of the cell
    kept = have.result("a2c", "delayed-choice")
    share = STEPS[-1] / int(kept.metrics["env_step"][1])
    ends = (1 - share) * kept.values("return")[0, :, 0] + share * kept.values("return")[0, :, 1]
    assert data["metrics"]["return"]["numbers"][place][0] == pytest.approx(float(statistics.iqm(ends)), rel=1e-6)
    again = data["runs"][place]["again"]
    assert again.startswith("jaxrl benchmark run a2c delayed-choice trains it, at commit ")
    assert data_of(write_report({"mine": result}, tmp_path / "z.html", to=have))["steps"] == data["steps"]
    pendulum = {"mine": result_of(1, attrs={"environment": "mine"})}
    with pytest.raises(ValueError, match=r"^the benchmark has no data on mine; it has"):
        write_report(pendulum, tmp_path / "y.html", to="benchmark")
    short = result_of(40, attrs={"environment": "cartpole", "return_low": 1.0, "return_high": 50.0})
    with pytest.raises(ValueError, match=r"^to takes the benchmark, whose returns .* lie in \[1\.0, 500\.0\], and"):
        write_report({"mine": short}, tmp_path / "y.html", to="benchmark")
    both = {"one": result, "two": result_of(1, attrs={"environment": "mine"})}
    with pytest.raises(ValueError, match=r"^the benchmark has no data on mine; it has"):
        write_report(both, tmp_path / "y.html", to="benchmark")
    with pytest.raises(ValueError, match=r"^to "):
        write_report(pendulum, tmp_path / "y.html", to="bench")  # pyright: ignore[reportArgumentType]


def test_a_report_on_several_tasks_of_the_benchmark_begins_with_one_over_all(browser, tmp_path, capsys):
    tasks = ("delayed-choice", "stopping")
    for task in tasks:
        result_of(100, attrs={"environment": task, "algorithm": "ours"}).save(tmp_path / task)
    out, directories = tmp_path / "x.html", [str(tmp_path / task) for task in tasks]
    assert cli.main(["report", *directories, "--to", "benchmark", "--out", str(out)]) == 0
    reports = data_of(out)["tasks"]
    assert list(reports) == ["all tasks", *tasks]
    have = jaxrl.benchmark.load()
    for task in tasks:
        names = ["ours", *(f"benchmark {name}" for name in have.results(task))]
        assert [line["label"] for line in reports[task]["lines"]] == names
        assert reports[task]["steps"][1][-1] == STEPS[-1]
    overview = reports["all tasks"]
    assert overview["lines"][0]["label"] == "ours" and overview["lines"][0]["width"] == 4.0
    assert {line["width"] for line in overview["lines"][1:]} == {2.0}
    assert overview["metrics"]["normalised_return"]["tasks"][0] == 2
    plain = [reports[task]["metrics"]["return"]["numbers"][0][3] for task in tasks]  # means of the last evaluation
    ends = [jaxrl.benchmark.reference(have, task)[:2] for task in tasks]
    expected = np.mean([(value - low) / (high - low) for value, (low, high) in zip(plain, ends, strict=True)])
    assert overview["metrics"]["normalised_return"]["numbers"][0][3] == pytest.approx(expected, rel=1e-6)
    browser.get(out.as_uri())
    assert len(find(browser, "#task option")) == 3
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []

    mine = {"mine": directories}
    content = data_of(write_report(mine, tmp_path / "y.html", to=have, baseline="benchmark a2c"))["tasks"]
    for report in content.values():
        assert report["lines"][0]["label"] == "mine"
        assert report["lines"][report["baseline"]]["label"] == "benchmark a2c"
    named = [f"mine={directory}" for directory in directories]
    assert cli.main(["report", *named, "--to", "benchmark", "--out", str(tmp_path / "z.html")]) == 0
    assert data_of(tmp_path / "z.html")["tasks"]["all tasks"]["lines"][0]["label"] == "mine"
    capsys.readouterr()


def test_errors_of_a_report_on_several_tasks_of_the_benchmark(tmp_path):
    def on(task: str, seed: int = 0) -> Result:
        return result_of(seed, attrs={"environment": task, "algorithm": "ours"})

    def write(runs: Any, **options: Any) -> None:
        write_report(runs, tmp_path / "x.html", to="benchmark", **options)

    both = [on("stopping"), on("delayed-choice")]
    with pytest.raises(ValueError, match=r"^runs has two results of 'ours' on stopping; give them different names$"):
        write([*both, on("stopping")])
    with pytest.raises(ValueError, match=r"^runs has two results of 'mine' on stopping"):
        write({"mine": [on("stopping"), on("stopping")]})
    with pytest.raises(ValueError, match=r"^baseline is 'our'; did you mean 'ours'\?"):
        write(both, baseline="our")
    with pytest.raises(ValueError, match=r"^runs has the name 'benchmark sac'; names that begin with 'benchmark' are"):
        write({"benchmark sac": on("stopping"), "mine": on("pendulum")})  # SAC has data on the second task alone
    with pytest.raises(ValueError, match=r"^runs takes at least one run for each name, got none for 'mine'$"):
        write({"mine": [], "other": both[0]})
    with pytest.raises(TypeError, match=r"^runs takes a run or a list of runs for each name, got a dictionary for 'a'"):
        write({"a": {"stopping": both[0]}})
    swept = result_of([1.0, 2.0], sweep=sweep_of(lr=(0.1, 0.2)), attrs={"environment": "stopping"})
    with pytest.raises(ValueError, match=r"^runs on several environments take one setting each, and swept on stopping"):
        write({"swept": swept, "mine": both[1]})
    with pytest.raises(
        TypeError, match=r"^runs takes one run for each name, got a list for 'mine'; with to='benchmark'"
    ):
        write_report({"mine": both}, tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_the_page_of_a_search_shows_the_importances_of_hyperparameters(browser, tmp_path):
    search_of(tmp_path / "sweep")
    browser.get_log("browser")
    browser.get(write_report([tmp_path / "sweep"], tmp_path / "x.html").as_uri())
    rows = [[cell.text for cell in find(row, "th, td")][:2] for row in find(browser, "#importance tbody tr")]
    assert rows[0] == ["lr", "100.0 %"] and "which no trial used" in browser.find_element("id", "notes").text
    choose(browser, "metric", "length")
    assert "have the return alone" in browser.find_element("id", "importance").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def test_the_page_fits_a_small_window_and_a_dark_one(page):
    def luminance():
        colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)))

    light = luminance()
    size = {"width": 420, "height": 700, "deviceScaleFactor": 2, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        end = time.monotonic() + 10
        while find(page, "#curves svg")[0].size["width"] > 420 and time.monotonic() < end:
            time.sleep(0.02)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 420
        assert light > 700 and luminance() < 150
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.slow
def test_the_code_of_a_run_repeats_the_run(tmp_path):
    import envs
    import jaxrl

    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=2, num_steps=16, hidden=(8,)))
    first = jaxrl.train(
        algo, seeds=[3, 5], env_steps=96, evals=2, eval_episodes=2, block=1, out=tmp_path / "run", progress=False
    )
    scope: dict = {}
    exec(report_of(tmp_path, [tmp_path / "run"])["runs"][0]["code"], scope)
    xarray.testing.assert_equal(scope["again"].metrics, first.metrics)


def trained_by(maker, key, **changes) -> Result:
    """A result of an algorithm on cartpole, with random scores."""
    import envs
    import jaxrl

    algo = getattr(jaxrl, maker)(envs.make("cartpole"), **changes)
    return Result(result_of(key=key, attrs={"algorithm": maker}).metrics, {}, algo)


def test_only_runs_of_one_program_are_paired(tmp_path):
    import jaxrl

    small = jaxrl.PPOConfig(hidden=(8,))
    runs = {
        "ppo": trained_by("ppo", 1),
        "again": trained_by("ppo", 2),
        "a2c": trained_by("a2c", 3),
        "small": trained_by("ppo", 4, config=small),
    }
    reported = report_of(tmp_path, runs)["metrics"]["return"]
    assert reported["paired"]["0"] == [None, True, False, False]
    scores = [run.values("return")[0, :, -1] for run in runs.values()]
    for other, paired in ((1, True), (2, False)):
        expected = statistics.probability_of_improvement(scores[other], scores[0], paired=paired)
        np.testing.assert_allclose(reported["better"]["0"][other], [float(part) for part in expected], atol=5e-5)


def test_settings_of_one_result_are_paired(tmp_path):
    result = result_of([100, 120], sweep=sweep_of(discount=["exp:gamma=0.9", "exp:gamma=0.99"]))
    assert report_of(tmp_path, {"sweep": result})["metrics"]["return"]["paired"]["0"][1] is True


def test_runs_of_other_seeds_are_compared_each_with_each(tmp_path):
    runs = {"a": result_of(seeds=6), "b": result_of(seeds=8, key=1)}
    reported = report_of(tmp_path, runs)["metrics"]["return"]
    x, y = (run.values("return")[0, :, -1] for run in runs.values())
    unpaired = statistics.probability_of_improvement(y, x)
    assert reported["paired"]["0"] == [None, False]
    np.testing.assert_allclose(reported["better"]["0"][1], [float(part) for part in unpaired], atol=5e-5)
