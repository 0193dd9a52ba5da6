"""The study of learned discounts: settings, the optimum, searches, objectives, tables, and a small run."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

import jaxrl
from bench.studies import learned_discounts
from bench.studies.__main__ import main
from bench.studies.learned_discounts import FAMILIES, HYPERBOLIC, TASKS, TEST_SEEDS, Settings, figure, table


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("cartpol",)}, "tasks has 'cartpol'; did you mean 'cartpole'?"),
        ({"forms": ("curve", "curve")}, "forms takes one or more different values, got curve curve"),
        ({"forms": ("line",)}, "forms has 'line'"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2, got 1"),
        ({"evals": 1}, "evals must be a whole number of at least 2, got 1"),
        (
            {"generations": 1, "population": 2, "settings_seeds": 3},
            "settings_seeds must be at most generations x population, 2, got 3",
        ),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


def test_the_optimum_of_dilemmas_is_that_of_the_better_reward() -> None:
    """The mean of the larger of two uniform numbers, by the integral of 1 - P(both are below x)."""
    ends = 5.0 / (1 + 0.1 * np.arange(32))  # of the value of a reward in [0, 5) after each delay
    x = (np.arange(20_000) + 0.5) * 5.0 / 20_000
    below = np.minimum(x / ends[:, None], 1.0)
    expected = np.mean([np.mean(1 - below[i] * below) * 5.0 for i in range(32)])
    # A midpoint rule of step h errs by some h^2, and by h at most where `below` has its kink, on 1 in 20,000 points.
    assert learned_discounts._optimum(TASKS["random-dilemmas"]) == pytest.approx(expected, rel=1e-6)
    assert all(learned_discounts._optimum(TASKS[name]) is None for name in TASKS if name != "random-dilemmas")


@pytest.mark.parametrize(
    ("family", "numbers", "ranges"),
    [
        ("exponential", lambda each: [1 - each.gamma], [(1e-3, 0.5)]),
        ("hyperbolic", lambda each: [each.k], [(1e-3, 1.0)]),
        ("Beta", lambda each: [1 - each.mu, each.eta], [(1e-3, 0.5), (0.03, 3.0)]),
    ],
)
def test_a_search_draws_log_uniform_numbers(family: str, numbers: Any, ranges: list[tuple[float, float]]) -> None:
    generator, count = np.random.default_rng(0), 2000
    logs = np.log([numbers(FAMILIES[family](generator)) for _ in range(count)]).T
    for drawn, (low, high) in zip(logs, np.log(ranges), strict=True):
        assert low <= drawn.min() and drawn.max() <= high + 1e-6
        spread = (high - low) / np.sqrt(12)
        assert abs(drawn.mean() - (low + high) / 2) < 4 * spread / np.sqrt(count)  # four standard errors
        assert drawn.std() == pytest.approx(spread, rel=0.1)


SMALL = Settings(seeds=3, generations=4, population=6, settings_seeds=2, test_seeds=4)


def test_a_search_takes_the_best_mean_among_discounts_without_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[tuple[list[float], list[int], np.ndarray]] = []

    def scores(name: str, discounts: list[Any], seeds: list[int], settings: Settings, progress: bool) -> np.ndarray:
        assert name == "cartpole" and settings is SMALL and progress is False
        gammas = [each.gamma for each in discounts]
        if seeds == list(range(TEST_SEEDS, TEST_SEEDS + 4)):
            return np.asarray(gammas)[:, None] + np.arange(4)
        values = np.random.default_rng(len(searches)).normal(size=(len(gammas), len(seeds)))
        values[values.mean(axis=1).argmax(), 1] = np.nan  # a failed training of the best
        values[values[:, 0].argmin()] = [np.nan, 100.0]  # nor is a discount chosen by its other training alone
        searches.append((gammas, seeds, values))
        return values

    monkeypatch.setattr(learned_discounts, "_scores", scores)
    data = learned_discounts._searched("cartpole", "exponential", SMALL, False)
    assert len(searches) == 3
    chosen = []
    for gammas, seeds, values in searches:
        assert len(set(gammas)) == 12 and len(set(seeds)) == 2  # 4 x 6 trainings in all, two for each discount
        means = {
            sum(row) / 2: gamma for gamma, row in zip(gammas, values.tolist(), strict=True) if sum(row) == sum(row)
        }
        chosen.append(means[max(means)])
    assert len({tuple(gammas) for gammas, *_ in searches}) == len({tuple(seeds) for _, seeds, _ in searches}) == 3
    np.testing.assert_array_equal(data["value"], np.asarray(chosen)[:, None] + np.arange(4))
    expected = np.asarray(chosen)[:, None] ** np.arange(201)
    np.testing.assert_allclose(data["curve"], expected, rtol=200 * 2.0**-23)  # 200 steps of a gamma in float32
    assert data["discount"].values.tolist() == [str(jaxrl.Exponential(gamma)) for gamma in chosen]
    assert np.isnan(data["start"]).all()


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("random-dilemmas", {"inner_steps": 16_384, "objective": "final", "evals": 1, "eval_episodes": 32}),
        ("cartpole", {"inner_steps": 32_768, "objective": "area", "evals": 4, "eval_episodes": 4, "discount": None}),
    ],
)
def test_learned_discounts_are_tested_after_the_start_in_the_order_of_outer_seeds(
    task: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    thetas = [np.linspace(-1, 0, 8), np.zeros(8), np.linspace(-2, 1, 8)]

    def meta(algo: Any, theta: Any, **options: Any) -> SimpleNamespace:
        seen.update(options, theta=theta)
        return SimpleNamespace(stopped_by_signal=0, result=SimpleNamespace(seeds=[0, 1, 2]), learned=thetas.__getitem__)

    def scores(name: str, discounts: list[Any], seeds: list[int], settings: Settings, progress: bool) -> np.ndarray:
        return np.stack([np.asarray(each.curve(len(seeds)))[1:] for each in discounts])

    monkeypatch.setattr(jaxrl, "meta", meta)
    monkeypatch.setattr(learned_discounts, "_scores", scores)
    data = learned_discounts._learned(task, "curve", SMALL, False)
    # The hazard of the first step is the softplus of the first number, exactly.
    first = [1 / (1 + np.exp(each[0])) for each in thetas]
    np.testing.assert_allclose(data["value"][:, 0], first, rtol=1e-5)
    np.testing.assert_allclose(data["start"], 0.99 ** np.arange(1, 5), rtol=1e-5)
    assert data["curve"].shape == (3, 33 if task == "random-dilemmas" else 201)
    options = {"discount": HYPERBOLIC, "generations": 4, "population": 6, "seeds": 3, "test_seeds": 0} | options
    assert {name: seen[name] for name in options} == options
    assert seen["progress"] is False and str(HYPERBOLIC) == "hyperbolic:k=0.1"


@pytest.mark.parametrize(
    ("name", "evals", "metric"), [("random-dilemmas", 1, "discounted_return"), ("cartpole", 4, "return")]
)
def test_equal_discounts_are_trained_once(name: str, evals: int, metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {"stopped": 0}

    def train(algo: Any, sweep: Any, **options: Any) -> SimpleNamespace:
        seen.update(options, discounts=sweep.coords["discount"][1].tolist())
        shape = len(seen["discounts"]), len(options["seeds"]), options["evals"]

        def values(of: str) -> np.ndarray:
            seen["metric"] = of
            setting, seed, point = np.indices(shape)
            return 100.0 * setting + 10.0 * seed + point

        return SimpleNamespace(values=values, metrics=SimpleNamespace(attrs={"stopped_by_signal": seen["stopped"]}))

    monkeypatch.setattr(jaxrl, "train", train)
    first, second = jaxrl.Exponential(0.9), jaxrl.Exponential(0.8)
    scores = learned_discounts._scores(name, [first, second, jaxrl.Exponential(0.9)], [5, 7], Settings(), False)
    middle = (evals - 1) / 2  # mean of the evaluations
    np.testing.assert_array_equal(
        scores, [[0 + middle, 10 + middle], [100 + middle, 110 + middle], [middle, 10 + middle]]
    )
    assert seen["discounts"] == ["exp:gamma=0.9", "exp:gamma=0.8"] and (seen["seeds"], seen["progress"]) == (
        [5, 7],
        False,
    )
    assert (seen["metric"], seen["evals"]) == (metric, evals)
    assert (seen["env_steps"], seen["eval_episodes"]) == (TASKS[name].inner_steps, TASKS[name].eval_episodes)
    seen["stopped"] = 15
    with pytest.raises(KeyboardInterrupt):
        learned_discounts._scores(name, [first], [5], Settings(), False)


@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_evaluations_discount_by_the_objective_of_the_task(gamma: float) -> None:
    """The discount of the hyper-parameters has an effect on evaluations only in a task without such an objective."""
    dilemmas: Any
    dilemmas, control = (learned_discounts._judged(name) for name in ("random-dilemmas", "cartpole"))
    hparams: Any = dilemmas.prepare(dataclasses.replace(dilemmas.hparams, discount=jaxrl.Exponential(gamma)))
    steps = np.arange(33)
    np.testing.assert_allclose(dilemmas.discount(hparams).curve(32), 1 / (1 + 0.1 * steps), rtol=1e-5)
    np.testing.assert_allclose(hparams.discount.curve(32), gamma**steps, rtol=1e-5)
    assert control.discount is TASKS["cartpole"].algo.discount


def middle_mean(values: np.ndarray) -> float:
    """Mean without the lowest and the highest quarter."""
    cut = len(values) // 4
    return float(np.mean(sorted(values)[cut : len(values) - cut]))


def cell(text: str) -> list[float]:
    """Value, low and high of a cell such as "1.5 [1.2, 1.7]"."""
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def test_the_table_has_means_over_outer_seeds_of_interquartile_means() -> None:
    runs = np.asarray([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 99.0])
    shuffled = np.stack([np.random.default_rng(i).permutation(runs) for i in range(4)])
    frame: Any = table(
        {"start": runs, "learned, curve": shuffled, "searched, Beta": shuffled + np.arange(4)[:, None]}, 4.0
    )
    assert list(frame["discount"]) == ["start", "learned, curve", "searched, Beta"]
    centre = middle_mean(runs)
    assert centre == 3.5
    value, low, high = cell(frame["value"][0])
    assert value == centre and low < 3 and high > 4  # over test seeds
    assert frame["value"][1] == "3.500 [3.500, 3.500]"  # over outer seeds, which are alike
    value, low, high = cell(frame["value"][2])
    error = np.std(np.arange(4), ddof=1) / 2  # of the mean over outer seeds
    assert value == centre + 1.5 and low < value - error and high > value + error
    assert list(frame["gap to the optimum, %"]) == ["12.50", "12.50", "-25.00"]
    assert "gap to the optimum, %" not in table({"start": runs}, None)


def test_the_table_leaves_out_and_counts_failed_runs() -> None:
    learned = np.asarray([[1.0, 1.0, np.nan, 1.0], [3.0, 3.0, 3.0, 3.0], [np.nan] * 4])
    frame: Any = table({"start": np.asarray([2.0, np.nan, 2.0, 2.0]), "learned, curve": learned}, 4.0)
    assert frame["value"][0] == "2.000 [2.000, 2.000]" and frame["value"][1].startswith("2.000 [")
    assert list(frame["gap to the optimum, %"]) == ["50.00", "50.00"]
    assert list(frame["failed"]) == [1, 5]
    assert "failed" not in table({"start": np.ones(4)}, 4.0)


def test_the_figure_shows_every_outer_seed_and_the_discount_of_the_objective() -> None:
    curves = {way: np.stack([np.full(33, 0.1 * i), np.full(33, 0.2 * i)]) for i, way in enumerate(["a", "b"])}
    ax = figure("random-dilemmas", curves).axes[0]
    *lines, objective = ax.get_lines()
    drawn = np.asarray([line.get_ydata() for line in lines])
    np.testing.assert_array_equal(drawn, np.concatenate(list(curves.values())))
    np.testing.assert_allclose(np.asarray(objective.get_ydata()), 1 / (1 + 0.1 * np.arange(33)), rtol=1e-6)
    legend: Any = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "of the objective"]
    assert len(figure("cartpole", curves).axes[0].get_lines()) == 4


@pytest.mark.slow
def test_a_small_run_writes_a_table_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learned_discounts, "STD", 8.0)  # by which even short trainings differ
    small = TASKS["random-dilemmas"]._replace(inner_steps=2048, eval_episodes=128)
    monkeypatch.setitem(TASKS, "random-dilemmas", small)
    counts = "--seeds 2 --generations 2 --population 4 --settings-seeds 2 --test-seeds 3"
    words = f"learned-discounts --tasks random-dilemmas --forms mixture {counts} --no-progress --out".split()
    out = tmp_path / "study"
    assert main([*words, str(out)]) == 0
    printed, reported = capsys.readouterr()
    assert reported == ""  # no progress
    assert "final return under hyperbolic:k=0.1 on 3 test seeds; mean over 2 outer seeds" in printed
    assert "Each outer seed has 8 inner trainings of 2,048 environment steps." in printed
    ways = ["learned, mixture", *(f"searched, {family}" for family in FAMILIES)]
    frame: Any = pandas.read_csv(out / "random-dilemmas.csv")
    assert list(frame["discount"]) == ["start", *ways] and (out / "random-dilemmas.png").exists()
    optimum = learned_discounts._optimum(small)
    assert optimum is not None
    for i, way in enumerate(ways):
        data = xarray.load_dataset(out / f"random-dilemmas_{way.split(', ')[1]}.nc")
        assert data["value"].shape == (2, 3) and 0 <= data["value"].min() <= data["value"].max() <= 5
        expected = np.mean([middle_mean(runs) for runs in data["value"].values])
        assert cell(frame["value"][i + 1])[0] == pytest.approx(expected, abs=6e-4)
        assert frame["gap to the optimum, %"][i + 1] == pytest.approx(100 * (1 - expected / optimum), abs=6e-3)

    def again(*args: Any, **options: Any) -> None:
        raise AssertionError("a finished part is computed again")

    monkeypatch.setattr(learned_discounts, "_scores", again)
    monkeypatch.setattr(jaxrl, "meta", again)
    assert main([*words, str(out)]) == 0
    assert capsys.readouterr().out == printed
