"""Partners that act by a function with traced parameters, such as trained networks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import check_number
from envs.base import spaces
from envs.cooperation.characters import Character, behaviour, behaviour_space, last_paid, seen, tremble
from envs.cooperation.partners import Partner
from envs.errors import UserValueError
from envs.pytrees import Memory, Params, PyTree, State

__all__ = ["Learned", "LearnedCharacters", "learned", "learned_characters"]


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
        self,
        key: jax.Array,
        task: Any,
        state: State,
        obs: jax.Array,
        member: dict[str, Any],
        memory: Memory,
        params: Params,
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


@dataclass(frozen=True)
class LearnedCharacters(Learned):
    """Partners with characters, which share a few networks; created by `learned_characters`.

    The behaviour vector is the character. Other networks of the same shapes and other characters need no further
    compilation.

    Attributes:
      num_networks: Number of networks.
    """

    num_networks: int

    def population(self, task: Any) -> dict[str, Any]:
        """Weights of 0, other traits of 0.5, networks in turn, and parameters of 0, which training rejects."""
        leaves = [np.zeros((self.num_networks, *shape), dtype) for shape, dtype in self.shapes]
        half = np.full(self.num_members, 0.5, np.float32)
        characters = Character(np.zeros((self.num_members, task.num_options), np.float32), half, half, half)
        return _population(jax.tree.unflatten(self.structure, leaves), characters, self.num_networks)

    def rows(self, population: dict[str, Any]) -> Any:
        """The characters and the index of each one's network, without the parameters of the networks."""
        return population | {"params": None}

    def member(self, population: dict[str, Any], index: jax.Array) -> dict[str, Any]:
        """A character and the parameters of its network."""
        character, network = jax.tree.map(
            lambda leaf: jnp.asarray(leaf)[index], (population["characters"], population["network"])
        )
        only = self.num_networks == 1  # whose parameters are then the same for all environments
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0 if only else network], population["params"])
        return {"character": character, "params": params}

    def start(self, task: Any, member: dict[str, Any]) -> Any:
        """The memory of the network, and the last paid option, of which there is none."""
        return super().start(task, member), jnp.full((), -1, jnp.int32)

    def act(
        self,
        key: jax.Array,
        task: Any,
        state: State,
        obs: jax.Array,
        member: dict[str, Any],
        memory: Memory,
        params: Params,
    ) -> tuple[jax.Array, Any]:
        """The action of the network for the partner's observation and character, or a random one."""
        own_key, tremble_key = jax.random.split(key)
        memory, paid = memory
        paid, character = last_paid(paid, task.view(state, 1, params)), member["character"]
        shown = seen(task, obs, paid, character)
        action, memory = super().act(own_key, task, state, shown, member, memory, params)
        return tremble(tremble_key, action, character.rationality, task.num_actions), (memory, paid)

    def behaviour_space(self, task: Any) -> spaces.Tuple:
        """Weights of the options, and the other three traits."""
        return behaviour_space(task)

    def behaviour(self, member: dict[str, Any]) -> tuple[jax.Array, ...]:
        """The traits of the character."""
        return behaviour(member["character"])

    def check(self, task: Any, population: dict[str, Any]) -> None:
        """Reject parameters that are all 0, traits outside their ranges, and a network that does not exist."""
        super().check(task, population)
        network = np.asarray(population["network"])
        if not np.issubdtype(network.dtype, np.integer):
            raise UserValueError(f"env.population.network must hold whole numbers, got dtype {network.dtype}")
        check_number("env.population.network", network, 0, self.num_networks - 1, "[]")
        for name, least in (("weights", -1), ("order", 0), ("patience", 0), ("rationality", 0)):
            values = np.asarray(getattr(population["characters"], name))
            check_number(f"env.population.characters.{name}", values, least, 1, "[]")


def learned(
    begin: Callable[[Any], Any],
    choose: Callable[[jax.Array, Any, Any, jax.Array], tuple[jax.Array, Any]],
    params: Params,
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
    num_members = _count("params", params)
    return Learned(begin, choose, *_static(params), num_members), _members(params, num_members)


def learned_characters(
    begin: Callable[[Any], Any],
    choose: Callable[[jax.Array, Any, Any, jax.Array], tuple[jax.Array, Any]],
    params: Params,
    characters: Character,
) -> tuple[LearnedCharacters, dict[str, Any]]:
    """Create partners with characters from networks that take the character after the observation.

    Args:
      begin, choose: Functions, see `Learned`.
      params: Parameters of one or several networks, a pytree of concrete arrays `[S, ...]`.
      characters: Characters, leaves `[P, ...]`; they have the networks in turn.

    Returns:
      The partner, a static field of a task, and the population, a traced parameter of that task.

    Raises:
      ValueError: There are no networks or characters, or the arrays have different numbers of them.
    """
    params, characters = jax.tree.map(np.asarray, (params, characters))
    num_networks, num_members = _count("params", params), _count("characters", characters)
    partner = LearnedCharacters(begin, choose, *_static(params), num_members, num_networks)
    return partner, _population(params, characters, num_networks)


def _count(name: str, tree: PyTree) -> int:
    """The common length of the first axes of arrays."""
    leaves = jax.tree.leaves(tree)
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(counts) != 1 or 0 in counts:
        raise UserValueError(
            f"{name} must be arrays [P, ...] of at least one partner, got shapes {[leaf.shape for leaf in leaves]}"
        )
    return counts.pop()


def _static(params: Params) -> tuple[Any, tuple[tuple[tuple[int, ...], str], ...]]:
    """Structure of one partner's parameters, and shapes and types of their leaves."""
    leaves, structure = jax.tree.flatten(params)
    return structure, tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in leaves)


def _population(params: Params, characters: Character, num_networks: int) -> dict[str, Any]:
    count = len(np.asarray(characters.order))
    return {"characters": characters, "network": np.arange(count, dtype=np.int32) % num_networks, "params": params}


def _members(params: Params, num_members: int) -> dict[str, Any]:
    return {"index": np.arange(num_members, dtype=np.int32), "params": params}
