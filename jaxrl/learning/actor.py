"""Actors: the memory of a policy, its scores of actions, and the choice of an action."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from envs.abstract_checking import ContractError
from envs.arguments import described
from envs.threefry import unrolled
from jaxrl.learning.action_heads import ActionHead, Scores
from jaxrl.pytrees import Mask, Memory, Observation, Policy

Noise = Any

__all__ = [
    "Actor",
    "Memory",
    "Noise",
    "Policy",
    "Scores",
    "check_memory",
    "choose_by",
    "head_actor",
    "memories",
    "memoryless",
    "recurrent_actor",
    "remembering",
    "scored",
]


class Actor(NamedTuple):
    """Functions by which a policy acts, used by rollouts, evaluation, films, export and checks alike.

    The policy is that of one run. Observations, masks, scores, noise, actions and memories have any leading axes
    `[*B]`, such as environments and agents, which act independently.

    Attributes:
      initial_memory: Function `(policy) -> memory` of one agent at the start of an episode, a pytree of arrays; `()`
        for a policy without memory. Only `learning.rollout` resets a memory to it, where that agent's episode ended.
      scores: Function `(policy, memory, obs, mask) -> (scores, memory)`, the numbers by which actions are chosen,
        `{name: [*B, ...]}`: logits, mean and standard deviation, or action values.
      noise: Function `(key, shape) -> noise`, leaves `[*shape, ...]`, the random input of `choose`; drawn in bulk.
      choose: Function `(noise, scores, memory, greedy, mask) -> (action, raw, memory)`. `greedy` is a bool, or a traced
        bool `[]`; if it is True, the most likely action is chosen and noise may be None. The environment takes
        `action`, a loss scores `raw`.
      log_prob: Function `(scores, mask, raw) -> [*B]`, the log-probability of a sampled action, for continuous actions
        the log-density of `raw`; noise that is correlated over steps is taken as that of a single step. None where no
        such number exists.
    """

    initial_memory: Callable[[Policy], Memory]
    scores: Callable[[Policy, Memory, Any, Any], tuple[Scores, Memory]]
    noise: Callable[[jax.Array, tuple[int, ...]], Noise]
    choose: Callable[[Noise, Scores, Memory, Any, Any], tuple[Any, Any, Memory]]
    log_prob: Callable[[Scores, Any, Any], jax.Array] | None = None


def memoryless(
    scores: Callable[[Policy, Any, Any], Scores],
    noise: Callable[[jax.Array, tuple[int, ...]], Noise],
    choose: Callable[[Noise, Scores, Any, Any], tuple[Any, Any]],
    log_prob: Callable[[Scores, Any, Any], jax.Array] | None = None,
) -> Actor:
    """Actor of a policy without memory.

    Args:
      scores: Function `(policy, obs, mask) -> scores`.
      noise: Function `Actor.noise`.
      choose: Function `(noise, scores, greedy, mask) -> (action, raw)`.
      log_prob: Function `Actor.log_prob`.
    """

    def scores_and_memory(policy: Policy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        return scores(policy, obs, mask), memory

    return remembering(lambda policy: (), scores_and_memory, noise, choose, log_prob)


def remembering(
    initial_memory: Callable[[Policy], Memory],
    scores: Callable[[Policy, Memory, Any, Any], tuple[Scores, Memory]],
    noise: Callable[[jax.Array, tuple[int, ...]], Noise],
    choose: Callable[[Noise, Scores, Any, Any], tuple[Any, Any]],
    log_prob: Callable[[Scores, Any, Any], jax.Array] | None = None,
) -> Actor:
    """Actor whose scores alone depend on the memory and change it.

    Args:
      initial_memory: Function `Actor.initial_memory`.
      scores: Function `Actor.scores`.
      noise: Function `Actor.noise`.
      choose: Function `(noise, scores, greedy, mask) -> (action, raw)`.
      log_prob: Function `Actor.log_prob`.
    """

    def choose_and_keep(noise: Noise, scores: Scores, memory: Memory, greedy: jax.Array | bool, mask: Mask) -> Any:
        return *choose(noise, scores, greedy, mask), memory

    return Actor(initial_memory, scores, noise, choose_and_keep, log_prob)


def head_actor(scores: Callable[[Policy, Any, Any], Scores], head: ActionHead) -> Actor:
    """Actor of a policy without memory that acts by an action head.

    Args:
      scores: Function `(policy, obs, mask) -> scores`, those of the head.
      head: Action head of the environment's action space.
    """
    return memoryless(scores, lambda key, shape: head.noise(unrolled(key), shape), choose_by(head), head.log_prob)


def recurrent_actor(
    initial_memory: Callable[[Policy], Memory],
    scores: Callable[[Policy, Memory, Any, Any], tuple[Scores, Memory]],
    head: ActionHead,
) -> Actor:
    """Actor of a policy with a recurrent network that acts by an action head.

    Args:
      initial_memory: Function `Actor.initial_memory`.
      scores: Function `Actor.scores`, with the scores of the head.
      head: Action head of the environment's action space.
    """

    def noise(key: jax.Array, shape: tuple[int, ...]) -> Noise:
        return head.noise(unrolled(key), shape)

    return remembering(initial_memory, scores, noise, choose_by(head), head.log_prob)


def choose_by(head: ActionHead) -> Callable[[Noise, Scores, Any, Any], tuple[Any, Any]]:
    """Choice of actions by an action head, `(noise, scores, greedy, mask) -> (action, raw)`."""

    def choose(noise: Noise, scores: Scores, greedy: jax.Array | bool, mask: Mask) -> tuple[Any, Any]:
        if isinstance(greedy, bool):
            raw = head.mode(scores, mask) if greedy else head.sample(scores, mask, noise)
        else:
            raw = jnp.where(greedy, head.mode(scores, mask), head.sample(scores, mask, noise))
        return head.to_env(raw), raw

    return choose


def memories(initial: Memory, shape: tuple[int, ...]) -> Memory:
    """Memories at the start of an episode, leaves `[*shape, ...]`, from that of one agent, leaves `[...]`."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *jnp.shape(leaf))), initial)


def scored(actor: Actor, policy: Policy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
    """Result of `actor.scores`.

    Raises:
      ContractError: The result is not a pair.
    """
    result = actor.scores(policy, memory, obs, mask)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ContractError(f"actor.scores must return a pair, the scores and the memory, got {described(result)}")
    return result


def check_memory(before: Memory, after: Memory) -> None:
    """Reject an actor whose memory after a step differs in structure, shapes or types from the memory before it.

    Args:
      before, after: Memories, leaves `[*B, ...]`.

    Raises:
      ContractError: The memories differ in structure, shapes or types.
    """
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise ContractError(
            "actor must return a memory with the structure of its initial_memory: "
            f"{described(before)} became {described(after)}"
        )
    for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ContractError(
                f"actor must return a memory like its initial_memory: memory{jax.tree_util.keystr(path)} was "
                f"{old.dtype}{list(old.shape)} and became {new.dtype}{list(new.shape)}"
            )
