"""An environment whose steps are entries of random tables, and a walk through the same tables in NumPy."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from float64 import best

from envs.base import Environment, EnvParams, EnvState, spaces

PLACES, ACTIONS, OBS = 12, 3, 2
SECOND = 2  # choices of the second part of an action of several
LIMIT = 4  # of time, in steps
LOW, HIGH = np.array([-1.0, 0.0]), np.array([3.0, 1.0])  # of continuous actions
CENTRE, HALF_WIDTH = (LOW + HIGH) / 2, (HIGH - LOW) / 2

Array = np.ndarray


class Tables(NamedTuple):
    """Entries by place and, where there is a second axis, by the choice of all agents together.

    Attributes:
      obs: Observations, `[PLACES, *A, OBS]`.
      reward: Rewards of each agent's own choice, `[PLACES, *A, ACTIONS]`.
      slope: Rewards of one unit of each component of a continuous action, `[PLACES, *A, 2]`.
      following: Next places, `[PLACES, ACTIONS]`.
      terminated: Whether the episode terminates, `[PLACES, ACTIONS]`.
      cut: Whether the environment truncates the episode that arrives at a place, `[PLACES]`.
      mask: Allowed actions, `[PLACES, *A, ACTIONS]`.
      active: Whether an agent takes part in a step from a place, `[PLACES, *A]`.
      agent_terminated: Whether an agent's episode terminates, `[PLACES, ACTIONS, *A]`.
      second_mask: Allowed second choices, `[PLACES, *A, SECOND]`.
    """

    obs: Array
    reward: Array
    slope: Array
    following: Array
    terminated: Array
    cut: Array
    mask: Array
    active: Array
    agent_terminated: Array
    second_mask: Array


@functools.cache
def tables(agents: tuple[int, ...]) -> Tables:
    """Random tables; numbers are exact in float32."""
    rng = np.random.default_rng(len(agents))

    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32).astype(np.float64)

    mask = rng.random((PLACES, *agents, ACTIONS)) < 0.6
    np.put_along_axis(mask, rng.integers(ACTIONS, size=(PLACES, *agents, 1)), True, axis=-1)
    terminated = rng.random((PLACES, ACTIONS)) < 0.2
    # Some agents outlive the episode, and others end before it.
    share = np.where(terminated, 0.7, 0.2).reshape(PLACES, ACTIONS, *[1] * len(agents))
    others = np.random.default_rng(10 + len(agents)).random((PLACES, *agents, SECOND)) < 0.6
    return Tables(
        obs=normal(PLACES, *agents, OBS),
        reward=normal(PLACES, *agents, ACTIONS),
        slope=normal(PLACES, *agents, 2),
        following=(np.arange(PLACES)[:, None] + rng.integers(1, PLACES, size=(PLACES, ACTIONS))) % PLACES,
        terminated=terminated,
        cut=rng.random(PLACES) < 0.3,
        mask=mask,
        active=rng.random((PLACES, *agents)) < (0.7 if agents else 1.0),
        agent_terminated=rng.random((PLACES, ACTIONS, *agents)) < share if agents else terminated,
        second_mask=others | ~others.any(axis=-1, keepdims=True),
    )


@struct.dataclass
class RecordedParams(EnvParams):
    """The time limit."""

    max_steps_in_episode: jax.Array | int = LIMIT


@struct.dataclass
class RecordedState(EnvState):
    """The number of steps and the place, int32 `[]`."""

    time: jax.Array
    place: jax.Array


@dataclass(frozen=True)
class RecordedEnv(Environment):
    """An environment that follows `tables`; its random keys decide where episodes start, and nothing else.

    The choices of agents are their discrete actions, or whether the first component of a continuous action is above
    the centre; the next place depends on the sum of the choices.

    Attributes:
      discrete: Whether actions are discrete, some of them masked, instead of continuous.
      num_agents: Number of agents of a crowd; 0 for an environment of one agent without axes of agents.
      several: Whether a discrete action is a pair of choices, of ACTIONS and of SECOND, whose sum is the choice.
    """

    discrete: bool = True
    num_agents: int = 0
    several: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of choices of the parts of a discrete action."""
        return (ACTIONS, SECOND) if self.several else (ACTIONS,)

    def parts(self, values: Array | None, axis: int = -1) -> list[Any]:
        """Values of the choices of each part, from those of all parts along an axis; None for no mask."""
        ends = np.cumsum(self.sizes)[:-1].tolist()
        return [None] * len(self.sizes) if values is None else np.split(values, ends, axis=axis)

    def chosen(self, raw: Array) -> list[Array]:
        """Choices of each part of an action as jaxrl stores it."""
        return list(np.moveaxis(raw, -1, 0)) if self.several else [raw]

    def stored(self, choices: list[Array]) -> Array:
        """Action as jaxrl stores it, from the choices of each part."""
        return np.stack(choices, axis=-1) if self.several else choices[0]

    def best(self, values: Array, mask: Array | None) -> Array:
        """Stored action of the largest values of each part among the allowed choices."""
        return self.stored([best(*part) for part in zip(self.parts(values), self.parts(mask), strict=True)])

    def exploring(self, noise: Array, epsilon: float, values: Array, mask: Array | None) -> Array:
        """Stored action in whose parts a random choice has a probability, from noise `[*B, D + sum(sizes)]`."""
        count = len(self.sizes)
        random, greedy = self.best(noise[..., count:], mask), self.best(values, mask)
        parts = zip(self.chosen(random), self.chosen(greedy), strict=True)
        return self.stored([np.where(noise[..., i] < epsilon, *part) for i, part in enumerate(parts)])

    def taken(self, values: Array, raw: Array) -> list[Array]:
        """Values `[*B, K]` of each part of stored actions, from those of all choices, `[*B, sum(sizes), K]`."""
        parts = zip(self.parts(values, -2), self.chosen(raw), strict=True)
        return [np.take_along_axis(part, choice[..., None, None], axis=-2)[..., 0, :] for part, choice in parts]

    def following(self, values: Array, judged: Array, shares: Array, mask: Array | None, own: bool) -> Array:
        """Mean over parts of the values `[*B, K]` of their best choices, by another's values; of each rate if `own`."""
        means = []
        for value, judge, allowed in zip(self.parts(values, -2), self.parts(judged, -2), self.parts(mask), strict=True):
            by_rate = [judge[..., k] if own else judge @ shares for k in range(judge.shape[-1])]
            action = np.stack([best(each, allowed) for each in by_rate], axis=-1)
            means.append(np.take_along_axis(value, action[..., None, :], axis=-2)[..., 0, :])
        return np.mean(means, axis=0)

    @property
    def agents(self) -> tuple[int, ...]:
        """Axes of agents."""
        return (self.num_agents,) if self.num_agents else ()

    @property
    def default_params(self) -> RecordedParams:
        return RecordedParams()

    def reset_env(self, key: jax.Array, params: RecordedParams) -> tuple[jax.Array, RecordedState]:
        del params
        state = RecordedState(jnp.zeros((), jnp.int32), jax.random.randint(key, (), 0, PLACES, jnp.int32))
        return self._at(state).obs, state

    def step_env(
        self, key: jax.Array, state: RecordedState, action: jax.Array, params: RecordedParams
    ) -> tuple[jax.Array, RecordedState, jax.Array, jax.Array, dict[Any, Any]]:
        del key, params
        here = self._at(state)
        choice = action if self.discrete else (action[..., 0] > CENTRE[0]).astype(jnp.int32)
        if self.several:
            choice = (action[0] + action[1]) % ACTIONS
        joint = jnp.sum(choice) % ACTIONS
        reward = jnp.take_along_axis(here.reward, choice[..., None], axis=-1)[..., 0]
        if not self.discrete:
            reward = reward + jnp.sum(here.slope * action, axis=-1)
        after = RecordedState(state.time + 1, here.following[joint])
        info = {"active": here.active, "agent_terminated": here.agent_terminated[joint]} if self.num_agents else {}
        return self._at(after).obs, after, reward, here.terminated[joint], info

    def is_truncated(self, state: RecordedState, params: RecordedParams) -> jax.Array:
        return (state.time >= params.max_steps_in_episode) | self._at(state).cut

    def action_mask(self, state: RecordedState, params: RecordedParams) -> Any:
        del params
        here = self._at(state)
        return None if not self.discrete else (here.mask, here.second_mask) if self.several else here.mask

    def action_space(self, params: RecordedParams | None = None) -> spaces.Space:
        del params
        if self.several:
            return spaces.Tuple((spaces.Discrete(ACTIONS), spaces.Discrete(SECOND)))
        low: Any = LOW.astype(np.float32)
        high: Any = HIGH.astype(np.float32)
        return spaces.Discrete(ACTIONS) if self.discrete else spaces.Box(low, high, (2,), jnp.float32)

    def observation_space(self, params: RecordedParams | None = None) -> spaces.Box:
        del params
        return spaces.Box(-np.inf, np.inf, (OBS,), jnp.float32)

    def _at(self, state: RecordedState) -> Any:
        """The tables' rows of the state's place, in JAX's default types."""
        kinds = {"f": jnp.float32, "i": jnp.int32, "b": jnp.bool_}
        rows: Any = (jnp.asarray(table, kinds[table.dtype.kind])[state.place] for table in tables(self.agents))
        return Tables(*rows)


