"""Any environment of Gymnasium's, simulated in Python on the host: `envs.make("gymnasium/CartPole-v1")`. It is slow.

A program that calls back to Python at every step is tens to hundreds of times slower than one that does not, and holds
the host while it runs. This is for evaluating a policy where it came from and for small training runs; an
environment in JAX is worth its writing for anything more.

**How it stays a pure function.** A simulator cannot be held by a JAX state, which is copied, thrown away and
selected from. The state holds the seed of the episode and all of its actions so far instead, and a step is a function
of these: seed a simulator, repeat the actions, take the next one. That is what `envs.check` tests, and why
`jax.vmap`, resets that are never used, two continuations of one state, and runs that are resumed in another process
are all right. Repeating would be slow, so simulators are kept under what they have been through: a step takes the
one that stands exactly where the state does, and repeats only where there is none.

**What it needs and costs.** The environment must be a function of its seed and its actions, which is tried once when
it is made. A state grows with the time limit, by one action a step. Programs with callbacks cannot be exported, and
are not kept in JAX's compilation cache.
"""

import functools
import hashlib
import inspect
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.envs.registration import load_env_creator

from envs import base
from envs.adapters import from_gymnasium
from envs.base import spaces
from envs.spelling import near

# Those in JAX have adapters of their own.
_ELSEWHERE = ("phys2d/", "tabular/", "jaxrl/")
_TIME_LIMIT = 1000
_FEWEST_KEPT = 64
_TRIED_STEPS = 8


@struct.dataclass
class HostState(base.EnvState):
    """An episode: what happened in it, from which a simulator can be brought to the same point.

    Attributes:
      time: steps taken.
      seed: int32, of the episode.
      actions: `[time limit, ...]`, those that were taken first.
      terminated, truncated: whether the environment has ended the episode.
    """

    time: jax.Array
    seed: jax.Array
    actions: Any
    terminated: jax.Array
    truncated: jax.Array


@dataclass(frozen=True)
class HostEnvironment(base.Environment):
    """An environment of Gymnasium's, whose every step calls Python: slow; see this module.

    Observations and rewards are cast to types that JAX has; actions are clipped to their bounds. An environment that
    truncates by itself does so here, and so does the time limit, which replaces Gymnasium's `TimeLimit`.

    Attributes:
      env_id: Gymnasium's name.
      fields: what `gymnasium.make` is called with, and `time_limit`, the most steps of an episode, as sorted
        (name, value) pairs.
    """

    env_id: str
    fields: tuple[tuple[str, Hashable], ...] = ()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return f"gymnasium/{self.env_id}"

    @property
    def time_limit(self) -> int:
        """The most steps of an episode: Gymnasium's time limit, 1,000 where it has none."""
        usual = gymnasium.spec(self.env_id).max_episode_steps or _TIME_LIMIT
        limit: Any = dict(self.fields).get("time_limit", usual)
        return limit

    @property
    def default_params(self) -> base.EnvParams:
        """The time limit; a simulator in Python has no traced numbers."""
        return base.EnvParams(max_steps_in_episode=self.time_limit)

    def check_params(self, params: Any) -> None:
        """Refuse a time limit beyond what a state has room for."""
        longest = int(np.max(params.max_steps_in_episode))
        if longest > self.time_limit:
            raise ValueError(
                f"env.max_steps_in_episode must be at most {self.time_limit} on {self.name}, got {longest}; "
                f"a longer episode takes envs.make({self.name!r}, time_limit={longest})."
            )

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, HostState]:
        """An episode under a seed that is drawn from the key."""
        seed = jax.random.randint(key, (), 0, np.iinfo(np.int32).max)
        simulators = _simulators(self)
        obs = jax.pure_callback(simulators.reset, simulators.obs_types, seed, vmap_method="broadcast_all")
        action = jax.eval_shape(self.action_space().sample, key)
        actions = jax.tree.map(lambda leaf: jnp.zeros((self.time_limit, *leaf.shape), leaf.dtype), action)
        none = jnp.zeros((), bool)
        return obs, HostState(jnp.zeros((), jnp.int32), seed, actions, none, none)

    def step_env(
        self, key: jax.Array, state: HostState, action: Any, params: Any
    ) -> tuple[Any, HostState, jax.Array, jax.Array, dict[Any, Any]]:
        """The simulator's step; once an episode has ended, nothing more happens in it."""
        del key
        simulators = _simulators(self)
        actions = jax.tree.map(lambda held, new: held.at[state.time].set(new), state.actions, action)
        over = state.terminated | state.truncated | (state.time >= self.time_limit)
        flag = jax.ShapeDtypeStruct((), jnp.bool_)
        types = (simulators.obs_types, jax.ShapeDtypeStruct((), jnp.float32), flag, flag)
        obs, reward, terminated, truncated = jax.pure_callback(
            simulators.step, types, over, state.seed, state.time, actions, vmap_method="broadcast_all"
        )
        terminated, truncated = terminated | state.terminated, truncated | state.truncated
        state = HostState(state.time + 1, state.seed, actions, terminated, truncated)
        return obs, state, reward, terminated, {}

    def is_truncated(self, state: HostState, params: Any) -> jax.Array:
        """The time limit, or an end that is the environment's own."""
        return (state.time >= jnp.minimum(params.max_steps_in_episode, self.time_limit)) | state.truncated

    def action_space(self, params: Any = None) -> spaces.Space:
        """Gymnasium's action space."""
        return from_gymnasium.action_space(_simulators(self).action_space, self.name)

    def observation_space(self, params: Any) -> spaces.Space:
        """Gymnasium's observation space."""
        return from_gymnasium.observation_space(_simulators(self).observation_space, self.name)


