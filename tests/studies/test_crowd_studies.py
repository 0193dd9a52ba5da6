"""The studies of crowds and the settings that were tuned for them: numbers, tables, errors, small runs."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

import jaxrl
from bench.studies import STUDIES, StudyError, StudyRun, crowd_observations, crowd_rewards, crowds, run_study
from bench.studies import __main__ as cli
from envs.crowd import REWARDS, Crowd
from jaxrl.presets import crowd as presets_crowd
from jaxrl.presets.preset import Preset
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result

# Of each frame and kind of dynamics: lr, discount, lambda, clip, KL, entropy, activation, and layers of the own part,
# of neighbours and of both joined, as (width, count).
TUNED = {
    ("egocentric", "polar-velocity"): (8.75e-5, 0.9926, 0.891, 0.143, 0.0184, 0.0177, "tanh", 32, 2, 64, 3, 128, 2),
    ("egocentric", "polar-acceleration"): (
        *(2.83e-4, 0.9844, 0.895, 0.100, 0.0459, 1.4e-5, "leaky_relu"),
        *(64, 2, 32, 3, 64, 2),
    ),
    ("egocentric", "cartesian-velocity"): (2.93e-4, 0.9814, 0.818, 0.121, 0.0332, 0.0289, "tanh", 32, 2, 32, 2, 32, 2),
    ("egocentric", "cartesian-acceleration"): (
        *(1.34e-4, 0.9953, 0.846, 0.0757, 0.0310, 3.4e-5, "leaky_relu"),
        *(32, 2, 64, 3, 64, 3),
    ),
    ("relative", "polar-velocity"): (8.66e-4, 0.9357, 0.930, 0.0621, 0.0300, 0.0062, "relu", 32, 2, 64, 3, 32, 3),
    ("relative", "polar-acceleration"): (
        *(1.06e-4, 0.9351, 0.928, 0.122, 0.0445, 0.0139, "leaky_relu"),
        *(128, 2, 32, 3, 128, 2),
    ),
    ("relative", "cartesian-velocity"): (
        *(1.15e-3, 0.9493, 0.901, 0.0772, 0.0372, 0.0147, "leaky_relu"),
        *(64, 3, 64, 3, 128, 2),
    ),
    ("relative", "cartesian-acceleration"): (
        2.97e-4,
        0.9971,
        0.909,
        0.125,
        0.0452,
        0.0479,
        "relu",
        64,
        2,
        32,
        3,
        64,
        3,
    ),
    ("absolute", "polar-velocity"): (
        *(3.74e-4, 0.9771, 0.952, 0.188, 0.0226, 0.0220, "leaky_relu"),
        *(128, 2, 32, 3, 64, 2),
    ),
    ("absolute", "polar-acceleration"): (
        *(1.81e-4, 0.9361, 0.906, 0.185, 0.0355, 0.0489, "leaky_relu"),
        *(32, 3, 64, 2, 32, 3),
    ),
    ("absolute", "cartesian-velocity"): (2.41e-4, 0.9386, 0.900, 0.0705, 0.0356, 0.0114, "relu", 32, 3, 64, 2, 64, 3),
    ("absolute", "cartesian-acceleration"): (
        1.24e-3,
        0.9464,
        0.890,
        0.106,
        0.0306,
        8.7e-4,
        "relu",
        32,
        2,
        64,
        2,
        32,
        3,
    ),
}
METRICS = ("success", "return", "energy", "mean_speed", "energy_plus", "optimum", "contacts")
SMALL: dict[str, Any] = {"seeds": 4, "env_steps": 400, "eval_episodes": 1}


def test_every_combination_has_one_tuned_row():
    assert {(row.frame, row.dynamics) for row in presets_crowd.TUNED} == set(TUNED)
    assert len(presets_crowd.TUNED) == 12


@pytest.mark.fast_rows("egocentric-polar-velocity", "relative-cartesian-acceleration", "absolute-polar-acceleration")
@pytest.mark.parametrize(("frame", "dynamics"), TUNED)
def test_a_tuned_preset_has_its_numbers_and_builds(frame: str, dynamics: str):
    preset = jaxrl.preset("ppo", "crowd/circle", tuned=f"{frame} {dynamics}")
    algo = preset.algo
    lr, discount, lam, clip, kl, entropy, activation, *layers = TUNED[frame, dynamics]
    hparams, config = algo.hparams, algo.config
    assert hparams.discount == jaxrl.Exponential(discount)
    names = ("lr", "lam", "clip_eps", "target_kl", "entropy_coef")
    assert [getattr(hparams, name) for name in names] == [lr, lam, clip, kl, entropy]
    (own, own_count), (neighbour, neighbour_count), (joined, joined_count) = zip(layers[::2], layers[1::2], strict=True)
    assert config.own_hidden == (own,) * own_count
    assert config.neighbour_hidden == (neighbour,) * neighbour_count
    assert config.hidden == (joined,) * joined_count
    assert (config.activation, config.pooling, config.num_epochs) == (activation, "mean", 20)
    assert algo.env == Crowd(frame=frame, dynamics=dynamics)  # pyright: ignore[reportArgumentType]
    assert (hparams.adam_eps, hparams.log_std_init, hparams.lr_end) == (1e-7, 0.4, 1.0)
    assert (config.num_envs, config.num_steps, preset.env_steps) == (2, 200, 400_000)
    assert hparams.entropy_decay_env_steps == 500 * 400


@pytest.mark.parametrize(
    ("scenario", "num_agents", "num_envs", "minibatch"),
    [("circle", None, 2, 2400), ("circle", 30, 1, 2000), ("crossway", None, 1, 2000), ("random", None, 2, 2000)],
)
def test_rollouts_and_minibatches_follow_the_number_of_agents(
    scenario: str, num_agents: int | None, num_envs: int, minibatch: int
):
    preset = presets_crowd.tuned("relative", "polar-velocity", scenario, num_agents, "both")
    agents = num_agents or presets_crowd.NUM_AGENTS[scenario]
    assert preset.config.num_envs == num_envs
    assert num_envs * 200 * agents / preset.config.num_minibatches == minibatch
    assert preset.env_steps == 1000 * 200 * num_envs
    statics = {"num_agents": agents, "frame": "relative", "dynamics": "polar-velocity", "perception": "both"}
    assert (preset.environment, preset.static) == (f"crowd/{scenario}", statics)


def test_rays_go_through_layers_of_their_own():
    preset = presets_crowd.tuned("absolute", "polar-velocity", perception="rays")
    assert preset.algo.config.hidden == (64, 64, 64)


@pytest.mark.parametrize(
    ("algorithm", "environment", "name", "sentence"),
    [
        ("ppo", "cartpole", "egocentric polar-velocity", "tuned has settings of ppo on crowds"),
        ("dqn", "crowd/circle", "egocentric polar-velocity", "not dqn on crowd/circle"),
        ("ppo", "crowd/circle", "egocentric polar-velocit", "did you mean 'egocentric polar-velocity'"),
        ("ppo", "crowd/cirle", "egocentric polar-velocity", "scenario is 'cirle'; did you mean 'circle'"),
        ("ppo", "crowd/corridor", "carefull", "did you mean 'careful'"),
        ("ppo", "crowd/circle", "careful", "ppo on crowd/corridor and ppo on crowd/choke, not ppo on crowd/circle"),
    ],
)
def test_presets_without_tuned_settings_raise_one_sentence(algorithm: str, environment: str, name: str, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        jaxrl.preset(algorithm, environment, tuned=name)
    assert "\n" not in str(refused.value)


def test_the_settings_of_2023():
    preset = presets_crowd.settings_of_2023()
    hparams = preset.hparams
    assert [hparams[name] for name in ("lr", "discount", "lam", "clip_eps", "target_kl", "entropy_coef")] == [
        *(1e-4, 0.99, 0.928, 0.122, 0.0445, 0.01387)
    ]
    assert hparams["entropy_decay_env_steps"] == 100 * 400
    assert preset.config.own_hidden == preset.config.neighbour_hidden == (512,) * 4
    assert preset.config.hidden == (512,) * 3
    assert preset.config.num_envs * 200 * 40 / preset.config.num_minibatches == 2000
    assert Crowd(**preset.static) == Crowd(preset="2023", num_agents=40)
    assert presets_crowd.settings_of_2023("corridor", 50).config.num_envs == 1


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("crowd-observations --frames egocentrc", "frames has 'egocentrc'; did you mean 'egocentric'"),
        ("crowd-observations --dynamics", "dynamics takes one or more different values, got none"),
        ("crowd-observations --perceptions rays rays", "perceptions takes one or more different values, got rays rays"),
        (
            "crowd-observations --scenarios circle",
            "scenarios takes a scenario and a number of agents, such as circle12",
        ),
        ("crowd-observations --scenarios cicle12", "got 'cicle12'; did you mean 'circle'"),
        ("crowd-observations --scenarios choke90", "scenarios has 'choke90', but num_agents must be at most 64"),
        ("crowd-observations --reward straigt", "reward has 'straigt'; did you mean 'straight'"),
        ("crowd-observations --seeds 1", "seeds must be a whole number of at least 2, got 1"),
        ("crowd-observations --agent-steps 0", "agent_steps must be a whole number of at least 1, got 0"),
        ("crowd-observations --learning tune", "learning has 'tune'; did you mean 'tuned'"),
        ("crowd-rewards --env-steps -1", "env_steps must be a whole number of at least 0, got -1"),
        ("crowd-rewards --discounts own 0.97", "different values, got exp:gamma=0.97 exp:gamma=0.97"),
        ("crowd-rewards --rewards base bas", "rewards has 'bas'; did you mean 'base'"),
        ("crowd-rewards --discounts gamma", "gamma"),
        (
            "crowd-rewards --rewards base careful",
            "rewards takes rewards without a ramp, which has a fixed length, got careful",
        ),
        ("crowd-rewards --collision nan", "collision must be finite, got nan"),
        ("crowd-rewards --test-agents 5 5", "test_agents takes one or more different values, got 5 5"),
        ("crowd-rewards --scenarios choke20 --test-agents 60", "test_agents has 60, but num_agents must be at"),
    ],
)
def test_invalid_settings_get_one_sentence(
    args: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main([*args.split(), "--out", str(tmp_path / "x")]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert not (tmp_path / "x").exists()


def made(quality: float, sweep: Any = None, failing: tuple[int, ...] = ()) -> Result:
    """A result of 4 seeds and two points, whose last point is better the higher the quality."""
    size = 1 if sweep is None else len(sweep)
    last = quality + 0.1 * np.arange(4)
    values = {
        **dict.fromkeys(("success", "mean_speed"), 0.25 * last),
        **{"return": last, "optimum": np.full(4, 40.0), "energy": 60 - last, "energy_plus": 80 - 8 * last},
        "contacts": 10 * last,
        "time_to_goal": 20 - last,
    }
    for seed in failing:
        values["return"][seed] = np.nan
    stacked = {
        name + kind: np.tile(np.stack([np.zeros(4), value + (kind != "")], -1), (size, 1, 1))
        for name, value in values.items()
        for kind in crowds.KINDS
    }
    return Result(metrics_dataset(stacked, seeds=range(4), env_steps=[200, 400], sweep=sweep), {})


def test_measures_are_those_of_the_last_point():
    (runs,) = crowds.measured(made(1.0))
    assert set(runs) == {*crowd_observations.MEASURES, *crowd_rewards.MEASURES}
    np.testing.assert_allclose(runs["return"], [1.0, 1.1, 1.2, 1.3])
    np.testing.assert_allclose(runs[crowds.RATIO], [1.8, 1.78, 1.76, 1.74])
    (sampled,) = crowds.measured(made(1.0), "_sampled")
    np.testing.assert_allclose(sampled["energy"], runs["energy"] + 1)


def test_measures_can_be_written(tmp_path: Path):
    written = xarray.Dataset({measure: ("seed", np.arange(2.0)) for measure in crowd_rewards.MEASURES})
    read = StudyRun(tmp_path, "toy", crowd_rewards.Settings(), progress=False).compute("tests", lambda: written)
    assert read.equals(written)


def test_a_failed_run_is_counted_and_left_out():
    (runs,) = crowds.measured(made(1.0, failing=(3,)))
    assert all(np.isnan(values[3]) for values in runs.values())
    frame = crowds.frame_of([crowds.Cell({"scenario": "circle4"}, runs)], ("return",))
    assert frame.to_dict("records") == [{"scenario": "circle4", "return": "1.10 [0.83, 1.37]", "failed": 1}]


def no_training(monkeypatch: pytest.MonkeyPatch, result_of: Any) -> list[tuple[str, dict[str, Any]]]:
    """Replace training by hand-made results; return the requested parts."""
    parts = []

    def train(self: StudyRun, part: str, algo: Any, hparams: Any = None, **arguments: Any) -> Result:
        parts.append((part, {"algo": algo, "hparams": hparams, **arguments}))
        return result_of(part, hparams)

    monkeypatch.setattr(StudyRun, "train", train)
    return parts


@pytest.mark.slow
def test_the_claims_are_judged_by_matching_combinations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Neighbours are worth 1, an egocentric frame 10, and polar dynamics nothing."""
    monkeypatch.setattr(Preset, "algo", property(lambda preset: preset))
    parts = no_training(monkeypatch, lambda part, _: made(1.0 * ("neighbours" in part) + 10 * ("egocentric" in part)))
    settings = crowd_observations.Settings(
        ("absolute", "egocentric"),
        perceptions=("neighbours", "rays"),
        scenarios=("circle4", "choke5"),
        learning="library",
        **SMALL,
    )
    run_study(STUDIES["crowd-observations"], settings, tmp_path, progress=False)
    assert len(parts) == len(dict(parts)) == 2 * 4 * 2 * 2
    arguments = dict(parts)["choke5_absolute_polar-velocity_rays"]
    assert arguments["algo"].static == {
        **{"num_agents": 5, "frame": "absolute", "dynamics": "polar-velocity", "perception": "rays"}
    }
    assert (arguments["seeds"], arguments["env_steps"], arguments["eval_episodes"]) == (4, 400, 1)
    claims = pandas.read_csv(tmp_path / "claims.csv").set_index(["claim", "scenario"])
    # All of 4 seeds in each combination; the interval of few combinations does not exclude a loss.
    won = {2: "1.00 [0.63, 1.00] better", 4: "1.00 [0.74, 1.00] better", 8: "1.00 [0.81, 1.00] better"}
    won[16] = "1.00 [0.87, 1.00] better"
    expected = {
        "neighbours against rays": ([8, 8, 16], won),
        "egocentric polar against absolute cartesian": ([4, 4, 8], won),
        "egocentric polar against absolute cartesian, velocities": ([2, 2, 4], won),
        "egocentric polar against absolute cartesian, accelerations": ([2, 2, 4], won),
        "egocentric against absolute": ([8, 8, 16], won),
        "egocentric against absolute, both polar": ([4, 4, 8], won),
        "egocentric against absolute, both cartesian": ([4, 4, 8], won),
        "polar against cartesian": ([8, 8, 16], None),
        "polar against cartesian, velocities": ([4, 4, 8], None),
        "polar against cartesian, accelerations": ([4, 4, 8], None),
        "velocity against acceleration": ([8, 8, 16], None),
    }
    assert list(claims.columns) == ["combinations", "return", "energy", crowds.RATIO]
    assert list(claims.index) == [(claim, place) for claim in expected for place in ("circle4", "choke5", "all")]
    for claim, (counts, text) in expected.items():
        rows = claims.loc[claim]
        assert rows["combinations"].tolist() == counts
        for measure in ("return", "energy", crowds.RATIO):
            for count, cell in zip(counts, rows[measure], strict=True):
                unclear = str(cell).startswith("0.50") and str(cell).endswith("unclear")
                assert unclear if text is None else cell == text[count], (claim, count, cell)
    cells = pandas.read_csv(tmp_path / "cells.csv")
    assert list(cells.columns) == ["scenario", "frame", "dynamics", "perception", *crowd_observations.MEASURES]
    assert len(cells) == 32
    assert cells["return"].tolist()[0] == "1.15 [0.87, 1.43]"
    assert (tmp_path / "cells_sampled.md").is_file() and (tmp_path / "claims_sampled.md").is_file()
    assert (tmp_path / "crowd_observations.png").read_bytes().startswith(b"\x89PNG")


