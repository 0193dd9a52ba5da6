"""The laws of memory: replays equal stepping, an end clears only that agent's memory, broken actors raise errors."""

from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from remembering import NUM_ENVS, Policy, Repeat, State, by_hand, correlated, echo, first_seen, played, with_actor

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import Actor, memories
from jaxrl.learning.evaluation import evaluate
from jaxrl.learning.rollout import episode_ends, remembered, reset_all, rollout
from jaxrl.policies.playing import player_of
from jaxrl.policies.rendering import _play
from jaxrl.results.policy import TrainedPolicy

POLICY = Policy(jnp.float32(1e4))


def counting() -> Actor:
    """The memory is the number of the agent's own steps, and so is the action, 2 at most."""

    def scores(policy: Any, memory: jax.Array, obs: jax.Array, mask: Any) -> Any:
        del mask
        return {"steps": jnp.minimum(memory, 2) + 0 * policy.strength.astype(jnp.int32)}, memory + 1

    def choose(noise: Any, scores: Any, memory: jax.Array, greedy: Any, mask: Any) -> Any:
        del noise, greedy, mask
        return scores["steps"], scores["steps"], memory

    return Actor(lambda policy: jnp.int32(0), scores, lambda key, shape: jnp.zeros(shape), choose)


def idle(env: envs.Environment, actor: Actor) -> Algorithm:
    """An algorithm that does nothing between its evaluations."""
    return by_hand(env, actor)._replace(
        init=lambda key, hparams, env_params: jnp.zeros(()),
        step=lambda key, iteration, state, hparams, env_params: (state, {"idle": jnp.float32(0)}),
        env_steps_per_iteration=1,
        metric_rules={},
    )


@pytest.mark.slow_rows("terminated")
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_replaying_a_trajectory_gives_the_memory_that_was_stepped(ends: Any, key: jax.Array) -> None:
    env, steps, num_envs = Repeat(ends), 13, 4
    actor, params = echo(env).actor, env.default_params
    start = actor.initial_memory(POLICY)
    first = reset_all(env, key, params, num_envs, memory=start)
    after, trajectory = played(env, actor, POLICY, key, first, params, steps)
    ended = episode_ends(trajectory)
    assert int(ended.sum()) == num_envs * (steps // 5)
    assert bool(trajectory.truncated.any()) == (ends == "truncated") != bool(trajectory.terminated.any())

    memory = memories(start, (num_envs,))
    for t in range(steps):
        obs, raw = trajectory.obs[t], trajectory.raw_action[t]
        scores, memory = actor.scores(POLICY, memory, obs, None)
        action, _, memory = actor.choose(None, scores, memory, True, None)
        np.testing.assert_array_equal(action, raw)
        memory = remembered(memory, start, ended[t])
    jax.tree.map(np.testing.assert_array_equal, memory, after.memory)
    np.testing.assert_array_equal(after.memory["seen"], steps % 5)


@pytest.mark.slow
def test_terminations_and_time_limits_reset_alike(key: jax.Array) -> None:
    carries = []
    for ends in ("terminated", "truncated"):
        env = Repeat(ends)
        actor = echo(env).actor
        first = reset_all(env, key, env.default_params, 4, memory=actor.initial_memory(POLICY))
        # The default number of fresh states depends on the time limit.
        carries.append(played(env, actor, POLICY, key, first, env.default_params, reset_pool=3)[0])
    jax.tree.map(np.testing.assert_array_equal, *carries)


@pytest.mark.slow_rows("3", "6")
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 6])
def test_the_end_of_one_agent_does_not_touch_the_memory_of_another_in_a_rollout(steps: int, key: jax.Array) -> None:
    env, num_envs = agents.Crowd(3), 2  # agent i has i + 2 steps, and the episode has 4
    actor, params = counting(), env.default_params
    first = reset_all(env, key, params, num_envs, memory=memories(actor.initial_memory(POLICY), (3,)))
    after, trajectory, _ = rollout(env, params, actor, POLICY, key, first, actor.noise(key, (steps, num_envs, 3)))
    own_steps = np.array([2, 3, 4])
    at = (np.arange(steps) % 4)[:, None]  # the step within the episode
    known = np.where(at < own_steps, at, 0)  # an agent that has ended is at the start of its next episode at every step
    np.testing.assert_array_equal(trajectory.raw_action[:, 0], np.minimum(known, 2))
    np.testing.assert_array_equal(trajectory.raw_action[:, 1], np.minimum(known, 2))
    left = np.where(steps % 4 < own_steps, steps % 4, 0)
    np.testing.assert_array_equal(after.memory, np.broadcast_to(left, (num_envs, 3)))


@pytest.mark.slow
def test_the_end_of_one_agent_does_not_touch_the_memory_of_another_elsewhere(key: jax.Array) -> None:
    env = agents.Crowd(3)
    actor, params = counting(), env.default_params
    # Actions 0, 1, 2, 2 while they act: sums of 1, 3 and 5, which pay 1, 2 and 3 each.
    metrics = evaluate(env, params, actor, POLICY, key, 2, None)
    for suffix in ("", "_sampled"):
        assert float(metrics[f"return{suffix}"]) == pytest.approx((1 + 6 + 15) / 3)
        assert float(metrics[f"total{suffix}"]) == 3
    policy = TrainedPolicy(idle(env, actor), POLICY)
    states = list(_play(env, player_of(env, policy), params, 8, 0))
    np.testing.assert_array_equal(states[4].total, [1, 3, 5])
    np.testing.assert_array_equal(states[8].total, [1, 3, 5])
    kept = policy.remembered(jnp.array([2, 2, 2]), jnp.array([True, False, False]))
    np.testing.assert_array_equal(kept, [0, 2, 2])
    np.testing.assert_array_equal(policy.remembered(jnp.array([2, 2, 2]), jnp.array(True)), 0)


