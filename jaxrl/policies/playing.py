"""A policy that plays an episode step by step, with what it remembers: trained, a user's function, or a crowd's."""

from collections.abc import Callable
from typing import Any, NamedTuple

from envs.base import Environment
from envs.crowd.crowd import Crowd
from jaxrl.policies.crowds import for_any_number
from jaxrl.results.policy import TrainedPolicy

__all__ = ["Player", "player_of"]


class Player(NamedTuple):
    """How a policy plays.

    Attributes:
      start: `() -> memory` at the start of an episode.
      act: `(obs, mask, memory) -> (action, memory)`, greedy.
      remembered: `(memory, ended) -> memory` after a step, that of the start where an agent's episode has ended.
    """

    start: Callable[[], Any]
    act: Callable[[Any, Any, Any], tuple[Any, Any]]
    remembered: Callable[[Any, Any], Any]


def player_of(env: Environment, policy: Callable[..., Any]) -> Player:
    """How a policy plays in an environment.

    Args:
      env: Environment, which may be another crowd than that of the policy.
      policy: Trained policy, or a function `policy(obs)`, called as `policy(obs, mask=mask)` where actions are masked.
    """
    if isinstance(policy, TrainedPolicy) and isinstance(env, Crowd):
        crowd = for_any_number(policy)
        return Player(
            lambda: crowd.start(env.num_agents), lambda obs, mask, memory: crowd.act(obs, memory), policy.remembered
        )

    def act(obs: Any, mask: Any, memory: Any) -> tuple[Any, Any]:
        masked = {} if mask is None else {"mask": mask}
        if isinstance(policy, TrainedPolicy) and policy.remembers:
            return policy(obs, memory=memory, **masked)
        return policy(obs, **masked), memory

    if isinstance(policy, TrainedPolicy):
        return Player(policy.start, act, policy.remembered)
    return Player(lambda: (), act, lambda memory, ended: memory)
