"""The base class of cooperative tasks of two agents: self-play, or one agent with a partner from a population."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_choice
from envs.base import spaces
from envs.cooperation.partners import Partner, Scripted, View
from envs.cooperation.population import check_population, default_population, draw, revealed, revealed_space
from envs.errors import UserTypeError, UserValueError
from envs.pytrees import Params, PyTree, State

__all__ = ["Pair", "PairParams", "PairState"]


@struct.dataclass
class PairParams(base.EnvParams):
    """Parameters of a cooperative task.

    Attributes:
      population: Members of the population of partners, see `Partner.population`; () in self-play. Other members
        of the same shapes need no further compilation.
      weights: Relative frequency of each member, float32 `[P]`; () in self-play.
    """

    population: Any = ()
    weights: Any = ()


@struct.dataclass
class PairState(base.EnvState):
    """The state of a task with a partner inside.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      game: State of the game.
      member: Index of the partner in the population, int32 `[]`.
      memory: Memory of the partner.
    """

    time: jax.Array
    game: Any
    member: jax.Array
    memory: Any


@dataclass(frozen=True, kw_only=True)
class Pair(base.Environment):
    """A game of two agents with a common payoff, in two forms.

    In self-play (`partner=None`) both agents learn: rewards are `[2]`. Otherwise agent 1 is a partner inside the
    environment, drawn from the population at every reset, and agent 0 is the only one to learn: its reward is `[]`, it
    does not observe the partner's identity, and `info["behaviour"]` is the partner's behaviour vector, for learners
    that infer it.

    A game defines `begin`, `play`, `observe`, `game_space`, `view`, `to_action` and `num_options`; its state has the
    field `time`.

    Attributes:
      partner: Population of partners: "scripted", by the rules of `partners.Scripted`; a `partners.Partner`; or None
        for self-play.
      reveals: Whether the agent also observes its partner's behaviour vector, with discrete parts one-hot, as an
        oracle.
    """

    partner: Literal["scripted"] | Partner | None = "scripted"
    reveals: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.partner, str):
            check_choice("partner", self.partner, ("scripted",))
        elif self.partner is not None and not isinstance(self.partner, Partner):
            raise UserTypeError(
                "partner takes 'scripted', an envs.cooperation.partners.Partner, or None for self-play, got "
                f"{self.partner!r}"
            )
        if self.reveals and self.partner is None:
            raise UserValueError("reveals has no effect in self-play, which has no partner; leave it out")

    @property
    def inside(self) -> Partner | None:
        """The partner inside the environment; None in self-play."""
        return Scripted() if self.partner == "scripted" else self.partner  # pyright: ignore[reportReturnType]

    # --- the game ----------------------------------------------------------------------------------------------------

    @property
    def num_options(self) -> int:
        """The number of options n that rules choose from."""
        raise NotImplementedError

    def begin(self, key: jax.Array, params: Params) -> Any:
        """The first state of the game."""
        raise NotImplementedError

    def play(
        self, key: jax.Array, game: State, actions: jax.Array, params: Params
    ) -> tuple[Any, jax.Array, jax.Array, dict[str, jax.Array]]:
        """The state after both actions `[2]`, the common payoff float32 `[]`, whether the game is over, and metrics."""
        raise NotImplementedError

    def observe(self, game: State, params: Params) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The observations of both agents, float32 `[2, F]`."""
        raise NotImplementedError

    def game_space(self) -> spaces.Box:
        """The space of the observation of one agent."""
        raise NotImplementedError

    def view(self, game: State, agent: int, params: Params) -> View:
        """The view of the game that the rules of an agent use."""
        raise NotImplementedError

    def to_action(self, game: State, agent: int, option: jax.Array, params: Params) -> jax.Array:
        """The action that leads an agent to an option, int32 `[]`."""
        raise NotImplementedError

    # --- the two forms -----------------------------------------------------------------------------------------------

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """The rule of `together`, the share of steps with a payoff."""
        return {"together": "mean"}

    def drawn_from(self) -> dict[str, Any]:
        """The default population and its weights, as fields of the parameters; none in self-play."""
        if self.inside is None:
            return {}
        return default_population(self.inside, self)

    def check_params(self, params: PairParams) -> None:
        """Reject an empty population, one that does not fit the task, and weights by which no partner is drawn."""
        if self.inside is None:
            if jax.tree.leaves((params.population, params.weights)):
                raise UserValueError(
                    f"env.population has no effect in self-play, where {self.name} has no partner; leave it out"
                )
            return
        check_population(self.inside, self, params.population, params.weights)

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, Any]:
        """The first observation, of both agents in self-play."""
        if self.inside is None:
            game = self.begin(key, params)
            return self.observe(game, params), game
        member_key, game_key = jax.random.split(key)
        member = draw(member_key, params.weights)
        row = self.inside.member(params.population, member)
        game = self.begin(game_key, params)
        return self._seen(game, row, params), PairState(game.time, game, member, self.inside.start(self, row))

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> tuple[jax.Array, Any, jax.Array, jax.Array, dict[Any, Any]]:
        """One step with both actions; the partner acts before it sees the agent's action."""
        if self.inside is None:
            game, payoff, terminated, metrics = self.play(key, state, jnp.asarray(action, jnp.int32), params)
            return self.observe(game, params), game, jnp.broadcast_to(payoff, (2,)), terminated, {"metrics": metrics}
        partner_key, game_key = jax.random.split(key)
        member = self.inside.member(params.population, state.member)
        seen = self.observe(state.game, params)[1]
        other, memory = self.inside.act(partner_key, self, state.game, seen, member, state.memory, params)
        actions = jnp.stack([jnp.asarray(action, jnp.int32), jnp.asarray(other, jnp.int32)])
        game, payoff, terminated, metrics = self.play(game_key, state.game, actions, params)
        info = {"metrics": metrics, "behaviour": self.inside.behaviour(member)}
        state = PairState(game.time, game, state.member, memory)
        return self._seen(game, member, params), state, payoff, terminated, info

    def observation_space(self, params: Params = None) -> spaces.Box:
        """The space of the game, with room for the behaviour vector if it is revealed."""
        del params
        space, behaviour = self.game_space(), self.behaviour_space()
        if not self.reveals or behaviour is None:
            return space
        shown = revealed_space(behaviour)
        low, high = min(np.min(space.low), shown.low), max(np.max(space.high), shown.high)
        return spaces.Box(float(low), float(high), (space.shape[0] + shown.shape[0],), jnp.float32)

    def behaviour_space(self, params: Params = None) -> spaces.Tuple | None:
        """The space of the partner's behaviour vector; None in self-play."""
        del params
        return None if self.inside is None else self.inside.behaviour_space(self)

    def _seen(self, game: State, member: PyTree, params: Params) -> jax.Array:
        """The observation of agent 0 beside a member of the population."""
        own = self.observe(game, params)[0]
        if not self.reveals or self.inside is None:
            return own
        return jnp.concatenate([own, revealed(self.inside.behaviour_space(self), self.inside.behaviour(member))])
