"""Racing: tracks are closed and smooth, rays end at borders, a lap pays its length."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.control.racing import NUM_POINTS, ray_lengths

ENV: Any = envs.make("racing")
PARAMS: Any = ENV.default_params
KEYS = jax.random.split(jax.random.key(0), 16)
STATES: Any = jax.jit(jax.vmap(lambda key: ENV.reset_env(key, PARAMS)[1]))(KEYS)
STEP = jax.jit(lambda state, action: ENV.step_env(KEYS[0], state, action, PARAMS))


def state_of(index: int, **changes: Any) -> Any:
    state: Any = jax.tree.map(lambda leaf: leaf[index], STATES)
    return state.replace(**{name: jnp.asarray(value, jnp.float32) for name, value in changes.items()})


def around_tracks(indices: np.ndarray, points: np.ndarray) -> Any:
    """States of these tracks at points of their middle lines: a start is at angle 0, where products are exact."""
    states: Any = jax.tree.map(lambda leaf: leaf[indices], STATES)
    return states.replace(place=states.track[np.arange(len(points)), 0, points], point=jnp.asarray(points, jnp.int32))


def distance_to(place: np.ndarray, polygon: np.ndarray) -> float:
    """Distance of a place from a closed polygon, by its sides one by one."""
    least = np.inf
    for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        share = np.clip((place - start) @ (end - start) / ((end - start) @ (end - start)), 0, 1)
        least = min(least, float(np.linalg.norm(place - start - share * (end - start))))
    return least


def test_tracks_are_closed_smooth_and_of_one_width() -> None:
    tracks = np.asarray(STATES.track, np.float64)
    middle, left, right = tracks[:, 0], tracks[:, 1], tracks[:, 2]
    np.testing.assert_allclose(np.linalg.norm(left - right, axis=-1), PARAMS.width, atol=1e-5)
    np.testing.assert_allclose((left + right) / 2, middle, atol=1e-6)
    knots = np.linalg.norm(middle[:, ::8], axis=-1)
    assert knots.min() >= 0.8 - 1e-5 and knots.max() <= 1 + 1e-5 and np.std(knots) > 0.05
    # The spline is interpolated through the knots at equal angles, and no side turns by more than 0.4 rad.
    angles = np.arctan2(middle[:, ::8, 1], middle[:, ::8, 0])
    turns = np.remainder(angles - 2 * np.pi / 20 * np.arange(20) + np.pi, 2 * np.pi) - np.pi
    np.testing.assert_allclose(turns, 0, atol=1e-5)
    sides = np.roll(middle, -1, axis=1) - middle
    headings = np.arctan2(sides[..., 1], sides[..., 0])
    assert np.abs(np.angle(np.exp(1j * (np.roll(headings, -1, axis=1) - headings)))).max() < 0.4


def test_rays_end_at_the_borders() -> None:
    """From random places on the track, rays end on a border, and stay on the track before."""
    rng = np.random.default_rng(0)
    for index in range(4):
        track = np.asarray(STATES.track[index], np.float64)
        place = track[0, rng.integers(NUM_POINTS)] + rng.uniform(-0.02, 0.02, 2)
        angles = rng.uniform(-np.pi, np.pi, 12)
        numbers = (jnp.asarray(each, jnp.float32) for each in (place, angles, track[1:]))
        lengths = np.asarray(ray_lengths(*numbers), np.float64)
        for angle, length in zip(angles, lengths, strict=True):
            direction = np.array([np.cos(angle), np.sin(angle)])
            assert min(distance_to(place + length * direction, border) for border in track[1:]) < 2e-5
            for share in np.linspace(0, 0.98, 25):
                # Within half of the width from the middle of the track, whose sides and borders differ by their bends.
                assert distance_to(place + share * length * direction, track[0]) < 0.04 + 4e-3


def test_steps_are_those_of_the_car() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        speed, heading, action = rng.uniform(0.06, 3), rng.uniform(-np.pi, np.pi), rng.uniform(-1.5, 1.5, 2)
        state = state_of(int(rng.integers(16)), speed=speed, heading=heading)
        obs, after, reward, terminated, _ = STEP(state, jnp.asarray(action, jnp.float32))
        pedal, wheel = np.clip(action, -1, 1)
        faster = speed + 0.1 * 0.04 * pedal
        turned = heading + min(np.pi / 6, 1.741 * 0.04 / faster) * wheel
        place = np.asarray(state.place) + faster * 0.04 * np.array([np.cos(turned), np.sin(turned)])
        np.testing.assert_allclose(after.place, place, rtol=0, atol=2e-6)
        np.testing.assert_allclose(obs[4], faster, rtol=1e-6)
        off = distance_to(place, np.asarray(state.track[0], np.float64)) > 0.04
        fails = off or np.cross([*state.place, 0], [*place, 0])[2] <= 0
        assert bool(terminated) == fails and float(reward) == pytest.approx(-3 if fails else faster * 0.04, abs=1e-6)


def test_the_observation_is_the_longest_ray_and_its_neighbours() -> None:
    for index in range(4):
        state = state_of(index, heading=0.4 * index)
        obs = np.asarray(STEP(state, jnp.zeros(2))[0])
        after = STEP(state, jnp.zeros(2))[1]
        angles = np.radians(np.linspace(-30, 30, 19))
        lengths = np.asarray(ray_lengths(after.place, jnp.float32(float(after.heading) + angles), after.track[1:]))
        best = int(np.argmax(lengths))
        expected = [angles[best], lengths[min(best + 1, 18)], lengths[best], lengths[max(best - 1, 0)]]
        np.testing.assert_allclose(obs[:4], expected, rtol=0, atol=2e-4)


def test_a_lap_pays_its_length_and_terminates() -> None:
    """A driver who steers to a point ahead on the middle line, at the speed of the start."""

    def drive(state: Any, _: None) -> Any:
        ahead = state.track[0][(state.point + 3) % NUM_POINTS] - state.place
        error = jnp.arctan2(ahead[1], ahead[0]) - state.heading
        error = error - 2 * jnp.pi * jnp.round(error / (2 * jnp.pi))
        _, state, reward, terminated, info = ENV.step_env(KEYS[0], state, jnp.stack([0.0, error / 0.34]), PARAMS)
        return state, (reward, terminated, info["metrics"]["laps"])

    rewards, terminated, laps = jax.jit(jax.vmap(lambda state: jax.lax.scan(drive, state, None, 1200)[1]))(STATES)
    for index in range(16):
        end = int(np.argmax(terminated[index]))
        middle = np.asarray(STATES.track[index, 0], np.float64)
        length = np.linalg.norm(np.roll(middle, -1, axis=0) - middle, axis=1).sum()
        assert terminated[index, end] and laps[index, end]
        assert float(rewards[index, : end + 1].sum()) == pytest.approx(length, rel=0.05)  # corners are cut


@pytest.mark.parametrize("turns", ["back", "in circles"])
def test_turning_pays_less_than_leaving_costs(turns: str) -> None:
    """A slow car that turns to drive back along the middle line, or on a circle: it ends as soon as it goes back."""

    def drive(state: Any, _: None) -> Any:
        behind = state.track[0][(state.point - 3) % NUM_POINTS] - state.place
        error = jnp.arctan2(behind[1], behind[0]) - state.heading
        error = error - 2 * jnp.pi * jnp.round(error / (2 * jnp.pi))
        wheel = error if turns == "back" else jnp.ones(())
        _, state, reward, terminated, info = ENV.step_env(KEYS[0], state, jnp.stack([0.0 * wheel, wheel]), PARAMS)
        return state, (reward, terminated, info["metrics"]["laps"])

    slow = STATES.replace(speed=0.3 * STATES.speed)
    rewards, terminated, laps = jax.jit(jax.vmap(lambda state: jax.lax.scan(drive, state, None, 20)[1]))(slow)
    for index in range(16):
        end = int(np.argmax(terminated[index]))
        assert 2 <= end < 10 and float(rewards[index, end]) == -3 and not laps[index, end]
        assert float(rewards[index, : end + 1].sum()) < -2.9


def test_tracks_lead_around_the_origin() -> None:
    """No step along a track counts as one back, also of rougher ones."""
    keys = jax.random.split(jax.random.key(1), 200)
    for roughness in (PARAMS.roughness, 0.5):
        params = PARAMS.replace(roughness=roughness)
        tracks = jax.jit(jax.vmap(lambda key, params=params: ENV.reset_env(key, params)[1].track[0]))(keys)
        points = np.asarray(tracks, np.float64)
        after = np.roll(points, -1, axis=1)
        assert np.all(points[..., 0] * after[..., 1] > points[..., 1] * after[..., 0])


def test_leaving_and_standing_still_terminate() -> None:
    _, _, reward, terminated, info = STEP(state_of(0, speed=2.0, heading=0.0), jnp.zeros(2))
    assert bool(terminated) and float(reward) == -3 and not bool(info["metrics"]["laps"])
    _, _, reward, terminated, _ = STEP(state_of(0, speed=0.052), jnp.array([-1.0, 0.0]))
    assert bool(terminated) and float(reward) == -3
    _, _, _, terminated, _ = STEP(state_of(0, speed=0.06), jnp.array([-1.0, 0.0]))
    assert not bool(terminated)


def test_short_steps_are_back_by_their_heading() -> None:
    """Steps of 1e-8, far below the rounding of places; headings are at least 0.01 rad from the one to the origin."""
    rng = np.random.default_rng(2)
    indices, offsets = rng.integers(16, size=400), rng.uniform(0.01, np.pi - 0.01, 400) * rng.choice([-1, 1], 400)
    states = around_tracks(indices, rng.integers(NUM_POINTS, size=400))
    places = np.asarray(states.place, np.float64)
    headings = np.arctan2(places[:, 1], places[:, 0]) + offsets  # from the direction away from the origin
    states = states.replace(heading=jnp.asarray(headings, jnp.float32))
    params = PARAMS.replace(dt=5e-8)
    step = jax.jit(jax.vmap(lambda state: ENV.step_env(KEYS[0], state, jnp.zeros(2), params)))
    np.testing.assert_array_equal(step(states)[3], offsets < 0)


def test_a_standing_car_fails_whatever_the_least_speed() -> None:
    params = PARAMS.replace(least_speed=-1.0)
    stop = jnp.array([-1.0, 0.0])
    step = jax.jit(jax.vmap(lambda state: ENV.step_env(KEYS[0], state, stop, params)))
    states = around_tracks(np.arange(400) % 16, np.arange(400) % NUM_POINTS)
    _, after, reward, terminated, _ = step(states.replace(speed=jnp.zeros(400)))
    assert np.all(after.speed == 0) and np.all(terminated) and np.all(reward == -3)


def test_a_start_below_the_least_speed_is_refused() -> None:
    ENV.check_params(PARAMS.replace(start_speed=0.05))
    with pytest.raises(ValueError, match=r"^env\.least_speed must be at most env\.start_speed, 0\.04, got 0\.05$"):
        ENV.check_params(PARAMS.replace(start_speed=np.array([0.05, 0.04])))
    with pytest.raises(ValueError, match=r"^env\.least_speed must be at most env\.start_speed, 0\.2, got nan$"):
        ENV.check_params(PARAMS.replace(least_speed=np.nan))


def test_a_rough_track_without_knots_is_refused() -> None:
    with pytest.raises(ValueError, match=r"env\.roughness must be below 1, got 1\.0"):
        ENV.check_params(PARAMS.replace(roughness=1.0))
