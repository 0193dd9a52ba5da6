"""Soft actor-critic in float64, with continuous and with discrete actions: every iteration from the first reset on."""

import dataclasses
import math
from typing import Any

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from critics import Critics
from float64 import Adam
from quick_jit import quick_jit
from recorded_env import InformedEnv, RecordedEnv
from replaying import Batch
from sequence_replaying import MEMORY

import jaxrl

ITERATIONS = 4
GAMMA, K = 0.9, 0.5  # of the discounts "exp" and "hyperbolic"
NETWORK = {"hidden": (3,), "activation": "tanh"}
SIZES = {"num_envs": 2, "num_steps": 4, "reset_pool": 4, "prefill": 16, "buffer_size": 32, "batch_size": 16}
HPARAMS = {"lr": 0.05, "policy_lr": 0.04, "adam_eps": 0.1, "target_rate": 0.2, "temperature": 0.3}
HPARAMS |= {"lr_end": 0.5, "anneal_env_steps": 16.0}  # two iterations
CASES: dict[str, tuple[RecordedEnv, Any, Any]] = {
    # Here rows drawn twice in a batch have different errors, by the noise of their next actions.
    "continuous": (RecordedEnv(discrete=False), {"replay": "prioritised"}, {"max_grad_norm": 0.7}),
    "falling": (
        RecordedEnv(discrete=False),
        {"optimiser": float64.falling},
        {"lr": 0.3, "policy_lr": 0.2, "max_grad_norm": 0.7},
    ),
    "discrete": (RecordedEnv(), {"replay": "prioritised"}, {"target_entropy_fraction": 0.4}),
    "continuous crowd": (
        RecordedEnv(discrete=False, num_agents=2),
        {"heads": "joint", "num_heads": 3, "automatic_temperature": False, "time_limits": "terminal"},
        {"temperature_end": 0.4},
    ),
    "several choices": (RecordedEnv(several=True), {}, {"target_entropy_fraction": 0.4}),
    "discrete crowd": (RecordedEnv(num_agents=2), {"heads": "joint", "num_heads": 3}, {"temperature_lr": 0.1}),
    "memory": (RecordedEnv(discrete=False), {**MEMORY, "replay": "prioritised", "burn_in": 2}, {"priority_eta": 0.7}),
    "memory, privileged": (
        InformedEnv(discrete=False),
        {**MEMORY, "burn_in": 2, "critic_sees": "privileged", "normalise_observation": True},
        {},
    ),
    "memory, quantiles under any discount": (
        RecordedEnv(discrete=False),
        {**MEMORY, "value_loss": "quantile", "num_atoms": 2, "heads": "joint", "num_heads": 3},
        {"huber_delta": 0.5},
    ),
    "memory, discrete crowd": (RecordedEnv(num_agents=2), MEMORY, {"target_entropy_fraction": 0.4}),
}


