"""Actors with independent or correlated noise, of continuous and of discrete actions, and uniformly random actions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr

from envs.threefry import unrolled
from jaxrl.learning.action_heads import ActionHead
from jaxrl.learning.actor import Actor, Memory, Noise, Policy, Scores, choose_by, remembering
from jaxrl.pytrees import Mask, Observation

CORRELATION = "noise_correlation"  # entry of the scores

__all__ = [
    "CORRELATION",
    "Walk",
    "correlated",
    "gumbel_of",
    "network_memory",
    "noisy_actor",
    "persistent_actor",
    "uniform_actor",
    "uniform_discrete_actor",
]


class Walk(NamedTuple):
    """Memory of correlated noise.

    Attributes:
      noise: Noise of the previous step, float32 `[*B, n]`.
      begun: Whether there was a previous step in the episode, bool `[*B]`.
      network: Memory of the network, leaves `[*B, ...]`, () without one.
    """

    noise: jax.Array
    begun: jax.Array
    network: Memory = ()


def network_memory(memory: Memory) -> Memory:
    """Memory of the network alone, without that of correlated noise."""
    return memory.network if isinstance(memory, Walk) else memory


def correlated(walk: Walk, noise: jax.Array, correlation: jax.Array) -> Walk:
    """The next step of an Ornstein-Uhlenbeck process observed at whole steps, standard normal at every step.

    Args:
      walk: Previous noise, `[*B, n]`; the first step of an episode is `noise`.
      noise: Independent standard normal noise, `[*B, n]`.
      correlation: Correlation of two consecutive steps, in [0, 1], `[*B]`; `exp(-theta dt)` in the notation of the
        process.

    Source: Uhlenbeck and Ornstein (1930); Lillicrap et al. (2016), arXiv 1509.02971, for exploration.
    """
    chex.assert_equal_shape([walk.noise, noise], custom_message="walk, noise")
    chex.assert_equal_shape([walk.begun, correlation], custom_message="walk, correlation")
    share = jnp.where(walk.begun, correlation, 0.0)[..., None]
    noise = share * walk.noise + jnp.sqrt(1 - jnp.square(share)) * noise
    return walk._replace(noise=noise, begun=jnp.ones_like(walk.begun))


def noisy_actor(
    initial_memory: Callable[[Policy], Memory],
    scores: Callable[[Policy, Memory, Any, Any], tuple[Scores, Memory]],
    act: Callable[[jax.Array | None, Scores], jax.Array],
    head: ActionHead,
    with_memory: bool,
) -> Actor:
    """Actor of continuous actions with normal noise.

    Args:
      initial_memory: Function `Actor.initial_memory` of the network.
      scores: Function `Actor.scores` of the network; with correlated noise they contain `CORRELATION`, `[*B]`.
      act: Function `(noise [*B, n], scores) -> raw action [*B, n]` in [-1, 1]; the greedy action where noise is None.
      head: Action head of the environment's action space.
      with_memory: Whether noise is correlated within an episode, and the actor has a memory `Walk`.
    """

    def choose(noise: Noise, scores: Scores, greedy: jax.Array | bool, mask: Mask) -> tuple[Any, jax.Array]:
        del mask
        if isinstance(greedy, bool):
            raw = act(None if greedy else noise, scores)
        else:
            raw = jnp.where(greedy, act(None, scores), act(noise, scores))
        return head.to_env(raw), raw

    actor = remembering(initial_memory, scores, _normal(head.num_outputs), choose)
    return _walking(actor, head.num_outputs) if with_memory else actor


def persistent_actor(
    initial_memory: Callable[[Policy], Memory],
    scores: Callable[[Policy, Memory, Any, Any], tuple[Scores, Memory]],
    head: ActionHead,
) -> Actor:
    """Actor of discrete actions sampled with noise that is correlated within an episode.

    An action is the one with the largest sum of logit and Gumbel noise, which is at the quantiles of correlated normal
    noise. The noise of a single step is distributed as independent Gumbel noise. Policies with much entropy tend to
    repeat their actions, which explores further than independent actions. Since an observation depends on earlier
    noise, the actions that follow it need not have the probabilities of the policy.

    Args:
      initial_memory: Function `Actor.initial_memory` of the network.
      scores: Function `Actor.scores` of the network: those of the head and `CORRELATION`, `[*B]`.
      head: Action head of the environment's action space.
    """
    by_head = choose_by(head)

    def choose(noise: Noise, scores: Scores, greedy: jax.Array | bool, mask: Mask) -> tuple[Any, Any]:
        return by_head(None if noise is None else gumbel_of(noise), scores, greedy, mask)

    actor = remembering(initial_memory, scores, _normal(head.num_outputs), choose, head.log_prob)
    return _walking(actor, head.num_outputs)


def gumbel_of(noise: jax.Array) -> jax.Array:
    """Standard Gumbel noise at the quantiles of standard normal noise, `[...]`."""
    upper = jnp.log1p(-ndtr(-jnp.maximum(noise, 0.0)))  # accurate where the probability is close to 1
    return -jnp.log(-jnp.where(noise > 0, upper, log_ndtr(jnp.minimum(noise, 0.0))))


def _normal(size: int) -> Callable[[jax.Array, tuple[int, ...]], jax.Array]:
    """Function `Actor.noise` of standard normal noise, `[*B, size]`."""
    return lambda key, shape: jax.random.normal(unrolled(key), (*shape, size))


def _walking(actor: Actor, size: int) -> Actor:
    """Actor with correlated noise, its memory `Walk`, from one whose noise is `_normal(size)`."""

    def initial_memory(policy: Policy) -> Walk:
        return Walk(jnp.zeros(size, jnp.float32), jnp.zeros((), bool), actor.initial_memory(policy))

    def scores_with_memory(policy: Policy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        scores, network = actor.scores(policy, memory.network, obs, mask)
        return scores, memory._replace(network=network)

    def choose(noise: Noise, scores: Scores, memory: Memory, greedy: jax.Array | bool, mask: Mask) -> Any:
        if noise is not None:
            memory = correlated(memory, noise, scores[CORRELATION])
        action, raw, _ = actor.choose(None if noise is None else memory.noise, scores, memory.network, greedy, mask)
        return action, raw, memory

    return Actor(initial_memory, scores_with_memory, actor.noise, choose, actor.log_prob)


def uniform_actor(actor: Actor, head: ActionHead) -> Actor:
    """Actor of actions distributed uniformly between the bounds, with the memory of another actor.

    The memory of correlated noise stays as it is, and that of a network sees the observations.

    Args:
      actor: Actor to which the memory belongs.
      head: Action head of the environment's action space.
    """

    def scores(policy: Policy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        if jax.tree.leaves(network_memory(memory)):
            return {}, actor.scores(policy, memory, obs, mask)[1]
        return {}, memory

    def noise(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.uniform(unrolled(key), (*shape, head.num_outputs), minval=-1.0, maxval=1.0)

    def choose(noise: Noise, scores: Scores, memory: Memory, greedy: jax.Array | bool, mask: Mask) -> Any:
        del scores, greedy, mask
        return head.to_env(noise), noise, memory

    return Actor(actor.initial_memory, scores, noise, choose)


def uniform_discrete_actor(actor: Actor) -> Actor:
    """Actor of discrete actions distributed uniformly over those allowed, with the noise and memory of another actor.

    Args:
      actor: Actor whose scores have the entry "logits".
    """

    def scores(policy: Policy, memory: Memory, obs: Observation, mask: Mask) -> tuple[Scores, Memory]:
        scores, memory = actor.scores(policy, memory, obs, mask)
        return scores | {"logits": jnp.zeros_like(scores["logits"])}, memory

    return actor._replace(scores=scores)
