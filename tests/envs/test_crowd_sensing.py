"""Observations: neighbours compared with a sort, rays with small steps, vectors entry by entry, and symmetries."""

import dataclasses

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import neighbours, observations, rays
from envs.crowd.state import Goals, Obstacles, Traits, Walkers

FRAMES = observations.FRAMES

# Compiled, because each of them takes seconds op by op.
nearest = jax.jit(neighbours.nearest, static_argnums=(5, 6))
cast = jax.jit(rays.cast, static_argnums=7, static_argnames=("see_agents", "tags"))
own_vector = jax.jit(observations.own_vector, static_argnums=(0, 6, 7))
rows = jax.jit(observations.rows, static_argnums=(0, 4))


def crowd(seed: int, num_agents: int, half: float = 5.0) -> tuple[Walkers, jax.Array]:
    """Walkers at random places, some of whom do not walk."""
    keys = jax.random.split(jax.random.key(seed), 4)
    walkers = Walkers(
        position=jax.random.uniform(keys[0], (num_agents, 2), minval=-half, maxval=half),
        velocity=jax.random.normal(keys[1], (num_agents, 2)),
        heading=jax.random.uniform(keys[2], (num_agents,), minval=-np.pi, maxval=np.pi),
        speed=jnp.zeros(num_agents),
    )
    return walkers, jax.random.uniform(keys[3], (num_agents,)) < 0.8


def own_traits(num_agents: int) -> Traits:
    """Traits that differ from agent to agent."""
    some = jnp.linspace(0.5, 1.5, num_agents)
    return dataclasses.replace(crowd_scenes.traits(num_agents), size_mass=some, resting=2 * some, walking=1 + some)


def sorted_by_numpy(walkers, walking, sight_radius, sight_angle, k):
    """The nearest agents, one by one."""
    position, heading = np.asarray(walkers.position, np.float64), np.asarray(walkers.heading, np.float64)
    for i in range(len(position)):
        seen = []
        for j in range(len(position)):
            away = position[j] - position[i]
            distance = np.hypot(*away)
            angle = np.abs((np.arctan2(away[1], away[0]) - heading[i] + np.pi) % (2 * np.pi) - np.pi)
            if i != j and walking[i] and walking[j] and distance <= sight_radius and angle <= sight_angle:
                seen.append((distance, j))
        yield [j for _, j in sorted(seen)[:k]]


@pytest.mark.slow_rows("10.0-3.141592653589793-all-pairs")
@pytest.mark.parametrize("search", ["all-pairs", "cells"])
@pytest.mark.parametrize(("sight_radius", "sight_angle"), [(10.0, np.pi), (3.0, np.pi / 3), (2.0, np.pi), (1.0, np.pi)])
def test_the_nearest_are_those_of_a_sort(search: str, sight_radius: float, sight_angle: float) -> None:
    walkers, walking = crowd(0, 60)
    actual = nearest(walkers.position, walkers.heading, walking, sight_radius, sight_angle, 7, search)
    for i, expected in enumerate(sorted_by_numpy(walkers, np.asarray(walking), sight_radius, sight_angle, 7)):
        assert np.asarray(actual.index[i])[np.asarray(actual.valid[i])].tolist() == expected
        assert np.asarray(actual.valid[i]).tolist() == [True] * len(expected) + [False] * (7 - len(expected))


def _assert_same_neighbours(actual: neighbours.Nearest, expected: neighbours.Nearest) -> None:
    """Equal where valid; other indices are arbitrary."""
    np.testing.assert_array_equal(actual.valid, expected.valid)
    np.testing.assert_array_equal(actual.index[actual.valid], expected.index[expected.valid])


def test_cells_serve_a_dense_spot_and_a_sparse_rest_in_several_worlds() -> None:
    """More people in a cell than a list holds, people short of neighbours at 2.5 and 5 m, and people far apart."""
    walkers, walking = crowd(2, 80, half=12.0)
    jam = walkers.position.at[:30].multiply(0.05)
    worlds = jnp.stack([jam, walkers.position, 20 * walkers.position])

    def search(method):
        return jax.vmap(lambda position: nearest(position, walkers.heading, walking, 10.0, np.pi, 5, method))(worlds)

    pairs, cells = search("all-pairs"), search("cells")
    _assert_same_neighbours(pairs, cells)
    assert np.mean(pairs.valid[:2], axis=(1, 2)).min() > 0.5 > np.mean(pairs.valid[2])


@pytest.mark.slow
def test_cells_fall_back_where_someone_stands_apart() -> None:
    walkers, walking = crowd(1, 40, half=1.0)
    position = walkers.position.at[0].set(jnp.array([7.0, 7.0]))
    walking = walking.at[0].set(True)
    both = [nearest(position, walkers.heading, walking, 10.0, np.pi, 5, search) for search in ("all-pairs", "cells")]
    _assert_same_neighbours(*both)
    assert bool(both[1].valid[0].all())