@dataclass(frozen=True)
class InformedEnv(RecordedEnv):
    """A `RecordedEnv` with privileged facts, two numbers of each agent that are not of the scale of observations."""

    def privileged(self, state: RecordedState, params: RecordedParams) -> jax.Array:
        del params
        return jnp.asarray(facts(self.agents), jnp.float32)[state.place]


def facts(agents: tuple[int, ...]) -> Array:
    """Privileged facts by place, `[PLACES, *A, OBS]`, exact in float32."""
    return 4 * np.roll(tables(agents).obs, 1, axis=0) + 2


@dataclass(frozen=True)
class WatchedEnv(RecordedEnv):
    """A `RecordedEnv` with a global observation: the facts of the first agent."""

    def global_observation(self, state: RecordedState, params: RecordedParams) -> jax.Array:
        del params
        return jnp.asarray(facts(self.agents)[:, 0], jnp.float32)[state.place]


@dataclass
class Steps:
    """Steps of every environment, with the names of a transition of jaxrl; leaves `[T, N, ...]`."""

    obs: Array
    next_obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    agent_terminated: Array
    active: Array
    mask: Array | None
    raw_action: Array
    next_mask: Array | None
    critic_obs: Array | None = None
    next_critic_obs: Array | None = None

    @property
    def done(self) -> Array:
        """Whether each agent's episode ended, bool `[T, N, *A]`."""
        return over(self.terminated | self.truncated, self.reward) | self.agent_terminated

    def ended(self, time_limits: str) -> Array:
        """Whether nothing follows a step whose value counts, bool `[T, N, *A]`."""
        limits = over(self.truncated, self.reward) if time_limits == "terminal" else np.zeros(self.reward.shape, bool)
        return self.agent_terminated | limits

    def and_then(self, later: "Steps") -> "Steps":
        """These steps, followed by later ones."""
        return joined([self, later], np.concatenate)


