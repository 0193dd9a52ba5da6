"""TD3 and DDPG in float64: every iteration from the first reset on."""

import dataclasses
from typing import Any

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from critics import Critics
from quick_jit import quick_jit
from recorded_env import RecordedEnv, WatchedEnv
from replaying import Batch
from sequence_replaying import MEMORY

import jaxrl

ITERATIONS = 4
GAMMA, K = 0.9, 0.5  # of the discounts "exp" and "hyperbolic"
NETWORK = {"hidden": (3,), "activation": "tanh"}
SIZES = {"num_envs": 2, "num_steps": 4, "reset_pool": 4, "prefill": 16, "buffer_size": 32, "batch_size": 16}
HPARAMS = {"lr": 0.05, "policy_lr": 0.04, "adam_eps": 0.1, "target_rate": 0.2, "noise_std": 0.4}
HPARAMS |= {"lr_end": 0.5, "noise_std_end": 0.2, "anneal_env_steps": 16.0}  # two iterations
CASES: dict[str, tuple[RecordedEnv, Any, Any]] = {
    "td3, 3 steps": (
        RecordedEnv(discrete=False),
        {"num_updates": 3, "n_step": 3},
        {"target_noise": 0.5, "target_noise_clip": 0.3, "max_grad_norm": 0.7},
    ),
    "falling": (
        RecordedEnv(discrete=False),
        {"num_updates": 3, "optimiser": float64.falling},
        {"lr": 0.3, "policy_lr": 0.2, "max_grad_norm": 0.7, "target_noise": 0.5, "target_noise_clip": 0.3},
    ),
    "ddpg of a crowd": (
        RecordedEnv(discrete=False, num_agents=2),
        {
            "num_updates": 2,
            "policy_delay": 1,
            "target_smoothing": False,
            "num_critics": 1,
            "heads": "joint",
            "num_heads": 3,
            "replay": "prioritised",
        },
        {},
    ),
    "memory, 3 steps, correlated noise": (
        RecordedEnv(discrete=False),
        {
            **MEMORY,
            "num_updates": 2,
            "n_step": 3,
            "burn_in": 2,
            "noise": "ornstein-uhlenbeck",
            "replay": "prioritised",
        },
        # The policy moves far enough that its memories differ from those of its target network.
        {"policy_lr": 0.4, "target_rate": 0.05, "target_noise": 0.5, "target_noise_clip": 0.3}
        | {"noise_correlation": 0.3, "priority_eta": 0.7},
    ),
    "memory, ddpg of a crowd": (
        RecordedEnv(discrete=False, num_agents=2),
        {**MEMORY, "num_updates": 2, "policy_delay": 1, "target_smoothing": False, "num_critics": 1},
        {},
    ),
    "memory, critics that see the global observation of a crowd": (
        WatchedEnv(discrete=False, num_agents=2),
        {**MEMORY, "num_updates": 2, "critic_sees": "global", "normalise_observation": True, "burn_in": 2},
        {"policy_lr": 0.4, "target_noise": 0.5, "target_noise_clip": 0.3},
    ),
}


