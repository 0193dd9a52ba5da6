"""Optima in tables and pictures: of each setting's own parameters and discount, computed once."""

import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
import scipy.stats
from matplotlib.figure import Figure

import envs
import jaxrl
from envs.decision.kelly import Kelly
from envs.wrappers.repeating import action_repeat
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.loading import load_metrics
from jaxrl.results.optima import MOST_OPTIMA, optima
from jaxrl.results.result import Result

CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))
GAMMA = 0.99  # of PPO by default
SEEDS, STEPS = 5, (0, 64)
PROBABILITIES, DISCOUNTS = (0.6, 0.75), (0.9, "hyperbolic:k=0.1")
CURVES = {"exp:gamma=0.9": 0.9 ** np.arange(40.0), "hyperbolic:k=0.1": 1 / (1 + 0.1 * np.arange(40.0))}


@dataclasses.dataclass(frozen=True)
class CountedKelly(Kelly):
    """Betting that lists the optima that are computed."""

    calls: ClassVar[list[Any]] = []

    def optimum(self, params: Any = None, discount: Any = None, kind: Any = "precommitted") -> float:
        self.calls.append((params, discount))
        return super().optimum(params, discount, kind)


def growth(probability: float) -> float:
    """Expected logarithmic growth of a bet at even odds, the largest of 20,001 shares, within 1e-8."""
    share = np.linspace(0, 0.9, 20_001)
    return float((probability * np.log1p(share) + (1 - probability) * np.log1p(-share)).max())


@pytest.fixture(scope="module")
def result() -> Result:
    algo = jaxrl.ppo(envs.make("kelly"), CONFIG)
    values = {"env.win_probability": PROBABILITIES, "discount": DISCOUNTS, "lr": (1e-3, 3e-3)}
    sweep = jaxrl.grid(algo.hparams, {name: list(each) for name, each in values.items()})
    return jaxrl.train(algo, sweep, seeds=SEEDS, env_steps=64, evals=1, eval_episodes=2, progress=False)


def result_of(env: Any, num_settings: int = 1, returns: Any = None, **fields: Any) -> Result:
    """A result of PPO with numbers that were not trained."""
    values = np.zeros((num_settings, SEEDS, len(STEPS)), np.float32) if returns is None else returns
    sweep: Any = None
    if num_settings > 1:
        sweep = type("Sweep", (), {"dims": ("lr",), "shape": (num_settings,), "coords": {}})
        sweep.coords = {"lr": (("lr",), np.arange(num_settings, dtype=np.float64))}
    names = ("return", "discounted_return", "length")
    data = metrics_dataset(dict.fromkeys(names, values), seeds=range(SEEDS), env_steps=STEPS, sweep=sweep)
    return Result(data, {}, jaxrl.ppo(env, CONFIG), **fields)


@pytest.mark.parametrize("metric", ["return", "return_sampled", "discounted_return", "discounted_return_sampled"])
def test_every_setting_has_the_optimum_of_its_own_parameters_and_discount(result, metric):
    table = result.table(metric).to_pandas()
    assert len(table) == 8
    for row, runs in zip(table.to_dict("records"), result.values(metric)[:, :, -1], strict=True):
        weights = CURVES[row["discount"]] if metric.startswith("discounted") else np.ones(40)
        best = growth(row["env.win_probability"]) * weights.sum()
        assert row["optimum"] == pytest.approx(best, rel=2e-6)  # the curve and the probability are float32
        gap = row["optimum"] - scipy.stats.trim_mean(np.float64(runs), 0.25)
        assert row["gap"] == pytest.approx(gap, abs=1e-6)
        assert row["gap_percent"] == pytest.approx(100 * gap / row["optimum"], abs=1e-3)


def test_a_loaded_result_has_its_optima(result, tmp_path):
    result.save(tmp_path / "run")
    loaded = jaxrl.load_result(tmp_path / "run")
    for metric in ("return", "discounted_return"):
        assert str(loaded.table(metric)) == str(result.table(metric))
    assert "optimum" in loaded.table().columns


def test_they_are_recorded_for_readers_of_metrics_alone(result, tmp_path):
    result.save(tmp_path / "run")
    read = load_metrics(tmp_path / "run")
    assert read.algo is None
    for metric in ("return", "return_sampled", "discounted_return"):
        assert str(read.table(metric)) == str(result.table(metric))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["optima"].keys() == {"return", "discounted_return"}
    for damaged in ([1.0], "x", [None] * 8, [10**400] * 8, [True] * 8, ["1"] * 8, [float("inf")] * 8):
        read.loaded = {**config, "optima": {"return": damaged}}
        assert optima(read, "return") is None and optima(read, "discounted_return") is None
    result_of(envs.make("pendulum")).save(tmp_path / "unknown")
    assert "optima" not in json.loads((tmp_path / "unknown" / "config.json").read_text())


