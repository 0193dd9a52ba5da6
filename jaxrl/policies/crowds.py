"""Policies of crowds in other crowds: with a different number of people, or in other scenes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import Environment
from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.scenarios import Scenario
from envs.crowd.state import CrowdState
from envs.crowd.trajectories import Trajectory, roll
from envs.errors import UserValueError
from envs.settings import in_own_settings
from envs.wrappers.asymmetric import seen_from
from envs.wrappers.randomising import Randomise
from envs.wrappers.time import TimeLimit
from envs.wrappers.wrapper import Wrapper, params_for, with_defaults
from jaxrl.checks import check_count, check_flag
from jaxrl.learning.actor import memories
from jaxrl.pytrees import EnvParams, Memory, Observation
from jaxrl.results.policy import TrainedPolicy
from jaxrl.sweeps.paths import leaves


@in_own_settings
def walk(
    policy: TrainedPolicy,
    *,
    scenario: str | Scenario | None = None,
    num_agents: int | None = None,
    seed: int = 0,
    num_steps: int | None = None,
    greedy: bool = True,
) -> Trajectory:
    """One episode of a learned crowd, in its own scene or in another, with any number of people.

    Args:
      policy: Policy of a crowd, such as `result.policy(seed=3)`.
      scenario: Name in `envs.crowd.SCENARIOS`, or a custom scene such as `envs.crowd.Areas`;
        None for the scenario of the policy.
      num_agents: Number of people; None for the number in training.
      seed: Random seed of the episode.
      num_steps: Number of decisions; None for all up to the time limit.
      greedy: Whether people take the most likely actions instead of sampled ones. Greedy episodes in a scene without
        randomness, such as `envs.crowd.Recorded`, are equal for all seeds.

    Returns:
      The paths and the metrics of the episode, for `envs.crowd.rendering.paths` and the player.

    Raises:
      ValueError: The policy is not of a crowd, there is no such scenario, or it has no room for so many people.
    """
    check_flag("greedy", greedy)
    crowd, params = crowd_like(policy, scenario, num_agents)
    start = for_any_number(policy).initial_memory(crowd.num_agents)
    return roll(crowd, _walker(policy, greedy), jax.random.key(seed), params, num_steps, start)


@functools.lru_cache(maxsize=16)  # `roll` compiles once for each walker
def _walker(policy: TrainedPolicy, greedy: bool) -> Callable[..., tuple[jax.Array, Any]]:
    crowd = for_any_number(policy)

    def act(
        key: jax.Array, obs: Observation, state: CrowdState, memory: Memory, ended: jax.Array
    ) -> tuple[jax.Array, Any]:
        del state
        return crowd.act(obs, policy.remembered(memory, ended), None if greedy else key)

    return act


@in_own_settings
def crowd_like(
    policy: TrainedPolicy, scenario: str | Scenario | None = None, num_agents: int | None = None
) -> tuple[Crowd, CrowdParams]:
    """A crowd in which a policy can walk although it was trained in another one.

    Args:
      policy: Policy of a crowd.
      scenario: Name in `envs.crowd.SCENARIOS`, or a custom scene; None for the scenario of the policy.
      num_agents: Number of people; None for the number in training. If they are fewer than the neighbours
        that the policy observes, the crowd has additional agents that are not present.

    Returns:
      The environment and its parameters, for `jaxrl.render(env, policy, path, env_params=params)`.

    Raises:
      ValueError: The policy is not of a crowd, there is no such scenario, or it has no room for so many people.
    """
    env = crowd_of(policy.algo.env)
    if env is None:
        raise UserValueError(
            f"policy was trained on {policy.algo.env.name}; only the policy of a crowd can walk in another scene."
        )
    count = int(_kept_in(env, policy).num_present) if num_agents is None else num_agents
    check_count("num_agents", count)
    places = env.num_agents if num_agents is None else max(count, (env.num_neighbours or 0) + 1)
    if scenario is None or scenario in (env.scenario, env.name.removeprefix("crowd/")):
        env = dataclasses.replace(env, num_agents=places)
    else:
        env = dataclasses.replace(env, num_agents=places, scenario=scenario, obstacles=None)
    return env, dataclasses.replace(_kept_in(env, policy), num_present=count)


def crowd_of(env: Environment) -> Crowd | None:
    """The crowd of an environment, without wrappers that leave observations and actions as they are.

    Args:
      env: Crowd, which may be inside wrappers that draw parameters or limit the time.

    Returns:
      The crowd; None if the environment is not a crowd, or has other wrappers.
    """
    while isinstance(env, Randomise | TimeLimit):
        env = env.inner
    return env if isinstance(env, Crowd) else None


def params_in(env: Environment, policy: TrainedPolicy) -> Any:
    """The parameters of a policy's training at its end, adapted to an environment.

    Args:
      env: Environment of the policy, or another one.
      policy: Policy with the parameters.

    Returns:
      The parameters, through the wrappers of both environments, see `adapted`; a curriculum is at its end.
    """
    return at_end(env, adapted(env, policy.algo.env, policy.env_params, policy.setting), policy.training_env_steps)


def _kept_in(env: Crowd, policy: TrainedPolicy) -> Any:
    """The parameters of a policy's training in a crowd like that of the training, whose time limit it keeps."""
    if policy.env_params is None:
        return env.default_params
    return at_end(env, _through_wrappers(env, policy.algo.env, policy.env_params), policy.training_env_steps)


