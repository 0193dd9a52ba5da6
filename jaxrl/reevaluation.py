"""Evaluation of finished policies over as many episodes as one likes."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.base import check_count
from jaxrl.evaluation import evaluate
from jaxrl.results import RUN_DIMS, Result, ResultError

POLICIES_AT_ONCE = 8


def evaluate_result(result: Result, num_episodes: int, key: int = 0) -> Result:
    """Runs whole episodes with every final policy of a result.

    Args:
      result: trained here or loaded; each policy meets the environment that it was trained in.
      num_episodes: of every policy, greedy, and as many with sampled actions.
      key: seed of the random numbers; equal seeds of the result share them, so that settings
        are compared on the same episodes.

    Returns:
      A result with one point, whose metrics are `return`, `length` and the environment's own,
      each also as `..._sampled`.

    Raises:
      ResultError: the result's algorithm is unknown.
      ValueError: `num_episodes` is no whole number of at least 1.
    """
    check_count("num_episodes", num_episodes)
    algo = result.algo
    if algo is None:
        raise ResultError("this result's algorithm is unknown, so its policies cannot act; pass algo= to load_result")
    settings, seeds = result.settings, result.seeds
    runs = (len(settings), len(seeds))
    env_params = result.env_params
    if env_params is None:
        env_params = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], runs[0], 0), algo.env.default_params)
    env_params = jax.tree.map(lambda leaf: jnp.asarray(np.repeat(leaf, runs[1], axis=0)), env_params)
    seed_keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(key), jnp.asarray(seeds, jnp.uint32))

    def one_run(arguments: tuple) -> dict[str, jax.Array]:
        policy, env_params, run_key = arguments

        def act(key: jax.Array, obs: jax.Array, greedy: jax.Array, mask: jax.Array | None) -> jax.Array:
            return algo.act(key, policy, obs, greedy, mask)

        return evaluate(algo.env, env_params, act, run_key, num_episodes, lambda t, weight: weight)

    policies = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), result.policies)
    arguments = (policies, env_params, jnp.tile(seed_keys, runs[0]))
    metrics = jax.jit(lambda arguments: jax.lax.map(one_run, arguments, batch_size=POLICIES_AT_ONCE))(arguments)

    last = result.metrics.isel(env_step=[-1])
    dims = (*result.dims, *RUN_DIMS)
    shape = tuple(last.sizes[dim] for dim in dims)
    dataset = last.drop_vars(list(last.data_vars)).assign(
        {
            name: (dims, np.asarray(value).reshape(shape))
            for name, value in metrics.items()
            if not name.startswith("discounted_return")
        }
    )
    return Result(dataset, result.policies, algo, result.hparams, result.env_params)
