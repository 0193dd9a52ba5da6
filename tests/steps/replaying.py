"""Collecting, the replay buffer, priorities and n-step windows of off-policy algorithms, in NumPy and float64."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import float64
import jax
import numpy as np
from float64 import Nodes, Statistics
from recalling import Sequences
from recorded_env import RecordedEnv, Steps, Walk, joined

Array = np.ndarray
LEAST_ERROR = 1e-6  # added to every error before it becomes a priority


@dataclass
class Batch:
    """Drawn transitions, `[B, *A, ...]`, with what their windows pay.

    Attributes:
      sums: Discounted rewards of the window under each exponential, in units of its size, `[B, *A, K]`.
      going_on: Factor of the values after the window, 0 where nothing follows, `[B, *A, K]`.
      weight: Weights of the samples, `[B, *A]`, 0 where an agent is not active.
      last: Times of the last steps of the windows, `[B]`.
      index: Indices of the transitions in the list of priorities, `[B]`; with a memory, times and environments of the
        first steps of the sequences, `[W, 2]`.
      seen, next_seen: What critics see of the observations, `[B, *A, n]`.
      policy: Sequences whose steps the rows are, as the policy sees them; None without a memory.
      critics: The same as each critic sees them.
    """

    obs: Array
    action: Array
    mask: Array | None
    active: Array
    next_obs: Array
    next_mask: Array | None
    sums: Array
    going_on: Array
    weight: Array
    last: Array
    index: Array
    seen: Array
    next_seen: Array
    policy: Sequences | None = None
    critics: list[Sequences] | None = None

    def before(self, params: Any, fixed: Any = None) -> Array | None:
        """Memories of the policy before the rows, as of `Sequences.before`; None without a memory."""
        return None if self.policy is None else self.policy.before(params, fixed)

    def after(self, params: Any) -> Array | None:
        """Memories of the policy after the windows of the rows, None without a memory."""
        return None if self.policy is None else self.policy.after(params)

    def before_critics(self, critics: Any, fixed: Any = None) -> Array | None:
        """Memories of the critics before the rows, `[C, B, *A, size]`, None without a memory."""
        if self.critics is None:
            return None
        fixed = critics if fixed is None else fixed
        pairs = enumerate(self.critics)
        return np.array([each.before(float64.member(critics, i), float64.member(fixed, i)) for i, each in pairs])

    def after_critics(self, critics: Any) -> Array | None:
        """Memories of the critics after the windows of the rows, `[C, B, *A, size]`, None without a memory."""
        if self.critics is None:
            return None
        return np.array([each.after(float64.member(critics, i)) for i, each in enumerate(self.critics)])


class Replay:
    """What an off-policy algorithm knows apart from its networks.

    Attributes:
      steps: All steps since the first one of the prefill, also those that the buffer has lost, `[T, N, ...]`.
    """

    steps: Steps

    def __init__(self, algo: Any, hparams: Any, nodes: Nodes, reset_key: jax.Array):
        self.env: RecordedEnv = algo.env
        self.config, self.nodes = algo.config, nodes
        self.walk = Walk(self.env, jax.random.split(reset_key, self.config.num_envs))
        self.statistics, self.of_facts = (
            Statistics(self.config.normalise_observation, hparams.observation_clip) for _ in range(2)
        )
        self.leaves, self.largest = np.zeros(self.config.buffer_size), 1.0
        if self.prioritised:
            self.alpha, self.beta = float(hparams.priority_alpha), float(hparams.priority_beta)

    @property
    def prioritised(self) -> bool:
        return self.config.replay == "prioritised"

    def collect(
        self,
        key: jax.Array,
        num_steps: int,
        draw: Callable[..., jax.Array],
        act: Callable[..., Array],
        policy: Any = None,
        critics: Any = None,
    ) -> None:
        """Take steps and stores them.

        Args:
          key: Random key.
          num_steps: Number of steps.
          draw: Function `(key, shape) -> noise [*shape, ...]`.
          act: Function `(noise, obs, mask, memory) -> raw action`, of one step of all environments.
          policy, critics: Parameters of the networks that see the steps; without effect on those without a memory.
        """
        config = self.config
        noise_key, env_key = jax.random.split(key)
        noise = np.asarray(draw(noise_key, (num_steps, config.num_envs, *self.env.agents)), np.float64)
        pool = config.reset_pool * num_steps // config.num_steps

        def acted(t: int, obs: Array, mask: Array | None) -> Array:
            seen = self.statistics.normalised(obs)
            return act(noise[t], seen, mask, self.recalled(policy, seen))

        new = self.walk(env_key, num_steps, pool, acted)
        self.seen_by_critics(critics, new)
        first = len(self.steps.reward) if hasattr(self, "steps") else 0
        self.steps = self.steps.and_then(new) if first else new
        self.statistics.add(new.obs, new.active)
        if new.critic_obs is not None:
            agents = tuple(range(new.critic_obs.ndim - 1, new.active.ndim))  # which a global observation has not
            self.of_facts.add(new.critic_obs, np.asarray(new.active.any(axis=agents)))
        self.opened(range(first, first + num_steps))

    def recalled(self, policy: Any, seen: Array) -> Array | None:
        """Memories of the policy before a step at which it sees observations, `[N, *A, size]`; None without one."""
        del policy, seen
        return None

    def seen_by_critics(self, critics: Any, new: Steps) -> None:
        """Record the memories of critics along new steps, if they have one."""

    def known(self, obs: Array, facts: Array | None) -> Array:
        """What critics see of observations: these, and the facts if there are any, both normalised.

        A global observation comes first.
        """
        obs = self.statistics.normalised(obs)
        if facts is None:
            return obs
        facts = self.of_facts.normalised(facts)
        if facts.ndim == obs.ndim:
            return np.concatenate([obs, facts], axis=-1)
        return np.concatenate([np.broadcast_to(facts[..., None, :], (*obs.shape[:-1], facts.shape[-1])), obs], axis=-1)

    def opened(self, times: range) -> None:
        """Give new transitions their priority."""
        for t in times:
            self.leaves[self._indices(t)] = self.largest

    def _indices(self, t: int) -> slice:
        start = t % self.config.capacity * self.config.num_envs
        return slice(start, start + self.config.num_envs)

    def batches(self, key: jax.Array) -> Iterator[tuple[jax.Array, Batch]]:
        """Key and batch of each gradient step of an iteration, drawn with the priorities after the previous one."""
        for each in jax.random.split(key, self.config.num_updates):
            draw_key, own_key = jax.random.split(each)
            yield own_key, self._batch(*self._drawn(draw_key))

    def _drawn(self, key: jax.Array) -> tuple[Array, Array]:
        """Indices and importance weights of a batch, `[B]`."""
        count, filled = self.config.batch_size, min(len(self.steps.reward), self.config.capacity) * self.config.num_envs
        if not self.prioritised:
            return np.asarray(jax.random.randint(key, (count,), 0, filled)), np.ones(count)
        shares = self.leaves / self.leaves.sum()
        place = (np.arange(count) + np.asarray(jax.random.uniform(key, (count,)), np.float64)) / count
        index = np.searchsorted(np.cumsum(shares), place, side="right")
        weight = (shares[index] * filled) ** -self.beta
        return index, weight / weight.max()

    def _batch(self, index: Array, weight: Array) -> Batch:
        config, newest = self.config, len(self.steps.reward) - 1
        slots, envs = index // config.num_envs, index % config.num_envs
        # The newest time at which each slot was written.
        times = newest - (newest - slots) % config.capacity
        return self._rows(times, envs, np.full(len(times), newest), weight, index)

    def _rows(self, times: Array, envs: Array, newest: Array, weight: Array, index: Array) -> Batch:
        """Batch of the steps at some times, whose windows end at the latest at the times `newest`."""
        sums, going_on, lasts = [], [], []
        for t, env, end in zip(times, envs, newest, strict=True):
            windows = [self._window(t, env, agent, end) for agent in np.ndindex(self.env.agents)]
            shape = (*self.env.agents, -1)
            sums.append(np.array([window[0] for window in windows]).reshape(shape))
            going_on.append(np.array([window[1] for window in windows]).reshape(shape))
            lasts.append(max(window[2] for window in windows))

        def first(leaf: Array) -> Array:
            return leaf[times, envs]

        def last(leaf: Array) -> Array:
            return leaf[np.array(lasts), envs]

        steps, active = self.steps, first(self.steps.active)
        facts, next_facts = (
            None if leaf is None else of(leaf)
            for of, leaf in ((first, steps.critic_obs), (last, steps.next_critic_obs))
        )
        return Batch(
            obs=self.statistics.normalised(first(steps.obs)),
            action=first(steps.raw_action),
            mask=None if steps.mask is None else first(steps.mask),
            active=active,
            next_obs=self.statistics.normalised(last(steps.next_obs)),
            next_mask=None if steps.next_mask is None else last(steps.next_mask),
            sums=np.array(sums),
            going_on=np.array(going_on),
            weight=active * weight.reshape(-1, *[1] * len(self.env.agents)),
            last=np.array(lasts),
            index=index,
            seen=self.known(first(steps.obs), facts),
            next_seen=self.known(last(steps.next_obs), next_facts),
        )

    def _window(self, t: int, env: int, agent: tuple[int, ...], newest: int) -> tuple[Array, Array, int]:
        """Discounted rewards in units of sizes, factors of the values that follow, and the environment's last step."""
        steps, rates = self.steps, self.nodes.rates
        paid, factor, over = np.zeros(len(rates)), np.ones(len(rates)), False
        for now in itertools.count(t):
            at = (now, env, *agent)
            if not over:
                paid, factor = paid + factor * steps.reward[at], factor * rates
                if steps.ended(self.config.time_limits)[at]:
                    factor = np.zeros(len(rates))
                over = bool(steps.done[at])
            end = steps.terminated[now, env] or steps.truncated[now, env]
            if end or now == newest or now == t + self.config.n_step - 1:
                return paid / self.nodes.sizes, factor, now
        raise AssertionError

    def learned(self, batch: Batch, error: Array) -> None:
        """New priorities of a batch, from errors `[B, *A]` before the gradient step."""
        if not self.prioritised:
            return
        axes = tuple(range(1, error.ndim))
        mean = (error * batch.active).sum(axis=axes) / np.maximum(batch.active.sum(axis=axes), 1)
        priority = (mean + LEAST_ERROR) ** self.alpha
        self.leaves[batch.index] = [priority[batch.index == each].max() for each in batch.index]
        self.largest = max(self.largest, priority.max())

    def assert_same(self, state: Any, atol: float) -> None:
        """Check environments, buffer, statistics and priorities of a state of jaxrl."""
        self.walk.assert_at(state.carry.state)
        capacity, total = self.config.capacity, len(self.steps.reward)
        times = range(max(0, total - capacity), total)
        slots = np.array([t % capacity for t in times])
        kept = joined([self.steps], lambda leaves: leaves[0][times.start :])
        stored = jax.tree.map(lambda leaf: np.asarray(leaf)[slots], state.buffer)
        float64.assert_steps(stored, kept, atol)
        if self.config.normalise_observation:
            samples, statistics = self.statistics.samples, state.observations
            np.testing.assert_allclose(statistics.count, len(samples))
            np.testing.assert_allclose(statistics.mean, samples.mean(0), rtol=0, atol=atol)
            np.testing.assert_allclose(statistics.variance, samples.var(0), rtol=0, atol=atol)
            if kept.critic_obs is not None:
                samples, statistics = self.of_facts.samples, state.critic_observations
                np.testing.assert_allclose(statistics.mean, samples.mean(0), rtol=0, atol=4 * atol)
                np.testing.assert_allclose(statistics.variance, samples.var(0), rtol=0, atol=16 * atol)
        if self.prioritised:
            leaves = np.ravel(state.priorities.leaves)[: len(self.leaves)]
            np.testing.assert_allclose(leaves, self.leaves, rtol=0, atol=atol)
            np.testing.assert_allclose(state.priorities.largest, self.largest, rtol=0, atol=atol)

    def assert_varied(self) -> None:
        """Check that the steps have ends of every kind, in and out of the windows."""
        steps = self.steps
        assert steps.terminated.any() and steps.truncated.any()
        assert self.walk.both > 0  # flags of one step
        assert not self.env.agents or not steps.active.all()
