"""The base of bandits whose arms are Markov chains that move whether they are pulled or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_count
from envs.bandits.base import Bandit, BanditParams, BanditState, fresh
from envs.bandits.checking import Unasked
from envs.base import MetricRule, spaces
from envs.errors import UserValueError
from envs.pytrees import Action, Number, Params

__all__ = ["Arms", "MarkovBandit", "MarkovParams", "MarkovState", "make_arms"]

ROUNDING = 1e-4  # largest deviation of a sum of given probabilities from 1


@struct.dataclass
class Arms:
    """The law of every arm, an instance; `make_arms` fills in omitted parts.

    Attributes:
      transitions: Probability of each next state for an arm with an action in a state, float32 `[N, A, S, S]`;
        action 0 leaves the arm alone.
      rewards: Reward of an action in a state, float32 `[N, A, S]`.
      arrivals: Additional reward for the state that the arm moves to, float32 `[N, A, S]`.
      start: Probability of each state at the start, float32 `[N, S]`.
    """

    transitions: Any
    rewards: Any
    arrivals: Any
    start: Any

    def __post_init__(self) -> None:
        for name, value in (("transitions", self.transitions), ("start", self.start)):
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                wrong = (np.abs(value.sum(-1) - 1) > ROUNDING) | np.any(value < 0, axis=-1) | np.isnan(value.sum(-1))
                if np.any(wrong):
                    raise UserValueError(f"{name} must be probabilities that sum to 1, got the row {value[wrong][0]}")
        for name, value in (("rewards", self.rewards), ("arrivals", self.arrivals)):
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.all(np.isfinite(value)):
                raise UserValueError(f"{name} must be finite, got {value[~np.isfinite(value)][0]}")

    @property
    def expected(self) -> Any:
        """The expected reward of an action in a state, float32 `[N, A, S]`."""
        return self.rewards + (self.transitions * self.arrivals[:, :, None, :]).sum(-1)


def make_arms(transitions: Number, rewards: Any = None, arrivals: Any = None, start: Number | None = None) -> Arms:
    """Arms from a part of their law: omitted rewards are 0, the omitted distribution of first states is uniform.

    Args:
      transitions: Probabilities `[N, A, S, S]`, concrete or traced.
      rewards, arrivals: Rewards `[N, A, S]`, or None.
      start: Probabilities `[N, S]`, or None.

    Raises:
      ValueError: Shapes do not fit, or probabilities do not sum to 1.
    """
    transitions = transitions if isinstance(transitions, jax.Array) else np.asarray(transitions, np.float32)
    if transitions.ndim != 4 or transitions.shape[-1] != transitions.shape[-2]:
        raise UserValueError(
            f"transitions must have the shape (arms, actions, states, states), got {transitions.shape}"
        )
    num_arms, num_actions, num_states, _ = transitions.shape
    per_action = (num_arms, num_actions, num_states)
    shapes = {"rewards": per_action, "arrivals": per_action, "start": (num_arms, num_states)}
    parts: dict[str, Any] = {"rewards": rewards, "arrivals": arrivals, "start": start}
    for name, part in parts.items():
        if part is None:
            parts[name] = np.full(shapes[name], 1 / num_states if name == "start" else 0, np.float32)
        elif not isinstance(part, jax.Array):
            parts[name] = np.asarray(part, np.float32)
        if parts[name].shape != shapes[name]:
            raise UserValueError(f"{name} must have the shape {shapes[name]}, got {parts[name].shape}")
    return Arms(transitions, **parts)


@struct.dataclass
class MarkovState(BanditState):
    """An instance and the states of its arms.

    Attributes:
      states: State of each arm, which policies see, int32 `[N]`.
      arms: Law of the arms, the instance.
    """

    states: jax.Array
    arms: Arms


@struct.dataclass
class MarkovParams(BanditParams):
    """The instance itself, or the parameters of the prior from which a subclass draws it.

    Attributes:
      arms: Law of the arms, the instance, an `Arms`; None draws it from the prior.
    """

    arms: Any = None


@dataclasses.dataclass(frozen=True)
class MarkovBandit(Bandit):
    """N arms, each a Markov chain of S states; an action on an arm changes its transitions and rewards.

    A subclass defines `branches`, the numbers of an action; `touched`, the effect of an action on
    each arm, 0 where it leaves the arm alone; and `draw`, the prior. An action may name more than the constraint
    allows; it is read in order, and the part that does not fit is ignored, so every action is valid.

    A pull changes later rewards, so a single pull has no regret: policies are compared by their rewards. `state.values`
    are the expected rewards of touching each arm with action 1 at the next step, `context` is the arms' states, and
    `known` adds the instance to the parameters, for policies that plan.

    Actions are int32 `[M]`, or tuples of M; observations are one-hot states `[N S]`, the effect of the
    last action on each arm `[N]`, the last reward and the elapsed share of the episode.
    """

    num_states: int = Unasked(3)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_states", self.num_states, 2)

    @property
    def branches(self) -> tuple[int, ...]:
        """The number of choices of each of the M numbers of an action."""
        raise NotImplementedError

    @property
    def num_arm_actions(self) -> int:
        """The number of actions on an arm, A, including leaving it alone."""
        return 2

    def touched(self, action: jax.Array) -> jax.Array:
        """The effect of an action on each arm, int32 `[N]` in 0, ..., A - 1."""
        raise NotImplementedError

    def draw(self, key: jax.Array, params: Params) -> Arms:
        """An instance from the prior."""
        raise NotImplementedError

    @property
    def default_params(self) -> Any:
        """The prior."""
        return MarkovParams()

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        """No metrics, because the rewards suffice."""
        return {}

    @property
    def stationary(self) -> bool:
        """No: the arms move."""
        return False

    @property
    def has_regret(self) -> bool:
        """False, because a pull has to be judged by all later rewards."""
        return False

    @property
    def interchangeable(self) -> bool:
        """False: an action has numbers for all arms, and policies know the law of each arm."""
        return False

    def known(self, state: MarkovState, params: Params) -> Any:
        """The parameters with the instance filled in."""
        return dataclasses.replace(params, arms=state.arms)

    def instance(self, key: jax.Array, params: Params) -> MarkovState:
        """The given arms, or arms drawn from the prior, in states drawn from `arms.start`."""
        arms_key, state_key = jax.random.split(key)
        arms = self.draw(arms_key, params) if params.arms is None else params.arms
        expected = (self.num_arms, self.num_arm_actions, self.num_states, self.num_states)
        if arms.transitions.shape != expected:
            raise UserValueError(f"arms of {self.name} must have transitions {expected}, got {arms.transitions.shape}")
        arms = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), arms)
        states = _draw_states(state_key, arms.start)
        values = _of_arms(arms.expected[:, 1], states)
        last = {"last_action": jnp.full(len(self.branches), -1, jnp.int32)}
        return MarkovState(**fresh(values) | last, states=states, arms=arms)

    def step_env(
        self, key: jax.Array, state: MarkovState, action: Action, params: Params
    ) -> tuple[jax.Array, MarkovState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step: all arms move.

        Raises:
          ValueError: The action does not have the numbers of `branches`, which is detected while tracing.
        """
        action = self._action(action)
        states, reward = self._move(key, state, action)
        state = dataclasses.replace(
            state,
            time=state.time + 1,
            values=_of_arms(state.arms.expected[:, 1], states),
            last_action=action,
            last_reward=reward,
            states=states,
        )
        return self.observe(state, params), state, reward, jnp.zeros((), bool), {}

    def reward(self, key: jax.Array, state: MarkovState, action: jax.Array, params: Params) -> jax.Array:
        """The reward `[]` of an action, summed over arms; with the same draws as in `step_env` for the same key."""
        del params
        return self._move(key, state, self._action(action))[1]

    def action_value(self, state: MarkovState, action: jax.Array, params: Params) -> jax.Array:
        """The expected reward `[]` of this step alone."""
        del params
        doing = self.touched(self._action(action))
        return jnp.sum(_of_arms(_of_arms(state.arms.expected, doing), state.states))

    def optimum(self, state: MarkovState, params: Params) -> jax.Array:
        """Not defined; see the class."""
        raise NotImplementedError(f"{self.name} has no best action of a single step; plan with jaxrl.bandits.plan")

    def context(self, state: MarkovState, params: Params) -> jax.Array:
        """The states of the arms, int32 `[N]`."""
        del params
        return state.states

    def pulls(self, action: jax.Array) -> jax.Array:
        """The arms that an action touches, float32 `[N]`."""
        return (self.touched(action) > 0).astype(jnp.float32)

    def observe(self, state: MarkovState, params: Params) -> jax.Array:
        """The observation; see the class."""
        past = jnp.where(state.time > 0, self.touched(jnp.maximum(state.last_action, 0)), 0).astype(jnp.float32)
        rest = jnp.stack([state.last_reward, state.time / jnp.float32(params.max_steps_in_episode)])
        return jnp.concatenate([self.show(state), past, rest])

    def show(self, state: MarkovState) -> jax.Array:
        """The observed states of the arms, float32 `[N S]`."""
        return jnp.ravel(jax.nn.one_hot(state.states, self.num_states))

    def action_space(self, params: Params) -> Any:
        """One discrete choice for each of the numbers of an action."""
        del params
        return spaces.Tuple([spaces.Discrete(count) for count in self.branches])

    def _action(self, action: Action) -> jax.Array:
        action = jnp.stack(action) if isinstance(action, tuple) else action
        if action.shape != (len(self.branches),):
            raise UserValueError(
                f"{self.name} takes actions of {len(self.branches)} numbers, got one of the shape {action.shape}: "
                "policies for it are whittle, myopic and exact-planning"
            )
        return action.astype(jnp.int32)

    def _move(self, key: jax.Array, state: MarkovState, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next states `[N]`, and the reward."""
        doing, arms = self.touched(action), state.arms
        states = _draw_states(key, _of_arms(_of_arms(arms.transitions, doing), state.states))
        paid = _of_arms(_of_arms(arms.rewards, doing), state.states) + _of_arms(_of_arms(arms.arrivals, doing), states)
        return states, jnp.sum(paid)


def _of_arms(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[n, index[n]]` for every arm n."""
    return table[jnp.arange(table.shape[0]), index]


def _draw_states(key: jax.Array, chances: jax.Array) -> jax.Array:
    """A state for every arm, int32 `[N]`, with the probabilities `chances` `[N, S]`."""
    below = jnp.cumsum(chances, axis=-1)
    # Scaled by the rounded sum, so that rounding never draws a state of probability 0.
    draw = jax.random.uniform(key, chances.shape[:1]) * below[:, -1]
    return jnp.minimum(jnp.sum(draw[:, None] >= below, axis=-1), chances.shape[-1] - 1).astype(jnp.int32)
