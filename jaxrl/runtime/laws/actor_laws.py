"""Laws of the actor of a policy: batches, memory, and independence of agents."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import agent_axes, check_action
from envs.checking import ContractError
from envs.errors import UserValueError
from envs.law_progress import Laws
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.action_probabilities import has_probabilities, probabilities
from jaxrl.learning.actor import check_memory, memories, scored
from jaxrl.learning.rollout import episode_ends, first_observation, remembered, reset_all, rollout
from jaxrl.pytrees import Mask, Memory, Observation, Policy, PyTree

# An agent acting alone and in a batch computes the same sums, possibly in another order.
ALONE_TOLERANCE = 1e-5
REPLAYED_ENVS, REPLAYED_STEPS = 3, 4

__all__ = ["check_actor"]


def check_actor(algo: Algorithm, key: jax.Array, policy: Policy, law: Laws) -> None:
    """Test the actor of an algorithm.

    Args:
      algo: Algorithm with the actor.
      key: Random key.
      policy: Policy of one run.
      law: Function that is called with the name of each law.

    Raises:
      ContractError: A law does not hold.
    """
    params = algo.env.default_params
    obs, mask = first_observation(algo.env, key, params)
    agents = agent_axes(algo.env.observation_space(params), obs)
    actor = algo.actor
    start = memories(actor.initial_memory(policy), agents)

    def one(key: jax.Array, greedy: jax.Array | bool) -> tuple[Any, Any]:
        scores, memory = scored(actor, policy, start, obs, mask)
        action, _, memory = actor.choose(actor.noise(key, agents), scores, memory, greedy, mask)
        return action, memory

    law("a memory keeps its types")
    check_memory(start, jax.eval_shape(one, key, False)[1])
    law("a batch acts as its elements do")
    act = jax.jit(jax.vmap(lambda key, greedy: one(key, greedy)[0], in_axes=(0, None)))
    keys = jax.random.split(key, 16)
    greedy = jax.tree.map(np.asarray, act(keys, True))
    _check_batch(algo, policy, obs, mask, start, jax.tree.map(lambda leaf: leaf[0], greedy))
    if any(np.any(leaf != leaf[:1]) for leaf in jax.tree.leaves(greedy)):
        raise ContractError(f"a greedy action must not depend on the key, got {greedy} for different keys")
    law("actions lie in their space")
    for actions in (greedy, act(keys, False)):
        try:
            check_action(algo.env.action_space(params), actions)
        except UserValueError as error:
            space = algo.env.action_space(params)
            raise ContractError(f"actor must choose an action of {space!r}, got {actions}") from error
    law("log-probabilities are of the actions")
    if actor.log_prob is not None:
        _check_log_prob(algo, key, policy, obs, mask, start, agents)
    law("each agent acts by itself")
    _check_replay(algo, key, policy, agents)


def _check_log_prob(
    algo: Algorithm,
    key: jax.Array,
    policy: Policy,
    obs: Observation,
    mask: Mask,
    start: PyTree,
    agents: tuple[int, ...],
) -> None:
    """Log-probabilities have a number for each agent, and probabilities of all discrete actions sum to 1."""
    actor, shares = algo.actor, has_probabilities(algo.env, algo.actor)

    @jax.jit
    def both(policy: Policy) -> tuple[jax.Array, Any]:
        assert actor.log_prob is not None
        scores, memory = actor.scores(policy, start, obs, mask)
        _, raw, _ = actor.choose(actor.noise(key, agents), scores, memory, False, mask)
        every = probabilities(algo.env, actor, scores, memory, mask) if shares else ()
        return actor.log_prob(scores, mask, raw), [jnp.sum(each, axis=-1) for each in jax.tree.leaves(every)]

    taken, sums = both(policy)
    if taken.shape != agents or np.any(np.isnan(taken)):
        raise ContractError(
            f"actor.log_prob must return a number for each agent, [{', '.join(map(str, agents))}], got {taken}"
        )
    for total in sums:
        if not np.allclose(total, 1.0, atol=ALONE_TOLERANCE, rtol=0):
            raise ContractError(f"actor.log_prob must be of probabilities that sum to 1 over all actions, got {total}")


def _check_replay(algo: Algorithm, key: jax.Array, policy: Policy, agents: tuple[int, ...]) -> None:
    """Replay a rollout, one agent at a time: actions and memories must be those of the rollout."""
    actor, env = algo.actor, algo.env
    # Episodes short enough that some end during the rollout.
    params = dataclasses.replace(env.default_params, max_steps_in_episode=jnp.int32(REPLAYED_STEPS // 2))
    reset_key, noise_key, env_key = jax.random.split(key, 3)

    @jax.jit
    def both(policy: Policy) -> tuple[Any, Any]:
        start = actor.initial_memory(policy)
        first = reset_all(env, reset_key, params, REPLAYED_ENVS, memory=memories(start, agents))
        noise = actor.noise(noise_key, (REPLAYED_STEPS, REPLAYED_ENVS, *agents))
        carry, steps, _ = rollout(env, params, actor, policy, env_key, first, noise, num_steps=REPLAYED_STEPS)

        def again(memory: Memory, inputs: PyTree) -> tuple[Any, Any]:
            obs, mask, noise, ended = inputs
            scores, memory = actor.scores(policy, memory, obs, mask)
            _, raw, memory = actor.choose(noise, scores, memory, False, mask)
            return remembered(memory, start, ended), raw

        def rows(leaf: jax.Array, axes: int = 1) -> jax.Array:
            """Reshape `[T, N, *A, ...]` to `[N * A, T, ...]`."""
            leaf = leaf.reshape(*leaf.shape[:axes], -1, *leaf.shape[axes + 1 + len(agents) :])
            return jnp.moveaxis(leaf, axes, 0)

        inputs = jax.tree.map(rows, (steps.obs, steps.mask, noise, episode_ends(steps)))
        alone = jax.lax.map(lambda inputs: jax.lax.scan(again, start, inputs), inputs)
        among = jax.tree.map(lambda leaf: rows(leaf, 0), carry.memory), jax.tree.map(rows, steps.raw_action)
        return alone, among

    (alone_memory, alone_raw), (memory, raw) = both(policy)
    for name, one, many in (("action", alone_raw, raw), ("memory", alone_memory, memory)):
        for (path, x), y in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(many), strict=True):
            if x.shape != y.shape or not np.allclose(x, y, ALONE_TOLERANCE, ALONE_TOLERANCE, equal_nan=True):
                raise ContractError(
                    f"actor must act for each agent by its own observations, noise and memory alone, but the "
                    f"{name}{jax.tree_util.keystr(path)} of a rollout differs when each agent is replayed alone"
                )


def _check_batch(algo: Algorithm, policy: Policy, obs: Observation, mask: Mask, start: PyTree, alone: PyTree) -> None:
    """A batch `[1, 3]` of the same observation chooses the action of a single one."""
    actor = algo.actor

    def several(leaf: PyTree) -> jax.Array:
        return jnp.broadcast_to(leaf, (1, 3, *jnp.shape(leaf)))

    obs, mask, before = jax.tree.map(several, (obs, mask, start))
    try:
        scores, memory = actor.scores(policy, before, obs, mask)
        actions, _, after = actor.choose(None, scores, memory, True, mask)
    except Exception as error:
        raise ContractError(
            f"actor must accept any leading axes, and no noise if greedy: with [1, 3] there is a "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error
    check_memory(before, after)
    for leaf, one in zip(jax.tree.leaves(actions), jax.tree.leaves(alone), strict=True):
        if leaf.shape != (1, 3, *one.shape) or not np.allclose(leaf, one, atol=ALONE_TOLERANCE, rtol=ALONE_TOLERANCE):
            raise ContractError(f"actor must choose the same in a batch as for one observation, got {leaf} for {one}")
