"""Evaluation of trained policies over any number of episodes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from envs.base import Environment
from envs.errors import UserValueError
from envs.settings import in_own_settings, require_compilation
from envs.wrappers.wrapper import limit
from jaxrl.checks import check_count
from jaxrl.discounts.parsing import Discount, Prepared, as_discount, prepare
from jaxrl.learning.actor import Actor
from jaxrl.learning.evaluation import evaluate, finite_only
from jaxrl.pytrees import DiscountLike, EnvParams, Policy
from jaxrl.results.dataset import EVAL_DISCOUNT, RUN_DIMS, unknown_algorithm
from jaxrl.results.result import Result
from jaxrl.runtime.layout import compile_programs, over_blocks, plan_layout, run_on_devices, shapes_on
from jaxrl.runtime.programs import cached

EPISODES_AT_ONCE = 2**17

__all__ = ["evaluate_result"]


def single_discount(discount: DiscountLike | None) -> Discount | None:
    """The discount of an evaluation, None for none.

    Args:
      discount: Number, string or discount, see `jaxrl.as_discount`; or None.

    Raises:
      TypeError: It is of another type.
      ValueError: It does not parse, is a stack of several discounts, or is resolved for a horizon already.
    """
    if discount is None:
        return None
    single = as_discount(discount)
    if isinstance(single, Prepared) or np.shape(single.curve(1)) != (2,):
        raise UserValueError(
            f"discount takes a single discount, such as 0.99 or 'hyperbolic:k=0.02', got {type(discount).__name__}"
        )
    return single


def resolved_for(discount: Discount, env: Environment, env_params: EnvParams) -> Prepared:
    """A discount, resolved for the longest episode of an environment, step by step.

    Args:
      discount: Discount, see `single_discount`.
      env: Environment.
      env_params: Its parameters, concrete, of one or of several settings.
    """
    return prepare(discount, 1, episode_length=int(np.max(limit(env, env_params))))


def keys_of_seeds(key: int, seeds: Sequence[int]) -> np.ndarray:
    """Random words of the evaluation of each run, uint32 `[num_seeds, 2]`, from the seed of the evaluation."""
    fold = jax.vmap(lambda seed: jax.random.key_data(jax.random.fold_in(jax.random.key(key), seed)))
    return np.asarray(fold(np.asarray(seeds, np.uint32)))


def whole_episodes(
    env: Environment,
    actor: Actor,
    policies: Policy,
    env_params: EnvParams,
    keys: np.ndarray,
    num_episodes: int,
    measured: Callable[..., dict[str, jax.Array]],
    discount: Prepared | None = None,
) -> dict[str, np.ndarray]:
    """Metrics of whole episodes of many policies, in blocks, on all devices; NaN for policies with NaN parameters.

    Args:
      env: Environment, static.
      actor: Actor of the policies.
      policies: Policies, leaves `[P, ...]`.
      env_params: Parameters of the environment, leaves `[P, ...]`.
      keys: Random words of each policy, uint32 `[P, 2]`.
      num_episodes: Number of episodes of each kind.
      measured: Function `evaluate` or `evaluate_episodes` of `jaxrl.learning.evaluation`.
      discount: Discount of `discounted_return`, the same for all policies; None for no such metric.

    Returns:
      `{name: [P]}`, or `{name: [P, num_episodes]}`.
    """

    def one_policy(policy: Policy, params: EnvParams, words: jax.Array, discount: Any) -> dict[str, jax.Array]:
        key = jax.random.wrap_key_data(words)
        weight = None if discount is None else discount.next_weight
        return finite_only(measured(env, params, actor, policy, key, num_episodes, weight), policy, {})

    num_policies, widest = len(keys), max(1, EPISODES_AT_ONCE // num_episodes)
    layout = plan_layout(num_policies, None, None)
    layout = plan_layout(num_policies, min(layout.block, widest), None)
    of_each = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], num_policies, axis=0), discount)
    arguments = layout.spread((policies, env_params, keys, of_each))
    program = jax.jit(jax.vmap(lambda arguments: one_policy(*arguments)))
    first = arguments[0][0]
    identity = ("reevaluation", env, actor, measured, num_episodes, layout.block, layout.devices)
    lowered = [lambda device: program.lower(shapes_on(device, first))]
    executables = cached(identity, first, lambda: compile_programs(lowered, layout.devices)[0])
    return layout.gather(run_on_devices([over_blocks(program) for program in executables], arguments))


@in_own_settings
def evaluate_result(result: Result, episodes: int, key: int = 0, *, discount: DiscountLike | None = None) -> Result:
    """Run whole episodes with every final policy of a result, on all devices.

    Args:
      result: Result, trained here or loaded; each policy acts in the environment that it was trained in.
      episodes: Number of greedy episodes of every policy, and of episodes with sampled actions.
      key: Seed of the random numbers; equal seeds of the result share them, so that settings
        are compared on the same episodes.
      discount: Number, string or discount, such as "hyperbolic:k=0.02", for the metric `discounted_return`, which sums
        rewards with the weights Gamma(0), Gamma(1), ... from the start of an episode; None for no such metric.

    Returns:
      Result with one point, whose metrics are `return`, `length` and those of the environment,
      each also as `..._sampled`; NaN for failed runs. Optima in its tables are those under `discount`.

    Raises:
      ResultError: The algorithm of the result is unknown.
      TypeError: `discount` is of another type.
      ValueError: `episodes` is not a whole number of at least 1, `discount` does not parse or is a stack, or JAX does
        not compile.
    """
    require_compilation()
    check_count("episodes", episodes)
    single = single_discount(discount)
    algo = result.algo
    if algo is None:
        raise unknown_algorithm(result.metrics)
    settings, seeds = result.settings, result.seeds
    runs = (len(settings), len(seeds))
    env_params = result.env_params
    if env_params is None:
        env_params = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], runs[0], 0), algo.env.default_params)

    trained_for = np.float32(result.metrics["env_step"].values[-1])
    policies = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), result.policies)
    env_params = jax.vmap(lambda params: algo.env.params_at(params, trained_for))(env_params)
    env_params = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), runs[1], axis=0), env_params)
    keys = np.tile(keys_of_seeds(key, seeds), (runs[0], 1))
    weights = None if single is None else resolved_for(single, algo.env, env_params)
    metrics = whole_episodes(algo.env, algo.actor, policies, env_params, keys, episodes, evaluate, weights)

    last = result.metrics.isel(env_step=[-1])
    # Only `policies` act here, under this call's discount.
    last.attrs = {name: value for name, value in last.attrs.items() if name not in ("keep", EVAL_DISCOUNT)}
    dims = (*result.dims, *RUN_DIMS)
    shape = tuple(last.sizes[dim] for dim in dims)
    failed = result.failed_runs().reshape(-1)  # also by the metrics of learning, which the policies do not contain
    dataset = last.drop_vars(list(last.data_vars)).assign(
        {name: (dims, np.where(failed, np.float32(np.nan), value).reshape(shape)) for name, value in metrics.items()}
    )
    attrs = {"eval_episodes": episodes} | ({"measured": "best"} if last.attrs.get("policies") == "best" else {})
    attrs |= {} if single is None else {EVAL_DISCOUNT: str(single)}
    return dataclasses.replace(result, metrics=dataset.assign_attrs(attrs), best=None)
