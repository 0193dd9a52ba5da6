"""The study of the benchmark's claims: settings, numbers of seeds, simulated searches, ranks, and its tables."""

import itertools
import re
from pathlib import Path
from typing import Any

import claims_tables
import numpy as np
import pandas
import pytest
import scipy.stats

import jaxrl
from bench.studies import benchmark_claims, run_study
from bench.studies.benchmark_claims import Settings, ends, ranks
from bench.studies.benchmark_samples import (
    SEEDS,
    alike,
    percentiles,
    rank_correlation,
    resampled,
    searches,
    seeds_needed,
)
from jaxrl.benchmark.references import reference
from jaxrl.results.statistics import iqm


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tasks": ("carpole",)}, "tasks has 'carpole'; did you mean 'cartpole' or 'memory/cartpole'?"),
        ({"least": 1}, "least must be a whole number of at least 2, got 1"),
        ({"shift": 0.0}, "shift takes a share above 0 and below 1, got 0.0"),
        ({"shares": (0.5, 1.5)}, "shares takes shares above 0 and up to 1, got (0.5, 1.5)"),
    ],
)
def test_settings_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**fields)


def test_the_number_of_seeds_has_the_power_of_a_normal_approximation() -> None:
    values = np.random.default_rng(1).normal(size=100_000)
    deviation = values.std()
    for shift in (0.4, 1.0):
        needed = seeds_needed(values, shift, 0.8, 2_000)
        # Two samples of n with this power: n = 2 (z_0.975 + z_0.8)^2 (deviation / shift)^2, and a few more by Student.
        expected = 2 * (scipy.stats.norm.ppf(0.975) + scipy.stats.norm.ppf(0.8)) ** 2 * (deviation / shift) ** 2
        assert needed in SEEDS
        assert SEEDS[SEEDS.index(int(needed)) - 1] < expected + 2 and needed >= 0.9 * expected
    assert seeds_needed(np.ones(32), 0.05, 0.8, 100) == SEEDS[0]
    assert seeds_needed(values, 1e-3, 0.8, 100) == np.inf


def test_searches_by_few_seeds_are_optimistic() -> None:
    draws = np.random.default_rng(2)
    alike = {name: draws.normal(size=200) for name in "abcd"}
    simulated = searches(alike, 1, 20_000)
    # The best of four normal values exceeds their mean by 1.0294 deviations.
    assert simulated.optimism.mean() == pytest.approx(1.0294, abs=0.2) and simulated.regret.mean() < 0.15
    apart = {"low": np.zeros(8) + draws.normal(size=8) * 1e-3, "high": np.ones(8)}
    simulated = searches(apart, 2, 100)
    assert simulated.optimism.tolist() == [0.0] * 100 and simulated.regret.tolist() == [0.0] * 100


def test_noise_that_all_candidates_share_misleads_no_search_with_the_same_seeds() -> None:
    shared = np.random.default_rng(6).normal(size=12)
    values = {name: level + shared for name, level in (("a", 0.0), ("b", 0.01), ("c", 0.02))}
    paired = searches(values, 2, 4_000, paired=True)
    assert paired.regret.tolist() == [0.0] * 4_000
    # A mean of 2 of 12 seeds less that of the 10 others has this standard deviation.
    error = shared.std(ddof=1) * np.sqrt(1 / 2 + 1 / 10)
    assert abs(paired.optimism.mean()) < 4.5 * error / np.sqrt(4_000)
    assert paired.optimism.std() == pytest.approx(error, rel=0.06)
    np.testing.assert_allclose(paired.own + 5 * paired.others, 12 * values["c"].mean() / 2)
    unpaired = searches(values, 2, 4_000)
    assert unpaired.regret.mean() > 0.005 and unpaired.optimism.mean() > 0.5 * error
    for each in resampled(values, 50, paired=True):
        np.testing.assert_allclose(each["b"] - each["a"], 0.01)


