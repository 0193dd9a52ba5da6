"""PPO, A2C, SPO, MDPO, PPO with a penalty, and REINFORCE in float64: every iteration from the first reset on."""

import dataclasses
from typing import Any, NamedTuple

import float64
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from float64 import weighted_mean
from on_policy import OnPolicy, Rows
from quick_jit import quick_jit
from recorded_env import RecordedEnv
from reference.drift import policy_loss, random_drift
from reference.learned_optimiser import random_optimiser

import jaxrl
from jaxrl import Curve

ITERATIONS = 3
GAMMA, K = 0.9, 0.5  # of the discounts "exp" and "hyperbolic"
NETWORK = {"hidden": (3,), "activation": "tanh"}
EPOCHS = {"num_epochs": 2, "num_minibatches": 2}
MIXTURE = {"critic": "mixture", "critic_heads": 3}


class PPO(OnPolicy):
    """Proximal policy optimisation; `stops` has the number of minibatches learned from in each iteration."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.stops: list[int] = []

    def policy_loss(self, scores: Any, log_ratio: Any, batch: Rows) -> float:
        ratio, eps = np.exp(log_ratio), self.annealed("clip_eps")
        if self.config.drift == "learned":
            return policy_loss(self.hparams.drift, log_ratio, batch.advantage, batch.weight, eps)
        clipped = np.clip(ratio, 1 - eps, 1 + eps)
        return -weighted_mean(np.minimum(ratio * batch.advantage, clipped * batch.advantage), batch.weight)

    def _divergence(self, batch: Rows) -> float:
        log_ratio = self.log_prob(self.scores(self.weights, batch.obs, batch.mask), batch.action) - batch.log_prob
        return weighted_mean(np.exp(log_ratio) - 1 - log_ratio, batch.weight)

    def learn(self, key: jax.Array, rows: Rows) -> None:
        most, how, before, learned = float(self.hparams.target_kl), self.config.kl_stop, self.snapshot(), 0
        self.stops.append(0)
        for each in jax.random.split(key, self.config.num_epochs):
            divergences = []
            for batch in self.minibatches(each, rows):
                divergences.append(self._divergence(batch))
                if how != "epoch" and divergences[-1] > most:
                    if how == "rewind":
                        self.weights, self.descent = before
                    return
                before = self.snapshot()
                self.descend(batch)
                learned += 1
                self.stops[-1] = learned
            if how == "epoch" and np.mean(divergences) > most:
                return


class SPO(OnPolicy):
    """Simple policy optimization."""

    def policy_loss(self, scores: Any, log_ratio: Any, batch: Rows) -> float:
        ratio, advantage = np.exp(log_ratio), batch.advantage
        penalty = np.abs(advantage) * (ratio - 1) ** 2 / (2 * self.annealed("ratio_eps"))
        return -weighted_mean(advantage * ratio - penalty, batch.weight)


class MDPO(OnPolicy):
    """Mirror descent policy optimisation."""

    def policy_loss(self, scores: Any, log_ratio: Any, batch: Rows) -> float:
        share = 1 + (float(self.hparams.step_size_end) - 1) * self.fallen
        step_size = max(float(self.hparams.step_size) * share, 1e-3)
        kl = weighted_mean(self.kl(scores, batch.scores), batch.weight)
        return -weighted_mean(np.exp(log_ratio) * batch.advantage, batch.weight) + kl / step_size


class PPOKL(OnPolicy):
    """PPO with an adaptive penalty; `coefficients` has those of the iterations, and of the next one."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.coefficients = [float(self.hparams.kl_coef)]

    def policy_loss(self, scores: Any, log_ratio: Any, batch: Rows) -> float:
        kl = weighted_mean(self.kl(batch.scores, scores), batch.weight)
        return -weighted_mean(np.exp(log_ratio) * batch.advantage, batch.weight) + self.coefficients[-1] * kl

    def learn(self, key: jax.Array, rows: Rows) -> None:
        super().learn(key, rows)
        kl = weighted_mean(self.kl(rows.scores, self.scores(self.weights, rows.obs, rows.mask)), rows.weight)
        target, factor = float(self.hparams.kl_target), 1.0
        if kl > 1.5 * target:
            factor = 2.0
        elif kl < target / 1.5:
            factor = 0.5
        self.coefficients.append(self.coefficients[-1] * factor)

    def assert_same(self, state: Any, atol: float) -> None:
        super().assert_same(state, atol)
        np.testing.assert_allclose(state.own, self.coefficients[-1])


