"""Measures of real people: each compared with a slow version in float64, and in known cases."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import measures
from envs.crowd.pedestrians import door_flow, free_speed, lane_order, lane_order_by_chance, weidmann_speed

EPS = float(np.finfo(np.float32).eps)


def test_weidmanns_curve() -> None:
    densities: list[float] = [0.1, 0.5, 1.0, 2.0, 4.0, 5.3]
    expected = [1.34 * (1 - math.exp(-1.913 * (1 / density - 1 / 5.4))) for density in densities]
    # At 5.3 per m^2, the difference of two numbers of 0.19 is 0.0035: their rounding is 54 times as large there.
    np.testing.assert_allclose(weidmann_speed(jnp.asarray(densities)), expected, rtol=200 * EPS)
    np.testing.assert_array_equal(weidmann_speed(jnp.asarray([0.0, 5.4, 9.0])), np.array([1.34, 0, 0], np.float32))


def walks(seed: int, num_steps: int = 12, num_agents: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Random walks in float32, and a mask of the people who walk."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, 0.7, (num_steps, num_agents, 2))
    position = (rng.uniform(-2, 2, (1, num_agents, 2)) + np.cumsum(steps, axis=0)).astype(np.float32)
    return position, rng.random((num_steps, num_agents)) < 0.8


def slow_door_flow(position: np.ndarray, walking: np.ndarray, low: float, high: float, interval: float) -> float:
    """The flow through a door on the z axis, through which people pass in the direction of x."""
    moments = []
    for t in range(len(position) - 1):
        for i in range(position.shape[1]):
            (x, z), (next_x, next_z) = position[t, i], position[t + 1, i]
            if walking[t, i] and x < 0 <= next_x:
                height = z + (next_z - z) * (0 - x) / (next_x - x)
                if low <= height <= high:
                    moments.append(t)
    after = sum(moment > moments[0] for moment in moments)
    return after / ((moments[-1] - moments[0]) * interval)


@pytest.mark.slow_rows("0")
@pytest.mark.parametrize("seed", range(4))
def test_the_flow_through_a_door_equals_a_slow_one(seed: int) -> None:
    position, walking = walks(seed, num_agents=25)
    # The left of a line from the high end to the low one is the side of positive x.
    actual = door_flow(jnp.asarray(position), jnp.asarray(walking), (0.0, 1.5), (0.0, -1.5), 0.25)
    expected = slow_door_flow(position.astype(float), walking, -1.5, 1.5, 0.25)
    np.testing.assert_allclose(actual, expected, rtol=4 * EPS)


@pytest.mark.slow
def test_flow_is_undefined_without_two_successive_crossings() -> None:
    position = jnp.asarray([[[-1.0, 0.0], [-1.0, 0.5]], [[1.0, 0.0], [1.0, 0.5]], [[2.0, 0.0], [2.0, 0.5]]])
    assert np.isnan(door_flow(position, jnp.ones((3, 2), bool), (0.0, 1.0), (0.0, -1.0), 0.5))
    later = position.at[1, 1, 0].set(-0.5)
    assert float(door_flow(later, jnp.ones((3, 2), bool), (0.0, 1.0), (0.0, -1.0), 0.5)) == 2.0


def test_a_jam_lowers_the_flow_through_a_door() -> None:
    x = jnp.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [1, 1, -1], [1, 1, -1]], jnp.float32)
    position, walking = jnp.stack([x, jnp.zeros_like(x)], axis=-1), jnp.ones((5, 3), bool)
    door = {"start": (0.0, 1.0), "end": (0.0, -1.0), "interval": 0.5}
    assert float(door_flow(position, walking, **door)) == 2.0
    assert float(door_flow(position, walking, **door, to_end=True)) == pytest.approx(1 / 1.5)
    assert float(door_flow(position[:2], walking[:2], **door, to_end=True)) == 0.0
    assert float(door_flow(position[:1].repeat(5, axis=0), walking, **door, to_end=True)) == 0.0


def test_the_order_of_lanes_equals_a_slow_one() -> None:
    position, walking = walks(5)
    walking[3] = False
    forwards = np.arange(9) % 2 == 0
    actual = lane_order(jnp.asarray(position), jnp.asarray(walking), jnp.asarray(forwards), 0.8)
    for t in range(12):
        values = []
        for i in range(9):
            lane = [j for j in range(9) if walking[t, j] and abs(float(position[t, i, 1] - position[t, j, 1])) <= 0.4]
            balance = sum(1 if forwards[i] == forwards[j] else -1 for j in lane)
            if walking[t, i]:
                values.append((balance / len(lane)) ** 2)
        np.testing.assert_allclose(actual[t], float(np.mean(values)) if values else np.nan, rtol=8 * EPS)
    assert np.isnan(actual[3])


def test_lanes_are_ordered_and_mixed_rows_are_not() -> None:
    x, row = np.meshgrid(np.arange(6.0), [0.0, 1.0])
    position = jnp.asarray(np.stack([x, row], -1).reshape(-1, 2), jnp.float32)
    here = jnp.ones(12, bool)
    assert float(lane_order(position, here, position[:, 1] > 0, 0.5)) == 1.0
    assert float(lane_order(position, here, position[:, 0] % 2 > 0, 0.5)) == 0.0


@pytest.mark.fast_rows("0")
@pytest.mark.parametrize("seed", range(3))
def test_the_order_by_chance_is_the_mean_over_all_permutations_of_the_groups(seed: int) -> None:
    position, walking = walks(seed, num_steps=2, num_agents=6)
    forwards = np.arange(6) < 2 + seed
    actual = lane_order_by_chance(jnp.asarray(position), jnp.asarray(walking), jnp.asarray(forwards), 1.6)
    for t in range(2):
        place, here, groups = position[t, walking[t]], jnp.ones(int(walking[t].sum()), bool), forwards[walking[t]]
        shuffled = jnp.asarray(list(itertools.permutations(groups)))
        orders = jax.vmap(lambda group, place=place, here=here: lane_order(jnp.asarray(place), here, group, 1.6))(
            shuffled
        )
        np.testing.assert_allclose(actual[t], np.mean(np.asarray(orders, np.float64)), rtol=8 * EPS)
    nobody = lane_order_by_chance(jnp.zeros((1, 6, 2)), jnp.zeros((1, 6), bool), jnp.asarray(forwards), 1.6)
    assert np.isnan(nobody[0])


@pytest.mark.slow
def test_free_speeds_equal_slow_ones() -> None:
    position, walking = walks(7, num_steps=30, num_agents=6)
    actual = free_speed(jnp.asarray(position), jnp.asarray(walking), 1.0, 0.5)
    places = position.astype(float)

    def free(t: int, i: int) -> bool:
        near = [j for j in range(6) if j != i and walking[t, j] and np.hypot(*(places[t, i] - places[t, j])) < 1]
        return walking[t, i] and not near

    for i in range(6):
        steps = [np.hypot(*(places[t + 1, i] - places[t, i])) for t in range(29) if free(t, i) and free(t + 1, i)]
        # Differences of places up to 20 m, divided by their length of about 1 m; a mean over 29 steps.
        np.testing.assert_allclose(actual[i], float(np.mean(steps)) / 0.5 if steps else np.nan, rtol=60 * EPS)
    assert np.sum(np.isfinite(actual)) >= 4
    together = jnp.zeros((3, 2, 2))
    assert np.all(np.isnan(free_speed(together, jnp.ones((3, 2), bool), 1.0, 0.5)))


@pytest.mark.slow
def test_the_fundamental_diagram_equals_a_slow_one() -> None:
    position, walking = walks(9, num_steps=40, num_agents=12)
    velocity = np.random.default_rng(10).normal(0, 1, position.shape).astype(np.float32)
    places, velocities, here = jnp.asarray(position), jnp.asarray(velocity), jnp.asarray(walking)
    diagram = measures.fundamental_diagram(places, velocities, here, (-2, -1), (2, 3), num_bins=6, largest=0.6)
    speeds, flows = [[] for _ in range(6)], [[] for _ in range(6)]
    for t in range(40):
        inside = [i for i in range(12) if walking[t, i] and -2 <= position[t, i, 0] < 2 and -1 <= position[t, i, 1] < 3]
        if inside:
            density = len(inside) / 16
            place = min(int(density / 0.6 * 6), 5)
            speed = np.mean([np.hypot(*velocity[t, i].astype(float)) for i in inside])
            speeds[place].append(speed)
            flows[place].append(speed * density)
    assert list(diagram.count) == [len(values) for values in speeds]
    assert sum(len(values) > 0 for values in speeds) >= 3
    for actual, expected in ((diagram.speed, speeds), (diagram.flow, flows)):
        means = [float(np.mean(values)) if values else np.nan for values in expected]
        np.testing.assert_allclose(actual, means, rtol=60 * EPS)  # sums of at most 12 and 40 numbers


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: door_flow(jnp.zeros((4, 2)), jnp.ones(4, bool), (0, 1), (0, -1), 0.1), "position"),
        (lambda: door_flow(jnp.zeros((4, 3, 2)), jnp.ones((3, 3), bool), (0, 1), (0, -1), 0.1), "walking"),
        (lambda: lane_order(jnp.zeros((4, 3, 3)), jnp.ones((4, 3), bool), jnp.ones(3, bool), 0.5), "position"),
        (lambda: lane_order(jnp.zeros((4, 3, 2)), jnp.ones((4, 2), bool), jnp.ones(3, bool), 0.5), "walking"),
        (lambda: lane_order(jnp.zeros((4, 3, 2)), jnp.ones((4, 3), bool), jnp.ones(2, bool), 0.5), "forwards"),
        (lambda: lane_order_by_chance(jnp.zeros((4, 3, 2)), jnp.ones((4, 3), bool), jnp.ones(2, bool), 1), "forwards"),
        (lambda: free_speed(jnp.zeros((3, 2)), jnp.ones(3, bool), 1.0, 0.1), "position"),
        (lambda: free_speed(jnp.zeros((4, 3, 2)), jnp.ones((4, 2), bool), 1.0, 0.1), "walking"),
    ],
)
def test_wrong_shapes_name_the_argument(call, name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        call()
