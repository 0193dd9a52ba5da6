"""MuJoCo Playground's environments: `envs.make("playground/CartpoleBalance")`."""

import copy
import functools
import subprocess
from typing import Any

import jax

from envs.adapters.incoming import suite
from envs.adapters.incoming.physics import PhysicsEnvironment, PhysicsParams
from envs.errors import MissingPackageError
from envs.settings import own_settings

REQUIREMENT = "playground>=0.2,<0.3"


class PlaygroundEnvironment(PhysicsEnvironment):
    """One of MuJoCo Playground's environments, without Playground's wrappers; see `PhysicsEnvironment`.

    The entries of a task's configuration are static fields, `envs.make("playground/PointMass", ctrl_dt=0.04)`.
    `impl` is "jax" here, which runs on any device; Playground's own default "warp" needs an NVIDIA GPU. Robots (tasks
    outside the DeepMind control suite) load their models from the network the first time. Of observations with the
    entries "state" and "privileged_state", an algorithm of jaxrl shows the first to its actor and the second to its
    critic, see `jaxrl.PPOConfig`.
    """

    library = "playground"

    @property
    def inner(self) -> Any:
        """The environment as Playground creates it."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """The number of steps in the task's configuration."""
        return self.inner._config.episode_length

    def scaled(self, params: PhysicsParams) -> Any:
        """A copy whose model has these parameters."""
        task = copy.copy(self.inner)
        model = task.mjx_model
        task._mjx_model = model.tree_replace(
            {
                "opt.gravity": model.opt.gravity * params.gravity_scale,
                "geom_friction": model.geom_friction * params.friction_scale,
                "actuator_gear": model.actuator_gear * params.gear_scale,
            }
        )
        return task


def environment_ids() -> tuple[str, ...]:
    """Playground's names.

    Raises:
      ImportError: Playground is not installed.
    """
    return tuple(_playground().ALL_ENVS)


def make(env_id: str, **fields: object) -> PlaygroundEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ImportError: Playground is not installed, or a robot of it cannot be downloaded.
      ValueError: The task's configuration has no such entry.
      TypeError: A field's value cannot be hashed.
    """
    known = tuple(_flat(_playground().get_default_config(env_id)))
    return suite.make(PlaygroundEnvironment, env_id, fields, known)


@functools.cache
@own_settings()
def _inner(env: PlaygroundEnvironment) -> Any:
    registry = _playground()
    overrides: dict[str, Any] = dict(env.fields)
    if "impl" in registry.get_default_config(env.env_id):
        overrides = {"impl": "jax", **overrides}
    try:
        with jax.ensure_compile_time_eval():
            return registry.load(env.env_id, config_overrides=overrides)
    except (subprocess.CalledProcessError, OSError) as error:
        if env.env_id in registry.dm_control_suite.ALL_ENVS:  # whose models are in the package
            raise
        raise MissingPackageError(
            f"playground/{env.env_id} takes the robots of mujoco_menagerie, which MuJoCo Playground downloads the "
            f"first time; this needs git and a network, and failed: {error}"
        ) from error


def _flat(config: Any, prefix: str = "") -> list[str]:
    names = []
    for name, value in config.items():
        names += _flat(value, f"{prefix}{name}.") if hasattr(value, "items") else [prefix + name]
    return names


def _playground() -> Any:
    return suite.imported("mujoco_playground", "playground", REQUIREMENT).registry
