"""Asymmetric observations: the actor sees one part of them, and a critic another one."""

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
from envs.spelling import near
from envs.wrappers.observations import space_of
from envs.wrappers.wrapper import Wrapper, WrapperState, agents_of, observation_of

# Part of an observation: a name of a dictionary, whose entry it is; names, whose entries are a dictionary; a function.
Part = str | tuple[str, ...] | Callable[[Any], Any]

# Input of a critic: the actor's observation; that and the global one; that and privileged facts; or these facts alone.
View = Literal["own", "global", "joined", "apart"]

__all__ = ["AsymmetricObservation", "AsymmetricState", "Part", "View", "asymmetric_observation", "seen_by", "seen_from"]


def asymmetric_observation(
    env: base.Environment, actor_sees: Part | None = None, critic_sees: Part | None = None
) -> base.Environment:
    """An environment that shows one part of its observations to actors, and another one to critics alone.

    Each part is the name of an entry of a dictionary, and then that entry; a tuple of names, and then a dictionary; or
    a function, in JAX, of one agent's observation. A named function compiles once; every new lambda is another one.

    Args:
      env: Any environment; its parameters, dynamics, actions and metrics are unchanged.
      actor_sees: Part that is the observation; None for all.
      critic_sees: Part that is `privileged(state, params)`; None for what is privileged in `env`.

    Returns:
      An environment whose observations are what actors see; with `critic_sees`, its state has what critics see.

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
      critic_sees: Part of them that is privileged; None for what is privileged in `inner`.
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

    def inner_state(self, state: Any) -> Any:
        """The state of the inner environment."""
        return state if self.critic_sees is None else state.inner

    def observation_space(self, params: Any) -> spaces.Space:
        """The space of what actors see; without bounds where that is a function's result."""
        return self._space("actor_sees", params)

    def critic_space(self, params: Any) -> spaces.Space:
        """The space of what critics see; without bounds where that is a function's result."""
        return self._space("critic_sees", params)

    def _space(self, name: str, params: Any) -> spaces.Space:
        space: Any = self.inner.observation_space(self.inner_params(params))
        part = getattr(self, name)
        if part is None:
            return space
        if isinstance(part, str):
            return space.spaces[part]
        if isinstance(part, tuple):
            return spaces.Dict({each: space.spaces[each] for each in part})
        return space_of(jax.eval_shape(part, observation_of(self.inner)), f"the function of {name}")

    def privileged(self, state: Any, params: Any) -> Any:
        """What critics see of the last observation, or what is privileged in the inner environment."""
        return super().privileged(state, params) if self.critic_sees is None else state.critic

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        """The inner environment's reset, with the observation in two parts."""
        obs, inner = super().reset_env(key, params)
        return self._shown(obs), self._state(obs, inner)

    def step_env(
        self, key: jax.Array, state: Any, action: Any, params: Any
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """The inner environment's step, with the observation in two parts."""
        obs, inner, reward, terminated, info = super().step_env(key, state, action, params)
        return self._shown(obs), self._state(obs, inner), reward, terminated, info

    def _shown(self, obs: Any) -> Any:
        return obs if self.actor_sees is None else self._part(self.actor_sees, obs)

    def _state(self, obs: Any, inner: Any) -> Any:
        if self.critic_sees is None:
            return inner
        return AsymmetricState(inner.time, inner, self._part(self.critic_sees, obs))

    def _part(self, part: Part, obs: Any) -> Any:
        if isinstance(part, str):
            return obs[part]
        if isinstance(part, tuple):
            return {name: obs[name] for name in part}
        function = part
        for _ in agents_of(self.inner):
            function = jax.vmap(function)
        return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), function(obs))


