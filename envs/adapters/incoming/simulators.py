"""The host's side of a Gymnasium environment; see `envs.adapters.incoming.host`."""

import hashlib
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec

from envs.adapters.incoming import from_gymnasium
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import Action, PyTree
from envs.settings import called_back

__all__ = ["Simulators"]

_MOST_KEPT = 1024
_TRIED_STEPS = 8
_NO_FUNCTION = (
    "gave two different episodes for one seed and the same actions; an environment on the host must be a function "
    "of reset(seed=...) and its actions."
)


class Simulators:
    """Simulators of one environment, stored by their history.

    One is stored for each episode that has begun and not ended. A fresh state has none: the first step seeds one again,
    which costs a reset and no actions. Beyond 1,024 episodes, or twice as many as are stepped at a time if that
    is more, the newest episode takes over the simulator that was stepped longest ago. All are closed when this object
    is garbage-collected, and when Python exits.

    Args:
      spec: Specification registered in Gymnasium.
      arguments: Arguments of `gymnasium.make`.
      name: Name of the environment, for error messages.

    Attributes:
      observation_space, action_space: Gymnasium's spaces.
      obs_types: Types of an observation in the form of `envs`.
      repeated: Number of actions that were repeated because no simulator was stored.
    """

    def __init__(self, spec: EnvSpec, arguments: Mapping[str, Any], name: str) -> None:
        """Create one simulator and test that it is a function of its seed and actions.

        Raises:
          ValueError: The simulator is not such a function, or its spaces cannot be adapted.
        """
        self._spec, self._arguments, self._name = spec, dict(arguments), name
        self._lock = threading.Lock()
        self._kept: dict[bytes, list[Any]] = {}  # the simulators of each history, sorted by age
        self._free: list[Any] = []
        self._most = _MOST_KEPT
        self.repeated = 0
        self._made: list[Any] = []
        weakref.finalize(self, _close, self._made)
        simulator = self._make()
        self.observation_space, self.action_space = simulator.observation_space, simulator.action_space
        from_gymnasium.action_space(self.action_space, self._name)
        space = from_gymnasium.observation_space(self.observation_space, self._name)
        self._nothing = jax.tree.map(np.asarray, _nothing(space))
        self.obs_types = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self._nothing)
        self._try_twice(simulator)
        self._free.append(simulator)

    @property
    def made(self) -> int:
        """Number of simulators created and still open."""
        return len(self._made)

    @called_back
    def reset(self, seed: Any) -> Any:
        """First observations; leaves `[*B, ...]` for seeds `[*B]`."""
        seeds = np.asarray(seed)
        observations = []
        with self._lock:
            for one in seeds.ravel().tolist():
                simulator, obs = self._begin(one)
                self._free.append(simulator)
                observations.append(obs)
        return _stack(observations, seeds.shape)

    @called_back
    def step(self, over: Any, last: Any, seed: Any, time: Any, actions: Action) -> Any:
        """Observations, rewards and both flags after the last of `time + 1` actions; leaves `[*B, ...]`.

        Args:
          over: Whether the episode has ended, so that there is no step.
          last: Whether it ends with this step, regardless of the environment.
          seed, time, actions: Fields of the state, with the new action at `time`.
        """
        shape = np.shape(over)
        overs, lasts, seeds, times = (np.asarray(each).ravel().tolist() for each in (over, last, seed, time))
        leaves, structure = jax.tree.flatten(actions)
        histories = [np.asarray(leaf).reshape(len(overs), *np.shape(leaf)[len(shape) :]) for leaf in leaves]
        with self._lock:
            self._most = max(self._most, 2 * len(overs))
            results = []
            for i, ended in enumerate(overs):
                if ended:
                    results.append((self._nothing, np.float32(0), np.False_, np.False_))
                    continue
                taken = [history[i, : times[i] + 1] for history in histories]
                results.append(self._step(lasts[i], seeds[i], times[i], taken, structure))
        return _stack(results, shape)

    def _step(self, last: bool, seed: int, time: int, taken: list[np.ndarray], structure: PyTree) -> Any:
        def play(simulator: Any, step: int) -> tuple[Any, ...]:
            action = jax.tree.unflatten(structure, [history[step] for history in taken])
            action = from_gymnasium.action_value(self.action_space, action)
            return simulator.step(_clipped(self.action_space, action))

        simulator = self._take(_key(seed, _bytes(taken, time)))
        if simulator is None:
            simulator, _ = self._begin(seed)
            for step in range(time):
                _, _, terminated, truncated, _ = play(simulator, step)
                if terminated or truncated:
                    raise UserValueError(f"{self._name} {_NO_FUNCTION}")
            self.repeated += time
        obs, reward, terminated, truncated, _ = play(simulator, time)
        if terminated or truncated or last:
            self._free.append(simulator)
        else:
            self._keep(_key(seed, _bytes(taken, time + 1)), simulator)
        obs = from_gymnasium.observation_value(self.observation_space, obs)
        return obs, np.float32(reward), np.bool_(terminated), np.bool_(truncated)

    def _make(self) -> Any:
        simulator = gymnasium.make(self._spec, max_episode_steps=-1, disable_env_checker=True, **self._arguments)
        self._made.append(simulator)
        return simulator

    def _begin(self, seed: int) -> tuple[Any, Any]:
        if self._free:
            simulator = self._free.pop()
        elif len(self._made) < self._most or not self._kept:
            simulator = self._make()
        else:
            simulator = self._take(next(iter(self._kept)))
        obs, _ = simulator.reset(seed=seed)
        return simulator, from_gymnasium.observation_value(self.observation_space, obs)

    def _keep(self, key: bytes, simulator: Any) -> None:
        self._kept.setdefault(key, []).append(simulator)

    def _take(self, key: bytes) -> Any:
        if key not in self._kept:
            return None
        simulator = self._kept[key].pop()
        if not self._kept[key]:
            del self._kept[key]
        return simulator

    def _try_twice(self, simulator: Any) -> None:
        self.action_space.seed(0)
        actions = [self.action_space.sample() for _ in range(_TRIED_STEPS)]
        if _episode(simulator, actions) != _episode(simulator, actions):
            raise UserValueError(f"{self._name} {_NO_FUNCTION}")


def _close(simulators: list[Any]) -> None:
    for simulator in simulators:
        simulator.close()


def _key(seed: int, history: bytes) -> bytes:
    return hashlib.blake2b(seed.to_bytes(8, "little") + history, digest_size=16).digest()


def _bytes(taken: list[np.ndarray], steps: int) -> bytes:
    return b"".join(history[:steps].tobytes() for history in taken)


def _clipped(space: Any, action: Action) -> Any:
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(map(_clipped, space.spaces, action))
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _clipped(part, action[key]) for key, part in space.spaces.items()}
    return np.clip(action, space.low, space.high) if isinstance(space, gymnasium.spaces.Box) else action


def _nothing(space: spaces.Space) -> Any:
    """An empty observation: zeros, or the values closest to them in the space."""
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
    """The observable part of an episode."""
    seen: list[Any] = [simulator.reset(seed=0)[0]]
    for action in actions:
        obs, reward, terminated, truncated, _ = simulator.step(action)
        seen += [obs, reward, terminated]
        if terminated or truncated:
            break
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(seen)]
