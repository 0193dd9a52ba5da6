"""PQN in float64: every iteration from the first reset on."""

import dataclasses
from typing import Any

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import Adam, Nodes, Statistics
from quick_jit import quick_jit
from recalling import Sequences
from recorded_env import RecordedEnv, Walk
from reference.advantages import ugae

import jaxrl

ITERATIONS = 3
GAMMA, K = 0.9, 0.5  # of the discounts "exp" and "hyperbolic"
SIZES = {"num_envs": 2, "num_steps": 8, "reset_pool": 8, "num_epochs": 2, "num_minibatches": 2}
NETWORK = {"hidden": (3,), "activation": "tanh"}
MEMORY: dict[str, Any] = {"memory": "gru", "memory_size": 2, "hidden": (2,)}
HPARAMS = {"lr": 0.05, "adam_eps": 0.1, "lam": 0.6, "epsilon_start": 0.8, "epsilon_end": 0.2}
CASES: dict[str, tuple[RecordedEnv, Any, Any]] = {
    "layer norm": (RecordedEnv(), {}, {"lr_end": 0.5, "anneal_env_steps": 40, "max_grad_norm": 0.5}),
    "joint heads of a crowd": (
        RecordedEnv(num_agents=2),
        {"heads": "joint", "num_heads": 3, "layer_norm": False, "value_loss": "huber", "normalise_observation": True},
        {"huber_delta": 0.3, "observation_clip": 1.5},
    ),
    "several choices": (RecordedEnv(several=True, num_agents=2), {"layer_norm": False}, {"max_grad_norm": 0.5}),
    "own heads, limits as ends": (
        RecordedEnv(),
        {"heads": "own", "num_heads": 3, "layer_norm": False, "time_limits": "terminal"},
        {},
    ),
    "memory": (RecordedEnv(), {**MEMORY, "num_steps": 6}, {"max_grad_norm": 0.5}),
    "memory of a crowd": (
        RecordedEnv(num_agents=2),
        {**MEMORY, "heads": "joint", "num_heads": 3, "layer_norm": False, "normalise_observation": True},
        {"observation_clip": 1.5},
    ),
}


