"""Replay of sequences from a list of all steps, and memories of policies and critics, in NumPy and float64."""

from typing import Any

import float64
import jax
import numpy as np
from float64 import Nodes
from recalling import Sequences
from recorded_env import Steps
from replaying import LEAST_ERROR, Batch, Replay

from jaxrl.learning.sequence_replay import start_stride

Array = np.ndarray
# Sequences of 6 steps, which begin at every other step; episodes have at most 4 steps.
MEMORY: dict[str, Any] = {"memory": "gru", "memory_size": 2, "hidden": (2,), "sequence_length": 6, "batch_size": 24}


class SequenceReplay(Replay):
    """What an off-policy algorithm with a memory knows apart from its networks.

    Attributes:
      priorities: Priorities of the starts of complete sequences, by time and environment.
      of_policy: Memories of the policy before each step since the first one, `[T]` of `[N, *A, size]`.
      of_critics: Memories of the critics before each step, `[T]` of `[C, N, *A, size]`; empty without critics.
    """

    def __init__(self, algo: Any, hparams: Any, nodes: Nodes, reset_key: jax.Array):
        super().__init__(algo, hparams, nodes, reset_key)
        config = self.config
        self.stride = start_stride(config.num_steps, config.sequence_length - config.burn_in)
        self.priorities: dict[tuple[int, int], float] = {}
        self.leaves = np.zeros(config.capacity // self.stride * config.num_envs)
        self.of_policy: list[Array] = []
        self.of_critics: list[Array] = []
        self.now = np.zeros((config.num_envs, *self.env.agents, config.memory_size))
        self.now_of_critics = np.zeros((getattr(config, "num_critics", 0), *self.now.shape))
        self.eta = float(hparams.priority_eta) if self.prioritised else None

    # Memories.

    def recalled(self, policy: Any, seen: Array) -> Array:
        memory = np.where(self.walk.ended[..., None], 0.0, self.now)
        self.of_policy.append(memory)
        self.now = float64.remembered(policy, seen, memory)
        return memory

    def seen_by_critics(self, critics: Any, new: Steps) -> None:
        if critics is None:
            return
        inputs = self._inputs(self.known(new.obs, new.critic_obs), new.raw_action)
        for seen, done in zip(inputs, new.done, strict=True):
            self.of_critics.append(self.now_of_critics)
            each = enumerate(self.now_of_critics)
            after = [float64.remembered(float64.member(critics, i), seen, memory) for i, memory in each]
            self.now_of_critics = np.where(done[..., None], 0.0, np.array(after))

    def _inputs(self, obs: Array, action: Array) -> Array:
        """What critics see of steps: observations, and actions that are numbers."""
        return obs if self.env.discrete else np.concatenate([action, obs], axis=-1)

    # Sequences.

    def starts(self) -> list[tuple[int, int]]:
        """Times and environments from which all steps of a sequence are in the buffer, in order of time."""
        total = len(self.steps.reward)
        times = range(max(0, total - self.config.capacity), total - self.config.sequence_length + 1)
        return [(t, env) for t in times if t % self.stride == 0 for env in range(self.config.num_envs)]

    def _place(self, start: tuple[int, int]) -> int:
        """Place of a start among the priorities."""
        time, env = start
        return time % self.config.capacity // self.stride * self.config.num_envs + env

    def _set(self, priorities: dict[tuple[int, int], float]) -> None:
        self.priorities = priorities
        self.leaves = np.zeros_like(self.leaves)
        for start, priority in priorities.items():
            self.leaves[self._place(start)] = priority

    def opened(self, times: range) -> None:
        del times
        self._set({start: self.priorities.get(start, self.largest) for start in self.starts()})

    def _drawn(self, key: jax.Array) -> tuple[Array, Array]:
        """Times and environments of the first steps of a batch of sequences, `[W, 2]`, and importance weights `[W]`."""
        count, starts = self.config.batch_size // self.config.sequence_length, self.starts()
        if not self.prioritised:
            index = np.asarray(jax.random.randint(key, (count,), 0, len(starts)))
            return np.array(starts)[index], np.ones(count)
        starts.sort(key=self._place)
        shares = np.array([self.priorities[start] for start in starts])
        shares /= shares.sum()
        place = (np.arange(count) + np.asarray(jax.random.uniform(key, (count,)), np.float64)) / count
        index = np.searchsorted(np.cumsum(shares), place, side="right")
        weight = (shares[index] * len(starts)) ** -self.beta
        return np.array(starts)[index], weight / weight.max()

    def _batch(self, index: Array, weight: Array) -> Batch:
        length, burn_in = self.config.sequence_length, self.config.burn_in
        first, envs = index.T
        times = (first + np.arange(burn_in, length)[:, None]).ravel()
        of_rows, newest, weights = (np.tile(leaf, length - burn_in) for leaf in (envs, first + length - 1, weight))
        batch = self._rows(times, of_rows, newest, weights, index)
        batch.policy = self._seen(self.steps.obs, np.array(self.of_policy)[first, envs], batch)
        if self.of_critics:
            stored = np.moveaxis(np.array(self.of_critics), 1, 0)[:, first, envs]
            batch.critics = [self._seen(self.steps.obs, memory, batch, self.steps.raw_action) for memory in stored]
        return batch

    def _seen(self, obs: Array, start: Array, batch: Batch, action: Array | None = None) -> Sequences:
        """Sequences of a batch from their memories; with the actions taken as a critic sees them."""
        length, burn_in = self.config.sequence_length, self.config.burn_in
        first, envs = batch.index.T
        times = first + np.arange(length)[:, None]
        inputs = self.statistics.normalised(obs[times, envs])
        if action is not None:
            facts = None if self.steps.critic_obs is None else self.steps.critic_obs[times, envs]
            inputs = self._inputs(self.known(obs[times, envs], facts), action[times, envs])
        reset = np.concatenate([np.zeros_like(self.steps.done[:1, envs]), self.steps.done[times[:-1], envs]])
        steps = batch.last - np.tile(first, length - burn_in) - burn_in
        last = steps * len(first) + np.tile(np.arange(len(first)), length - burn_in)
        return Sequences(inputs, reset, start, last, burn_in)

    def learned(self, batch: Batch, error: Array) -> None:
        """New priorities of sequences: eta times their largest error, plus 1 - eta times their mean error."""
        if not self.prioritised or self.eta is None:
            return
        agents = tuple(range(1, error.ndim))
        active = batch.active.sum(axis=agents)
        by_step = (error * batch.active).sum(axis=agents) / np.maximum(active, 1)
        by_step, active = by_step.reshape(-1, len(batch.index)), active.reshape(-1, len(batch.index))
        new: dict[tuple[int, int], float] = {}
        for (time, env), errors, chosen in zip(batch.index.tolist(), by_step.T, active.T > 0, strict=True):
            counted = errors[chosen] if chosen.any() else np.zeros(1)
            mixed = self.eta * counted.max() + (1 - self.eta) * counted.mean()
            priority = float((mixed + LEAST_ERROR) ** self.alpha)
            new[time, env] = max(priority, new.get((time, env), 0.0))
        self._set(self.priorities | new)
        self.largest = max(self.largest, *new.values())

    def assert_same(self, state: Any, atol: float) -> None:
        """Check environments, buffer, statistics, priorities and memories of a state of jaxrl.

        A memory is a mean of numbers of at most 1 along an episode: an error of the parameters is enlarged by no more
        than the few steps of an episode.
        """
        super().assert_same(state, atol)
        total = len(self.steps.reward)
        times = [t for t in range(max(0, total - self.config.capacity), total) if t % self.stride == 0]
        places = np.array(times) % self.config.capacity // self.stride

        def assert_stored(stored: Any, expected: Array) -> None:
            np.testing.assert_allclose(np.asarray(stored["hidden"])[places], expected[times], rtol=0, atol=atol)

        assert_stored(state.memories.policy, np.array(self.of_policy))
        carried = getattr(state.carry.memory, "network", state.carry.memory)[
            "hidden"
        ]  # within that of correlated noise
        now = np.where(self.walk.ended[..., None], 0.0, self.now)
        np.testing.assert_allclose(carried, now, rtol=0, atol=atol)
        if self.of_critics:
            assert_stored(state.memories.critics, np.moveaxis(np.array(self.of_critics), 1, -2))
            now = np.moveaxis(self.now_of_critics, 0, -2)
            np.testing.assert_allclose(state.memories.now["hidden"], now, rtol=0, atol=atol)

    def assert_varied(self) -> None:
        """Check that the steps have ends of every kind, and that the buffer has lost the starts of the first ones."""
        super().assert_varied()
        assert self.starts()[0][0] > 0
