"""Any Gymnasium environment, simulated in Python on the host (slow): `envs.make("gymnasium/CartPole-v1")`.

A program that calls back to Python at every step is tens to hundreds of times slower than one that does not, and blocks
the host while it runs. This adapter is for evaluating a policy in its original environment and for small training
runs; for larger runs, it is worth writing the environment in JAX.

**Purity.** A JAX state cannot hold a simulator, because states are copied, discarded and selected. Instead, the state
holds the seed of the episode and all of its actions so far, and a step is a function of these: seed a simulator, repeat
the actions, and take the next one. `envs.check` tests this; therefore `jax.vmap`, resets that are never used, two
continuations of one state, and runs resumed in another process all work. Repeating actions would be slow, so simulators
are stored by their history: a step takes the simulator with exactly the state's history, and repeats actions only if
there is no such simulator. One simulator is stored for each unfinished episode of every run: up to 1,024, or twice as
many as are stepped at a time if that is more; beyond that, the oldest episodes are repeated at every step. Fresh states
have no simulator, and their first step costs a second reset. Simulators are reused, not closed, when their episodes
end: all simulators of an environment are closed together, once no program uses it and 32 other environments have been
used since, or when Python exits.

**Requirements and costs.** The environment must be a function of its seed and its actions, which is tested once when
it is made. An error of the environment ends training with that error. A state grows with the time limit, by one action
per step. Programs with callbacks cannot be exported, and are not stored in JAX's compilation cache.
"""

import functools
import inspect
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.envs.registration import EnvSpec, load_env_creator

from envs import base
from envs.adapters.incoming import from_gymnasium
from envs.adapters.incoming.simulators import Simulators
from envs.base import spaces
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Action, Params
from envs.settings import own_settings
from envs.spelling import near

_MOST_ENVIRONMENTS = 32
# Environments in JAX have adapters of their own.
_ELSEWHERE = ("phys2d/", "tabular/", "jaxrl/")
_TIME_LIMIT = 1000


@struct.dataclass
class HostState(base.EnvState):
    """The history of an episode, from which a simulator can be brought to the same point.

    Attributes:
      time: Number of steps taken.
      seed: Seed of the episode, int32.
      actions: Actions `[time limit, ...]`, those taken so far first.
      terminated, truncated: Whether the environment has ended the episode.
    """

    time: jax.Array
    seed: jax.Array
    actions: Any
    terminated: jax.Array
    truncated: jax.Array