def at_end(env: Environment, params: EnvParams, env_steps: int | None) -> Any:
    """The parameters that a curriculum has after so many environment steps of training; None for no change."""
    return params if env_steps is None else jax.device_get(env.params_at(params, np.float32(env_steps)))


def adapted(env: Environment, trained: Environment, params: EnvParams, swept: Collection[str] = ()) -> Any:
    """The parameters of a training, adapted to another environment.

    Args:
      env: Environment.
      trained: Environment of the training.
      params: Parameters of the training; None for the defaults.
      swept: Coordinates of the training, of which those such as "env.gravity" are parameters that it has set.

    Returns:
      The parameters, through the wrappers of both environments. In another environment, parameters that the training
      neither changed nor swept have the defaults of `env`; where `env` rejects this mixture, all are those of the
      training. In another crowd all agents are present, and another scenario keeps its own values and is longer by its
      last time of entry.
    """
    if params is None:
        return env.default_params
    if env == trained:
        return params
    usual = trained.default_params
    unswept = [np.nan if f"env.{name}" in swept else leaf for name, leaf in leaves(usual)]
    usual = jax.tree.unflatten(jax.tree.structure(usual), unswept)
    return with_defaults(env, *(_through_wrappers(env, trained, each) for each in (params, usual)))


def _through_wrappers(env: Environment, trained: Environment, params: EnvParams) -> Any:
    while isinstance(env, Crowd) and isinstance(trained, Wrapper):
        params, trained = trained.inner_params(params), trained.inner
    if not (isinstance(env, Crowd) and isinstance(trained, Crowd)):
        return params_for(seen_from(env), trained, params)
    if env.scenario != trained.scenario:
        usual = env.default_params
        longer = usual.max_steps_in_episode - trained.default_params.max_steps_in_episode  # due to times of entry
        params = dataclasses.replace(
            params, scenario=usual.scenario, max_steps_in_episode=params.max_steps_in_episode + longer
        )
    if env.num_agents != trained.num_agents:
        params = dataclasses.replace(params, num_present=env.num_agents)
    return params


class Walkers(NamedTuple):
    """The policy of a crowd for crowds of any size.

    Attributes:
      initial_memory: Function `(N) -> memory` for the start of an episode, leaves `[N, ...]`.
      act: Function `(obs, memory, key=None) -> (actions, memory)`; observations `[N, ...]`, actions `[N, 2]`, for any
        N; sampled actions with a key, and greedy ones without.
    """

    initial_memory: Callable[[int], Any]
    act: Callable[..., tuple[jax.Array, Any]]


def for_any_number(policy: TrainedPolicy) -> Walkers:
    """The policy of a crowd for crowds of any size: agents share it and act in groups of its size.

    Args:
      policy: Policy of a crowd.
    """
    env = crowd_of(policy.algo.env)
    assert env is not None
    size = env.num_agents

    def grouped(leaf: jax.Array) -> jax.Array:
        count = leaf.shape[0]
        groups = -(-count // size)
        padding = [(0, groups * size - count)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding).reshape(groups, size, *leaf.shape[1:])

    def initial_memory(count: int) -> Any:
        return memories(policy.algo.actor.initial_memory(policy.params), (count,))

    def act(obs: Observation, memory: Memory, key: jax.Array | None = None) -> tuple[jax.Array, Any]:
        count = jax.tree.leaves(obs)[0].shape[0]

        def ungrouped(leaf: jax.Array) -> jax.Array:
            return leaf.reshape(-1, *leaf.shape[2:])[:count]

        groups = jax.tree.map(grouped, obs)
        if not policy.remembers:
            return ungrouped(policy(groups, key, greedy=key is None)), memory
        action, after = policy(groups, key, greedy=key is None, memory=jax.tree.map(grouped, memory))
        return ungrouped(action), jax.tree.map(ungrouped, after)

    return Walkers(initial_memory, act)
