"""POPGym Arcade's games on pixels: `envs.make("popgym_arcade/BreakoutEasy")`."""

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import struct

from envs import base
from envs.adapters.incoming import suite
from envs.adapters.incoming.gymnax_like import GymnaxLikeEnvironment
from envs.adapters.incoming.suite import SuiteParams, Transition
from envs.arguments import check_choice, check_flag
from envs.base import spaces
from envs.errors import MissingPackageError, installing
from envs.pytrees import Observation, Params, PyTree, State
from envs.settings import own_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "popgym-arcade", "popgym-arcade>=0.0.7,<0.1"
INSTALLING = f"{installing(_EXTRA)}, then pip install --no-deps '{REQUIREMENT}'"


@struct.dataclass
class ArcadeCartPoleParams(base.EnvParams):
    """The parameters of CartPole.

    Attributes:
      gravity: Acceleration of gravity.
      masscart, masspole: Masses of the cart and of the pole.
      length: Half the length of the pole.
      force_mag: Force of a push.
      tau: Seconds of a step.
      theta_threshold_radians, x_threshold: Angle of the pole and position of the cart beyond which it has failed.
      max_steps_in_episode: Time limit.
    """

    gravity: float = 9.8
    masscart: float = 1.0
    masspole: float = 0.1
    length: float = 0.5
    force_mag: float = 10.0
    tau: float = 0.02
    theta_threshold_radians: float = math.pi / 15
    x_threshold: float = 2.4
    max_steps_in_episode: int = 200


@dataclass(frozen=True)
class PopgymArcadeEnvironment(GymnaxLikeEnvironment):
    """One of POPGym Arcade's games, see `SuiteEnvironment`.

    An observation is an image, uint8 `[128, 128, 3]`. With the static field `partial_obs=True` it is that of the twin
    that hides a part of the state, and with `obs_size=256` it is larger. The physics of CartPole are traced parameters.

    An episode terminates where the suite's `info["terminated"]` says so without a time limit.
    """

    library = "popgym_arcade"

    @property
    def inner(self) -> Any:
        """The game as POPGym Arcade creates it."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """The suite's own, by the size of the game."""
        for name in ("max_steps_in_episode", "max_episode_length"):
            if hasattr(self.inner, name):
                return int(getattr(self.inner, name))
        raise AttributeError(name)

    @property
    def default_params(self) -> Any:
        """The suite's time limit, and in CartPole its physics."""
        if "CartPole" in self.env_id:
            return ArcadeCartPoleParams(max_steps_in_episode=self.time_limit)
        return SuiteParams(max_steps_in_episode=self.time_limit)

    def own(self, params: Params) -> Any:
        """The suite's parameters, without a time limit."""
        own = self.inner.default_params
        if not isinstance(params, ArcadeCartPoleParams):
            return own.replace(max_steps_in_episode=suite.NO_LIMIT) if hasattr(own, "max_steps_in_episode") else own
        fields = (field.name for field in dataclasses.fields(params) if field.name != "max_steps_in_episode")
        return own.replace(
            total_mass=params.masscart + params.masspole,
            polemass_length=params.masspole * params.length,
            **{name: getattr(params, name) for name in fields},
        )

    def transition(
        self, obs: Observation, inner: Any, reward: Any, done: Any, info: PyTree, params: Params
    ) -> Transition:
        """The step; `done` has the time limit in it, and `info["terminated"]` has not."""
        del done, params
        return Transition(obs, inner, reward, info["terminated"])

    def observation_space(self, params: Params) -> spaces.Box:
        """An image, uint8 `[obs_size, obs_size, 3]`."""
        size = self.inner.obs_size
        return spaces.Box(0, 255, (size, size, 3), np.dtype(np.uint8))

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The observation."""
        suite.show(ax, self.inner.get_obs(state.inner, self.own(params), jax.random.key(0)))


def environment_ids() -> tuple[str, ...]:
    """The suite's names.

    Raises:
      ImportError: POPGym Arcade is not installed, or has another version.
    """
    return tuple(_arcade().REGISTERED_ENVIRONMENTS)


def make(env_id: str, **fields: object) -> PopgymArcadeEnvironment:
    """The adapter of one game; see `envs.make`.

    Raises:
      ImportError: POPGym Arcade is not installed, or has another version.
      ValueError: The suite's constructor has no such argument, or a field's value.
      TypeError: A field's value cannot be hashed.
    """
    _arcade()
    check_flag("partial_obs", fields.get("partial_obs", False))
    check_choice("obs_size", fields.get("obs_size", 128), (128, 256))
    return suite.make(PopgymArcadeEnvironment, env_id, fields, ("obs_size", "partial_obs"))


@functools.cache
@own_settings()
def _inner(env: PopgymArcadeEnvironment) -> Any:
    with jax.ensure_compile_time_eval():
        task, _ = _arcade().make(env.env_id, **dict(env.fields))
    # The suite was written for another base class. gymnax's `discount` asks for a method that the suite lacks; it is an
    # entry of `info` that nothing reads.
    task.discount = lambda state, params: 1.0
    return task


def _arcade() -> Any:
    try:
        return suite.imported("popgym_arcade.registration", _EXTRA, REQUIREMENT)
    except MissingPackageError as error:
        raise MissingPackageError(
            f"popgym_arcade/... takes {REQUIREMENT} without its requirement stable-gymnax, which replaces gymnax: "
            f"{INSTALLING} ({error.__cause__ or error})."
        ) from error
