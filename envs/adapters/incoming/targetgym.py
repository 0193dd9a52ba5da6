"""TargetGym's process-control tasks: `envs.make("targetgym/cstr")`."""

import dataclasses
import functools
import inspect
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.adapters.incoming import suite
from envs.adapters.incoming.gymnax_like import GymnaxLikeEnvironment
from envs.adapters.incoming.suite import Transition
from envs.arguments import check_flag
from envs.base import MetricRule
from envs.errors import UserValueError
from envs.pytrees import Observation, Params, PyTree, State
from envs.settings import own_settings
from envs.spelling import near

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "targetgym", "target-gym>=0.6.1,<0.7"
# Weights of costs that the suite limits before it multiplies them, or the tracking of one more target.
_BOUNDED = ("degradation_weight", "soc_comfort_weight")


@dataclass(frozen=True)
class TargetGymEnvironment(GymnaxLikeEnvironment):
    """One of TargetGym's tasks: hold a target against disturbances; see `SuiteEnvironment`.

    The suite's parameters are traced, by default those of its published returns. Observations are scaled by the
    parameters of the episode, where the suite's own `step_env` takes its defaults. The steps of the limit of "reactor"
    are those of the agent; the suite counts ten steps of physics for each.

    Metrics are the distances from the targets, by their place among them, at each step.
    """

    library = "targetgym"

    @property
    def inner(self) -> Any:
        """The task as TargetGym creates it."""
        return _inner(self)

    @property
    def default_params(self) -> Any:
        """The suite's parameters of the task."""
        params = _targetgym().REGISTRY[self.env_id].make_test_params()
        return params.replace(max_steps_in_episode=params.max_steps_in_episode // self._period)

    @property
    def metric_rules(self) -> dict[str, MetricRule]:
        """Means over an episode."""
        return {name: "mean" for name in self._errors}

    def own(self, params: Params) -> Any:
        """The same parameters, with the suite's unit of the time limit."""
        if self._period == 1:
            return params
        return params.replace(max_steps_in_episode=params.max_steps_in_episode * self._period)

    def transition(
        self, obs: Observation, inner: Any, reward: Any, done: Any, info: PyTree, params: Params
    ) -> Transition:
        """The step, with the observation under these parameters."""
        del info
        obs = self.inner.get_obs(inner, self.own(params))
        errors = {name: abs(obs[value] - obs[target]) for name, (value, target) in self._errors.items()}
        return Transition(obs, inner, reward, done, errors)

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The suite's reset, with the observation under these parameters."""
        _, inner = super().begin(key, params)
        return self.inner.get_obs(inner, self.own(params)), inner

    def return_range(self, params: Params) -> tuple[Any, Any] | None:
        """From 0 to the number of steps, as each reward lies between 0 and 1; None with a larger weight of a cost."""
        defaults = self.default_params
        for field in dataclasses.fields(defaults):
            if field.name.endswith("weight") and field.name not in _BOUNDED:
                value = np.asarray(getattr(params, field.name))
                if np.any(value < 0) or np.any(value > getattr(defaults, field.name)):
                    return None
        return 0.0, np.asarray(params.max_steps_in_episode, np.float64)

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The suite's own image, without the history of the episode and without a window."""
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        values = jax.tree.map(_number, state.inner)
        frames, *_ = self.inner.render(
            None, values, jax.tree.map(_number, jax.tree.map(np.asarray, self.own(params))), [], None
        )
        suite.show(ax, frames[-1])

    @property
    def _period(self) -> int:
        """The number of the suite's units of time in a step."""
        return getattr(self.inner, "control_period", 1)

    @property
    def _errors(self) -> dict[str, tuple[int, int]]:
        """Places in an observation of each controlled quantity and of its target."""
        values, targets = (
            place if isinstance(place, tuple) else (place,)
            for place in (self.inner.obs_value_index, self.inner.obs_target_index)
        )
        return {f"error_{i}": pair for i, pair in enumerate(zip(values, targets, strict=True))}


def environment_ids() -> tuple[str, ...]:
    """The suite's names.

    Raises:
      ImportError: TargetGym is not installed, or has another version.
    """
    return tuple(_targetgym().env_names())


def make(env_id: str, **fields: object) -> TargetGymEnvironment:
    """The adapter of one task; see `envs.make`.

    Raises:
      ImportError: TargetGym is not installed, or has another version.
      ValueError: The suite's constructor has no such argument.
      TypeError: A field's value cannot be hashed.
    """
    return suite.make(TargetGymEnvironment, env_id, fields, tuple(_arguments(_kind(env_id))))


def published_returns(env_id: str) -> dict[str, np.ndarray]:
    """Undiscounted returns of the suite's own controllers, as its file `baseline_returns.json` has them.

    Args:
      env_id: Name of a task, without the prefix.

    Returns:
      Returns float64 `[10]` of an episode under the default parameters for each of ten seeds: "pid", a tuned PID
      controller of the observations, and "mpc", a model-predictive one that knows the whole state. Empty for tasks
      without a record ("patrol_bearing_only"), and for "reactor", whose record goes on beyond its time limit.

    Raises:
      ImportError: TargetGym is not installed, or has another version.
      ValueError: There is no such task.
    """
    if env_id not in environment_ids():
        hint = near(env_id, environment_ids()) or "."
        raise UserValueError(f"env_id is {env_id!r}, which is not a task of TargetGym{hint}")
    env = make(env_id)
    recorded = _imported("target_gym.provenance").load_recorded_baselines().get(env_id, {})
    if recorded.get("steps") != env.default_params.max_steps_in_episode:
        return {}
    return {name: np.asarray(recorded[f"{name}_returns"], np.float64) for name in ("pid", "mpc")}


@functools.cache
@own_settings()
def _inner(env: TargetGymEnvironment) -> Any:
    kind, fields = _kind(env.env_id), dict(env.fields)
    for name, default in _arguments(kind).items():
        if isinstance(default, bool) and name in fields:
            check_flag(name, fields[name])
    with jax.ensure_compile_time_eval():
        return kind(**fields)


def _kind(env_id: str) -> Any:
    return type(_targetgym().get(env_id).make_env())


def _arguments(kind: Any) -> dict[str, Any]:
    """Defaults of the constructor's arguments."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def _number(leaf: PyTree) -> Any:
    """A number as one of Python, which the suite's images format."""
    array = jnp.asarray(leaf)
    return array.item() if array.ndim == 0 and not jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else leaf


def _targetgym() -> Any:
    return _imported("target_gym.registry")


def _imported(module: str) -> Any:
    """A module of the suite, without the notes of its dependencies on what they miss."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return suite.imported(module, _EXTRA, REQUIREMENT)
