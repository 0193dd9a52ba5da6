"""Recordings: CSV files, their scenes, staggered entries, and joint metrics compared with slow ones."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.crowd import Crowd, Recorded, Recording, Straight, roll, spawning
from envs.crowd.displacements import collision_rate, jade, jfde
from envs.crowd.params import draw_traits
from envs.errors import UserValueError
from jaxrl.policies.crowds import params_in

EPS = float(np.finfo(np.float32).eps)
# Two people from the same door, one second after each other, and one who walks towards them.
ROWS = "time,person,x,y\n10,a,0,0\n12,a,2,0\n11,b,0,0\n12.5,b,2,0\n10,c,5,1\n13,c,1,1\n"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "people.csv"
    file.write_text(text)
    return file


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.split("\n", 1)[1],  # without a header
        "Frame, Y ,person,x,time\n"
        + "".join(
            f"7,{y},{person},{x},{time}\n\n"
            for time, person, x, y in map(lambda row: row.split(","), ROWS.split()[:0:-1])
        ),
    ],
    ids=["plain", "no header", "other order"],
)
def test_a_file_becomes_a_scenario(text: str, tmp_path: Path) -> None:
    recording = Recording.read(written(tmp_path, text))
    paths = dict(zip(recording.people, zip(recording.times, recording.positions, strict=True), strict=True))
    assert sorted(recording.people) == ["a", "b", "c"] and recording.people[2] == "b"
    np.testing.assert_array_equal(paths["a"][0], [0, 2])
    np.testing.assert_array_equal(paths["b"][0], [1, 2.5])
    np.testing.assert_array_equal(paths["c"][1], [[5, 1], [1, 1]])
    walls = [((-1, 2), (6, 3))]
    scene = recording.scenario(walls=walls, pillars=[(3, -2, 0.3)])
    assert scene == Recorded(scene.table, 0.05, walls=walls, pillars=[(3, -2, 0.3)], entries=[0, 0, 1.0]) and hash(
        scene
    )
    assert scene.table[2] == (0, 0, 2, 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must have rows of time, person, x, y, got none"),
        ("time,person,x\n0,a,1\n", "must have the columns time, person, x, y, but begins with time, person, x"),
        ("time,person,x,y\n0,a,1\n", "must have the columns time, person, x, y, but line 2 has 3 cells"),
        ("time,person,x,y\n0,a,1,nan\n", "must have finite numbers as time, x and y, but line 2 has 0, 1, nan"),
        ("0,a,1,2\n0,a,1,3\n", "one place per person and time, but line 2 is a second one"),
        ("0,a,1,2\n1,a,1,2\n0,b,1,3\n", "two rows or more of each person, but 'b' has one"),
    ],
)
def test_an_invalid_file_is_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        Recording.read(written(tmp_path, text))


@pytest.mark.slow
def test_other_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.csv cannot be read: No such file or directory"):
        Recording.read(tmp_path / "none.csv")
    for entries in ([1.0], [0, -1.0], [0, np.inf], [[0, 1]]):
        with pytest.raises(ValueError, match=r"entries must be 2 times of at least 0 s, one for each row of table"):
            Recorded([[0, 0, 1, 1], [0, 0, 2, 2]], entries=entries)
    with pytest.raises(ValueError, match="walls must not overlap"):
        Recorded([[0, 0, 1, 1]], walls=[((0, 0), (2, 2)), ((1, 1), (3, 3))])
    recording = Recording.read(written(tmp_path, ROWS))
    with pytest.raises(ValueError, match="interval must lie in"):
        recording.sample(0.0, 3)
    with pytest.raises(ValueError, match="num_steps must be a whole number"):
        recording.sample(0.1, 0)
    with pytest.raises(ValueError, match=r"interval must be one number, or equal ones, got \[0.1 0.2\]"):
        recording.sample([0.1, 0.2, 0.1], 3)


def test_samples_are_linear_between_rows_and_rounded_in_time(tmp_path: Path) -> None:
    """Compared with loops over float64."""
    recording = Recording.read(written(tmp_path, ROWS))
    interval = 0.3
    position, present = recording.sample(interval, 12)
    assert position.shape == (13, 3, 2) and present.shape == (13, 3)
    assert np.array_equal(recording.sample(np.full(4, interval), 12)[0], position)
    for person, (times, path) in enumerate(zip(recording.times, recording.positions, strict=True)):
        for step in range(13):
            time = step * interval
            part = min(max((time - times[0]) / (times[1] - times[0]), 0.0), 1.0)
            np.testing.assert_allclose(position[step, person], path[0] + part * (path[1] - path[0]), rtol=1e-12)
            assert present[step, person] == (round(times[0] / interval) <= step <= round(times[1] / interval))


# --- entries ---------------------------------------------------------------------------------


def test_agents_enter_in_time_where_their_place_is_free() -> None:
    """Compared with a loop over pairs."""
    rng = np.random.default_rng(0)
    entered = 0
    for _ in range(20):
        position, radius = rng.uniform(0, 3, (12, 2)).astype(np.float32), rng.uniform(0.1, 0.3, 12).astype(np.float32)
        kind = rng.integers(0, 3, 12)  # waiting, walking, neither
        entry = rng.uniform(0, 2, 12).astype(np.float32)
        waiting, walking = jnp.asarray(kind == 0), jnp.asarray(kind == 1)
        places, radii, times = jnp.asarray(position), jnp.asarray(radius), jnp.asarray(entry)
        actual = spawning.enter(places, radii, waiting, walking, times, jnp.float32(1.0))
        for i in range(12):
            free = True
            for j in range(12):
                there = kind[j] == 1 or (kind[j] == 0 and entry[j] <= 1 and j < i)
                free &= not (there and np.hypot(*(position[i] - position[j]).astype(float)) < radius[i] + radius[j])
            assert bool(actual[i]) == (kind[i] == 0 and entry[i] <= 1 and free)
            entered += int(actual[i])
    assert 10 < entered < 60


@pytest.fixture(scope="module")
def queue():
    """Three who enter at the same place 1/2 s after each other, too fast for the third, and one from the start."""
    rows = [[0, 0, 4, 0]] * 2 + [[0, 0.1, 4, 0]] + [[0, 3, 4, 3]]
    env = Crowd(Recorded(rows, entries=[0, 0.5, 0.55, 0]), num_agents=4, dynamics="cartesian-velocity")
    return env, roll(env, Straight(env), jax.random.key(0), num_steps=80)


@pytest.mark.slow
def test_people_stand_still_before_their_entry(queue) -> None:
    _, episode = queue
    walking, interval = np.asarray(episode.walking), float(episode.interval)
    first = np.argmax(walking, axis=0)
    assert list(first[[0, 1, 3]]) == [0, round(0.5 / interval), 0]
    # At 1.33 m/s it takes 0.3 s to walk 0.4 m, so the third waits for the second.
    assert first[2] > first[1] + 2
    position = np.asarray(episode.position)
    for agent, step in enumerate(first):
        assert np.all(position[: step + 1, agent] == position[0, agent])
        assert not np.any(np.asarray(episode.reward)[:step, agent]) and not np.any(episode.power[:step, agent])
    np.testing.assert_allclose(position[0, :3], [[0, 0], [0, 0], [0, 0.1]], atol=1e-6)
    # Straight walkers at the same speed never meet: 1.33 m/s apart by half a second and more.
    assert float(episode.metrics["contacts"]) == 0 and float(episode.metrics["success"]) == 1


@pytest.mark.slow
def test_times_count_from_the_entry(queue) -> None:
    _, episode = queue
    way = np.array([4, 4, np.hypot(4, 0.1), 4]) - 0.375 - 0.2
    # Touches are noticed at the end of a substep of 1/120 s.
    assert 0 <= float(episode.metrics["time_to_goal"]) - np.mean(way) / 1.33035 < 1 / 120 + 0.01
    assert abs(float(episode.metrics["mean_speed"]) - 1.33035) < 1e-3
    ratio = float(episode.metrics["energy_plus"] / episode.metrics["optimum"])
    assert 1 - 1e-3 < ratio < 1 + 0.02


@pytest.mark.slow
def test_agents_that_have_not_entered_count_as_on_the_way() -> None:
    env = Crowd(Recorded([[0, 0, 4, 0], [0, 2, 4, 2]], entries=[0, 9.0]), num_agents=2, end_when_all_arrived=True)
    assert env.default_params.max_steps_in_episode == 200 + 108  # 9 s of 12 decisions

    @jax.jit
    def step(key):
        state = env.reset_env(key, env.default_params)[1]
        state = dataclasses.replace(state, arrived=jnp.array([True, False]))
        return env.step_env(key, state, jnp.zeros((2, 2)), env.default_params)

    _, state, _, terminated, info = step(jax.random.key(0))
    assert not bool(terminated) and not np.any(info["active"]) and list(state.waiting) == [False, True]
    metrics = info["metrics"]
    assert float(metrics["success"]) == 0.5
    # The second agent has its whole distance ahead.
    np.testing.assert_allclose(metrics["energy_plus"], metrics["optimum"] / 2, rtol=1e-6)


def test_a_policy_walks_until_the_last_has_entered() -> None:
    algo: Any = SimpleNamespace(env=Crowd(num_agents=2))
    policy: Any = SimpleNamespace(algo=algo, env_params=Crowd().default_params, setting={}, training_env_steps=None)
    assert params_in(Crowd(Recorded([[0, 0, 4, 0]], entries=[1.0]), num_agents=1), policy).max_steps_in_episode == 212
    assert params_in(Crowd("corridor", num_agents=2), policy).max_steps_in_episode == 200


@pytest.mark.slow
def test_only_the_first_are_pushed_apart_at_the_start() -> None:
    rows = [[0, 0, 4, 0], [0.1, 0, 4, 0], [0, 0, 4, 1], [0, 1.9, 4, 1]]
    scene = Recorded(rows, walls=[((-1, 2), (1, 3))], pillars=[(3, -2, 0.3)], entries=[0, 0, 1, 2])
    params = Crowd().default_params
    place = jax.jit(lambda key: scene.place(key, None, jnp.ones(4, bool), draw_traits(key, params, 4)))
    placed = place(jax.random.key(0))
    np.testing.assert_allclose(placed.obstacles.box_centre, [[0, 2.5]])
    np.testing.assert_allclose(placed.obstacles.pillar_radius, [0.3])
    position = np.asarray(placed.position)
    assert np.linalg.norm(position[0] - position[1]) >= 0.4
    np.testing.assert_array_equal(position[2], [0, 0])
    assert position[3, 1] <= 1.8 + 1e-5 and abs(position[3, 0]) < 1e-5  # out of the wall


@pytest.mark.slow
def test_entries_keep_the_laws() -> None:
    scene = Recorded([[0, 0, 3, 0], [3, 0, 0, 0.1], [0, 0, 3, 0]], entries=[0, 0.3, 0.5])
    envs.check(Crowd(scene, num_agents=3, end_when_all_arrived=True), num_steps=16)


def test_a_simulated_episode_becomes_a_recording(queue, tmp_path: Path) -> None:
    _, episode = queue
    recording = Recording.of(episode)
    again = Recording.read(recording.write(tmp_path / "new" / "x.csv"))
    assert again.people == recording.people == ("0", "3", "1", "2")
    order = [int(person) for person in again.people]
    interval = float(episode.interval)
    position, present = again.sample(interval, 80)
    walking = np.asarray(episode.walking)[:, order]
    here = walking | np.concatenate([np.zeros_like(walking[:1]), walking[:-1]])
    np.testing.assert_array_equal(present, here)
    # Positions of up to 4 m, interpolated at times with the rounding of a division.
    np.testing.assert_allclose(position, np.asarray(episode.position)[:, order], atol=1e-9)
    scene = again.scenario()
    entries = np.argmax(walking, axis=0) * interval
    np.testing.assert_allclose(scene.entries, entries, rtol=1e-6)


def test_an_episode_without_walkers_has_no_active_person(queue) -> None:
    _, episode = queue
    with pytest.raises(ValueError, match="trajectory must have an agent that walks for a decision"):
        Recording.of(dataclasses.replace(episode, walking=jnp.zeros_like(episode.walking)))


# --- joint metrics ---------------------------------------------------------------------------


def slow_errors(samples: np.ndarray, recorded: np.ndarray, present: np.ndarray) -> tuple[float, float]:
    """JADE and JFDE by loops over samples and people."""
    best_average = best_final = np.inf
    for sample in samples:
        average, final = [], []
        for person in range(recorded.shape[1]):
            gaps = [
                float(np.hypot(*(sample[t, person] - recorded[t, person])))
                for t in range(len(recorded))
                if present[t, person]
            ]
            if gaps:
                average.append(sum(gaps) / len(gaps))
                final.append(gaps[-1])
        best_average = min(best_average, sum(average) / len(average))
        best_final = min(best_final, sum(final) / len(final))
    return best_average, best_final


def test_joint_errors_equal_slow_ones() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        samples, recorded = rng.normal(0, 3, (4, 7, 6, 2)), rng.normal(0, 3, (7, 6, 2))
        present = rng.random((7, 6)) < 0.6
        present[:, 2] = False
        expected = slow_errors(
            samples.astype(np.float32).astype(float), recorded.astype(np.float32).astype(float), present
        )
        simulated, real = jnp.asarray(samples, jnp.float32), jnp.asarray(recorded, jnp.float32)
        actual = jade(simulated, real, jnp.asarray(present)), jfde(simulated, real, jnp.asarray(present))
        # Differences, squares, a root and means of at most 7 and 6 numbers.
        np.testing.assert_allclose(actual, expected, rtol=24 * EPS)
    assert np.isnan(jade(simulated, real, jnp.zeros((7, 6), bool))) and np.isnan(
        jfde(simulated, real, jnp.zeros((7, 6), bool))
    )


def test_the_best_sample_is_best_for_all_together() -> None:
    """Each of two samples is exact for one of two people, so that a joint error is not 0."""
    recorded = jnp.zeros((3, 2, 2))
    samples = jnp.stack([recorded.at[:, 0, 0].set(1.0), recorded.at[:, 1, 0].set(4.0)])
    assert float(jade(samples, recorded, jnp.ones((3, 2), bool))) == 0.5
    assert float(jfde(samples, recorded, jnp.ones((3, 2), bool))) == 0.5


@pytest.mark.slow
def test_the_collision_rate_equals_a_slow_one() -> None:
    rng = np.random.default_rng(2)
    position = rng.uniform(0, 4, (3, 5, 9, 2)).astype(np.float32)
    present = rng.random((3, 5, 9)) < 0.7
    present[0, :, 4] = False
    actual = collision_rate(jnp.asarray(position), jnp.asarray(present), 0.5)
    rates = []
    for places, here in zip(position.astype(float), present, strict=True):
        hit = 0
        for i in range(9):
            hit += any(
                here[t, i] and here[t, j] and np.hypot(*(places[t, i] - places[t, j])) < 0.5
                for t in range(5)
                for j in range(9)
                if i != j
            )
        rates.append(hit / int(here.any(0).sum()))
    np.testing.assert_allclose(actual, rates, rtol=2 * EPS)
    assert min(rates) > 0 and max(rates) < 1 and len(set(rates)) > 1
    assert np.isnan(collision_rate(jnp.zeros((2, 3, 2)), jnp.zeros((2, 3), bool), 0.5))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: jade(jnp.zeros((4, 3, 2)), jnp.zeros((4, 3, 2)), jnp.ones((4, 3), bool)), "[4, 3, 2], [4, 3, 2] and"),
        (lambda: jade(jnp.zeros((1, 4, 2, 2)), jnp.zeros((4, 3, 2)), jnp.ones((4, 3), bool)), "[1, 4, 2, 2], [4, 3"),
        (lambda: jfde(jnp.zeros((1, 4, 3, 2)), jnp.zeros((4, 3, 2)), jnp.ones((3, 3), bool)), "2] and [3, 3]"),
        (lambda: jfde(jnp.zeros((1, 4, 3, 3)), jnp.zeros((4, 3, 3)), jnp.ones((4, 3), bool)), "[4, 3, 3] and [4, 3]"),
        (lambda: collision_rate(jnp.zeros((4, 3, 2)), jnp.ones((3, 3), bool), 0.4), "[4, 3, 2] and [3, 3]"),
        (lambda: collision_rate(jnp.zeros((4, 3, 3)), jnp.ones((4, 3), bool), 0.4), "[4, 3, 3] and [4, 3]"),
    ],
)
def test_wrong_shapes_get_one_sentence(call, name: str) -> None:
    with pytest.raises(UserValueError, match="present must be .*, got .*" + re.escape(name)):
        call()
