"""Mazes against a search and steps in Python."""

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit

import envs
from envs.decision.maze import Maze, MazeParams, MazeState

MOVES = {0: (0, 1), 1: (1, 0), 2: (0, -1), 3: (-1, 0)}
COUNT = 64


def mazes(env: Maze, share: float, count: int = COUNT) -> tuple[np.ndarray, MazeState]:
    keys = jax.random.split(jax.random.key(3), count)
    reset = quick_jit(jax.vmap(env.reset_env, in_axes=(0, None)))
    return jax.tree.map(np.asarray, reset(keys, MazeParams(wall_share=share)))


def searched(walls: Any, position: Any, goal: Any) -> int:
    """Length of the shortest way by breadth-first search in Python; -1 if there is none."""
    seen, queue = {tuple(position): 0}, deque([tuple(position)])
    while queue:
        at = queue.popleft()
        if at == tuple(goal):
            return seen[at]
        for column, row in MOVES.values():
            there = at[0] + column, at[1] + row
            inside = min(there) >= 0 and max(there) < len(walls)
            if inside and not walls[there] and there not in seen:
                seen[there] = seen[at] + 1
                queue.append(there)
    return -1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.55])
def test_distances_are_those_of_a_search(share: float) -> None:
    env = Maze(size=6)
    _, states = mazes(env, share)
    distances = quick_jit(jax.vmap(env.distance))(states)
    expected = [searched(states.walls[i], states.position[i], states.goal[i]) for i in range(COUNT)]
    np.testing.assert_array_equal(distances, expected)
    assert max(expected) > 4 and (share == 0.0) == (min(expected) >= 0)


def test_walls_leave_start_and_goal_free_and_have_their_share() -> None:
    _, states = mazes(Maze(size=5), 0.4, 1000)
    at, to = (tuple(place.T) for place in (states.position, states.goal))
    each = np.arange(1000)
    assert not states.walls[each, *at].any() and not states.walls[each, *to].any()
    assert np.all(np.any(states.position != states.goal, axis=1))
    share = states.walls.sum() / (1000 * 23)
    assert abs(share - 0.4) < 5 * np.sqrt(0.24 / 23_000)
    for place in (states.position, states.goal):
        counts = np.bincount(place[:, 0] * 5 + place[:, 1], minlength=25)
        assert counts.min() > 10 and counts.max() < 80  # 40 of each cell are expected


def test_steps_and_observations_are_those_of_a_python_loop() -> None:
    env = Maze(size=4, view=2)
    params = env.default_params
    _, states = mazes(env, 0.3, 8)
    step = quick_jit(env.step_env)
    draws = np.random.default_rng(0)
    arrivals = blocked = 0
    for i in range(8):
        state = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), states)
        walls, goal = states.walls[i], tuple(states.goal[i])
        place, solvable = tuple(states.position[i]), searched(states.walls[i], states.position[i], goal) >= 0
        for _ in range(20):
            action = int(draws.integers(4))
            obs, state, reward, terminated, info = step(jax.random.key(0), state, jnp.int32(action), params)
            there = place[0] + MOVES[action][0], place[1] + MOVES[action][1]
            free = min(there) >= 0 and max(there) < 4 and not walls[there]
            blocked += not free
            place = there if free else place
            assert tuple(np.asarray(state.position)) == place
            assert bool(terminated) == (place == goal) == (float(reward) == 1.0) == bool(info["metrics"]["solved"])
            assert bool(info["metrics"]["solvable"]) == solvable
            window = [
                not (0 <= column < 4 and 0 <= row < 4) or walls[column, row]
                for column in range(place[0] - 2, place[0] + 3)
                for row in range(place[1] - 2, place[1] + 3)
            ]
            np.testing.assert_array_equal(obs[:25], np.asarray(window, np.float32))
            np.testing.assert_allclose(obs[25:], (np.subtract(goal, place)) / 4, rtol=1e-6)
            if terminated:
                arrivals += 1
                break
    assert arrivals > 1 and blocked > 10


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Maze(size=1), "size must be a whole number of at least 2, got 1"),
        (lambda: Maze(view=0), "view must be a whole number of at least 1, got 0"),
        (lambda: _checked(wall_share=1.5), r"env.wall_share must lie in \[0.0, 1.0\], got 1.5"),
        (lambda: _checked(max_steps_in_episode=0), "env.max_steps_in_episode must be at least 1"),
    ],
)
def test_values_out_of_range_are_refused(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def _checked(**values: Any) -> None:
    env = envs.make("maze")
    env.check_params(env.default_params.replace(**values))
