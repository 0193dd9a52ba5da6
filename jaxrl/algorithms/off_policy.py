"""Toolbox of off-policy algorithms: an algorithm collects, draws and learns in its own `step`, by these tools."""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment
from envs.choices import choices_of, encoded
from envs.errors import UserValueError
from envs.threefry import rolled
from jaxrl.algorithms.contract import Metrics
from jaxrl.algorithms.rollout_config import RolloutConfig, TransitionsHParams, check_normalised
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.learning.actor import Actor, memories
from jaxrl.learning.asymmetric import Sees, View, critic_input, critic_observation, critic_shapes, facts_of, seen_by
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
from jaxrl.learning.replay import Ring, Rows, Window, init_buffer, last_slots, uniform_rows, window, write
from jaxrl.learning.rollout import (
    Carry,
    Transition,
    default_reset_pool,
    longest_episode,
    over_agents,
    reset_all,
    rollout,
)
from jaxrl.pytrees import EnvParams, HParams

_LEAST_ERROR = 1e-6  # keeps every priority above 0; in the unit of rewards, as the other constants of these algorithms

__all__ = [
    "Draw",
    "Experience",
    "OffPolicy",
    "OffPolicyConfig",
    "OffPolicyHParams",
    "OffPolicyPolicy",
    "OffPolicyState",
    "off_policy",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(RolloutConfig):
    """Static configuration of collecting, storing and sampling transitions.

    Attributes:
      num_updates: Number of gradient steps at the end of one iteration.
      batch_size: Number of transitions of one gradient step.
      buffer_size: Number of transitions in the replay buffer, rounded up to a multiple of `num_envs * num_steps`.
      prefill: Number of transitions of random actions before the first iteration, rounded up as `buffer_size` is; they
        do not count as environment steps.
      n_step: Largest number of rewards in a target, before its bootstrap.
      replay: Sampling of transitions: "uniform", or "prioritised" in proportion to the last error.
      replay_storage: Storage of observations: "transitions", both of every transition; "frames", each one once, and of
        `envs.wrappers.frame_stack` only the newest frame, from which the same transitions are drawn, apart from
        observations after an end whose value does not count; or "auto", frames for images and stacks where they take
        less memory.
    """

    num_updates: int = 2
    batch_size: int = 128
    buffer_size: int = 16_384
    prefill: int = 1_024
    n_step: int = 1
    replay: Literal["uniform", "prioritised"] = "uniform"
    replay_storage: Literal["auto", "frames", "transitions"] = "auto"

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        self._refuse_memory()
        for name in ("num_updates", "batch_size", "buffer_size", "prefill", "n_step"):
            check_count(name, getattr(self, name))
        check_choice("replay", self.replay, ("uniform", "prioritised"))
        check_choice("replay_storage", self.replay_storage, ("auto", "frames", "transitions"))
        for name, least in self._needed.items():
            if self.num_stored < least:
                raise UserValueError(
                    f"buffer_size takes at least the {least} transitions of {name}, got {self.buffer_size}"
                )

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return super().effects | dict.fromkeys(("priority_alpha", "priority_beta"), self.replay == "prioritised")

    @property
    def _needed(self) -> dict[str, int]:
        """Smallest numbers of transitions that a buffer must hold, by the fields that require them."""
        return {
            "batch_size": self.batch_size,
            "prefill": self.num_prefilled,
            "n_step * num_envs": self.n_step * self.num_envs,
        }

    @property
    def least_buffer(self) -> int:
        """Smallest `buffer_size` that the other fields allow, apart from multiples."""
        return max(self._needed.values())

    @property
    def capacity(self) -> int:
        """Number of slots of the buffer, each with one transition of every environment."""
        return self.num_stored // self.num_envs

    @property
    def num_stored(self) -> int:
        """Number of transitions in the buffer: `buffer_size`, rounded up to whole iterations."""
        return self._whole_iterations(self.buffer_size)

    @property
    def num_prefilled(self) -> int:
        """Number of transitions of random actions: `prefill`, rounded up to whole iterations."""
        return self._whole_iterations(self.prefill)

    def _whole_iterations(self, size: int) -> int:
        return -(-size // self.steps_per_iteration) * self.steps_per_iteration


@struct.dataclass
class OffPolicyHParams(TransitionsHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      priority_alpha: Exponent of priorities, in [0, 1]; 0 draws uniformly.
      priority_beta: Exponent of importance weights, in [0, 1]; 1 corrects the bias of priorities within a batch, whose
        weights are scaled so that the largest is 1.

    `priority_alpha` and `priority_beta` are None in `Algorithm.hparams` where they have no effect.
    """

    priority_alpha: Any = 0.6
    priority_beta: Any = 0.5

    ranges = TransitionsHParams.ranges | dict.fromkeys(("priority_alpha", "priority_beta"), Range(0, 1))


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

    def normalised(self, obs: Any) -> Any:
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
    """

    learner: Any
    observations: RunningStatistics | None
    carry: Carry
    buffer: Transition
    priorities: Priorities | None
    critic_observations: RunningStatistics | None = None


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


class Draw(NamedTuple):
    """Batch of transitions drawn from the buffer.

    Attributes:
      batch: Windows of up to `n_step` steps, with normalised observations, leaves `[B, *A, ...]`; no agent counts as
        active where the observation from which the target would bootstrap has been lost. `critic_obs` and
        `next_critic_obs` are inputs of the critic.
      weight: Weights of the losses, `[B, *A]`, 0 where an agent was not active.
      index: Places of the transitions among the priorities, int32 `[B]`, None with uniform replay.
    """

    batch: Window
    weight: jax.Array
    index: jax.Array | None


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
    """

    env: Environment
    config: Any
    agents: tuple[int, ...]
    obs_shape: Any
    with_mask: bool
    frames: FrameRing | None = None
    view: View = "own"
    critic_shape: Any = None

    # Collecting.

    def policy_of(self, acting: Any, observations: RunningStatistics | None, hparams: HParams) -> OffPolicyPolicy:
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
        if self.view == "own" or not self.config.normalise_observation:
            return None
        before = init_statistics(self.critic_shape) if observations is None else observations
        weight = steps.active.astype(jnp.float32)
        if self.view == "global":
            weight = jnp.max(weight, axis=tuple(range(2, weight.ndim)))
        return update_statistics(before, steps.critic_obs, weight)

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
        if self.frames is not None and not config.normalise_observation:
            more["kept"] = self.frames.newest
        return rollout(self.env, env_params, actor, policy, env_key, carry, noise, pool, **more)

    def _reset_pool(self, num_steps: int) -> int:
        """Number of fresh states for each environment and `num_steps` of its steps."""
        if self.config.reset_pool is None:
            return default_reset_pool(num_steps, longest_episode(self.env))
        return self.config.reset_pool * num_steps // self.config.num_steps

    # The replay buffer, in the order in which an algorithm calls them.

    def init(
        self,
        keys: tuple[jax.Array, jax.Array],
        learner: Any,
        acting: Any,
        actor: Actor,
        random_actor: Actor,
        hparams: HParams,
        env_params: EnvParams,
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
        """
        config, (reset_key, collect_key) = self.config, keys
        observations = self.first_statistics()
        policy = self.policy_of(acting, observations, hparams)
        memory = memories(actor.initial_memory(policy), self.agents)
        start = reset_all(self.env, reset_key, env_params, config.num_envs, memory=memory)
        carry, steps, _ = self.rollout(
            collect_key, random_actor, policy, start, env_params, config.num_prefilled // config.num_envs
        )
        buffer = self._first_buffer(start.obs, steps, carry.obs)
        priorities = None
        if config.replay == "prioritised":
            priorities = write_priorities(init_priorities(config.num_stored), jnp.int32(0), config.num_prefilled)
        of_critic = self.critic_statistics(None, steps)
        return OffPolicyState(learner, self.statistics(observations, steps), carry, buffer, priorities, of_critic)

    def _first_buffer(self, first_obs: Any, steps: Transition, obs: Any) -> Transition:
        """Buffer of the prefill, from the observations before and after it."""
        if self.frames is None:
            return write(init_buffer(steps, self.config.capacity), steps, jnp.int32(0))
        steps, flags = self._parted(self.frames, steps)
        buffer = write(init_buffer(flags, self.config.capacity), flags, jnp.int32(0))
        return buffer._replace(obs=self.frames.prefilled(self.frames.init(first_obs), steps, obs))

    def _parted(self, ring: FrameRing, steps: Transition) -> tuple[Transition, Transition]:
        """Transitions with newest frames in place of observations, and transitions without either."""
        if self.config.normalise_observation:
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
    ) -> Experience:
        """Steps of the policy in all environments, written to the buffer with the highest priority.

        Args:
          key: Random key.
          iteration: Number of previous iterations, int32 `[]`, traced but not batched.
          actor: Actor.
          policy: Policy.
          state: State before the iteration.
          env_params: Parameters of the environment, traced.

        Returns:
          Environments, buffer and priorities after the steps, and the policy with new statistics of observations.
        """
        config = self.config
        carry, steps, reused = self.rollout(key, actor, policy, state.carry, env_params, config.num_steps)
        before = Ring.at(iteration, config.num_prefilled // config.num_envs, config.num_steps, config.capacity)
        ring = before.after(config.num_steps, config.capacity)
        buffer, newest_frame, lost = self._written(state.buffer, steps, carry, before, iteration)
        priorities = state.priorities
        if priorities is not None:
            priorities = write_priorities(priorities, before.end * config.num_envs, config.steps_per_iteration)
        policy = policy._replace(observations=self.statistics(state.observations, steps))
        newest = (ring.end - 1) % config.capacity
        reused += jnp.where(iteration == 0, self._reused_in_prefill(state.buffer), 0)
        of_critic = self.critic_statistics(state.critic_observations, steps)
        after = (ring.filled, newest, policy, reused, newest_frame, lost, of_critic)
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
        """Number of states used before, int32 `[]`, of the buffer before the first iteration."""
        num_steps = self.config.num_prefilled // self.config.num_envs
        resets = jnp.sum((buffer.terminated | buffer.truncated)[:num_steps], axis=0, dtype=jnp.int32)
        return jnp.sum(jnp.maximum(resets - self._reset_pool(num_steps), 0))

    def updates(self, key: jax.Array, iteration: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys of the gradient steps of an iteration, and the number of gradient steps before each, int32."""
        count = iteration * self.config.num_updates + jnp.arange(self.config.num_updates, dtype=jnp.int32)
        return jax.random.split(key, self.config.num_updates), count

    def draw(self, key: jax.Array, experience: Experience, priorities: Priorities | None, hparams: HParams) -> Draw:
        """Batch of transitions, drawn uniformly or by their priorities.

        Args:
          key: Random key.
          experience: Result of `collect`.
          priorities: Priorities before the gradient step, None with uniform replay.
          hparams: Hyper-parameters, prepared, traced.

        Returns:
          Windows `[batch_size, ...]` with normalised observations, their weights in the loss, and their places.
        """
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
        active = batch.active.astype(jnp.float32)
        return Draw(batch, active * rows.weight.reshape(-1, *[1] * len(self.agents)), index)

    @property
    def seen_shape(self) -> Any:
        """Shapes of one input of the critic."""
        if self.view == "global":
            return jax.eval_shape(self._with_global, zeros(self.obs_shape), self.critic_shape)
        return critic_input(self.view, self.obs_shape, self.critic_shape)

    def _critic_input(self, obs: Any, facts: Any) -> Any:
        """Inputs of the critic `[B, *A, ...]`, from observations, and global observations `[B, ...]` or other facts."""
        if self.view != "global":
            return critic_input(self.view, obs, facts)
        function = self._with_global
        for _ in self.agents:
            function = jax.vmap(function, in_axes=(0, None))
        return jax.vmap(function)(obs, facts)

    def _with_global(self, obs: Any, global_obs: Any) -> Any:
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
        """
        if priorities is None or draw.index is None:
            return priorities
        priority = (jnp.abs(error) + _LEAST_ERROR) ** hparams.priority_alpha
        return update_priorities(priorities, draw.index, priority)

    def finish(
        self, learner: Any, priorities: Priorities | None, experience: Experience, metrics: Metrics
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
        after = (experience.carry, experience.buffer, priorities, experience.critic_observations)
        return OffPolicyState(learner, observations, *after), metrics


def off_policy(
    env: Environment, config: RolloutConfig, agents: tuple[int, ...], critic_sees: Sees = "own"
) -> OffPolicy:
    """Toolbox of an algorithm that collects by rollouts and, with an `OffPolicyConfig`, draws from a replay buffer.

    Args:
      env: Environment of one agent or a crowd.
      config: Configuration.
      agents: Axes of the agents.
      critic_sees: What a critic sees, as in `envs.wrappers.asymmetric.seen_by`; "own" for an algorithm without one.

    Raises:
      TypeError, ValueError: Observations with neighbours are normalised, or do not have what actor or critic sees.
    """
    check_transformation(config.optimiser)
    env, view = seen_by(env, config.actor_sees, critic_sees)
    obs_shape = observation_shapes(env, agents)
    check_normalised(config.normalise_observation, obs_shape)
    frames = None
    if isinstance(config, OffPolicyConfig):
        sizes = config.num_steps, config.capacity
        frames = frame_ring(env, agents, obs_shape, *sizes, config.time_limits, config.replay_storage)
    facts = critic_shapes(env, view, agents)
    toolbox = OffPolicy(env, config, agents, obs_shape, _has_mask(env), frames, view, facts)
    check_normalised(config.normalise_observation, toolbox.seen_shape)
    return toolbox


def _has_mask(env: Environment) -> bool:
    """Whether the environment forbids actions by a mask."""
    state = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)[1]
    return jax.eval_shape(env.action_mask, state, env.default_params) is not None