class SAC(Critics):
    """Soft actor-critic on `RecordedEnv`."""

    def __init__(self, algo: Any, hparams: Any, learner: Any, key: jax.Array):
        curve = (lambda t: GAMMA**t) if algo.config.heads == "single" else (lambda t: 1 / (1 + K * t))
        _, reset_key, collect_key = jax.random.split(key, 3)
        super().__init__(algo, hparams, learner, curve, reset_key)
        self.log_temperature = math.log(float(hparams.temperature))
        self.of_temperature = Adam(hparams) if self.config.automatic_temperature else None
        self._collect(collect_key, self.config.prefill // self.config.num_envs, prefilling=True)

    def _collect(self, key: jax.Array, num_steps: int, prefilling: bool = False) -> None:
        if self.discrete:

            def act(noise: Any, obs: Any, mask: Any, memory: Any) -> Any:
                return self.env.best((0 if prefilling else self.outputs(self.policy, obs, memory)) + noise, mask)

            def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
                return jax.random.gumbel(key, (*shape, sum(self.env.sizes)))

        elif prefilling:

            def act(noise: Any, obs: Any, mask: Any, memory: Any) -> Any:
                return noise

            def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
                return jax.random.uniform(key, (*shape, 2), minval=-1.0, maxval=1.0)

        else:

            def act(noise: Any, obs: Any, mask: Any, memory: Any) -> Any:
                return self._sampled(self.policy, obs, noise, memory)[0]

            def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
                return jax.random.normal(key, (*shape, 2))

        self.replay.collect(key, num_steps, draw, act, self.policy, self.critics)

    def _sampled(self, policy: Any, obs: Any, noise: Any, memory: Any) -> Any:
        """Actions, and the logarithms of their densities by the change of variables."""
        mean, log_std = np.split(self.outputs(policy, obs, memory), 2, axis=-1)
        before = mean + np.exp(log_std) * noise
        normal = np.exp(-(noise**2) / 2) / (np.sqrt(2 * np.pi) * np.exp(log_std))
        return np.tanh(before), np.sum(np.log(normal / np.cosh(before) ** -2.0), axis=-1)

    def _logs(self, policy: Any, obs: Any, mask: Any, memory: Any) -> list[Any]:
        """Log-probabilities of the choices of each part of an action."""
        parts = zip(self.env.parts(self.outputs(policy, obs, memory)), self.env.parts(mask), strict=True)
        return [float64.log_softmax(*part) for part in parts]

    def step(self, key: jax.Array) -> None:
        """One iteration."""
        collect_key, learn_key = jax.random.split(key)
        self._collect(collect_key, self.config.num_steps)
        if self.of_temperature is None:
            self.log_temperature = math.log(self.annealed("temperature", "temperature_end"))
        for own_key, batch in self.replay.batches(learn_key):
            self._learn(own_key, batch)
        self.env_steps += self.config.steps_per_iteration

    def _learn(self, key: jax.Array, batch: Batch) -> None:
        temperature, agents = math.exp(self.log_temperature), batch.active.astype(np.float64)
        shape = (*batch.active.shape, 2)
        next_noise, noise = (np.asarray(jax.random.normal(each, shape), np.float64) for each in jax.random.split(key))
        after, of_targets = batch.after(self.policy), batch.after_critics(self.targets)
        if self.discrete:
            lowest = self.lowest(self.atoms(self.targets, batch.next_seen, memory=of_targets))[..., 0]
            choices = self.env.parts(lowest, -2)
            logs = self._logs(self.policy, batch.next_obs, batch.next_mask, after)
            values = [np.sum(np.exp(log)[..., None] * part, axis=-2) for log, part in zip(logs, choices, strict=True)]
            entropy = np.sum([_entropy(log) for log in logs], axis=0)
            following = (np.mean(values, axis=0) + temperature * entropy[..., None] / self.nodes.sizes)[..., None]
        else:
            action, log_prob = self._sampled(self.policy, batch.next_obs, next_noise, after)
            lowest = self.lowest(self.atoms(self.targets, batch.next_seen, action, of_targets))
            following = lowest - (temperature * log_prob[..., None] / self.nodes.sizes)[..., None]
        self.learn_values(batch, following)
        of_critics = batch.before_critics(self.critics)

        def both(policy: Any) -> tuple[float, float]:
            """The loss of a policy, and its entropy."""
            before = batch.before(policy, self.policy)
            if self.discrete:
                values = self.values(self.critics, batch.seen, memory=of_critics)
                lowest = np.min(values @ self.nodes.shares, axis=0)
                logs = self._logs(policy, batch.obs, batch.mask, before)
                entropy = np.sum([_entropy(log) for log in logs], axis=0)
                parts = zip(logs, self.env.parts(lowest), strict=True)
                q = np.sum([np.sum(np.exp(log) * part, axis=-1) for log, part in parts], axis=0)
            else:
                action, log_prob = self._sampled(policy, batch.obs, noise, before)
                q = np.min(self.values(self.critics, batch.seen, action, of_critics) @ self.nodes.shares, axis=0)
                entropy = -log_prob
            return float64.weighted_mean(-temperature * entropy - q, agents), float64.weighted_mean(entropy, agents)

        entropy = both(self.policy)[1]
        slopes = float64.gradient(lambda policy: both(policy)[0], self.policy)
        self.policy = self.of_policy(self.policy, slopes, self.annealed("policy_lr"))
        if self.of_temperature is not None:
            # The least surplus of entropy is none: a temperature falls where the policy is more random than it should.
            masks = [] if batch.mask is None else self.env.parts(batch.mask)
            most = sum(float64.weighted_mean(np.log(mask.sum(-1)), agents) for mask in masks) if masks else -2.0
            surplus = entropy - float(self.hparams.target_entropy_fraction) * most
            lr, before = self.annealed("temperature_lr"), np.array([self.log_temperature])
            self.log_temperature = float(self.of_temperature(before, np.array([surplus]), lr)[0])
        self.move_targets()


def _entropy(logs: Any) -> Any:
    return -np.sum(np.exp(logs) * np.where(np.isfinite(logs), logs, 0.0), axis=-1)


@pytest.mark.seconds_to_compile(40)
@pytest.mark.slow_rows("falling", "continuous crowd", "memory, quantiles under any discount")
@pytest.mark.parametrize("name", CASES)
def test_an_iteration_of_sac_is_that_of_float64(name: str) -> None:
    env, fields, numbers = CASES[name]
    algo = jaxrl.sac(env, jaxrl.SACConfig(**{**NETWORK, **SIZES, "num_updates": 2, **fields}))
    numbers = {**HPARAMS, "discount": f"hyperbolic:k={K}" if "heads" in fields else GAMMA, **numbers}
    numbers = float64.effective(algo, numbers)
    hparams, env_params = algo.prepare(dataclasses.replace(algo.hparams, **numbers)), env.default_params
    init_key, *keys = jax.random.split(jax.random.key(0), 1 + ITERATIONS)
    state, step = quick_jit(algo.init)(init_key, hparams, env_params), quick_jit(algo.step)
    state = state._replace(learner=float64.with_larger_heads(state.learner))
    reference = SAC(algo, hparams, state.learner, init_key)
    start = reference.policy, reference.critics
    for iteration, key in enumerate([None, *keys]):
        if key is not None:
            state, _ = step(key, jnp.int32(iteration - 1), state, hparams, env_params)
            reference.step(key)
        # A gradient is a sum of numbers of at most 10 with relative roundings of 1e-6 in all, and Adam enlarges its
        # error by at most lr / eps = 0.5 at each of two updates an iteration.
        atol = 1e-5 * (1 + iteration)
        reference.assert_same(state, atol)
        if algo.config.automatic_temperature:
            np.testing.assert_allclose(state.learner.log_temperature, reference.log_temperature, rtol=0, atol=atol)
    moves = float64.vector_of((reference.policy, reference.critics)) - float64.vector_of(start)
    assert (
        np.median(np.abs(moves)) > (100 if algo.config.memory == "none" else 10) * atol
    )  # a memory learns more slowly
    assert not algo.config.automatic_temperature or abs(reference.log_temperature - math.log(0.3)) > 10 * atol
    reference.replay.assert_varied()
