"""Lists of candidate neighbours: compared with a NumPy search, between the two searches, and when too short."""

import crowd_scenes
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.crowd import pairs
from envs.crowd.simulation import Physics, simulate
from envs.crowd.state import Obstacles

_candidates = jax.jit(pairs.candidates, static_argnums=(3, 4))
_simulate = jax.jit(simulate, static_argnums=0)


def _sets(actual: pairs.Candidates) -> list[set[int]]:
    index, valid = np.asarray(actual.index), np.asarray(actual.valid)
    lists = [row[ok].tolist() for row, ok in zip(index, valid, strict=True)]
    assert all(len(row) == len(set(row)) for row in lists)
    return [set(row) for row in lists]


def _brute(position, walking, reach) -> list[set[int]]:
    position = np.asarray(position, np.float64)
    number = len(position)
    return [
        {
            j
            for j in range(number)
            if j != i and walking[i] and walking[j] and np.hypot(*(position[i] - position[j])) < reach
        }
        for i in range(number)
    ]


@pytest.mark.parametrize("search", ["all-pairs", "cells"])
@pytest.mark.parametrize("reach", [0.4, 1.7, 30.0])
def test_lists_of_neighbours_equal_a_brute_force_search(search, reach):
    generator = np.random.default_rng(0)
    position = generator.uniform(-5, 5, (120, 2)).astype(np.float32)
    position[:30] *= 100  # a few far away, on all sides
    walking = generator.uniform(size=120) < 0.9
    actual = _candidates(jnp.asarray(position), jnp.asarray(walking), jnp.float32(reach), search, 120)
    assert _sets(actual) == _brute(position, walking, reach)
    assert int(actual.overflow) == 0


def test_cells_work_from_below_zero_and_on_their_borders():
    side = np.arange(-3, 4) * 0.5
    position = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)
    actual = _candidates(jnp.asarray(position), jnp.ones(49, bool), jnp.float32(0.75), "cells", 8)
    assert _sets(actual) == _brute(position, np.ones(49, bool), 0.75)


@pytest.mark.slow
def test_an_overflow_is_counted():
    """Ten agents at one place have nine neighbours each: with room for six, at least three of each are missing."""
    position = jnp.concatenate([jnp.zeros((10, 2)), jnp.full((10, 2), 7.0)])
    enough = _candidates(position, jnp.ones(20, bool), jnp.float32(0.5), "cells", 12)
    assert int(enough.overflow) == 0
    assert int(enough.valid.sum()) == 180
    short = _candidates(position, jnp.ones(20, bool), jnp.float32(0.5), "cells", 6)
    assert int(short.overflow) > 0
    assert int(short.valid.sum()) + int(short.overflow) >= 180


def test_the_search_is_chosen_by_size():
    assert pairs.resolve("auto", pairs.CELLS_FROM - 1) == "all-pairs"
    assert pairs.resolve("auto", pairs.CELLS_FROM) == "cells"
    assert pairs.resolve("all-pairs", 10_000) == "all-pairs"
    with pytest.raises(ValueError, match="search must be one of auto, all-pairs, cells, got 'grid'"):
        pairs.resolve("grid", 3)  # pyright: ignore[reportArgumentType]


def _crowd(number: int, seed: int = 0):
    """Walkers close to each other, walking in all directions."""
    generator = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(number)))
    spots = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)[:number] * 0.5
    position = spots - spots.mean(0) + generator.uniform(-0.04, 0.04, (number, 2))
    control = np.tanh(generator.normal(size=(number, 2)))
    heading = generator.uniform(-3, 3, number)
    velocity = 1.5 * np.stack([np.cos(heading), np.sin(heading)], -1)
    return crowd_scenes.walkers(position, heading, velocity), jnp.asarray(control, jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("cartesian-velocity", marks=pytest.mark.slow), "polar-acceleration"])
def test_a_decision_with_lists_is_one_with_all_pairs(kind):
    number = 48
    now, control = _crowd(number)
    solids = crowd_scenes.obstacles([(-2.5, 0, 0.2, 3.0)], [(2.2, 0.3, 0.1)])

    def decide(search):
        physics = Physics(kind, search=search, capacity=40)
        return _simulate(
            physics,
            now,
            control,
            crowd_scenes.traits(number),
            jnp.ones(number, bool),
            crowd_scenes.nowhere(number),
            solids,
            jnp.float32(np.pi / 180),
            jnp.float32(1 / 120),
        )

    with_lists, without = decide("cells"), decide("all-pairs")
    assert int(with_lists.overflow) == 0
    assert float(without.touches.sum()) > 20  # there are contacts to solve
    # Only the order of sums differs; in dense contact a difference of 1e-6 m grows at most a hundredfold.
    np.testing.assert_allclose(with_lists.walkers.position, without.walkers.position, atol=1e-4)
    np.testing.assert_allclose(with_lists.walkers.velocity, without.walkers.velocity, atol=1e-2)


@pytest.mark.slow
def test_neighbours_beyond_the_capacity_are_counted():
    """With lists for one neighbour, a dense crowd reports missed neighbours."""
    now, control = _crowd(30)
    physics = Physics("cartesian-velocity", search="cells", capacity=1)
    result = _simulate(
        physics,
        now,
        control,
        crowd_scenes.traits(30),
        jnp.ones(30, bool),
        crowd_scenes.nowhere(30),
        Obstacles.none(),
        jnp.float32(0.02),
        jnp.float32(1 / 120),
    )
    assert int(result.overflow) > 0
