"""Reciprocal avoidance: half-planes against samples, linear programmes against enumeration, walks without contact."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import Crowd, orca, pairs, roll
from envs.crowd.orca import HalfPlanes, Orca
from envs.crowd.state import Obstacles

INTERVAL = 1 / 12

# A velocity may violate a half-plane by 1e-5 m/s; corners of half-planes at an angle of 1/10 amplify that, and the
# roundings of float32 of velocities of some m/s, tenfold.
CLOSE = 1e-4


def _solid(centre=(0.0, 0.0), half=(1.0, 1.0), velocity=(0.0, 0.0)) -> Obstacles:
    return dataclasses.replace(
        Obstacles.none(),
        box_centre=jnp.asarray([centre], jnp.float32),
        box_half=jnp.asarray([half], jnp.float32),
        box_velocity=jnp.asarray([velocity], jnp.float32),
        box_mass=jnp.full(1, jnp.inf),
    )


def _pillar(centre, radius: float) -> Obstacles:
    return dataclasses.replace(
        Obstacles.none(), pillar_centre=jnp.asarray([centre], jnp.float32), pillar_radius=jnp.full(1, radius)
    )


@functools.partial(jax.jit, static_argnames="num_steps")
def _walk(position, required, obstacles: Obstacles, num_steps: int):
    """Positions `[T, N, 2]` and boxes `[T, M, 2]` of walkers with bodies of 0.2 m, at their chosen velocities."""
    number = position.shape[0]
    radius, top, walking = jnp.full(number, 0.2), jnp.full(number, 2.0), jnp.ones(number, bool)

    def step(carry, _):
        position, velocity, centre = carry
        solids = dataclasses.replace(obstacles, box_centre=centre)
        near = pairs.candidates(position, walking, jnp.float32(20))
        horizons = {"horizon": jnp.float32(3), "obstacle_horizon": jnp.float32(1), "interval": jnp.float32(INTERVAL)}
        velocity = orca.avoid(position, velocity, radius, required, top, walking, solids, near, **horizons)
        now = position + velocity * INTERVAL, velocity, centre + obstacles.box_velocity * INTERVAL
        return now, (now[0], now[2])

    first = position, jnp.zeros_like(position), obstacles.box_centre
    return jax.lax.scan(step, first, None, length=num_steps)[1]


# --- half-planes -------------------------------------------------------------------------


def _closest_approach(away: np.ndarray, velocity: np.ndarray, horizon: float) -> np.ndarray:
    """The least distance from a disc's centre within the horizon, for relative velocities `[S, 2]`."""
    square = np.maximum(np.sum(velocity**2, axis=-1), 1e-12)
    time = np.clip(velocity @ away / square, 0, horizon)
    return np.linalg.norm(away - velocity * time[:, None], axis=-1)


def _pairs(number: int):
    rng = np.random.default_rng(3)
    angle = rng.uniform(-np.pi, np.pi, number)
    away = rng.uniform(0.45, 5, number)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    velocity, other_velocity = rng.uniform(-0.3, 0.3, (2, number, 2))
    velocity += away / np.linalg.norm(away, axis=-1, keepdims=True) * rng.uniform(0, 2, (number, 1))
    reach = rng.uniform(0.2, 0.44, number)
    return rng, away, velocity, other_velocity, reach


def _planes(away, velocity, relative, reach, share, horizon=4.0) -> tuple[np.ndarray, np.ndarray]:
    away, velocity, relative, reach = (jnp.asarray(value, jnp.float32) for value in (away, velocity, relative, reach))
    planes = orca.disc_planes(away, velocity, relative, reach, share, jnp.float32(horizon), jnp.float32(INTERVAL))
    return np.asarray(planes.normal, np.float64), np.asarray(planes.offset, np.float64)


def test_agents_within_their_half_planes_do_not_collide():
    rng, away, velocity, other_velocity, reach = _pairs(300)
    first = _planes(away, velocity, velocity - other_velocity, reach, 0.5)
    second = _planes(-away, other_velocity, other_velocity - velocity, reach, 0.5)
    judged = 0
    for i in range(len(away)):
        left, right = rng.uniform(-2, 2, (2, 400, 2))
        allowed = (left @ first[0][i] >= first[1][i]) & (right @ second[0][i] >= second[1][i])
        nearest = _closest_approach(away[i], (left - right)[allowed], 4.0)
        judged += allowed.sum()
        # Distances of some metres, in half-planes that float32 has rounded, over 4 s.
        assert (nearest >= reach[i] - 1e-5).all()
    assert judged > 10_000


