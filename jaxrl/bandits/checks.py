"""Checks of the requirements of policies on bandits; the message of each error is one sentence."""

from __future__ import annotations

from envs.base import spaces
from envs.errors import UserValueError
from jaxrl.bandits.base import Task


def check_arms(name: str, task: Task) -> None:
    """Reject bandits whose actions are not one arm per pull.

    Args:
      name: Name of the policy.
      task: Bandit.
    """
    space = task.env.action_space(task.env.default_params)
    if not isinstance(space, spaces.Discrete) or int(space.n) != task.num_arms:
        actions = f"Tuple of {len(space.spaces)} numbers" if isinstance(space, spaces.Tuple) else repr(space)
        raise UserValueError(
            f"{name} pulls one of {task.num_arms} arms at a time, which {task.env.name} does not take: "
            f"its actions are {actions}"
        )


def check_unit_rewards(name: str, task: Task) -> None:
    """Reject actions that are not one arm, and rewards that are known to leave [0, 1]."""
    check_arms(name, task)
    limits = task.env.reward_range
    if limits is not None and not (limits[0] >= 0 and limits[1] <= 1):
        raise UserValueError(
            f"{name} takes rewards in [0, 1], those of {task.env.name} lie in [{limits[0]}, {limits[1]}]"
        )


def check_features(name: str, task: Task) -> None:
    """Reject actions that are not one arm, and arms without features."""
    check_arms(name, task)
    if task.num_features < 1:
        raise UserValueError(
            f"{name} needs features of every arm before each pull, which {task.env.name} does not show"
        )