class PQN:
    """Parallel Q-learning on `RecordedEnv`."""

    def __init__(self, algo: Any, hparams: Any, params: Any, key: jax.Array):
        single = algo.config.heads == "single"
        curve = (lambda t: GAMMA**t) if single else (lambda t: 1 / (1 + K * t))
        self.env, self.config, self.hparams = algo.env, algo.config, hparams
        self.nodes, self.params, self.adam = Nodes(hparams.discount, curve), float64.in_float64(params), Adam(hparams)
        self.walk = Walk(self.env, jax.random.split(jax.random.split(key)[1], self.config.num_envs))
        self.statistics = Statistics(self.config.normalise_observation, hparams.observation_clip)
        self.remembers, self.memory = self.config.memory != "none", None
        if self.remembers:
            self.memory = np.zeros((self.config.num_envs, *self.env.agents, self.config.memory_size))

    def values(self, params: Any, obs: Any, memory: Any) -> Any:
        """Values u_k of every choice, `[..., sum(sizes), K]`, from observations and the memories before them."""
        layers, features = float64.encoded(params, obs, memory)
        return float64.dense(layers["advantage_out"], features).reshape(*obs.shape[:-1], sum(self.env.sizes), -1)

    def step(self, key: jax.Array, iteration: int) -> None:
        """One iteration."""
        config, h = self.config, self.hparams
        collect_key, learn_key = jax.random.split(key)
        noise_key, env_key = jax.random.split(collect_key)
        shape = (config.num_steps, config.num_envs, *self.env.agents)
        noise = np.asarray(jax.random.uniform(noise_key, (*shape, len(self.env.sizes) + sum(self.env.sizes))))
        env_steps = iteration * config.steps_per_iteration
        start, end = float(h.epsilon_start), float(h.epsilon_end)
        epsilon = start + (end - start) * min(env_steps / float(h.epsilon_anneal_env_steps), 1.0)

        begun: Any = None

        def act(t: int, obs: Any, mask: Any) -> Any:
            nonlocal begun
            seen = self.statistics.normalised(obs)
            if self.memory is not None:
                self.memory = np.where(self.walk.ended[..., None], 0.0, self.memory)
                begun = self.memory if t == 0 else begun
            values = self.values(self.params, seen, self.memory) @ self.nodes.shares
            if self.memory is not None:
                self.memory = float64.remembered(self.params, seen, self.memory)
            return self.env.exploring(noise[t], epsilon, values, mask)

        self.steps = steps = self.walk(env_key, config.num_steps, config.reset_pool, act)
        obs = self.statistics.normalised(steps.obs)
        if self.remembers:
            self._learn_sequences(learn_key, env_steps, obs, begun)
            return
        target = self._targets(None)
        self.statistics.add(steps.obs, steps.active)
        lr = self._step_size(env_steps)
        rows = [leaf.reshape(-1, *leaf.shape[len(shape) :]) for leaf in (obs, steps.raw_action, target, steps.active)]
        for each in jax.random.split(learn_key, config.num_epochs):
            order = np.asarray(jax.random.permutation(each, len(rows[0])))
            for index in np.split(order, config.num_minibatches):
                self._descend(lr, [leaf[index] for leaf in rows])

    def _learn_sequences(self, key: jax.Array, env_steps: int, obs: Any, begun: Any) -> None:
        """Learning from minibatches of environments with all their steps, from their memories at the first ones."""
        steps = self.steps
        reset = np.concatenate([np.zeros_like(steps.done[:1]), steps.done[:-1]])

        def sequences(envs: Any) -> Sequences:
            windows = np.arange(len(obs) * len(envs))  # of one step each
            return Sequences(obs[:, envs], reset[:, envs], begun[envs], windows)

        everything = sequences(np.arange(self.config.num_envs))
        target = self._targets(everything.after(self.params).reshape(*obs.shape[:-1], -1))
        self.statistics.add(steps.obs, steps.active)
        for each in jax.random.split(key, self.config.num_epochs):
            order = np.asarray(jax.random.permutation(each, self.config.num_envs))
            for envs in np.split(order, self.config.num_minibatches):
                leaves = (leaf[:, envs] for leaf in (obs, steps.raw_action, target, steps.active))
                rows = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves]
                self._descend(self._step_size(env_steps), rows, sequences(envs))

    def _step_size(self, env_steps: int) -> float:
        h = self.hparams
        return float(h.lr) * (1 + (float(h.lr_end) - 1) * min(env_steps / float(h.anneal_env_steps), 1.0))

    def _targets(self, memory: Any) -> Any:
        """Lambda-returns of u_k, `[T, N, *A, K]`, a column at a time, from the memories after each step."""
        steps = self.steps
        after = self.values(self.params, self.statistics.normalised(steps.next_obs), memory)
        own = self.config.heads == "own"
        following = self.env.following(after, after, self.nodes.shares, steps.next_mask, own)
        target = np.zeros_like(following)
        ended, done, length = steps.ended(self.config.time_limits), steps.done, len(steps.reward)
        for column in np.ndindex(steps.reward.shape[1:]):
            at = (slice(None), *column)
            for k, (rate, size) in enumerate(zip(self.nodes.rates, self.nodes.sizes, strict=True)):
                powers, lam, nothing = rate ** np.arange(length + 1), float(self.hparams.lam), np.zeros(length)
                returns = ugae(powers, lam, steps.reward[at], nothing, size * following[at][:, k], ended[at], done[at])
                target[at][:, k] = returns[1] / size
        return target

    def _descend(self, lr: float, rows: list[Any], sequences: Sequences | None = None) -> None:
        """One step of the optimiser; with a memory, rows are the steps of sequences."""
        obs, action, target, active = rows

        def loss(params: Any) -> float:
            values = self.values(params, obs, None if sequences is None else sequences.before(params))
            error = np.array(self.env.taken(values, action)) - target  # of each part
            each = error**2 / 2
            if self.config.value_loss == "huber":
                delta = float(self.hparams.huber_delta)
                each = np.where(np.abs(error) > delta, delta * (np.abs(error) - delta / 2), each)
            each = np.mean(each @ self.nodes.shares, axis=0)
            return float64.weighted_mean(each, active.astype(np.float64))

        self.params = self.adam(self.params, float64.gradient(loss, self.params), lr)


@pytest.mark.seconds_to_compile(40)
@pytest.mark.parametrize("name", CASES)
def test_an_iteration_of_pqn_is_that_of_float64(name: str) -> None:
    env, fields, numbers = CASES[name]
    algo = jaxrl.pqn(env, jaxrl.PQNConfig(**{**NETWORK, **SIZES, **fields}))
    discount = f"hyperbolic:k={K}" if "heads" in fields else GAMMA
    numbers = {**HPARAMS, "epsilon_anneal_env_steps": 2 * algo.env_steps_per_iteration, "discount": discount, **numbers}
    hparams, env_params = algo.prepare(dataclasses.replace(algo.hparams, **numbers)), env.default_params
    init_key, *keys = jax.random.split(jax.random.key(1), 1 + ITERATIONS)
    state, step = quick_jit(algo.init)(init_key, hparams, env_params), quick_jit(algo.step)
    state = state._replace(acting=float64.with_larger_heads(state.acting))
    reference = PQN(algo, hparams, state.acting.params, init_key)
    start, truncated = reference.params, False
    for iteration, key in enumerate(keys):
        state, _ = step(key, jnp.int32(iteration), state, hparams, env_params)
        reference.step(key, iteration)
        truncated = truncated or reference.steps.truncated.any()
        # A gradient is a sum of numbers of at most 10 with relative roundings of 1e-6 in all, and Adam enlarges its
        # error by at most lr / eps = 0.5 at each of four updates an iteration.
        atol = 2e-5 * (1 + iteration)
        reference.walk.assert_at(state.carry.state)
        if reference.memory is not None:
            memory = np.where(reference.walk.ended[..., None], 0.0, reference.memory)
            np.testing.assert_allclose(state.carry.memory["hidden"], memory, rtol=0, atol=atol)
        float64.assert_same(state.acting.params, reference.params, atol)
    assert np.median(np.abs(float64.vector_of(reference.params) - float64.vector_of(start))) > 10 * atol
    assert reference.walk.both and truncated
