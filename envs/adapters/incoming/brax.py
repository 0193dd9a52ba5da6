"""Brax's environments: `envs.make("brax/ant")`, `envs.make("brax/ant", backend="spring")`."""

import copy
import functools
import inspect
from typing import Any

import jax

from envs.adapters.incoming import suite
from envs.adapters.incoming.physics import PhysicsEnvironment, PhysicsParams
from envs.settings import own_settings

REQUIREMENT = "brax>=0.14.2,<0.15"

# Brax's own wrapper has this limit by default.
_TIME_LIMIT = 1000


class BraxEnvironment(PhysicsEnvironment):
    """One of Brax's environments, without Brax's wrappers; see `PhysicsEnvironment`.

    The arguments of Brax's constructor are static fields, among them the physics `backend` ("generalized",
    "positional", "spring" or "mjx"); "spring" is the fast one on a CPU.
    """

    library = "brax"

    @property
    def inner(self) -> Any:
        """The environment as Brax creates it."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """1,000 steps, as in Brax."""
        return _TIME_LIMIT

    def scaled(self, params: PhysicsParams) -> Any:
        """A copy whose system has these parameters."""
        task = copy.copy(self.inner)
        system = task.sys
        task.sys = system.tree_replace(
            {
                "gravity": system.gravity * params.gravity_scale,  # in Brax's own backends
                "opt.gravity": system.opt.gravity * params.gravity_scale,  # in MJX
                "geom_friction": system.geom_friction * params.friction_scale,
                "actuator.gear": system.actuator.gear * params.gear_scale,
                "actuator_gear": system.actuator_gear * params.gear_scale,
            }
        )
        return task


def environment_ids() -> tuple[str, ...]:
    """The names of Brax's environments, except "fast", a test double without physics.

    Raises:
      ImportError: Brax is not installed.
    """
    return tuple(name for name in _brax()._envs if name != "fast")


def make(env_id: str, **fields: object) -> BraxEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ImportError: Brax is not installed.
      ValueError: Brax's constructor does not accept a field or its value.
      TypeError: A field's value cannot be hashed.
    """
    parameters = inspect.signature(_brax()._envs[env_id].__init__).parameters
    known = *(name for name in parameters if name not in ("self", "kwargs")), "n_frames"
    return suite.make(BraxEnvironment, env_id, fields, known)


@functools.cache
@own_settings()
def _inner(env: BraxEnvironment) -> Any:
    with jax.ensure_compile_time_eval():
        return _brax().get_environment(env.env_id, **dict(env.fields))


def _brax() -> Any:
    return suite.imported("brax.envs", "brax", REQUIREMENT)
