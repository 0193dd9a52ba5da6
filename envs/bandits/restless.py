"""Restless bandits: arms that move by themselves, some of which are pulled at every step."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_count, check_number
from envs.bandits.checking import agreed, numbers
from envs.bandits.declining import DecliningParams, declining_arms
from envs.bandits.markov import Arms, MarkovBandit, MarkovParams, MarkovState, make_arms
from envs.errors import UserValueError

__all__ = [
    "BudgetBandit",
    "GilbertElliott",
    "GilbertElliottParams",
    "RestlessBandit",
    "beliefs",
    "channel_arms",
    "within_budget",
]


@dataclasses.dataclass(frozen=True)
class BudgetBandit(MarkovBandit):
    """Arms that are pulled or left alone, with a limit on the number pulled at once as the only constraint.

    Args:
      num_arms, num_states: Numbers of arms and of states, N and S.
      budget: Largest number of pulls in a step.

    Raises:
      ValueError: There are fewer than two arms or states, or the budget exceeds the number of arms.
    """

    budget: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("budget", self.budget, 1, self.num_arms, ", the number of arms")

    @property
    def branches(self) -> tuple[int, ...]:
        """Two choices for every arm: pulled or not."""
        return (2,) * self.num_arms

    def touched(self, action: jax.Array) -> jax.Array:
        """The first `budget` of the named arms."""
        return within_budget(action, self.budget)


@dataclasses.dataclass(frozen=True)
class RestlessBandit(BudgetBandit):
    """A restless bandit: at every step at most `budget` of the arms are pulled, and all of them move.

    Arms are Markov chains with two laws, one for being pulled and one for being left alone. Policies
    see their states. An action is 0 or 1 for every arm; if it pulls too many, the first
    `budget` count.

    The prior is this project's own, see `DecliningParams`: arms decline if left alone.

    Args:
      num_arms: Number of arms drawn from the prior; omitted where transitions are given.
      num_states: Number of states of every arm; omitted where transitions are given.
      budget: Largest number of pulls in a step.
      transitions: Probabilities `[N, 2, S, S]` as nested tuples, the instance: first left alone, then pulled.
      rewards: Rewards `[N, 2, S]` as nested tuples, given together with `transitions`.

    Raises:
      ValueError: There are fewer than two arms or states, the budget exceeds the number of arms, shapes do
        not fit, or transitions do not sum to 1.

    Source: Whittle (1988), Restless bandits: activity allocation in a changing world.
    """

    transitions: Any = None
    rewards: Any = None

    def __post_init__(self) -> None:
        if (self.transitions is None) != (self.rewards is None):
            raise UserValueError("transitions and rewards must be given together")
        if self.transitions is not None:
            transitions, rewards = _array("transitions", self.transitions, 4), _array("rewards", self.rewards, 3)
            if transitions.shape[1] != 2:
                raise UserValueError(
                    f"transitions must have the shape (arms, 2, states, states), got {transitions.shape}"
                )
            make_arms(transitions, rewards)
            self._take("transitions", _tuples(transitions))
            self._take("rewards", _tuples(rewards))
            num_states = agreed("num_states", self.num_states, transitions.shape[-1], "transitions")
            object.__setattr__(self, "num_states", num_states)
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/restless"

    @property
    def default_params(self) -> DecliningParams:
        """The prior, or the given arms."""
        if self.transitions is None:
            return DecliningParams()
        return DecliningParams(arms=make_arms(_array("transitions", self.transitions, 4), self.rewards))

    def draw(self, key: jax.Array, params: DecliningParams) -> Arms:
        """Arms from the prior."""
        return declining_arms(key, params, (self.num_arms, 2, self.num_states))


@struct.dataclass
class GilbertElliottParams(MarkovParams):
    """A prior for the channels, or the channels as returned by `channel_arms`.

    Attributes:
      low, high: Bounds with 0 < low <= high < 1. A channel's two probabilities of being good next are uniform
        between them; the larger one is that of a good channel.
    """

    low: float = 0.1
    high: float = 0.9

    def __post_init__(self) -> None:
        check_number("low", self.low, 0, 1)
        check_number("high", self.high, 0, 1)
        both = isinstance(self.low, int | float) and isinstance(self.high, int | float)
        if both and self.low > self.high:
            raise UserValueError(f"low must be at most high, got {self.low} and {self.high}")


@dataclasses.dataclass(frozen=True)
class GilbertElliott(BudgetBandit):
    """Channels that switch between good and bad; at most `budget` are used at a step, and only those are observed.

    A channel that is used pays 1 if it is good, and reveals its state. For the others only the
    probability of being good is known, the belief, which follows from the last observation and its age. The
    arm's state consists of these two, `seen * memory + age - 1` with ages 1, ..., memory; a channel that was not used
    for `memory` steps counts as never observed and has the stationary belief, like all channels at the start. Channels
    are drawn when they are used, from the belief, which has the same distribution as hidden channels that move at every
    step.

    Args:
      num_arms: Number of channels drawn from the prior; omitted where they are given.
      budget: Largest number of channels in a step.
      memory: Largest age of an observation, at least 2.
      good_after_bad, good_after_good: Probabilities in (0, 1), `[N]`, the instance.

    Raises:
      ValueError: The budget exceeds the number of channels, or a probability is outside (0, 1).

    Source: Liu and Zhao (2010), Indexability of restless bandit problems and optimality of
    Whittle index for dynamic multichannel access.
    """

    num_states: int = dataclasses.field(init=False, default=0)
    memory: int = 16
    good_after_bad: tuple[float, ...] | None = None
    good_after_good: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_count("memory", self.memory, 2)
        object.__setattr__(self, "num_states", 2 * self.memory)
        if (self.good_after_bad is None) != (self.good_after_good is None):
            raise UserValueError("good_after_bad and good_after_good must be given together")
        if self.good_after_bad is not None and self.good_after_good is not None:
            for name, channels in (("good_after_bad", self.good_after_bad), ("good_after_good", self.good_after_good)):
                chances = numbers(name, channels)
                if not all(0 < chance < 1 for chance in chances) or len(chances) != len(self.good_after_bad):
                    raise UserValueError(f"{name} must hold a number in (0, 1) for each channel, got {chances}")
                self._take(name, chances)
        super().__post_init__()

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "bandit/gilbert-elliott"

    @property
    def default_params(self) -> GilbertElliottParams:
        """Probabilities between 0.1 and 0.9, or the given channels."""
        if self.good_after_bad is None or self.good_after_good is None:
            return GilbertElliottParams()
        bad, good = np.asarray(self.good_after_bad, np.float32), np.asarray(self.good_after_good, np.float32)
        with jax.ensure_compile_time_eval():
            arms = channel_arms(jnp.asarray(bad), jnp.asarray(good), self.memory)
        return GilbertElliottParams(arms=jax.tree.map(np.asarray, arms))

    def draw(self, key: jax.Array, params: GilbertElliottParams) -> Arms:
        """Channels from the prior."""
        chances = jax.random.uniform(key, (2, self.num_arms), minval=params.low, maxval=params.high)
        return channel_arms(jnp.min(chances, axis=0), jnp.max(chances, axis=0), self.memory)

    def show(self, state: MarkovState) -> jax.Array:
        """The beliefs, float32 `[N]`."""
        return state.values


def beliefs(good_after_bad: jax.Array, good_after_good: jax.Array, memory: int) -> jax.Array:
    """The probability of being good, by the last observation and its age.

    Args:
      good_after_bad, good_after_good: Probabilities of being good next, `[N]` in (0, 1), traced.
      memory: Number of ages 1, ..., memory; the last one stands for all higher ages.

    Returns:
      float32 `[N, 2, memory]`, last seen bad first; the last age has the stationary probability.
    """
    stationary = good_after_bad / (1 - good_after_good + good_after_bad)
    first = jnp.stack([good_after_bad, good_after_good], axis=1)
    fading = (good_after_good - good_after_bad)[:, None, None] ** jnp.arange(memory - 1, dtype=jnp.float32)
    fading = jnp.concatenate([fading, jnp.zeros_like(fading[..., :1])], axis=-1)
    return stationary[:, None, None] + (first - stationary[:, None])[..., None] * fading


def channel_arms(good_after_bad: jax.Array, good_after_good: jax.Array, memory: int) -> Arms:
    """Gilbert-Elliott channels as arms, whose states are the beliefs about the channels; see `GilbertElliott`.

    Args:
      good_after_bad, good_after_good: Probabilities of being good next, `[N]` in (0, 1), traced.
      memory: Number of ages, static.

    Returns:
      Arms with 2 actions and `2 * memory` states.
    """
    num_states, num_arms = 2 * memory, good_after_bad.shape[0]
    belief = beliefs(good_after_bad, good_after_good, memory).reshape(num_arms, num_states)
    age = np.arange(num_states) % memory
    older = np.arange(num_states) + (age < memory - 1)
    left_alone = jnp.broadcast_to(jnp.eye(num_states)[older], (num_arms, num_states, num_states))
    seen = jax.nn.one_hot(np.asarray([0, memory]), num_states)
    used = (1 - belief)[..., None] * seen[0] + belief[..., None] * seen[1]
    arrivals = jnp.broadcast_to(jnp.stack([jnp.zeros(num_states), seen[1]]), (num_arms, 2, num_states))
    start = jnp.broadcast_to(jax.nn.one_hot(memory - 1, num_states), (num_arms, num_states))
    return make_arms(jnp.stack([left_alone, used], axis=1), arrivals=arrivals, start=start)


def within_budget(action: jax.Array, budget: int) -> jax.Array:
    """An action of zeros and ones with only its first `budget` ones, int32 `[N]`."""
    return jnp.where(jnp.cumsum(action) <= budget, action, 0)


def _array(name: str, value: object, num_axes: int) -> np.ndarray:
    try:
        array = np.asarray(value, np.float32)
    except ValueError as error:
        raise UserValueError(f"{name} must be numbers, in rows of one length, got {value!r}") from error
    if array.ndim != num_axes:
        raise UserValueError(f"{name} must have {num_axes} axes, got the shape {array.shape}")
    return array


def _tuples(array: np.ndarray) -> Any:
    return tuple(map(_tuples, array)) if array.ndim else float(array)
