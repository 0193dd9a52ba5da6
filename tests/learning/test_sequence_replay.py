"""Sequences in the replay buffer, compared with a list of all steps in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.learning.priorities import Priorities, update_priorities
from jaxrl.learning.replay import Ring, init_buffer, window, write
from jaxrl.learning.rollout import Transition
from jaxrl.learning.sequence_replay import SequenceReplay, start_stride

NUM_ENVS, NUM_STEPS, ITERATIONS = 3, 4, 11
# Length, burn-in, slots of the buffer, and slots of the prefill: with one lap or several, and a full prefill.
CASES = {
    "short": (2, 0, 12, 4),
    "one step": (1, 0, 8, 4),
    "burn-in": (5, 2, 16, 8),
    "as long as the buffer": (8, 3, 8, 8),
    "no wrap": (6, 0, 64, 12),
}


def steps_at(ends: np.ndarray) -> Transition:
    """Steps whose numbers show their time and environment, in several types, for ends drawn at all times."""
    number = jnp.asarray(np.arange(len(ends))[:, None] * 10 + np.arange(NUM_ENVS), jnp.int32)
    terminated, truncated = (jnp.asarray(ends == kind) for kind in (1, 2))
    return Transition(
        obs={"number": number, "pixel": (number % 251).astype(jnp.uint8)},
        next_obs={"number": number + 10, "pixel": ((number + 10) % 251).astype(jnp.uint8)},
        reward=number.astype(jnp.float32),
        terminated=terminated,
        truncated=truncated,
        agent_terminated=terminated,
        active=jnp.ones(ends.shape, bool),
        mask=None,
        raw_action=-number,
        memory={"hidden": number[..., None] + jnp.arange(2.0), "count": number},
    )


class Simulated:
    """A buffer after some iterations, and what it should hold.

    Attributes:
      total: Number of steps so far of each environment.
      priority: Priority of each start, by time and environment.
    """

    def __init__(self, length: int, burn_in: int, capacity: int, prefill: int):
        stride = start_stride(NUM_STEPS, length - burn_in)
        self.replay = SequenceReplay(length, burn_in, stride, 64, NUM_ENVS, capacity, 0)
        self.ends = np.random.default_rng(0).choice(3, (200, NUM_ENVS), p=[0.7, 0.15, 0.15])
        self.all_steps = jax.tree.map(np.asarray, steps_at(self.ends))
        steps = self._steps(0, prefill)
        self.memories = self.replay.written(None, self.replay.of_rollout(steps, None), jnp.int32(0))
        self.buffer = write(init_buffer(self._alone(steps), capacity), self._alone(steps), jnp.int32(0))
        self.priorities = self.replay.first_priorities(prefill)
        self.prefill, self.total, self.iteration = prefill, prefill, 0
        self.priority = dict.fromkeys(self.starts(), 1.0)

    def _steps(self, first: int, count: int) -> Transition:
        return jax.tree.map(lambda leaf: leaf[first : first + count], self.all_steps)

    @staticmethod
    def _alone(steps: Transition) -> Transition:
        return steps._replace(memory=None)

    @property
    def ring(self) -> Ring:
        return Ring.at(jnp.int32(self.iteration), self.prefill, NUM_STEPS, self.replay.capacity)

    def starts(self) -> list[tuple[int, int]]:
        """Times and environments from which a sequence is complete."""
        oldest = max(0, self.total - self.replay.capacity)
        times = range(oldest, self.total - self.replay.length + 1)
        return [(t, env) for t in times if t % self.replay.stride == 0 for env in range(NUM_ENVS)]

    def collect(self) -> None:
        """One more iteration."""
        ring, steps = self.ring, self._steps(self.total, NUM_STEPS)
        self.memories = self.replay.written(self.memories, self.replay.of_rollout(steps, self.memories), ring.end)
        self.buffer = write(self.buffer, self._alone(steps), ring.end)
        self.priorities = self.replay.opened(self.priorities, ring, NUM_STEPS)
        self.iteration, self.total = self.iteration + 1, self.total + NUM_STEPS
        largest = float(self.priorities.largest)
        self.priority = {start: self.priority.get(start, largest) for start in self.starts()}

    def place(self, time: int, env: int) -> int:
        """Place of a start among the priorities."""
        return time % self.replay.capacity // self.replay.stride * NUM_ENVS + env

    def update(self, seed: int) -> None:
        """New priorities of some starts."""
        rng, starts = np.random.default_rng(seed), self.starts()
        chosen = [starts[i] for i in rng.choice(len(starts), min(4, len(starts)), replace=False)]
        values = rng.uniform(0.1, 3.0, len(chosen)).astype(np.float32)
        places = jnp.array([self.place(*start) for start in chosen])
        self.priorities = update_priorities(self.priorities, places, jnp.asarray(values))
        self.priority |= dict(zip(chosen, values.tolist(), strict=True))

    def check(self, drawn: Any) -> list[tuple[int, int]]:
        """Starts that were drawn, after a comparison of their steps and memories."""
        steps = jax.tree.map(np.asarray, self.replay.steps(self.buffer, drawn.rows))
        first = np.asarray(steps.obs["number"][0])
        starts = [(int(number) // 10, int(number) % 10) for number in first]
        assert set(starts) <= set(self.starts())
        stored, drawn = jax.tree.map(np.asarray, (self.memories.policy, drawn))
        for row, (time, env) in enumerate(starts):
            assert (int(drawn.rows.slot[row]), int(drawn.rows.env[row])) == (time % self.replay.capacity, env)
            expected = self._steps(time, self.replay.length)
            for got, whole in zip(jax.tree.leaves(steps), jax.tree.leaves(self._alone(expected)), strict=True):
                assert got.dtype == whole.dtype
                np.testing.assert_array_equal(got[:, row], whole[:, env])
            for got, whole in zip(jax.tree.leaves(stored), jax.tree.leaves(expected.memory), strict=True):
                assert got.dtype == whole.dtype
                np.testing.assert_array_equal(got[drawn.place[row], env], whole[0, env])
        return starts


@pytest.mark.fast_rows("short", "burn-in")
@pytest.mark.parametrize("case", CASES)
def test_sequences_are_steps_in_order_up_to_the_newest(case: str) -> None:
    simulated = Simulated(*CASES[case])
    draw = jax.jit(lambda key, ring: simulated.replay.draw(key, ring, None, None))
    for iteration in range(ITERATIONS):
        simulated.check(draw(jax.random.key(iteration), simulated.ring))
        simulated.collect()


@pytest.mark.parametrize("case", CASES)
def test_every_start_is_drawn_with_equal_probability(case: str) -> None:
    simulated = Simulated(*CASES[case])
    for _ in range(7):
        simulated.collect()
    keys = jax.random.split(jax.random.key(1), 100)
    drawn = jax.vmap(lambda key: simulated.replay.draw(key, simulated.ring, None, None).place)(keys)
    envs = jax.vmap(lambda key: simulated.replay.draw(key, simulated.ring, None, None).rows.env)(keys)
    expected = [simulated.place(*start) for start in simulated.starts()]
    places, counts = np.unique(np.asarray(drawn) * NUM_ENVS + np.asarray(envs), return_counts=True)
    assert sorted(expected) == places.tolist()
    if len(counts) > 1:
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.fast_rows("short", "as long as the buffer")
@pytest.mark.parametrize("case", CASES)
def test_priorities_are_those_of_complete_sequences(case: str) -> None:
    simulated = Simulated(*CASES[case])
    for iteration in range(ITERATIONS):
        simulated.update(iteration)
        expected = np.zeros(simulated.priorities.leaves.size)
        for start, priority in simulated.priority.items():
            expected[simulated.place(*start)] = priority
        np.testing.assert_array_equal(np.ravel(simulated.priorities.leaves), expected.astype(np.float32))
        sums = np.sum(expected.reshape(simulated.priorities.leaves.shape), axis=1)
        np.testing.assert_allclose(simulated.priorities.sums, sums, rtol=1e-6)  # of a few float32
        simulated.check(draw_by_priority(simulated, iteration))
        simulated.collect()


def draw_by_priority(simulated: Simulated, seed: int) -> Any:
    return simulated.replay.draw(jax.random.key(seed), simulated.ring, simulated.priorities, jnp.float32(0.4))


def test_starts_are_drawn_in_proportion_to_their_priorities() -> None:
    simulated = Simulated(*CASES["burn-in"])
    for iteration in range(5):
        simulated.collect()
        simulated.update(iteration)
    keys = jax.random.split(jax.random.key(2), 200)

    def draw(key: jax.Array, priorities: Priorities) -> Any:
        return simulated.replay.draw(key, simulated.ring, priorities, jnp.float32(0.4))

    drawn = jax.vmap(draw, in_axes=(0, None))(keys, simulated.priorities)
    shares = np.array([simulated.priority[start] for start in simulated.starts()])
    shares /= shares.sum()
    places = [simulated.place(*start) for start in simulated.starts()]
    counts = np.bincount(np.ravel(drawn.index), minlength=simulated.priorities.leaves.size)[places]
    # Strata make counts more regular than independent draws, for which this is a bound of 5 standard deviations.
    assert np.all(np.abs(counts - counts.sum() * shares) < 5 * np.sqrt(counts.sum() * shares))
    weight = (shares * len(places)) ** -0.4
    expected = weight[[places.index(int(index)) for index in drawn.index[0]]]
    np.testing.assert_allclose(drawn.rows.weight[0], expected / expected.max(), rtol=1e-5)  # of float32 sums


@pytest.mark.parametrize("n_step", [1, 3])
def test_rows_end_with_their_episode_or_their_sequence(n_step: int) -> None:
    simulated = Simulated(*CASES["burn-in"])
    for _ in range(6):
        simulated.collect()
    replay = simulated.replay
    drawn = replay.draw(jax.random.key(3), simulated.ring, None, None)
    steps, rows = replay.steps(simulated.buffer, drawn.rows), replay.learned(drawn.rows)
    batch = window(steps, rows, jnp.int32(replay.length - 1), n_step)
    starts, row = simulated.check(drawn), 0
    ended = 0
    for step in range(replay.burn_in, replay.length):
        for time, env in starts:
            first = last = time + step
            while last < min(first + n_step, time + replay.length) - 1 and simulated.ends[last, env] == 0:
                last += 1
            assert int(batch.raw_action[row]) == -(first * 10 + env)
            assert int(batch.next_obs["number"][row]) == (last + 1) * 10 + env
            assert np.flatnonzero(batch.counts[row]).tolist() == list(range(last - first + 1))
            assert bool(batch.terminated[row]) == (simulated.ends[last, env] == 1)
            assert bool(batch.truncated[row]) == (simulated.ends[last, env] == 2)
            ended += simulated.ends[last, env] > 0
            row += 1
    assert row == len(batch.raw_action) and 0 < ended < row


def test_a_batch_of_runs_writes_slices_and_draws_its_own_starts() -> None:
    simulated = Simulated(*CASES["short"])

    def run(key: jax.Array, leaves: jax.Array, ring: Ring) -> Any:
        priorities = simulated.replay.opened(simulated.priorities._replace(leaves=leaves), ring, NUM_STEPS)
        return simulated.replay.draw(key, ring, priorities, jnp.float32(1)).index

    leaves = jnp.stack([simulated.priorities.leaves] * 2)
    keys = jax.random.split(jax.random.key(4))
    together = jax.jit(jax.vmap(run, in_axes=(0, 0, None)))(keys, leaves, simulated.ring)
    for index, key in zip(together, keys, strict=True):
        np.testing.assert_array_equal(index, run(key, leaves[0], simulated.ring))
    assert "scatter" not in str(jax.make_jaxpr(jax.vmap(run, in_axes=(0, 0, None)))(keys, leaves, simulated.ring))


@pytest.mark.parametrize(
    ("num_steps", "learned", "stride"),
    [(4, 16, 4), (4, 4, 2), (4, 7, 2), (1, 16, 1), (6, 9, 3), (5, 8, 1), (32, 16, 8)],
)
def test_starts_are_at_most_half_a_sequence_apart(num_steps: int, learned: int, stride: int) -> None:
    assert start_stride(num_steps, learned) == stride
