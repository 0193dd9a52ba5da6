"""Partners of a cooperative task: their views, their actions, and named rules of behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.arguments import check_choice
from envs.base import spaces
from envs.errors import UserValueError
from envs.pytrees import Memory, Params, PyTree, State

RULES = ("prefer", "alternate", "copy", "win-stay", "wait", "greedy", "random")

__all__ = [
    "RULES",
    "Behaviour",
    "Choice",
    "Partner",
    "Scripted",
    "Task",
    "View",
    "behaviours",
    "check_parts",
    "choose",
    "option_of_rule",
]


@struct.dataclass
class View:
    """The input of a rule: options of the task, numbered from 0 to n - 1; n stands for no option.

    Attributes:
      value: Attraction of each option, such as its payoff or its closeness, float32 `[n]`.
      other: Last option of the other agent and the one before, int32 `[2]`; -1 before the first.
      over: Whether a round is over, so that the partner may choose another option, bool `[]`.
      success: Whether the last round paid, bool `[]`.
    """

    value: jax.Array
    other: jax.Array
    over: jax.Array
    success: jax.Array


class Task(Protocol):
    """The methods of a task that partners use; see `pairs.Pair`."""

    @property
    def num_options(self) -> int: ...

    def view(self, game: State, agent: int, params: Params) -> View: ...

    def to_action(self, game: State, agent: int, option: jax.Array, params: Params) -> jax.Array: ...


@struct.dataclass
class Behaviour:
    """The behaviour vector of a scripted partner, traced; leaves `[]`, or `[P]` for a population.

    Attributes:
      rule: Index of the rule in `RULES`, int32.
      preference: Option that the rule prefers, or begins with, int32.
      rate: Probability of a random option in place of the rule's, float32 in [0, 1].
    """

    rule: Any
    preference: Any
    rate: Any


@struct.dataclass
class Choice:
    """The memory of a scripted partner.

    Attributes:
      own: Option that it chose last, int32 `[]`; -1 before the first choice.
      deviation: Random option that replaces the rule's until the round is over, int32 `[]`; -1 for none.
    """

    own: jax.Array
    deviation: jax.Array


class Partner:
    """How partners act inside a task; subclass it with a frozen dataclass.

    One object stands for a whole population: its members differ by traced numbers, one row of `population` each, which
    the task draws at a reset.
    """

    def population(self, task: Any) -> Any:
        """The default members: a pytree of arrays `[P, ...]`, apart from arrays that all members share, see `rows`."""
        raise NotImplementedError

    def rows(self, population: PyTree) -> Any:
        """The population with None in place of parts that all members share; by default all of it."""
        return population

    def member(self, population: PyTree, index: jax.Array) -> Any:
        """The member with this index, traced; by default its row."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], population)

    def start(self, task: Any, member: PyTree) -> Any:
        """The memory of a member at the start of an episode, a pytree of arrays; by default none."""
        del task, member
        return ()

    def act(
        self, key: jax.Array, task: Any, state: State, obs: jax.Array, member: PyTree, memory: Memory, params: Params
    ) -> tuple[jax.Array, Any]:
        """The action of a member and its memory afterwards.

        Args:
          key: Random key.
          task: Any, static.
          state: State of the game; the partner is agent 1.
          obs: Observation of agent 1.
          member: Member of the population, see `member`.
          memory: Memory of the member.
          params: Parameters of the task.
        """
        raise NotImplementedError

    def behaviour_space(self, task: Any) -> spaces.Tuple:
        """The space of behaviour vectors: a `Tuple` of `Discrete` and one-dimensional `Box` parts."""
        raise NotImplementedError

    def behaviour(self, member: PyTree) -> tuple[jax.Array, ...]:
        """The behaviour vector of a member, in the behaviour space."""
        raise NotImplementedError

    def check(self, task: Any, population: PyTree) -> None:
        """Reject a population that does not fit the task; by default all are accepted.

        Args:
          task: Any.
          population: Concrete arrays `[..., P, ...]`, possibly with an axis of settings.

        Raises:
          ValueError: A behaviour is outside its range.
        """
        del task, population


