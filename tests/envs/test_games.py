"""Rewards of the climbing game match its table, and its optimum is the best of all joint plays."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.games.climbing import ClimbingGame


def payoff(penalty: float) -> np.ndarray:
    return np.array([[11, penalty, 0], [penalty, 7, 6], [0, 0, 5]])


def reward_of(actions: Any, penalty: float) -> float:
    """The mean over ordered pairs of agents, in float64."""
    table = payoff(penalty)
    return float(np.mean([table[a, b] for a, b in itertools.permutations(actions, 2)]))


@pytest.mark.slow_rows("2")
@pytest.mark.parametrize("num_agents", [2, 3])
def test_every_joint_action_pays_the_mean_of_its_pairs(num_agents: int) -> None:
    env = ClimbingGame(num_agents)
    params = dataclasses.replace(env.default_params, penalty=-7.5)
    _, state = env.reset_env(jax.random.key(0), params)
    joint = np.array(list(itertools.product(range(3), repeat=num_agents)))
    step = jax.jit(jax.vmap(lambda action: env.step_env(jax.random.key(0), state, action, params)))
    obs, after, reward, terminated, info = step(jnp.asarray(joint))
    for row, actions in enumerate(joint):
        # A sum of at most six products of small numbers, over 2 or 6: one rounding.
        np.testing.assert_allclose(reward[row], np.full(num_agents, reward_of(actions, -7.5)), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(obs[row, :, :3], np.eye(3)[actions])
        assert info["metrics"]["coordinated"][row] == (not np.any(actions))
    np.testing.assert_allclose(obs[..., 3], 0.9, rtol=1e-6)
    assert not np.any(terminated) and reward.dtype == jnp.float32

    seen = jax.vmap(env.global_observation, (0, None))(after, params)
    shares = np.stack([np.mean(joint == action, axis=1) for action in range(3)], axis=1)
    np.testing.assert_allclose(seen[:, :3], shares, rtol=1e-6)
    turned = jax.vmap(env.global_observation, (0, None))(after.replace(last=after.last[:, ::-1]), params)
    np.testing.assert_array_equal(seen, turned)  # of two or three halves or thirds, in either order


@pytest.mark.parametrize(("penalty", "limit"), [(-30.0, 10), (-30.0, 2), (40.0, 10)])
def test_the_optimum_is_the_best_of_all_joint_plays(penalty: float, limit: int) -> None:
    """A penalty above 11 is best if two of three agents disagree."""
    for num_agents, gamma in itertools.product((2, 3), (1.0, 0.5)):
        env = ClimbingGame(num_agents)
        params = dataclasses.replace(env.default_params, penalty=penalty, num_steps=3, max_steps_in_episode=limit)
        pays = {reward_of(actions, penalty) for actions in itertools.product(range(3), repeat=num_agents)}
        plays = itertools.product(pays, repeat=min(3, limit))
        best = max(sum(gamma**time * pay for time, pay in enumerate(play)) for play in plays)
        assert env.optimum(params, gamma) == pytest.approx(best, rel=1e-12)
    assert envs.make("game/climbing").optimum() == 110


def test_it_is_played_so_many_times() -> None:
    env = ClimbingGame(3)
    params = dataclasses.replace(env.default_params, num_steps=2)
    _, state = env.reset_env(jax.random.key(0), params)
    ends = []
    for _ in range(2):
        _, state, _, terminated, _ = env.step_env(jax.random.key(0), state, jnp.zeros(3, jnp.int32), params)
        ends.append(bool(terminated))
    assert ends == [False, True]
    with pytest.raises(ValueError, match="num_agents must be a whole number of at least 2, got 1"):
        ClimbingGame(1)
    with pytest.raises(ValueError, match=r"env\.num_steps must be at least 1"):
        env.check_params(dataclasses.replace(params, num_steps=0))