def test_searches_are_those_of_all_choices_of_seeds() -> None:
    """Two candidates of four seeds have 36 equally likely pairs of choices of two seeds each."""
    values = {"one": np.array([0.0, 1.0, 5.0, 9.0]), "other": np.array([2.1, 3.3, 4.6, 7.2])}
    means, every = [each.mean() for each in values.values()], []
    for choices in itertools.product(itertools.combinations(range(4), 2), repeat=2):
        few = [each[list(at)].mean() for each, at in zip(values.values(), choices, strict=True)]
        others = [np.delete(each, at).mean() for each, at in zip(values.values(), choices, strict=True)]
        won = 0 if few[0] > few[1] else 1
        assert few[0] != few[1]
        every.append((few[won] - others[won], max(means) - means[won]))
    samples = searches(values, 2, 20_000)
    for own, exact in zip((samples.optimism, samples.regret), np.array(every).T, strict=True):
        assert own.mean() == pytest.approx(exact.mean(), abs=4.5 * exact.std() / np.sqrt(20_000))
        assert own.std() == pytest.approx(exact.std(), rel=0.03)
        assert set(np.round(own, 9)) == set(np.round(exact, 9))


def test_all_seeds_leave_none_to_test_on() -> None:
    with pytest.raises(ValueError, match="tuning_seeds takes fewer than the 4 seeds of a candidate, got 4"):
        searches({"a": np.arange(8.0), "b": np.arange(4.0)}, 4, 10)


def test_algorithms_are_distinguished_by_p_values_of_all_pairs() -> None:
    draws = np.random.default_rng(5)
    values = {"best": draws.normal(size=32) + 3, "near": draws.normal(size=32) + 2.9, "far": draws.normal(size=32)}
    assert alike(values, "best") == ["near"]
    told_apart = 0
    for _ in range(40):
        equal = {name: draws.normal(size=16) for name in "abcd"}
        best = max(equal, key=lambda name: equal[name].mean())
        told_apart += len(alike(equal, best)) < 3
    assert told_apart <= 7  # of 40, where 2 are expected; more in fewer than one of 1,000 such tests


def test_ends_are_normalised_and_interpolated() -> None:
    benchmark = jaxrl.benchmark.load()
    low, high, _ = reference(benchmark, "delayed-choice")
    values, at = ends(benchmark, "delayed-choice", 0.01)
    result = benchmark.result("a2c", "delayed-choice")
    steps, first = result.metrics["env_step"].values, result.values("return")[0]
    share = at / steps[1]
    expected = ((1 - share) * first[:, 0] + share * first[:, 1] - low) / (high - low)
    np.testing.assert_allclose(values["a2c"], expected, rtol=1e-12)


def test_the_end_of_training_is_that_of_each_algorithm() -> None:
    """PPO trains for 15 times as many steps as SAC on Pendulum."""
    benchmark = jaxrl.benchmark.load()
    low, high, _ = reference(benchmark, "pendulum")
    values, longest = ends(benchmark, "pendulum")
    for name, own in values.items():
        last = benchmark.result(name, "pendulum").values("return")[0, :, -1]
        np.testing.assert_allclose(own, (last.astype(np.float64) - low) / (high - low), rtol=1e-12)
    common, shortest = ends(benchmark, "pendulum", 1.0)
    assert longest > 15 * shortest and values["ppo"].mean() > common["ppo"].mean() + 0.5


def test_seeds_are_resampled_within_each_algorithm() -> None:
    values = {"a": np.arange(8.0), "b": np.arange(100.0, 104.0)}
    every = resampled(values, 2_000)
    assert {len(each["a"]) for each in every} == {8} and {len(each["b"]) for each in every} == {4}
    assert set(np.concatenate([each["b"] for each in every])) == set(values["b"])
    means = np.array([each["a"].mean() for each in every])
    assert means.std() == pytest.approx(values["a"].std() / np.sqrt(8), rel=0.06)
    assert percentiles(list(range(101)), str) == "[2, 98]"


def test_the_rank_correlation_of_noisy_orders_has_an_interval_around_it() -> None:
    draws = np.random.default_rng(4)
    means = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0], [3.0, 3.0]])
    tau, again, p_value = rank_correlation(means[..., None] + draws.normal(size=(4, 2, 400)) * 8, 200)
    assert tau == pytest.approx(2 / 3) and min(again) < 0.5 and max(again) == 1.0
    exact = rank_correlation(np.repeat(means[..., None], 5, axis=2), 20)
    # Of the 24 orders of four policies, 4 have at most one exchanged pair, and 4 are their reverses.
    assert exact == (tau, [tau] * 20, pytest.approx(8 / 24)) and p_value == exact[2]
    assert np.isnan(rank_correlation(np.ones((3, 2, 5)), 2)[0])


