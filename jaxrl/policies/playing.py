"""Stepwise play: of a trained policy with its memory, of a user's function, of a crowd's policy, or at random."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from envs.abstract_checking import sample
from envs.base import Environment, agent_axes, entries, spaces
from envs.choices import choice_sizes
from envs.errors import UserTypeError, UserValueError
from jaxrl.policies.crowds import crowd_of, for_any_number
from jaxrl.pytrees import EnvParams, Mask, Memory, Observation
from jaxrl.results.policy import TrainedPolicy


class Player(NamedTuple):
    """The functions for playing a policy step by step.

    Attributes:
      initial_memory: Function `() -> memory` for the start of an episode.
      act: Greedy function `(obs, mask, memory) -> (action, memory)`.
      remembered: Function `(memory, ended) -> memory` after a step, which resets the memory where an agent's episode
        has ended.
    """

    initial_memory: Callable[[], Any]
    act: Callable[[Any, Any, Any], tuple[Any, Any]]
    remembered: Callable[[Any, Any], Any]


def player_of(env: Environment, policy: Callable[..., Any]) -> Player:
    """The player of a policy in an environment.

    Args:
      env: Environment, which may be another crowd than that of the policy.
      policy: Trained policy, or a function `policy(obs)`, called as `policy(obs, mask=mask)` if actions are masked.
    """
    crowd_of_env = crowd_of(env)
    if isinstance(policy, TrainedPolicy) and crowd_of_env is not None:
        crowd = for_any_number(policy)
        return Player(
            lambda: crowd.initial_memory(crowd_of_env.num_agents),
            lambda obs, mask, memory: crowd.act(obs, memory),
            policy.remembered,
        )

    def act(obs: Observation, mask: Mask, memory: Memory) -> tuple[Any, Any]:
        masked = {} if mask is None else {"mask": mask}
        if isinstance(policy, TrainedPolicy) and policy.remembers:
            return policy(obs, memory=memory, **masked)
        return policy(obs, **masked), memory

    if isinstance(policy, TrainedPolicy):
        return Player(policy.initial_memory, act, policy.remembered)
    return Player(lambda: (), act, lambda memory, ended: memory)


def random_actions(env: Environment, params: EnvParams) -> Callable[[jax.Array], Any]:
    """A function from a key to actions, leaves `[*A, ...]`, drawn independently for each agent."""
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    space, agents = env.action_space(params), agent_axes(env.observation_space(params), obs)
    return lambda key: sample(space, key, agents) if agents else space.sample(key)


def not_an_environment(env: Any) -> str:
    """Message for a value that is passed as an environment, such as the name of one."""
    example, got = (env, repr(env)) if isinstance(env, str) else ("cartpole", type(env).__name__)
    return f"env must be an environment, such as envs.make({example!r}), got {got}."


def check_fit(env: Any, trained: Environment | None) -> None:
    """Check before a policy is called that an environment has the observations and the actions of its training.

    Args:
      env: Environment, or another value that is refused.
      trained: Environment of the training; None for a policy that is a function.

    Raises:
      TypeError: `env` is not an environment.
      ValueError: Its observations or actions are unlike those of the training.
    """
    if not isinstance(env, Environment):
        raise UserTypeError(not_an_environment(env))
    if trained is None or _interface(trained) == _interface(env):
        return
    if crowd_of(env) is not None and crowd_of(trained) is not None:
        raise UserValueError(
            f"policy was trained with other observations than those of {env.name}: perception, preset, dynamics and "
            "number of neighbours must be equal, as in jaxrl.policies.crowds.crowd_like(policy, scenario, num_agents)."
        )
    raise UserValueError(
        f"policy was trained on {trained.name}, whose observations or actions are unlike those of "
        f"{env.name}; env takes the policy's own, policy.algo.env, or one like it."
    )


def _interface(env: Environment) -> Any:
    """The interface of an environment for a policy: structure, shapes and types of observations, and actions."""
    params, key = env.default_params, jax.random.key(0)
    space = env.action_space(params)
    obs, action = jax.eval_shape(env.reset_env, key, params)[0], jax.eval_shape(space.sample, key)
    if crowd_of(env) is not None:  # agents share the policy, so their number does not matter
        obs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), obs)
    leaves, structure = jax.tree.flatten((obs, action))
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves], _numbers_of_choices(space)


def _numbers_of_choices(space: spaces.Space) -> tuple[Any, ...]:
    """Numbers of choices of each part of an action; empty for a part that is not a choice."""
    parts = entries(space).values()
    return tuple(map(_numbers_of_choices, parts)) if parts else choice_sizes(space)