@dataclass(frozen=True)
class Scripted(Partner):
    """Partners that follow a rule, each with a preference and a rate of random choices.

    | Rule | Option of the next round |
    |---|---|
    | prefer | the preferred one |
    | alternate | the preferred one, then always the one after its last |
    | copy | the other agent's last one; the preferred one where there is none |
    | win-stay | the preferred one, then its last one if that paid, otherwise the one after it |
    | wait | none, until the other agent has chosen one twice in a row; that one |
    | greedy | the one with the highest value |
    | random | any option, with equal probability |

    Attributes:
      rules: Rules of the default population, which has every rule with every preference, at a rate of 0.
    """

    rules: tuple[str, ...] = RULES

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))
        if not self.rules:
            raise UserValueError("rules takes at least one rule, got ()")
        for rule in self.rules:
            check_choice("rules", rule, RULES)

    def population(self, task: Task) -> Behaviour:
        """Every rule with every preference, `[len(rules) * num_options]`."""
        return behaviours(self.rules, task.num_options)

    def start(self, task: Task, member: Behaviour) -> Choice:
        """No choice yet."""
        del task, member
        none = jnp.full((), -1, jnp.int32)
        return Choice(none, none)

    def act(
        self,
        key: jax.Array,
        task: Task,
        state: State,
        obs: jax.Array,
        member: Behaviour,
        memory: Choice,
        params: Params,
    ) -> tuple[jax.Array, Choice]:
        """The action that leads to the option of the rule."""
        del obs
        choice = choose(key, member, memory, task.view(state, 1, params))
        return task.to_action(state, 1, choice.own, params), choice

    def behaviour_space(self, task: Task) -> spaces.Tuple:
        """The rule, the preference and the rate."""
        rate = spaces.Box(0.0, 1.0, (1,), jnp.float32)
        return spaces.Tuple((spaces.Discrete(len(RULES)), spaces.Discrete(task.num_options), rate))

    def behaviour(self, member: Behaviour) -> tuple[jax.Array, ...]:
        """The rule, the preference and the rate `[1]`."""
        return member.rule, member.preference, member.rate[..., None]

    def check(self, task: Task, population: Behaviour) -> None:
        """Reject an unknown rule, a preference that is not an option, and a rate outside [0, 1]."""
        bounds = {"rule": (0, len(RULES) - 1), "preference": (0, task.num_options - 1), "rate": (0, 1)}
        check_parts(population, bounds, ("rule", "preference"))


def check_parts(population: PyTree, bounds: Mapping[str, tuple[float, float]], whole: tuple[str, ...]) -> None:
    """Reject a population with a part that is out of range, or not of an integer type where it must be.

    Args:
      population: Concrete arrays.
      bounds: Ends of the range of each part, both included.
      whole: Names of the parts that must be of an integer type.

    Raises:
      ValueError: A part is out of range or of another type.
    """
    for name, (low, high) in bounds.items():
        values = np.ravel(np.asarray(getattr(population, name)))
        for wrong in values[~((values >= low) & (values <= high))][:1]:
            raise UserValueError(f"env.population.{name} must lie in [{low}, {high}], got {wrong}")
        if name in whole and values.dtype.kind not in "iu":
            raise UserValueError(f"env.population.{name} must be of an integer type, got {values.dtype}")


def behaviours(rules: tuple[str, ...], num_options: int, rate: float = 0.0) -> Behaviour:
    """The population that has every rule with every preference.

    Args:
      rules: Names in `RULES`.
      num_options: Number of options of the task.
      rate: Probability of a random option.
    """
    rule = np.repeat([RULES.index(each) for each in rules], num_options)
    preference = np.tile(np.arange(num_options), len(rules))
    return Behaviour(np.int32(rule), np.int32(preference), np.full(len(rule), rate, np.float32))


def choose(key: jax.Array, member: Behaviour, last: Choice, view: View) -> Choice:
    """The next option of a member, given its last one; a random option is kept until the round is over."""
    rate_key, option_key = jax.random.split(key)
    random = jax.random.randint(option_key, (), 0, view.value.shape[0])
    rate = jnp.where(member.rule == RULES.index("random"), 1.0, member.rate)
    drawn = jnp.where(jax.random.uniform(rate_key) < rate, random, -1)
    deviation = jnp.where(view.over | (last.own < 0), drawn, last.deviation).astype(jnp.int32)
    return Choice(jnp.where(deviation >= 0, deviation, option_of_rule(member, last.own, view)), deviation)


def option_of_rule(member: Behaviour, own: jax.Array, view: View) -> jax.Array:
    """The option of a rule without chance, int32 `[]`; 0 for the random rule.

    Args:
      member: Behaviour.
      own: Last option of the member, int32 `[]`; -1 before the first.
      view: Input of the rule.
    """
    num_options = view.value.shape[0]
    first, begins, following = member.preference, own < 0, (own + 1) % num_options
    latest, before = view.other[0], view.other[1]
    exists = (latest >= 0) & (latest < num_options)
    by_rule = {
        "prefer": first,
        "alternate": jnp.where(begins, first, jnp.where(view.over, following, own)),
        "copy": jnp.where(exists, latest, first),
        "win-stay": jnp.where(begins, first, jnp.where(view.over & ~view.success, following, own)),
        "wait": jnp.where(exists & (latest == before), latest, num_options),
        "greedy": jnp.where(begins | view.over, jnp.argmax(view.value), own),
        "random": 0,
    }
    return jnp.stack([jnp.asarray(by_rule[rule], jnp.int32) for rule in RULES])[member.rule]
