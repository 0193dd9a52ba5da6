"""Computation of an exported policy, and its description: inputs, outputs, spaces, origin."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from envs.base import spaces
from envs.checking import check_abstractly
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.normalisation import FORMULA, RunningStatistics
from jaxrl.learning.rollout import first_observation
from jaxrl.pytrees import Params, PyTree
from jaxrl.results.dataset import UNKNOWN, ResultError
from jaxrl.results.json_values import to_json, versions
from jaxrl.results.policy import TrainedPolicy
from jaxrl.sweeps.paths import leaves

ACTION, MEMORY = "action", "memory"
NEXT_MEMORY = f"next_{MEMORY}"  # in ONNX, an output cannot have the name of an input


class Program(NamedTuple):
    """The greedy policy on a batch, as a pure function.

    Attributes:
      function: Function from `(obs[, mask][, memory])` to `{"action": ..., "logits": ..., "next_memory": ...}`, all
        with a leading batch axis; the memory is present for a policy with a memory.
      names: Names of the arguments: "obs", and "mask" and "memory" if the policy takes them.
      arguments: Shapes of the arguments, with a symbolic batch and, for crowds, symbolic agents; the memory is a
        dictionary of its leaves by their paths.
      results: Shapes of the results.
      start: Memory of one agent at the start of an episode.
    """

    function: Callable[..., dict[str, Any]]
    names: tuple[str, ...]
    arguments: tuple[Any, ...]
    results: dict[str, Any]
    start: Any


def greedy_program(algo: Algorithm, params: Params) -> Program:
    """The greedy policy with its normalisation, for any number of observations at a time.

    Args:
      algo: Algorithm with the actor of the policy.
      params: Parameters for `algo.actor`, concrete.
    """
    actor, kind = algo.actor, kind_of_memory(algo)
    start = actor.initial_memory(params)
    shapes = _symbolic_arguments(algo, start)

    def function(*arguments: Any) -> dict[str, Any]:
        by_name = dict(zip(shapes, arguments, strict=True))
        mask = by_name.get("mask")
        # By name, because another process may not know the classes of the memory's pytree.
        leaves = [by_name[MEMORY][name] for name, _ in named(kind, start)]
        memory = jax.tree.unflatten(jax.tree.structure(start), leaves)
        scores, memory = actor.scores(params, memory, by_name["obs"], mask)
        action, _, memory = actor.choose(None, scores, memory, True, mask)
        if MEMORY not in by_name:
            return {ACTION: action, **scores}
        return {ACTION: action, **scores, NEXT_MEMORY: dict(named(kind, memory))}

    arguments = tuple(shapes.values())
    return Program(function, tuple(shapes), arguments, jax.eval_shape(function, *arguments), start)


def _symbolic_arguments(algo: Algorithm, start: PyTree) -> dict[str, Any]:
    """The shapes of the program's arguments by name."""
    env, env_params = algo.env, algo.env.default_params
    agents = check_abstractly(env)
    names = ["batch", *(f"agents_{axis}" if axis else "agents" for axis in range(len(agents)))]
    symbols = jax.export.symbolic_shape(", ".join(names))

    def batched(leaf: PyTree, num_axes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*symbols, *leaf.shape[num_axes:]), leaf.dtype)

    obs, mask = jax.eval_shape(functools.partial(first_observation, env), jax.random.key(0), env_params)
    shapes = {"obs": jax.tree.map(lambda leaf: batched(leaf, len(agents)), obs)}
    if mask is not None:
        shapes["mask"] = jax.tree.map(lambda leaf: batched(leaf, len(agents)), mask)
    if jax.tree.leaves(start):
        named_leaves = named(kind_of_memory(algo), start)
        shapes[MEMORY] = {name: batched(jnp.asarray(leaf), 0) for name, leaf in named_leaves}
        if len(shapes[MEMORY]) < len(jax.tree.leaves(start)):
            raise ResultError("The policy's memory cannot be named by its paths: a name in it has a dot.")
    return shapes


