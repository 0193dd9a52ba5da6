"""Evaluation over whole episodes, greedy and sampled."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp

from envs.base import Environment
from envs.errors import UserValueError
from jaxrl.learning.acting import act_once, begin
from jaxrl.learning.actor import Actor, Policy
from jaxrl.learning.rollout import Carry
from jaxrl.pytrees import EnvParams, PyTree

EPISODE_METRICS = ("return", "discounted_return", "length")
SAMPLED = "_sampled"


def evaluate(
    env: Environment,
    params: EnvParams,
    actor: Actor,
    policy: Policy,
    key: jax.Array,
    num_episodes: int,
    next_weight: Callable[[jax.Array, jax.Array], jax.Array] | None,
) -> dict[str, jax.Array]:
    """Mean metrics of whole episodes, from the same first states with and without exploration.

    Args, Returns, Raises: See `evaluate_episodes`, of whose metrics these are the means, scalars.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")
    each = evaluate_episodes(env, params, actor, policy, key, num_episodes, next_weight)
    return {name: jnp.mean(values) for name, values in each.items()}


def evaluate_episodes(
    env: Environment,
    params: EnvParams,
    actor: Actor,
    policy: Policy,
    key: jax.Array,
    num_episodes: int,
    next_weight: Callable[[jax.Array, jax.Array], jax.Array] | None,
) -> dict[str, jax.Array]:
    """Metrics of whole episodes, from the same first states with and without exploration.

    Args:
      env: Environment, static.
      params: Parameters of the environment, traced.
      actor: Actor of the policy.
      policy: Policy of one run, traced.
      key: Random key, traced.
      num_episodes: Number of episodes of each kind.
      next_weight: Function `(t, Gamma(t)) -> Gamma(t + 1)`, the discount step by step; None for no `discounted_return`.

    Returns:
      Arrays `[num_episodes]`: `return`, `discounted_return`, `length` and every entry of the environment's
      `info["metrics"]` for greedy actions, and the same with the suffix `_sampled`. Returns
      are averaged over agents if there are several: with `info["active"]` over those that take part in the episode,
      each from its first active step on; empty slots do not count.

    Raises:
      ValueError: A metric of the environment has the name of another metric; raised when traced.
    """
    chex.assert_rank(key, {0, 1}, custom_message="key")  # an untyped key has an axis of two words
    rules = env.metric_rules
    _require_own_names(env, rules)
    first, step_key, agents = begin(env, params, actor, policy, key, num_episodes)
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), first)
    greedy = jnp.arange(2 * num_episodes) < num_episodes

    def one_step(key: jax.Array, carry: Carry, greedy: jax.Array, alive: jax.Array, present: jax.Array) -> Any:
        stepped = act_once(env, params, actor, policy, key, carry, agents, greedy)
        reward, info = stepped.reward, stepped.info
        metrics = {name: jnp.asarray(info["metrics"][name], jnp.float32) for name in rules}
        if "active" in info:
            present = present | (alive & info["active"])
            reward = jnp.where(present, reward, 0.0)
        else:
            present = jnp.ones_like(present)
        return stepped.carry, jnp.mean(reward), stepped.terminated | stepped.truncated, present, metrics

    def body(loop: PyTree) -> Any:
        t, weight, alive, carry, present, totals = loop
        keys = jax.random.split(jax.random.fold_in(step_key, t), 2 * num_episodes)
        carry, reward, done, present, metrics = jax.vmap(one_step)(keys, carry, greedy, alive, present)
        gain = jnp.where(alive, reward, 0.0)
        updated = {"return": totals["return"] + gain, "length": totals["length"] + alive}
        if next_weight is not None:
            updated["discounted_return"] = totals["discounted_return"] + weight * gain
            weight = next_weight(t, weight)
        for name, rule in rules.items():
            updated[name] = _reduce(rule, totals[name], metrics[name], alive)
        return t + 1, weight, alive & ~done, carry, present, updated

    zeros = jnp.zeros(2 * num_episodes)
    named = [name for name in EPISODE_METRICS if next_weight is not None or name != "discounted_return"]
    totals = {name: zeros for name in (*named, *rules)}
    present = jnp.zeros((2 * num_episodes, *agents), bool)
    start = (jnp.zeros((), jnp.int32), jnp.ones(()), jnp.ones(2 * num_episodes, bool), twice, present, totals)
    *_, present, totals = jax.lax.while_loop(lambda loop: jnp.any(loop[2]), body, start)
    # The means so far are over all slots of agents; if all are present, the factor is 1 and changes no bit.
    people = jnp.sum(present.reshape(2 * num_episodes, -1), axis=1)
    of_people = math.prod(agents) / jnp.maximum(people, 1)
    for name in named:
        if name != "length":
            totals[name] = totals[name] * of_people
    for name, rule in rules.items():
        if rule == "mean":
            totals[name] = totals[name] / totals["length"]
    return _named(totals, num_episodes)


def episode_metrics(env: Environment) -> set[str]:
    """Names of all metrics that `evaluate` can have on an environment."""
    return {f"{name}{suffix}" for name in (*EPISODE_METRICS, *env.metric_rules) for suffix in ("", SAMPLED)}


def finite_only(
    metrics: Mapping[str, jax.Array], policy: Policy, others: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Metrics of a policy's episodes, NaN if its run has failed.

    A policy with NaN parameters still acts: its most likely action is the first one, so its episodes look normal.

    Args:
      metrics: Metrics of the episodes, scalars or arrays `[num_episodes]`.
      policy: Pytree of arrays; a NaN in a leaf of numbers is a failure, an infinite bound is not.
      others: Further metrics of the run, scalars; one that is not finite is a failure.
    """
    chex.assert_rank([*metrics.values()], {0, 1}, custom_message="metrics")
    chex.assert_rank([*others.values()], 0, custom_message="others")
    numbers = [leaf for leaf in jax.tree.leaves(policy) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact)]
    # Joined into two arrays: each array would be compiled as a separate loop.
    any_failed = jnp.any(jnp.isnan(_joined(numbers))) | jnp.any(~jnp.isfinite(_joined([*others.values()])))
    return {name: jnp.where(any_failed, jnp.nan, value) for name, value in metrics.items()}


def _joined(leaves: list[Any]) -> jax.Array:
    return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves)])


def _require_own_names(env: Environment, rules: Mapping[str, str]) -> None:
    taken = {*EPISODE_METRICS, *(f"{name}{SAMPLED}" for name in (*EPISODE_METRICS, *rules))}
    clashes = sorted(taken & set(rules))
    if clashes:
        raise UserValueError(
            f"metric_rules of {type(env).__name__} has {', '.join(clashes)}, which are metrics of the evaluation; "
            f"names must differ from {', '.join(EPISODE_METRICS)}, and from any metric name followed by {SAMPLED}."
        )


def _reduce(rule: str, total: jax.Array, value: jax.Array, alive: jax.Array) -> jax.Array:
    value = value.reshape(value.shape[0], -1).mean(axis=1)
    return jnp.where(alive, value if rule == "last" else total + value, total)


def _named(totals: Mapping[str, jax.Array], num_episodes: int) -> dict[str, jax.Array]:
    greedy = {name: values[:num_episodes] for name, values in totals.items()}
    sampled = {f"{name}{SAMPLED}": values[num_episodes:] for name, values in totals.items()}
    return {**greedy, **sampled}
