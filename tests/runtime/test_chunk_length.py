"""Chunks: of about the requested duration, longer where their ends are expensive, and robust to noise."""

import random

import pytest

from jaxrl.runtime.drive.chunk_length import MOST_SECONDS, Pace


def chunks(
    ends: float,
    each: float,
    total: int,
    expected: float = 1.0,
    first: float = 0.0,
    num_calls: int = 1,
    evaluated_every: int | None = None,
    stalls: dict[int, float] | None = None,
) -> list[tuple[int, float]]:
    """Iterations and seconds of every chunk of a program with these times; stalls are seconds by chunk."""
    pace, done = Pace(expected, num_calls), []
    left = total
    while left:
        to_evaluation = left if evaluated_every is None else evaluated_every - (total - left) % evaluated_every
        count = pace.next(min(left, to_evaluation))
        seconds = ends + each * count + (0 if done else first) + (stalls or {}).get(len(done), 0.0)
        pace.took(count, seconds)
        done.append((count, seconds))
        left -= count
    return done


def longest(done: list[tuple[int, float]]) -> float:
    return max(seconds for _, seconds in done[1:])


def times_useful(done: list[tuple[int, float]], each: float) -> float:
    return sum(seconds for _, seconds in done) / (each * sum(count for count, _ in done))


def test_the_first_chunk_is_one_iteration_and_the_others_take_as_long_as_wanted():
    done = chunks(ends=0.01, each=0.1, total=1000, first=0.5)
    assert done[0][0] == 1
    assert all(0.8 <= seconds <= 1.2 for _, seconds in done[12:-1])
    assert longest(done) < 2.2


@pytest.mark.parametrize("first", [0.0, 2.0])
@pytest.mark.parametrize("evaluated_every", [None, 17_000])
def test_ends_that_cost_much_make_chunks_longer(first: float, evaluated_every: int | None):
    done = chunks(ends=0.1, each=0.003, total=200_000, first=first, evaluated_every=evaluated_every)
    assert times_useful(done, 0.003) < 1.08  # chunks of 2 s, and some shorter ones to measure
    assert longest(done) < 7


def test_ends_longer_than_a_chunk_are_found():
    """As in bandits with many arms, whose layout changes at both ends."""
    done = chunks(ends=0.6, each=0.003, total=40_000, expected=0.25)
    assert times_useful(done, 0.003) < 1.25  # 1.09 after the search, and a tenth for the search
    assert longest(done) < MOST_SECONDS


def test_calls_of_hundreds_of_blocks_are_counted_and_not_found():
    """4,096 runs of PPO in 256 blocks of each of two threads: an iteration takes 3 s, of which calls take 0.3 s."""
    counts = [count for count, _ in chunks(ends=0.3, each=2.7, total=100, expected=0.25, num_calls=256)]
    assert counts[0] == 1
    assert set(counts[5:-1]) == {3}
    few = [count for count, _ in chunks(ends=0.3, each=2.7, total=100, expected=0.25, num_calls=1)]
    assert max(few) <= 2


@pytest.mark.parametrize(
    ("ends", "each", "num_calls", "useful"),
    [(0.018, 0.066, 128, 1.01), (0.018, 0.001, 256, 1.11), (0.6, 0.01, 6000, 1.2), (1.7, 0.012, 12_000, 1.4)],
)
@pytest.mark.parametrize("evaluated_every", [None, 1234])
def test_calls_that_take_less_than_counted_for_make_no_endless_chunk(
    ends: float, each: float, num_calls: int, useful: float, evaluated_every: int | None
):
    done = chunks(ends, each, 20_000, 0.25, first=1.5, num_calls=num_calls, evaluated_every=evaluated_every)
    assert longest(done) <= 1.02 * MOST_SECONDS
    assert times_useful(done, each) < useful


@pytest.mark.parametrize("stalled", range(1, 12))
@pytest.mark.parametrize("stall", [0.06, 0.125, 1.0])
def test_a_stall_makes_no_chunk_longer_for_ever(stalled: int, stall: float):
    done = chunks(0.001, 0.011, 10_000, expected=0.25, first=1.0, stalls={stalled: stall})
    assert all(0.2 < seconds < 0.26 for _, seconds in done[25:-1])
    assert max(count for count, _ in done) * 0.011 < 0.6


def test_noise_seldom_makes_chunks_longer():
    longer = 0
    for seed in range(100):
        generator, pace, seconds = random.Random(seed), Pace(0.25, 1), 0.0
        for _ in range(40):
            count = pace.next(10**9)
            seconds = (0.001 + 0.011 * count) * (1 + abs(generator.gauss(0, 0.1)))
            pace.took(count, seconds)
        assert seconds < 1.2
        longer += seconds > 0.5
    assert longer <= 5


def test_a_few_blocks_make_no_chunk_longer():
    done = chunks(ends=0.004, each=0.05, total=500, expected=0.25, num_calls=4)
    assert max(seconds for _, seconds in done[12:]) < 0.3


def test_no_chunk_is_longer_than_ten_seconds_unless_an_iteration_is():
    assert longest(chunks(ends=3.0, each=0.01, total=5000)) < 11
    assert longest(chunks(ends=0.0, each=0.01, total=50_000, expected=60.0)) <= MOST_SECONDS
    slow = chunks(ends=0.0, each=7.0, total=20)
    assert [count for count, _ in slow] == [1] * 20


def test_no_seconds_are_one_iteration_each():
    assert [count for count, _ in chunks(ends=0.1, each=0.01, total=7, expected=0.0)] == [1] * 7


def test_a_slower_machine_is_followed():
    pace = Pace(1.0, 1)
    for _ in range(12):
        count = pace.next(10_000)
        pace.took(count, 0.1 * count)
    for _ in range(2):
        count = pace.next(10_000)
        pace.took(count, 0.5 * count)
    assert pace.next(10_000) == 2


def test_the_remaining_work_bounds_a_chunk():
    pace = Pace(1.0, 1)
    for _ in range(3):
        pace.took(pace.next(100), 0.001)
    assert pace.next(2) == 2
