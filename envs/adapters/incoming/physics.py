"""Environments of physics engines whose step maps a whole state to the next: Brax and MuJoCo Playground."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.adapters.incoming.suite import SuiteEnvironment, Transition
from envs.arguments import check_at_least
from envs.base import spaces
from envs.settings import own_settings

# Metrics that are positions, whose last value in an episode is of interest.
_PLACES = ("x_position", "y_position", "distance_from_origin")


@struct.dataclass
class PhysicsParams(base.EnvParams):
    """The traced parameters of a physical task, factors of the task's own constants.

    Attributes:
      gravity_scale: Factor of the gravity.
      friction_scale: Factor of the friction of every body's surface; pairs of bodies with their own friction keep it.
      gear_scale: Factor of the gear of every actuator's transmission. A motor is that much stronger; a position servo
        turns to 1 / gear_scale of the position, and has gear_scale squared times the stiffness.
      max_steps_in_episode: Time limit.
    """

    gravity_scale: Any = 1.0
    friction_scale: Any = 1.0
    gear_scale: Any = 1.0
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class PhysicsEnvironment(SuiteEnvironment):
    """A task of a physics engine; a subclass defines the engine.

    Dynamics, rewards and observations are the task's own. `terminated` is the task's `done`; none of the
    engine's wrappers is used, and the time limit is `max_steps_in_episode` alone, which truncates. The task's metrics
    are `info["metrics"]`, with "_" for "/": parts of the reward are summed over an episode, positions have their value
    at its end, and all others are means.

    Attributes:
      env_id: Name of the task in the engine.
      fields: Arguments with which the task is made, as sorted (name, value) pairs.
    """

    def scaled(self, params: PhysicsParams) -> Any:
        """A copy of the task with these parameters."""
        raise NotImplementedError

    @property
    def default_params(self) -> PhysicsParams:
        """The task's own numbers and time limit."""
        return PhysicsParams(max_steps_in_episode=self.time_limit)

    def check_params(self, params: PhysicsParams) -> None:
        """Reject negative factors, which would reverse forces or actuators."""
        check_at_least(params, gravity_scale=0, friction_scale=0, gear_scale=0)

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """Sums of rewards, last values of positions, means of all others."""
        return {name.replace("/", "_"): _rule(name) for name in _metrics(self)}

    def begin(self, key: jax.Array, params: PhysicsParams) -> tuple[Any, Any]:
        """The task's reset."""
        state = self.scaled(params).reset(key)
        return state.obs, state

    def advance(self, key: jax.Array, inner: Any, action: jax.Array, params: PhysicsParams) -> Transition:
        """The task's step, which draws its random numbers from its own state."""
        del key
        # Some tasks write into the dictionaries that they receive.
        inner = inner.replace(metrics=dict(inner.metrics), info=dict(inner.info))
        state = self.scaled(params).step(inner, action)
        metrics = {name.replace("/", "_"): value for name, value in state.metrics.items()}
        return Transition(state.obs, state, state.reward, state.done > 0, metrics)

    def action_space(self, params: PhysicsParams | None = None) -> spaces.Box:
        """Numbers from -1 to 1, which the task scales."""
        return spaces.Box(-1.0, 1.0, (self.inner.action_size,), jnp.float32)


@functools.cache
@own_settings()
def _metrics(env: PhysicsEnvironment) -> tuple[str, ...]:
    """Names of the task's metrics."""
    with jax.ensure_compile_time_eval():
        return tuple(jax.eval_shape(env.inner.reset, jax.eval_shape(lambda: jax.random.key(0))).metrics)


def _rule(name: str) -> base.MetricRule:
    if "reward" in name:
        return "sum"
    return "last" if name in _PLACES else "mean"
