"""JaxMARL's environments of identical agents, as crowds: `envs.make("jaxmarl/MPE_simple_spread_v3")`."""

import functools
import importlib
import inspect
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.adapters.incoming import suite
from envs.base import spaces
from envs.casting import cast, held_types
from envs.choices import MultiDiscrete
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Observation, State
from envs.settings import own_settings
from envs.spelling import near

REQUIREMENT = "jaxmarl>=0.2,<0.3"
# Environments with a time limit, the argument `max_steps`, which their own counters reach one step late.
_LIMITED = ("jaxmarl.environments.mpe", "jaxmarl.environments.smax")
_ENEMIES = "jaxmarl.environments.smax.heuristic_enemy_smax_env"
_TIME_LIMIT = 1000
_ALIKE = (
    "MPE_simple_v3",
    "MPE_simple_spread_v3",
    "MPE_simple_reference_v3",
    "switch_riddle",
    "SMAX",
    "HeuristicEnemySMAX",
)
# Environments that are rejected with a reason instead of being reported as unknown.
REFUSED = (
    "MPE_simple_tag_v3",
    "MPE_simple_world_comm_v3",
    "MPE_simple_crypto_v3",
    "MPE_simple_speaker_listener_v4",
    "MPE_simple_push_v3",
    "MPE_simple_adversary_v3",
)


@struct.dataclass
class JaxMARLParams(base.EnvParams):
    """The time limit; everything else about JaxMARL's environments is static."""

    max_steps_in_episode: int = _TIME_LIMIT


