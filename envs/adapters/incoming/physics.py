"""Environments of physics engines whose step maps a whole state to the next: Brax and MuJoCo Playground."""

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.base import spaces
from envs.casting import cast, held_types
from envs.errors import UserTypeError, UserValueError
from envs.settings import own_settings
from envs.spelling import near

Kind = TypeVar("Kind", bound="PhysicsEnvironment")

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


@struct.dataclass
class PhysicsState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of steps taken.
      inner: State of the engine, with its observation, metrics and info.
    """

    time: jax.Array
    inner: Any


@dataclass(frozen=True)
class PhysicsEnvironment(base.Environment):
    """A task of a physics engine; a subclass defines the engine.

    Dynamics, rewards and observations are the task's own. `terminated` is the task's `done`; none of the
    engine's wrappers is used, and the time limit is `max_steps_in_episode` alone, which truncates. The task's metrics
    are `info["metrics"]`, with "_" for "/": parts of the reward are summed over an episode, positions have their value
    at its end, and all others are means.

    Attributes:
      env_id: Name of the task in the engine.
      fields: Arguments with which the task is made, as sorted (name, value) pairs.
    """

    env_id: str
    fields: tuple[tuple[str, Hashable], ...] = ()

    @property
    def library(self) -> str:
        """The prefix of the names that `envs.make` takes."""
        raise NotImplementedError

    @property
    def inner(self) -> Any:
        """The task as its engine creates it, the same object every time."""
        raise NotImplementedError

    @property
    def time_limit(self) -> int:
        """The task's usual time limit."""
        raise NotImplementedError

    def scaled(self, params: PhysicsParams) -> Any:
        """A copy of the task with these parameters."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"{self.library}/{self.env_id}"

    @property
    def default_params(self) -> PhysicsParams:
        """The task's own numbers and time limit."""
        return PhysicsParams(max_steps_in_episode=self.time_limit)

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """Sums of rewards, last values of positions, means of all others."""
        return {name.replace("/", "_"): _rule(name) for name in _types(self)[0].metrics}

    def reset_env(self, key: jax.Array, params: PhysicsParams) -> tuple[Any, PhysicsState]:
        """The task's reset."""
        inner = cast(self.scaled(params).reset(key), _types(self)[0])
        return inner.obs, PhysicsState(jnp.zeros((), jnp.int32), inner)

    def step_env(
        self, key: jax.Array, state: PhysicsState, action: jax.Array, params: PhysicsParams
    ) -> tuple[Any, PhysicsState, jax.Array, jax.Array, dict[Any, Any]]:
        """The task's step, which draws its random numbers from its own state."""
        del key
        inner = cast(_step(self.scaled(params), state.inner, action), _types(self)[0])
        metrics = {name.replace("/", "_"): jnp.float32(value) for name, value in inner.metrics.items()}
        state = PhysicsState(state.time + 1, inner)
        return inner.obs, state, jnp.float32(inner.reward), inner.done > 0, {"metrics": metrics}

    def action_space(self, params: PhysicsParams | None = None) -> spaces.Box:
        """Numbers from -1 to 1, which the task scales."""
        return spaces.Box(-1.0, 1.0, (self.inner.action_size,), jnp.float32)

    def observation_space(self, params: PhysicsParams) -> spaces.Space:
        """Real numbers without bounds."""
        return _space(_types(self)[0].obs)


def make(
    kind: Callable[[str, tuple[tuple[str, Hashable], ...]], Kind],
    env_id: str,
    fields: Mapping[str, object],
    known: tuple[str, ...],
) -> Kind:
    """Create a task of an engine after checking that it accepts these fields.

    Args:
      kind: Subclass for the engine.
      env_id: Name of the task.
      fields: Static fields.
      known: Names of the fields that the task takes.

    Raises:
      ValueError: The task does not accept such a field.
      TypeError: A field's value cannot be hashed.
    """
    env = kind(env_id, tuple(sorted((name, _hashable(value)) for name, value in fields.items())))
    for name, value in env.fields:
        if name not in known:
            hint = near(name, known) or f"; its static fields are {', '.join(known)}."
            raise UserValueError(f"The environment {env.name!r} has no static field {name!r}{hint}")
        if not isinstance(value, Hashable):
            raise UserTypeError(f"{env.name}: the static field {name!r} is {value!r}, which cannot be hashed.")
    _ = env.inner
    return env


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


@functools.cache
@own_settings()
def _types(env: PhysicsEnvironment) -> tuple[Any]:
    """The types of the task's state, in a tuple of one entry."""
    with jax.ensure_compile_time_eval():
        key = jax.eval_shape(lambda: jax.random.key(0))
        action = jax.ShapeDtypeStruct((env.inner.action_size,), jnp.float32)
        first = jax.eval_shape(env.inner.reset, key)

        def step(state: Any) -> Any:
            return jax.eval_shape(functools.partial(_step, env.inner), state, action)

        return (held_types(first, step),)


def _step(task: Any, state: Any, action: jax.Array) -> Any:
    # Some tasks write into the dictionaries that they receive.
    return task.step(state.replace(metrics=dict(state.metrics), info=dict(state.info)), action)


def _rule(name: str) -> base.MetricRule:
    if "reward" in name:
        return "sum"
    return "last" if name in _PLACES else "mean"


def _space(obs: Any) -> spaces.Space:
    if isinstance(obs, Mapping):
        return spaces.Dict({name: _space(part) for name, part in obs.items()})
    return spaces.Box(-jnp.inf, jnp.inf, obs.shape, obs.dtype)
