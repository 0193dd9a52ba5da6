"""Asymmetric observations: the actor sees one part of them, and a critic another one."""

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Observation, Params, State
from envs.spelling import near
from envs.wrappers.observations import FlattenObservation, TransformObservation, space_of
from envs.wrappers.wrapper import Wrapper, WrapperState, agents_of, observation_of

# Part of an observation: a name of a dictionary, whose entry it is; names, whose entries are a dictionary; a function.
Part = str | tuple[str, ...] | Callable[[Any], Any]

# Input of a critic: the actor's observation; that and the global one; that and privileged facts; or these facts alone.
View = Literal["own", "global", "joined", "apart"]

ACTOR_WORDS, CRITIC_WORDS = ("auto", "all"), ("auto", "own", "all", "global", "privileged")

__all__ = [
    "ACTOR_WORDS",
    "CRITIC_WORDS",
    "AsymmetricObservation",
    "AsymmetricState",
    "Part",
    "SeenEnvironment",
    "View",
    "asymmetric_observation",
    "named_part",
    "seen_by",
    "seen_from",
    "seen_like",
]


def asymmetric_observation(
    env: base.Environment, actor_sees: Part | None = None, critic_sees: Part | None = None
) -> base.Environment:
    """An environment that shows one part of its observations to actors, and another one to critics alone.

    Each part is the name of an entry of a dictionary, and then that entry; a tuple of names, and then a dictionary; or
    a function, in JAX, of one agent's observation. A named function compiles once; every new lambda is another one.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.
      actor_sees: Part that becomes the observation; None for all.
      critic_sees: Part that becomes `privileged(state, params)`; None keeps `privileged` of `env`.

    Returns:
      An environment whose observations are the part for actors; with `critic_sees`, its state has the part for critics.

    Raises:
      TypeError: `env` is not an environment, or a part is of another kind.
      ValueError: Observations have no such entry.
    """
    actor, critic = (tuple(part) if isinstance(part, list) else part for part in (actor_sees, critic_sees))
    return AsymmetricObservation(env, actor, critic)


@struct.dataclass
class AsymmetricState(WrapperState):
    """The state of an environment whose observations have a part for critics.

    Attributes:
      critic: That part of the last observation, leaves `[*A, ...]`.
    """

    critic: Any


