"""Craftax and Craftax-Classic: `envs.make("craftax/Craftax-Classic-Symbolic-v1")`."""

import contextlib
import dataclasses
import functools
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import struct

from envs import base
from envs.adapters.incoming import suite
from envs.adapters.incoming.gymnax_like import GymnaxLikeEnvironment
from envs.adapters.incoming.suite import Transition
from envs.base import MetricRule
from envs.pytrees import Observation, Params, PyTree, State
from envs.settings import own_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "craftax", "craftax>=1.6.1,<1.7"
_NAMES = "Craftax-Classic-Symbolic-v1", "Craftax-Symbolic-v1"


@struct.dataclass
class ClassicParams(base.EnvParams):
    """The parameters of Craftax-Classic.

    Attributes:
      day_length: Number of steps of a day.
      always_diamond: Whether each world has at least one diamond.
      zombie_health, cow_health, skeleton_health: Health of new creatures.
      mob_despawn_distance: Distance from the player, in cells, at which creatures vanish.
      spawn_cow_chance, spawn_zombie_base_chance, spawn_zombie_night_chance, spawn_skeleton_chance: Chances per step
        that a creature appears; the night's chance of zombies is added to the base.
      max_steps_in_episode: Time limit.
    """

    day_length: int = 300
    always_diamond: Any = True
    zombie_health: int = 5
    cow_health: int = 3
    skeleton_health: int = 3
    mob_despawn_distance: int = 14
    spawn_cow_chance: float = 0.1
    spawn_zombie_base_chance: float = 0.02
    spawn_zombie_night_chance: float = 0.1
    spawn_skeleton_chance: float = 0.05
    max_steps_in_episode: int = 10_000


@struct.dataclass
class CraftaxParams(base.EnvParams):
    """The parameters of Craftax.

    Attributes:
      day_length: Number of steps of a day.
      always_diamond: Whether each overworld has at least one diamond.
      mob_despawn_distance: Distance from the player, in cells, at which creatures vanish.
      max_attribute: Largest dexterity, strength and intelligence.
      god_mode: Whether the player cannot be hurt, for debugging.
      max_steps_in_episode: Time limit.
    """

    day_length: int = 300
    always_diamond: Any = False
    mob_despawn_distance: int = 14
    max_attribute: int = 5
    god_mode: Any = False
    max_steps_in_episode: int = 100_000


@dataclass(frozen=True)
class CraftaxEnvironment(GymnaxLikeEnvironment):
    """Craftax or Craftax-Classic with observations of symbols, see `SuiteEnvironment`.

    Death terminates, and so does lava in Classic and the defeat of the boss in the full game. The entries of the
    suite's `StaticEnvParams`, such as `map_size`, are static fields, and those of its `EnvParams` are traced. Metrics
    are 1 for each achievement of the episode, otherwise 0, and `achievements`, their number.
    """

    library = "craftax"

    @property
    def inner(self) -> Any:
        """The environment as Craftax creates it, without its automatic reset."""
        return _inner(self)

    @property
    def default_params(self) -> Any:
        """The suite's parameters, with its time limit."""
        return ClassicParams() if self._classic else CraftaxParams()

    @property
    def metric_rules(self) -> dict[str, MetricRule]:
        """The last values of an episode."""
        return dict.fromkeys((*self._achievements, "achievements"), "last")

    def own(self, params: Params) -> Any:
        """The suite's parameters, without a time limit."""
        fields = (field.name for field in dataclasses.fields(params) if field.name != "max_steps_in_episode")
        return self.inner.default_params.replace(
            max_timesteps=suite.NO_LIMIT, **{name: getattr(params, name) for name in fields}
        )

    def transition(
        self, obs: Observation, inner: Any, reward: Any, done: Any, info: PyTree, params: Params
    ) -> Transition:
        """The step; `done` leaves the time limit out, which `own` removes."""
        del info, params
        reached = inner.achievements
        metrics = {name: reached[place] for name, place in self._achievements.items()}
        return Transition(obs, inner, reward, done, {**metrics, "achievements": reached.sum()})

    def return_range(self, params: Params) -> tuple[Any, Any]:
        """From a loss of all health, 0.1 for each of 9, to all achievements, and more health by strength."""
        if self._classic:
            return -0.9, float(len(self._achievements))
        with jax.ensure_compile_time_eval():
            rewards = float(np.sum(_craftax("craftax.craftax.constants").ACHIEVEMENT_REWARD_MAP))
        return -0.9, rewards + 0.1 * np.maximum(np.asarray(params.max_attribute, np.float64) - 1, 0)

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The suite's own image."""
        del params
        suite.show(ax, np.asarray(_renderer(self)(state.inner), np.float32) / 255)

    @property
    def _classic(self) -> bool:
        return "Classic" in self.env_id

    @property
    def _achievements(self) -> dict[str, int]:
        """Places of the achievements, by their names in lower case."""
        constants = _craftax(f"{_package(self)}.constants")
        return {each.name.lower(): each.value for each in constants.Achievement}


def environment_ids() -> tuple[str, ...]:
    """The suite's names of games with observations of symbols.

    Raises:
      ImportError: Craftax is not installed, or has another version.
    """
    _craftax("craftax.craftax_env")
    return _NAMES


def make(env_id: str, **fields: object) -> CraftaxEnvironment:
    """The adapter of one game; see `envs.make`.

    Raises:
      ImportError: Craftax is not installed, or has another version.
      ValueError: The suite's static parameters have no such entry.
      TypeError: A field's value cannot be hashed.
    """
    own = _craftax("craftax.craftax_env").make_craftax_env_from_name(env_id, auto_reset=False).static_env_params
    return suite.make(CraftaxEnvironment, env_id, fields, tuple(field.name for field in dataclasses.fields(own)))


@functools.cache
@own_settings()
def _inner(env: CraftaxEnvironment) -> Any:
    with jax.ensure_compile_time_eval():
        task = _craftax("craftax.craftax_env").make_craftax_env_from_name(env.env_id, auto_reset=False)
        return type(task)(task.static_env_params.replace(**dict(env.fields)))


@functools.cache
def _renderer(env: CraftaxEnvironment) -> Any:
    """The suite's function from a state to an image, whose textures it reads and keeps in a file of its package."""
    constants, renderer = (_craftax(f"{_package(env)}.{name}") for name in ("constants", "renderer"))
    with own_settings(), contextlib.redirect_stdout(io.StringIO()):
        return jax.jit(renderer.make_craftax_pixel_renderer(constants.BLOCK_PIXEL_SIZE_IMG))


def _package(env: CraftaxEnvironment) -> str:
    return "craftax.craftax_classic" if "Classic" in env.env_id else "craftax.craftax"


def _craftax(module: str) -> Any:
    return suite.imported(module, _EXTRA, REQUIREMENT)
