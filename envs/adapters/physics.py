"""Environments of physics engines, whose step takes a whole state and returns the next: Brax and MuJoCo Playground."""

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.adapters.casting import cast, held_types
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.spelling import near

Kind = TypeVar("Kind", bound="PhysicsEnvironment")

# What is a place, and so is of interest where an episode ends.
_PLACES = ("x_position", "y_position", "distance_from_origin")


@struct.dataclass
class PhysicsParams(base.EnvParams):
    """What is traced about a physical task, each a factor of the task's own numbers.

    Attributes:
      gravity_scale: of the gravity.
      friction_scale: of the friction of every body's surface; pairs of bodies with a friction of their own keep it.
      gear_scale: of the gear of every actuator's transmission. A motor is so much stronger; a position servo turns to
        1 / gear_scale of the place, with gear_scale squared of the stiffness.
      max_steps_in_episode: time limit.
    """

    gravity_scale: Any = 1.0
    friction_scale: Any = 1.0
    gear_scale: Any = 1.0
    max_steps_in_episode: int = 1000


@struct.dataclass
class PhysicsState(base.EnvState):
    """An episode.

    Attributes:
      time: steps taken.
      inner: the engine's own state, with its observation, metrics and info.
    """

    time: jax.Array
    inner: Any


@dataclass(frozen=True)
class PhysicsEnvironment(base.Environment):
    """A task of a physics engine; a subclass says which engine.

    Dynamics, rewards and observations are the task's own. `terminated` is what the task calls `done`; none of the
    engine's wrappers is used, and the time limit is `max_steps_in_episode` alone, which truncates. The task's metrics
    are `info["metrics"]`, with "_" for "/": shares of the reward are summed over an episode, places are what they
    are at its end, anything else is a mean.

    Attributes:
      env_id: the engine's name of the task.
      fields: what the task is made with, as sorted (name, value) pairs.
    """

    env_id: str
    fields: tuple[tuple[str, Hashable], ...] = ()

    @property
    def library(self) -> str:
        """The prefix of the names that `envs.make` takes."""
        raise NotImplementedError

    @property
    def inner(self) -> Any:
        """The task as its engine makes it, the same object every time."""
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
        """Sums of rewards, last places, means of the rest."""
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
        """From -1 to 1, which the task scales."""
        return spaces.Box(-1.0, 1.0, (self.inner.action_size,), jnp.float32)

    def observation_space(self, params: PhysicsParams) -> spaces.Space:
        """Without bounds."""
        return _space(_types(self)[0].obs)


def make(
    kind: Callable[[str, tuple[tuple[str, Hashable], ...]], Kind],
    env_id: str,
    fields: Mapping[str, object],
    known: tuple[str, ...],
) -> Kind:
    """A task of an engine, once it is known to take these fields.

    Args:
      kind: the engine's subclass.
      env_id: the task.
      fields: static.
      known: names of the fields that the task takes.

    Raises:
      ValueError: the task takes no such field.
      TypeError: a field's value cannot be hashed.
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
def _types(env: PhysicsEnvironment) -> tuple[Any]:
    """The types of the task's state; a tuple, as nothing else of it can be compared."""
    with jax.ensure_compile_time_eval():
        key = jax.eval_shape(lambda: jax.random.key(0))
        action = jax.ShapeDtypeStruct((env.inner.action_size,), jnp.float32)
        first = jax.eval_shape(env.inner.reset, key)

        def step(state: Any) -> Any:
            return jax.eval_shape(functools.partial(_step, env.inner), state, action)

        return (held_types(first, step),)


def _step(task: Any, state: Any, action: jax.Array) -> Any:
    # Some tasks write into the dictionaries that they are given.
    return task.step(state.replace(metrics=dict(state.metrics), info=dict(state.info)), action)


def _rule(name: str) -> base.MetricRule:
    if "reward" in name:
        return "sum"
    return "last" if name in _PLACES else "mean"


def _space(obs: Any) -> spaces.Space:
    if isinstance(obs, Mapping):
        return spaces.Dict({name: _space(part) for name, part in obs.items()})
    return spaces.Box(-jnp.inf, jnp.inf, obs.shape, obs.dtype)