@dataclass(frozen=True)
class AsymmetricObservation(Wrapper):
    """The class returned by `asymmetric_observation`.

    Attributes:
      inner: Environment that shows everything.
      actor_sees: Part of its observations that is the observation; None for all.
      critic_sees: Part of them that is privileged; None keeps `privileged` of `inner`.
    """

    actor_sees: Part | None = None
    critic_sees: Part | None = None
    made_by: ClassVar[str] = "asymmetric_observation"
    keeps_returns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.inner.observation_space(self.inner.default_params)
        for name in ("actor_sees", "critic_sees"):
            _check_part(name, getattr(self, name), space, self.inner.name)
            self._space(name, self.inner.default_params)

    @property
    def kept_optima(self) -> tuple[base.OptimumKind, ...]:
        """All kinds where actors see everything, otherwise none."""
        return base.OPTIMUM_KINDS if self.actor_sees is None else ()

    def inner_state(self, state: State) -> Any:
        """The state of the inner environment."""
        return state if self.critic_sees is None else state.inner

    def observation_space(self, params: Params) -> spaces.Space:
        """The space of the part that actors see; without bounds where that is a function's result."""
        return self._space("actor_sees", params)

    def privileged_space(self, params: Params) -> spaces.Space | None:
        """The space of the part that critics see; without bounds where that is a function's result."""
        return super().privileged_space(params) if self.critic_sees is None else self._space("critic_sees", params)

    def _space(self, name: str, params: Params) -> spaces.Space:
        space: Any = self.inner.observation_space(self.inner_params(params))
        part = getattr(self, name)
        if part is None:
            return space
        if isinstance(part, str):
            return space.spaces[part]
        if isinstance(part, tuple):
            return spaces.Dict({each: space.spaces[each] for each in part})
        if part is _everything:
            return space
        return space_of(jax.eval_shape(part, observation_of(self.inner)), f"the function of {name}")

    def privileged(self, state: State, params: Params) -> Any:
        """The part of the last observation for critics, or the privileged facts of the inner environment."""
        return super().privileged(state, params) if self.critic_sees is None else state.critic

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        """The inner environment's reset, with the observation in two parts."""
        obs, inner = super().reset_env(key, params)
        return self._shown(obs), self._state(obs, inner)

    def step_env(
        self, key: jax.Array, state: State, action: Action, params: Params
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the observation in two parts."""
        obs, inner, reward, terminated, info = super().step_env(key, state, action, params)
        return self._shown(obs), self._state(obs, inner), reward, terminated, info

    def _shown(self, obs: Observation) -> Any:
        return obs if self.actor_sees is None else self._part(self.actor_sees, obs)

    def _state(self, obs: Observation, inner: Any) -> Any:
        if self.critic_sees is None:
            return inner
        return AsymmetricState(inner.time, inner, self._part(self.critic_sees, obs))

    def _part(self, part: Part, obs: Observation) -> Any:
        if isinstance(part, str):
            return obs[part]
        if isinstance(part, tuple):
            return {name: obs[name] for name in part}
        function = part
        for _ in agents_of(self.inner):
            function = jax.vmap(function)
        return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), function(obs))


@dataclass(frozen=True)
class SeenEnvironment(AsymmetricObservation):
    """An `AsymmetricObservation` that `seen_by` made, so that other fields of a configuration make another one."""


def seen_by(env: base.Environment, actor_sees: Part, critic_sees: Part = "own") -> tuple[base.Environment, View]:
    """Environment as an actor sees it, and the kind of its critic's input.

    Args:
      env: Environment; of a result of this function, the environment from which it was made is taken.
      actor_sees: Input of the actor: "all"; "auto", all but entries with "privileged" in their names; or a part.
      critic_sees: Input of the critic: "own", that of the actor; "all"; "global" or "privileged", that of the actor and
        in addition the environment's `global_observation` or `privileged`; a part, and that alone; or "auto", entries
        with "privileged" in their names that "auto" or names hide from the actor; or the part that
        `asymmetric_observation` keeps for critics; or "privileged" where the environment states a `privileged_space`;
        and otherwise "own", with a warning where a function may hide such entries.

    Raises:
      TypeError, ValueError: Observations have no such part, `actor_sees="auto"` would hide all of them, or a wrapper
        changes observations of which another part was chosen before, so that "all" of them are no longer there.
    """
    env, made = seen_from(env), env
    space = env.observation_space(env.default_params)
    seen_before = _seen_within(env)
    if seen_before is not None and (actor_sees != "auto" or critic_sees == "all" or critic_sees not in CRITIC_WORDS):
        raise UserValueError(
            f"actor_sees and critic_sees choose parts of the observations of {seen_before.inner.name}, of which the "
            f"actor sees a part inside of {env.name} already; wrap {seen_before.inner.name} itself in place of the "
            "environment of an algorithm"
        )
    for name, part, words in (("actor_sees", actor_sees, ACTOR_WORDS), ("critic_sees", critic_sees, CRITIC_WORDS)):
        if part not in words:
            _check_part(name, part, space, env.name, words)
    parts, view = _parts(env, actor_sees, critic_sees)
    if actor_sees != "all" and not callable(actor_sees):
        _warn_of_flattened(env, parts[0])
    if parts == (None, None):
        return env, view
    seen = SeenEnvironment(env, *parts)
    if seen == made:
        return made, view
    if actor_sees == "auto" and parts[0] is not None:
        _report(env, *parts)
    if callable(actor_sees) and critic_sees == "auto" and view == "own":
        _warn_of_own_critic(env, actor_sees)
    return seen, view


def seen_from(env: base.Environment) -> base.Environment:
    """Environment from which `seen_by` made a `SeenEnvironment`, also inside wrappers that keep observations.

    Other environments are returned as they are.
    """
    if isinstance(env, SeenEnvironment):
        return env.inner
    if isinstance(env, Wrapper) and vars(type(env)).get("keeps_observations", False):
        inner = seen_from(env.inner)
        return env if inner is env.inner else dataclasses.replace(env, inner=inner)
    return env


def _seen_within(env: base.Environment) -> SeenEnvironment | None:
    """The outermost `SeenEnvironment` at any depth of wrappers; None without one."""
    while isinstance(env, Wrapper):
        if isinstance(env, SeenEnvironment):
            return env
        env = env.inner
    return None


def seen_like(env: base.Environment, trained: base.Environment) -> base.Environment:
    """Environment as a policy sees it that was trained on another one.

    Args:
      env: Environment; with the observations from which `trained` was made, it is seen in the same way. Other values
        are returned as they are, and so are environments of algorithms inside wrappers.
      trained: Environment of the training.
    """
    if not isinstance(env, base.Environment) or _seen_within(env) is not None:
        return env
    if isinstance(trained, SeenEnvironment) and observation_of(env) == observation_of(trained.inner):
        return dataclasses.replace(trained, inner=env)
    return env


def _parts(env: base.Environment, actor_sees: Part, critic_sees: Part) -> tuple[tuple[Part | None, Part | None], View]:
    """Parts of observations for the actor and for the critic, None for all and for none, and the critic's view."""
    space = env.observation_space(env.default_params)
    names = tuple(space.spaces) if isinstance(space, spaces.Dict) else ()
    privileged = tuple(name for name in names if "privileged" in name)
    others = tuple(name for name in names if name not in privileged)
    actor = None if actor_sees in ACTOR_WORDS else actor_sees
    if actor_sees == "auto" and privileged:
        if not others:
            raise UserValueError(
                f"actor_sees='auto' hides entries with 'privileged' in their names, which are all of {env.name}, "
                f"{', '.join(map(repr, privileged))}; 'all' shows them, and so do their names"
            )
        actor = _one(others)
    if callable(actor) or actor_sees == "all":
        hidden = ()  # a function may have used the privileged entries
    else:
        shown = (actor,) if isinstance(actor, str) else actor or ()
        hidden = tuple(name for name in privileged if name not in shown)
    if critic_sees == "auto" and hidden:
        return (actor, _one(hidden)), "apart"
    if critic_sees == "auto" and env.privileged_space(env.default_params) is not None:
        return (actor, None), "apart" if _keeps_a_part(env) else "joined"
    if critic_sees in ("auto", "own") or (critic_sees == "all" and actor is None):
        return (actor, None), "own"
    if critic_sees == "all":
        return (actor, names or _everything), "apart"
    if critic_sees in ("global", "privileged"):
        return (actor, None), "global" if critic_sees == "global" else "joined"
    return (actor, critic_sees), "apart"


def _keeps_a_part(env: base.Environment) -> bool:
    """Whether privileged facts are a part of observations, in place of the actor's, and not facts of a simulator."""
    while isinstance(env, Wrapper):
        if isinstance(env, AsymmetricObservation) and env.critic_sees is not None:
            return True
        env = env.inner
    return False


def named_part(part: Part) -> str:
    """A part of observations in words: the names of its entries, or that of its function."""
    if callable(part):
        return f"the result of {getattr(part, '__name__', 'a function')}"
    names = (part,) if isinstance(part, str) else part
    return f"the {'entry' if isinstance(part, str) else 'entries'} {', '.join(map(repr, names))}"


def _one(names: tuple[str, ...]) -> Part:
    return names[0] if len(names) == 1 else names


def _everything(obs: Observation) -> Any:
    return obs


def _report(env: base.Environment, actor: Part | None, critic: Part | None) -> None:
    shown = "nothing else" if critic is None else f"its critic {critic!r}"
    fields = (
        "actor_sees of the configuration changes"
        if critic is None
        else ("actor_sees and critic_sees of the configuration change")
    )
    warnings.warn(
        f"on {env.name} the actor sees {actor!r} of the observations, and {shown}; {fields} that, and "
        "actor_sees='all' shows everything",
        RuntimeWarning,
        stacklevel=7,
    )


def _warn_of_own_critic(env: base.Environment, actor: Part) -> None:
    """Warn of entries with "privileged" in their names that a critic does not see because the actor's is a function."""
    space = env.observation_space(env.default_params)
    names = tuple(name for name in space.spaces if "privileged" in name) if isinstance(space, spaces.Dict) else ()
    if names:
        warnings.warn(
            f"on {env.name} the critic sees what the actor does, {named_part(actor)}, because actor_sees is a function "
            f"and critic_sees='auto'; critic_sees={_one(names)!r} shows it {named_part(_one(names))}, as in trainings "
            "of earlier versions, and critic_sees='own' is without this warning",
            RuntimeWarning,
            stacklevel=7,
        )


def _warn_of_flattened(env: base.Environment, actor: Part | None) -> None:
    """Warn of entries with "privileged" in their names that become numbers of the actor's input unnamed.

    These are entries of dictionaries inside the observation, and those of an observation that `flatten_observation`
    has changed. Entries that a field of a configuration names are not among them.
    """
    space: Any = env.observation_space(env.default_params)
    if actor is not None:
        chosen: Any = (actor,) if isinstance(actor, str) else actor
        space = spaces.Dict({name: space.spaces[name] for name in chosen})
    if isinstance(space, spaces.Dict):
        names = [each for name, part in space.spaces.items() for each in _privileged_names(part, f"{name}.")]
    else:
        names = _privileged_names(space)
    while isinstance(env, Wrapper) and not isinstance(env, TransformObservation | AsymmetricObservation):
        if isinstance(env, FlattenObservation):
            names += _privileged_names(env.inner.observation_space(env.inner.default_params))
        env = env.inner
    if names:
        listed = ", ".join(map(repr, names))
        warnings.warn(
            f"the actor sees {listed} of the observations, because actor_sees='auto' and names choose among the "
            "entries of a dictionary, not among those inside of an entry or of a vector; a function of an observation "
            "hides them, and actor_sees='all' shows them without this warning",
            RuntimeWarning,
            stacklevel=7,
        )


def _privileged_names(space: Any, path: str = "") -> list[str]:
    """Names of entries with "privileged" in their names, at any depth of a space, joined by dots."""
    if isinstance(space, spaces.Tuple):
        parts = {str(index): part for index, part in enumerate(space.spaces)}
    elif isinstance(space, spaces.Dict):
        parts = space.spaces
    else:
        return []
    names = []
    for name, part in parts.items():
        named = f"{path}{name}"
        names += [named] if "privileged" in name else _privileged_names(part, f"{named}.")
    return names


def _check_part(name: str, part: Any, space: spaces.Space, env_name: str, words: tuple[str, ...] = ()) -> None:
    """Reject a part that observations do not have, where a configuration also takes words."""
    if part is None or callable(part):
        return
    names = (part,) if isinstance(part, str) else part
    if not isinstance(names, tuple) or not names or not all(isinstance(each, str) for each in names):
        raise UserTypeError(
            f"{name} takes the name of an entry of observations, several names, or a function of an observation, got "
            f"{part!r}"
        )
    listed = f"{', '.join(map(repr, words))}, or " if words else ""
    known = tuple(space.spaces) if isinstance(space, spaces.Dict) else ()
    for each in names:
        if each in known:
            continue
        hint = near(each, (*known, *words)) or "."
        if not known:
            raise UserValueError(
                f"{name} takes {listed}a function of an observation on {env_name}, whose observations have no names, "
                f"got {each!r}{hint}"
            )
        raise UserValueError(
            f"{name} takes {listed}entries of the observations of {env_name}, {', '.join(map(repr, known))}, got "
            f"{each!r}{hint}"
        )
