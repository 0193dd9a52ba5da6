"""A trained policy as a callable: its parameters together with the algorithm's way to act."""

from functools import partial
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms.contract import Algorithm

__all__ = ["TrainedPolicy"]


@partial(jax.jit, static_argnums=(0, 4))
def _act(act: Any, key: Any, params: Any, obs: Any, greedy: bool, mask: Any) -> Any:
    return act(key, params, obs, greedy) if mask is None else act(key, params, obs, greedy, mask)


@partial(jax.jit, static_argnums=(0, 4))
def _act_batch(act: Any, keys: Any, params: Any, obs: Any, greedy: bool, mask: Any) -> Any:
    def one(key: Any, obs: Any, mask: Any) -> Any:
        return act(key, params, obs, greedy) if mask is None else act(key, params, obs, greedy, mask)

    return jax.vmap(one)(keys, obs, mask)


class TrainedPolicy:
    """The policy of one finished run: `policy(obs)` is an action.

    Attributes:
      algo: the algorithm that it was trained by.
      params: pytree of arrays, what `algo.act` takes: parameters and normalisation.
      setting: the coordinates of the run within the sweep, `{path: value}`.
      seed: the run's seed, or None where the policy does not come from a result.
      env_params: of the environment that it was trained in; None for the defaults.
    """

    def __init__(
        self,
        algo: Algorithm,
        params: Any,
        setting: dict[str, Any] | None = None,
        seed: int | None = None,
        env_params: Any = None,
    ):
        self.algo = algo
        self.params = params
        self.setting = dict(setting or {})
        self.seed = seed
        self.env_params = env_params

        def first(key: jax.Array, params: Any) -> tuple[Any, Any]:
            obs, state = algo.env.reset_env(key, params)
            return obs, algo.env.action_mask(state, params)

        self._obs_shape, self._mask_shape = jax.eval_shape(first, jax.random.key(0), algo.env.default_params)

    def __call__(self, obs: Any, key: jax.Array | None = None, greedy: bool = True, mask: Any = None) -> Any:
        """The action for an observation, or for a batch of them.

        Args:
          obs: an observation of the environment, or such with further leading axes.
          key: a random key; needed where `greedy` is false.
          greedy: the most likely action instead of a sampled one.
          mask: the environment's `action_mask`, with the same leading axes; None where it has none.

        Returns:
          The action, with the same leading axes.

        Raises:
          ValueError: the observation does not fit the environment, or a key or mask is missing.
        """
        if mask is None and self._mask_shape is not None:
            raise ValueError(
                f"mask is None, but {type(self.algo.env).__name__} forbids actions; "
                "it takes what env.action_mask(state, params) returns."
            )
        if key is None:
            if not greedy:
                raise ValueError("key is None, but a sampled action (greedy=False) takes a random key.")
            key = jax.random.key(0)
        batch = self._batch_shape(obs)
        for given, leaf in zip(jax.tree.leaves(mask), jax.tree.leaves(self._mask_shape), strict=False):
            if np.shape(given) != (*batch, *leaf.shape):
                raise ValueError(f"mask has the shape {np.shape(given)}; it takes {(*batch, *leaf.shape)}.")
        if not batch:
            return _act(self.algo.act, key, self.params, obs, greedy, mask)
        count = int(np.prod(batch))
        flat_obs, flat_mask = jax.tree.map(lambda x: np.reshape(x, (count, *np.shape(x)[len(batch) :])), (obs, mask))
        action = _act_batch(self.algo.act, jax.random.split(key, count), self.params, flat_obs, greedy, flat_mask)
        return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), action)

    def __repr__(self) -> str:
        where = ", ".join([*(f"{path}={value}" for path, value in self.setting.items()), f"seed={self.seed}"])
        return f"TrainedPolicy({self.algo.name} on {type(self.algo.env).__name__}; {where})"

    def _batch_shape(self, obs: Any) -> tuple[int, ...]:
        wanted, structure = jax.tree.flatten(self._obs_shape)
        got, got_structure = jax.tree.flatten(obs)
        if structure != got_structure:
            raise ValueError(f"obs has the structure {got_structure}; the environment's is {structure}.")
        shapes = [np.shape(leaf) for leaf in got]
        extra = len(shapes[0]) - len(wanted[0].shape)
        batch = shapes[0][: max(extra, 0)]
        for shape, leaf in zip(shapes, wanted, strict=True):
            if shape != (*batch, *leaf.shape):
                raise ValueError(
                    f"obs has the shape {shape}; the environment's is {leaf.shape}, or that behind further axes."
                )
        return tuple(batch)
