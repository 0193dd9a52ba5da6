"""The numbers of a crowd that may be swept."""

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

__all__ = ["CrowdParams", "Range", "draw_traits"]

_POSITIVE = ("radius", "mass", "max_speed", "max_acceleration", "dt", "sight_radius", "ray_length")
_USUAL = PRESETS["2022"]


def _is_number(value: Any) -> bool:
    """Whether a value is there to be looked at: tracers and placeholders are not."""
    return isinstance(value, int | float | np.ndarray | np.generic)


@struct.dataclass
class Range:
    """Uniform between two numbers, or always the same one where they are equal.

    Attributes:
      low, high: traced.
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        if _is_number(self.low) and _is_number(self.high) and not np.all(np.asarray(self.low) <= self.high):
            raise UserValueError(f"low must not be above high, got {self.low} and {self.high}")

    def draw(self, key: jax.Array, num_agents: int) -> jax.Array:
        """A number for each agent, `[N]`."""
        return self.low + (self.high - self.low) * jax.random.uniform(key, (num_agents,))


@struct.dataclass
class CrowdParams(EnvParams):
    """The numbers of a crowd; every leaf is traced. The defaults are those of 2022 on a circle.

    Attributes:
      num_present: agents that take part, the first ones; num_agents at most.
      scenario: numbers of the scenario.
      weights, later_weights: of the reward, before and after `switch_env_steps` environment steps of training.
      switch_env_steps: infinite without a second stage. See `Crowd.params_at`.
      radius: m, of a body of mass 1.
      mass: kg of the rigid bodies.
      size_mass: random scale of bodies, whose radii grow with its third root; agents observe it.
      resting, walking: energy constants e_s in J/(kg s) and e_w in J s/(kg m^2).
      max_speed: m/s.
      max_acceleration: m/s^2.
      turn_rate: rad per substep at full turn.
      dt: s per substep.
      sight_radius: m, how far neighbours are seen.
      sight_angle: rad to either side of the heading; pi sees all around.
      ray_length: m.
      field_of_view: rad to either side of the heading, of rays.
      max_steps_in_episode: decisions.
    """

    num_present: Any = 12
    scenario: Any = CircleParams()
    weights: Weights = _USUAL.weights
    later_weights: Weights = _USUAL.weights
    switch_env_steps: Any = float("inf")
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
        for name in ("size_mass", "resting", "walking"):
            low = vars(self)[name]
            if isinstance(low, Range) and _is_number(low.low) and not np.all(np.asarray(low.low) > 0):
                raise UserValueError(f"{name}.low must be above 0, got {low.low}")


def draw_traits(key: jax.Array, params: CrowdParams, num_agents: int) -> Traits:
    """Who the agents of an episode are.

    Args:
      key: random.
      params: traced.
      num_agents: N.
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


def switched(params: CrowdParams, env_steps: jax.Array | float) -> CrowdParams:
    """The parameters with the reward weights that hold after so many environment steps of training."""
    later = jnp.asarray(env_steps, jnp.float32) >= params.switch_env_steps
    weights = jax.tree.map(
        lambda first, second: jnp.where(later, jnp.float32(second), jnp.float32(first)),
        params.weights,
        params.later_weights,
    )
    return dataclasses.replace(params, weights=weights)
