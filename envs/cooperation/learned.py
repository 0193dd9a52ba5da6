"""Partners that act by a function with traced parameters, such as trained networks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from envs.base import spaces
from envs.cooperation.partners import Partner
from envs.errors import UserValueError

__all__ = ["Learned", "learned"]


@dataclass(frozen=True)
class Learned(Partner):
    """Partners that share one static function, with parameters drawn from the population; created by `learned`.

    The behaviour vector is the index of the member. Parameters of other partners with the same shapes take the place of
    `env.population` without a further compilation.

    Attributes:
      begin: Function `(params) -> memory` of one partner at the start of an episode; a module-level function, or a
        cached one, so that equal partners share compiled programs.
      choose: Function `(key, params, memory, obs) -> (action, memory)`.
      structure: Structure of the parameters of one partner.
      shapes: Shapes and types of their leaves.
      num_members: Number of partners, P.
    """

    begin: Callable[[Any], Any]
    choose: Callable[[jax.Array, Any, Any, jax.Array], tuple[jax.Array, Any]]
    structure: Any
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    num_members: int

    def population(self, task: Any) -> dict[str, Any]:
        """Indices `[P]`, and parameters of 0, which training rejects."""
        del task
        leaves = [np.zeros((self.num_members, *shape), dtype) for shape, dtype in self.shapes]
        return _members(jax.tree.unflatten(self.structure, leaves), self.num_members)

    def start(self, task: Any, member: dict[str, Any]) -> Any:
        """The memory of the function."""
        del task
        return self.begin(member["params"])

    def act(
        self, key: jax.Array, task: Any, state: Any, obs: jax.Array, member: dict[str, Any], memory: Any, params: Any
    ) -> tuple[jax.Array, Any]:
        """The action of the function for the partner's observation."""
        del task, state, params
        return self.choose(key, member["params"], memory, obs)

    def behaviour_space(self, task: Any) -> spaces.Tuple:
        """The index of the member."""
        del task
        return spaces.Tuple((spaces.Discrete(self.num_members),))

    def behaviour(self, member: dict[str, Any]) -> tuple[jax.Array, ...]:
        """The index of the member."""
        return (member["index"],)

    def check(self, task: Any, population: dict[str, Any]) -> None:
        """Reject parameters that are all 0, as in a task whose population has not been set."""
        if not any(np.any(leaf) for leaf in jax.tree.leaves(population["params"])):
            raise UserValueError(
                "env.population must have the parameters of trained partners, got parameters of 0; set population "
                "and weights in env_params"
            )


def learned(
    begin: Callable[[Any], Any],
    choose: Callable[[jax.Array, Any, Any, jax.Array], tuple[jax.Array, Any]],
    params: Any,
) -> tuple[Learned, dict[str, Any]]:
    """Create partners from a function and their parameters.

    Args:
      begin, choose: Functions, see `Learned`.
      params: Parameters of all partners, a pytree of concrete arrays `[P, ...]`.

    Returns:
      The partner, a static field of a task, and the population, a traced parameter of that task.

    Raises:
      ValueError: There are no partners, or the arrays have different numbers of them.
    """
    params = jax.tree.map(np.asarray, params)
    leaves, structure = jax.tree.flatten(params)
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(counts) != 1 or 0 in counts:
        raise UserValueError(
            f"params must be arrays [P, ...] of at least one partner, got shapes {[leaf.shape for leaf in leaves]}"
        )
    (num_members,) = counts
    shapes = tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in leaves)
    return Learned(begin, choose, structure, shapes, num_members), _members(params, num_members)


def _members(params: Any, num_members: int) -> dict[str, Any]:
    return {"index": np.arange(num_members, dtype=np.int32), "params": params}