class A2C(OnPolicy):
    """Advantage actor-critic."""

    def policy_loss(self, scores: Any, log_ratio: Any, batch: Rows) -> float:
        return -weighted_mean((log_ratio + batch.log_prob) * batch.advantage, batch.weight)

    def learn(self, key: jax.Array, rows: Rows) -> None:
        self.descend(rows)


class Reinforce(A2C):
    """REINFORCE."""

    def weight(self) -> Any:
        complete, over = np.zeros(self.steps.reward.shape), np.zeros(self.steps.reward.shape[1:], bool)
        for t in reversed(range(len(complete))):
            over = over | self.steps.done[t]
            complete[t] = over & self.steps.active[t]
        return complete

    def value_loss(self, weights: Any, batch: Rows) -> float:
        return super().value_loss(weights, batch) if self.config.baseline == "critic" else 0.0

    def learn(self, key: jax.Array, rows: Rows) -> None:
        if self.config.baseline == "off":
            rows.advantage = rows.target
        if rows.weight.sum() > 0:
            self.descend(rows)


class Case(NamedTuple):
    """An algorithm on an environment: its reference, builder, fields of its configuration, and hyper-parameters."""

    reference: Any
    build: Any
    env: RecordedEnv
    config: Any
    hparams: dict[str, Any]


SINGLE, CROWD = RecordedEnv(), RecordedEnv(num_agents=2)
CONTINUOUS = RecordedEnv(discrete=False)
CASES = {
    "ppo": Case(
        PPO,
        jaxrl.ppo,
        SINGLE,
        jaxrl.PPOConfig(**EPOCHS, **NETWORK, num_envs=2, num_steps=8, reset_pool=8),
        {"value_clip": 0.05, "clip_eps": 0.1, "lr_end": 0.5, "anneal_env_steps": 40, "entropy_decay_env_steps": 50}
        | {"clip_eps_end": 0.02},
    ),
    "ppo, ugae, rewound": Case(
        PPO,
        jaxrl.ppo,
        CONTINUOUS,
        jaxrl.PPOConfig(
            **EPOCHS,
            **NETWORK,
            num_envs=2,
            num_steps=8,
            reset_pool=8,
            kl_stop="rewind",
            time_limits="terminal",
            normalise_observation=True,
            normalise_reward=True,
        ),
        {"target_kl": 0.008, "observation_clip": 1.5, "reward_clip": 1.0},
    ),
    "ppo of a crowd": Case(
        PPO,
        jaxrl.ppo,
        CROWD,
        jaxrl.PPOConfig(
            **EPOCHS, **NETWORK, **MIXTURE, num_envs=2, num_steps=8, reset_pool=8, normalise_advantage="batch"
        ),
        {"target_kl": 0.00023, "max_grad_norm": np.inf},
    ),
    "ppo, falling": Case(
        PPO,
        jaxrl.ppo,
        SINGLE,
        jaxrl.PPOConfig(**EPOCHS, **NETWORK, num_envs=2, num_steps=8, reset_pool=8, optimiser=float64.falling),
        {"lr": 0.3, "lr_end": 0.5, "anneal_env_steps": 40},
    ),
    "ppo, drift and curves": Case(
        PPO,
        jaxrl.ppo,
        SINGLE,
        jaxrl.PPOConfig(**EPOCHS, **NETWORK, num_envs=2, num_steps=8, reset_pool=8, drift="learned", drift_width=2),
        {"lr": Curve([0.05, 0.02, 0.06]), "lam": Curve([0.7, 0.1]), "entropy_coef": Curve([0.02, 0.5, 0.0, 0.1])}
        | {"clip_eps": Curve([0.1, 0.01]), "anneal_env_steps": 40, "drift": random_drift(1, 2)},
    ),
    "spo": Case(
        SPO,
        jaxrl.spo,
        CROWD,
        jaxrl.SPOConfig(
            **EPOCHS, **NETWORK, **MIXTURE, num_envs=2, num_steps=8, reset_pool=8, lam_weights="finite-time"
        ),
        {"ratio_eps": 0.1, "ratio_eps_end": 0.5, "anneal_env_steps": 40},
    ),
    "mdpo": Case(
        MDPO,
        jaxrl.mdpo,
        SINGLE,
        jaxrl.MDPOConfig(**EPOCHS, **NETWORK, num_envs=2, num_steps=8, reset_pool=8, lam_weights="finite-time"),
        {"step_size": 0.5, "anneal_env_steps": 40},
    ),
    "mdpo, continuous": Case(
        MDPO,
        jaxrl.mdpo,
        CONTINUOUS,
        jaxrl.MDPOConfig(**EPOCHS, **NETWORK, **MIXTURE, num_envs=2, num_steps=8, reset_pool=8),
        {"step_size": 0.5, "step_size_end": 1.0},
    ),
    "ppo_kl": Case(
        PPOKL,
        jaxrl.ppo_kl,
        SINGLE,
        jaxrl.PPOKLConfig(**EPOCHS, **NETWORK, **MIXTURE, num_envs=2, num_steps=8, reset_pool=8),
        {"kl_target": 0.003},
    ),
    "a2c": Case(
        A2C, jaxrl.a2c, SINGLE, jaxrl.A2CConfig(**NETWORK, num_envs=3, num_steps=5, reset_pool=5), {"lam": 0.8}
    ),
    "a2c of a crowd": Case(
        A2C,
        jaxrl.a2c,
        CROWD,
        jaxrl.A2CConfig(**NETWORK, **MIXTURE, num_envs=3, num_steps=5, reset_pool=5, normalise_advantage="batch"),
        {},
    ),
    "a2c, learned optimiser": Case(
        A2C,
        jaxrl.a2c,
        CONTINUOUS,
        jaxrl.A2CConfig(**NETWORK, num_envs=3, num_steps=5, reset_pool=5, optimiser="learned", optimiser_width=2),
        {"optimiser": random_optimiser(0, 2), "anneal_env_steps": 40, "lr": 0.02},
    ),
    "reinforce": Case(
        Reinforce,
        jaxrl.reinforce,
        SINGLE,
        jaxrl.ReinforceConfig(**NETWORK, num_envs=1, num_steps=2, reset_pool=2),
        {},
    ),
    "reinforce without a critic": Case(
        Reinforce,
        jaxrl.reinforce,
        CROWD,
        jaxrl.ReinforceConfig(**NETWORK, num_envs=2, num_steps=6, reset_pool=6, baseline="off", time_limits="terminal"),
        {},
    ),
}
HYPERBOLIC = {"ppo, ugae, rewound", "ppo of a crowd", "mdpo, continuous", "ppo_kl", "a2c of a crowd", "spo"}
HYPERBOLIC |= {"reinforce without a critic"}


