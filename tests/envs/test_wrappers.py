"""The remaining time in observations of every kind."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs import base, probes, rendering, wrappers
from envs.base import spaces
from envs.wrappers import time_feature
from jaxrl.learning.actor import memoryless
from jaxrl.learning.rollout import reset_all, rollout


@dataclass(frozen=True)
class DictCrowd(agents.Crowd):
    """A crowd whose observations are dictionaries."""

    def observation_space(self, params: Any = None) -> Any:
        return spaces.Dict({"total": spaces.Box(0.0, 1.0, ()), "both": spaces.Box(0.0, 1.0, (2,))})

    def _observe(self, state: agents.CrowdState) -> Any:
        both = super()._observe(state)
        return {"total": both[:, 1], "both": both}


@dataclass(frozen=True)
class TupleProbe(probes.OnlyTruncates):
    """A probe whose observations are pairs."""

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        obs, state = super().reset_env(key, params)
        return (obs, obs[0]), state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, *rest = super().step_env(key, state, action, params)
        return ((obs, obs[0]), *rest)

    def observation_space(self, params: Any) -> Any:
        return spaces.Tuple([super().observation_space(params), spaces.Box(0.0, 1.0, ())])


@dataclass(frozen=True)
class Timed(DictCrowd):
    """A crowd that shows its own remaining time."""

    def observation_space(self, params: Any = None) -> Any:
        return spaces.Dict({wrappers.REMAINING: spaces.Box(0.0, 1.0, ())})


KINDS = {
    "vector": envs.make("pendulum"),
    "vectors of a crowd": agents.Crowd(2, masked=True),
    "dictionaries of a crowd": DictCrowd(3),
    "tuple": TupleProbe(steps=3),
    "gymnax, vector": envs.make("gymnax/CartPole-v1"),
    "gymnax, matrix": envs.make("gymnax/DeepSea-bsuite", size=4),
}


@pytest.mark.fast_rows("tuple")
@pytest.mark.parametrize("env", KINDS.values(), ids=KINDS)
def test_the_laws_hold(env: base.Environment) -> None:
    envs.check(time_feature(env), num_steps=16)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gymnax/Breakout-MinAtar", "gymnax/MemoryChain-bsuite", "gymnax/FrozenLake-misc"])
def test_the_laws_hold_for_more_of_gymnax(name: str) -> None:
    envs.check(time_feature(envs.make(name)), num_steps=16)


def test_a_vector_has_the_time_behind() -> None:
    """Everything else is as in the inner environment, and the time falls from 1 to 0 in equal steps."""
    inner, key = envs.make("pendulum"), jax.random.key(3)
    env = time_feature(inner)
    params = inner.default_params.replace(max_steps_in_episode=8)
    obs, state = env.reset_env(key, params)
    inner_obs, inner_state = inner.reset_env(key, params)
    times = [float(obs[-1])]
    for _ in range(8):
        np.testing.assert_array_equal(obs[:-1], inner_obs)
        assert not env.is_truncated(state, params)
        obs, state, reward, terminated, _ = env.step_env(key, state, jnp.ones(1), params)
        inner_obs, inner_state, inner_reward, _, _ = inner.step_env(key, inner_state, jnp.ones(1), params)
        assert reward == inner_reward and not terminated
        times.append(float(obs[-1]))
    assert obs.shape == (4,) and obs.dtype == jnp.float32
    np.testing.assert_array_equal(times, 1 - np.arange(9) / 8)  # eighths are exact
    assert env.is_truncated(state, params)
    later = env.step_env(key, state, jnp.ones(1), params)[0]
    assert later[-1] == 0  # for agents that continue
    space = env.observation_space(params)
    np.testing.assert_array_equal(space.low, [-1, -1, -8, 0])
    np.testing.assert_array_equal(space.high, [1, 1, 8, 1])


def test_a_time_limit_is_traced() -> None:
    env = time_feature(envs.make("pendulum"))

    def time_of(limit: jax.Array) -> jax.Array:
        params = env.default_params.replace(max_steps_in_episode=limit)
        _, state = env.reset_env(jax.random.key(0), params)
        return env.step_env(jax.random.key(0), state, jnp.zeros(1), params)[0][-1]

    np.testing.assert_array_equal(jax.jit(jax.vmap(time_of))(jnp.array([2, 4, 16])), [1 / 2, 3 / 4, 15 / 16])


def test_every_agent_has_the_time() -> None:
    vectors, dictionaries = time_feature(agents.Crowd(2)), time_feature(DictCrowd(3))
    obs, _ = vectors.reset_env(jax.random.key(0), vectors.default_params)
    assert obs.shape == (2, 3)
    np.testing.assert_array_equal(obs[:, -1], [1, 1])
    obs, state = dictionaries.reset_env(jax.random.key(0), dictionaries.default_params)
    obs = dictionaries.step_env(jax.random.key(0), state, jnp.zeros(3, jnp.int32), dictionaries.default_params)[0]
    assert set(obs) == {"total", "both", "remaining_time"} and obs["both"].shape == (3, 2)
    np.testing.assert_array_equal(obs["remaining_time"], np.full((3, 1), np.float32(1 - 1 / 100)))


def test_other_observations_move_into_a_dictionary() -> None:
    for env in (envs.make("gymnax/DeepSea-bsuite", size=4), TupleProbe()):
        inner = env.reset_env(jax.random.key(1), env.default_params)[0]
        obs = time_feature(env).reset_env(jax.random.key(1), env.default_params)[0]
        assert set(obs) == {"observation", "remaining_time"}
        jax.tree.map(np.testing.assert_array_equal, obs["observation"], inner)


def test_attributes_of_the_inner_environment_are_kept() -> None:
    inner = agents.Crowd(2, masked=True)
    env = time_feature(inner)
    _, state = env.reset_env(jax.random.key(0), env.default_params)
    np.testing.assert_array_equal(
        env.action_mask(state, env.default_params), inner.action_mask(state, env.default_params)
    )
    assert env.metric_rules == inner.metric_rules and env.default_params == inner.default_params
    cartpole, twin = (time_feature(envs.make("cartpole")) for _ in range(2))
    assert cartpole.name == "time_feature(cartpole)" and cartpole.num_actions == 2
    assert cartpole == twin and hash(cartpole) == hash(twin) and cartpole != time_feature(inner)
    assert dataclasses.is_dataclass(cartpole)


def test_it_is_drawn_as_the_inner_environment() -> None:
    inner = envs.make("cartpole")
    _, state = inner.reset_env(jax.random.key(0), inner.default_params)
    picture = rendering.frame(time_feature(inner), state, inner.default_params)
    np.testing.assert_array_equal(picture, rendering.frame(inner, state, inner.default_params))


def test_a_rollout_restarts_the_time() -> None:
    env = time_feature(probes.OnlyTruncates(steps=4))

    actor = memoryless(lambda *_: {}, jax.random.uniform, lambda *_: (jnp.zeros(2, jnp.int32), None))
    start = reset_all(env, jax.random.key(0), env.default_params, 2)
    _, steps, _ = rollout(env, env.default_params, actor, None, jax.random.key(0), start, jnp.arange(8))
    np.testing.assert_array_equal(steps.obs[:, 0, -1], [1, 0.75, 0.5, 0.25] * 2)
    np.testing.assert_array_equal(steps.next_obs[:, 0, -1], [0.75, 0.5, 0.25, 0] * 2)


def test_ppo_trains_on_a_wrapped_environment() -> None:
    algo = jaxrl.ppo(time_feature(DictCrowd(2)))
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.hparams, algo.env.default_params)
    assert state.weights[0]["params"]["actor_0"]["kernel"].shape == (2 + 1 + 1, 64)
    assert jaxrl.ppo(time_feature(DictCrowd(2))) is algo


@pytest.mark.slow
def test_it_trains_evaluates_and_saves(tmp_path: Any) -> None:
    env = time_feature(DictCrowd(2))
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,)))
    result = jaxrl.train(
        algo, env_steps=32, seeds=2, evals=1, eval_episodes=4, progress=False, out=tmp_path / "run", block=2
    )
    assert result.metrics["return"].shape == (2, 1) and not result.failed
    again = jaxrl.load_result(tmp_path / "run", algo=algo)
    np.testing.assert_array_equal(again.metrics["return"], result.metrics["return"])


@pytest.mark.slow
def test_a_result_on_a_wrapped_environment_loads_without_the_algorithm(tmp_path: Any) -> None:
    env = envs.wrappers.time_feature(envs.make("cartpole"))
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,)))
    result = jaxrl.train(algo, env_steps=16, seeds=1, evals=1, eval_episodes=2, progress=False, out=tmp_path / "run")
    again = jaxrl.load_result(tmp_path / "run")
    assert again.algo is not None and again.algo.step is algo.step
    obs = jnp.ones(5)
    np.testing.assert_array_equal(again.policy(seed=0)(obs), result.policy(seed=0)(obs))


def test_unsupported_environments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"takes an environment, such as envs\.make\('cartpole'\), not 'cartpole'"):
        time_feature("cartpole")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"without the remaining time, got time_feature\(pendulum\)"):
        time_feature(time_feature(envs.make("pendulum")))
    with pytest.raises(ValueError, match="adds the key 'remaining_time', which observations of Timed have already"):
        time_feature(Timed(2))
