"""One task in the interfaces that `envs.adapt` takes: a walk along a corridor to its end, of at most `limit` steps.

An action is -1, 0 or 1 as a choice 0, 1, 2. The cell 5 ends the episode with a reward of 1; a step costs `price`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

END = 5


class Space(NamedTuple):
    """A space of choices, as gymnax 0.x has it."""

    n: int


class Spec(NamedTuple):
    """A specification of choices, as dm_env has it."""

    num_values: int


def walk(cell: Any, action: Any) -> Any:
    return jnp.maximum(cell + action - 1, 0)


@struct.dataclass
class Params:
    price: float = 0.01
    max_steps_in_episode: int = 8


@struct.dataclass
class State:
    cell: Any
    time: Any


class OldGymnax:
    """gymnax 0.x: the limit ends an episode like the goal, within `step_env`."""

    default_params = Params()

    def action_space(self, params: Any = None) -> Space:
        return Space(3)

    def reset_env(self, key: Any, params: Any) -> Any:
        cell = jax.random.randint(key, (), 0, 3)
        return jnp.float32(cell)[None], State(cell, 0)

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        state = State(walk(state.cell, action), state.time + 1)
        goal = state.cell >= END
        done = goal | (state.time >= params.max_steps_in_episode)
        return jnp.float32(state.cell)[None], state, goal - params.price, done, {"discount": 0.0}


class NewGymnax(OldGymnax):
    """gymnax 1.x: the limit is apart."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        return obs, state, reward, state.cell >= END, info

    def is_truncated(self, state: Any, params: Any) -> Any:
        return state.time >= params.max_steps_in_episode


@struct.dataclass
class BraxState:
    obs: Any
    reward: Any
    done: Any
    info: Any
    cell: Any


class Brax:
    """Brax: the state has the observation, the reward and a float `done`; actions are numbers from -1 to 1."""

    action_size = 1
    episode_length = 8

    def reset(self, rng: Any) -> Any:
        cell = jax.random.randint(rng, (), 0, 3)
        return BraxState(jnp.float32(cell)[None], 0.0, 0.0, {}, cell)

    def step(self, state: Any, action: Any) -> Any:
        cell = walk(state.cell, jnp.int32(jnp.round(action[0])) + 1)
        goal = cell >= END
        return state.replace(obs=jnp.float32(cell)[None], reward=goal - 0.01, done=jnp.float32(goal), cell=cell)


class Seen(NamedTuple):
    """An observation of jumanji."""

    position: Any
    action_mask: Any


@struct.dataclass
class TimeStep:
    step_type: Any
    reward: Any
    discount: Any
    observation: Any
    state: Any = None

    def last(self) -> Any:
        return self.step_type == 2


class Jumanji:
    """jumanji: the mask is in the observation, and a limit ends an episode with a discount of 1."""

    time_limit = 8
    action_spec = Spec(3)

    def reset(self, key: Any) -> Any:
        cell = jax.random.randint(key, (), 0, 3)
        return State(cell, jnp.int32(0)), TimeStep(jnp.int8(0), 0.0, 1.0, self.see(cell))

    def step(self, state: Any, action: Any) -> Any:
        state = State(walk(state.cell, action), state.time + 1)
        goal = state.cell >= END
        last = goal | (state.time >= self.time_limit)
        kind, discount = jnp.where(last, 2, 1).astype(jnp.int8), jnp.where(goal, 0.0, 1.0)
        return state, TimeStep(kind, goal - 0.01, discount, self.see(state.cell))

    def see(self, cell: Any) -> Seen:
        return Seen(jnp.float32(cell)[None], jnp.array([True, True, True]).at[0].set(cell > 0))


class Timesteps:
    """Timesteps that hold their state."""

    max_steps = 8
    num_actions = 3

    def reset(self, key: Any) -> Any:
        state, timestep = Jumanji().reset(key)
        return timestep.replace(observation=timestep.observation.position, state=state)

    def step(self, timestep: Any, action: Any) -> Any:
        state, timestep = Jumanji().step(timestep.state, action)
        return timestep.replace(observation=timestep.observation.position, state=state)


class AutoResetWrapper:
    """A wrapper that resets inside `step`."""

    def __init__(self, env: Any):
        self._env = env