def distance_by_steps(origin, angle, discs, boxes, reach, step=1e-3):
    """The distance along a ray to the first body, by small steps."""
    way = np.arange(0, reach + step, step)
    point = origin + way[:, None] * np.array([np.cos(angle), np.sin(angle)])
    inside = np.zeros(len(way), bool)
    for centre, radius in discs:
        inside |= np.hypot(*(point - centre).T) <= radius
    for centre, half in boxes:
        inside |= np.all(np.abs(point - centre) <= half, axis=1)
    return way[np.argmax(inside)] if inside.any() else np.inf


@pytest.mark.slow
def test_rays_stop_where_small_steps_meet_something() -> None:
    walkers, walking = crowd(2, 12, half=3.0)
    things = crowd_scenes.obstacles([(2.0, 2.0, 0.5, 1.0), (-2.5, 0.0, 0.3, 2.0)], [(0.0, -2.0, 0.4)])
    radius = jnp.linspace(0.1, 0.3, 12)
    reach, view = 4.0, 1.4
    seen = np.asarray(cast(walkers.position, walkers.heading, radius, walking, things, reach, view, 9, tags=True))
    place = np.asarray(walkers.position, np.float64)
    boxes = list(zip(np.asarray(things.box_centre), np.asarray(things.box_half), strict=True))
    for i, origin in enumerate(place):
        agents = [(place[j], float(radius[j])) for j in range(12) if j != i and walking[j]]
        for r, angle in enumerate(float(walkers.heading[i]) + np.linspace(-view, view, 9)):
            to_agent = distance_by_steps(origin, angle, agents, [], reach)
            to_solid = distance_by_steps(origin, angle, [(np.array([0.0, -2.0]), 0.4)], boxes, reach)
            expected = min(to_agent, to_solid)
            hit, closeness, is_agent, is_solid = seen[i, r]
            assert hit == (expected <= reach)
            np.testing.assert_allclose(
                closeness, max(0.0, 1 - expected / reach), atol=5e-4
            )  # a step is 2.5e-4 of reach
            assert (is_agent, is_solid) == ((expected <= reach) and to_agent <= to_solid, hit and to_solid < to_agent)


def test_rays_that_do_not_see_agents_pass_through_them() -> None:
    position = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    wall = crowd_scenes.obstacles([(3.0, 0.0, 0.5, 1.0)])
    arguments = (position, jnp.zeros(2), jnp.full(2, 0.2), jnp.ones(2, bool), wall, 10.0, 1.0, 1)
    np.testing.assert_allclose(cast(*arguments, see_agents=True)[0, 0], [1, 1 - 0.08], atol=1e-6)
    np.testing.assert_allclose(cast(*arguments, see_agents=False)[0, 0], [1, 1 - 0.25], atol=1e-6)


def test_rays_run_from_right_to_left_and_pass_through_the_absent() -> None:
    """An agent at the origin that looks along x, one to its right, one behind it, and an absent one in front."""
    position = jnp.array([[0.0, 0.0], [0.0, -2.0], [-1.0, 0.0], [1.0, 0.0]])
    walking, radius = jnp.array([True, True, True, False]), jnp.full(4, 0.5)
    seen = cast(position, jnp.zeros(4), radius, walking, Obstacles.none(), 10.0, np.pi / 2, 3)[0]
    np.testing.assert_allclose(seen, [[1, 1 - 0.15], [0, 0], [0, 0]], atol=1e-6)


def test_rays_along_an_edge_and_over_nothing_are_finite() -> None:
    square = crowd_scenes.obstacles([(2.0, 0.0, 0.5, 0.5)])
    seen = cast(jnp.array([[0.0, 0.5]]), jnp.zeros(1), jnp.ones(1), jnp.ones(1, bool), square, 9.0, np.pi, 5)
    assert bool(jnp.isfinite(seen).all())
    nothing = cast(jnp.zeros((1, 2)), jnp.zeros(1), jnp.ones(1), jnp.ones(1, bool), Obstacles.none(), 9.0, 1.0, 3)
    np.testing.assert_array_equal(nothing, 0)