def seen_by(env: base.Environment, actor_sees: Part, critic_sees: Part = "own") -> tuple[base.Environment, View]:
    """Environment as an actor sees it, and the kind of its critic's input.

    Args:
      env: base.Environment; one that this function has returned for the same values is returned as it is.
      actor_sees: What the actor sees: "all"; "auto", all but entries with "privileged" in their names; or a part.
      critic_sees: What the critic sees: "own", what the actor sees; "all"; "global" or "privileged", what the actor
        sees and in addition the environment's `global_observation` or `privileged`; a part, and that alone; or "auto",
        privileged entries of observations where there are some, and otherwise "own".

    Raises:
      TypeError, ValueError: Observations have no such part.
    """
    whole = seen_from(env, actor_sees, critic_sees)
    parts, view = _parts(whole, actor_sees, critic_sees)
    if whole is not env:
        return env, view
    if parts == (None, None):
        return env, view
    if actor_sees == "auto" and parts[0] is not None:
        _report(env, *parts)
    return asymmetric_observation(env, *parts), view


def seen_from(env: base.Environment, actor_sees: Part, critic_sees: Part = "own") -> base.Environment:
    """Environment from which `seen_by` made another one; that itself if it did not.

    Args:
      env: Environment, perhaps a result of `seen_by`.
      actor_sees, critic_sees: See `seen_by`.
    """
    if not isinstance(env, AsymmetricObservation):
        return env
    parts, _ = _parts(env.inner, actor_sees, critic_sees)
    return env.inner if parts == (env.actor_sees, env.critic_sees) else env


def _parts(env: base.Environment, actor_sees: Part, critic_sees: Part) -> tuple[tuple[Part | None, Part | None], View]:
    """Parts of observations for the actor and for the critic, None for all and for none, and the critic's view."""
    space = env.observation_space(env.default_params)
    names = tuple(space.spaces) if isinstance(space, spaces.Dict) else ()
    privileged = tuple(name for name in names if "privileged" in name)
    others = tuple(name for name in names if name not in privileged)
    actor, critic = actor_sees, critic_sees
    if actor in ("all", "auto"):
        actor = _one(others) if actor == "auto" and privileged and others else None
    if critic == "auto" and privileged and actor_sees != "all":
        return (actor, _one(privileged)), "apart"
    if critic == "auto" and isinstance(env, AsymmetricObservation) and env.critic_sees is not None:
        return (actor, None), "apart"
    if critic in ("auto", "own") or (critic == "all" and actor is None):
        return (actor, None), "own"
    if critic == "all":
        return (actor, names or _everything), "apart"
    if critic in ("global", "privileged"):
        return (actor, None), "global" if critic == "global" else "joined"
    return (actor, critic), "apart"


def _one(names: tuple[str, ...]) -> Part:
    return names[0] if len(names) == 1 else names


def _everything(obs: Any) -> Any:
    return obs


def _report(env: base.Environment, actor: Part | None, critic: Part | None) -> None:
    shown = "nothing else" if critic is None else f"its critic {critic!r}"
    warnings.warn(
        f"on {env.name} the actor sees {actor!r} of the observations, and {shown}; actor_sees and critic_sees of the "
        "configuration change that, and actor_sees='all' shows everything",
        RuntimeWarning,
        stacklevel=7,
    )


def _check_part(name: str, part: Any, space: spaces.Space, env_name: str) -> None:
    """Reject a part that observations do not have."""
    if part is None or callable(part):
        return
    names = (part,) if isinstance(part, str) else part
    if not isinstance(names, tuple) or not names or not all(isinstance(each, str) for each in names):
        raise UserTypeError(
            f"{name} takes the name of an entry of observations, several names, or a function of an observation, got "
            f"{part!r}"
        )
    if not isinstance(space, spaces.Dict):
        raise UserValueError(
            f"{name} takes names where observations are dictionaries, got {part!r} on {env_name}, whose observations "
            f"are arrays; a function of an observation selects parts of those"
        )
    for each in names:
        if each not in space.spaces:
            known = ", ".join(map(repr, space.spaces))
            hint = near(each, tuple(space.spaces)) or "."
            raise UserValueError(f"{name} takes entries of the observations of {env_name}, {known}, got {each!r}{hint}")
