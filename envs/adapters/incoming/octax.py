"""Octax's games of the CHIP-8: `envs.make("octax/brix")`."""

import contextlib
import functools
import pkgutil
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from envs.adapters.incoming import suite
from envs.adapters.incoming.suite import SuiteEnvironment, Transition
from envs.base import MetricRule, spaces
from envs.pytrees import Action, Params, State
from envs.settings import own_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "octax", "octax>=0.1.1,<0.2"
_FIELDS = ("fps", "frame_skip", "instruction_frequency")


@dataclass(frozen=True)
class OctaxEnvironment(SuiteEnvironment):
    """One of Octax's games, see `SuiteEnvironment`.

    An observation has the last `frame_skip` frames of the display, bool `[32, 64, frame_skip]`: rows, columns, frames.
    The suite's own has the frames first and the columns second. An action is a key of the game, and the last one is
    none. The first state is always the same but for the random numbers that the game draws.

    The metric `score` is the game's number from which the suite computes rewards. It is a register of 8 bits, so a
    reward is wrong where it passes 255 or, in "airplane", falls to 0.
    """

    library = "octax"

    @property
    def inner(self) -> Any:
        """The game as Octax creates it."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """The suite's own, 4,500 steps."""
        return self.inner.max_num_steps_per_episodes

    @property
    def metric_rules(self) -> dict[str, MetricRule]:
        """The last score of an episode."""
        return {"score": "last"}

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The suite's reset: the game after its first instructions."""
        del params
        inner, obs, _ = self.inner.reset(key)
        return _image(obs), inner

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """The suite's step; the game draws random numbers from its state."""
        del key, params
        with _quiet():
            inner, obs, reward, terminated, _, info = self.inner.step(inner, action)
        return Transition(_image(obs), inner, reward, terminated, {"score": info["score"]})

    def action_space(self, params: Params = None) -> spaces.Discrete:
        """The game's keys, and none."""
        return spaces.Discrete(self.inner.num_actions)

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The suite's own image."""
        del params
        suite.show(ax, self.inner.render(state.inner))


def environment_ids() -> tuple[str, ...]:
    """The suite's names; games with levels have one for each level.

    Raises:
      ImportError: Octax is not installed, or has another version.
    """
    return _names()


def make(env_id: str, **fields: object) -> OctaxEnvironment:
    """The adapter of one game; see `envs.make`.

    Raises:
      ImportError: Octax is not installed, or has another version.
      ValueError: The suite's constructor has no such argument.
      TypeError: A field's value cannot be hashed.
    """
    _octax()
    return suite.make(OctaxEnvironment, env_id, fields, _FIELDS)


@functools.cache
def _names() -> tuple[str, ...]:
    package = _octax()
    roms = {path.stem for path in Path(package.get_rom_path(".")).glob("*.ch8")}
    names: list[str] = []
    for module in pkgutil.iter_modules(package.__path__):
        levels = [rom for rom in roms if re.fullmatch(rf"{module.name}\d+", rom)]
        names += sorted(levels, key=lambda level: (len(level), level)) or [module.name]
    return tuple(names)


@functools.cache
@own_settings()
def _inner(env: OctaxEnvironment) -> Any:
    with jax.ensure_compile_time_eval(), _quiet():
        return _octax().create_environment(env.env_id, render_mode="rgb_array", **dict(env.fields))[0]


def _image(frames: jax.Array) -> jax.Array:
    """Frames `[frames, columns, rows]` as channels of one image."""
    return jnp.transpose(frames, (2, 1, 0))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leaves out JAX's warnings of the suite's implicit casts to bytes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        yield


def _octax() -> Any:
    return suite.imported("octax.environments", _EXTRA, REQUIREMENT)
