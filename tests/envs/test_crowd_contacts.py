"""Bodies are hard, inelastic and frictionless: in a jam, in collisions of two, against walls and cars."""

import dataclasses

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import contacts, dynamics, shapes
from envs.crowd.dynamics import Dynamics
from envs.crowd.simulation import Physics, simulate
from envs.crowd.state import Obstacles

DT = 1 / 120

_move = jax.jit(contacts.move, static_argnames=("kind", "solver"))


def _one_substep(position, velocity, obstacles=None, mass=None, kind: Dynamics = "cartesian-acceleration"):
    """Contacts alone: walkers with these velocities and without a control."""
    now = crowd_scenes.walkers(position, velocity=velocity)
    number = now.position.shape[0]
    who = crowd_scenes.traits(number)
    if mass is not None:
        who = dataclasses.replace(who, mass=jnp.asarray(mass, jnp.float32))
    walking = jnp.ones(number, bool)
    near = contacts.neighbourhood(who, walking, None)
    solids = Obstacles.none() if obstacles is None else obstacles
    solver = contacts.Solver(contacts.ITERATIONS[kind])
    return _move(kind, now, dynamics.follow(now), who, walking, solids, near, jnp.float32(DT), solver=solver)


def _check_jam(seen: crowd_scenes.Substeps, solids: Obstacles) -> None:
    assert np.isfinite(seen.position).all()
    assert seen.overlap.max() <= 0.01
    assert seen.energy_gain.max() <= 1e-3
    # Two roundings of a float32 between 8 m and 16 m, over the way of a substep at the limit.
    assert max(seen.speed.max(), seen.way.max()) <= 2 * (1 + 1e-4)
    for step in range(0, len(seen.overlap), 7):
        measured = crowd_scenes.overlaps(seen.position[step], 0.2, solids, seen.box_centre[step])
        # The solver reports the actual contacts, up to the rounding of a position at ten metres.
        assert max(measured, 0) == pytest.approx(seen.overlap[step], abs=5e-6)


def _check_door(seen: crowd_scenes.Substeps) -> None:
    """Check that people reach the other side only through the door, and never leave the arena."""
    assert np.abs(seen.position).max() <= 9.75 - 0.2 + 0.01
    x, z = seen.position[..., 0], seen.position[..., 1]
    assert (np.abs(z[np.abs(x) < 1.0]) <= 0.5 - 0.2 + 0.01).all()
    assert np.linalg.norm(np.diff(seen.position, axis=0), axis=-1).max() < 0.1


@pytest.mark.fast_rows("polar-velocity-2023")
@pytest.mark.parametrize(
    ("kind", "preset"), [("cartesian-velocity", "2022"), ("polar-acceleration", "2023"), ("polar-velocity", "2023")]
)
def test_a_jam_at_the_door_keeps_bodies_hard(kind, preset):
    seen = crowd_scenes.press(kind, preset, crowd_scenes.door(), crowd_scenes.through_the_door, decisions=60)
    _check_jam(seen, crowd_scenes.door())
    _check_door(seen)
    # The test is meaningful only if people press.
    assert (seen.overlap > 1e-4).any()


@pytest.mark.slow
@pytest.mark.parametrize("preset", crowd_scenes.PRESETS)
@pytest.mark.parametrize("kind", dynamics.DYNAMICS)
def test_two_hundred_decisions_of_a_jam_at_the_door(kind, preset):
    seen = crowd_scenes.press(kind, preset, crowd_scenes.door(), crowd_scenes.through_the_door, decisions=200)
    _check_jam(seen, crowd_scenes.door())
    _check_door(seen)
    assert (seen.position[-1, :, 0] > 1).sum() >= 40


def _check_car(seen: crowd_scenes.Substeps, mass: float) -> None:
    solids = crowd_scenes.car(mass)
    if np.isinf(mass):  # The car does work on the people that it pushes.
        seen = seen._replace(energy_gain=np.zeros(1))
    _check_jam(seen, solids)
    assert np.abs(seen.position).max() <= 9.75 - 0.2 + 0.01
    # Nobody changes sides within a substep, and between substeps nobody is inside the car.
    assert np.linalg.norm(np.diff(seen.position, axis=0), axis=-1).max() < 0.1


