"""One agent in a crowd, among walkers whose type it does not observe."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import struct

from envs import base
from envs.arguments import check_choice, check_count
from envs.base import spaces
from envs.cooperation.pairs import PairParams, PairState
from envs.cooperation.partners import Partner
from envs.cooperation.population import (
    check_population,
    default_population,
    draw,
    revealed,
    revealed_space,
)
from envs.cooperation.walking_manners import MannerRule
from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.scenario import Scenario
from envs.errors import UserTypeError
from envs.pytrees import Number, Params

__all__ = ["SharedCrowd", "SharedCrowdParams"]


@struct.dataclass
class SharedCrowdParams(PairParams):
    """Parameters of the crowd, and the population of walker types.

    Attributes:
      crowd: Parameters of the crowd; its own `max_steps_in_episode` has no effect.
      max_steps_in_episode: Number of decisions.
    """

    crowd: CrowdParams = CrowdParams()
    max_steps_in_episode: Any = 200


@dataclass(frozen=True, kw_only=True)
class SharedCrowd(base.Environment):
    """An agent crosses a crowd whose other walkers are of one type, drawn from a population at every reset.

    Agent 0 learns; the others evade on one side, more or less patiently, at their own pace. Those that meet an agent
    which evades on the other side walk into it, so that it has to infer the side while it walks. The payoff is the mean
    of the crowd's reward over all people. `info["behaviour"]` is the behaviour vector of the walkers, for learners that
    infer it. An episode ends when all have arrived, or by the time limit; after its own arrival the agent's actions
    have no effect, and it is not active. The best return is not known.

    Attributes:
      scenario: Name of a scenario or a `Scenario`, see `envs.crowd.Crowd`.
      num_agents: Number of people, the agent included, at least 2.
      partner: Policy of the others: "scripted", see `walking_manners.MannerRule`, or a `partners.Partner` whose `act`
        takes the `CrowdState` and the observations of all people, and returns the actions of all, `[N, 2]`.
      reveals: Whether the agent also observes the behaviour vector of the others, as an oracle.
    """

    scenario: str | Scenario = "circle"
    num_agents: int = 6
    partner: Literal["scripted"] | Partner = "scripted"
    reveals: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.partner, str):
            check_choice("partner", self.partner, ("scripted",))
        elif not isinstance(self.partner, Partner):
            raise UserTypeError(
                f"partner takes 'scripted' or an envs.cooperation.partners.Partner, got {self.partner!r}"
            )
        check_count("num_agents", self.num_agents, 2, why=", the agent and at least one other")
        _ = self.crowd

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "cooperation/crowd"

    @property
    def crowd(self) -> Crowd:
        """The crowd, which ends when all have arrived."""
        return Crowd(scenario=self.scenario, num_agents=self.num_agents, end_when_all_arrived=True)

    @property
    def inside(self) -> Partner:
        """The partner that moves the other walkers."""
        return MannerRule() if isinstance(self.partner, str) else self.partner

    @property
    def default_params(self) -> SharedCrowdParams:
        """The defaults of the crowd, its time limit among them, and the partner's default population."""
        crowd = self.crowd.default_params
        drawn = default_population(self.inside, self)
        return SharedCrowdParams(crowd=crowd, max_steps_in_episode=crowd.max_steps_in_episode, **drawn)

    @property
    def metric_rules(self) -> Mapping[str, base.MetricRule]:
        """The rules of the crowd's metrics."""
        return self.crowd.metric_rules

    def check_params(self, params: SharedCrowdParams) -> None:
        """Reject a population that does not fit, and parameters that the crowd rejects."""
        check_population(self.inside, self, params.population, params.weights)
        self.crowd.check_params(params.crowd)

    def params_at(self, params: SharedCrowdParams, env_steps: Number) -> SharedCrowdParams:
        """The parameters after this many environment steps of training, with the crowd's reward of that stage."""
        return dataclasses.replace(params, crowd=self.crowd.params_at(params.crowd, env_steps))

    def pays_beyond_limit(self, params: SharedCrowdParams) -> bool:
        """Whether the crowd's reward at the time limit includes the rest."""
        return self.crowd.pays_beyond_limit(params.crowd)

    def reset_env(self, key: jax.Array, params: SharedCrowdParams) -> tuple[dict[str, jax.Array], PairState]:
        """The first observation and state, with all standing."""
        member_key, crowd_key = jax.random.split(key)
        member = draw(member_key, params.weights)
        row = self.inside.member(params.population, member)
        obs, game = self.crowd.reset_env(crowd_key, _inner(params))
        # The memory holds the observations of all people as well, which the others act on in the next step.
        return self._seen(obs, row), PairState(game.time, game, member, (obs, self.inside.start(self, row)))

    def step_env(
        self, key: jax.Array, state: PairState, action: jax.Array, params: SharedCrowdParams
    ) -> tuple[dict[str, jax.Array], PairState, jax.Array, jax.Array, dict[Any, Any]]:
        """One decision of all people; the others decide before they see the agent's action."""
        partner_key, crowd_key = jax.random.split(key)
        row, inner = self.inside.member(params.population, state.member), _inner(params)
        seen, memory = state.memory
        others, memory = self.inside.act(partner_key, self, state.game, seen, row, memory, inner)
        actions = jnp.asarray(others, jnp.float32).at[0].set(action)
        obs, game, rewards, terminated, info = self.crowd.step_env(crowd_key, state.game, actions, inner)
        payoff = jnp.sum(rewards) / jnp.maximum(jnp.sum(state.game.present), 1)
        info = {
            "active": info["active"][0],
            "metrics": info["metrics"],
            "behaviour": self.inside.behaviour(row),
        }
        return self._seen(obs, row), PairState(game.time, game, state.member, (obs, memory)), payoff, terminated, info

    def action_space(self, params: Params = None) -> spaces.Box:
        """The action space of one agent of the crowd."""
        del params
        return self.crowd.action_space()

    def observation_space(self, params: Params = None) -> spaces.Dict:
        """The space of one agent of the crowd, with the behaviour vector if it is revealed."""
        crowd = self.crowd
        parts: dict[str, spaces.Space] = dict(crowd.observation_space(crowd.default_params).spaces)
        if self.reveals:
            parts["behaviour"] = revealed_space(self.behaviour_space())
        return spaces.Dict(parts)

    def behaviour_space(self, params: Params = None) -> spaces.Tuple:
        """The space of the walkers' behaviour vector."""
        del params
        return self.inside.behaviour_space(self)

    def _seen(self, obs: dict[str, jax.Array], row: Any) -> dict[str, jax.Array]:
        """The observation of agent 0."""
        own = {name: leaf[0] for name, leaf in obs.items()}
        if self.reveals:
            own["behaviour"] = revealed(self.behaviour_space(), self.inside.behaviour(row))
        return own


def _inner(params: SharedCrowdParams) -> CrowdParams:
    return dataclasses.replace(params.crowd, max_steps_in_episode=params.max_steps_in_episode)