def test_without_counterparts_there_are_no_claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    parts = no_training(monkeypatch, lambda *_: made(1.0))
    settings = crowd_observations.Settings(
        ("relative",), ("polar-velocity",), ("both",), ("circle4",), "straight", "tuned", **SMALL
    )
    run_study(STUDIES["crowd-observations"], settings, tmp_path, progress=False)
    assert not (tmp_path / "claims.csv").exists()
    ((_, arguments),) = parts
    assert arguments["algo"].env.reward == "straight"
    assert arguments["algo"].hparams.lr == 8.66e-4


@pytest.mark.parametrize("name", crowd_observations.Settings().scenarios)
@pytest.mark.parametrize("perception", ["neighbours", "rays", "both"])
def test_the_librarys_settings_suit_every_scenario(name: str, perception: str):
    place = crowds.as_place(name)
    combination = crowd_observations.Combination("absolute", "cartesian-velocity", perception)
    preset = crowd_observations.learning(crowd_observations.Settings(), place, combination)
    config = preset.config
    assert config.num_envs == (2 if place.num_agents <= 20 else 1)
    own = jaxrl.preset("ppo", "crowd/circle")
    minibatch = own.config.num_envs * 200 * 12 / own.config.num_minibatches
    assert config.num_envs * 200 * place.num_agents / config.num_minibatches == pytest.approx(minibatch, rel=0.2)
    assert preset.hparams == own.hparams