class Simulators:
    """The host's side of one environment: simulators, kept under what they have been through.

    Attributes:
      observation_space, action_space: Gymnasium's.
      obs_types: of an observation of ours.
      made, repeated: simulators that were made, and actions that were repeated, for want of one that is kept.
    """

    def __init__(self, env: HostEnvironment):
        """Makes one simulator and tries whether it is a function of its seed and actions.

        Raises:
          ValueError: it is not, or its spaces cannot be adapted.
        """
        self._env_id, self._name = env.env_id, env.name
        self._arguments: dict[str, Any] = {name: value for name, value in env.fields if name != "time_limit"}
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[bytes, Any]] = OrderedDict()  # by age
        self._places: dict[bytes, list[int]] = {}  # what a simulator has been through: which ones have
        self._free: list[Any] = []
        self._most, self._count = _FEWEST_KEPT, 0
        self.made = self.repeated = 0
        simulator = self._make()
        self.observation_space, self.action_space = simulator.observation_space, simulator.action_space
        from_gymnasium.action_space(self.action_space, self._name)
        space = from_gymnasium.observation_space(self.observation_space, self._name)
        self._nothing = jax.tree.map(np.asarray, _nothing(space))
        self.obs_types = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self._nothing)
        self._try_twice(simulator)
        self._free.append(simulator)

    def reset(self, seed: Any) -> Any:
        """First observations; leaves `[*B, ...]` for seeds `[*B]`."""
        seeds = np.asarray(seed)
        with self._lock:
            self._make_room(seeds.size)
            observations = []
            for one in seeds.ravel().tolist():
                simulator, obs = self._begin(one)
                self._keep(_key(one, b""), simulator)
                observations.append(obs)
        return _stack(observations, seeds.shape)

    def step(self, over: Any, seed: Any, time: Any, actions: Any) -> Any:
        """Observations, rewards and both flags after the last of `time + 1` actions; leaves `[*B, ...]`."""
        shape = np.shape(over)
        overs, seeds, times = (np.asarray(each).ravel().tolist() for each in (over, seed, time))
        leaves, structure = jax.tree.flatten(actions)
        histories = [np.asarray(leaf).reshape(len(overs), *np.shape(leaf)[len(shape) :]) for leaf in leaves]
        with self._lock:
            self._make_room(len(overs))
            results = []
            for i, ended in enumerate(overs):
                if ended:
                    results.append((self._nothing, np.float32(0), np.False_, np.False_))
                    continue
                taken = [history[i, : times[i] + 1] for history in histories]
                results.append(self._step(seeds[i], times[i], taken, structure))
        return _stack(results, shape)

    def _step(self, seed: int, time: int, taken: list[np.ndarray], structure: Any) -> Any:
        def play(simulator: Any, step: int) -> tuple[Any, ...]:
            action = jax.tree.unflatten(structure, [history[step] for history in taken])
            return simulator.step(_clipped(self.action_space, action))

        simulator = self._take(_key(seed, _bytes(taken, time)))
        if simulator is None:
            simulator, _ = self._begin(seed)
            for step in range(time):
                _, _, terminated, truncated, _ = play(simulator, step)
                if terminated or truncated:
                    raise RuntimeError(f"{self._name} {_NO_FUNCTION}")
            self.repeated += time
        obs, reward, terminated, truncated, _ = play(simulator, time)
        if terminated or truncated:
            self._free.append(simulator)
        else:
            self._keep(_key(seed, _bytes(taken, time + 1)), simulator)
        obs = from_gymnasium.observation_value(self.observation_space, obs)
        return obs, np.float32(reward), np.bool_(terminated), np.bool_(truncated)

    def _make(self) -> Any:
        self.made += 1
        return gymnasium.make(self._env_id, max_episode_steps=-1, disable_env_checker=True, **self._arguments)

    def _begin(self, seed: int) -> tuple[Any, Any]:
        simulator = self._free.pop() if self._free else self._make()
        obs, _ = simulator.reset(seed=seed)
        return simulator, from_gymnasium.observation_value(self.observation_space, obs)

    def _make_room(self, batch: int) -> None:
        # Of a batch that is stepped, and the fresh ones that wait for their turn beside it.
        self._most = max(self._most, 4 * batch)

    def _keep(self, key: bytes, simulator: Any) -> None:
        self._count += 1
        self._kept[self._count] = (key, simulator)
        self._places.setdefault(key, []).append(self._count)
        if len(self._kept) > self._most:
            oldest, (key, simulator) = self._kept.popitem(last=False)
            self._forget(key, oldest)
            self._free.append(simulator)

    def _take(self, key: bytes) -> Any:
        if key not in self._places:
            return None
        number = self._places[key][-1]
        self._forget(key, number)
        return self._kept.pop(number)[1]

    def _forget(self, key: bytes, number: int) -> None:
        self._places[key].remove(number)
        if not self._places[key]:
            del self._places[key]

    def _try_twice(self, simulator: Any) -> None:
        self.action_space.seed(0)
        actions = [self.action_space.sample() for _ in range(_TRIED_STEPS)]
        if _episode(simulator, actions) != _episode(simulator, actions):
            raise ValueError(f"{self._name} {_NO_FUNCTION}")


