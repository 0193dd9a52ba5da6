"""Evaluation of trained policies episode by episode, as labelled arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from envs.base import Environment
from envs.settings import in_own_settings, require_compilation
from jaxrl.checks import check_count
from jaxrl.learning.evaluation import evaluate_episodes
from jaxrl.policies.runs import runs_of
from jaxrl.pytrees import DiscountLike, EnvParams
from jaxrl.results.dataset import EVAL_DISCOUNT
from jaxrl.results.description import return_range
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.runtime.evaluate_again import resolved_for, single_discount, whole_episodes

if TYPE_CHECKING:
    import xarray

__all__ = ["evaluate"]


@in_own_settings
def evaluate(
    policy: TrainedPolicy | Result,
    env: Environment | None = None,
    episodes: int = 100,
    key: int | jax.Array = 0,
    *,
    env_params: EnvParams = None,
    discount: DiscountLike | None = None,
) -> xarray.Dataset:
    """Metrics of whole episodes of a policy, or of all policies of a result, episode by episode.

    `episodes` episodes have greedy actions, and as many have sampled actions: `return` and `return_sampled` have the
    same meaning as in training, and both kinds begin in the same first states. With equal arguments all numbers are
    equal on one device kind. First states, transitions of a stochastic environment and sampled actions are drawn from
    `key`; greedy actions are deterministic.

    Args:
      policy: Policy of one run, such as `result.policy(seed=3)`, or a result, whose runs act at once in one program.
      env: Environment with the observations and actions of the training; None for that of the training.
      episodes: Number of greedy episodes of every policy, and of episodes with sampled actions.
      key: Seed of the random numbers, as in `evaluate_result`: equal seeds of runs share them, so that settings are
        compared on the same episodes. Or a random key, which all runs share; the key of an evaluation in training gives
        the numbers of that evaluation.
      env_params: Parameters of the environment for all runs; None for those of each run's training, with a curriculum
        at its end; of these, parameters that the training neither changed nor swept have the defaults of `env`, such
        as the time limit of `envs.wrappers.time_limit(...)`, unless `env` rejects this mixture. Or values by name, such
        as `{"gravity": [5.0, 15.0]}`: every combination is evaluated on the same random numbers, and each name is an
        axis, such as `eval.gravity`; `jaxrl.held_out_table` and `jaxrl.plotting.heat_map` show them.
      discount: Number, string or discount, such as "hyperbolic:k=0.02", for the metric `discounted_return`, which sums
        rewards with the weights Gamma(0), Gamma(1), ... from the start of an episode; None for no such metric.

    Returns:
      Dataset of `return`, `length` and the metrics of the environment, each also as `..._sampled`, with the dims of the
      sweep and `seed` (of a result), those of `env_params`, and `episode`. NaN for failed runs.

    Raises:
      ResultError: The algorithm of the result is unknown.
      TypeError: An argument is of another type.
      ValueError: The environment does not fit the policy, a number is out of range, `discount` does not parse or is a
        stack, or JAX does not compile.
    """
    import xarray

    require_compilation()
    check_count("episodes", episodes)
    single = single_discount(discount)
    runs = runs_of(policy, env, env_params, key)
    points = jax.tree.leaves(runs.env_params)[0].shape[1]
    policies, keys = jax.tree.map(lambda leaf: np.repeat(leaf, points, axis=0), (runs.policies, runs.keys))
    params = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), runs.env_params)
    weights = None if single is None else resolved_for(single, runs.env, params)
    metrics = whole_episodes(runs.env, runs.algo.actor, policies, params, keys, episodes, evaluate_episodes, weights)
    failed = np.repeat(runs.failed, points)[:, None]
    variables = {
        name: ((*runs.all_dims, "episode"), np.where(failed, np.float32(np.nan), values).reshape(*runs.shape, episodes))
        for name, values in metrics.items()
    }
    attrs = runs.attrs | return_range(runs.algo._replace(env=runs.env), runs.env_params)
    if single is not None:
        attrs[EVAL_DISCOUNT] = str(single)
    return xarray.Dataset(variables, {**runs.coords, "episode": np.arange(episodes)}, attrs)
