"""Characters: an agent of a cooperative task whose reward and actions depend on its own traced traits."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, registry
from envs.arguments import check_at_least, check_number
from envs.base import spaces
from envs.cooperation.pairs import Pair
from envs.cooperation.partners import Task, View
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Number, Params
from envs.wrappers.wrapper import ParamsWrapper, WrapperParams, WrapperState

# Default lower end of the range of rationality.
LEAST_RATIONALITY = 0.5

__all__ = [
    "LEAST_RATIONALITY",
    "Character",
    "CharacterParams",
    "CharacterState",
    "Characters",
    "behaviour",
    "behaviour_space",
    "draw_characters",
    "last_paid",
    "seen",
    "tremble",
    "with_characters",
]


@struct.dataclass
class Character:
    """The traits of an agent, traced; leaves of one agent, or with leading axes for several.

    Attributes:
      weights: Reward of each option as a share of its payoff, in [-1, 1], float32 `[n]`.
      order: Degree to which the order of options and not their weights determine the reward, in [0, 1], float32 `[]`.
      patience: 1 less the share of the full cost of a step alone at an option, in [0, 1], float32 `[]`; unlike
        `ForagingParams.patience`, not a number of steps.
      rationality: Probability that an action is the agent's choice and not a random one, in [0, 1], float32 `[]`.
    """

    weights: Any
    order: Any
    patience: Any
    rationality: Any


@struct.dataclass
class CharacterParams(WrapperParams):
    """Parameters of a task in which the agent has a character.

    Attributes:
      least_rationality: Lower end of the range from which rationality is drawn, in [0, 1].
      impatience: Full cost of a step alone at an option, at least 0.
    """

    least_rationality: float = LEAST_RATIONALITY
    impatience: float = 0.3


@struct.dataclass
class CharacterState(WrapperState):
    """State of a task in which the agent has a character.

    Attributes:
      character: Character of the agent.
      paid: Last option that was paid, int32 `[]`; -1 before the first.
    """

    character: Character
    paid: jax.Array


def behaviour_space(task: Task) -> spaces.Tuple:
    """The space of `behaviour`."""
    return spaces.Tuple((spaces.Box(-1.0, 1.0, (task.num_options,)), spaces.Box(0.0, 1.0, (3,))))


def behaviour(character: Character) -> tuple[jax.Array, jax.Array]:
    """Weights `[..., n]`, and order, patience and rationality `[..., 3]`, of a character."""
    traits = jnp.stack([character.order, character.patience, character.rationality], axis=-1)
    return jnp.asarray(character.weights, jnp.float32), traits.astype(jnp.float32)


def draw_characters(key: jax.Array, task: Task, count: int, least_rationality: Number = LEAST_RATIONALITY) -> Character:
    """Random characters; every trait is uniform on its range, rationality on [least_rationality, 1].

    Args:
      key: Random key.
      task: Any.
      count: Number of characters, P, static.
      least_rationality: Lower end of the range of rationality.

    Returns:
      Leaves `[P, ...]`.
    """
    weights_key, traits_key = jax.random.split(key)
    weights = jax.random.uniform(weights_key, (count, task.num_options), minval=-1.0)
    order, patience, rationality = jax.random.uniform(traits_key, (3, count))
    return Character(weights, order, patience, least_rationality + (1 - least_rationality) * rationality)


def tremble(key: jax.Array, action: jax.Array, rationality: jax.Array, num_actions: int) -> jax.Array:
    """The action with the probability `rationality`, otherwise a random one, int32 `[]`."""
    random_key, own_key = jax.random.split(key)
    random = jax.random.randint(random_key, (), 0, num_actions)
    return jnp.where(jax.random.uniform(own_key) < rationality, action, random).astype(jnp.int32)


def last_paid(paid: jax.Array, view: View) -> jax.Array:
    """The last option that was paid, int32 `[]`, after a step of the game; -1 before the first.

    Args:
      paid: Last option that was paid before the step, int32 `[]`.
      view: View of the game after the step, of either agent.
    """
    return jnp.where(view.success, view.other[0], paid).astype(jnp.int32)


def seen(task: Task, obs: jax.Array, paid: jax.Array, character: Character) -> jax.Array:
    """The observation of an agent with a character: of the task, the last paid option, and its character.

    Args:
      task: Any.
      obs: Observation of the task, `[F]`.
      paid: Last option that was paid, int32 `[]`; -1 before the first.
      character: Character of the agent.

    Returns:
      Float32 `[F + 2 n + 3]`, the option one-hot.
    """
    shown = (paid == jnp.arange(task.num_options)).astype(jnp.float32)
    return jnp.concatenate([obs, shown, *behaviour(character)])


def with_characters(env: base.Environment) -> "Characters":
    """A cooperative task in which the agent has a character, drawn at every reset.

    The agent observes its character, so that one network learns the behaviour of all characters. With the payoff p of
    option k, its reward is p ((1 - order) w_k + order f), where f is 1 for the option after the last paid one and for
    the first paid one, and -1 for others. In each step in which the agent is at an option that is not paid, it loses
    impatience (1 - patience). An action is the agent's choice with the probability `rationality`, and otherwise random.
    `jaxrl.load_partners` makes such agents the partners of another one, which does not observe their characters.

    Args:
      env: Cooperative task with a partner inside, such as `cooperation/foraging`, whose members are the teammates of
        the agent in training.

    Raises:
      TypeError: `env` is not a cooperative task of two agents with a partner inside.
      ValueError: The task reveals the behaviour of the partner.
    """
    return Characters(env)


@dataclass(frozen=True)
class Characters(ParamsWrapper):
    """The class returned by `with_characters`."""

    made_by: ClassVar[str] = "with_characters"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.inner, Pair) or self.inner.inside is None:
            raise UserTypeError(
                "with_characters takes a cooperative task of two agents with a partner inside, such as "
                f"cooperation/foraging, got {self.inner.name}"
            )
        if self.inner.reveals:
            raise UserValueError("with_characters takes a task with reveals=False, got True")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes, or the task's with the wrapper's around it."""
        rows = (name for name, row in registry.ROWS.items() if row.class_name == "Characters")
        return next((name for name in rows if registry.make(name) == self), super().name)

    @property
    def task(self) -> Pair:
        """The task."""
        assert isinstance(self.inner, Pair)
        return self.inner

    @property
    def default_params(self) -> CharacterParams:
        """The task's defaults, a rationality of at least 0.5, and a cost of 0.3 for a step alone at an option."""
        inner = self.inner.default_params
        return CharacterParams(inner=inner, max_steps_in_episode=inner.max_steps_in_episode)

    def check_params(self, params: CharacterParams) -> None:
        """Reject parameters that the task rejects, a rationality outside [0, 1], and a cost below 0."""
        super().check_params(params)
        check_at_least(params, impatience=0)
        check_number("env.least_rationality", np.asarray(params.least_rationality), 0, 1, "[]")

    def inner_state(self, state: CharacterState) -> Any:
        """The state of the task."""
        return state.inner

    def observation_space(self, params: Params = None) -> spaces.Box:
        """The space of the task, with room for the last paid option and the character."""
        del params
        space = self.task.observation_space()
        low, high = min(float(np.min(space.low)), -1.0), max(float(np.max(space.high)), 1.0)
        return spaces.Box(low, high, (space.shape[0] + 2 * self.task.num_options + 3,), jnp.float32)

    def reset_env(self, key: jax.Array, params: CharacterParams) -> tuple[jax.Array, CharacterState]:
        """The first observation, and a character."""
        character_key, task_key = jax.random.split(key)
        drawn = draw_characters(character_key, self.task, 1, params.least_rationality)
        character = jax.tree.map(lambda leaf: leaf[0], drawn)
        obs, inner = self.inner.reset_env(task_key, self.inner_params(params))
        paid = jnp.full((), -1, jnp.int32)
        state = CharacterState(jnp.zeros((), jnp.int32), inner, character, paid)
        return seen(self.task, obs, paid, character), state

    def step_env(
        self, key: jax.Array, state: CharacterState, action: jax.Array, params: CharacterParams
    ) -> tuple[jax.Array, CharacterState, jax.Array, jax.Array, dict[Any, Any]]:
        """One step of the task, with the reward of the character."""
        tremble_key, task_key = jax.random.split(key)
        task, inner_params, character = self.task, self.inner_params(params), state.character
        own = tremble(tremble_key, action, character.rationality, task.num_actions)
        obs, inner, payoff, terminated, info = task.step_env(task_key, state.inner, own, inner_params)
        view, num_options = task.view(inner.game, 1, inner_params), task.num_options
        option = view.other[0]  # of the agent
        at_option = (option >= 0) & (option < num_options)
        follows = jnp.where((state.paid < 0) | (option == (state.paid + 1) % num_options), 1.0, -1.0)
        weight = jnp.asarray(character.weights)[jnp.clip(option, 0, num_options - 1)]
        reward = payoff * ((1 - character.order) * weight + character.order * follows)
        reward -= jnp.where(at_option & ~view.success, params.impatience * (1 - character.patience), 0.0)
        paid = last_paid(state.paid, view)
        after = dataclasses.replace(state, time=state.time + 1, inner=inner, paid=paid)
        return seen(task, obs, paid, character), after, reward, terminated, info
