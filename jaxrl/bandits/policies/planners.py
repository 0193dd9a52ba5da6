"""Policies for known bandits of Markov chains: the optimal policy, for small bandits, and the myopic policy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs.bandits.markov import MarkovBandit
from envs.bandits.restless import BudgetBandit
from envs.errors import UserValueError
from jaxrl.bandits.base import BanditAlgorithm, Task, View
from jaxrl.bandits.dynamic_programming import JOINT_PAIRS, joint_choices, joint_size, plan
from jaxrl.bandits.policies.whittle_index import highest, stay
from jaxrl.checks import Range, Settings, ranged
from jaxrl.pytrees import EnvParams, HParams, State


@struct.dataclass
class PlanningHParams(Settings):
    """Hyper-parameters of `exact_planning`.

    Attributes:
      gamma: Discount factor of the sum of rewards that the plan maximises, in [0, 1).
    """

    gamma: float = ranged(0.95, Range(0, 1, "[)"))


@struct.dataclass
class MyopicHParams(Settings):
    """None."""


@functools.cache
def exact_planning() -> BanditAlgorithm:
    """The optimal policy for small bandits of Markov chains with a known instance.

    It plans before the first step, see `plan`, and then looks actions up.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: PlanningHParams) -> tuple[jax.Array, jax.Array]:
        # The weight of each arm's state in the number of a joint state.
        places = task.env.num_states ** np.arange(task.num_arms - 1, -1, -1)
        order = jax.random.permutation(key, len(joint_choices(task.env).actions))
        return plan(task.env, params, hparams.gamma, order).actions, jnp.asarray(places, jnp.int32)

    def choose(key: jax.Array, state: tuple[jax.Array, jax.Array], view: View, hparams: HParams) -> jax.Array:
        del key, hparams
        actions, places = state
        return actions[jnp.sum(places * view.context)]

    def check(task: Task) -> None:
        _check("exact-planning", task)
        size, count = joint_size(task.env), len(joint_choices(task.env).actions)
        if size * count > JOINT_PAIRS:
            raise UserValueError(
                f"exact-planning takes at most {JOINT_PAIRS:,} pairs of joint states and joint actions; "
                f"{task.env.name} has {size:,} states and {count:,} actions"
            )

    return BanditAlgorithm("exact-planning", PlanningHParams(), init, choose, stay, _first_arm, check)


@functools.cache
def myopic() -> BanditAlgorithm:
    """The action of the highest expected reward at the present step, independent of later steps; the instance is known.

    With a budget these are the arms that gain most by being pulled; otherwise all joint actions are compared, which is
    feasible only if an action has few numbers. Ties go to the first in an order that is drawn for each run.
    """

    def init(key: jax.Array, task: Task, params: EnvParams, hparams: HParams) -> tuple[jax.Array, Any]:
        del hparams
        if isinstance(task.env, BudgetBandit):
            return params.arms.expected, (jnp.int32(task.env.budget), jax.random.permutation(key, task.num_arms))
        choices = joint_choices(task.env)
        order = jax.random.permutation(key, len(choices.actions))
        return params.arms.expected, (jnp.asarray(choices.actions)[order], jnp.asarray(choices.touched)[order])

    def choose(key: jax.Array, state: tuple[jax.Array, Any], view: View, hparams: HParams) -> jax.Array:
        del key, hparams
        expected, (first, second) = state
        each = jnp.arange(expected.shape[0])
        if not first.ndim:
            return highest(expected[each, 1, view.context] - expected[each, 0, view.context], first, second)
        actions, touched = first, second
        return actions[jnp.argmax(jnp.sum(expected[each, touched, view.context], axis=-1))]

    def check(task: Task) -> None:
        _check("myopic", task)
        if not isinstance(task.env, BudgetBandit):
            joint_choices(task.env)

    return BanditAlgorithm("myopic", MyopicHParams(), init, choose, stay, _first_arm, check)


def _first_arm(state: State, hparams: HParams) -> jax.Array:
    del state, hparams
    return jnp.zeros((), jnp.int32)


def _check(name: str, task: Task) -> None:
    if not isinstance(task.env, MarkovBandit):
        raise UserValueError(f"{name} takes a bandit of Markov chains, such as bandit/restless, got {task.env.name}")
