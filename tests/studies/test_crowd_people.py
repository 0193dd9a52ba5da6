"""The study that compares crowds with pedestrians: refusals, scenes, measures that are known, tables, resuming."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import xarray

from bench.studies import STUDIES, StudyRun, crowd_people, crowd_walks, run_study
from bench.studies import crowd_people_report as report
from bench.studies.crowd_people import Settings
from bench.studies.frames import MISSING
from envs.crowd import Crowd
from envs.crowd.pedestrians import weidmann_speed

TINY: dict[str, Any] = {"people": (2,), "door_people": 2, "circle_people": 2, "widths": (1.0,), "episodes": 2}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"people": ()}, "people takes one or more different values, got none"),
        ({"people": (10, 1)}, "people must be a whole number of at least 2, got 1"),
        ({"people": (500,)}, "people has 500, but num_agents must be at most 128 in corridor"),
        ({"door_people": 65}, "door_people has 65, but num_agents must be at most 64 in choke"),
        ({"circle_people": 1}, "circle_people must be a whole number of at least 2, got 1"),
        ({"widths": (1.0, 1.0)}, "widths takes one or more different values, got 1.0 1.0"),
        ({"widths": (0.4,)}, "widths must be above 0.4 m, the width of a body, and at most 19 m, got 0.4"),
        ({"widths": (float("nan"),)}, "widths must be above 0.4 m, the width of a body, and at most 19 m, got nan"),
        ({"planners": ("rvo",)}, "planners has 'rvo'; it takes orca, social-force, straight"),
        ({"dynamics": "polar"}, "dynamics has 'polar'"),
        ({"seeds": 1}, "seeds must be 0 or a whole number of at least 2, got 1"),
        ({"repeats": 1}, "repeats must be a whole number of at least 2, got 1"),
        ({"seeds": 0, "planners": ()}, "planners must name one or more of orca, social-force, straight, or seeds"),
        ({"episodes": 1}, "episodes must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        Settings(**wrong)
    assert "\n" not in str(refused.value)


def test_a_door_has_its_stated_width_and_starts_differ() -> None:
    door, present = crowd_walks.Door(), jnp.ones(20, bool)
    place = jax.jit(lambda key, params: door.place(key, params, present, crowd_scenes.traits(20)))
    scenes = [
        place(jax.random.key(seed), crowd_walks.Numbers(width=width)) for seed, width in ((0, 0.6), (1, 0.6), (0, 2.0))
    ]
    for scene, width in zip(scenes, (0.6, 0.6, 2.0), strict=True):
        walls = scene.obstacles
        np.testing.assert_allclose(walls.box_centre[-2, 1] - walls.box_half[-2, 1], width / 2, atol=1e-5)
        np.testing.assert_allclose(walls.box_centre[-1, 1] + walls.box_half[-1, 1], -width / 2, atol=1e-5)
        np.testing.assert_allclose(walls.box_centre[-2, 1] + walls.box_half[-2, 1], 9.75, atol=1e-5)
        apart = np.linalg.norm(scene.position[:, None] - scene.position[None], axis=-1) + 9 * np.eye(20)
        assert apart.min() >= 0.4
    np.testing.assert_array_equal(scenes[0].position, scenes[2].position)
    assert np.abs(scenes[0].position - scenes[1].position).max() > 0.1


def test_planners_go_to_the_door_first() -> None:
    env = Crowd(crowd_walks.Door(), num_agents=4)
    _, state = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    position = jnp.array([[-7.0, 1.5], [-1.2, -3.0], [-0.9, 0.2], [5.0, 0.0]])
    state = dataclasses.replace(state, walkers=dataclasses.replace(state.walkers, position=position))
    goals = crowd_walks.to_the_door(lambda key, obs, state: state.goals)(jax.random.key(0), None, state)
    np.testing.assert_allclose(goals.centre, [[-1, 0], [-1, 0], [10, 0], [10, 0]])
    np.testing.assert_allclose(
        goals.half, [[0, 0.3], [0, 0.3], [2, 2], [2, 2]], atol=1e-6
    )  # a door of 1 m, bodies of 0.4


def crowd(speed: np.ndarray, moments: np.ndarray, unit: int = 4) -> dict[str, xarray.Dataset]:
    """A policy whose speeds by density are the same in each unit."""
    density = (np.arange(len(speed)) + 0.5) / 4
    walked = {"speed": speed, "moments": moments}
    corridor = xarray.Dataset(
        {name: (("unit", "sample", "people", "density"), np.tile(v, (unit, 1, 2, 1))) for name, v in walked.items()}
        | {
            name: (("unit", "sample", "people", "time"), np.tile([value, np.nan], (unit, 1, 2, 1)))
            for name, value in (("order", 0.8), ("order_by_chance", 0.5))
        },
        {"people": [2, 4], "density": density, "time": [0.0, 0.1]},
    )
    flow = np.tile([1.0, 3.0], (unit, 1, 1))
    choke = xarray.Dataset(
        {name: (("unit", "sample", "width"), value) for name, value in (("flow", flow), ("passed", flow / 4))},
        {"width": [0.5, 2.0]},
    )
    circle = xarray.Dataset({"free_speed": (("unit", "sample", "person"), np.tile([1.0, 1.5, np.nan], (unit, 1, 1)))})
    return {"corridor": corridor, "choke": choke, "circle": circle}


def test_measures_of_crowds_that_are_known(tmp_path: Path) -> None:
    weidmann = np.asarray(weidmann_speed(jnp.asarray([0.125, 0.375, 0.625])), np.float64)
    speed, moments = weidmann + np.array([0.3, 0.4, np.nan]), np.array([2.0, 1.0, 0.0])
    crowds = {"exact": crowd(weidmann, np.ones(3)), "fast": crowd(speed, moments)}
    frame = report.measures(crowds).set_index("policy")
    assert str(frame["distance from Weidmann"]["exact"]).startswith("0.0000 ")
    # sqrt((2 * 0.3^2 + 0.4^2) / 3), over moments
    assert frame.loc["fast"].tolist() == [
        *("0.337 [0.337, 0.337]", "0.800 [0.800, 0.800]", "0.500 [0.500, 0.500]", "0.600 [0.600, 0.600]"),
        *("1.25 [1.25, 1.25]", "0.250 [0.250, 0.250]"),
    ]
    assert frame.loc["people"].tolist()[4:] == ["1.34", "0.26"]
    table = report.speeds({"fast": crowds["fast"]})
    assert table["density"].tolist() == [0.125, 0.375]
    assert [float(cell.split()[0]) for cell in table["fast"]] == pytest.approx(speed[:2], abs=1e-2)
    assert [float(cell) for cell in table["Weidmann"]] == pytest.approx(weidmann[:2], abs=1e-3)
    doors = report.doors({"fast": crowds["fast"]})
    assert doors["width"].tolist() == [0.5, 2.0]
    assert [cell.split()[0] for cell in doors["1/(m s)"]] == ["2.00", "1.50"]
    assert [cell.split()[0] for cell in doors["passed"]] == ["0.250", "0.750"]
    report.drawn(crowds).savefig(tmp_path / "drawn.png")


def test_speeds_are_means_over_moments_of_all_sizes_and_samples() -> None:
    speed = np.array([[[[1.0, np.nan], [2.0, 0.5]], [[4.0, np.nan], [np.nan, np.nan]]]])
    moments = np.array([[[[1.0, 0.0], [3.0, 2.0]], [[2.0, 0.0], [0.0, 0.0]]]])
    dims = ("unit", "sample", "people", "density")
    both = xarray.Dataset({"speed": (dims, speed), "moments": (dims, moments)})
    mean, count = report.curve(both)
    np.testing.assert_allclose(mean, [[(1 + 3 * 2 + 2 * 4) / 6, 0.5]])
    np.testing.assert_allclose(count, [[6, 2]])


def test_speeds_in_the_corridor_equal_slow_ones() -> None:
    rng = np.random.default_rng(0)
    position = rng.uniform(-3, 3, (4, 60, 2)).astype(np.float32)
    ahead = rng.normal(1, 0.5, (4, 60)).astype(np.float32)
    walking = rng.random((4, 60)) < 0.8
    heights, width = np.linspace(-1.5, 1.5, 3001), 0.001
    chords = 2 * np.sqrt(1.5**2 - heights**2)
    sums, counts, uncertain = np.zeros(12), np.zeros(12), np.zeros(12)
    for t, i in np.argwhere(walking & np.all(np.abs(position) < 2, axis=-1)):
        apart = np.linalg.norm(position[t] - position[t, i], axis=-1)
        others = np.sum((apart <= 1.5) & walking[t]) - 1
        free = np.sum(chords[np.abs(heights + position[t, i, 1]) < 2]) * width  # to 3 m * 0.001 m
        places = {min(int(others / (free + error) / 0.25), 11) for error in (-3e-3, 0.0, 3e-3)}
        uncertain[list(places)] += len(places) > 1
        place = min(int(others / free / 0.25), 11)
        sums[place] += ahead[t, i]
        counts[place] += 1
    speed, moments = crowd_walks.speeds_by_density(position, ahead, walking)  # pyright: ignore[reportArgumentType]
    sure = (uncertain == 0) & (counts > 0)
    assert sure.sum() >= 6
    np.testing.assert_array_equal(np.asarray(moments)[sure], counts[sure])
    np.testing.assert_allclose(np.asarray(speed)[sure], sums[sure] / counts[sure], rtol=1e-5)
    assert moments.sum() == counts.sum()


def test_the_largest_flow_of_weidmanns_curve() -> None:
    density = np.linspace(0.1, 5.4, 100_000)
    speed = 1.34 * (1 - np.exp(-1.913 * (1 / density - 1 / 5.4)))
    assert report.capacity() == pytest.approx(np.max(density * speed), rel=1e-3)


class Made:
    """Walks that need no simulation."""

    interval = 1 / 12

    def __init__(self, scene: str, *_: Any):
        self.scene = scene

    def __call__(self, keys: jax.Array, num_present: int = 0, width: float = 0.0) -> dict[str, np.ndarray]:
        if self.scene == "circle":
            return {"free_speed": np.tile([1.0, np.nan], (len(keys), 1))}
        if self.scene == "choke":
            return {"flow": np.full(len(keys), 3 * width), "passed": np.ones(len(keys))}
        lanes = {"order": 1.0, "order_by_chance": 0.5}
        return {
            "speed": np.full((len(keys), 12), 0.1 * num_present),
            "moments": np.arange(12.0)[None] % 2 * np.ones((len(keys), 1)),
            **{name: np.full((len(keys), 201), value) for name, value in lanes.items()},
        }


def test_planners_are_tabled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crowd_walks, "planned", Made)
    settings = Settings((4, 2), 2, 2, (1.0, 2.0), planners=("orca", "straight"), seeds=0, episodes=3)
    for _ in range(2):
        crowd_people.run(settings, StudyRun(tmp_path, "crowd-people", settings))
    assert "Skipped corridor_straight" in capsys.readouterr().out
    people = pandas.read_csv(tmp_path / "people.csv")
    assert people["policy"].tolist() == ["orca", "straight", "people"]
    assert people["reduced order"].iloc[0] == "1.00 [1.00, 1.00]"
    assert people["free speed"].tolist() == ["1.00 [1.00, 1.00]", "1.00 [1.00, 1.00]", "1.34"]
    doors = pandas.read_csv(tmp_path / "doors.csv")
    assert doors[["policy", "width"]].to_numpy().tolist() == [[p, w] for p in ("orca", "straight") for w in (1.0, 2.0)]
    assert doors["1/s"].tolist() == ["3.00 [3.00, 3.00]", "6.00 [6.00, 6.00]"] * 2
    speeds = pandas.read_csv(tmp_path / "speeds.csv")
    np.testing.assert_allclose(speeds["density"], 0.125 + 0.25 * np.arange(1, 12, 2))
    assert set(speeds["orca"]) == {"0.300 [0.300, 0.300]"}
    assert (tmp_path / "crowd_people.png").is_file()


@pytest.mark.slow
def test_planners_are_played_and_tabled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(planners=("straight",), seeds=0, **TINY)
    for _ in range(2):
        crowd_people.run(settings, StudyRun(tmp_path, "crowd-people", settings))
    assert "Skipped corridor_straight" in capsys.readouterr().out
    people = pandas.read_csv(tmp_path / "people.csv")
    assert people["policy"].tolist() == ["straight", "people"]
    # Straight walkers keep to the preferred speed, sqrt(2.23 / 1.26) m/s, if nobody is near.
    assert people["free speed"].iloc[0].startswith("1.33 [")
    doors = pandas.read_csv(tmp_path / "doors.csv")
    assert doors["passed"].iloc[0] == "1.00 [1.00, 1.00]"
    assert np.all(np.diff(pandas.read_csv(tmp_path / "speeds.csv")["density"]) > 0)
    assert (tmp_path / "crowd_people.png").is_file()


@pytest.mark.slow
def test_the_learned_are_a_row_too(tmp_path: Path) -> None:
    sizes: dict[str, Any] = TINY | {"people": (2, 3)}
    settings = Settings(planners=(), seeds=2, env_steps=400, **sizes)
    run_study(STUDIES["crowd-people"], settings, tmp_path, progress=False)
    walked = xarray.load_dataset(tmp_path / "corridor_learned_walks.nc", engine="h5netcdf")
    assert dict(walked.sizes) == {"unit": 2, "sample": 2, "people": 2, "density": 12, "time": 201}
    assert not np.array_equal(*walked["speed"].fillna(0.0).values)  # two seeds, two policies
    assert pandas.read_csv(tmp_path / "people.csv")["policy"].tolist() == ["learned", "people"]


def test_the_finished_parts_have_the_published_tables(tmp_path: Path, cells: Path) -> None:
    """The numbers of `docs/results/crowd-people.md`, of parts whose resuming computes nothing."""
    out = shutil.copytree(cells / "crowd-people", tmp_path / "out")
    run_study(STUDIES["crowd-people"], Settings(), out, progress=False)
    assert not [part for part in out.iterdir() if part.is_dir()]
    people = pandas.read_csv(out / "people.csv").set_index("policy")
    assert people["distance from Weidmann"].to_dict() == {
        "learned": "0.685 [0.580, 0.743]",
        "orca": "0.312 [0.244, 0.385]",
        "social-force": "0.337 [0.320, 0.339]",
        "straight": "0.359 [0.341, 0.379]",
        "people": MISSING,
    }
    assert people.loc["learned", "reduced order"] == "0.660 [0.377, 0.919]"
    doors = pandas.read_csv(out / "doors.csv").set_index(["policy", "width"])
    assert doors.loc[("learned", 1.0), "1/(m s)"] == "2.91 [0.92, 4.56]"
    assert doors.loc[("social-force", 2.0), "1/(m s)"] == "1.11 [1.10, 1.13]"