@pytest.mark.slow
def test_the_best_trial_of_a_search_trains_each_combination(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Trials are better from the first to the last; that of rays with a failed seed is not chosen."""

    def result_of(part: str, sweep: Any) -> Result:
        if not part.startswith("search"):
            return made(1.0)
        result = made(1.0, sweep)
        result.metrics["return"][:] = np.arange(4.0).reshape(2, 2)[..., None, None]
        if "rays" in part:
            result.metrics["return"][1, 1, 2] = np.nan
        return result

    parts = no_training(monkeypatch, result_of)
    settings = crowd_observations.Settings(
        ("relative",), ("polar-velocity",), ("neighbours", "rays"), ("circle3",), search_seeds=3, **SMALL
    )
    run_study(STUDIES["crowd-observations"], settings, tmp_path, progress=False)
    asked = dict(parts)
    search = asked["search_relative_polar-velocity_rays_runs"]
    assert list(search["seeds"]) == [1000, 1001, 1002] and asked["circle3_relative_polar-velocity_rays"]["seeds"] == 4
    assert search["env_steps"] == 400
    best = {name: asked[f"circle3_relative_polar-velocity_{name}"]["algo"].hparams for name in ("neighbours", "rays")}
    values = {name: (hparams.lr, hparams.discount.gamma) for name, hparams in best.items()}
    assert values == {"neighbours": (2e-3, 0.99), "rays": (2e-3, 0.97)}
    table = pandas.read_csv(tmp_path / "search.csv")
    assert table["lr 0.002, discount 0.97"].tolist() == [2.0, 2.0]
    assert table[["lr", "discount"]].values.tolist() == [[2e-3, 0.99], [2e-3, 0.97]]
    parts.clear()
    run_study(STUDIES["crowd-observations"], settings, tmp_path, progress=False)
    assert not parts
    search = tmp_path / "search_relative_polar-velocity_rays.nc"
    other = xarray.load_dataset(search, engine="h5netcdf")
    other["return"][0] += 10.0
    other.to_netcdf(search, engine="h5netcdf")
    with pytest.raises(StudyError, match=r"made with lr 0\.002, discount 0\.97, but the search chose lr 0\.0005"):
        run_study(STUDIES["crowd-observations"], settings, tmp_path, progress=False)


def test_the_librarys_settings_build_for_rays():
    settings = crowd_observations.Settings(reward="straight")
    combination = crowd_observations.Combination("absolute", "cartesian-velocity", "rays")
    algo = crowd_observations.learning(settings, crowds.as_place("circle4"), combination).algo
    assert algo.config.normalise_observation
    assert algo.env.reward == "straight"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_rewards_are_compared_with_their_curricula(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    parts = no_training(monkeypatch, lambda part, sweep: made(2.0 if "base" in part else 1.0, sweep))
    settings = crowd_rewards.Settings(
        ("base", "energy-drag", "speeding"), ("circle6", "car5"), ("own", "beta:mu=0.99,eta=1"), **SMALL
    )
    run_study(STUDIES["crowd-rewards"], settings, tmp_path, progress=False)
    asked = dict(parts)
    assert list(asked) == [f"{name}_{reward}" for name in settings.scenarios for reward in settings.rewards]
    params = {part: arguments["env_params"] for part, arguments in asked.items()}
    assert params["circle6_base"].switch_env_steps == pytest.approx(0.199 * 400)
    assert params["circle6_energy-drag"].switch_env_steps == float("inf")
    assert params["circle6_base"].weights == REWARDS["base"].weights
    assert params["car5_base"].later_weights == dataclasses.replace(REWARDS["base"].later_weights, collision=-0.02)
    assert asked["circle6_base"]["algo"].env == Crowd(preset="2023", num_agents=6, reward="base")
    assert asked["car5_base"]["algo"].env.perception == "both"
    table = pandas.read_csv(tmp_path / "rewards.csv")
    assert list(table.columns) == ["scenario", "reward", "discount", *crowd_rewards.MEASURES]
    own = f"exp:gamma={jaxrl.preset('ppo', 'crowd/circle').hparams['discount']}"
    assert table["discount"].tolist() == [own, "beta:mu=0.99,eta=1", own, "beta:mu=0.99,eta=1", own] * 2
    assert table["contacts"].tolist()[0] == "21.5 [18.7, 24.3]"
    discounts = pandas.read_csv(tmp_path / "discounts.csv")
    assert discounts[["reward", "combinations"]].values.tolist() == [["base", 2], ["energy-drag", 2], ["all", 4]]
    assert set(discounts["discount"]) == {"beta:mu=0.99,eta=1"}
    assert set(discounts["compared with"]) == {own}
    assert all(text.startswith("0.50 [") for text in discounts["success"])
    parts.clear()
    for file in tmp_path.glob("*.csv"):
        file.unlink()
    run_study(STUDIES["crowd-rewards"], settings, tmp_path, progress=False)
    assert not parts and pandas.read_csv(tmp_path / "rewards.csv").equals(table)
    assert (tmp_path / "crowd_rewards.png").read_bytes().startswith(b"\x89PNG")


def test_a_discount_is_compared_with_the_first_one():
    def cell(discount: str, reward: str, time: float) -> crowds.Cell:
        values = np.array([1.0, 2.0, 3.0, np.nan])
        runs = {name: values for name in crowd_rewards.MEASURES} | {"time to goal": values + time}
        return crowds.Cell({"scenario": "circle6", "reward": reward, "discount": discount}, runs)

    cells = [cell("first", "base", 0.0), cell("second", "base", 10.0), cell("first", "speeding", 0.0)]
    table = crowd_rewards.of_discounts([*cells, cell("second", "speeding", -10.0)])
    assert table["reward"].tolist() == ["base", "speeding", "all"]
    # Each of the three good runs is worse than all good ones and better than the failed one; two failed runs tie.
    chances = [text.split(" [")[0] for text in table["time to goal"]]
    assert chances == [f"{(3 + 0.5) / 16:.2f}", f"{(12 + 0.5) / 16:.2f}", "0.50"]


def test_a_contact_can_be_given_another_weight():
    params = Crowd(preset="2023", num_agents=6, reward="speeding").default_params
    place = crowds.as_place("circle6", preset="2023")
    other = crowd_rewards.curriculum(params, place, "speeding", 1000, -0.02)
    assert other.weights == other.later_weights == dataclasses.replace(params.weights, collision=-0.02)
    kept = crowd_rewards.curriculum(params, crowds.as_place("car5", preset="2023"), "speeding", 1000)
    assert kept.weights.collision == -0.2


def test_the_whole_study_has_the_papers_switch():
    settings = crowd_rewards.Settings()
    preset = crowd_rewards.learning(settings, crowds.as_place("circle40", preset="2023"), "base")
    params = Crowd(**preset.static).default_params
    place = crowds.as_place("circle40", preset="2023")
    whole = crowd_rewards.curriculum(params, place, "base", 400_000)
    assert whole.switch_env_steps == pytest.approx(params.switch_env_steps)
    assert len(settings.rewards) == 18 and {"straight", "yielding", "through"} < set(settings.rewards)
    assert preset.config.time_limits == "terminal"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "table"),
    [
        (
            "crowd-observations",
            "--frames egocentric --dynamics polar-velocity --perceptions rays --search-seeds 1",
            "cells",
        ),
        ("crowd-rewards", "--rewards base --discounts own exp:gamma=1 --test-agents 2 6", "rewards"),
    ],
)
def test_a_study_at_small_size(name: str, options: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = "--scenarios circle4 --seeds 2 --env-steps 800 --eval-episodes 2"
    args = [name, "--out", str(tmp_path / "x"), *small.split(), *options.split()]
    assert cli.main(args) == 0
    first = (tmp_path / "x" / f"{table}.csv").read_text()
    capsys.readouterr()
    assert cli.main(args) == 0
    shown = capsys.readouterr().out
    assert "Skipped circle4_" in shown and "Working on" not in shown
    assert (tmp_path / "x" / f"{table}.csv").read_text() == first
    if name == "crowd-rewards":
        tests = pandas.read_csv(tmp_path / "x" / "tests.csv")
        assert tests["agents"].tolist() == [2, 6, 2, 6]
        result = jaxrl.load_result(tmp_path / "x" / "circle4_base")
        np.testing.assert_allclose(result.env_params.switch_env_steps, 0.199 * 800, rtol=1e-6)  # float32


@pytest.mark.slow
def test_agent_steps_are_shared_out_among_the_agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    parts = no_training(monkeypatch, lambda *_: made(1.0))
    length: dict[str, Any] = {"seeds": 4, "agent_steps": 1000, "eval_episodes": 1}
    settings = crowd_observations.Settings(
        ("relative",), ("polar-velocity",), ("neighbours",), ("circle3", "circle8"), learning="library", **length
    )
    run_study(STUDIES["crowd-observations"], settings, tmp_path / "observations", progress=False)
    assert [arguments["env_steps"] for _, arguments in parts] == [334, 125]
    assert "after 1,000 agent-steps" in (tmp_path / "observations" / "cells.md").read_text()
    parts.clear()
    settings = crowd_rewards.Settings(("base",), ("circle8",), ("own",), **length)
    run_study(STUDIES["crowd-rewards"], settings, tmp_path / "rewards", progress=False)
    ((_, arguments),) = parts
    assert arguments["env_steps"] == 125
    assert arguments["env_params"].switch_env_steps == pytest.approx(0.199 * 125)


@pytest.mark.slow
def test_the_finished_parts_of_the_rewards_have_the_published_tables(
    tmp_path: Path, cells: Path, results: Path
) -> None:
    """The numbers of `docs/results/crowd-rewards.md`, of parts whose resuming computes nothing."""
    out = shutil.copytree(cells / "crowd-rewards", tmp_path / "out")
    run_study(STUDIES["crowd-rewards"], crowd_rewards.Settings(), out, progress=False)
    assert not [part for part in out.iterdir() if part.is_dir()]
    rewards = pandas.read_csv(out / "rewards.csv").set_index(["scenario", "reward", "discount"]).sort_index()
    assert len(rewards) == 3 * (18 + 3 * 2)
    least = {"circle12": "base-no-final", "corridor50": "straight", "choke20": "through"}
    ratios = {place: rewards.loc[(place, reward), crowds.RATIO].iloc[-1] for place, reward in least.items()}
    assert ratios == {
        "circle12": "1.19 [1.05, 1.60]",
        "corridor50": "1.03 [1.02, 1.03]",
        "choke20": "1.40 [1.26, 1.51]",
    }
    for place, reward in least.items():
        arrived = rewards.loc[place, "success"].str.split(expand=True)[0].astype(float) > 0.5
        ratio = rewards.loc[place, crowds.RATIO].str.split(expand=True)[0].astype(float)
        assert ratio[arrived].idxmin()[0] == reward
    page = (results / "crowd-rewards.md").read_text().replace("**", "")
    printed = re.findall(r"^\| ([a-z-]+) \| (\d.*) \|$", page, flags=re.MULTILINE)
    assert len(printed) == 10
    for reward, published in printed:
        numbers = published.split(" | ")
        for place, share, ratio in zip(least, numbers[::2], numbers[1::2], strict=True):
            row = rewards.loc[(place, reward, "exp:gamma=0.99")]
            assert float(share) == pytest.approx(float(row["success"].split()[0]), abs=0.0051), (reward, place)
            assert row[crowds.RATIO].startswith(ratio), (reward, place)
    discounts = pandas.read_csv(out / "discounts.csv").set_index(["reward", "discount"])
    assert discounts.loc["all", crowds.RATIO].tolist() == ["0.53 [0.40, 0.66] unclear", "0.44 [0.31, 0.58] unclear"]
    assert discounts.loc["all", "success"].tolist() == ["0.51 [0.38, 0.64] unclear", "0.50 [0.37, 0.63] unclear"]
    for name in ("discounts", "discounts_sampled"):
        compared = pandas.read_csv(out / f"{name}.csv")[list(crowd_rewards.COMPARED)]
        assert compared.map(lambda cell: cell.endswith("unclear")).to_numpy().all()


@pytest.mark.slow
def test_the_finished_parts_of_the_observations_have_the_published_table(
    tmp_path: Path, cells: Path, results: Path
) -> None:
    """The table of `docs/results/crowd-observations.md`, of parts whose resuming computes nothing."""
    out = shutil.copytree(cells / "crowd-observations", tmp_path / "out")
    run_study(STUDIES["crowd-observations"], crowd_observations.Settings(), out, progress=False)
    assert not [part for part in out.iterdir() if part.is_dir()]
    assert len(pandas.read_csv(out / "cells.csv")) == 3 * 36
    claims = pandas.read_csv(out / "claims.csv").set_index(["claim", "scenario"])
    page = (results / "crowd-observations.md").read_text()
    rows = re.findall(r"^\| (.*?) ?\| (.*?) \| (.*\d.*) \| (.*\d.*) \| (.*\d.*) \|$", page, flags=re.MULTILINE)
    assert len(rows) == 16
    places = {"12 on a circle": "circle12", "50 in a corridor": "corridor50", "50 at a crossway": "crossway50"}
    claim = ""
    for name, place, *printed in rows:
        claim = name.lower() or claim
        computed = claims.loc[(claim, places.get(place, place)), list(crowd_observations.COMPARED)]
        for cell, text in zip(printed, computed, strict=True):
            assert cell.strip("*") == text.rpartition(" ")[0], (claim, place)
            assert cell.startswith("**") == (not text.endswith("unclear")), (claim, place)