def test_an_environment_that_fails_there_does_not_prevent_saving(tmp_path):
    class Broken(CountedKelly):
        def optimum(self, params: Any = None, discount: Any = None, kind: Any = "precommitted") -> float:
            raise ZeroDivisionError("no optimum today")

    with pytest.warns(RuntimeWarning, match=r"the optimum of .* is left out: .*no optimum today"):
        result_of(Broken()).save(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="the optimum of .*no optimum today"):
        assert result_of(Broken()).table().columns[-1] == "seeds"

    class Bounded(Broken):
        def bound(self, params: Any = None, discount: Any = None) -> float:
            return 3.0

    with pytest.warns(RuntimeWarning, match="the optimum of .*no optimum today"):
        assert result_of(Bounded()).table().columns[-1] == "bound"

    assert load_metrics(tmp_path / "run").values("return").shape == (1, SEEDS, len(STEPS))


def test_without_a_known_optimum_a_table_has_the_usual_columns(result):
    assert result.table("length").columns[-1] == "seeds"
    usual = ("iqm", "low", "high", "mean", "seeds")
    for env in (envs.make("pendulum"), action_repeat(envs.make("kelly"), 2)):
        assert result_of(env).table().columns == usual
    unknown = dataclasses.replace(result_of(envs.make("kelly")), algo=None)
    assert unknown.table().columns == usual


def test_equal_settings_are_computed_once():
    CountedKelly.calls.clear()
    env = CountedKelly()
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 4), env.default_params)
    params = dataclasses.replace(params, num_steps=np.array([7, 9, 7, 9]), max_steps_in_episode=np.array([9] * 4))
    result = result_of(env, 4, env_params=params)
    for _ in range(2):
        values = optima(result, "return")
        assert values == pytest.approx([growth(0.6) * steps for steps in (7, 9, 7, 9)], rel=2e-6)
    assert len(CountedKelly.calls) == 2
    assert optima(result, "discounted_return") is not None and len(CountedKelly.calls) == 4


def test_too_many_different_optima_are_not_computed():
    CountedKelly.calls.clear()
    env = CountedKelly(shows_time=False)
    for count in (MOST_OPTIMA, MOST_OPTIMA + 1):
        params = jax.tree.map(lambda leaf, count=count: np.repeat(leaf, count), env.default_params)
        params = dataclasses.replace(params, num_steps=np.arange(1, count + 1))
        assert (optima(result_of(env, count, env_params=params), "return") is None) == (count > MOST_OPTIMA)
    assert len(CountedKelly.calls) == MOST_OPTIMA


def test_the_share_is_that_of_the_size_of_the_optimum():
    queue = result_of(envs.make("queue")).table()
    assert queue.columns[-3:] == ("optimum", "gap", "gap_percent")
    assert queue.rows[0][-2] == queue.rows[0][-3] < 0 and queue.rows[0][-1] == -100.0  # 0 is above the optimum
    returns = np.full((1, SEEDS, len(STEPS)), 8.0, np.float32)
    fishery = result_of(envs.make("fishery"), returns=returns).table()
    # 8.25 is the published optimum, here within the grid's error.
    assert fishery.columns[-3:] == ("optimum", "gap", "gap_percent")
    assert fishery.rows[0][-2:] == (pytest.approx(0.25, abs=1e-4), pytest.approx(100 / 33, abs=2e-3))
    assert str(fishery).splitlines()[-1].split()[-3:] == ["8.250", "0.250", "3.03"]


def test_an_optimum_of_zero_has_no_share():
    class Zero(CountedKelly):
        def optimum(self, params: Any = None, discount: Any = None, kind: Any = "precommitted") -> Any:
            return 0.0 if params.num_steps == 1 else None

    env = Zero()
    params = dataclasses.replace(
        jax.tree.map(lambda leaf: np.repeat(leaf, 2), env.default_params), num_steps=np.array([1, 2])
    )
    assert result_of(env, 2, env_params=params).table().columns[-2:] == ("optimum", "gap")


def test_an_unknown_optimum_beside_known_ones_is_a_dash():
    class Odd(CountedKelly):
        def optimum(self, params: Any = None, discount: Any = None, kind: Any = "precommitted") -> Any:
            if params.num_steps == 2:
                raise ValueError("no finite optimum")
            return None if params.num_steps == 3 else -1.0 if params.num_steps == 4 else 2.0

    env = Odd()
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 4), env.default_params)
    result = result_of(env, 4, env_params=dataclasses.replace(params, num_steps=np.arange(1, 5)))
    rows = [row[-3:] for row in result.table().rows]
    assert rows == [(2.0, 2.0, 100.0), (None, None, None), (None, None, None), (-1.0, -1.0, -100.0)]
    assert str(result.table()).splitlines()[-3].split()[-3:] == ["\N{EN DASH}"] * 3


