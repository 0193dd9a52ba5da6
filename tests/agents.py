"""A small crowd with exactly known episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.base import Environment, EnvParams, EnvState, MetricRule, spaces

NUM_ACTIONS = 3


@struct.dataclass
class CrowdParams(EnvParams):
    """Parameters of the crowd.

    Attributes:
      pay: Reward of one unit of action.
      max_steps_in_episode: Time limit.
    """

    pay: jax.Array | float = 1.0
    max_steps_in_episode: jax.Array | int = 100


@struct.dataclass
class CrowdState(EnvState):
    """The crowd.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      total: Sum of each agent's actions, float32 `[N]`.
    """

    time: jax.Array
    total: jax.Array


@dataclass(frozen=True)
class Crowd(Environment):
    """A crowd in which agent i acts for i + 2 steps and then stands still; the episode ends with the last agent.

    An active agent i earns `pay * (i + 1) * action`, others 0. Observations `[N, 2]`: the share
    of the agent's steps that are left, and its actions' sum as a share of the largest possible.
    Metrics: `acting` (number of agents that act, summed), `share` (the same as a share of N, averaged) and `total`
      (mean over agents of the sum of their actions, last value).

    Attributes:
      num_agents: Number of agents, N.
      masked: Whether agent i may not take the action (time + i) modulo 3.
    """

    num_agents: int = 2
    masked: bool = False

    @property
    def default_params(self) -> CrowdParams:
        return CrowdParams()

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        return {"acting": "sum", "share": "mean", "total": "last"}

    def reset_env(self, key: jax.Array, params: CrowdParams) -> tuple[jax.Array, CrowdState]:
        del key, params
        state = CrowdState(jnp.zeros((), jnp.int32), jnp.zeros(self.num_agents, jnp.float32))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: CrowdState, action: jax.Array, params: CrowdParams
    ) -> tuple[jax.Array, CrowdState, jax.Array, jax.Array, dict[Any, Any]]:
        del key
        active = state.time < self._steps()
        gain = jnp.where(active, action.astype(jnp.float32), 0.0)
        state = CrowdState(state.time + 1, state.total + gain)
        reward = jnp.asarray(params.pay, jnp.float32) * jnp.arange(1, self.num_agents + 1) * gain
        finished = state.time >= self._steps()
        share = jnp.mean(active.astype(jnp.float32))
        metrics = {"acting": jnp.sum(active), "share": share, "total": jnp.mean(state.total)}
        info = {"active": active, "agent_terminated": finished, "metrics": metrics}
        return self._observe(state), state, reward, jnp.all(finished), info

    def action_mask(self, state: CrowdState, params: CrowdParams) -> jax.Array | None:
        del params
        if not self.masked:
            return None
        forbidden = (state.time + jnp.arange(self.num_agents)) % NUM_ACTIONS
        return jnp.arange(NUM_ACTIONS) != forbidden[:, None]

    def action_space(self, params: CrowdParams | None = None) -> spaces.Discrete:
        del params
        return spaces.Discrete(NUM_ACTIONS)

    def observation_space(self, params: CrowdParams | None = None) -> spaces.Box:
        del params
        return spaces.Box(0.0, 1.0, (2,))

    def _steps(self) -> jax.Array:
        return jnp.arange(2, self.num_agents + 2)

    def _observe(self, state: CrowdState) -> jax.Array:
        steps = self._steps()
        left = jnp.maximum(steps - state.time, 0) / steps
        return jnp.stack([left, state.total / (steps * (NUM_ACTIONS - 1))], axis=-1).astype(jnp.float32)


@dataclass(frozen=True)
class Outlived(Crowd):
    """A crowd whose last agent goes on when the episode ends, so that its value is not 0 there."""

    def step_env(self, key: Any, state: CrowdState, action: Any, params: Any) -> Any:
        *stepped, terminated, info = super().step_env(key, state, action, params)
        outlives = jnp.arange(self.num_agents) == self.num_agents - 1
        return *stepped, terminated, info | {"agent_terminated": info["agent_terminated"] & ~outlives}
