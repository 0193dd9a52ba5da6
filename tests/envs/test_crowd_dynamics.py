"""Four dynamics, and the laws of one decision: invariance to the order of agents, translation and rotation."""

import dataclasses

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import dynamics
from envs.crowd.simulation import Physics, simulate
from envs.crowd.state import Goals, Obstacles, Walkers

TURN = np.pi / 180
DT = 1 / 120

_simulate = jax.jit(simulate, static_argnums=0)


def _alone(kind, control, substeps=10, backwards=False, heading=0.0, speed=0.0, turn=TURN):
    velocity = speed * np.array([[np.cos(heading), np.sin(heading)]])
    return _simulate(
        Physics(kind, substeps=substeps, backwards=backwards),
        crowd_scenes.walkers([(0, 0)], [heading], velocity),
        jnp.asarray([control], jnp.float32),
        crowd_scenes.traits(1),
        jnp.ones(1, bool),
        crowd_scenes.nowhere(1),
        Obstacles.none(),
        jnp.float32(turn),
        jnp.float32(DT),
    )


def test_cartesian_actions_are_squashed_by_length_and_polar_ones_by_component():
    action = jnp.array([[3.0, 4.0], [0.0, 0.0], [1e30, -1e30], [1e-8, 0]])
    radial = dynamics.squash("cartesian-velocity", action)
    expected = [[0.6 * np.tanh(5), 0.8 * np.tanh(5)], [0, 0], [np.sqrt(0.5), -np.sqrt(0.5)], [1e-8, 0]]
    np.testing.assert_allclose(radial, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(dynamics.squash("polar-velocity", action), np.tanh(action), rtol=1e-6)


def test_headings_stay_between_minus_pi_and_pi():
    angle = jnp.array([np.pi, -np.pi, 3.5 * np.pi, -7.25 * np.pi, 0.5, np.nextafter(np.float32(np.pi), 0)])
    wrapped = np.asarray(dynamics.wrap(angle))
    assert (wrapped >= -np.float32(np.pi)).all() and (wrapped < np.float32(np.pi)).all()
    # After ten turns, the rounding of the angle itself.
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * np.asarray(angle)), atol=5e-6)