_NO_FUNCTION = (
    "gave two different episodes for one seed and the same actions; an environment on the host must be a function "
    "of reset(seed=...) and its actions."
)


def environment_ids() -> tuple[str, ...]:
    """What Gymnasium's registry holds now, without what is written in JAX."""
    return tuple(env_id for env_id in gymnasium.registry if not env_id.startswith(_ELSEWHERE))


def make(env_id: str, **fields: object) -> HostEnvironment:
    """The adapter of one environment; see `envs.make`.

    Raises:
      ValueError: the environment takes no such field, its spaces have no fixed shape, or it is no function of its
        seed and actions.
      TypeError: a field's value cannot be hashed.
      gymnasium.error.DependencyNotInstalled: what the environment needs is missing.
    """
    env = HostEnvironment(env_id, tuple(sorted(fields.items())))
    creator = gymnasium.spec(env_id).entry_point
    parameters = inspect.signature(load_env_creator(creator) if isinstance(creator, str) else creator).parameters  # pyright: ignore[reportArgumentType]
    known = ["time_limit", *(name for name in parameters if name not in ("kwargs", "args"))]
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for name, value in fields.items():
        if name not in known and not takes_any:
            hint = near(name, known) or f"; its static fields are {', '.join(known)}."
            raise ValueError(f"The environment {env.name!r} has no static field {name!r}{hint}")
        if not isinstance(value, Hashable):
            raise TypeError(f"{env.name}: the static field {name!r} is {value!r}, which cannot be hashed.")
    limit = env.time_limit
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"time_limit takes a whole number of at least 1, got {limit!r}.")
    _simulators(env)
    return env


@functools.cache
def _simulators(env: HostEnvironment) -> Simulators:
    with jax.ensure_compile_time_eval():
        return Simulators(env)


def _key(seed: int, history: bytes) -> bytes:
    return hashlib.blake2b(seed.to_bytes(8, "little") + history, digest_size=16).digest()


def _bytes(taken: list[np.ndarray], steps: int) -> bytes:
    return b"".join(history[:steps].tobytes() for history in taken)


def _clipped(space: Any, action: Any) -> Any:
    action = from_gymnasium.action_value(space, action)
    return np.clip(action, space.low, space.high) if isinstance(space, gymnasium.spaces.Box) else action


def _nothing(space: spaces.Space) -> Any:
    """An observation that says nothing: zeros, or what is nearest to them in the space."""
    if isinstance(space, spaces.Dict):
        return {name: _nothing(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(_nothing, space.spaces))
    if isinstance(space, spaces.Discrete):
        return np.zeros((), np.int32)
    assert isinstance(space, spaces.Box)
    return np.clip(np.zeros(space.shape, space.dtype), np.asarray(space.low), np.asarray(space.high))


def _stack(values: list[Any], shape: tuple[int, ...]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves).reshape((*shape, *np.shape(leaves[0]))), *values)


def _episode(simulator: Any, actions: list[Any]) -> list[bytes]:
    """What can be seen of an episode."""
    seen: list[Any] = [simulator.reset(seed=0)[0]]
    for action in actions:
        obs, reward, terminated, truncated, _ = simulator.step(action)
        seen += [obs, reward, terminated]
        if terminated or truncated:
            break
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(seen)]