def test_half_planes_ask_for_the_smallest_change():
    rng, away, velocity, other_velocity, reach = _pairs(300)
    relative = velocity - other_velocity
    normal, offset = _planes(away, velocity, relative, reach, 1.0)
    depth = offset - np.sum(normal * velocity, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=-1), 1, atol=1e-5)
    colliding = np.array([_closest_approach(a, v[None], 4.0)[0] for a, v in zip(away, relative, strict=True)]) < reach
    assert 30 < colliding.sum() < 270
    np.testing.assert_array_equal(depth > 0, colliding)
    angle = rng.uniform(-np.pi, np.pi, (500,))
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    for i in range(len(away)):
        # Nothing nearer than the rim is on its other side; points slightly beyond the rim, along the normal, are.
        around = _closest_approach(away[i], relative[i] + 0.99 * abs(depth[i]) * circle, 4.0) < reach[i]
        assert (around == colliding[i]).all()
        beyond = relative[i] + depth[i] * normal[i] + np.sign(depth[i]) * 1e-3 * normal[i]
        assert (_closest_approach(away[i], beyond[None], 4.0)[0] < reach[i]) != colliding[i]


def test_overlapping_agents_separate_within_the_interval():
    away, still = np.array([[0.3, 0.0]]), np.zeros((1, 2))
    normal, offset = _planes(away, still, still, np.array([0.4]), 0.5)
    np.testing.assert_allclose(normal, [[-1, 0]], atol=1e-6)
    np.testing.assert_allclose(offset, 0.5 * 0.1 / INTERVAL, rtol=1e-5)


# --- linear programmes -------------------------------------------------------------------


def _enumerate(normal: np.ndarray, offset: np.ndarray, speed: float, required: np.ndarray) -> np.ndarray | None:
    """The closest allowed velocity, among all places where it can be; None if nothing is allowed."""
    places = [required * min(1, speed / np.linalg.norm(required))]
    along = np.stack([-normal[:, 1], normal[:, 0]], axis=-1)
    point = normal * offset[:, None]
    places.extend(point + along * np.sum(along * required, axis=-1, keepdims=True))
    half = np.sqrt(np.maximum(speed**2 - offset**2, 0))[:, None]
    places.extend(point + half * along)
    places.extend(point - half * along)
    for i in range(len(offset)):
        for j in range(i):
            if abs(np.linalg.det(normal[[i, j]])) > 1e-9:
                places.append(np.linalg.solve(normal[[i, j]], offset[[i, j]]))
    places = np.array(places)
    # The normals are rounded to float32, and so not quite of length 1.
    allowed = (places @ normal.T >= offset - 1e-6).all(axis=1) & (np.linalg.norm(places, axis=1) <= speed + 1e-6)
    if not allowed.any():
        return None
    return places[allowed][np.argmin(np.linalg.norm(places[allowed] - required, axis=1))]


def _least_miss(normal: np.ndarray, offset: np.ndarray, speed: float, soft: np.ndarray) -> float:
    low, high = 0.0, 20.0
    for _ in range(24):
        miss = (low + high) / 2
        actual = _enumerate(normal, offset - miss * soft, speed, np.array([1.0, 0.0]))
        low, high = (miss, high) if actual is None else (low, miss)
    return high


@functools.cache
def _programmes(number: int, strict: float):
    rng = np.random.default_rng(7)
    angle = rng.uniform(-np.pi, np.pi, (number, 6))
    normal = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)
    offset = rng.uniform(-1, strict, (number, 6)).astype(np.float32)
    offset[:, :2] = -np.abs(offset[:, :2])
    speed = rng.uniform(1, 2, number).astype(np.float32)
    required = rng.uniform(-2, 2, (number, 2)).astype(np.float32)
    solve = jax.jit(jax.vmap(functools.partial(orca.closest_velocity, num_hard=2)))
    actual = np.asarray(solve(HalfPlanes(jnp.asarray(normal), jnp.asarray(offset)), speed, required))
    return tuple(np.asarray(value, np.float64) for value in (normal, offset, speed, required, actual))


def test_the_closest_allowed_velocity_is_found():
    feasible = 0
    for normal, offset, speed, required, actual in zip(*_programmes(150, 0.4), strict=True):
        expected = _enumerate(normal, offset, speed, required)
        if expected is None:
            continue
        feasible += 1
        assert (normal @ actual >= offset - CLOSE).all()
        assert np.linalg.norm(actual) <= speed + CLOSE
        assert np.linalg.norm(actual - required) == pytest.approx(np.linalg.norm(expected - required), abs=CLOSE)
    assert feasible >= 50


def test_where_nothing_is_allowed_the_largest_miss_is_least_and_solids_are_kept():
    infeasible = 0
    for normal, offset, speed, required, actual in zip(*_programmes(150, 1.5), strict=True):
        if _enumerate(normal, offset, speed, required) is not None:
            continue
        infeasible += 1
        soft = np.arange(6) >= 2
        missed = offset - normal @ actual
        assert missed[~soft].max() <= CLOSE
        assert np.linalg.norm(actual) <= speed + CLOSE
        assert missed[soft].max() == pytest.approx(_least_miss(normal, offset, speed, soft), abs=2 * CLOSE)
    assert infeasible >= 50