def kind_of_memory(algo: Algorithm) -> str:
    """Kind of the memory of jaxrl's own networks, the first part of the names of its leaves; empty for other memories.

    Earlier files have names without it.
    """
    kind = getattr(algo.config, "memory", "none") if algo.network is None else "none"
    return "" if kind == "none" else kind


def named(prefix: str, tree: PyTree) -> list[tuple[str, Any]]:
    """The leaves of a pytree by dotted paths below a name: `obs`, or `obs.own`, `obs.rays`."""
    return [(".".join(filter(None, (prefix, path))).rstrip("."), leaf) for path, leaf in leaves(tree)]


def named_parameters(params: Params) -> dict[str, np.ndarray]:
    """The arrays of the policy by their paths, such as `params.params.actor_0.kernel`.

    Raises:
      ResultError: Two arrays have the same path.
    """
    named_leaves = leaves(params)
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in named_leaves}
    if len(arrays) < len(named_leaves):
        raise ResultError("The policy's parameters cannot be named by their paths: a name in them has a dot.")
    return arrays


def spec_of(policy: TrainedPolicy, program: Program, file_format: str) -> dict[str, Any]:
    """The description of an artefact, as plain JSON.

    Inputs and outputs are in the order of the artefact; a size given by a word is variable, and sizes with
    the same word are equal. `memory` holds the initial memory of one agent for a policy with a memory, by the name
    of its input; the output to pass to the next call has the prefix `next_`.
    """
    algo = policy.algo
    try:
        origin = dict(algorithms.describe(algo))
    except (TypeError, ValueError) as error:
        origin = {"algorithm": None, UNKNOWN: str(error).rstrip("."), "name": algo.name}
    env_params = algo.env.default_params if policy.env_params is None else policy.env_params
    inputs = [pair for name, tree in zip(program.names, program.arguments, strict=True) for pair in named(name, tree)]
    path = f"{MEMORY}.{kind_of_memory(algo)}".rstrip(".")
    memory = {name: np.asarray(leaf).tolist() for name, leaf in named(path, program.start)}
    return to_json(
        {
            "format": file_format,
            "inputs": [_port(name, leaf) for name, leaf in inputs],
            "outputs": [_port(name, leaf) for name, leaf in named("", program.results)],
            **({"memory": memory} if memory else {}),
            "action_space": _space(algo.env.action_space(algo.env.default_params)),
            "observation_space": _space(algo.env.observation_space(algo.env.default_params)),
            "normalisation": _normalisation(policy.params),
            "setting": policy.setting,
            "seed": policy.seed,
            "env_steps": policy.env_steps,
            "training_env_steps": policy.training_env_steps,
            **origin,
            "env_params": {name: np.asarray(leaf).tolist() for name, leaf in leaves(env_params)},
            "versions": versions(),
        }
    )


def _port(name: str, leaf: PyTree) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in leaf.shape]
    return {"name": name, "shape": shape, "dtype": str(leaf.dtype)}


def _normalisation(params: Params) -> dict[str, str]:
    """The actor's parameters that are running statistics, and their use; empty without normalisation."""

    def is_statistics(node: PyTree) -> bool:
        return isinstance(node, RunningStatistics)

    statistics = [path for path, node in leaves(params, is_statistics) if is_statistics(node)]
    return {path: FORMULA for path in statistics if path != "critic_observations"}


def _space(space: Any) -> dict[str, Any]:
    """The space of one agent as plain values."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.Box):
        shape = tuple(int(size) for size in space.shape)
        low, high = _bound(space.low), _bound(space.high)
        return {"kind": "box", "shape": list(shape), "low": low, "high": high, "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [_space(part) for part in space.spaces]}
    if isinstance(space, spaces.Dict):
        parts: Mapping[str, Any] = space.spaces
        return {"kind": "dict", "spaces": {name: _space(part) for name, part in parts.items()}}
    return {"kind": type(space).__name__}


def _bound(bound: Any) -> Any:
    """One number if all are equal, otherwise an array."""
    array = np.asarray(bound)
    return array.flat[0].item() if array.size and np.all(array == array.flat[0]) else array.tolist()
