"""NAVIX's environments: `envs.make("navix/Navix-Empty-5x5-v0")`."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.adapters.incoming import suite
from envs.adapters.incoming.suite import SuiteEnvironment, Transition
from envs.arguments import check_count
from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.errors import UserValueError
from envs.pytrees import Action, DiscountLike, Params, State
from envs.settings import own_settings
from envs.spelling import near_or_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "navix", "navix>=0.7.4,<0.8"
# The static fields, and the module of the suite whose functions they name; None for numbers.
_FIELDS = {
    "max_steps": None,
    "observation_fn": "observations",
    "reward_fn": "rewards",
    "termination_fn": "terminations",
    "transitions_fn": "transitions",
    "action_set": "actions",
}
_RULES = ("reward_fn", "termination_fn")  # the fields on which the returns depend
# Environments that are rejected with a reason instead of being reported as unknown.
REFUSED = tuple(f"Navix-KeyCorridor{size}-v0" for size in ("S3R1", "S3R2", "S3R3", "S4R3", "S5R3", "S6R3"))


@struct.dataclass
class NavixParams(base.EnvParams):
    """The parameters of a task.

    Attributes:
      penality_coeff: Reward that is lost at a termination after the suite's `max_steps` steps, and in proportion
        before.
      max_steps_in_episode: Time limit.
    """

    penality_coeff: float = 0.0
    max_steps_in_episode: int = 100


@dataclass(frozen=True)
class NavixEnvironment(SuiteEnvironment):
    """One of NAVIX's environments, see `SuiteEnvironment`.

    An observation has the kind, the colour and the state or direction of each cell of the grid, all of them choices.
    The goal terminates with a reward of 1, and lava and moving balls where the suite's `termination_fn` has them; in
    DistShift lava has no effect. In GoToDoor the right door terminates as soon as the agent faces it, and nothing tells
    which one it is. The suite's step takes no key: its random numbers follow from the key of the reset.

    Static fields are the suite's `max_steps`, which is the default of `max_steps_in_episode` and the scale of
    `penality_coeff`, and its functions, by name or themselves: `observation_fn` ("symbolic", "symbolic_first_person",
    "categorical", "rgb", ...), `reward_fn`, `termination_fn`, `transitions_fn` and `action_set`.
    """

    library = "navix"

    @property
    def inner(self) -> Any:
        """The environment as NAVIX creates it."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """The suite's `max_steps`, by default 100 whatever the size."""
        return self.inner.max_steps

    @property
    def default_params(self) -> NavixParams:
        """The suite's time limit."""
        return NavixParams(max_steps_in_episode=self.time_limit)

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The suite's reset."""
        del params
        timestep = self.inner.reset(key)
        return timestep.observation, _held(timestep)

    def advance(self, key: jax.Array, inner: Any, action: Action, params: NavixParams) -> Transition:
        """The suite's step without its reset; the type 2 of a step is a termination, and 1 its time limit."""
        del key
        task = self.inner.replace(penality_coeff=params.penality_coeff)
        timestep = task._step(inner.replace(state=_drawable(inner.state)), action)
        return Transition(timestep.observation, _held(timestep), timestep.reward, timestep.step_type == 2)

    def action_space(self, params: Params = None) -> spaces.Discrete:
        """Left, right, forward, pick up, drop, toggle, done; or the actions of another `action_set`."""
        del params
        return spaces.Discrete(len(self.inner.action_set))

    def observation_space(self, params: Params) -> spaces.Space:
        """By default the kinds, colours and states of all cells, `[height, width, 3]`; an image with "rgb"."""
        space: Any = super().observation_space(params)
        kind = dict(self.fields).get("observation_fn", "symbolic")
        if kind in ("symbolic", "symbolic_first_person"):  # kinds 0 to 10, colours 0 to 5, directions 0 to 3
            return MultiDiscrete(np.broadcast_to((11, 6, 4), space.shape), dtype=space.dtype)
        if kind in ("categorical", "categorical_first_person"):  # walls are -1, and cells off the grid 100
            most = 10 if kind == "categorical" else 100
            return MultiDiscrete(np.full(space.shape, most + 2), low=-1, dtype=space.dtype)
        return space

    def return_range(self, params: Params) -> tuple[Any, Any] | None:
        """From 0 to 1, moved by the penalty; None for other functions of reward and termination."""
        if any(name in _RULES for name, _ in self.fields):
            return None
        limit, penalty = (np.asarray(each, np.float64) for each in (params.max_steps_in_episode, params.penality_coeff))
        most = penalty * limit / self.time_limit
        return np.minimum(0.0, -most), 1 + np.maximum(0.0, -most)

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The best return where start and goal are fixed and nothing is in the way; see `envs.Environment.optimum`.

        The goal can be reached after the smallest number of steps and, by waiting, after every larger one. The
        stationary optimum is not known, nor the sophisticated one unless the discount is exponential.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return None
        if any(name not in ("max_steps", "observation_fn") for name, _ in self.fields):
            return None
        if self.env_id in (f"Navix-Empty-{size}x{size}-v0" for size in (5, 6, 8, 16)):
            least = 2 * (self.inner.width - 3) + 1  # from one corner to the other, with one turn
        elif self.env_id in ("Navix-DistShift1-v0", "Navix-DistShift2-v0"):
            least = self.inner.width - 3  # along the first row
        else:
            return None
        params = self.checked_params(params)
        limit = int(params.max_steps_in_episode)
        if limit < least:
            return 0.0
        steps = np.arange(least, limit + 1)
        rewards = 1 - float(params.penality_coeff) * steps / self.time_limit
        curve = discount_curves.of(discount, limit)
        if kind == "sophisticated" and not discount_curves.is_exponential(curve):
            return None
        return max(0.0, float(np.max(curve[steps - 1] * rewards)))

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The suite's own image."""
        del params
        suite.show(ax, _navix().observations.rgb(_drawable(state.inner.state)))