def joined(parts: list[Steps], join: Callable[[list[Array]], Array]) -> Steps:
    """Steps with the leaves of several, joined by a function."""
    leaves = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Steps)}
    whole: dict[str, Any] = {name: None if each[0] is None else join(each) for name, each in leaves.items()}
    return Steps(**whole)


def over(flag: Array, reward: Array) -> Array:
    """A flag `[T, N]` for every agent, `[T, N, *A]`."""
    return np.broadcast_to(flag.reshape(*flag.shape, *[1] * (reward.ndim - flag.ndim)), reward.shape)


def starts(keys: jax.Array) -> Array:
    """Places at which episodes of the keys start, of the keys' shape."""
    draw = jax.vmap(lambda key: jax.random.randint(key, (), 0, PLACES, jnp.int32))
    return np.asarray(draw(keys.reshape(-1))).reshape(keys.shape)


class Walk:
    """Environments in NumPy, from the first reset on.

    Attributes:
      env: Environment.
      place, time: Places and numbers of steps of the environments, `[N]`.
      ended: Whether each agent's episode ended with the last step, bool `[N, *A]`; False before the first step.
      both: Number of steps so far that reached a limit as they terminated.
    """

    def __init__(self, env: RecordedEnv, keys: jax.Array):
        """Environments from the keys `[N]` of their first resets."""
        self.env, self.place, self.time, self.both = env, starts(keys), np.zeros(len(keys), int), 0
        self.ended = np.zeros((len(keys), *env.agents), bool)

    def __call__(
        self, key: jax.Array, num_steps: int, pool: int, act: Callable[[int, Array, Array | None], Array]
    ) -> Steps:
        """The next steps, as `jaxrl.learning.rollout.rollout` takes them.

        Args:
          key: Random key of the rollout.
          num_steps: Number of steps.
          pool: Number of fresh states of each environment, which must suffice.
          act: Function `(t, obs, mask) -> raw action`.
        """
        rows = []
        fresh = starts(jax.random.split(jax.random.split(key)[0], (len(self.place), pool)))
        used, envs = np.zeros(len(self.place), int), np.arange(len(self.place))
        for t in range(num_steps):
            rows.append(self.take(act(t, self.obs, self.mask)))
            self.ended = rows[-1].done
            done = rows[-1].terminated | rows[-1].truncated
            assert np.all(used[done] < pool), "the pool must suffice"
            self.place = np.where(done, fresh[envs, np.minimum(used, pool - 1)], self.place)
            self.time, used = np.where(done, 0, self.time), used + done
        return joined(rows, np.stack)

    @property
    def obs(self) -> Array:
        """Observations here, `[N, *A, OBS]`."""
        return tables(self.env.agents).obs[self.place]

    @property
    def facts(self) -> Array | None:
        """Privileged facts here, `[N, *A, OBS]`, or global observations, `[N, OBS]`; None without either."""
        if isinstance(self.env, WatchedEnv):
            return facts(self.env.agents)[self.place, 0]
        return facts(self.env.agents)[self.place] if isinstance(self.env, InformedEnv) else None

    @property
    def mask(self) -> Array | None:
        """Allowed choices here, those of all parts one after another, `[N, *A, sum(sizes)]`."""
        here = tables(self.env.agents)
        masks = (here.mask[self.place], here.second_mask[self.place])[: len(self.env.sizes)]
        return np.concatenate(masks, axis=-1) if self.env.discrete else None

    def take(self, raw: Array) -> Steps:
        """One step of every environment without a reset; leaves `[N, ...]`."""
        at, here, obs, mask, known = tables(self.env.agents), self.place, self.obs, self.mask, self.facts
        if self.env.discrete:
            choice, paid = np.sum(self.env.chosen(raw), axis=0) % ACTIONS, 0.0
        else:
            action = np.clip(CENTRE + HALF_WIDTH * raw, LOW, HIGH)
            choice, paid = (raw[..., 0] > 0).astype(int), np.sum(at.slope[here] * action, axis=-1)
        joint = choice.reshape(len(here), -1).sum(axis=1) % ACTIONS
        terminated = at.terminated[here, joint]
        self.place, self.time = at.following[here, joint], self.time + 1
        limit = at.cut[self.place] | (self.time >= LIMIT)
        self.both += int(np.sum(terminated & limit))
        return Steps(
            obs=obs,
            next_obs=self.obs,
            reward=np.take_along_axis(at.reward[here], choice[..., None], axis=-1)[..., 0] + paid,
            terminated=terminated,
            truncated=limit & ~terminated,
            agent_terminated=at.agent_terminated[here, joint],
            active=at.active[here],
            mask=mask,
            raw_action=raw,
            next_mask=self.mask,
            critic_obs=known,
            next_critic_obs=self.facts,
        )

    def assert_at(self, state: Any) -> None:
        """Check that jaxrl's environments are at the same places after the same numbers of steps."""
        np.testing.assert_array_equal(state.place, self.place)
        np.testing.assert_array_equal(state.time, self.time)
