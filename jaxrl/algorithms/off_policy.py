"""Toolbox of off-policy algorithms: an algorithm collects, draws and learns in its own `step`, by these tools."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.choices import choices_of, encoded
from envs.errors import UserValueError
from envs.threefry import rolled
from jaxrl.algorithms.contract import Metrics
from jaxrl.algorithms.off_policy_config import OffPolicyConfig
from jaxrl.algorithms.rollout_config import RolloutConfig, check_normalised
from jaxrl.learning.actor import Actor, memories
from jaxrl.learning.asymmetric import Sees, View, critic_input, critic_observation, critic_shapes, facts_of, seen_by
from jaxrl.learning.exploration import network_memory
from jaxrl.learning.frames import FrameRing, frame_ring
from jaxrl.learning.networks import observation_shapes, zeros
from jaxrl.learning.normalisation import RunningStatistics, init_statistics, normalise, update_statistics
from jaxrl.learning.optimisers import check_transformation
from jaxrl.learning.priorities import (
    Priorities,
    init_priorities,
    prioritised_rows,
    update_priorities,
    write_priorities,
)
from jaxrl.learning.replay import (
    Ring,
    Rows,
    Window,
    init_buffer,
    last_slots,
    uniform_rows,
    window,
    write,
)
from jaxrl.learning.rollout import (
    Carry,
    Transition,
    default_reset_pool,
    episode_ends,
    longest_episode,
    over_agents,
    reset_all,
    rollout,
)
from jaxrl.learning.sequence_replay import Memories, Recall, SequenceReplay, start_stride
from jaxrl.learning.sequences import in_order
from jaxrl.pytrees import EnvParams, HParams, Observation, PyTree

_LEAST_ERROR = 1e-6  # keeps every priority above 0; in the unit of rewards, as the other constants of these algorithms

__all__ = [
    "Draw",
    "Experience",
    "OffPolicy",
    "OffPolicyPolicy",
    "OffPolicyState",
    "off_policy",
]


class OffPolicyPolicy(NamedTuple):
    """Policy of an off-policy algorithm.

    Attributes:
      acting: Parameters of the network and of exploration; their type depends on the algorithm.
      observations: Running statistics of observations, None without normalisation.
      observation_clip: Bound of normalised observations, float32 `[]`, None without normalisation.
    """

    acting: Any
    observations: RunningStatistics | None
    observation_clip: jax.Array | None

    def normalised(self, obs: Observation) -> Any:
        """Observations normalised for the network."""
        return normalise(self.observations, obs, self.observation_clip)


class OffPolicyState(NamedTuple):
    """State of one run between iterations.

    Attributes:
      learner: Parameters, target parameters and optimiser state; their type depends on the algorithm.
      observations: Running statistics of observations, None without normalisation.
      carry: States of the environments between two rollouts, leaves `[num_envs, ...]`.
      buffer: Transitions, leaves `[capacity, num_envs, ...]`; in place of observations that are stored once, `obs` has
        `Frames`, and `next_obs` is None.
      priorities: Priorities of the transitions, None with uniform replay.
      critic_observations: Running statistics of what only the critic sees; None if it sees nothing more, or without
        normalisation.
      memories: Memories from which sequences begin; None where no network has one.
    """

    learner: Any
    observations: RunningStatistics | None
    carry: Carry
    buffer: Transition
    priorities: Priorities | None
    critic_observations: RunningStatistics | None = None
    memories: Memories | None = None


class Experience(NamedTuple):
    """Transitions from which an iteration learns.

    Attributes:
      carry: States of the environments after the rollout, leaves `[num_envs, ...]`.
      buffer: Transitions, as in `OffPolicyState`.
      priorities: Priorities of the transitions when the rollout was written, None with uniform replay.
      filled: Number of slots of the buffer that are filled, int32 `[]`.
      newest: Slot of the newest transitions, int32 `[]`.
      policy: Policy with the statistics of observations after the rollout, by which the drawn observations are
        normalised.
      reused: Number of environments that were reset to a state used before, int32 `[]`; in the first iteration with
        those of the prefill.
      newest_frame: Slot of the newest frames, int32 `[]`; None where both observations are stored.
      lost: Number of last observations of episodes, from which targets bootstrap, that were overwritten too early,
        int32 `[]`; None where none can be.
      critic_observations: Running statistics of what only the critic sees, as in `OffPolicyState`.
      memories: Memories, as in `OffPolicyState`.
    """

    carry: Carry
    buffer: Transition
    priorities: Priorities | None
    filled: jax.Array
    newest: jax.Array
    policy: OffPolicyPolicy
    reused: jax.Array
    newest_frame: jax.Array | None = None
    lost: jax.Array | None = None
    critic_observations: RunningStatistics | None = None
    memories: Memories | None = None


class Draw(NamedTuple):
    """Batch of transitions drawn from the buffer.

    Attributes:
      batch: Windows of up to `n_step` steps, with normalised observations, leaves `[B, *A, ...]`; no agent counts as
        active where the observation from which the target would bootstrap has been lost. `critic_obs` and
        `next_critic_obs` are inputs of the critic. With a memory, the rows are the steps of sequences, in order of
        time, and `obs` and `critic_obs` are `Sequences`.
      weight: Weights of the losses, `[B, *A]`, 0 where an agent was not active.
      index: Places of the transitions, or sequences, among the priorities, int32, None with uniform replay.
    """

    batch: Window
    weight: jax.Array
    index: jax.Array | None  # pyright: ignore[reportIncompatibleMethodOverride]


class OffPolicy(NamedTuple):
    """Tools of an algorithm on one environment with one configuration; every function is pure.

    Attributes:
      env: Environment of one agent or a crowd.
      config: Configuration, a `RolloutConfig`; an `OffPolicyConfig` for tools of the buffer.
      agents: Axes of the agents, `*A`.
      obs_shape: Shapes of one agent's observation.
      with_mask: Whether the environment forbids actions by a mask.
      frames: Rings of observations that are stored once; None where both of every transition are stored.
      view: Kind of the critic's input.
      critic_shape: Shapes of what only the critic sees, None if it sees nothing more.
      sequences: Sequences in the buffer, from which networks with a memory learn; None where there are none.
    """

    env: Environment
    config: Any
    agents: tuple[int, ...]
    obs_shape: Any
    with_mask: bool
    frames: FrameRing | None = None
    view: View = "own"
    critic_shape: Any = None
    sequences: SequenceReplay | None = None

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        if not isinstance(self.config, OffPolicyConfig):
            return self.config.effects
        of_sequences = self.config.replay == "prioritised" and self.sequences is not None
        return self.config.effects | {"priority_eta": of_sequences}

    # Collecting.

    def policy_of(self, acting: PyTree, observations: RunningStatistics | None, hparams: HParams) -> OffPolicyPolicy:
        """Policy that acts by parameters `acting`, on observations normalised by their statistics if configured."""
        clip = jax.tree.map(jnp.float32, hparams.observation_clip) if self.config.normalise_observation else None
        return OffPolicyPolicy(acting, observations, clip)

    def first_statistics(self) -> RunningStatistics | None:
        """Running statistics of no observations, None without normalisation."""
        return init_statistics(self.obs_shape) if self.config.normalise_observation else None

    def statistics(self, observations: RunningStatistics | None, steps: Transition) -> RunningStatistics | None:
        """Running statistics with the observations of a rollout."""
        if observations is None:
            return None
        return update_statistics(observations, steps.obs, steps.active.astype(jnp.float32))

    def critic_statistics(self, observations: RunningStatistics | None, steps: Transition) -> RunningStatistics | None:
        """Running statistics of what only the critic sees, with the steps of a rollout; those of none if None."""
        before = self._first_critic_statistics() if observations is None else observations
        if before is None:
            return None
        weight = steps.active.astype(jnp.float32)
        if self.view == "global":
            weight = jnp.max(weight, axis=tuple(range(2, weight.ndim)))
        return update_statistics(before, steps.critic_obs, weight)

    def _first_critic_statistics(self) -> RunningStatistics | None:
        """Running statistics of no steps, of what only the critic sees; None as in `critic_statistics`."""
        if self.view == "own" or not self.config.normalise_observation:
            return None
        return init_statistics(self.critic_shape)

    def rollout(
        self,
        key: jax.Array,
        actor: Actor,
        policy: OffPolicyPolicy,
        carry: Carry,
        env_params: EnvParams,
        num_steps: int,
    ) -> tuple[Carry, Transition, jax.Array]:
        """Steps of a policy in all environments, as by `learning.rollout.rollout`.

        Where observations are stored once and not normalised, transitions have their newest frames alone.

        Args:
          key: Random key.
          actor: Actor.
          policy: Policy.
          carry: States of the environments.
          env_params: Parameters of the environment.
          num_steps: Number of steps of each environment.
        """
        config = self.config
        noise_key, env_key = jax.random.split(key)
        noise = actor.noise(rolled(noise_key), (num_steps, config.num_envs, *self.agents))
        pool = self._reset_pool(num_steps)
        more: dict[str, Any] = {"with_next_mask": self.with_mask, "critic_sees": facts_of(self.env, self.view)}
        if self.frames is not None and not self._whole:
            more["kept"] = self.frames.newest
        if self.sequences is not None:
            more["recorded"] = network_memory
        return rollout(self.env, env_params, actor, policy, env_key, carry, noise, pool, **more)

    @property
    def _whole(self) -> bool:
        """Whether a rollout has whole observations where the buffer has frames."""
        recalls = self.sequences is not None and self.sequences.critics_remember
        return self.config.normalise_observation or recalls

    def _reset_pool(self, num_steps: int) -> int:
        """Number of fresh states for each environment and `num_steps` of its steps."""
        if self.config.reset_pool is None:
            return default_reset_pool(num_steps, longest_episode(self.env))
        return self.config.reset_pool * num_steps // self.config.num_steps

    # The replay buffer, in the order in which an algorithm calls them.

    def init(
        self,
        keys: tuple[jax.Array, jax.Array],
        learner: PyTree,
        acting: PyTree,
        actor: Actor,
        random_actor: Actor,
        hparams: HParams,
        env_params: EnvParams,
        recall: Recall | None = None,
    ) -> OffPolicyState:
        """Initial state of a run, whose buffer has the transitions of random actions.

        Args:
          keys: Random keys of the first states, and of the random actions.
          learner: State of learning.
          acting: Parameters by which its policy acts.
          actor: Actor of the policy.
          random_actor: Actor of random actions, with memories of the same structure.
          hparams: Hyper-parameters, prepared.
          env_params: Parameters of the environment.
          recall: Function by which critics with a memory see the steps, as in `collect`.
        """
        config, (reset_key, collect_key) = self.config, keys
        observations = self.first_statistics()
        policy = self.policy_of(acting, observations, hparams)
        memory = memories(actor.initial_memory(policy), self.agents)
        start = reset_all(self.env, reset_key, env_params, config.num_envs, memory=memory)
        carry, steps, _ = self.rollout(
            collect_key, random_actor, policy, start, env_params, config.num_prefilled // config.num_envs
        )
        recorded, steps = self._recorded(policy, steps, None, jnp.int32(0), recall)
        buffer = self._first_buffer(start.obs, steps, carry.obs)
        priorities = None
        if config.replay == "prioritised":
            priorities = self._first_priorities()
        of_critic = self.critic_statistics(None, steps)
        observations = self.statistics(observations, steps)
        return OffPolicyState(learner, observations, carry, buffer, priorities, of_critic, recorded)

    def _first_priorities(self) -> Priorities:
        """Priorities of the prefill."""
        config = self.config
        if self.sequences is not None:
            return self.sequences.first_priorities(config.num_prefilled // config.num_envs)
        return write_priorities(init_priorities(config.num_stored), jnp.int32(0), config.num_prefilled)

    def _recorded(
        self,
        policy: OffPolicyPolicy,
        steps: Transition,
        state: OffPolicyState | None,
        end: jax.Array,
        recall: Recall | None,
    ) -> tuple[Memories | None, Transition]:
        """Memories with those of a rollout, and its steps without memories.

        Args:
          policy: Policy that acted.
          steps: Steps of the rollout.
          state: State before it, None before the first one.
          end: Slot of its first step, int32 `[]`.
          recall: Function by which critics with a memory see the steps.
        """
        if self.sequences is None:
            return None, steps
        seen, before = None, None if state is None else state.memories
        if recall is not None:
            first, clip = self._first_critic_statistics(), policy.observation_clip
            of_critic = first if state is None else state.critic_observations
            facts = normalise(of_critic, steps.critic_obs, clip)
            seen = self._critic_input(policy.normalised(steps.obs), facts, 2)
        recorded = self.sequences.of_rollout(steps, before, seen, recall)
        return self.sequences.written(before, recorded, end), steps._replace(memory=None)

    def _first_buffer(self, first_obs: Observation, steps: Transition, obs: Observation) -> Transition:
        """Buffer of the prefill, from the observations before and after it."""
        if self.frames is None:
            return write(init_buffer(steps, self.config.capacity), steps, jnp.int32(0))
        steps, flags = self._parted(self.frames, steps)
        buffer = write(init_buffer(flags, self.config.capacity), flags, jnp.int32(0))
        return buffer._replace(obs=self.frames.prefilled(self.frames.init(first_obs), steps, obs))

    def _parted(self, ring: FrameRing, steps: Transition) -> tuple[Transition, Transition]:
        """Transitions with newest frames in place of observations, and transitions without either."""
        if self._whole:
            steps = steps._replace(obs=ring.newest(steps.obs, 2), next_obs=ring.newest(steps.next_obs, 2))
        return steps, steps._replace(obs=None, next_obs=None)

    def collect(
        self,
        key: jax.Array,
        iteration: jax.Array,
        actor: Actor,
        policy: OffPolicyPolicy,
        state: OffPolicyState,
        env_params: EnvParams,
        recall: Recall | None = None,
    ) -> Experience:
        """Steps of the policy in all environments, written to the buffer with the highest priority.

        Args:
          key: Random key.
          iteration: Number of previous iterations, int32 `[]`, traced but not batched.
          actor: Actor.
          policy: Policy.
          state: State before the iteration.
          env_params: Parameters of the environment, traced.
          recall: Function of `Sequences` of what the critics see, `[T, N, *A, ...]`, that returns their memories before
            and after each row, leaves `[C, T * N, *A, ...]`; None for critics without a memory.

        Returns:
          Environments, buffer and priorities after the steps, and the policy with new statistics of observations.
        """
        config = self.config
        carry, steps, reused = self.rollout(key, actor, policy, state.carry, env_params, config.num_steps)
        before = Ring.at(iteration, config.num_prefilled // config.num_envs, config.num_steps, config.capacity)
        ring = before.after(config.num_steps, config.capacity)
        recorded, steps = self._recorded(policy, steps, state, before.end, recall)
        buffer, newest_frame, lost = self._written(state.buffer, steps, carry, before, iteration)
        priorities = state.priorities
        if priorities is not None and self.sequences is not None:
            priorities = self.sequences.opened(priorities, before, config.num_steps)
        elif priorities is not None:
            priorities = write_priorities(priorities, before.end * config.num_envs, config.steps_per_iteration)
        policy = policy._replace(observations=self.statistics(state.observations, steps))
        newest = (ring.end - 1) % config.capacity
        # The first iteration leaves the prefill as it was, unless this fills the buffer. To read it in the buffer from
        # before an iteration, XLA would copy the flags of all slots in each.
        prefilled = state.buffer if config.num_prefilled == config.num_stored else buffer
        reused += jnp.where(iteration == 0, self._reused_in_prefill(prefilled), 0)
        of_critic = self.critic_statistics(state.critic_observations, steps)
        after = (ring.filled, newest, policy, reused, newest_frame, lost, of_critic, recorded)
        return Experience(carry, buffer, priorities, *after)

    def _written(
        self, buffer: Transition, steps: Transition, carry: Carry, ring: Ring, iteration: jax.Array
    ) -> tuple[Transition, jax.Array | None, jax.Array | None]:
        """The buffer with the steps of an iteration, the slot of the newest frame, and the number of lost frames."""
        if self.frames is None:
            return write(buffer, steps, ring.end), None, None
        config, size = self.config, self.frames.size
        start = Ring.at(iteration, config.num_prefilled // config.num_envs, config.num_steps, size).end
        steps, flags = self._parted(self.frames, steps)
        frames, lost = self.frames.write(buffer.obs, steps, carry.obs, start)
        buffer = write(buffer._replace(obs=None), flags, ring.end)._replace(obs=frames)
        return buffer, (start + config.num_steps - 1) % size, lost if self.frames.block else None

    def _reused_in_prefill(self, buffer: Transition) -> jax.Array:
        """Number of states used before, int32 `[]`, in the slots of the prefill before or in the first iteration."""
        num_steps = self.config.num_prefilled // self.config.num_envs
        resets = jnp.sum((buffer.terminated | buffer.truncated)[:num_steps], axis=0, dtype=jnp.int32)
        return jnp.sum(jnp.maximum(resets - self._reset_pool(num_steps), 0))

    def updates(self, key: jax.Array, iteration: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys of the gradient steps of an iteration, and the number of gradient steps before each, int32."""
        count = iteration * self.config.num_updates + jnp.arange(self.config.num_updates, dtype=jnp.int32)
        return jax.random.split(key, self.config.num_updates), count

    def draw(self, key: jax.Array, experience: Experience, priorities: Priorities | None, hparams: HParams) -> Draw:
        """Batch of transitions, or of sequences with a memory, drawn uniformly or by their priorities.

        Args:
          key: Random key.
          experience: Result of `collect`.
          priorities: Priorities before the gradient step, None with uniform replay.
          hparams: Hyper-parameters, prepared, traced.

        Returns:
          Windows `[batch_size, ...]` with normalised observations, their weights in the loss, and their places. With
          a memory, those of all steps of sequences after their burn-in.
        """
        if self.sequences is not None:
            return self._draw_sequences(self.sequences, key, experience, priorities, hparams)
        config, filled, index = self.config, experience.filled, None
        if priorities is None:
            rows = uniform_rows(key, filled, config.num_envs, config.batch_size)
        else:
            beta = jnp.float32(hparams.priority_beta)
            rows, index = prioritised_rows(key, priorities, filled, config.num_envs, config.batch_size, beta)
        if self.frames is None:
            policy, batch = experience.policy, window(experience.buffer, rows, experience.newest, config.n_step)
        else:
            policy, batch = experience.policy, self._of_frames(self.frames, experience, rows)
        batch = batch._replace(obs=policy.normalised(batch.obs), next_obs=policy.normalised(batch.next_obs))
        statistics, clip = experience.critic_observations, policy.observation_clip
        batch = batch._replace(
            critic_obs=self._critic_input(batch.obs, normalise(statistics, batch.critic_obs, clip)),
            next_critic_obs=self._critic_input(batch.next_obs, normalise(statistics, batch.next_critic_obs, clip)),
        )
        return Draw(batch, self._weights(batch, rows), index)

    def _weights(self, batch: Window, rows: Rows) -> jax.Array:
        """Weights of the losses of rows, `[B, *A]`."""
        return batch.active.astype(jnp.float32) * rows.weight.reshape(-1, *[1] * len(self.agents))

    def _draw_sequences(
        self,
        sequences: SequenceReplay,
        key: jax.Array,
        experience: Experience,
        priorities: Priorities | None,
        hparams: HParams,
    ) -> Draw:
        """Batch whose rows are the steps of sequences, with the memories from which these begin."""
        policy, stored, n_step = experience.policy, experience.memories, self.config.n_step
        assert stored is not None  # of every experience with sequences
        ring = Ring((experience.newest + 1) % self.config.capacity, experience.filled)
        starts = sequences.draw(key, ring, priorities, hparams.priority_beta)
        steps, known = self._steps(sequences, experience, starts.rows)
        obs, next_obs = policy.normalised(steps.obs), policy.normalised(steps.next_obs)
        statistics, clip = experience.critic_observations, policy.observation_clip
        facts, next_facts = (normalise(statistics, each, clip) for each in (steps.critic_obs, steps.next_critic_obs))
        next_seen = self._critic_input(next_obs, next_facts, 2)
        rows, newest = sequences.learned(starts.rows), jnp.int32(sequences.length - 1)
        steps = steps._replace(obs=None, next_obs=next_obs, critic_obs=None, next_critic_obs=next_seen)
        batch = window(steps, rows, newest, n_step)
        slots = rows.slot if n_step == 1 else last_slots(steps, rows, newest, n_step)
        last = None if n_step == 1 else (slots - sequences.burn_in) * sequences.count + rows.env
        if known is not None:
            batch = batch._replace(active=batch.active & over_agents(known[slots, rows.env], batch.active))
        done = episode_ends(steps)
        of_policy, of_critics = jax.tree.map(
            lambda leaf: leaf[starts.place, starts.rows.env], (stored.policy, stored.critics)
        )
        obs_sequences = in_order(obs, done, of_policy, None, sequences.burn_in, last)
        seen: Any = in_order(
            self._critic_input(obs, facts, 2),
            done,
            sequences.of_critics(of_critics),
            steps.raw_action,
            sequences.burn_in,
            last,
        )
        if not sequences.critics_remember:
            seen = seen.rows()
        batch = batch._replace(obs=obs_sequences, critic_obs=seen)
        return Draw(batch, self._weights(batch, rows), starts.index)

    def _steps(
        self, sequences: SequenceReplay, experience: Experience, starts: Rows
    ) -> tuple[Transition, jax.Array | None]:
        """Steps of sequences, leaves `[L, W, ...]`, and whether their next observations are known, bool `[L, W]`."""
        if self.frames is None:
            return sequences.steps(experience.buffer, starts), None
        assert experience.newest_frame is not None  # of every experience with frames
        frames, flags = experience.buffer.obs, experience.buffer._replace(obs=None)
        steps, length = sequences.steps(flags, starts), sequences.length
        slots = (starts.slot + jnp.arange(length)[:, None]) % self.config.capacity
        rows = Rows(slots.reshape(-1), jnp.tile(starts.env, length), jnp.tile(starts.weight, length))
        read = self.frames.read(frames, rows, None, flags, experience.newest, experience.newest_frame)
        obs, next_obs, known = jax.tree.map(lambda leaf: leaf.reshape(*slots.shape, *leaf.shape[1:]), read)
        return steps._replace(obs=obs, next_obs=next_obs), known

    @property
    def seen_shape(self) -> Any:
        """Shapes of one input of the critic."""
        if self.view == "global":
            return jax.eval_shape(self._with_global, zeros(self.obs_shape), self.critic_shape)
        return critic_input(self.view, self.obs_shape, self.critic_shape)

    def _critic_input(self, obs: Observation, facts: Observation, num_axes: int = 1) -> Any:
        """Inputs of the critic `[*B, *A, ...]`, from observations, and global observations `[*B, ...]` or other facts.

        Args:
          obs: Observations of the agents.
          facts: What only the critic sees.
          num_axes: Number of axes `[*B]`.
        """
        if self.view != "global":
            return critic_input(self.view, obs, facts)
        function = self._with_global
        for _ in self.agents:
            function = jax.vmap(function, in_axes=(0, None))
        for _ in range(num_axes):
            function = jax.vmap(function)
        return function(obs, facts)

    def _with_global(self, obs: Observation, global_obs: Observation) -> Any:
        """Input of a centralised critic of one agent."""
        scales = self.config.own_scale, self.config.neighbour_scale
        return critic_observation(encoded(obs, choices_of(self.obs_shape)), global_obs, *scales)

    def _of_frames(self, ring: FrameRing, experience: Experience, rows: Rows) -> Window:
        """Windows with observations from the frames, in which no agent is active where an observation is lost."""
        assert experience.newest_frame is not None  # of every experience with frames
        frames, newest = experience.buffer.obs, experience.newest
        buffer = experience.buffer._replace(obs=None)
        batch, last = window(buffer, rows, newest, self.config.n_step), None
        if self.config.n_step > 1:
            last = last_slots(buffer, rows, newest, self.config.n_step)
        obs, next_obs, known = ring.read(frames, rows, last, buffer, newest, experience.newest_frame)
        active = batch.active & over_agents(known, batch.active)
        return batch._replace(obs=obs, next_obs=next_obs, active=active)

    def update_priorities(
        self, priorities: Priorities | None, draw: Draw, error: jax.Array, hparams: HParams
    ) -> Priorities | None:
        """Priorities after a gradient step.

        Args:
          priorities: Priorities before it, None with uniform replay.
          draw: Its batch.
          error: Error of the value of each transition, `[B]`.
          hparams: Hyper-parameters, prepared.

        Source: Kapturowski et al. (2019), "Recurrent experience replay in distributed reinforcement learning", for the
        priorities of sequences.
        """
        if priorities is None or draw.index is None:
            return priorities
        if self.sequences is not None:
            active = jnp.any(draw.batch.active, axis=tuple(range(1, draw.batch.active.ndim)))
            error, active = (each.reshape(-1, len(draw.index)) for each in (error, active.astype(jnp.float32)))
            mean = jnp.sum(error * active, axis=0) / jnp.maximum(jnp.sum(active, axis=0), 1)
            error = hparams.priority_eta * jnp.max(error, axis=0) + (1 - hparams.priority_eta) * mean
        priority = (jnp.abs(error) + _LEAST_ERROR) ** hparams.priority_alpha
        return update_priorities(priorities, draw.index, priority)

    def warm_started(
        self, state: OffPolicyState, learner: PyTree, actor: Actor, policy: OffPolicyPolicy
    ) -> OffPolicyState:
        """Initial state with the learner of another policy, whose memories begin anew.

        Args:
          state: Initial state.
          learner: State of learning with the parameters of the policy.
          actor: Actor.
          policy: Policy from which training starts.
        """
        state = state._replace(learner=learner, observations=policy.observations)
        if self.sequences is None or state.memories is None:
            return state
        first = actor.initial_memory(policy)
        carry = state.carry._replace(memory=memories(first, (self.config.num_envs, *self.agents)))
        return state._replace(carry=carry, memories=self.sequences.begun(state.memories, network_memory(first)))

    def finish(
        self, learner: PyTree, priorities: Priorities | None, experience: Experience, metrics: Metrics
    ) -> tuple[OffPolicyState, Metrics]:
        """State after an iteration, and its metrics.

        Args:
          learner: State of learning after the iteration.
          priorities: Priorities after it, None with uniform replay.
          experience: Result of `collect`.
          metrics: Metrics of the gradient steps, leaves `[num_updates]`, whose means are taken.
        """
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["reset_reuse"] = experience.reused.astype(jnp.float32)
        if experience.lost is not None:
            metrics["replay_lost"] = experience.lost.astype(jnp.float32)
        observations = experience.policy.observations
        after = (experience.carry, experience.buffer, priorities, experience.critic_observations, experience.memories)
        return OffPolicyState(learner, observations, *after), metrics


