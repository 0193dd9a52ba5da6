"""A policy from an exported file, as a function of observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envs.errors import UserValueError
from envs.settings import methods_in_own_settings
from jaxrl.policies.export_program import ACTION, MEMORY, NEXT_MEMORY, named
from jaxrl.pytrees import Mask, Observation
from jaxrl.results.policy import NO_MEMORY

Run = Callable[[list[np.ndarray]], list[Any]]

__all__ = ["ExportedPolicy", "Run"]


@methods_in_own_settings("initial_memory", "respond")
class ExportedPolicy:
    """A greedy policy from a file: `policy(obs)` returns an action, `policy.respond(obs)` also its logits or mean.

    A policy with a memory takes and returns it:

        memory = policy.initial_memory()
        action, memory = policy(obs, memory=memory)
        memory = policy.remembered(memory, done)    # reset where an episode has ended

    Attributes:
      spec: Description recorded in the file: inputs, outputs, spaces, normalisation, memory, origin.
    """

    def __init__(
        self, spec: Mapping[str, Any], run: Run, again: tuple[Callable[..., ExportedPolicy], *tuple[Any, ...]]
    ) -> None:
        """Make a policy of an opened file.

        Args:
          spec: Description recorded in the file.
          run: Function from the inputs of one batch, in their order, to its outputs.
          again: Function that makes the policy anew from `spec` and the arguments behind it, for a copy by pickle.
        """
        self.spec = dict(spec)
        self._run = run
        self._again = again

    def __reduce__(self) -> tuple[Any, ...]:
        again, *arguments = self._again
        return again, (self.spec, *arguments)

    @property
    def remembers(self) -> bool:
        """Whether the policy has a memory, which every call takes and returns."""
        return MEMORY in self.spec

    def initial_memory(self, *axes: int) -> dict[str, np.ndarray]:
        """The memory at the start of an episode, by the names of its inputs.

        Args:
          *axes: Leading axes of the observations before those of one agent, including the agents of a crowd.
        """
        dtypes = {port["name"]: port["dtype"] for port in self.spec["inputs"]}
        first = {name: np.asarray(value, dtypes[name]) for name, value in self.spec.get(MEMORY, {}).items()}
        return {name: np.broadcast_to(leaf, (*axes, *leaf.shape)) for name, leaf in first.items()}

    def remembered(self, memory: Mapping[str, Any] | None, ended: Any) -> dict[str, np.ndarray]:
        """The memory for the next step: reset to its initial value where an agent's episode has ended.

        Args:
          memory: Memory that the last call returned; None for a policy without a memory.
          ended: Whether the episode has ended, bool with the leading axes of the memory, or the first of them; those of
            one agent have no axis.

        Raises:
          ValueError: The memory is not of this policy, or the axes of `ended` do not match it.
        """
        if memory is None and self.remembers:
            raise UserValueError(NO_MEMORY)
        memory, after, initial = memory or {}, {}, self.initial_memory()
        if set(memory) != set(initial):
            raise UserValueError(f"memory has {', '.join(memory)}; this policy takes {', '.join(initial)}.")
        for name, first in initial.items():
            leaf, over = np.asarray(memory[name]), np.asarray(ended)
            if leaf.ndim < first.ndim or leaf.shape[leaf.ndim - first.ndim :] != first.shape:
                raise UserValueError(
                    f"{name} has the shape {leaf.shape}; it takes {first.shape}, with any further leading axes."
                )
            axes = leaf.shape[: leaf.ndim - first.ndim]
            if over.shape != axes[: over.ndim]:
                raise UserValueError(
                    f"ended has the shape {over.shape}; with {name} of the shape {leaf.shape} it takes {axes}, or the "
                    "first of these axes."
                )
            after[name] = np.where(over.reshape((*over.shape, *[1] * (leaf.ndim - over.ndim))), first, leaf)
        return after

    def __call__(self, obs: Observation, mask: Mask = None, memory: Mapping[str, Any] | None = None) -> Any:
        """The action for one observation or a batch, see `respond`; `(action, memory)` for a policy with a memory."""
        response = self.respond(obs, mask, memory)
        return (response[ACTION], response[MEMORY]) if self.remembers else response[ACTION]

    def respond(self, obs: Observation, mask: Mask = None, memory: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The action and the numbers from which it is chosen.

        Args:
          obs: Observation, or observations with leading axes; those of a crowd have any number of agents.
          mask: Action mask from `env.action_mask`, with the same leading axes; None if the environment has none.
          memory: Memory returned by `initial_memory` or by the last call; None for a policy without a memory.

        Returns:
          `{"action": ..., "logits": ...}`, or "mean" and "std" for continuous actions, and "memory" for a policy with a
          memory: NumPy arrays with the same leading axes.

        Raises:
          ValueError: The observation, the mask or the memory does not match `spec["inputs"]`.
        """
        if self.remembers and memory is None:
            raise UserValueError(NO_MEMORY)
        remembered = [] if memory is None else sorted(memory.items(), key=lambda item: self._order(item[0]))
        inputs = [*named("obs", obs), *named("mask", mask), *remembered]
        expected = self.spec["inputs"]
        if [name for name, _ in inputs] != [port["name"] for port in expected]:
            takes = ", ".join(port["name"] for port in expected)
            what = "obs and mask give" if memory is None else "obs, mask and memory give"
            raise UserValueError(f"{what} {', '.join(name for name, _ in inputs)}; this policy takes {takes}.")
        axes = np.ndim(inputs[0][1]) - len(expected[0]["shape"]) + 1
        front = np.shape(inputs[0][1])[: max(axes, 0)]
        leaves, free = [], {}
        for (name, leaf), port in zip(inputs, expected, strict=True):
            array, takes = np.asarray(leaf), port["shape"][1:]
            shape = array.shape[len(front) :]
            free |= {size: size for size in takes if isinstance(size, int)}  # fixed sizes
            fits = array.shape[: len(front)] == front and len(shape) == len(takes)
            if not fits or any(free.setdefault(size, at) != at for size, at in zip(takes, shape, strict=True)):
                whole = f"({', '.join(map(str, takes))}{',' if len(takes) == 1 else ''})"
                raise UserValueError(
                    f"{name} has the shape {array.shape}; it takes {whole}, with any further leading axes."
                )
            leaves.append(array.astype(port["dtype"]).reshape(math.prod(front), *shape))
        outputs = [np.asarray(leaf) for leaf in self._run(leaves)]
        outputs = [leaf.reshape((*front, *leaf.shape[1:])) for leaf in outputs]
        by_name = {port["name"]: leaf for port, leaf in zip(self.spec["outputs"], outputs, strict=True)}
        parts = {name.partition(".")[2]: leaf for name, leaf in by_name.items() if name.startswith(f"{ACTION}.")}
        numbers = {name: leaf for name, leaf in by_name.items() if name.partition(".")[0] not in (ACTION, NEXT_MEMORY)}
        after = {name: by_name[f"next_{name}"] for name in self.spec.get(MEMORY, {})}
        action = _assembled(self.spec["action_space"], parts) if parts else by_name[ACTION]
        return {ACTION: action, **numbers, **({MEMORY: after} if after else {})}

    def _order(self, name: str) -> int:
        names = [port["name"] for port in self.spec["inputs"]]
        return names.index(name) if name in names else len(names)

    def __repr__(self) -> str:
        return f"ExportedPolicy({self.spec['format']}, {self.spec.get('algorithm') or self.spec.get('name')})"


def _assembled(space: Mapping[str, Any], leaves: Mapping[str, Any]) -> Any:
    """An action of several parts, as the described space has them, from leaves by their dotted paths."""
    if space["kind"] not in ("tuple", "dict"):
        return leaves[""]
    described = space["spaces"]
    parts = described if space["kind"] == "dict" else {str(i): part for i, part in enumerate(described)}
    action = {
        name: _assembled(part, {path[len(name) + 1 :]: leaf for path, leaf in leaves.items() if _below(path, name)})
        for name, part in parts.items()
    }
    return action if space["kind"] == "dict" else tuple(action.values())


def _below(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")
