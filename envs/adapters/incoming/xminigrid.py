"""XLand-MiniGrid's environments: `envs.make("xminigrid/MiniGrid-Empty-6x6")`."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.extend
import numpy as np
from flax import struct

from envs import base
from envs.adapters.incoming import suite
from envs.adapters.incoming.suite import SuiteEnvironment, SuiteParams, Transition
from envs.arguments import check_count
from envs.base import spaces
from envs.choices import MultiDiscrete
from envs.pytrees import Action, Params, State
from envs.settings import own_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "xminigrid", "xminigrid>=0.9.3,<0.10"


@struct.dataclass
class XLandParams(base.EnvParams):
    """The parameters of an XLand task.

    Attributes:
      ruleset: Goal, rules and initial tiles, as `xminigrid.load_benchmark(...).sample_ruleset(key)` draws them; by
        default there is no goal.
      max_steps_in_episode: Time limit.
    """

    ruleset: Any = None
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class XMiniGridEnvironment(SuiteEnvironment):
    """One of XLand-MiniGrid's environments, see `SuiteEnvironment`.

    An observation has the kind and the colour of each cell that the agent sees, both choices. The goal terminates, and
    is the metric `success`. The reward at the goal falls with the time relative to the suite's `max_steps`, which is
    also the default of `max_steps_in_episode`, and a static field.

    The entries of the suite's `EnvParams` are static fields, `envs.make("xminigrid/XLand-MiniGrid-R4-9x9",
    view_size=5)`. In XLand tasks the ruleset is the traced parameter `ruleset`, so that runs may differ in it.
    """

    library = "xminigrid"

    @property
    def inner(self) -> Any:
        """The environment and its parameters as XLand-MiniGrid creates them."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """The suite's `max_steps`, by default a multiple of the number of cells."""
        return self.inner[1].max_steps

    @property
    def default_params(self) -> Any:
        """The suite's time limit, and in XLand tasks its ruleset."""
        own = self.inner[1]
        if hasattr(own, "ruleset"):
            return XLandParams(ruleset=own.ruleset, max_steps_in_episode=self.time_limit)
        return SuiteParams(max_steps_in_episode=self.time_limit)

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """Whether an episode ended at its goal."""
        return {"success": "last"}

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The suite's reset."""
        task, own = self._with(params)
        timestep = task.reset(own, key)
        return timestep.observation, _without(timestep, self._rules(params))

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """The suite's step; an end with a discount of 1 is its time limit."""
        del key
        task, own = self._with(params)
        rules = self._rules(params)
        timestep = task.step(own, inner.replace(state=inner.state.replace(**rules)), action)
        terminated = timestep.last() & (timestep.discount == 0)
        held = _without(timestep, rules)
        return Transition(timestep.observation, held, timestep.reward, terminated, {"success": terminated})

    def action_space(self, params: Params = None) -> spaces.Discrete:
        """Forward, right, left, pick up, put down, toggle."""
        task, own = self.inner
        return spaces.Discrete(task.num_actions(own))

    def observation_space(self, params: Params) -> MultiDiscrete:
        """The kinds and colours of the visible cells, `[view_size, view_size, 2]`."""
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES

        task, own = self.inner
        counts = np.broadcast_to((NUM_TILES, NUM_COLORS), task.observation_shape(own))
        return MultiDiscrete(counts, dtype=np.uint8)

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The suite's own image."""
        task, own = self._with(params)
        suite.show(ax, task.render(own, state.inner))

    def _rules(self, params: Params) -> dict[str, Any]:
        """The goal and the rules that no episode changes, which are not held in its state.

        As constants they leave one of the suite's branches for all kinds of goals, and those of a ruleset may be of
        any number.
        """
        if hasattr(self.inner[1], "ruleset"):
            return {"goal_encoding": params.ruleset.goal, "rule_encoding": params.ruleset.rules}
        return _constants(self)

    def _with(self, params: Params) -> Any:
        """The suite's environment, and its parameters with the traced ones of these."""
        task, own = self.inner
        return task, own.replace(ruleset=params.ruleset) if hasattr(own, "ruleset") else own


def environment_ids() -> tuple[str, ...]:
    """The suite's names.

    Raises:
      ImportError: XLand-MiniGrid is not installed, or has another version.
    """
    return tuple(_xminigrid().registered_environments())


def make(env_id: str, **fields: object) -> XMiniGridEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ImportError: XLand-MiniGrid is not installed, or has another version.
      ValueError: The suite's parameters have no such entry, or an entry is not a whole number of at least 1.
      TypeError: A field's value cannot be hashed.
    """
    own = _xminigrid().make(env_id)[1]
    known = tuple(field.name for field in dataclasses.fields(own) if field.name not in ("ruleset", "render_mode"))
    for name, value in fields.items():
        if isinstance(getattr(own, name, None), int):
            check_count(name, value)
    return suite.make(XMiniGridEnvironment, env_id, fields, known)


@functools.cache
@own_settings()
def _inner(env: XMiniGridEnvironment) -> tuple[Any, Any]:
    xminigrid, fields = _xminigrid(), dict(env.fields)
    with jax.ensure_compile_time_eval():
        task, own = xminigrid.make(env.env_id)
        return task, task.default_params(**_arguments(xminigrid, env.env_id) | fields) if fields else own


@functools.cache
@own_settings()
def _constants(env: XMiniGridEnvironment) -> dict[str, np.ndarray]:
    """The goal and the rules, by their names in the suite's state, where they do not depend on the key of a reset."""
    with jax.ensure_compile_time_eval():
        task, own = env.inner
        names = ("goal_encoding", "rule_encoding")
        reset = jax.make_jaxpr(lambda key: [getattr(task.reset(own, key).state, name) for name in names])
        program = reset(jax.eval_shape(lambda: jax.random.key(0))).jaxpr
        drawn = set(program.invars)
        for equation in program.eqns:
            if any(not isinstance(each, jax.extend.core.Literal) and each in drawn for each in equation.invars):
                drawn |= set(equation.outvars)
        state = task.reset(own, jax.random.key(0)).state
        fixed = [name for name, out in zip(names, program.outvars, strict=True) if out not in drawn]
        return {name: np.asarray(getattr(state, name)) for name in fixed}


def _without(timestep: Any, rules: dict[str, Any]) -> Any:
    """A timestep without these entries of its state."""
    return timestep.replace(state=timestep.state.replace(**dict.fromkeys(rules)))


def _arguments(xminigrid: Any, env_id: str) -> dict[str, Any]:
    """The arguments that the suite's registry has for a task."""
    return dict(xminigrid.registration._REGISTRY[env_id].kwargs)


def _xminigrid() -> Any:
    return suite.imported("xminigrid", _EXTRA, REQUIREMENT)
