"""A learned crowd in another one: among more people, and in other scenes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.scenarios import Scenario
from envs.crowd.trajectories import Trajectory, roll
from envs.errors import UserValueError
from jaxrl.checks import check_count
from jaxrl.learning.actor import memories
from jaxrl.results.policy import TrainedPolicy

__all__ = ["Walkers", "crowd_like", "for_any_number", "params_in", "walk"]


def walk(
    policy: TrainedPolicy,
    *,
    scenario: str | Scenario | None = None,
    num_agents: int | None = None,
    seed: int = 0,
    num_steps: int | None = None,
) -> Trajectory:
    """One greedy episode of a learned crowd, in its own scene or in another, among any number of people.

    Args:
      policy: of a crowd, as `result.policy(seed=3)` gives it.
      scenario: name in `envs.crowd.SCENARIOS`, or a scene of your own such as `envs.crowd.Areas`;
        None for that of the policy.
      num_agents: people who take part; None for as many as in training.
      seed: of the episode's random key.
      num_steps: decisions; None for all up to the time limit.

    Returns:
      The paths and the metrics of the episode, for `envs.rendering_crowd.paths` and the player.

    Raises:
      ValueError: the policy is of no crowd, there is no such scenario, or it has no room for so many.
    """
    crowd, params = crowd_like(policy, scenario, num_agents)
    start = for_any_number(policy).start(crowd.num_agents)
    return roll(crowd, _walker(policy), jax.random.key(seed), params, num_steps, start)


@functools.lru_cache(maxsize=16)  # `roll` compiles once for each of these
def _walker(policy: TrainedPolicy) -> Callable[..., tuple[jax.Array, Any]]:
    crowd = for_any_number(policy)
    return lambda key, obs, state, memory, ended: crowd.act(obs, policy.remembered(memory, ended))


def crowd_like(
    policy: TrainedPolicy, scenario: str | Scenario | None = None, num_agents: int | None = None
) -> tuple[Crowd, CrowdParams]:
    """A crowd in which a policy can walk though it was trained in another one.

    Args:
      policy: of a crowd.
      scenario: name in `envs.crowd.SCENARIOS`, or a scene of your own; None for that of the policy.
      num_agents: people who take part; None for as many as in training. Where they are too few for the neighbours
        that the policy observes, there are places for more, who are not present.

    Returns:
      The environment and its parameters, for `jaxrl.render(env, policy, path, env_params=params)`.

    Raises:
      ValueError: the policy is of no crowd, there is no such scenario, or it has no room for so many.
    """
    env = policy.algo.env
    if not isinstance(env, Crowd):
        raise UserValueError(f"policy was trained on {env.name}; only that of a crowd can walk elsewhere.")
    trained = env.default_params if policy.env_params is None else policy.env_params
    count = int(trained.num_present) if num_agents is None else num_agents
    check_count("num_agents", count)
    places = env.num_agents if num_agents is None else max(count, (env.num_neighbours or 0) + 1)
    if scenario is None or scenario in (env.scenario, env.name.removeprefix("crowd/")):
        env = dataclasses.replace(env, num_agents=places)
    else:
        env = dataclasses.replace(env, num_agents=places, scenario=scenario, obstacles=None)
    return env, dataclasses.replace(params_in(env, policy), num_present=count)


def params_in(env: Environment, policy: TrainedPolicy) -> Any:
    """The parameters of a policy's training as far as they hold in an environment.

    Args:
      env: the policy's own, or, where that is a crowd, another crowd.
      policy: with the parameters.

    Returns:
      The parameters; in another crowd with everybody present, and in another scenario with its own numbers.
    """
    params, trained = policy.env_params, policy.algo.env
    if params is None:
        return env.default_params
    if not (isinstance(env, Crowd) and isinstance(trained, Crowd)):
        return params
    if env.scenario != trained.scenario:
        params = dataclasses.replace(params, scenario=env.default_params.scenario)
    if env.num_agents != trained.num_agents:
        params = dataclasses.replace(params, num_present=env.num_agents)
    return params


class Walkers(NamedTuple):
    """The policy of a crowd for crowds of any size.

    Attributes:
      start: `(N) -> memory` at the start of an episode, leaves `[N, ...]`.
      act: `(obs, memory) -> (actions, memory)`, greedy; observations `[N, ...]`, actions `[N, 2]`, for every N.
    """

    start: Callable[[int], Any]
    act: Callable[[Any, Any], tuple[jax.Array, Any]]


def for_any_number(policy: TrainedPolicy) -> Walkers:
    """The policy of a crowd for crowds of any size: agents share it, so they act in groups of the size that it takes.

    Args:
      policy: Policy of a crowd.
    """
    env = policy.algo.env
    assert isinstance(env, Crowd)
    size = env.num_agents

    def grouped(leaf: jax.Array) -> jax.Array:
        count = leaf.shape[0]
        groups = -(-count // size)
        padding = [(0, groups * size - count)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding).reshape(groups, size, *leaf.shape[1:])

    def start(count: int) -> Any:
        return memories(policy.algo.actor.start(policy.params), (count,))

    def act(obs: Any, memory: Any) -> tuple[jax.Array, Any]:
        count = jax.tree.leaves(obs)[0].shape[0]

        def ungrouped(leaf: jax.Array) -> jax.Array:
            return leaf.reshape(-1, *leaf.shape[2:])[:count]

        groups = jax.tree.map(grouped, obs)
        if not policy.remembers:
            return ungrouped(policy(groups)), memory
        action, after = policy(groups, memory=jax.tree.map(grouped, memory))
        return ungrouped(action), jax.tree.map(ungrouped, after)

    return Walkers(start, act)
