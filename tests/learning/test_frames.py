"""Observations stored once, against a recorded stream of observations in NumPy, and the sizes of their rings."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning.frames import FrameRing
from jaxrl.learning.replay import Ring, Rows, init_buffer, last_slots, write
from jaxrl.learning.rollout import Transition

Array = np.ndarray
NUM_ENVS, PREFILL, AGENTS = 3, 8, 2


class Stream:
    """Environments in NumPy whose observations are the last frames of the episode, the first one repeated.

    Attributes:
      obs, next_obs: Observations before each step, and after it before any reset, lists of `[N, A, k]`.
      terminated, truncated: Ends of episodes, lists of `[N]`.
    """

    def __init__(self, num_frames: int, limit: int, seed: int = 0):
        self.rng, self.num_frames, self.limit = np.random.default_rng(seed), num_frames, limit
        self.count, self.time = 0, np.zeros(NUM_ENVS, int)
        self.episodes = [[self.frame()] for _ in range(NUM_ENVS)]
        self.obs, self.next_obs, self.terminated, self.truncated = [], [], [], []

    def frame(self) -> int:
        """A number that no other frame has."""
        self.count += 1
        return self.count

    def shown(self) -> Array:
        """Observations now, `[N, A, k]`, of which the second agent sees the negative."""
        padded = [[each[0]] * self.num_frames + each for each in self.episodes]
        stacks = np.array([each[-self.num_frames :] for each in padded], np.int32)
        return np.stack([stacks, -stacks], axis=1)

    def step(self) -> None:
        """One step of every environment."""
        self.obs.append(self.shown())
        for episode in self.episodes:
            episode.append(self.frame())
        self.time += 1
        self.next_obs.append(self.shown())
        terminated = self.rng.random(NUM_ENVS) < 0.15
        truncated = (self.time >= self.limit) & ~terminated
        self.terminated.append(terminated)
        self.truncated.append(truncated)
        for env in np.flatnonzero(terminated | truncated):
            self.episodes[env], self.time[env] = [self.frame()], 0

    def transitions(self, num_steps: int) -> Transition:
        """The last steps with their newest frames, leaves `[T, N, ...]`."""
        obs, next_obs = (np.stack(each[-num_steps:])[..., -1] for each in (self.obs, self.next_obs))
        ends = (np.stack(each[-num_steps:]) for each in (self.terminated, self.truncated))
        terminated, truncated = map(jnp.asarray, ends)
        of_agents = jnp.repeat(terminated[..., None], AGENTS, axis=-1)
        none: Any = None
        return Transition(
            jnp.asarray(obs), jnp.asarray(next_obs), none, terminated, truncated, of_agents, none, none, none
        )

    def present(self) -> jax.Array:
        """Observations after the last step and any reset."""
        shown = self.shown()
        return jnp.asarray(shown[..., 0] if self.num_frames == 1 else shown)


@dataclass(frozen=True)
class Case:
    """Sizes of the rings, and the time limit of the environments."""

    num_frames: int
    num_steps: int
    capacity: int
    limit: int
    apart: int

    @property
    def ring(self) -> FrameRing:
        return FrameRing.of(self.num_frames, 1, self.num_steps, self.capacity, self.apart, ((AGENTS,),))


CASES = {
    "single frames": Case(1, 4, 20, limit=6, apart=6),
    "stacks": Case(3, 4, 20, limit=6, apart=6),
    "stacks longer than an episode": Case(7, 2, 16, limit=5, apart=5),
    "limits within an iteration": Case(3, 4, 12, limit=2, apart=2),
    "blocks of two iterations": Case(2, 2, 24, limit=11, apart=11),
    "any step may be a limit": Case(3, 4, 12, limit=1, apart=1),
    "limits do not bootstrap": Case(3, 4, 12, limit=3, apart=0),
}


@functools.cache
def programs(ring: FrameRing, n: int) -> tuple[Any, Any]:
    """Functions that write an iteration, and read windows of up to n steps."""

    def read(frames: Any, flags: Any, rows: Any, newest: Any, end: Any) -> Any:
        last = None if n == 1 else last_slots(flags, rows, newest, n)
        return ring.read(frames, rows, last, flags, newest, end)

    return jax.jit(ring.write), jax.jit(read)


def filled(case: Case, n: int, laps: int = 4) -> Any:
    """After each iteration: the stream, all windows read, their times and environments, and the lost observations."""
    stream, ring = Stream(case.num_frames, case.limit), case.ring
    write_frames, read = programs(ring, n)
    frames, lost = ring.init(stream.present()), 0
    for _ in range(PREFILL):
        stream.step()
    steps = stream.transitions(PREFILL)
    frames = jax.jit(ring.prefilled)(frames, steps, stream.present())
    flags = steps._replace(obs=None, next_obs=None)
    flags = write(init_buffer(flags, case.capacity), flags, jnp.int32(0))
    for iteration in range(laps * ring.size // case.num_steps):
        for _ in range(case.num_steps):
            stream.step()
        steps = stream.transitions(case.num_steps)
        before = Ring.at(jnp.int32(iteration), PREFILL, case.num_steps, case.capacity)
        start = Ring.at(jnp.int32(iteration), PREFILL, case.num_steps, ring.size).end
        flags = write(flags, steps._replace(obs=None, next_obs=None), before.end)
        frames, overwritten = write_frames(frames, steps, stream.present(), start)
        lost += int(overwritten)
        total, newest = len(stream.obs), (before.after(case.num_steps, case.capacity).end - 1) % case.capacity
        times = np.repeat(np.arange(max(total - case.capacity, 0), total), NUM_ENVS)
        times = np.resize(times, case.capacity * NUM_ENVS)  # of one size, so that one program serves all
        envs = np.resize(np.arange(NUM_ENVS), len(times))
        rows = Rows(jnp.asarray(times % case.capacity), jnp.asarray(envs), jnp.ones(len(times)))
        windows = read(frames, flags, rows, newest, (start + case.num_steps - 1) % ring.size)
        yield stream, jax.tree.map(np.asarray, windows), times, envs, lost


def last_of(stream: Stream, time: int, env: int, n: int) -> int:
    """The last step of a window of up to n steps."""
    for now in range(time, min(time + n, len(stream.obs))):
        if stream.terminated[now][env] or stream.truncated[now][env]:
            return now
    return min(time + n, len(stream.obs)) - 1


@pytest.mark.fast_rows("-3")
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_windows_have_the_observations_of_the_stream(name: str, n: int) -> None:
    case, seen = CASES[name], {"truncated": 0, "padded": 0, "terminated": 0}
    for stream, (obs, next_obs, known), times, envs, lost in filled(case, n):
        assert lost == 0 and known.all()
        obs, next_obs = (each.reshape(len(times), AGENTS, case.num_frames) for each in (obs, next_obs))
        for b, (time, env) in enumerate(zip(times, envs, strict=True)):
            np.testing.assert_array_equal(obs[b], stream.obs[time][env])
            seen["padded"] += case.num_frames > 1 and obs[b, 0, 0] == obs[b, 0, 1]
            last = last_of(stream, time, env, n)
            terminated, truncated = stream.terminated[last][env], stream.truncated[last][env]
            seen["terminated"] += int(terminated)
            if not terminated and not (truncated and case.apart == 0):  # otherwise its value does not count
                seen["truncated"] += int(truncated)
                np.testing.assert_array_equal(next_obs[b], stream.next_obs[last][env])
    assert seen["terminated"] and (seen["truncated"] or case.apart == 0) and (seen["padded"] or case.num_frames == 1)


def test_an_observation_that_is_lost_is_never_replaced_by_another() -> None:
    """Time limits closer than stated: the last of each block is known."""
    case, seen = Case(3, 2, 24, limit=3, apart=12), 0
    assert case.ring.block > case.limit and PREFILL % case.ring.block == 0
    for stream, (_, next_obs, known), times, envs, lost in filled(case, 1):
        for b, (time, env) in enumerate(zip(times, envs, strict=True)):
            if not known[b]:
                assert stream.truncated[time][env]
            elif not stream.terminated[time][env]:
                np.testing.assert_array_equal(next_obs[b], stream.next_obs[time][env])
        seen += int((~known).sum())
        # All but one limit of each block, of those since the prefill.
        starts = np.arange(0, len(stream.obs), case.ring.block)
        ends = np.add.reduceat(np.array(stream.truncated), starts, axis=0)[PREFILL // case.ring.block :]
        assert lost == np.maximum(ends - 1, 0).sum()
    assert seen > 0 and lost > 0


@pytest.mark.parametrize("num_frames", [1, 4])
@pytest.mark.parametrize("num_steps", [1, 4, 32])
@pytest.mark.parametrize("apart", [0, 1, 3, 27, 500, 27_000])
def test_rings_hold_the_required_frames_and_few_more(num_frames: int, num_steps: int, apart: int) -> None:
    for laps in (1, 10, 1_000, 4_000):
        capacity = laps * num_steps
        ring = FrameRing.of(num_frames, 0, num_steps, capacity, apart)
        assert ring.size % num_steps == 0 and ring.size >= capacity + num_frames
        if apart == 0:
            assert ring.block == 0 and ring.num_stored - capacity < num_frames + num_steps
            continue
        assert ring.block <= apart and ring.size % ring.block == 0 and ring.size >= capacity + ring.block - 1
        assert ring.block % num_steps == 0 or num_steps % ring.block == 0
        # Blocks of sqrt(capacity) steps, rounded to iterations, cost as many slots and as many frames of their own; all
        # shorter ones a frame each.
        least = min(apart, np.sqrt(capacity))
        most = 2 * np.sqrt(capacity) + 3 * num_steps + num_frames + 2 * ring.size / max(least, 1)
        assert ring.num_stored - capacity <= most