@pytest.mark.slow
def test_noise_continues_in_the_memory_until_the_episode_ends(key: jax.Array) -> None:
    env, num_envs, steps = Repeat(), 3, 13
    actor, params = correlated(env), env.default_params
    first = reset_all(env, key, params, num_envs, memory=actor.initial_memory(None))
    noise_key, _ = jax.random.split(key)
    after, trajectory = played(env, actor, None, key, first, params, steps)
    drawn = np.asarray(actor.noise(noise_key, (steps, num_envs)), np.float64)
    level = np.zeros(num_envs)
    for t in range(steps):
        level = 0.9 * level + drawn[t]
        np.testing.assert_allclose(trajectory.raw_action[t], level, atol=1e-6)
        if t % 5 == 4:
            level[:] = 0
    np.testing.assert_allclose(after.memory, level, atol=1e-6)
    policy = TrainedPolicy(idle(env, actor), jnp.zeros(()))
    memory = policy.initial_memory(2)
    for t in range(3):  # and in a user's loop, as long as actions are sampled
        _, next_memory = policy(jnp.zeros((2, 4)), key=jax.random.key(t), greedy=False, memory=memory)
        assert len({*np.asarray(next_memory).tolist(), *np.asarray(memory).tolist()} - {0.0}) == (2 if t == 0 else 4)
        memory = next_memory
    np.testing.assert_array_equal(policy(jnp.zeros((2, 4)), memory=memory)[1], memory)


@pytest.mark.slow
def test_an_actor_of_several_agents_with_a_memory_keeps_the_laws() -> None:
    jaxrl.check(idle(agents.Crowd(3), counting()))


def broken(change: str) -> Algorithm:
    env = Repeat()
    algo = echo(env)
    actor = algo.actor

    def scores(policy: Any, memory: Any, obs: jax.Array, mask: Any) -> Any:
        numbers, after = actor.scores(policy, memory, obs, mask)
        if change == "mixes memories":
            after["first"] = jnp.broadcast_to(after["first"].reshape(-1, 4).mean(0), after["first"].shape)
        if change == "reads others":
            numbers = {"logits": numbers["logits"].reshape(-1, 4)[:1].reshape((1,) * (obs.ndim - 1) + (4,)) + 0 * obs}
        if change == "other dtype":
            after["seen"] = after["seen"].astype(jnp.float32)
        if change == "other shape":
            after["first"] = after["first"][..., :2]
        return numbers if change == "scores forget" else (numbers, after)

    def choose(noise: Any, scores: Any, memory: Any, greedy: Any, mask: Any) -> Any:
        action, raw, memory = actor.choose(noise, scores, memory, greedy, mask)
        if change == "choice forgets":
            return action, raw, ()
        return action, raw, {"seen": memory["seen"]} if noise is None and change == "forgets greedily" else memory

    def noise(key: jax.Array, shape: tuple[int, ...]) -> Any:
        return actor.noise(key, shape)

    return with_actor(algo, scores=scores, choose=choose, noise=noise)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "mixes memories",
            r"actor must act for each agent by its own .* but the (action|memory)",
        ),
        ("reads others", r"actor must act for each agent by its own .* but the action of a rollout differs"),
        ("other dtype", r"memory like its initial_memory: memory\['seen'\] was int32\[3?\] and became float32\[3?\]"),
        (
            "other shape",
            r"memory like its initial_memory: memory\['first'\] was float32\[(3, )?4\] and became float32\[(3, )?2\]",
        ),
        ("forgets greedily", r"actor must return a memory with the structure of its initial_memory"),
        ("scores forget", r"^actor\.scores must return a pair, the scores and the memory, got \{'logits': float32"),
        (
            "choice forgets",
            r"^actor must return a memory with the structure of its initial_memory: \{'first'.* became \(\)",
        ),
    ],
)
def test_a_broken_actor_is_refused(change: str, sentence: str) -> None:
    with pytest.raises(envs.ContractError, match=sentence):
        jaxrl.check(broken(change))
    if change in ("other dtype", "other shape", "scores forget", "choice forgets"):  # visible without a step
        with pytest.raises(envs.ContractError, match=sentence):
            jaxrl.train(broken(change), env_steps=39, evals=1, eval_episodes=1, progress=False)


def test_a_state_without_the_memories_of_its_actor_is_refused() -> None:
    algo = echo(Repeat())

    def init(key: jax.Array, hparams: Any, env_params: Any) -> State:
        return State(reset_all(algo.env, key, env_params, NUM_ENVS))

    with pytest.raises(envs.ContractError, match=r"^carry must have the memories of its actor, .* got \(\); see"):
        jaxrl.train(algo._replace(init=init), env_steps=39, evals=1, eval_episodes=1, progress=False)


@pytest.mark.slow
def test_a_memory_goes_back_to_the_start_that_the_policy_says(key: jax.Array) -> None:
    env = Repeat()
    actor = first_seen(env, lambda first, obs: first)
    actor = actor._replace(initial_memory=lambda policy: {"first": jnp.full(4, policy.strength), "seen": jnp.int32(7)})
    start = actor.initial_memory(POLICY)
    first = reset_all(env, key, env.default_params, 2, memory=start)
    after, _ = played(env, actor, POLICY, key, first, env.default_params, 10)
    jax.tree.map(np.testing.assert_array_equal, after.memory, memories(start, (2,)))
    policy = TrainedPolicy(idle(env, actor), POLICY)
    jax.tree.map(np.testing.assert_array_equal, policy.initial_memory(2), memories(start, (2,)))
