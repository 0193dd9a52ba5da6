"""The stated best returns of gymnax's environments: a hand-written policy attains each."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.gymnax_environment import GymnaxEnvironment, environment_ids

EPISODES = 512


def balance(obs: jax.Array, state: Any) -> jax.Array:
    return (obs @ jnp.array([0.1, 0.5, 2.0, 1.0]) > 0).astype(jnp.int32)


def catch(obs: jax.Array, state: Any) -> jax.Array:
    return 1 + jnp.sign(state.ball_x - state.paddle_x)


def right(obs: jax.Array, state: Any) -> jax.Array:
    return state.action_mapping[state.row, state.column]


def recall(obs: jax.Array, state: Any) -> jax.Array:
    return state.context[state.query]


def umbrella(obs: jax.Array, state: Any) -> jax.Array:
    return state.need_umbrella


def first(obs: jax.Array, state: Any) -> jax.Array:
    return jnp.int32(0)


# By name: a policy that attains the best return, the steps of an episode, and the standard deviation of its return.
POLICIES: dict[str, tuple[Callable[..., jax.Array], int, float]] = {
    "CartPole-v1": (balance, 500, 0.0),
    "Catch-bsuite": (catch, 9, 0.0),
    "DeepSea-bsuite": (right, 8, 0.0),
    "MemoryChain-bsuite": (recall, 6, 0.0),
    "UmbrellaChain-bsuite": (umbrella, 10, 3.0),  # nine rewards of -1 or 1
    "DiscountingChain-bsuite": (first, 100, 0.0),
    "SimpleBandit-bsuite": (first, 1, np.sqrt(0.1)),  # the arms pay 0, 0.1, ..., 1
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name != "Catch-bsuite" else []) for name in POLICIES]
)
def test_a_policy_attains_the_optimum(name: str) -> None:
    env = envs.make(f"gymnax/{name}")
    params, (policy, steps, deviation) = env.default_params, POLICIES[name]

    @jax.jit
    @jax.vmap
    def play(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, key: jax.Array) -> Any:
            obs, state, alive = carry
            action = jnp.asarray(policy(obs, state), jnp.int32)
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            ended = terminated | env.is_truncated(state, params)
            return (obs, state, alive & ~ended), jnp.where(alive, reward, 0.0)

        reset_key, step_key = jax.random.split(key)
        start = (*env.reset_env(reset_key, params), jnp.bool_(True))
        (_, _, alive), rewards = jax.lax.scan(step, start, jax.random.split(step_key, steps))
        return jnp.sum(rewards), alive

    returns, alive = play(jax.random.split(jax.random.key(0), EPISODES))
    assert not np.any(alive)
    best = env.optimum()
    assert best is not None
    if deviation:  # five standard errors of the mean
        assert abs(np.mean(returns) - best) < 5 * deviation / np.sqrt(EPISODES)
    else:  # sums of at most 500 numbers of at most 1
        np.testing.assert_allclose(returns, best, rtol=500 * float(np.finfo(np.float32).eps))


def test_an_optimum_is_stated_for_the_defaults_alone() -> None:
    assert {name for name in environment_ids() if GymnaxEnvironment(name).optimum() is not None} == set(POLICIES)
    cartpole = envs.make("gymnax/CartPole-v1")
    assert cartpole.optimum(cartpole.default_params) == 500
    assert cartpole.optimum(cartpole.default_params.replace(gravity=1.0)) is None
    assert cartpole.optimum(discount=0.9) is None
    assert envs.make("gymnax/Catch-bsuite", rows=3).optimum() is None
