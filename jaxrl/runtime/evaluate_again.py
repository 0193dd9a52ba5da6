"""Evaluation of trained policies over any number of episodes."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from envs.base import Environment
from envs.settings import in_own_settings, require_compilation
from jaxrl.checks import check_count
from jaxrl.learning.actor import Actor
from jaxrl.learning.evaluation import evaluate, finite_only
from jaxrl.pytrees import EnvParams, Policy
from jaxrl.results.dataset import RUN_DIMS, UNKNOWN, ResultError
from jaxrl.results.result import Result
from jaxrl.runtime.layout import compile_programs, over_blocks, plan_layout, run_on_devices, shapes_on
from jaxrl.runtime.programs import cached

EPISODES_AT_ONCE = 2**17

__all__ = ["evaluate_result"]


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

    Returns:
      `{name: [P]}`, or `{name: [P, num_episodes]}`.
    """

    def one_policy(policy: Policy, params: EnvParams, words: jax.Array) -> dict[str, jax.Array]:
        key = jax.random.wrap_key_data(words)
        return finite_only(measured(env, params, actor, policy, key, num_episodes, None), policy, {})

    num_policies, widest = len(keys), max(1, EPISODES_AT_ONCE // num_episodes)
    layout = plan_layout(num_policies, None, None)
    layout = plan_layout(num_policies, min(layout.block, widest), None)
    arguments = layout.spread((policies, env_params, keys))
    program = jax.jit(jax.vmap(lambda arguments: one_policy(*arguments)))
    first = arguments[0][0]
    identity = ("reevaluation", env, actor, measured, num_episodes, layout.block, layout.devices)
    lowered = [lambda device: program.lower(shapes_on(device, first))]
    executables = cached(identity, first, lambda: compile_programs(lowered, layout.devices)[0])
    return layout.gather(run_on_devices([over_blocks(program) for program in executables], arguments))


@in_own_settings
def evaluate_result(result: Result, episodes: int, key: int = 0) -> Result:
    """Run whole episodes with every final policy of a result, on all devices.

    Args:
      result: Result, trained here or loaded; each policy acts in the environment that it was trained in.
      episodes: Number of greedy episodes of every policy, and of episodes with sampled actions.
      key: Seed of the random numbers; equal seeds of the result share them, so that settings
        are compared on the same episodes.

    Returns:
      Result with one point, whose metrics are `return`, `length` and those of the environment,
      each also as `..._sampled`; NaN for failed runs.

    Raises:
      ResultError: The algorithm of the result is unknown.
      ValueError: `episodes` is not a whole number of at least 1, or JAX does not compile.
    """
    require_compilation()
    check_count("episodes", episodes)
    algo = result.algo
    if algo is None:
        reason = result.metrics.attrs.get(UNKNOWN, "the result was made without one")
        raise ResultError(
            f"this result's algorithm is unknown ({reason}), so its policies cannot act; pass algo= to load_result in "
            "Python"
        )
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
    metrics = whole_episodes(algo.env, algo.actor, policies, env_params, keys, episodes, evaluate)

    last = result.metrics.isel(env_step=[-1])
    last.attrs = {name: value for name, value in last.attrs.items() if name != "keep"}  # only `policies` act here
    dims = (*result.dims, *RUN_DIMS)
    shape = tuple(last.sizes[dim] for dim in dims)
    failed = result.failed_runs().reshape(-1)  # also by the metrics of learning, which the policies do not contain
    dataset = last.drop_vars(list(last.data_vars)).assign(
        {
            name: (dims, np.where(failed, np.float32(np.nan), value).reshape(shape))
            for name, value in metrics.items()
            if name not in ("discounted_return", "discounted_return_sampled")
        }
    )
    attrs = {"eval_episodes": episodes} | ({"measured": "best"} if last.attrs.get("policies") == "best" else {})
    return dataclasses.replace(result, metrics=dataset.assign_attrs(attrs), best=None)