def test_solids_that_leave_nothing_are_missed_by_as_little_as_possible():
    normal = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    planes = HalfPlanes(normal, jnp.array([1.0, 0.5, -1.0]))
    actual = orca.closest_velocity(planes, jnp.float32(2), jnp.array([0.0, 0.5]), num_hard=3)
    np.testing.assert_allclose(actual[0], 0.25, atol=CLOSE)


# --- walks -------------------------------------------------------------------------------


@pytest.mark.slow
def test_agents_that_meet_head_on_pass_without_contact():
    position = jnp.array([[-3.0, 0.0], [3.0, 0.0]])
    required = jnp.array([[1.3, 0.03], [-1.3, 0.0]])
    seen, _ = _walk(position, required, Obstacles.none(), 96)
    # Their distances follow from the half-planes, up to the tolerance of a programme over the horizon of 3 s.
    assert np.linalg.norm(seen[:, 0] - seen[:, 1], axis=-1).min() >= 0.4 - 1e-4
    assert seen[-1, 0, 0] > 1.5 and seen[-1, 1, 0] < -1.5


@pytest.mark.slow_rows("wall")
@pytest.mark.parametrize("velocity", [(0.0, 0.0), (-0.8, 0.3)], ids=["wall", "car"])
def test_a_box_is_not_entered(velocity):
    start = jnp.stack([jnp.full(5, -3.0), jnp.linspace(-2.5, 2.5, 5)], axis=-1)
    seen, centre = _walk(start, jnp.tile(jnp.array([1.3, 0.0]), (5, 1)), _solid(velocity=velocity), 60)
    beyond = np.maximum(np.abs(seen - centre) - 1.0, 0)
    # The tolerance of a programme over the horizon of 1 s, also for a car that turns a corner.
    assert np.linalg.norm(beyond, axis=-1).min() >= 0.2 - 1e-4
    assert seen[-1, 0, 0] > 1 and seen[-1, 4, 0] > 1  # past it


def test_a_pillar_is_walked_around():
    seen, _ = _walk(jnp.array([[-3.0, 0.01]]), jnp.array([[1.3, 0.0]]), _pillar((0.0, 0.0), 0.3), 60)
    assert np.linalg.norm(seen, axis=-1).min() >= 0.5 - 1e-4
    assert seen[-1, 0, 0] > 1


@pytest.mark.slow
def test_worlds_together_are_as_each_alone():
    rng = np.random.default_rng(5)
    position = jnp.asarray(rng.uniform(-2, 2, (3, 12, 2)), jnp.float32)
    required = jnp.asarray(rng.uniform(-1.3, 1.3, (3, 12, 2)), jnp.float32)
    solids = _solid((0.0, 3.0))
    together, _ = jax.vmap(lambda p, v: _walk(p, v, solids, 5))(position, required)
    alone = jnp.stack([_walk(p, v, solids, 5)[0] for p, v in zip(position, required, strict=True)])
    # Programmes with many half-planes amplify roundings, which may differ in a batch.
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_agents_that_do_not_walk_are_not_avoided():
    position, required = jnp.array([[0.0, 0.0], [0.5, 0.0]]), jnp.array([[1.0, 0.0], [-1.0, 0.0]])
    walking = jnp.array([True, False])
    everyone = pairs.Candidates(jnp.array([[1], [0]]), jnp.ones((2, 1), bool), jnp.int32(0))
    chosen = orca.avoid(
        position,
        required,
        jnp.full(2, 0.2),
        required,
        jnp.full(2, 2.0),
        walking,
        Obstacles.none(),
        everyone,
        horizon=jnp.float32(3),
        obstacle_horizon=jnp.float32(1),
        interval=jnp.float32(INTERVAL),
    )
    np.testing.assert_allclose(chosen, [[1, 0], [0, 0]], atol=1e-6)


# --- the policy --------------------------------------------------------------------------


def test_invalid_arguments_are_refused():
    env = Crowd("circle", num_agents=2)
    with pytest.raises(ValueError, match="obstacle_horizon must be above 0 s, got 0"):
        Orca(env, obstacle_horizon=0)
    with pytest.raises(ValueError, match=r"margin must be at least 0, got -0\.1"):
        Orca(env, margin=-0.1)


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", ["cartesian-velocity", "polar-acceleration"])
def test_a_crowd_arrives(dynamics):
    env = Crowd("circle", num_agents=12, dynamics=dynamics)
    metrics = roll(env, Orca(env), jax.random.key(0)).metrics
    assert metrics["success"] >= 0.95