@struct.dataclass
class JaxMARLState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      inner: State in JaxMARL.
      finished: Whether an agent has finished, bool `[N]`.
    """

    time: jax.Array
    inner: Any
    finished: jax.Array


@dataclass(frozen=True)
class JaxMARLEnvironment(base.Environment):
    """One of JaxMARL's environments whose agents observe and act alike.

    Its agents, in JaxMARL's order, are one crowd: observations `[N, ...]`, actions `[N, ...]`, rewards `[N]`. An agent
    that is done in JaxMARL has terminated and no longer takes part (`info["active"]`), while its rewards still count in
    returns; `dones["__all__"]` terminates. In MPE and SMAX, JaxMARL's `max_steps` is a time limit, which truncates
    here: the default of `max_steps_in_episode` is the number of steps of an episode in JaxMARL, `max_steps` + 1. In
    SwitchRiddle the number of days is a rule of the game, and its end terminates.

    `global_observation` is JaxMARL's `get_world_state` where there is one, otherwise the concatenated observations of
    all agents. `action_mask` is `get_avail_actions`. Real numbers in observations have no bounds.

    Attributes:
      env_id: Name in JaxMARL, for instance `MPE_simple_spread_v3`.
      fields: Arguments of JaxMARL's constructor, as sorted (name, value) pairs; the `scenario` of SMAX by name.
    """

    env_id: str
    fields: tuple[tuple[str, Hashable], ...] = ()

    @property
    def inner(self) -> Any:
        """The environment as JaxMARL creates it, in MPE and SMAX without its time limit."""
        return _inner(self)[0]

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"jaxmarl/{self.env_id}"

    @property
    def default_params(self) -> JaxMARLParams:
        """JaxMARL's time limit."""
        return JaxMARLParams(max_steps_in_episode=_inner(self)[1])

    def reset_env(self, key: jax.Array, params: JaxMARLParams) -> tuple[Any, JaxMARLState]:
        """JaxMARL's reset."""
        del params
        obs, inner = self._outward(*self.inner.reset(key))
        return obs, JaxMARLState(jnp.zeros((), jnp.int32), inner, jnp.zeros(self.inner.num_agents, bool))

    def step_env(
        self, key: jax.Array, state: JaxMARLState, action: Action, params: JaxMARLParams
    ) -> tuple[Any, JaxMARLState, jax.Array, jax.Array, dict[Any, Any]]:
        """JaxMARL's step, without its reset."""
        del params
        obs, inner, reward, done, _ = _step(self, key, state.inner, action)
        obs, inner = self._outward(obs, inner)
        agents = self.inner.agents
        terminated = jnp.asarray(done["__all__"], bool)
        ended = jnp.stack([jnp.asarray(done[agent], bool) for agent in agents]) | terminated
        info = {"active": ~state.finished, "agent_terminated": ended}
        state = JaxMARLState(state.time + 1, inner, state.finished | ended)
        return obs, state, jnp.stack([jnp.float32(reward[agent]) for agent in agents]), terminated, info

    def action_mask(self, state: JaxMARLState, params: JaxMARLParams) -> jax.Array | None:
        """JaxMARL's available actions, bool `[N, num_actions]`; None if the environment does not define them."""
        del params
        if not _types(self)[2]:
            return None
        available = self.inner.get_avail_actions(state.inner)
        return jnp.stack([jnp.asarray(available[agent], bool) for agent in self.inner.agents])

    def global_observation(self, state: JaxMARLState, params: JaxMARLParams) -> jax.Array:
        """JaxMARL's world state, or all observations in one vector: float32."""
        del params
        if hasattr(self.inner, "get_world_state"):
            return jnp.asarray(self.inner.get_world_state(state.inner), jnp.float32)
        obs = self.inner.get_obs(state.inner)
        return jnp.concatenate([jnp.ravel(obs[agent]).astype(jnp.float32) for agent in self.inner.agents])

    def action_space(self, params: JaxMARLParams | None = None) -> spaces.Space:
        """The action space of one agent."""
        del params
        theirs = self.inner.action_space(self.inner.agents[0])
        if type(theirs).__name__ == "Discrete":
            return spaces.Discrete(int(theirs.n))
        return spaces.Box(theirs.low, theirs.high, theirs.shape, jnp.float32)

    def observation_space(self, params: JaxMARLParams) -> spaces.Space:
        """The observation space of one agent: integers with their bounds, real numbers without."""
        del params
        theirs = self.inner.observation_space(self.inner.agents[0])
        if type(theirs).__name__ == "MultiDiscrete":
            return MultiDiscrete(np.asarray(theirs.num_categories))
        return spaces.Box(-jnp.inf, jnp.inf, theirs.shape, jnp.float32)

    def _outward(self, obs: Observation, inner: Any) -> tuple[jax.Array, Any]:
        """Observations of all agents and JaxMARL's state, cast to the fixed types that a scan requires."""
        obs_type, state_types, _ = _types(self)
        return cast(_stacked(self.inner, obs), obs_type), cast(inner, state_types)


def environment_ids() -> tuple[str, ...]:
    """The names of JaxMARL's environments with identical agents, as tested here.

    Raises:
      ImportError: JaxMARL is not installed.
    """
    return tuple(env_id for env_id in _jaxmarl().registered_envs if env_id in _ALIKE)