@pytest.mark.slow_rows("False-absolute")
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("energy", [False, True])
def test_the_own_vector_entry_by_entry(frame: observations.Frame, energy: bool) -> None:
    walkers, _ = crowd(3, 5)
    goals = Goals(centre=jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32), half=jnp.ones((5, 2)))
    traits, arrived = own_traits(5), jnp.arange(5) == 2
    got = own_vector(frame, walkers, goals, traits, arrived, 0.25, energy)
    for i in range(5):
        (x, z), h = np.asarray(walkers.position[i], np.float64), float(walkers.heading[i])
        h = h + 2 * np.pi if h < -0.75 * np.pi else h
        gx, gz = np.asarray(goals.centre[i], np.float64)
        vx, vz = np.asarray(walkers.velocity[i], np.float64)
        away = np.array([gx - x, gz - z])
        turn = np.array([[np.cos(h), np.sin(h)], [-np.sin(h), np.cos(h)]])
        middle = {
            "absolute": [h, gx / 10, gz / 10, vx / 2, vz / 2],
            "relative": [h / (2 * np.pi), *(away / 10), vx / 2, vz / 2],
            "egocentric": [h / (2 * np.pi), *(turn @ away / 20), vx / 5, vz / 5],
        }[frame]
        mass = float(traits.size_mass[i])
        expected = [x / 10, z / 10, *middle, float(i == 2), mass]
        if energy:
            expected += [2 * mass, 1 + mass, np.sqrt(2 * mass / (1 + mass)), 0.25]
        np.testing.assert_allclose(got[i], expected, atol=2e-6)
    hidden = own_vector(frame, walkers, goals, traits, arrived, 0.25, energy, True)
    np.testing.assert_array_equal(hidden, got.at[:, :2].set(0))


@pytest.mark.parametrize("frame", FRAMES)
def test_rows_entry_by_entry(frame: observations.Frame) -> None:
    walkers, walking = crowd(4, 8)
    traits = own_traits(8)
    near = nearest(walkers.position, walkers.heading, walking, 4.0, np.pi, 5)
    got = np.asarray(rows(frame, walkers, traits, near, True))
    short = np.asarray(rows(frame, walkers, traits, near, False))
    np.testing.assert_array_equal(short, got[..., :4])
    for i in range(8):
        h = float(walkers.heading[i])
        turn = np.array([[np.cos(h), np.sin(h)], [-np.sin(h), np.cos(h)]])
        for k in range(5):
            j = int(near.index[i, k])
            place, velocity = np.asarray(walkers.position[j]), np.asarray(walkers.velocity[j])
            if frame != "absolute":
                place = place - np.asarray(walkers.position[i])
            if frame == "egocentric":
                place, velocity = turn @ place, turn @ velocity
            expected = np.array([*place, *velocity, float(traits.size_mass[j])]) * float(near.valid[i, k])
            np.testing.assert_allclose(got[i, k], expected, atol=2e-6)


def turned(walkers: Walkers, angle: float, shift: np.ndarray) -> Walkers:
    """The walkers of a rotated and translated world."""
    turn = jnp.asarray([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], jnp.float32)
    return dataclasses.replace(
        walkers,
        position=walkers.position @ turn.T + jnp.asarray(shift, jnp.float32),
        velocity=walkers.velocity @ turn.T,
        heading=jnp.mod(walkers.heading + angle + jnp.pi, 2 * jnp.pi) - jnp.pi,
    )


@pytest.mark.slow
def test_egocentric_rows_and_rays_do_not_know_where_the_world_is() -> None:
    walkers, walking = crowd(5, 10)
    pillars = crowd_scenes.obstacles((), [(1.0, 2.0, 0.4), (-2.0, 0.5, 0.3)])
    angle, shift = 1.1, np.array([2.0, -1.0])
    moved = turned(walkers, angle, shift)
    centre = np.asarray(turned(dataclasses.replace(walkers, position=pillars.pillar_centre), angle, shift).position)
    seen = []
    for each, things in ((walkers, pillars), (moved, dataclasses.replace(pillars, pillar_centre=jnp.asarray(centre)))):
        near = nearest(each.position, each.heading, walking, 4.0, 2.0, 4)
        rays = cast(each.position, each.heading, jnp.full(10, 0.2), walking, things, 4.0, 1.5, 11)
        seen.append((rows("egocentric", each, own_traits(10), near, True), rays))
    for before, after in zip(*seen, strict=True):
        np.testing.assert_allclose(before, after, atol=2e-4)  # near a rim a ray's distance has a steep slope


@pytest.mark.slow
def test_permuting_agents_permutes_their_observations() -> None:
    walkers, walking = crowd(6, 9)
    order = jnp.asarray(np.random.default_rng(1).permutation(9))
    traits = own_traits(9)
    seen = []
    for each, who, kind in (
        (walkers, walking, traits),
        (jax.tree.map(lambda x: x[order], walkers), walking[order], jax.tree.map(lambda x: x[order], traits)),
    ):
        near = nearest(each.position, each.heading, who, 5.0, np.pi, 4)
        seen.append(np.asarray(rows("relative", each, kind, near, True)))
    np.testing.assert_array_equal(seen[0][np.asarray(order)], seen[1])
