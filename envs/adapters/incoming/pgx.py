"""Pgx's environments: `envs.make("pgx/minatar-breakout")`, `envs.make("pgx/connect_four", opponent="random")`."""

import copy
import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.adapters.incoming import suite
from envs.adapters.incoming.pgx_players import PlayersEnvironment, held, num_actions
from envs.adapters.incoming.suite import SuiteEnvironment, Transition
from envs.arguments import check_at_least, check_choice, check_count, check_flag
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Params, State
from envs.settings import own_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXTRA, REQUIREMENT = "pgx", "pgx>=2.6,<2.7"
_FREEWAY = 2500  # steps before the one at which Freeway ends


@struct.dataclass
class MinAtarParams(base.EnvParams):
    """The parameters of a MinAtar game.

    Attributes:
      sticky_action_prob: Probability that a step repeats the action of the step before, in [0, 1].
      max_steps_in_episode: Time limit.
    """

    sticky_action_prob: float = 0.1
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class PgxEnvironment(SuiteEnvironment):
    """One of Pgx's games for one player, 2048 and MinAtar's, see `SuiteEnvironment`.

    MinAtar's games have a traced `sticky_action_prob`, and as a static field `use_minimal_action_set`. Only Freeway has
    a time limit in Pgx, of 2,501 steps, which truncates here. In 2048 a move that changes nothing is illegal: the mask
    forbids it, and it ends the game with a reward of -1.
    """

    library = "pgx"

    @property
    def inner(self) -> Any:
        """The game as Pgx creates it."""
        return _inner(self)

    @property
    def time_limit(self) -> int:
        """Freeway's own; 10,000 steps in 2048, and 1,000 in others, which have none."""
        return {"2048": 10_000, "minatar-freeway": _FREEWAY + 1}.get(self.env_id, super().time_limit)

    @property
    def default_params(self) -> Any:
        """The time limit, and in MinAtar Pgx's probability of sticky actions."""
        if self.env_id.startswith("minatar"):
            return MinAtarParams(sticky_action_prob=self.inner.sticky_action_prob, max_steps_in_episode=self.time_limit)
        return super().default_params

    def check_params(self, params: Params) -> None:
        """Reject a `sticky_action_prob` outside [0, 1]."""
        if isinstance(params, MinAtarParams):
            check_at_least(params, sticky_action_prob=0)
            if np.any(np.asarray(params.sticky_action_prob) > 1):
                raise UserValueError(f"env.sticky_action_prob must be at most 1, got {params.sticky_action_prob}")

    def begin(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """Pgx's `init`."""
        del params
        game = self.inner.init(key)
        return game.observation, held(game)

    def advance(self, key: jax.Array, inner: Any, action: Action, params: Params) -> Transition:
        """Pgx's step with this key; Freeway's clock stands still."""
        task = copy.copy(self.inner)
        if isinstance(params, MinAtarParams):
            task.sticky_action_prob = params.sticky_action_prob
        if self.env_id == "minatar-freeway":
            inner = inner.replace(_terminate_timer=jnp.int32(_FREEWAY))
        game = task.step(inner, action, key)
        return Transition(game.observation, held(game), game.rewards[0], game.terminated)

    def action_space(self, params: Params = None) -> spaces.Discrete:
        """The actions of the game."""
        del params
        return spaces.Discrete(num_actions(self))

    def action_mask(self, state: State, params: Params) -> jax.Array | None:
        """The legal actions, bool `[num_actions]`; None in MinAtar, where all are."""
        del params
        return None if self.env_id.startswith("minatar") else state.inner.legal_action_mask

    def draw(self, ax: "Axes", state: State, params: Params) -> None:
        """The last channel that is on in each cell, in a colour of its own."""
        import matplotlib as mpl

        del params
        obs = np.asarray(self.inner._observe(state.inner, jnp.int32(0)))
        number = np.max(obs * np.arange(1, obs.shape[-1] + 1), axis=-1)
        suite.show(ax, mpl.colormaps["cubehelix"](np.minimum(number / min(obs.shape[-1], 12), 1.0)))


@dataclass(frozen=True)
class PgxGame(PlayersEnvironment):
    """One of Pgx's games for several players against the rest of them, see `PlayersEnvironment`."""

    library = "pgx"

    @property
    def inner(self) -> Any:
        """The game as Pgx creates it."""
        return _inner(self)


def environment_ids() -> tuple[str, ...]:
    """The suite's names.

    Raises:
      ImportError: Pgx is not installed, or has another version.
    """
    return tuple(_pgx().available_envs())


def make(env_id: str, **fields: object) -> PgxEnvironment | PgxGame:
    """The adapter of one game; see `envs.make`.

    Raises:
      ImportError: Pgx is not installed, or has another version.
      ValueError: The game has no such field, or the field does not take the value.
      TypeError: A field's value cannot be hashed, or `opponent` is not a function.
    """
    if _pgx().make(env_id).num_players == 1:
        known = ("use_minimal_action_set",) if env_id.startswith("minatar") else ()
        check_flag("use_minimal_action_set", fields.get("use_minimal_action_set", True))
        return suite.make(PgxEnvironment, env_id, fields, known)
    opponent = fields.get("opponent", "random")
    if opponent != "random" and not _takes_three(opponent):
        raise UserTypeError(f"opponent must be 'random' or a function (key, obs, mask) -> action, got {opponent!r}")
    seats = None, *range(_pgx().make(env_id).num_players)
    if isinstance(fields.get("seat"), bool):
        raise UserValueError(f"seat must be one of {', '.join(map(str, seats))}, got {fields['seat']!r}")
    check_choice("seat", fields.get("seat"), seats)
    komi = fields.get("komi", 0.0)
    if isinstance(komi, bool) or not isinstance(komi, int | float):
        raise UserValueError(f"komi must be a number, got {komi!r}")
    for name in ("history_length", "max_terminal_steps"):
        if fields.get(name) is not None:
            check_count(name, fields[name])
    go = ("komi", "history_length", "max_terminal_steps") if env_id.startswith("go_") else ()
    return suite.make(PgxGame, env_id, fields, ("opponent", "seat", *go))


def _takes_three(function: Any) -> bool:
    """Whether this is a function of three arguments."""
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a function that Python cannot inspect
        return True
    return True


@functools.cache
@own_settings()
def _inner(env: SuiteEnvironment) -> Any:
    with jax.ensure_compile_time_eval():
        task = _pgx().make(env.env_id)
        own = {name: value for name, value in env.fields if name not in ("opponent", "seat")}
        if not own:
            return task
        go = {"size": task._game.size, "komi": task._game.komi} if env.env_id.startswith("go_") else {}
        return type(task)(**go | own)


def _pgx() -> Any:
    return suite.imported("pgx", _EXTRA, REQUIREMENT)
