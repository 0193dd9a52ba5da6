"""Evolution in float64: fitness of every member under any discount, and generations of the strategy "open-es"."""

import dataclasses
from typing import Any

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit
from recorded_env import RecordedEnv, Walk

import jaxrl

GENERATIONS, MEMBERS, EPISODES = 3, 6, 2
STD, LR = 0.5, 0.1
GAMMA, K = 0.9, 0.5  # of the discounts "exp" and "hyperbolic"
CASES: dict[str, tuple[RecordedEnv, bool]] = {
    "exponential": (RecordedEnv(), True),
    "hyperbolic, of a crowd": (RecordedEnv(num_agents=2), False),
    "continuous actions": (RecordedEnv(discrete=False), False),
}


def actions(params: Any, walk: Walk) -> Any:
    """Greedy actions of a member in environments, from its parameters."""
    layers, features = float64.encoded(params, walk.obs)
    outputs = float64.dense(layers["head"]["actor_out"], features)
    return float64.best(outputs, walk.mask) if walk.env.discrete else outputs


def fitness(env: RecordedEnv, params: Any, keys: jax.Array, curve: Any) -> tuple[float, float]:
    """Mean over episodes of the discounted return of an agent that takes part, and their mean length."""
    walk = Walk(env, jnp.stack([jax.random.split(key)[0] for key in keys]))
    alive, present = np.ones(len(keys), bool), np.zeros((len(keys), *env.agents), bool)
    returns, length, t = np.zeros(present.shape), np.zeros(len(keys)), 0
    while alive.any():
        step = walk.take(actions(params, walk))
        mine = alive.reshape(-1, *[1] * len(env.agents))
        present |= step.active & mine
        returns += curve(t) * np.where(present & mine, step.reward, 0.0)
        length, t = length + alive, t + 1
        alive = alive & ~(step.terminated | step.truncated)
    people = np.maximum(present.reshape(len(keys), -1).sum(axis=1), 1)
    return float(np.mean(returns.reshape(len(keys), -1).sum(axis=1) / people)), float(length.mean())


@pytest.mark.parametrize("name", CASES)
def test_a_generation_is_that_of_float64(name: str) -> None:
    env, exponential = CASES[name]
    curve = (lambda t: GAMMA**t) if exponential else (lambda t: 1 / (1 + K * t))
    config = jaxrl.EvolveConfig(population_size=MEMBERS, num_episodes=EPISODES, hidden=(3,), activation="tanh")
    algo, env_params = jaxrl.evolve(env, config), env.default_params
    discount = GAMMA if exponential else f"hyperbolic:k={K}"
    hparams = algo.prepare(dataclasses.replace(algo.hparams, std=STD, lr=LR, discount=discount))
    init_key, *keys = jax.random.split(jax.random.key(0), 1 + GENERATIONS)
    state, step = quick_jit(algo.init)(init_key, hparams, env_params), quick_jit(algo.step)
    like = float64.in_float64(algo.policy(state, hparams).params)
    mean = float64.vector_of(like)
    first, second = np.zeros_like(mean), np.zeros_like(mean)
    for generation, key in enumerate(keys, 1):
        ask_key, episodes_key, _ = jax.random.split(key, 3)
        half = np.asarray(jax.random.normal(ask_key, (MEMBERS // 2, len(mean))), np.float64)
        noise = np.concatenate([half, -half])
        members = [float64.tree_of(mean + STD * each, like) for each in noise]
        of_members = jax.random.split(episodes_key, (MEMBERS, EPISODES))
        pairs = [fitness(env, member, own, curve) for member, own in zip(members, of_members, strict=True)]
        returns, lengths = np.array(pairs).T
        assert len(set(returns)) == MEMBERS, "ranks without ties"
        # Costs fall with returns; the gradient is that of Salimans et al. (2017), on ranks from -1/2 to 1/2.
        ranks = np.argsort(np.argsort(-returns)) / (MEMBERS - 1) - 0.5
        slopes = ranks @ noise / (MEMBERS * STD)
        first, second = 0.9 * first + 0.1 * slopes, 0.999 * second + 0.001 * slopes**2
        corrected = first / (1 - 0.9**generation), second / (1 - 0.999**generation)
        mean = mean - LR * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        state, metrics = step(key, jnp.int32(generation - 1), state, hparams, env_params)
        # Adam divides slopes by their size, so that their relative roundings of about 1e-6 move a parameter by as much
        # of LR.
        allowed = 1e-5 * generation
        np.testing.assert_allclose(metrics["population_return"], returns.mean(), rtol=0, atol=allowed)
        np.testing.assert_allclose(metrics["population_return_max"], returns.max(), rtol=0, atol=allowed)
        np.testing.assert_allclose(metrics["population_return_std"], returns.std(), rtol=0, atol=allowed)
        np.testing.assert_allclose(metrics["population_length"], lengths.mean(), rtol=0, atol=allowed)
        solution = float64.vector_of(float64.in_float64(algo.policy(state, hparams).params))
        np.testing.assert_allclose(solution, mean, rtol=0, atol=allowed)