def test_hyperbolic_returns_are_those_of_the_rewards() -> None:
    """In delayed choice, a reward of 1 comes after the first step, and 1.75 after later ones."""
    benchmark = jaxrl.benchmark.load()
    plain, hyperbolic = ranks(benchmark, "delayed-choice", 0.1, 4)["a2c"].mean(axis=1)
    env = benchmark.policy("a2c", "delayed-choice").algo.env
    steps = int(jaxrl.evaluate(benchmark.policy("a2c", "delayed-choice"), env, 4)["length"].values[0])
    assert plain == 1.75 and hyperbolic == pytest.approx(1.75 / (1 + 0.1 * (steps - 1)), rel=1e-6)


def test_a_small_run_writes_the_tables(tmp_path: Path) -> None:
    settings = Settings(tasks=("delayed-choice",), samples=100, resamples=10, episodes=4)
    run_study(benchmark_claims.STUDY, settings, tmp_path / "study", progress=False)
    tables = {file.stem: pandas.read_csv(file) for file in (tmp_path / "study").glob("*.csv")}
    assert {name: len(table) for name, table in tables.items()} == {"best": 4, "seeds": 1, "tuning": 1, "ranks": 1}
    last = tables["best"].iloc[-1]
    assert last["settings"] == "defaults"  # there is no preset on this task
    assert (
        last["iqm"] == "1.000 [1.000, 1.000]"
        and last["again the best"] == "100%"
        and last["best"] == "ppo"
        and "a2c" in last["not told apart"].split(", ")
    )
    assert tables["seeds"]["fewest"].item() == "4 [4, 4]" and SEEDS[0] == 4
    row = tables["tuning"][["optimism", "regret", "best chosen"]].values.tolist()
    assert row == [["0.000 [0.000, 0.000]", "0.000 [0.000, 0.000]", "100% [100%, 100%]"]]
    assert tables["ranks"]["policies"].item() == last["algorithms"]
    page = claims_tables.written("<!-- best:begin -->\n<!-- best:end -->", tmp_path / "study").splitlines()
    assert page[1:3] == ["", "| Task | After | Best | Normalised | Again the best | Not told apart from it |"]
    assert page[4].startswith("| delayed-choice | 9,830 | ppo, defaults | 0.8") and page[6] == ""
    assert page[5].startswith("|  | 98,304 | ppo, defaults | 1.000 [1.000, 1.000] | 100 % | ")


def test_the_page_has_the_tables_of_the_study() -> None:
    text = claims_tables.PAGE.read_text()
    for name, head in claims_tables.HEADS.items():
        assert f"<!-- {name}:begin -->\n\n| {' | '.join(head)} |" in text


def test_the_page_names_the_best_algorithms_of_the_stored_curves() -> None:
    benchmark, expected = jaxrl.benchmark.load(), []
    for task in benchmark.tasks:
        if sum(each.environment == task for each in benchmark.cells) >= 4:
            for name, share in ((task, 0.1), ("", 1.0)):
                values, at = ends(benchmark, task, share)
                means = {algorithm: float(iqm(own)) for algorithm, own in values.items()}
                best = max(means, key=lambda algorithm: means[algorithm])
                settings = benchmark.result(best, task).metrics.attrs["settings_from"]
                words = f"{best}, defaults" if settings == "defaults" else best
                expected.append([name, f"{at:,}", words, f"{means[best]:.3f}"])
    (table,) = re.findall(r"<!-- best:begin -->(.*?)<!-- best:end -->", claims_tables.PAGE.read_text(), flags=re.DOTALL)
    rows = [[part.strip() for part in row.split("|")[1:5]] for row in table.strip().splitlines()[2:]]
    assert [[*row[:3], row[3].split()[0]] for row in rows] == expected