def test_cartesian_velocity_is_the_control_times_the_limit():
    result = _alone("cartesian-velocity", (-0.3, 0.4))
    np.testing.assert_allclose(result.walkers.velocity, [[-0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(result.walkers.position, [[-0.05, 0.8 / 12]], rtol=1e-5)
    np.testing.assert_allclose(result.walkers.heading, np.arctan2(0.4, -0.3), rtol=1e-6)
    np.testing.assert_allclose(result.commanded_square, 1.0 * 10 * DT, rtol=1e-5)
    np.testing.assert_allclose(result.moved_square, 1.0 * 10 * DT, rtol=1e-4)
    np.testing.assert_allclose(result.travelled, 1 / 12, rtol=1e-5)


@pytest.mark.slow
def test_cartesian_acceleration_ends_at_the_speed_limit():
    speed = 0.0
    for _ in range(10):
        speed += (5.0 - 2.5 * speed) * DT
    result = _alone("cartesian-acceleration", (0.0, 1.0))
    np.testing.assert_allclose(result.walkers.velocity, [[0, speed]], rtol=1e-5)
    long = _alone("cartesian-acceleration", (0.0, 1.0), substeps=2000)
    np.testing.assert_allclose(long.walkers.velocity, [[0, 2.0]], rtol=1e-5)
    still = _alone("cartesian-acceleration", (1e-4, 0.0), substeps=1, heading=0.7)
    np.testing.assert_array_equal(still.walkers.velocity, [[0, 0]])
    np.testing.assert_allclose(still.walkers.heading, 0.7, rtol=1e-6)


def test_polar_velocity_turns_a_degree_per_substep_and_never_goes_back():
    result = _alone("polar-velocity", (1.0, 0.5))
    np.testing.assert_allclose(result.walkers.heading, np.deg2rad(10), rtol=1e-5)
    angles = np.deg2rad(np.arange(1, 11))
    np.testing.assert_allclose(
        result.walkers.position, [[np.cos(angles).sum() * DT, np.sin(angles).sum() * DT]], rtol=1e-5
    )
    np.testing.assert_array_equal(_alone("polar-velocity", (0.0, -0.5)).walkers.position, [[0, 0]])


def test_polar_acceleration_without_going_backwards_stops_at_zero():
    result = _alone("polar-acceleration", (0.0, -1.0), speed=0.05)
    np.testing.assert_array_equal(result.walkers.speed, [0])
    assert 0 < float(result.walkers.position[0, 0]) < 0.05 * DT


def test_polar_acceleration_backwards_goes_back_for_a_substep_and_then_starts_forwards():
    """A negative speed moves the agent back at once, and the next substep takes its size."""
    x = speed = 0.0
    for _ in range(10):
        speed = abs(speed)
        speed += (-5.0 - 2.5 * speed) * DT
        x += speed * DT
    result = _alone("polar-acceleration", (0.0, -1.0), backwards=True)
    np.testing.assert_allclose(result.walkers.position, [[x, 0]], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(result.walkers.speed, [abs(speed)], rtol=1e-5, atol=1e-7)
    assert float(result.walkers.position[0, 0]) < 0


def test_an_unknown_dynamics_is_named():
    with pytest.raises(ValueError, match=r"dynamics must be one of cartesian-velocity, .*, got 'hover'"):
        Physics("hover")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="substeps must be a whole number of at least 1, got 0"):
        Physics(substeps=0)


@pytest.mark.slow
def test_an_agent_freezes_at_the_substep_of_its_goal_and_obstructs_no_other():
    now = crowd_scenes.walkers([(0, 0), (0.35 + 0.2, 0)])  # the second comes from the other side
    goals = Goals(centre=jnp.array([[0.3, 0.0], [-9.0, 0]]), half=jnp.full((2, 2), 0.05))
    control = jnp.array([[1.0, 0], [-1.0, 0]])
    result = _simulate(
        Physics("cartesian-velocity", substeps=40),
        now,
        control,
        crowd_scenes.traits(2),
        jnp.ones(2, bool),
        goals,
        Obstacles.none(),
        jnp.float32(TURN),
        jnp.float32(DT),
    )
    # The first needs 0.05 m to touch its goal, 3 substeps of 1/60 m, if it is not stopped by the other one.
    np.testing.assert_array_equal(result.arrived, [True, False])
    np.testing.assert_array_equal(result.walkers.velocity[0], [0, 0])
    np.testing.assert_allclose(result.walkers.position[0], [0.05, 0], atol=1e-6 + 1 / 60)
    np.testing.assert_allclose(result.duration, [3 * DT, 40 * DT], rtol=1e-5)
    # The other one walks on, through where the first one stands.
    assert float(result.walkers.position[1, 0]) < -0.05


def _crowd(seed: int = 0, number: int = 40) -> tuple[Walkers, jax.Array]:
    generator = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(number)))
    spots = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)[:number] * 0.55
    position = spots - spots.mean(0) + generator.uniform(-0.07, 0.07, (number, 2))
    heading = generator.uniform(-3, 3, number)
    speed = generator.uniform(0, 1.5, number)[:, None]
    velocity = speed * np.stack([np.cos(heading), np.sin(heading)], -1)
    return crowd_scenes.walkers(position, heading, velocity), jnp.asarray(
        np.tanh(generator.normal(size=(number, 2))), jnp.float32
    )


def _decide(kind, now, control, solids, preset="2022"):
    number = now.position.shape[0]
    settings = crowd_scenes.PRESETS[preset]
    physics = Physics(kind, backwards=settings.backwards)
    return _simulate(
        physics,
        now,
        control,
        crowd_scenes.traits(number, settings.max_speed),
        jnp.ones(number, bool),
        crowd_scenes.nowhere(number),
        solids,
        jnp.float32(settings.turn_rate),
        jnp.float32(settings.dt),
    )


def _solids() -> Obstacles:
    return crowd_scenes.obstacles(
        [(0, 2.5, 1.0, 0.2), (-2.5, 0, 0.2, 1.0)], [(0.9, 0.9, 0.1)], velocity=[(0, -0.5), (0, 0)], mass=[500.0, np.inf]
    )


