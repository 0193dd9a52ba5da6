"""DQN in float64: every iteration from the first reset on, under several configurations."""

import dataclasses
from typing import Any

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import Nodes
from quick_jit import quick_jit
from recorded_env import RecordedEnv
from replaying import Batch, Replay
from sequence_replaying import MEMORY, SequenceReplay

import jaxrl

ITERATIONS = 4  # the buffer is full after two
GAMMA, K = 0.9, 0.5  # of the discounts "exp" and "hyperbolic"
NETWORK = {"hidden": (3,), "activation": "tanh"}
SIZES = {"num_envs": 2, "num_steps": 4, "reset_pool": 4, "prefill": 16, "buffer_size": 32, "batch_size": 16}
HPARAMS = {"lr": 0.05, "adam_eps": 0.1, "max_grad_norm": 0.5, "epsilon_start": 0.8, "epsilon_end": 0.2}
HPARAMS |= {"lr_end": 0.5, "anneal_env_steps": 16.0}  # two iterations
CASES: dict[str, tuple[RecordedEnv, Any, Any]] = {
    "prioritised, 3 steps": (
        RecordedEnv(),
        {"n_step": 3, "replay": "prioritised", "target_interval": 3},
        {"huber_delta": 0.5, "priority_beta": 0.7, "max_grad_norm": 0.12},
    ),
    "joint heads of a crowd": (
        RecordedEnv(num_agents=2),
        {
            "heads": "joint",
            "double": False,
            "target_update": "soft",
            "n_step": 2,
            "replay": "prioritised",
            "normalise_observation": True,
        },
        {"target_rate": 0.2, "observation_clip": 1.5, "max_grad_norm": 0.12},
    ),
    "own heads, limits as ends": (
        RecordedEnv(),
        {"heads": "own", "value_loss": "squared", "time_limits": "terminal", "target_interval": 1},
        {},
    ),
    "falling": (RecordedEnv(), {"optimiser": float64.falling}, {"lr": 0.3, "max_grad_norm": 0.4}),
    "several choices": (
        RecordedEnv(several=True),
        {"n_step": 2, "replay": "prioritised", "heads": "joint", "dueling": True},
        {"huber_delta": 0.5, "max_grad_norm": 0.12},
    ),
    "own heads of several choices": (
        RecordedEnv(several=True),
        {"heads": "own", "target_interval": 2},
        {"max_grad_norm": 0.12},
    ),
    "munchausen": (RecordedEnv(), {"munchausen": True, "target_interval": 2}, {"munchausen_temperature": 0.3}),
    "memory": (RecordedEnv(), {**MEMORY, "target_interval": 3}, {"max_grad_norm": 0.3}),
    "memory, prioritised, 3 steps, burn-in": (
        RecordedEnv(),
        {**MEMORY, "n_step": 3, "replay": "prioritised", "target_interval": 3, "burn_in": 2},
        {"priority_beta": 0.7, "priority_eta": 0.7, "max_grad_norm": 0.3},
    ),
    "memory of a crowd": (
        RecordedEnv(num_agents=2),
        {
            **MEMORY,
            "sequence_length": 4,  # a whole sequence is overwritten at once
            "replay": "prioritised",
            "heads": "joint",
            "target_update": "soft",
            "normalise_observation": True,
            "time_limits": "terminal",
        },
        {"target_rate": 0.2, "observation_clip": 1.5, "max_grad_norm": 0.12},
    ),
    "memory, own heads": (RecordedEnv(), {**MEMORY, "heads": "own", "target_interval": 2}, {"max_grad_norm": 0.12}),
    "memory, several choices": (
        RecordedEnv(several=True),
        {**MEMORY, "n_step": 2, "target_interval": 3},
        {"max_grad_norm": 0.2},
    ),
    "memory, munchausen": (
        RecordedEnv(),
        {**MEMORY, "munchausen": True, "target_interval": 2, "memory_hidden": (2,)},
        {"munchausen_temperature": 0.3, "max_grad_norm": 0.3},
    ),
}


