"""Jumanji's environments: `envs.make("jumanji/Game2048-v1")`."""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs import base, choices
from envs.adapters.incoming import jumanji_tasks as tasks
from envs.adapters.incoming import suite
from envs.adapters.incoming.jumanji_making import created, fields_of
from envs.adapters.incoming.jumanji_spaces import MASK, space_of
from envs.adapters.incoming.jumanji_tasks import REFUSED
from envs.adapters.incoming.suite import SuiteEnvironment, SuiteParams, Transition
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import Action, DiscountLike, Params, State
from envs.settings import own_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "jumanji", "jumanji>=1.1.2,<1.2"


class Held(NamedTuple):
    """The suite's state and mask.

    Attributes:
      state: State of the task.
      mask: Mask of the observation, None if the task has none.
    """

    state: Any
    mask: Any


@dataclass(frozen=True)
class JumanjiEnvironment(SuiteEnvironment):
    """One of Jumanji's environments, see `SuiteEnvironment`.

    An observation is a dictionary of the suite's entries without the mask; codes of things are choices, coordinates and
    counts are numbers. The mask is that of `action_mask`. Where none is allowed, as after the end of most games and for
    a snake that is enclosed, all are, so that any action ends the episode as the suite does.

    Where Jumanji's mask is joint, with an entry for each combination of an action's numbers, as in BinPack, FlatPack,
    Minesweeper, Sudoku and Tetris, the action is one choice among all combinations, in row-major order. JobShop, MMST,
    Cleaner and RobotWarehouse have a mask for each number of the action, RubiksCube has none.

    Jumanji reports every end as a termination, time limits included. Cleaner, Maze, MMST, PacMan, RobotWarehouse,
    RubiksCube, SlidingTilePuzzle, Snake and Tetris have a time limit, which here truncates; other tasks end by
    themselves, and the default of `max_steps_in_episode` is the length of their longest episode, or 10,000 in Game2048.
    The moves of FlatPack, as many as there are blocks, belong to its rules. MMST keeps `time_limit` nodes for each
    agent, so that longer episodes take a higher static field `time_limit`, too.

    Static fields are the numbers that Jumanji's classes and their generators take, such as `num_cities`, and
    `reward_fn`, the name of one of its classes of rewards. Further numbers are traced: `penalty_per_timestep` of
    Cleaner, `edge_probability` of GraphColoring, `total_budget` of Knapsack. The suite's random numbers come from the
    key of a reset alone. The metrics are its `extras`, at the end of an episode.
    """

    library = "jumanji"

    @property
    def inner(self) -> Any:
        """The task as Jumanji creates it, without its time limit."""
        return _inner(self)[0]

    @property
    def time_limit(self) -> int:
        """The suite's time limit, or the length of the longest episode."""
        return _inner(self)[1]

    @property
    def default_params(self) -> Any:
        """The suite's time limit, and the traced numbers of the task."""
        kind = type(self.inner).__name__
        numbers = {name: getattr(tasks.holder(self.inner), name) for name in tasks.traced(kind)}
        return tasks.PARAMS.get(kind, (SuiteParams,))[0](max_steps_in_episode=self.time_limit, **numbers)

    @property
    def metric_rules(self) -> Mapping[str, Any]:
        """The last value of each of the suite's `extras`."""
        return dict.fromkeys(_inner(self)[2], "last")

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The suite's reset."""
        state, timestep = tasks.with_numbers(self.inner, params).reset(key)
        return _entries(timestep), Held(state, _mask(timestep))

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """The suite's step."""
        del key
        task = tasks.with_numbers(self.inner, params)
        if type(task).__name__ in tasks.JOINT:
            action = jnp.stack(jnp.unravel_index(action, tuple(task.action_spec.num_values.tolist())))
        with warnings.catch_warnings():  # of BinPack, which writes real numbers to whole ones
            warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
            state, timestep = task.step(inner.state, action)
        held = Held(state, _mask(timestep))
        return Transition(_entries(timestep), held, timestep.reward, timestep.last(), timestep.extras)

    def action_mask(self, state: State, params: Params) -> Any:
        """The suite's mask; all actions where it allows none."""
        del params
        mask = state.inner.mask
        if mask is None:
            return None
        mask = mask.ravel() if type(self.inner).__name__ in tasks.JOINT else mask
        mask = mask | ~jnp.any(mask, axis=-1, keepdims=True)
        return mask if isinstance(self.action_space(), spaces.Discrete) else tuple(mask)

    def action_space(self, params: Params = None) -> spaces.Discrete | choices.MultiDiscrete:
        """The suite's actions; one number for all combinations where the mask is joint."""
        counts = np.asarray(self.inner.action_spec.num_values)
        if counts.ndim and type(self.inner).__name__ not in tasks.JOINT:
            return choices.MultiDiscrete(counts)
        return spaces.Discrete(int(np.prod(counts)))

    def observation_space(self, params: Params) -> spaces.Space:
        """The suite's bounds, and codes of things as choices."""
        task = self.inner
        space = space_of("", task.observation_spec, tasks.CODES.get(type(task).__name__, ()))
        if type(task).__name__ == "Game2048":  # the largest tile of n x n cells is 2 ** (n * n + 1)
            shape = space.spaces["board"].shape
            space.spaces["board"] = choices.MultiDiscrete(np.full(shape, np.prod(shape) + 2))
        if type(task).__name__ == "TSP":  # the position is -1 before the first city
            space.spaces["position"] = spaces.Box(-1, task.num_cities - 1, (), jnp.int32)
        return space

    def return_range(self, params: Params) -> tuple[Any, Any] | None:
        """The bounds that follow from the rules, for the task's own rewards."""
        bounds = tasks.RETURNS.get(type(self.inner).__name__)
        return None if bounds is None or "reward_fn" in dict(self.fields) else bounds(self.inner)

    def optimum(
        self, params: Params = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """1 in Maze and on cubes of 3 x 3 x 3 without a discount, if the time limit is long enough; else None.

        All kinds are equal, because an observation shows the whole state.
        """
        base.check_optimum_kind(kind)
        within = tasks.SOLVED_WITHIN.get(type(self.inner).__name__, lambda task: None)(self.inner)
        limit = self.checked_params(params).max_steps_in_episode
        return 1.0 if discount is None and within is not None and int(limit) >= within else None

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The suite's own image."""
        del params
        import matplotlib

        viewers = suite.imported("jumanji.viewer", _EXTRA, REQUIREMENT)
        viewer: Any = next(each for each in vars(self.inner).values() if isinstance(each, viewers.Viewer))
        viewer._display = viewer._display_rgb_array
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
            suite.show(ax, viewer.render(jax.tree.map(jnp.asarray, state.inner.state)))
            viewer.close()


def environment_ids() -> tuple[str, ...]:
    """The suite's names, without those of `REFUSED`.

    Raises:
      ImportError: Jumanji is not installed, or has another version.
    """
    return tuple(name for name in sorted(_jumanji().registered_environments()) if name not in REFUSED)


def make(env_id: str, **fields: object) -> JumanjiEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ImportError: Jumanji is not installed, or has another version.
      ValueError: The task is left out, or does not take such a field or value.
      TypeError: A field's value cannot be hashed.
    """
    if env_id in REFUSED:
        raise UserValueError(f"jumanji/{env_id} is left out, as {REFUSED[env_id]}.")
    return suite.make(JumanjiEnvironment, env_id, fields, fields_of(_inner(JumanjiEnvironment(env_id))[0]))


@functools.cache
@own_settings()
def _inner(env: JumanjiEnvironment) -> tuple[Any, int, tuple[str, ...]]:
    """The task without its time limit, the limit, and the names of its metrics."""
    import matplotlib

    with jax.ensure_compile_time_eval(), matplotlib.rc_context():  # viewers change the settings of Matplotlib
        task = created(_jumanji().make, env.env_id, dict(env.fields))
        limit = task.time_limit if hasattr(task, "time_limit") else tasks.LENGTHS[type(task).__name__](task)
        task.time_limit = suite.NO_LIMIT
        metrics = jax.eval_shape(lambda key: task.reset(key)[1].extras, jax.random.key(0))
    return task, int(limit), tuple(metrics)


def _entries(timestep: Any) -> dict[str, Any]:
    named = suite.as_dictionaries(timestep.observation)
    return {name: part for name, part in named.items() if name != MASK}


def _mask(timestep: Any) -> Any:
    return getattr(timestep.observation, MASK, None)


def _jumanji() -> Any:
    return suite.imported("jumanji", _EXTRA, REQUIREMENT)
