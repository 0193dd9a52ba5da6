"""The parameters of a crowd that may be swept."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.base import EnvParams
from envs.crowd.presets import PRESETS
from envs.crowd.rewards import Weights
from envs.crowd.scenarios import CircleParams
from envs.crowd.state import Traits
from envs.errors import UserValueError
from envs.pytrees import Number

__all__ = ["CrowdParams", "Range", "draw_traits"]

_POSITIVE = ("radius", "mass", "max_speed", "max_acceleration", "dt", "sight_radius", "ray_length")
_USUAL = PRESETS["2022"]


def _is_number(value: object) -> bool:
    """Whether a value is concrete: tracers and placeholders are not."""
    return isinstance(value, int | float | np.ndarray | np.generic)


@struct.dataclass
class Range:
    """Uniform between two numbers, or constant where they are equal.

    Attributes:
      low, high: Bounds, traced.
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        if _is_number(self.low) and _is_number(self.high) and not np.all(np.asarray(self.low) <= self.high):
            raise UserValueError(f"low must not be above high, got {self.low} and {self.high}")

    def draw(self, key: jax.Array, num_agents: int) -> jax.Array:
        """One number for each agent, `[N]`."""
        return self.low + (self.high - self.low) * jax.random.uniform(key, (num_agents,))


@struct.dataclass
class CrowdParams(EnvParams):
    """The parameters of a crowd; every leaf is traced. The defaults are those of 2022 on a circle.

    Attributes:
      num_present: Number of agents that take part, the first ones; at most num_agents.
      scenario: Parameters of the scenario.
      weights, later_weights: Weights of the reward, before and after `switch_env_steps` environment steps of training.
      switch_env_steps: Number of environment steps before the second stage; infinity without one. See
        `Crowd.params_at`.
      ramp_env_steps: Number of environment steps after `switch_env_steps` over which the weights change linearly to
        the later ones; 0 for at once.
      radius: Radius in m of a body of mass 1.
      mass: Mass in kg of the rigid bodies.
      size_mass: Random scale of bodies, whose radii grow with its third root; agents observe it.
      resting, walking: Energy constants e_s in J/(kg s) and e_w in J s/(kg m^2).
      max_speed: Largest speed in m/s.
      max_acceleration: Largest acceleration in m/s^2.
      turn_rate: Rate in rad per substep at full turn.
      dt: Length of a substep in s.
      sight_radius: Largest distance in m at which neighbours are seen.
      sight_angle: Angle in rad to either side of the heading; pi sees all around.
      ray_length: Length of rays in m.
      field_of_view: Angle in rad of rays to either side of the heading.
      max_steps_in_episode: Number of decisions.
    """

    num_present: Any = 12
    scenario: Any = CircleParams()
    weights: Weights = _USUAL.weights
    later_weights: Weights = _USUAL.weights
    switch_env_steps: Any = float("inf")
    ramp_env_steps: Any = 0.0
    radius: Any = 0.2
    mass: Any = 1.0
    size_mass: Range = Range(*_USUAL.size_mass)
    resting: Range = Range(*_USUAL.resting)
    walking: Range = Range(*_USUAL.walking)
    max_speed: Any = _USUAL.max_speed
    max_acceleration: Any = _USUAL.max_acceleration
    turn_rate: Any = _USUAL.turn_rate
    dt: Any = _USUAL.dt
    sight_radius: Any = 10.0
    sight_angle: Any = float(np.pi)
    ray_length: Any = _USUAL.ray_length
    field_of_view: Any = float(np.pi / 2)
    max_steps_in_episode: Any = 200

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = vars(self)[name]
            if _is_number(value) and not np.all(np.asarray(value) > 0):
                raise UserValueError(f"{name} must be above 0, got {value}")
        if _is_number(self.ramp_env_steps) and not np.all(np.asarray(self.ramp_env_steps) >= 0):
            raise UserValueError(f"ramp_env_steps must be at least 0, got {self.ramp_env_steps}")
        for name in ("size_mass", "resting", "walking"):
            low = vars(self)[name]
            if isinstance(low, Range) and _is_number(low.low) and not np.all(np.asarray(low.low) > 0):
                raise UserValueError(f"{name}.low must be above 0, got {low.low}")


def draw_traits(key: jax.Array, params: CrowdParams, num_agents: int) -> Traits:
    """Draw the traits of an episode's agents.

    Args:
      key: Random key.
      params: Parameters, traced.
      num_agents: Number of agents, N.
    """
    keys = jax.random.split(key, 3)
    size_mass = params.size_mass.draw(keys[0], num_agents)
    one = jnp.ones(num_agents)
    traits = Traits(
        radius=params.radius * jnp.cbrt(size_mass),
        mass=params.mass * one,
        size_mass=size_mass,
        resting=params.resting.draw(keys[1], num_agents),
        walking=params.walking.draw(keys[2], num_agents),
        max_speed=params.max_speed * one,
        max_acceleration=params.max_acceleration * one,
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), traits)


def switched(params: CrowdParams, env_steps: Number) -> CrowdParams:
    """The parameters with the reward weights that apply after this many environment steps of training."""
    since = jnp.asarray(env_steps, jnp.float32) - params.switch_env_steps
    ramp = jnp.asarray(params.ramp_env_steps, jnp.float32)
    part = jnp.where(since < ramp, since / jnp.where(ramp > 0, ramp, 1.0), 1.0)
    share = jnp.where(since < 0, 0.0, part)  # exact at both ends
    weights = jax.tree.map(
        lambda first, second: (1 - share) * jnp.float32(first) + share * jnp.float32(second),
        params.weights,
        params.later_weights,
    )
    return dataclasses.replace(params, weights=weights)