@pytest.mark.seconds_to_compile(40)
@pytest.mark.slow_rows("ppo, falling", "reinforce without a critic", "a2c of a crowd", "mdpo, continuous")
@pytest.mark.parametrize("name", CASES)
def test_an_iteration_is_that_of_float64(name: str) -> None:
    case = CASES[name]
    algo, env_params = case.build(case.env, case.config), case.env.default_params
    numbers = {"lr": 0.05, "adam_eps": 0.1, "lam": 0.7, "max_grad_norm": 0.5, "entropy_coef": 0.02, **case.hparams}
    numbers = float64.effective(algo, numbers)
    numbers["discount"] = f"hyperbolic:k={K}" if name in HYPERBOLIC else GAMMA
    curve = (lambda t: 1 / (1 + K * t)) if name in HYPERBOLIC else (lambda t: GAMMA**t)
    hparams = algo.prepare(dataclasses.replace(algo.hparams, **numbers))
    iterations = ITERATIONS * (4 if case.reference is Reinforce else 1)
    init_key, *keys = jax.random.split(jax.random.key(0), 1 + iterations)
    state, step = quick_jit(algo.init)(init_key, hparams, env_params), quick_jit(algo.step)
    reference = case.reference(algo, hparams, state.weights, init_key, curve)
    start, both, truncated = reference.weights, 0, False
    for iteration, key in enumerate(keys):
        state, _ = step(key, jnp.int32(iteration), state, hparams, env_params)
        reference.step(key)
        both, truncated = reference.walk.both, truncated or reference.steps.truncated.any()
        # A gradient is a sum of numbers of at most 10 with relative roundings of 1e-6 in all, and Adam enlarges its
        # error by at most lr / eps = 0.5 at each of at most four updates an iteration.
        atol = 2e-5 * (1 + iteration)
        reference.assert_same(state, atol)
    moves = np.abs(float64.vector_of(reference.weights) - float64.vector_of(start))
    assert np.median(moves[moves > 0]) > 10 * atol
    assert both and truncated
    if isinstance(reference, PPO) and np.isfinite(hparams.target_kl):
        assert len(set(reference.stops)) > 1, "some iterations learn from more minibatches than others"
    if isinstance(reference, PPOKL):
        assert len(set(reference.coefficients)) > 1
    if name == "reinforce":
        assert 0.0 in reference.complete[1:] and max(reference.complete) > 0