@pytest.mark.slow
def test_a_car_presses_people_against_a_wall_without_overlap():
    seen = crowd_scenes.press(
        "polar-acceleration", "2022", crowd_scenes.car(np.inf), crowd_scenes.in_front_of_the_car, decisions=200
    )
    _check_car(seen, np.inf)
    front = seen.box_centre[:, -1, 1] + 4.95
    assert 9.0 < front[-1] < 9.75


@pytest.mark.slow
@pytest.mark.parametrize("mass", [1000.0, np.inf])
@pytest.mark.parametrize("preset", crowd_scenes.PRESETS)
@pytest.mark.parametrize("kind", dynamics.DYNAMICS)
def test_two_hundred_decisions_in_front_of_a_car(kind, preset, mass):
    seen = crowd_scenes.press(kind, preset, crowd_scenes.car(mass), crowd_scenes.in_front_of_the_car, decisions=200)
    _check_car(seen, mass)


@pytest.mark.slow
def test_two_that_meet_head_on_stop():
    after, _, touched = _one_substep([(-0.2, 0), (0.2, 0)], [(1.5, 0), (-1.5, 0)])
    # Slack of the solver, 1e-5 m, over dt.
    np.testing.assert_allclose(after.velocity, 0, atol=1e-5 / DT)
    np.testing.assert_allclose(touched.count, [1, 1])
    assert float(touched.overlap) <= 1.1e-5


def test_a_collision_with_a_standing_agent_shares_the_momentum_by_mass():
    after, _, _ = _one_substep([(-0.2, 0), (0.2, 0)], [(1.5, 0), (0, 0)], mass=[1.0, 2.0])
    np.testing.assert_allclose(after.velocity[:, 0], [0.5, 0.5], atol=1e-5 / DT)
    momentum = after.velocity[0] + 2 * after.velocity[1]
    np.testing.assert_allclose(momentum, [1.5, 0], atol=1e-4)


@pytest.mark.slow
def test_a_contact_takes_nothing_from_sliding():
    wall = crowd_scenes.obstacles([(0, -1, 5, 0.8)])
    after, _, touched = _one_substep([(0, 0)], [(1.0, -1.0)], wall)
    np.testing.assert_allclose(after.velocity, [[1.0, 0.0]], atol=1e-5 / DT)
    assert float(touched.count[0]) == 1


@pytest.mark.slow
def test_a_walker_alone_goes_where_the_velocity_leads_exactly():
    after, _, touched = _one_substep([(3, 4)], [(0.3, -1.1)], crowd_scenes.obstacles([(0, 0, 1, 1)], [(5, 5, 0.2)]))
    np.testing.assert_array_equal(after.velocity, np.array([[0.3, -1.1]], np.float32))
    assert float(touched.count[0]) == 0


@pytest.mark.slow
def test_a_pillar_and_a_corner_stop_walkers():
    solids = crowd_scenes.obstacles([(2, 2, 1, 1)], [(-2, 0, 0.3)])
    start = np.array([[-1.5, 0], [1 - 0.2 * np.sqrt(0.5), 1 - 0.2 * np.sqrt(0.5)]])
    after, _, touched = _one_substep(start, [(-1, 0), (1, 1)], solids)
    np.testing.assert_allclose(after.velocity, 0, atol=2e-5 / DT)
    np.testing.assert_allclose(touched.count, [1, 1])


def test_a_box_that_can_be_pushed_takes_its_part_of_the_momentum():
    box = crowd_scenes.obstacles([(1.2, 0, 1, 1)], mass=[3.0])
    after, pushed, _ = _one_substep([(0, 0)], [(2.0, 0)], box)
    np.testing.assert_allclose(after.velocity[0, 0], 0.5, atol=2e-5 / DT)
    np.testing.assert_allclose(pushed.box_velocity[0], [0.5, 0], atol=1e-5 / DT)
    np.testing.assert_allclose(pushed.box_centre[0, 0], 1.2 + 0.5 * DT, atol=1e-5)