def _same(result, expected, position, velocity, heading):
    assert float(expected.touches.sum()) > 10
    np.testing.assert_allclose(result.walkers.position, position, atol=1e-4)
    np.testing.assert_allclose(result.walkers.velocity, velocity, atol=1e-2)
    moving = np.linalg.norm(np.asarray(expected.walkers.velocity), axis=-1) > 0.05
    turned = dynamics.wrap(result.walkers.heading - heading)
    # A velocity of 5 cm/s that is 1 cm/s off points 0.2 rad elsewhere.
    assert (np.abs(turned)[moving] < 0.2).all()


@pytest.mark.parametrize("preset", crowd_scenes.PRESETS)
@pytest.mark.parametrize("kind", dynamics.DYNAMICS)
class TestLawsOfOneDecision:
    """From the same state, to 1e-4 m and 1e-2 m/s: dense contact amplifies rounding about a hundredfold."""

    @pytest.mark.slow
    def test_permuting_agents_permutes_their_motion(self, kind, preset):
        now, control = _crowd()
        order = np.random.default_rng(1).permutation(40)
        one = _decide(kind, now, control, _solids(), preset=preset)
        other = _decide(kind, jax.tree.map(lambda leaf: leaf[order], now), control[order], _solids(), preset=preset)
        then = one.walkers
        _same(other, one, then.position[order], then.velocity[order], then.heading[order])

    @pytest.mark.fast_rows("polar-acceleration-2023")
    def test_a_translated_world_moves_alike(self, kind, preset):
        now, control = _crowd()
        by = jnp.array([3.3, -4.7])
        solids = _solids()
        there = dataclasses.replace(solids, box_centre=solids.box_centre + by, pillar_centre=solids.pillar_centre + by)
        one = _decide(kind, now, control, solids, preset=preset)
        moved = dataclasses.replace(now, position=now.position + by)
        other = _decide(kind, moved, control, there, preset=preset)
        then = one.walkers
        _same(other, one, then.position + by, then.velocity, then.heading)

    @pytest.mark.fast_rows("polar-acceleration-2023")
    def test_a_rotated_world_moves_alike(self, kind, preset):
        """By any angle, with boxes, which are aligned with the axes, far away."""
        now, control = _crowd()
        solids = crowd_scenes.obstacles([(90, 0, 1, 1), (0, 90, 1, 1)], [(0.9, 0.9, 0.1)])
        angle = 0.7
        matrix = jnp.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], jnp.float32)
        turn = lambda vectors: jnp.dot(vectors, matrix, precision="highest")  # noqa: E731
        turned = Walkers(turn(now.position), turn(now.velocity), dynamics.wrap(now.heading + angle), now.speed)
        there = dataclasses.replace(solids, pillar_centre=turn(solids.pillar_centre))
        one = _decide(kind, now, control, solids, preset=preset)
        control = turn(control) if kind.startswith("cartesian") else control
        other = _decide(kind, turned, control, there, preset=preset)
        then = one.walkers
        _same(other, one, turn(then.position), turn(then.velocity), then.heading + angle)

    @pytest.mark.slow
    def test_a_mirrored_world_moves_mirrored(self, kind, preset):
        now, control = _crowd()
        flip = jnp.array([1.0, -1.0])
        solids = _solids()
        there = dataclasses.replace(
            solids,
            box_centre=solids.box_centre * flip,
            box_velocity=solids.box_velocity * flip,
            pillar_centre=solids.pillar_centre * flip,
        )
        mirrored = Walkers(now.position * flip, now.velocity * flip, dynamics.wrap(-now.heading), now.speed)
        one = _decide(kind, now, control, solids, preset=preset)
        control = control * (flip if kind.startswith("cartesian") else flip[::-1])
        other = _decide(kind, mirrored, control, there, preset=preset)
        then = one.walkers
        _same(other, one, then.position * flip, then.velocity * flip, -then.heading)


@pytest.mark.slow
@pytest.mark.parametrize("kind", dynamics.DYNAMICS)
def test_everything_stays_finite_under_extreme_actions(kind):
    now, _ = _crowd()
    for action in (jnp.full((40, 2), 1e30), jnp.full((40, 2), -jnp.inf), jnp.zeros((40, 2))):
        result = _decide(kind, now, dynamics.squash(kind, action), _solids())
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(dataclasses.replace(result, obstacles=0)))
        assert bool(jnp.isfinite(result.obstacles.box_centre).all())
        assert bool(jnp.isfinite(result.obstacles.box_velocity).all())
