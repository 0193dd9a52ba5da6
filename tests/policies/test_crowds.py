"""Spaces describe one agent: the treatment of leading axes by the laws and by PPO."""

from dataclasses import dataclass
from typing import Any

import agents
import jax
import jax.numpy as jnp
import pytest

import envs
from envs.base import spaces
from jaxrl.algorithms.ppo import PPOConfig, ppo


@dataclass(frozen=True)
class Unsorted(agents.Crowd):
    """A crowd whose observation space names its parts in an order that is not alphabetical."""

    def observation_space(self, params: Any = None) -> Any:
        return spaces.Dict({"total": spaces.Box(0.0, 1.0, ()), "both": spaces.Box(0.0, 1.0, (2,))})

    def _observe(self, state: agents.CrowdState) -> Any:
        both = super()._observe(state)
        return {"total": both[:, 1], "both": both}


@dataclass(frozen=True)
class SharedReward(agents.Crowd):
    """A crowd with a single common reward."""

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, jnp.sum(reward), terminated, {"metrics": info["metrics"]}


@dataclass(frozen=True)
class OneMaskForAll(agents.Crowd):
    """A crowd with one mask in place of one for each agent."""

    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.ones(3, bool)


@pytest.mark.fast_rows("dictionary")
@pytest.mark.parametrize("env", [agents.Crowd(2, masked=True), Unsorted(2)], ids=["array", "dictionary"])
def test_a_crowd_keeps_the_laws(env: agents.Crowd) -> None:
    envs.check(env, num_steps=16)


@pytest.mark.parametrize(
    ("env", "law"), [(SharedReward(), r"batch law: .*\(2,\)"), (OneMaskForAll(), r"type law: action_mask")]
)
def test_a_crowd_that_breaks_a_law_is_refused(env: agents.Crowd, law: str) -> None:
    with pytest.raises(envs.ContractError, match=law):
        envs.check(env)


@pytest.mark.parametrize("env", [agents.Crowd(3, masked=True), Unsorted(3)], ids=["array", "dictionary"])
def test_ppo_takes_the_axes_in_front_for_agents(env: agents.Crowd) -> None:
    algo = ppo(env, PPOConfig(num_envs=2, num_steps=5, num_minibatches=6, normalise_reward=True))
    params, key = env.default_params, jax.random.key(0)
    state = jax.eval_shape(algo.init, key, algo.hparams, params)
    assert state.rewards[1].shape == (2, 3)
    assert state.weights[0]["params"]["actor_0"]["kernel"].shape == (3 if isinstance(env, Unsorted) else 2, 64)
    after, metrics = jax.eval_shape(algo.step, key, jnp.int32(0), state, algo.hparams, params)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert all(metric.shape == () for metric in metrics.values())
    obs, mask = env.reset_env(key, params)[0], env.action_mask(env.reset_env(key, params)[1], params)
    policy = jax.eval_shape(algo.policy, state, algo.hparams)

    def act(policy: Any) -> Any:
        scores, memory = algo.actor.scores(policy, algo.actor.initial_memory(policy), obs, mask)
        return algo.actor.choose(algo.actor.noise(key, (3,)), scores, memory, False, mask)

    action, raw, memory = jax.eval_shape(act, policy)
    assert (action.shape, action.dtype) == (raw.shape, raw.dtype) == ((3,), jnp.int32)
    assert memory == ()