def test_a_box_with_a_fixed_velocity_takes_walkers_along():
    box = crowd_scenes.obstacles([(1.2, 0, 1, 1)], velocity=[(-1.0, 0)])
    after, pushed, _ = _one_substep([(0, 0)], [(0.5, 0)], box)
    np.testing.assert_allclose(after.velocity[0], [-1.0, 0], atol=2e-5 / DT)
    np.testing.assert_array_equal(pushed.box_velocity[0], np.array([-1, 0], np.float32))


def test_agents_that_do_not_walk_cause_no_contacts():
    now = crowd_scenes.walkers([(0, 0), (0.3, 0)])
    walking = jnp.array([True, False])
    control = jnp.array([[1.0, 0], [-1.0, 0]])
    physics = Physics("cartesian-velocity")
    result = simulate(
        physics,
        now,
        control,
        crowd_scenes.traits(2),
        walking,
        crowd_scenes.nowhere(2),
        Obstacles.none(),
        jnp.float32(0.02),
        jnp.float32(DT),
    )
    np.testing.assert_allclose(result.walkers.position[0], [2 / 12, 0], atol=1e-6)
    np.testing.assert_array_equal(result.walkers.position[1], now.position[1])
    np.testing.assert_array_equal(result.touches, [0, 0])
    np.testing.assert_array_equal(result.duration[1], 0)


@pytest.mark.slow_rows("5")
@pytest.mark.parametrize("number", [2, 5])
def test_bodies_in_exactly_one_place_part(number):
    now = crowd_scenes.walkers(np.full((number, 2), 3.0), velocity=np.zeros((number, 2)))
    solver, who, walking = contacts.Solver(40), crowd_scenes.traits(number), jnp.ones(number, bool)
    near = contacts.neighbourhood(who, walking, None)
    for _ in range(60):
        following = dynamics.follow(now)
        now, _, touching = _move(
            "cartesian-velocity", now, following, who, walking, Obstacles.none(), near, jnp.float32(DT), solver=solver
        )
    assert float(touching.overlap) <= 0.01
    np.testing.assert_allclose(np.mean(now.position, axis=0), 3.0, atol=1e-2)


@pytest.mark.slow
def test_an_agent_at_the_exact_centre_of_a_pillar_is_pushed_out():
    pillar = dataclasses.replace(
        Obstacles.none(), pillar_centre=jnp.float32([[2.0, 1.0]]), pillar_radius=jnp.float32([0.5])
    )
    after = _one_substep([[2.0, 1.0]], [[0.0, 0.0]], pillar)[0]
    # The largest distance in a substep, at twice the limit of 2 m/s.
    assert float(jnp.linalg.norm(after.position[0] - pillar.pillar_centre[0])) > 0.03


def test_inside_a_box_the_way_out_is_the_nearest_face():
    point = jnp.array([[0.9, 0.1], [0.1, -0.4], [2.0, 1.5]])
    gap, normal = shapes.box_gap(point, jnp.zeros(2), jnp.array([1.0, 0.5]))
    np.testing.assert_allclose(gap, [-0.1, -0.1, np.sqrt(2)], atol=1e-6)
    np.testing.assert_allclose(normal, [[1, 0], [0, -1], [np.sqrt(0.5), np.sqrt(0.5)]], atol=1e-6)


def test_boxes_that_share_an_edge_do_not_overlap():
    centre, half = jnp.array([[0.0, 0], [2, 0], [2.5, 0.5]]), jnp.ones((3, 2))
    expected = np.zeros((3, 3), bool)
    expected[1, 2] = expected[2, 1] = True
    np.testing.assert_array_equal(shapes.boxes_overlap(centre, half), expected)


def test_bad_settings_of_the_solver_are_refused():
    with pytest.raises(ValueError, match="iterations must be a whole number of at least 1, got 0"):
        contacts.Solver(0)
    with pytest.raises(ValueError, match="relaxation must be between 0 and 2"):
        contacts.Solver(10, 2.5)
