"""Scenes: constants of the papers, room for all agents, and errors of one sentence."""

from itertools import product

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import scenarios, spawning
from envs.crowd.shapes import box_gap
from envs.crowd.state import Obstacles, Scene


def place(scenario: scenarios.Scenario, num_agents: int, count: int, seed: int = 0) -> Scene:
    """The first scene of a scenario in which the first `count` agents take part."""
    present = jnp.arange(num_agents) < count
    draw = jax.jit(lambda key, params: scenario.place(key, params, present, crowd_scenes.traits(num_agents)))
    return draw(jax.random.key(seed), scenario.default_params)


@pytest.mark.slow
@pytest.mark.parametrize("name", scenarios.SCENARIOS)
@pytest.mark.parametrize("obstacles", [False, True])
def test_all_start_apart_from_others_and_from_boxes(name: str, obstacles: bool) -> None:
    scene = place(scenarios.as_scenario(name, obstacles), 30, 20)
    position = np.asarray(scene.position)[:20]
    apart = np.hypot(*(position[:, None] - position[None]).T) + 9 * np.eye(20)
    assert apart.min() >= 0.4
    gap, _ = box_gap(scene.position[:20, None], scene.obstacles.box_centre, scene.obstacles.box_half)
    assert float(gap.min()) >= 0.2
    boxes = {"crossway": 8, "corridor": 6, "choke": 6, "car": 5, "circle-block": 5}
    assert scene.obstacles.box_centre.shape[0] == (boxes.get(name, 4) if obstacles else 4)
    assert scene.obstacles.pillar_centre.shape[0] == ({"circle": 6, "random": 18}.get(name, 0) if obstacles else 0)


def test_a_circle_sends_each_to_the_other_side() -> None:
    scene = place(scenarios.Circle(obstacles=False), 16, 12)
    angle = 2 * np.pi * np.arange(12) / 12
    at = 6 * np.stack([np.cos(angle), np.sin(angle)], -1)
    assert np.abs(np.asarray(scene.position)[:12] - at).max() <= 0.5
    assert np.abs(np.asarray(scene.goals.centre)[:12] + at).max() <= 0.5
    away = np.asarray(scene.goals.centre - scene.position)
    np.testing.assert_allclose(scene.heading, np.arctan2(away[:, 1], away[:, 0]), atol=1e-6)
    np.testing.assert_array_equal(scene.goals.half, 0.375)


@pytest.mark.parametrize(
    ("name", "headings"), [("crossway", [0, np.pi / 2]), ("corridor", [0, np.pi]), ("choke", [0]), ("car", [0])]
)
def test_flows_start_on_squares_and_walk_across(name: str, headings: list[float]) -> None:
    scene = place(scenarios.as_scenario(name, True), 20, 18)
    for group, heading in enumerate(headings):
        members = np.arange(18)[np.arange(18) % len(headings) == group]
        ahead = np.array([np.cos(heading), np.sin(heading)])
        position = np.asarray(scene.position)[members]
        side = np.linspace(-1.5, 1.5, int(np.ceil(np.sqrt(len(members)))))
        grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2) - 7.5 * ahead
        for at in position:  # every place is one of the grid's
            assert np.hypot(*(grid - at).T).min() < 1e-5
        assert len(np.unique(position.round(4), axis=0)) == len(members)
        np.testing.assert_allclose(
            np.asarray(scene.goals.centre)[members], np.tile(10 * ahead, (len(members), 1)), atol=1e-6
        )
        np.testing.assert_allclose(np.abs(np.asarray(scene.heading)[members]), heading, atol=1e-6)
        np.testing.assert_array_equal(np.asarray(scene.goals.half)[members], 2.0)


def test_goals_of_ones_own_lie_15_m_ahead() -> None:
    scene = place(scenarios.Corridor(shared_goals=False), 4, 4)
    ahead = np.array([[1, 0], [-1, 0]] * 2)
    np.testing.assert_allclose(scene.goals.centre - scene.position, 15 * ahead, atol=1e-5)


@pytest.mark.slow
def test_the_door_is_1_m_wide_the_corridor_4_and_the_car_drives() -> None:
    door = place(scenarios.Choke(), 4, 4).obstacles
    np.testing.assert_allclose([door.box_centre[-2, 1] - door.box_half[-2, 1]], [0.5])
    walls = place(scenarios.Corridor(), 4, 4).obstacles
    np.testing.assert_allclose([walls.box_centre[-2, 1] - walls.box_half[-2, 1]], [2.0])
    car = place(scenarios.Car(), 4, 4).obstacles
    np.testing.assert_array_equal(car.box_velocity[-1], [0, 1])
    assert float(car.box_mass[-1]) == 1000 and np.all(np.isinf(car.box_mass[:-1]))
    np.testing.assert_array_equal(car.box_velocity[:-1], 0)
    np.testing.assert_allclose(car.box_centre[-1], [0, -7])
    np.testing.assert_allclose(2 * car.box_half[-1], [2, 9.9])
    np.testing.assert_allclose(2 * door.box_half[-2:, 0], 2)
    blocks = place(scenarios.Crossway(), 4, 4).obstacles
    np.testing.assert_allclose(blocks.box_half[4:], 4.0)
    assert {tuple(centre) for centre in np.asarray(blocks.box_centre[4:]).tolist()} == set(product((-6, 6), (-6, 6)))
    block = place(scenarios.CircleBlock(), 4, 4).obstacles
    np.testing.assert_allclose([block.box_centre[-1], 2 * block.box_half[-1]], [[0, 0], [3, 3]])
    pillars = place(scenarios.Circle(), 4, 4).obstacles
    papers = [(-1.487, 0), (2.93, 0), (1.29, -3.48), (-3.66, 2.45), (-3.66, -2.52), (0.6, 1.2)]
    np.testing.assert_allclose(pillars.pillar_centre, papers, rtol=1e-6)
    np.testing.assert_allclose(pillars.pillar_radius, 0.2)


