"""Chunks: of about as many seconds as wanted, and longer where their ends cost much."""

import pytest

from jaxrl.pace import Pace


def chunks(
    ends: float, each: float, total: int, wanted: float = 1.0, first: float = 0.0, num_calls: int = 1
) -> list[tuple[int, float]]:
    """Iterations and seconds of every chunk of a program whose times are these."""
    pace, done = Pace(wanted, num_calls), []
    left = total
    while left:
        count = pace.count(left)
        seconds = ends + each * count + (0 if done else first)
        pace.took(count, seconds)
        done.append((count, seconds))
        left -= count
    return done


def test_the_first_chunk_is_one_iteration_and_the_others_take_a_second():
    done = chunks(ends=0.01, each=0.1, total=1000, first=0.5)
    assert done[0][0] == 1
    assert all(0.8 <= seconds <= 1.2 for _, seconds in done[4:-1])
    assert max(seconds for _, seconds in done) < 2.2


@pytest.mark.parametrize("first", [0.0, 2.0])
def test_ends_that_cost_much_make_chunks_longer(first: float):
    done = chunks(ends=0.1, each=0.003, total=20_000, first=first)
    spent, useful = sum(seconds for _, seconds in done), 20_000 * 0.003
    assert spent < 1.1 * useful
    assert max(seconds for _, seconds in done[1:]) < 5


@pytest.mark.parametrize("noise", [0.9, 1.0, 1.1])
def test_calls_of_hundreds_of_blocks_are_not_lost_in_the_noise_of_two_timings(noise: float):
    """4,096 runs of PPO in 256 blocks of each of two threads: an iteration takes 3 s, of which calls take 0.3 s."""
    pace, counts = Pace(0.25, 256), []
    for _ in range(6):
        counts.append(pace.count(1000))
        pace.took(counts[-1], (0.3 + 2.7 * counts[-1]) * (noise if len(counts) == 3 else 1.0))
    assert counts[0] == 1
    assert all(count in (3, 4) for count in counts[3:])


def test_a_few_blocks_make_no_chunk_longer():
    done = chunks(ends=0.004, each=0.05, total=500, wanted=0.25, num_calls=4)
    assert max(seconds for _, seconds in done[4:]) < 0.3


def test_no_chunk_is_longer_than_ten_seconds_unless_an_iteration_is():
    assert max(seconds for _, seconds in chunks(ends=3.0, each=0.01, total=5000)) < 11
    slow = chunks(ends=0.0, each=7.0, total=20)
    assert [count for count, _ in slow] == [1] * 20


def test_no_seconds_are_one_iteration_each():
    assert [count for count, _ in chunks(ends=0.1, each=0.01, total=7, wanted=0.0)] == [1] * 7


def test_a_slower_machine_is_followed():
    pace = Pace(1.0)
    for _ in range(6):
        count = pace.count(10_000)
        pace.took(count, 0.1 * count)
    for _ in range(2):
        count = pace.count(10_000)
        pace.took(count, 0.5 * count)
    assert pace.count(10_000) == 2


def test_what_is_left_bounds_a_chunk():
    pace = Pace(1.0)
    pace.took(pace.count(3), 0.001)
    assert pace.count(2) == 2
