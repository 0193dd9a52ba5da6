"""Policies with action masks take legal actions alone, by the rules of the games in NumPy."""

from typing import Any

import jax
import numpy as np
import pytest
from legal_actions import RULES, illegal_actions

import envs
import jaxrl


@pytest.mark.fast_rows("jumanji/Game2048-v1")
@pytest.mark.parametrize("game", RULES)
def test_the_masks_are_the_rules(game: str, key: jax.Array):
    env: Any = envs.make(game)
    params, (entry, rule) = env.default_params, RULES[game]

    def body(state: Any, key: jax.Array) -> Any:
        mask = env.action_mask(state, params)
        action = jax.random.categorical(key, jax.numpy.where(mask, 0.0, -np.inf))
        obs, state, *_ = env.step_env(key, state, action, params)
        return state, (obs[entry], env.action_mask(state, params))

    state = env.reset_env(key, params)[1]
    boards, masks = jax.jit(lambda state: jax.lax.scan(body, state, jax.random.split(key, 60)))(state)[1]
    legal = rule(np.asarray(boards))
    assert not legal.all()
    ongoing = legal.any(axis=1)
    assert ongoing.sum() > 20
    np.testing.assert_array_equal(np.asarray(masks)[ongoing], legal[ongoing])
    assert np.all(np.asarray(masks)[~ongoing])


@pytest.mark.slow
@pytest.mark.parametrize("game", RULES)
def test_a_policy_in_training_takes_legal_actions(game: str):
    algo = jaxrl.ppo(envs.make(game), jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(8,)))
    params = algo.env.default_params.replace(max_steps_in_episode=100)
    result = jaxrl.train(algo, env_steps=128, evals=1, eval_episodes=1, progress=False, env_params=params)
    illegal, none = illegal_actions(result.policy(seed=0), game, steps=1000, num_envs=10)
    assert illegal == 0 and none <= 10


@pytest.mark.slow
def test_100000_steps_of_a_preset_are_legal():
    """After a fifth of its training; tests/suites/legal_actions.py counts after all of it."""
    game = "jumanji/Game2048-v1"
    preset = jaxrl.preset("ppo", game)
    result = jaxrl.train(preset.algo, env_steps=preset.env_steps // 5, evals=1, eval_episodes=1, progress=False)
    assert illegal_actions(result.policy(seed=0), game)[0] == 0