def test_without_an_optimum_a_table_has_the_bound(tmp_path: Path):
    """The pairs of the task are worth 2 / n each, and the k-th is found in step 2 k at the earliest."""
    env = envs.make("memory/concentration")
    known = result_of(env)
    known.save(tmp_path / "run")
    discounted = 2 / 52 * np.sum(GAMMA ** np.arange(1, 52, 2))
    for read in (known, load_metrics(tmp_path / "run")):
        for metric, most in (("return", 1.0), ("discounted_return", discounted)):
            table = read.table(metric)
            assert table.columns[-2:] == ("seeds", "bound")
            assert table.rows[0][-1] == pytest.approx(most, rel=2e-6)  # the discount is float32
        assert read.table("length").columns[-1] == "seeds"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["bounds"]["return"] == [1.0] and "optima" not in config
    known.plot(ax=(ax := Figure().subplots()))
    assert heights(ax) == [1.0] and [text.get_text() for text in ax.texts] == ["bound 1"]


def test_a_bound_stands_where_no_optimum_is_known():
    class Bounded(CountedKelly):
        def optimum(self, params: Any = None, discount: Any = None, kind: Any = "precommitted") -> Any:
            return 2.0 if params.num_steps == 1 else None

        def bound(self, params: Any = None, discount: Any = None) -> Any:
            return 3.0 if params.num_steps < 3 else None

    env = Bounded()
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 3), env.default_params)
    result = result_of(env, 3, env_params=dataclasses.replace(params, num_steps=np.arange(1, 4)))
    assert result.table().columns[-4:] == ("optimum", "gap", "gap_percent", "bound")
    rows = [row[-4:] for row in result.table().rows]
    assert rows == [(2.0, 2.0, 100.0, None), (None, None, None, 3.0), (None,) * 4]
    result.plot(ax=(ax := Figure().subplots()))
    assert sorted(text.get_text() for text in ax.texts) == ["bound 3", "optimum 2"]


def test_bounds_of_actions_are_no_bounds_of_returns():
    env = envs.wrappers.bound_actions(envs.make("pendulum"), 1.0)
    for wrapped in (env, envs.wrappers.time_limit(env, 50)):
        assert result_of(wrapped).table().columns[-1] == "seeds"


def heights(ax: Any) -> list[float]:
    """Heights of the lines over the whole width."""
    lines = [each.get_segments()[0] for each in ax.collections if hasattr(each, "get_segments")]
    return [float(line[0, 1]) for line in lines if line[:, 0].tolist() == [0, 1]]


def test_learning_curves_have_a_dashed_line_at_the_optimum():
    ax = Figure().subplots()
    fishery, stopping = (result_of(envs.make(name)) for name in ("fishery", "stopping"))
    fishery.plot(ax=ax)
    assert heights(ax) == pytest.approx([8.25], abs=1e-4)
    assert [text.get_text() for text in ax.texts] == ["optimum 8.25"]
    assert ax.get_ylim()[1] > 8.25 and len(ax.lines) == 1
    fishery.plot(ax=ax)
    assert len(heights(ax)) == 1 and len(ax.lines) == 2
    stopping.plot("discounted_return", ax=ax)
    assert heights(ax)[1] == pytest.approx(stopping.table("discounted_return").to_pandas()["optimum"][0])


def test_a_picture_with_many_optima_has_no_line(result):
    ax = Figure().subplots()
    result.plot("discounted_return", ax=ax)  # of two parameters and two discounts
    assert len(heights(ax)) == 4
    env = envs.make("kelly")
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 5), env.default_params)
    params = dataclasses.replace(params, num_steps=np.arange(1, 6))
    result_of(env, 5, env_params=params).plot(ax=(many := Figure().subplots()))
    result_of(envs.make("pendulum")).plot(ax=(unknown := Figure().subplots()))
    assert not heights(many) and not heights(unknown) and not many.texts and not unknown.texts


def test_a_bound_hides_no_line_of_four_optima():
    class Five(CountedKelly):
        def optimum(self, params: Any = None, discount: Any = None, kind: Any = "precommitted") -> Any:
            return None if params.num_steps == 5 else float(params.num_steps)

        def bound(self, params: Any = None, discount: Any = None) -> float:
            return 5.0

    env = Five()
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 5), env.default_params)
    params = dataclasses.replace(params, num_steps=np.arange(1, 6))
    result_of(env, 5, env_params=params).plot(ax=(ax := Figure().subplots()))
    assert sorted(heights(ax)) == [1.0, 2.0, 3.0, 4.0, 5.0]