class DQN:
    """Deep Q-learning on `RecordedEnv`."""

    def __init__(self, algo: Any, hparams: Any, params: Any, key: jax.Array):
        single = algo.config.heads == "single"
        curve = (lambda t: GAMMA**t) if single else (lambda t: 1 / (1 + K * t))
        self.env, self.config, self.hparams = algo.env, algo.config, hparams
        self.nodes = Nodes(hparams.discount, curve)
        self.params = self.target = float64.in_float64(params)
        self.descent, self.epsilon, self.count = float64.descent(algo, hparams), 1.0, 0
        _, reset_key, collect_key = jax.random.split(key, 3)
        kind = Replay if self.config.memory == "none" else SequenceReplay
        self.replay = kind(algo, hparams, self.nodes, reset_key)
        self._collect(collect_key, self.config.prefill // self.config.num_envs)

    def values(self, params: Any, obs: Any, memory: Any) -> Any:
        """Values u_k of every choice, `[..., sum(sizes), K]`, from observations and the memories before them."""
        layers, features = float64.encoded(params, obs, memory)
        size = (*obs.shape[:-1], sum(self.env.sizes), -1)
        if not self.config.dueling:
            return float64.dense(layers["advantage_out"], features).reshape(size)
        values, advantages = (
            float64.dense(layers[f"{name}_out"], np.tanh(float64.dense(layers[f"{name}_hidden"], features)))
            for name in ("value", "advantage")
        )
        parts = self.env.parts(advantages.reshape(size), -2)
        return values[..., None, :] + np.concatenate([part - part.mean(-2, keepdims=True) for part in parts], axis=-2)

    def _collect(self, key: jax.Array, num_steps: int) -> None:
        def act(noise: Any, obs: Any, mask: Any, memory: Any) -> Any:
            values = self.values(self.params, obs, memory) @ self.nodes.shares
            return self.env.exploring(noise, self.epsilon, values, mask)

        def uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.uniform(key, (*shape, len(self.env.sizes) + sum(self.env.sizes)))

        self.replay.collect(key, num_steps, uniform, act, self.params)

    def step(self, key: jax.Array, iteration: int) -> None:
        """One iteration."""
        share = min(iteration * self.config.steps_per_iteration / float(self.hparams.epsilon_anneal_env_steps), 1.0)
        start, end = float(self.hparams.epsilon_start), float(self.hparams.epsilon_end)
        self.epsilon = start + (end - start) * share
        annealed = self.hparams.lr_end, self.hparams.anneal_env_steps
        self.lr = float(self.hparams.lr) * float64.linear(iteration * self.config.steps_per_iteration, *annealed)
        collect_key, learn_key = jax.random.split(key)
        self._collect(collect_key, self.config.num_steps)
        for _, batch in self.replay.batches(learn_key):
            self._learn(batch)

    def _learn(self, batch: Batch) -> None:
        goal, shares = self._targets(batch), self.nodes.shares

        def errors(params: Any) -> Any:
            """Errors of each part, `[D, B, *A, K]`."""
            values = self.values(params, batch.obs, batch.before(params, self.params))
            return np.array(self.env.taken(values, batch.action)) - goal

        def loss(params: Any) -> float:
            error = errors(params)
            each = error**2 / 2
            if self.config.value_loss == "huber":
                delta = float(self.hparams.huber_delta)
                each = np.where(np.abs(error) > delta, delta * (np.abs(error) - delta / 2), each)
            return float(np.sum(np.mean(each @ shares, axis=0) * batch.weight) / max(batch.active.sum(), 1))

        self.replay.learned(batch, np.mean(np.abs(errors(self.params) @ shares), axis=0))
        self.params = self.descent(self.params, float64.gradient(loss, self.params), self.lr)
        self.count += 1
        if self.config.target_update == "soft":
            self.target = float64.towards(self.target, self.params, float(self.hparams.target_rate))
        elif self.count % self.config.target_interval == 0:
            self.target = self.params

    def _targets(self, batch: Batch) -> Any:
        """Targets of u_k, `[B, *A, K]`."""
        after, sums = self.values(self.target, batch.next_obs, batch.after(self.target)), batch.sums
        if self.config.munchausen:
            temperature, alpha = (float(getattr(self.hparams, f"munchausen_{n}")) for n in ("temperature", "alpha"))
            now = self.values(self.target, batch.obs, batch.before(self.target))[..., 0]
            logs = float64.log_softmax(now / temperature, batch.mask)
            taken = np.take_along_axis(logs, batch.action[..., None], axis=-1)
            sums = sums + alpha * np.clip(temperature * taken, -1.0, 0.0)
            logs = float64.log_softmax(after[..., 0] / temperature, batch.next_mask)
            share = np.exp(logs)
            entropy = -np.sum(share * np.where(share > 0, logs, 0.0), axis=-1)
            following = (np.sum(share * after[..., 0], axis=-1) + temperature * entropy)[..., None]
        else:
            judge = after
            if self.config.double:
                judge = self.values(self.params, batch.next_obs, batch.after(self.params))
            own = self.config.heads == "own"
            following = self.env.following(after, judge, self.nodes.shares, batch.next_mask, own)
        return sums + batch.going_on * following


@pytest.mark.seconds_to_compile(40)
@pytest.mark.slow_rows(
    "own heads, limits as ends", "own heads of several choices", "memory, munchausen", "memory, several choices"
)
@pytest.mark.parametrize("name", CASES)
def test_an_iteration_of_dqn_is_that_of_float64(name: str) -> None:
    env, fields, numbers = CASES[name]
    heads = {"num_heads": 3} if "heads" in fields else {}
    algo = jaxrl.dqn(env, jaxrl.DQNConfig(**{**NETWORK, **SIZES, **heads, **fields}))
    discount = f"hyperbolic:k={K}" if heads else GAMMA
    numbers = {**HPARAMS, "epsilon_anneal_env_steps": 3 * algo.env_steps_per_iteration, "discount": discount, **numbers}
    numbers = float64.effective(algo, numbers)
    hparams, env_params = algo.prepare(dataclasses.replace(algo.hparams, **numbers)), env.default_params
    init_key, *keys = jax.random.split(jax.random.key(0), 1 + ITERATIONS)
    state, step = quick_jit(algo.init)(init_key, hparams, env_params), quick_jit(algo.step)
    state = state._replace(learner=float64.with_larger_heads(state.learner))
    reference = DQN(algo, hparams, state.learner.acting.params, init_key)
    start = reference.params
    for iteration, key in enumerate([None, *keys]):
        if key is not None:
            state, _ = step(key, jnp.int32(iteration - 1), state, hparams, env_params)
            reference.step(key, iteration - 1)
        # A gradient is a sum of numbers of at most 10 with relative roundings of 1e-6 in all, and Adam enlarges its
        # error by at most lr / eps = 0.5 at each of two updates an iteration.
        atol = 1e-5 * (1 + iteration)
        reference.replay.assert_same(state, atol)
        float64.assert_same(state.learner.acting.params, reference.params, atol)
        float64.assert_same(state.learner.target, reference.target, atol)
    moves = np.abs(float64.vector_of(reference.params) - float64.vector_of(start))
    assert np.median(moves) > (100 if algo.config.memory == "none" else 10) * atol  # a memory learns more slowly
    assert set(reference.descent.clipped) == {True, False}
    reference.replay.assert_varied()