def off_policy(
    env: Environment,
    config: RolloutConfig,
    agents: tuple[int, ...],
    critic_sees: Sees = "own",
    remembers: bool = False,
) -> OffPolicy:
    """Toolbox of an algorithm that collects by rollouts and, with an `OffPolicyConfig`, draws from a replay buffer.

    Args:
      env: Environment of one agent or a crowd.
      config: Configuration.
      agents: Axes of the agents.
      critic_sees: What a critic sees, as in `envs.wrappers.asymmetric.seen_by`; "own" for an algorithm without one.
      remembers: Whether a network has a memory, so that batches are sequences.

    Raises:
      TypeError, ValueError: Observations with neighbours are normalised, or do not have what actor or critic sees.
    """
    check_transformation(config.optimiser)
    env, view = seen_by(env, config.actor_sees, critic_sees)
    obs_shape = observation_shapes(env, agents)
    check_normalised(config.normalise_observation, obs_shape)
    frames, sequences = None, None
    if isinstance(config, OffPolicyConfig):
        sizes = config.num_steps, config.capacity
        frames = frame_ring(env, agents, obs_shape, *sizes, config.time_limits, config.replay_storage)
        sequences = _sequences(config, len(agents)) if remembers else None
        if not remembers:
            _refuse_sequences(config)
    facts = critic_shapes(env, view, agents)
    toolbox = OffPolicy(env, config, agents, obs_shape, _has_mask(env), frames, view, facts, sequences)
    check_normalised(config.normalise_observation, toolbox.seen_shape)
    return toolbox


def _sequences(config: OffPolicyConfig, num_agent_axes: int) -> SequenceReplay:
    """Sequences of a configuration.

    Raises:
      ValueError: See `OffPolicyConfig.check_sequences`.
    """
    config.check_sequences()
    length, count = config.sequence_length, config.batch_size // config.sequence_length
    stride = start_stride(config.num_steps, length - config.burn_in)
    return SequenceReplay(length, config.burn_in, stride, count, config.num_envs, config.capacity, num_agent_axes)


def _refuse_sequences(config: OffPolicyConfig) -> None:
    """Reject changed fields of sequences, which have no effect on networks without a memory."""
    for name in ("sequence_length", "burn_in"):
        value = getattr(config, name)
        if value != type(config).__dataclass_fields__[name].default:
            raise UserValueError(f"{name} has no effect on networks without a memory, got {value}; leave it out")


def _has_mask(env: Environment) -> bool:
    """Whether the environment forbids actions by a mask."""
    state = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[1]
    return jax.eval_shape(env.action_mask, state, env.default_params) is not None