class TD3(Critics):
    """Twin delayed DDPG on `RecordedEnv`."""

    def __init__(self, algo: Any, hparams: Any, learner: Any, key: jax.Array):
        curve = (lambda t: GAMMA**t) if algo.config.heads == "single" else (lambda t: 1 / (1 + K * t))
        _, reset_key, collect_key = jax.random.split(key, 3)
        super().__init__(algo, hparams, learner, curve, reset_key)
        self.target_policy, self.count, self.noise_std = self.policy, 0, float(hparams.noise_std)

        def uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.uniform(key, (*shape, 2), minval=-1.0, maxval=1.0)

        prefill_slots = self.config.prefill // self.config.num_envs
        networks = self.policy, self.critics
        self.replay.collect(collect_key, prefill_slots, uniform, lambda noise, obs, mask, memory: noise, *networks)
        self.wave, self.begun = np.zeros((self.config.num_envs, *self.env.agents, 2)), np.array(False)

    def step(self, key: jax.Array) -> None:
        """One iteration."""
        collect_key, learn_key = jax.random.split(key)

        self.noise_std = self.annealed("noise_std", "noise_std_end")

        def act(noise: Any, obs: Any, mask: Any, memory: Any) -> Any:
            mean = np.tanh(self.outputs(self.policy, obs, memory))
            return np.clip(mean + self.noise_std * self._correlated(noise), -1, 1)

        def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return jax.random.normal(key, (*shape, 2))

        self.replay.collect(collect_key, self.config.num_steps, normal, act, self.policy, self.critics)
        for own_key, batch in self.replay.batches(learn_key):
            self._learn(own_key, batch)
        self.env_steps += self.config.steps_per_iteration

    def _correlated(self, noise: Any) -> Any:
        """Noise of a step, correlated with that of the previous step of the episode if configured."""
        if self.config.noise == "gaussian":
            return noise
        correlation = float(self.hparams.noise_correlation)
        going_on = (self.begun & ~self.replay.walk.ended)[..., None]
        self.wave = np.where(going_on, correlation * self.wave + np.sqrt(1 - correlation**2) * noise, noise)
        self.begun = np.array(True)  # the prefill has no such noise
        return self.wave

    def _learn(self, key: jax.Array, batch: Batch) -> None:
        action = np.tanh(self.outputs(self.target_policy, batch.next_obs, batch.after(self.target_policy)))
        if self.config.target_smoothing:
            noise = float(self.hparams.target_noise) * np.asarray(jax.random.normal(key, action.shape), np.float64)
            bound = float(self.hparams.target_noise_clip)
            assert np.any(np.abs(noise) > bound)
            action = np.clip(action + np.clip(noise, -bound, bound), -1, 1)
        of_targets = batch.after_critics(self.targets)
        self.learn_values(batch, self.lowest(self.atoms(self.targets, batch.next_seen, action, of_targets)))
        self.count += 1
        if self.count % self.config.policy_delay:
            return

        of_critics = batch.before_critics(self.critics)

        def loss(policy: Any) -> float:
            action = np.tanh(self.outputs(policy, batch.obs, batch.before(policy, self.policy)))
            first = self.values(self.critics, batch.seen, action, of_critics)[0]
            return -float64.weighted_mean(first @ self.nodes.shares, batch.active.astype(np.float64))

        self.policy = self.of_policy(self.policy, float64.gradient(loss, self.policy), self.annealed("policy_lr"))
        self.move_targets()
        self.target_policy = float64.towards(self.target_policy, self.policy, float(self.hparams.target_rate))


@pytest.mark.seconds_to_compile(40)
@pytest.mark.parametrize("name", CASES)
def test_an_iteration_of_td3_is_that_of_float64(name: str) -> None:
    env, fields, numbers = CASES[name]
    algo = jaxrl.td3(env, jaxrl.TD3Config(**{**NETWORK, **SIZES, **fields}))
    numbers = {**HPARAMS, "discount": f"hyperbolic:k={K}" if "heads" in fields else GAMMA, **numbers}
    numbers = float64.effective(algo, numbers)
    hparams, env_params = algo.prepare(dataclasses.replace(algo.hparams, **numbers)), env.default_params
    init_key, *keys = jax.random.split(jax.random.key(0), 1 + ITERATIONS)
    state, step = quick_jit(algo.init)(init_key, hparams, env_params), quick_jit(algo.step)
    state = state._replace(learner=float64.with_larger_heads(state.learner))
    reference = TD3(algo, hparams, state.learner, init_key)
    start = reference.policy, reference.critics
    for iteration, key in enumerate([None, *keys]):
        if key is not None:
            state, _ = step(key, jnp.int32(iteration - 1), state, hparams, env_params)
            reference.step(key)
        # A gradient is a sum of numbers of at most 10 with relative roundings of 1e-6 in all, and Adam enlarges its
        # error by at most lr / eps = 0.5 at each of two or three updates an iteration.
        atol = 1e-5 * (1 + iteration)
        reference.assert_same(state, atol)
        np.testing.assert_allclose(algo.policy(state, hparams).acting.noise_std, reference.noise_std, rtol=1e-6)
        float64.assert_same(state.learner.target_policy, reference.target_policy, atol)
    moves = float64.vector_of((reference.policy, reference.critics)) - float64.vector_of(start)
    assert (
        np.median(np.abs(moves)) > (100 if algo.config.memory == "none" else 10) * atol
    )  # a memory learns more slowly
    reference.replay.assert_varied()