def environment_ids() -> tuple[str, ...]:
    """The suite's names, without those in which every return is 0.

    Raises:
      ImportError: NAVIX is not installed, or has another version.
    """
    return tuple(name for name in _navix().registry() if name not in REFUSED)


def make(env_id: str, **fields: object) -> NavixEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ImportError: NAVIX is not installed, or has another version.
      ValueError: The task has no reward, or the suite has no such field or no function of this name.
      TypeError: A field's value cannot be hashed.
    """
    if env_id in REFUSED:
        raise UserValueError(
            f"navix/{env_id} has no reward: its goal is a ball that no function of NAVIX notices, so that every return "
            "is 0; xminigrid/... and navix/Navix-DoorKey-8x8-v0 have keys and doors."
        )
    return suite.make(NavixEnvironment, env_id, fields, tuple(_FIELDS))


@functools.cache
@own_settings()
def _inner(env: NavixEnvironment) -> Any:
    navix = _navix()
    with jax.ensure_compile_time_eval():
        return navix.make(env.env_id, **{name: _value(navix, name, value) for name, value in env.fields})


def _value(navix: Any, name: str, value: object) -> Any:
    """The value of a field, with the suite's function in place of its name."""
    if name == "max_steps":
        check_count(f"{name} of NAVIX", value)
    if _FIELDS.get(name) is None or not isinstance(value, str):
        return value
    parts = vars(getattr(navix, str(_FIELDS[name])))
    if name == "action_set":
        known = {each: part for each, part in parts.items() if isinstance(part, tuple)}
    else:
        known = {each: part for each, part in parts.items() if getattr(part, "__module__", "").startswith("navix.")}
    if value not in known:
        raise UserValueError(f"{name} of NAVIX is {value!r}{near_or_all(value, known)}")
    return known[value]


def _held(timestep: Any) -> Any:
    """What the next step needs of a step of the suite, without its images of all cells."""
    state = timestep.state.replace(cache=None)
    return timestep.replace(state=state, observation=None, action=None, reward=None, step_type=None, info={})


def _drawable(state: State) -> Any:
    """A state with the images of its cells, which follow from its grid."""
    return state.replace(cache=_navix().rendering.cache.RenderingCache.init(state.grid))


def _navix() -> Any:
    return suite.imported("navix", _EXTRA, REQUIREMENT)
