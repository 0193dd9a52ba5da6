"""Evaluation over whole episodes, greedy and sampled side by side."""

from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.threefry import rolled, unrolled
from jaxrl.learning.rollout import reset_all, step_once

EPISODE_METRICS = ("return", "discounted_return", "length")
SAMPLED = "_sampled"


def evaluate(
    env: Environment,
    params: Any,
    act: Callable[[jax.Array, Any, jax.Array, Any], Any],
    key: jax.Array,
    num_episodes: int,
    next_weight: Callable[[jax.Array, jax.Array], jax.Array],
) -> dict[str, jax.Array]:
    """Mean metrics of whole episodes, from the same first states with and without exploration.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      act: Function `(key, obs, greedy, mask) -> action` for one observation.
      key: Random key, traced.
      num_episodes: Number of episodes of each kind, static.
      next_weight: Function `(t, Gamma(t)) -> Gamma(t + 1)`, the discount step by step.

    Returns:
      Scalars: `return`, `discounted_return`, `length` and every entry of the environment's
      `info["metrics"]` for greedy actions, and the same with the suffix `_sampled`. Returns
      are the mean over agents where there are several.

    Raises:
      ValueError: a metric of the environment has the name of another one; when traced.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    rules = env.metric_rules
    _require_own_names(env, rules)
    reset_key, step_key = jax.random.split(unrolled(key))
    first = reset_all(env, reset_key, params, num_episodes)
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), first)
    greedy = jnp.arange(2 * num_episodes) < num_episodes

    def one_step(key: jax.Array, state: Any, obs: Any, greedy: jax.Array) -> Any:
        act_key, env_key = jax.random.split(key)
        action = act(rolled(act_key), obs, greedy, env.action_mask(state, params))
        obs, state, reward, terminated, truncated, info = step_once(env, env_key, state, action, params)
        metrics = {name: jnp.asarray(info["metrics"][name], jnp.float32) for name in rules}
        return state, obs, jnp.mean(reward), terminated | truncated, metrics

    def body(loop: Any) -> Any:
        t, weight, alive, state, obs, totals = loop
        keys = jax.random.split(jax.random.fold_in(step_key, t), 2 * num_episodes)
        state, obs, reward, done, metrics = jax.vmap(one_step)(keys, state, obs, greedy)
        gain = jnp.where(alive, reward, 0.0)
        updated = {
            "return": totals["return"] + gain,
            "discounted_return": totals["discounted_return"] + weight * gain,
            "length": totals["length"] + alive,
        }
        for name, rule in rules.items():
            updated[name] = _reduce(rule, totals[name], metrics[name], alive)
        return t + 1, next_weight(t, weight), alive & ~done, state, obs, updated

    zeros = jnp.zeros(2 * num_episodes)
    totals = {name: zeros for name in (*EPISODE_METRICS, *rules)}
    start = (jnp.zeros((), jnp.int32), jnp.ones(()), jnp.ones(2 * num_episodes, bool), *twice, totals)
    *_, totals = jax.lax.while_loop(lambda loop: jnp.any(loop[2]), body, start)
    for name, rule in rules.items():
        if rule == "mean":
            totals[name] = totals[name] / totals["length"]
    return _named(totals, num_episodes)


def finite_only(metrics: Mapping[str, jax.Array], policy: Any, others: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The metrics of a policy's episodes, NaN where the run that it comes from has failed.

    A policy of NaNs still acts, its most likely action being the first one, so that its episodes
    look like any others.

    Args:
      metrics: Metrics of the episodes, scalars.
      policy: Pytree of arrays; a NaN in a leaf of numbers is a failure, an infinite bound is not.
      others: Further metrics of the run, scalars; one that is not finite is a failure.
    """
    chex.assert_rank([*metrics.values()], 0, custom_message="metrics")
    chex.assert_rank([*others.values()], 0, custom_message="others")
    numbers = [leaf for leaf in jax.tree.leaves(policy) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact)]
    # As two arrays, not as many: each would be a loop of its own to compile.
    any_failed = jnp.any(jnp.isnan(_joined(numbers))) | jnp.any(~jnp.isfinite(_joined([*others.values()])))
    return {name: jnp.where(any_failed, jnp.nan, value) for name, value in metrics.items()}


def _joined(leaves: list[Any]) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves)])


def _require_own_names(env: Environment, rules: Mapping[str, str]) -> None:
    taken = {*EPISODE_METRICS, *(f"{name}{SAMPLED}" for name in (*EPISODE_METRICS, *rules))}
    clashes = sorted(taken & set(rules))
    if clashes:
        raise ValueError(
            f"metric_rules of {type(env).__name__} has {', '.join(clashes)}, which evaluation itself names so; "
            f"it takes names other than {', '.join(EPISODE_METRICS)} and those with {SAMPLED} behind."
        )


def _reduce(rule: str, total: jax.Array, value: jax.Array, alive: jax.Array) -> jax.Array:
    value = value.reshape(value.shape[0], -1).mean(axis=1)
    return jnp.where(alive, value if rule == "last" else total + value, total)


def _named(totals: Mapping[str, jax.Array], num_episodes: int) -> dict[str, jax.Array]:
    greedy = {name: jnp.mean(values[:num_episodes]) for name, values in totals.items()}
    sampled = {f"{name}{SAMPLED}": jnp.mean(values[num_episodes:]) for name, values in totals.items()}
    return {**greedy, **sampled}
