"""Recorded steps of a policy: whole episodes, or a number of steps with resets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.threefry import rolled, unrolled
from jaxrl.learning.acting import Acted, act_once, agents_of, begin
from jaxrl.learning.action_probabilities import has_probabilities, probabilities
from jaxrl.learning.actor import Actor, Policy
from jaxrl.learning.rollout import PER_AGENT, Carry
from jaxrl.pytrees import EnvParams, Memory, Observation, PyTree

__all__ = ["Recorded", "Recorder", "Recording"]

Q = "q"  # entry of the scores of policies that act by action values


class Recording(NamedTuple):
    """Environments between two parts of a recording.

    Attributes:
      carry: Environments, leaves `[N, ...]`.
      alive: Whether the episode of each environment goes on, bool `[N]`; always with resets.
    """

    carry: Carry
    alive: jax.Array


class Recorded(NamedTuple):
    """Steps of every environment, leaves `[T, N, ...]`; None stands for what an environment or a policy lacks.

    Attributes:
      alive: Whether the episode went on before the step, bool `[T, N]`; always with resets.
      obs: Observations before the step.
      next_obs: Observations after the step, before any reset.
      action: Actions as the environment takes them, `[T, N, *A, ...]`.
      reward: Rewards, `[T, N, *A]`.
      terminated, truncated: Ends of episodes, bool `[T, N]`.
      agent_terminated, active: Entries of `info`, bool `[T, N, *A]`.
      mask: Action masks before the step.
      log_prob: Log-probabilities of the actions when they are sampled, `[T, N, *A]`.
      probability: Probabilities of all actions when they are sampled, `[T, N, *A, num_actions]`.
      q_value: Action values, `[T, N, *A, num_actions]`.
      value: Values by the policy's critic, `[T, N, *A]`.
    """

    alive: jax.Array
    obs: Any
    next_obs: Any
    action: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    agent_terminated: Any
    active: Any
    mask: Any
    log_prob: Any
    probability: Any
    q_value: Any
    value: Any


class Recorder(NamedTuple):
    """Static part of a recording.

    Attributes:
      env: Environment.
      actor: Actor of the policies.
      value: Function `Algorithm.value`, or None.
      num_envs: Number of environments N, or of episodes.
      resets: Whether another episode begins where one has ended.
      greedy: Whether to take the most likely actions instead of sampled ones.
    """

    env: Environment
    actor: Actor
    value: Callable[[Policy, Memory, Any], jax.Array] | None
    num_envs: int
    resets: bool
    greedy: bool

    def start(self, policy: Policy, params: EnvParams, key: jax.Array) -> Recording:
        """First states, those of `evaluate_episodes` with an equal key and number.

        Args:
          policy: Policy of one run, traced.
          params: Parameters of the environment, traced.
          key: Random key, traced.
        """
        chex.assert_rank(key, {0, 1}, custom_message="key")
        carry = begin(self.env, params, self.actor, policy, key, self.num_envs)[0]
        return Recording(carry, jnp.ones(self.num_envs, bool))

    def record(
        self, policy: Policy, params: EnvParams, key: jax.Array, recording: Recording, first: PyTree, num_steps: int
    ) -> tuple[Recording, Recorded]:
        """Next steps of a recording.

        Random numbers of the step t are those of `evaluate_episodes`, so that equal keys give the same episodes.

        Args:
          policy: Policy of one run, traced.
          params: Parameters of the environment, traced.
          key: Random key of `start`.
          recording: Environments before the steps.
          first: Number of steps before, int32 `[]`.
          num_steps: Number of steps T, static.

        Returns:
          Environments after the steps, and the steps.
        """
        chex.assert_rank(key, {0, 1}, custom_message="key")
        count, agents = self.num_envs, agents_of(self.env, recording.carry.obs)
        step_key = jax.random.split(unrolled(key))[1]

        def one_step(recording: Recording, t: jax.Array) -> tuple[Recording, Recorded]:
            # Of `evaluate_episodes`, the first half is of greedy episodes; the half that is not needed is for resets.
            keys = jax.random.split(jax.random.fold_in(step_key, t), 2 * count)
            halves = (keys[:count], keys[count:]) if self.greedy else (keys[count:], keys[:count])
            carry, alive = recording

            def act(key: jax.Array, carry: Carry) -> tuple[Carry, Recorded]:
                acted = act_once(self.env, params, self.actor, policy, key, carry, agents, self.greedy)
                return self._recorded(policy, carry.obs, acted)

            after, step = jax.vmap(act)(halves[0], carry)
            done = step.terminated | step.truncated
            if self.resets:
                return Recording(self._reset(rolled(halves[1]), params, after, done), alive), step._replace(alive=alive)
            return Recording(after, alive & ~done), step._replace(alive=alive)

        steps = jnp.asarray(first, jnp.int32) + jnp.arange(num_steps, dtype=jnp.int32)
        return jax.lax.scan(one_step, recording, steps)

    def _reset(self, keys: jax.Array, params: EnvParams, carry: Carry, done: jax.Array) -> Carry:
        """Environments with another first state where an episode has ended; memories have been reset before."""
        obs, state = jax.vmap(self.env.reset_env, in_axes=(0, None))(keys, params)

        def leaf(fresh: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        return jax.tree.map(leaf, Carry(state, obs, carry.memory), carry)

    def _recorded(self, policy: Policy, obs: Observation, acted: Acted) -> tuple[Carry, Recorded]:
        """Environment after a step, and the step; `alive` is set by the caller."""
        scores, mask, info = acted.scores, acted.mask, acted.info
        per_agent = {name: jnp.broadcast_to(info[name], acted.reward.shape) for name in PER_AGENT if name in info}
        log_prob = self.actor.log_prob
        shares = has_probabilities(self.env, self.actor)
        step = Recorded(
            alive=jnp.ones((), bool),
            obs=obs,
            next_obs=acted.carry.obs,
            action=acted.action,
            reward=acted.reward,
            terminated=acted.terminated,
            truncated=acted.truncated,
            agent_terminated=per_agent.get("agent_terminated"),
            active=per_agent.get("active"),
            mask=mask,
            log_prob=None if log_prob is None else log_prob(scores, mask, acted.raw),
            probability=probabilities(self.env, self.actor, scores, acted.memory, mask) if shares else None,
            q_value=scores.get(Q),
            value=None if self.value is None else self.value(policy, acted.memory, obs),
        )
        return acted.carry, step