@dataclass(frozen=True)
class HostEnvironment(base.Environment):
    """A Gymnasium environment whose every step calls Python: slow; see this module.

    Observations and rewards are cast to types that JAX has; actions, including those in a Dict or Tuple, are clipped
    to the bounds of their boxes. Truncation by the environment itself is kept, in addition to the time limit, which
    replaces Gymnasium's `TimeLimit`.

    Attributes:
      env_id: Name in Gymnasium.
      spec: Specification registered under it; another registration of the same id gives another environment.
      fields: Arguments of `gymnasium.make`, and `time_limit`, the largest number of steps of an episode, as sorted
        (name, value) pairs.
    """

    env_id: str
    spec: EnvSpec = field(hash=False, repr=False)
    fields: tuple[tuple[str, Hashable], ...] = ()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"gymnasium/{self.env_id}"

    @property
    def time_limit(self) -> int:
        """The largest number of steps of an episode: Gymnasium's time limit, 1,000 where it has none."""
        usual = self.spec.max_episode_steps or _TIME_LIMIT
        limit: Any = dict(self.fields).get("time_limit", usual)
        return limit

    @property
    def default_params(self) -> base.EnvParams:
        """The time limit; a simulator in Python has no traced numbers."""
        return base.EnvParams(max_steps_in_episode=self.time_limit)

    def check_params(self, params: Params) -> None:
        """Reject a time limit for which a state has no room."""
        longest = int(np.max(params.max_steps_in_episode))
        if longest > self.time_limit:
            raise UserValueError(
                f"env.max_steps_in_episode must be at most {self.time_limit} on {self.name}, got {longest}; "
                f"a longer episode takes envs.make({self.name!r}, time_limit={longest})."
            )

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, HostState]:
        """An episode with a seed drawn from the key."""
        seed = jax.random.randint(key, (), 0, np.iinfo(np.int32).max)
        simulators = _simulators(self)
        obs = jax.pure_callback(simulators.reset, simulators.obs_types, seed, vmap_method="broadcast_all")
        action = _plain(jax.eval_shape(self.action_space().sample, key))
        actions = jax.tree.map(lambda leaf: jnp.zeros((self.time_limit, *leaf.shape), leaf.dtype), action)
        none = jnp.zeros((), bool)
        return obs, HostState(jnp.zeros((), jnp.int32), seed, actions, none, none)

    def step_env(
        self, key: jax.Array, state: HostState, action: Action, params: Params
    ) -> tuple[Any, HostState, jax.Array, jax.Array, dict[Any, Any]]:
        """The simulator's step; after the end of an episode nothing changes."""
        del key
        simulators = _simulators(self)
        actions = jax.tree.map(lambda held, new: held.at[state.time].set(new), state.actions, _plain(action))
        over = state.terminated | state.truncated | (state.time >= self.time_limit)
        last = state.time + 1 >= jnp.minimum(params.max_steps_in_episode, self.time_limit)
        flag = jax.ShapeDtypeStruct((), jnp.bool_)
        types = (simulators.obs_types, jax.ShapeDtypeStruct((), jnp.float32), flag, flag)
        obs, reward, terminated, truncated = jax.pure_callback(
            simulators.step, types, over, last, state.seed, state.time, actions, vmap_method="broadcast_all"
        )
        terminated, truncated = terminated | state.terminated, truncated | state.truncated
        state = HostState(state.time + 1, state.seed, actions, terminated, truncated)
        return obs, state, reward, terminated, {}

    def is_truncated(self, state: HostState, params: Params) -> jax.Array:
        """The time limit, or a truncation by the environment itself."""
        return (state.time >= jnp.minimum(params.max_steps_in_episode, self.time_limit)) | state.truncated

    def action_space(self, params: Params = None) -> spaces.Space:
        """Gymnasium's action space."""
        return from_gymnasium.action_space(_simulators(self).action_space, self.name)

    def observation_space(self, params: Params) -> spaces.Space:
        """Gymnasium's observation space."""
        return from_gymnasium.observation_space(_simulators(self).observation_space, self.name)


def environment_ids() -> tuple[str, ...]:
    """The ids in Gymnasium's registry now, except those of environments written in JAX."""
    return tuple(env_id for env_id in gymnasium.registry if not env_id.startswith(_ELSEWHERE))


def make(env_id: str, **fields: object) -> HostEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ValueError: The environment does not take such a field, its spaces have no fixed shape, or it is not a function
        of its seed and actions.
      TypeError: A field's value cannot be hashed.
      gymnasium.error.DependencyNotInstalled: A dependency of the environment is not installed.
    """
    env = HostEnvironment(env_id, gymnasium.spec(env_id), tuple(sorted(fields.items())))
    creator = env.spec.entry_point
    parameters = inspect.signature(load_env_creator(creator) if isinstance(creator, str) else creator).parameters  # pyright: ignore[reportArgumentType]
    known = ["time_limit", *(name for name in parameters if name not in ("kwargs", "args"))]
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for name, value in fields.items():
        if name not in known and not takes_any:
            hint = near(name, known) or f"; its static fields are {', '.join(known)}."
            raise UserValueError(f"The environment {env.name!r} has no static field {name!r}{hint}")
        if not isinstance(value, Hashable):
            raise UserTypeError(f"{env.name}: the static field {name!r} is {value!r}, which cannot be hashed.")
    limit = env.time_limit
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise UserValueError(f"time_limit takes a whole number of at least 1, got {limit!r}.")
    _simulators(env)
    return env


def _plain(action: Action) -> Any:
    """An action whose dictionaries are plain ones: a space samples an `OrderedDict`, which is another pytree in JAX."""
    if isinstance(action, Mapping):
        return {name: _plain(part) for name, part in action.items()}
    return tuple(map(_plain, action)) if isinstance(action, tuple) else action


@functools.lru_cache(_MOST_ENVIRONMENTS)
@own_settings()
def _simulators(env: HostEnvironment) -> Simulators:
    arguments = {name: value for name, value in env.fields if name != "time_limit"}
    with jax.ensure_compile_time_eval():
        return Simulators(env.spec, arguments, env.name)