def make(env_id: str, **fields: object) -> JaxMARLEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ImportError: JaxMARL is not installed.
      ValueError: Its agents are not identical, or JaxMARL's constructor does not accept a field or its value.
      TypeError: A field's value cannot be hashed.
    """
    for name, value in fields.items():
        if not isinstance(value, Hashable):
            raise UserTypeError(f"jaxmarl/{env_id}: the static field {name!r} is {value!r}, which cannot be hashed.")
    env = JaxMARLEnvironment(env_id, tuple(sorted(fields.items())))
    _check_alike(env)
    return env


def _check_alike(env: JaxMARLEnvironment) -> None:
    """Reject agents whose spaces differ."""
    for kind, does in (("observation_space", "observes"), ("action_space", "acts in")):
        described = {agent: _described(getattr(env.inner, kind)(agent)) for agent in env.inner.agents}
        first, one = next(iter(described.items()))
        for agent, other in described.items():
            if other != one:
                raise UserValueError(
                    f"{env.name} has unlike agents: {first} {does} {one[0]} and {agent} {does} {other[0]}; supported "
                    "environments have agents that observe and act alike."
                )


def _described(space: Any) -> tuple[str, ...]:
    """A key that is equal for equal spaces; its first part is the description."""
    kind = type(space).__name__
    if kind == "Discrete":
        return (f"Discrete({space.n})",)
    if kind == "MultiDiscrete":
        return (f"MultiDiscrete({np.asarray(space.num_categories).tolist()})",)
    return f"Box{list(space.shape)}", str(np.asarray(space.low)), str(np.asarray(space.high))


def _stacked(inner: Any, of_agents: Any) -> Any:
    return jnp.stack([jnp.asarray(of_agents[agent]) for agent in inner.agents])


def _step(env: JaxMARLEnvironment, key: jax.Array, inner: Any, action: Action) -> Any:
    return env.inner.step_env(key, inner, {agent: action[i] for i, agent in enumerate(env.inner.agents)})


@functools.cache
@own_settings()
def _inner(env: JaxMARLEnvironment) -> tuple[Any, int]:
    """The environment as JaxMARL creates it, and its usual time limit."""
    registration, fields = _jaxmarl(), dict(env.fields)
    with jax.ensure_compile_time_eval():
        inner = registration.make(env.env_id)
        known = _constructor(type(inner))
        for name in fields:
            if name not in known:
                hint = near(name, known) or f"; its static fields are {', '.join(known)}."
                raise UserValueError(f"The environment {env.name!r} has no static field {name!r}{hint}")
        if fields:
            try:
                inner = registration.make(env.env_id, **{name: _value(name, value) for name, value in fields.items()})
            except (AssertionError, KeyError, TypeError, ValueError) as error:
                raise UserValueError(f"{env.name} cannot be made with {fields}: {error}") from error
    core = vars(inner).get("_env", inner)  # the inner environment of SMAX with its own enemies
    own = getattr(core, "max_steps", _TIME_LIMIT)
    if not type(core).__module__.startswith(_LIMITED):
        return inner, own
    core.max_steps = suite.NO_LIMIT
    return inner, own + 1


def _value(name: str, value: object) -> Any:
    if name == "scenario" and isinstance(value, str):
        return importlib.import_module("jaxmarl.environments.smax").map_name_to_scenario(value)
    return value


def _constructor(kind: type) -> list[str]:
    """Names of the keyword arguments of JaxMARL's constructor, including those that it passes on."""
    names: list[str] = []
    kinds = list(kind.__mro__)
    if kind.__module__ == _ENEMIES:  # these pass arguments on to their inner environments
        kinds = [*(each for each in kinds if each.__module__ == _ENEMIES), _jaxmarl().SMAX]
    for each in kinds:
        if "__init__" in vars(each) and each is not object:
            parameters = inspect.signature(each.__init__).parameters.values()
            names += [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
    return list(dict.fromkeys(names))


@functools.cache
@own_settings()
def _types(env: JaxMARLEnvironment) -> tuple[Any, Any, bool]:
    """The types of all agents' observations and of JaxMARL's state, and whether it defines available actions."""
    with jax.ensure_compile_time_eval():
        key = jax.eval_shape(lambda: jax.random.key(0))
        space: Any = env.observation_space(env.default_params)

        def reset(key: jax.Array) -> Any:
            return env.inner.reset(key)[1]

        def step(state: State, key: jax.Array) -> Any:
            actions = jax.vmap(env.action_space().sample)(jax.random.split(key, env.inner.num_agents))
            return _step(env, key, state, actions)[1]

        state = held_types(jax.eval_shape(reset, key), lambda state: jax.eval_shape(step, state, key))
        try:
            masked = isinstance(env.action_space(), spaces.Discrete)
            masked = masked and bool(jax.eval_shape(env.inner.get_avail_actions, state))
        except NotImplementedError:
            masked = False
    return jax.ShapeDtypeStruct((env.inner.num_agents, *space.shape), space.dtype), state, masked


def _jaxmarl() -> Any:
    return suite.imported("jaxmarl.registration", "jaxmarl", REQUIREMENT)