@pytest.mark.slow_rows("circle")
@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_the_arena_ends_at_9_75_m_all_around(name: str) -> None:
    walls = place(scenarios.as_scenario(name, False), 4, 4).obstacles
    low, high = walls.box_centre[:4] - walls.box_half[:4], walls.box_centre[:4] + walls.box_half[:4]
    assert float(high[0, 0]) == float(high[2, 1]) == -9.75 and float(low[1, 0]) == float(low[3, 1]) == 9.75
    assert np.all(np.abs(walls.box_centre[:4]).max(axis=1) == 10.25)
    # No gap at the corners: two walls are as long as the arena, two longer.
    assert float(walls.box_half[2, 0]) >= 9.75 and float(walls.box_half[0, 1]) >= 9.75


@pytest.mark.slow
def test_random_places_keep_their_distance() -> None:
    scene = place(scenarios.RandomPlaces(), 20, 20)
    for places in (scene.position, scene.goals.centre):
        apart = np.hypot(*(np.asarray(places)[:, None] - np.asarray(places)[None]).T) + 9 * np.eye(20)
        assert apart.min() >= 0.4999 and np.abs(places).max() <= 4.01
    assert np.std(scene.heading) > 1


def test_the_numbers_of_a_scene_are_traced() -> None:
    circle, present = scenarios.Circle(obstacles=False), jnp.ones(8, bool)

    @jax.jit
    def reach(radius: jax.Array) -> jax.Array:
        params = scenarios.CircleParams(radius=radius, noise=0.0)
        return jnp.linalg.norm(
            circle.place(jax.random.key(0), params, present, crowd_scenes.traits(8)).position, axis=-1
        )

    for radius in (3.0, 7.0):
        np.testing.assert_allclose(reach(jnp.float32(radius)), radius, rtol=1e-6)


def test_a_scene_of_ones_own() -> None:
    areas = scenarios.Areas(
        spawns=[((0, 0), (4, 2)), ((0, 6), (4, 8))],
        goals=[((8, 0), (9, 2))],
        walls=[((5, 0), (6, 1))],
        pillars=[(5.5, 4.0, 0.3)],
    )
    assert areas == scenarios.Areas(areas.spawns, areas.goals, areas.walls, areas.pillars) and hash(areas)
    scene = place(areas, 12, 12)
    position = np.asarray(scene.position)
    assert np.all((position[::2] >= [0, 0]) & (position[::2] <= [4, 2]))
    assert np.all((position[1::2] >= [0, 6]) & (position[1::2] <= [4, 8]))
    np.testing.assert_allclose(scene.goals.centre, np.tile([8.5, 1], (12, 1)))
    np.testing.assert_allclose(scene.goals.half, np.tile([0.5, 1], (12, 1)))
    np.testing.assert_allclose(scene.obstacles.box_half, [[0.5, 0.5]])
    np.testing.assert_allclose(scene.obstacles.pillar_radius, [0.3])


def test_a_recorded_table() -> None:
    table = np.array([[0, 0, 5, 0], [1, 1, -5, 1], [2, 2, 0, 9.0]])
    recorded = scenarios.Recorded(table)
    scene = place(recorded, 3, 3)
    np.testing.assert_allclose(scene.position, table[:, :2])
    np.testing.assert_allclose(scene.goals.centre, table[:, 2:])
    assert scenarios.Recorded(table.tolist()) == recorded and hash(recorded)


