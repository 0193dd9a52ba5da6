"""Small tasks of one or two choices, each as an environment and as a tree of decisions with the same rewards."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bench.studies.choosers import Branch, Decision
from envs.base import Environment
from envs.decision.delayed_choice import DelayedChoice
from envs.decision.pathworld import Pathworld
from envs.decision.preference_reversal import PreferenceReversal
from envs.decision.random_dilemmas import RandomDilemmas

__all__ = ["Task", "tasks"]


class Task(NamedTuple):
    """A task with its decisions.

    Attributes:
      env, params: Environment and its parameters.
      obs: Observations at the decisions, `[D, ...]`.
      mask: Allowed actions there, bool `[D, num_actions]`.
      first: First decisions of episodes, one, or one for each of several dilemmas.
    """

    env: Environment
    params: Any
    obs: np.ndarray
    mask: np.ndarray
    first: list[Decision]


def tasks(steps: int, num_paths: int, tax: float, num_dilemmas: int) -> dict[str, Task]:
    """The tasks of `envs.decision`, pathworld without its hazard.

    Args:
      steps: Number of steps to the rewards of delayed-choice and to the later one of preference-reversal, whose sooner
        one is half as far, and number of delays of random-dilemmas.
      num_paths: Number of paths of pathworld.
      tax: Cost of switching in preference-reversal.
      num_dilemmas: Number of random dilemmas.
    """
    later, sooner = steps, steps // 2
    path_env = Pathworld("constant", num_paths)
    paths = tuple(Branch(f"path {i}", ((i * i, float(i)),)) for i in range(num_paths))
    delayed: Any = DelayedChoice().default_params
    delayed = delayed.replace(num_steps=later, max_steps_in_episode=later)
    options = ((later - 1, delayed.first_reward), (later - 1, delayed.second_reward))
    reversal: Any = PreferenceReversal().default_params
    reversal = reversal.replace(tax=tax, sooner_step=sooner, later_step=later, max_steps_in_episode=later + 1)
    taxed = reversal.sooner_reward - tax
    again = Decision(1, (Branch("switch", ((0, taxed),)), Branch("hold", ((later - sooner, reversal.later_reward),))))
    commit = (Branch("sooner", ((sooner, reversal.sooner_reward),)), Branch("later", (), sooner, again))
    random: Any = RandomDilemmas().default_params
    random = random.replace(max_delay=later, max_steps_in_episode=later)
    obs, mask, states = _starts(RandomDilemmas(), random, num_dilemmas)
    dilemmas = [
        Decision(i, tuple(Branch(str(a), ((int(delay[a]), float(reward[a])),)) for a in range(2)))
        for i, (reward, delay) in enumerate(zip(states.rewards, states.delays, strict=True))
    ]
    path_params: Any = path_env.default_params.replace(mean_hazard=0.0)  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "pathworld": Task(path_env, path_params, *_starts(path_env, path_params, 1)[:2], [Decision(0, paths)]),
        "delayed-choice": Task(
            DelayedChoice(),
            delayed,
            *_starts(DelayedChoice(), delayed, 1)[:2],
            [
                Decision(
                    0, tuple(Branch(name, (each,)) for name, each in zip(("first", "second"), options, strict=True))
                )
            ],
        ),
        "preference-reversal": Task(PreferenceReversal(), reversal, *_both_choices(reversal), [Decision(0, commit)]),
        "random-dilemmas": Task(RandomDilemmas(), random, obs, mask, dilemmas),
    }


def _starts(env: Environment, params: Any, count: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Observations, masks and states at the start of some episodes."""
    keys = jax.random.split(jax.random.key(0), count)
    obs, state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, params)
    mask = jax.vmap(env.action_mask, in_axes=(0, None))(state, params)
    return np.asarray(obs), np.asarray(mask), jax.tree.map(np.asarray, state)


def _both_choices(params: Any) -> tuple[np.ndarray, np.ndarray]:
    """Observations and masks at both choices of preference-reversal, the second after a commitment to the later."""
    env, key, later = PreferenceReversal(), jax.random.key(0), jnp.int32(1)
    obs, state = env.reset_env(key, params)
    pairs = [(obs, env.action_mask(state, params))]
    for _ in range(params.sooner_step):
        obs, state, *_ = env.step_env(key, state, later, params)
    pairs.append((obs, env.action_mask(state, params)))
    observations, masks = (np.stack([np.asarray(pair[i]) for pair in pairs]) for i in range(2))
    return observations, masks