@pytest.mark.slow
def test_the_capacity_of_an_area_equals_that_of_its_grid() -> None:
    # 8 x 8 places 3/7 m apart hold discs of 0.2 m; at a mass of 1.5 kg these have 0.229 m, and 7 x 7 fit.
    assert spawning.rectangle_holds((1.5, 1.5), 0.2) == 64
    assert spawning.rectangle_holds((1.5, 1.5), 0.2 * 1.5 ** (1 / 3)) == 49
    # A line 20 m long holds 51 discs side by side, from one end to the other.
    assert spawning.rectangle_holds((10.0, 0.01), 0.2) == 51
    line = np.asarray(spawning.grid(jnp.arange(12), jnp.int32(12), jnp.zeros(2), jnp.array([10.0, 0.01])))
    np.testing.assert_allclose(line, np.stack([np.linspace(-10, 10, 12), np.zeros(12)], axis=-1), atol=1e-5)
    for count in (64, 49):
        at = spawning.grid(jnp.arange(count), jnp.int32(count), jnp.zeros(2), jnp.full(2, 1.5))
        apart = np.hypot(*(np.asarray(at)[:, None] - np.asarray(at)[None]).T) + 9 * np.eye(count)
        np.testing.assert_allclose(apart.min(), 3 / (np.sqrt(count) - 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (lambda: scenarios.as_scenario("circel", True), "there is no scenario 'circel'; did you mean 'circle'"),
        (lambda: scenarios.as_scenario(3, True), "scenario must be a name or a Scenario, got int"),  # type: ignore[arg-type]
        (lambda: scenarios.Choke().check(65, 0.2), "must be at most 64 in choke with a radius of up to 0.2 m"),
        (lambda: scenarios.Choke().check(50, 0.2 * 1.5 ** (1 / 3)), "at most 49 in choke with a radius of up to 0.229"),
        (lambda: scenarios.Areas(goals=[((0, 0), (1, 1))]), "spawns must name at least one area"),
        (lambda: scenarios.Areas(spawns=[((0, 0), (1, 1))]), "goals must name one area for all or .* got none"),
        (
            lambda: scenarios.Areas([((0, 0), (1, 1))], [((5, 0), (6, 1))], [((2, 0), (3, 1)), ((2.5, 0), (4, 1))]),
            r"walls must not overlap, but \(\(2.0, 0.0\), \(3.0, 1.0\)\) and ",
        ),
        (lambda: scenarios.Areas([((1, 0), (1, 1))], [((5, 0), (6, 1))]), "spawns must be areas .* of some size"),
        (lambda: scenarios.Areas([((0, 0), (1, 1))], [((5, 0), (6, 1))], (), [(0, 0, 0)]), "a radius above 0"),
        (lambda: scenarios.Areas([((0, 0), (1,))], [((5, 0), (6, 1))]), "spawns must be areas .* of some size"),
        (lambda: scenarios.Areas([((0, 0), (np.inf, 1))], [((5, 0), (6, 1))]), "spawns must be areas .* of some size"),
        (
            lambda: scenarios.Areas([((0, 0), (1, 1))], [((5, 0), (6, 1))], (), (1, 2, 3)),
            r"pillars must have rows of 3 numbers \(x, z, radius\), got an array of shape \(3,\)",
        ),
        (
            lambda: scenarios.Areas([((0, 0), (1, 1))], [((5, 0), (6, 1))], (), [(1, 2, np.nan)]),
            "pillars must have finite numbers, but row 0 is",
        ),
        (lambda: scenarios.Recorded([[0, 0, 1]]), r"rows of 4 numbers \(start x, .* of shape \(1, 3\)"),
        (lambda: scenarios.Recorded([[0, 0, 1, 1], [0]]), "rows of 4 numbers .*, got rows of different lengths"),
        (lambda: scenarios.Recorded([[0, 0, 1, 1], [0, 0, np.nan, 1]]), "table must have finite .* row 1 is"),
        (lambda: scenarios.Recorded(), "table must have at least one row, got none"),
        (lambda: scenarios.Recorded([[0, 0, 1, 1]], goal_half=-1.0), r"goal_half must be above 0 m, got -1\.0"),
        (lambda: scenarios.Recorded([[0, 0, 1, 1]]).check(2, 0.2), "num_agents must be at most 1 in recorded"),
        (  # an area of 2 x 2 m holds 36, also where two groups share it
            lambda: scenarios.Areas([((0, 0), (2, 2))] * 2, [((5, 0), (6, 1))]).check(37, 0.2),
            "num_agents must be at most 36 in areas with a radius of up to 0.2 m, got 37",
        ),
        (lambda: scenarios.CircleBlock(block=20.0), "block must lie between 0 and 12.0 m, got 20.0"),
    ],
)  # fmt: skip
def test_bad_scenarios_are_refused(attempt, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        attempt()


def test_a_large_crowd_that_overlaps_is_taken_apart_by_lists() -> None:
    rng = np.random.default_rng(0)
    position = jnp.asarray(rng.uniform(0, 24, (300, 2)), jnp.float32)  # half a disc a square metre
    radius, present = jnp.full(300, 0.2), jnp.arange(300) < 290

    def least_gap(where: np.ndarray) -> float:
        apart = np.linalg.norm(where[:290, None] - where[None, :290], axis=-1) - 0.4
        return float(np.min(apart[~np.eye(290, dtype=bool)]))

    assert least_gap(np.asarray(position)) < -0.2
    actual = np.asarray(jax.jit(spawning.push_apart)(position, radius, present, Obstacles.none()))
    assert least_gap(actual) > 0
    np.testing.assert_array_equal(actual[290:], position[290:])
