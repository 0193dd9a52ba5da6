"""Gradients of each algorithm on random samples, compared with finite differences of its loss in float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import envs
import jaxrl
from envs.base import spaces
from jaxrl.algorithms import a2c, mdpo, ppo, ppo_kl, reinforce, spo
from jaxrl.algorithms.on_policy_parts import Learner, Parts, Samples
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.critics import single_critic
from jaxrl.learning.optimisers import adam

EPS = float(np.finfo(np.float32).eps)
STATES, ACTIONS, STEPS, ENVS = 3, 4, 5, 4
EPOCHS, LR = 3, 0.5
VALUE_COEF, ENTROPY_COEF = 0.5, 0.1
CLIP, RATIO_EPS, STEP_SIZE, KL_COEF = 0.1, 0.15, 0.4, 0.7
IN_EPOCHS: Any = {"num_envs": ENVS, "num_steps": STEPS, "num_epochs": EPOCHS, "num_minibatches": 1}
ONCE: Any = {"num_envs": ENVS, "num_steps": STEPS}
CASES: Any = {
    "ppo": (ppo, jaxrl.PPOConfig(**IN_EPOCHS, normalise_advantage="off"), {"clip_eps": CLIP}),
    "ppo, normalised": (ppo, jaxrl.PPOConfig(**IN_EPOCHS), {"clip_eps": CLIP}),
    "spo": (spo, jaxrl.SPOConfig(**IN_EPOCHS, normalise_advantage="batch"), {"ratio_eps": RATIO_EPS}),
    "mdpo": (mdpo, jaxrl.MDPOConfig(**IN_EPOCHS, normalise_advantage="off"), {"step_size": STEP_SIZE}),
    "ppo_kl": (ppo_kl, jaxrl.PPOKLConfig(**IN_EPOCHS, normalise_advantage="off"), {"kl_coef": KL_COEF}),
    "a2c": (a2c, jaxrl.A2CConfig(**ONCE), {}),
    "reinforce": (reinforce, jaxrl.ReinforceConfig(**ONCE), {}),
    "reinforce, off": (reinforce, jaxrl.ReinforceConfig(**ONCE, baseline="off", time_limits="terminal"), {}),
}


def tables(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Logits and values of each state: the network is a table."""
    return {"logits": rng.normal(0, 1, (STATES, ACTIONS)), "values": rng.normal(0, 1, STATES)}


def drawn(rng: np.random.Generator, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Samples `[T, num_envs]` whose old log-probabilities differ from those of the tables by about a tenth."""
    state, action = rng.integers(STATES, size=(STEPS, ENVS)), rng.integers(ACTIONS, size=(STEPS, ENVS))
    log_prob = special.log_softmax(params["logits"], axis=-1)[state, action] + rng.normal(0, 0.1, state.shape)
    numbers = {name: rng.normal(0, 1, state.shape) for name in ("advantage", "target", "value")}
    return {"state": state, "action": action, "log_prob": log_prob, "weight": rng.random(state.shape) < 0.7, **numbers}


def loss(name: str, logits: np.ndarray, values: np.ndarray, old_logits: np.ndarray, of: Any) -> float:
    """The loss of an algorithm, sample by sample."""
    advantages, total, share = of["advantage"].copy(), 0.0, of["weight"].sum()
    if name in ("ppo, normalised", "spo"):
        kept = advantages[of["weight"]]
        advantages = (advantages - kept.mean()) / np.sqrt(kept.var() + 1e-8)
    for at in zip(*np.nonzero(of["weight"]), strict=True):
        state, action, advantage = of["state"][at], of["action"][at], advantages[at]
        logs, olds = special.log_softmax(logits[state]), special.log_softmax(old_logits[state])
        ratio = np.exp(logs[action] - of["log_prob"][at])
        if name.startswith("ppo") and name != "ppo_kl":
            policy = -min(ratio * advantage, min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage)
        elif name == "spo":
            policy = -(advantage * ratio - abs(advantage) * (ratio - 1) ** 2 / (2 * RATIO_EPS))
        elif name == "mdpo":
            policy = -ratio * advantage + np.sum(np.exp(logs) * (logs - olds)) / STEP_SIZE
        elif name == "ppo_kl":
            policy = -ratio * advantage + KL_COEF * np.sum(np.exp(olds) * (olds - logs))
        elif name == "reinforce, off":
            policy = -logs[action] * of["target"][at]
        else:
            policy = -logs[action] * advantage
        if name != "reinforce, off":
            policy += VALUE_COEF * (values[state] - of["target"][at]) ** 2 / 2
        total += (policy + ENTROPY_COEF * np.sum(np.exp(logs) * logs)) / share
    return total


def learned_by_hand(name: str, params: dict[str, np.ndarray], of: Any, count: int) -> dict[str, np.ndarray]:
    """The weights after steps of Adam without memory and with a stabiliser of 1: lr g / (|g| + 1)."""
    now = {key: table.copy() for key, table in params.items()}
    for _ in range(count):
        gradient = {key: np.zeros_like(table) for key, table in now.items()}
        for key, table in now.items():
            for at in np.ndindex(*table.shape):
                sides = []
                for move in (1e-6, -1e-6):
                    moved = {k: t.copy() for k, t in now.items()}
                    moved[key][at] += move
                    sides.append(loss(name, moved["logits"], moved["values"], params["logits"], of))
                gradient[key][at] = (sides[0] - sides[1]) / 2e-6
        now = {key: table - LR * gradient[key] / (np.abs(gradient[key]) + 1) for key, table in now.items()}
    return now


@pytest.mark.slow_rows("mdpo", "ppo", "ppo, normalised", "ppo_kl", "spo")
@pytest.mark.parametrize("name", CASES)
def test_what_is_learned_from_random_samples_is_that_of_the_loss(name: str) -> None:
    module, config, own = CASES[name]
    rng = np.random.default_rng(0)
    params = {key: table.astype(np.float32).astype(np.float64) for key, table in tables(rng).items()}
    of = drawn(rng, params)

    class Tables:
        @staticmethod
        def apply(params: Any, obs: Any) -> Any:
            return params["logits"][obs], params["values"][obs]

    network: Any = Tables()
    learn = module.make_learn(
        Parts(config, action_head(spaces.Discrete(ACTIONS)), single_critic(), network, ENVS, STEPS * ENVS, None)
    )
    algo = getattr(jaxrl, module.__name__.rpartition(".")[2])(envs.make("cartpole"), config)
    linear: Any = {"adam_b1": 0.0, "adam_b2": 0.0, "adam_eps": 1.0, "max_grad_norm": np.inf}
    value_coef = {} if name == "reinforce, off" else {"value_coef": VALUE_COEF}
    hparams = algo.prepare(algo.hparams.replace(entropy_coef=ENTROPY_COEF, **linear, **value_coef, **own))
    weights: Any = ({key: jnp.asarray(table, jnp.float32) for key, table in params.items()}, None)
    start = Learner(weights, adam(hparams, LR).init(weights), jnp.float32(KL_COEF))
    numbers = {key: jnp.asarray(of[key], jnp.float32) for key in ("log_prob", "value", "advantage", "target", "weight")}
    scores = {"logits": jnp.asarray(params["logits"], jnp.float32)[of["state"]]} if name in ("mdpo", "ppo_kl") else None
    state, action = jnp.asarray(of["state"]), jnp.asarray(of["action"])
    samples = Samples(obs=state, raw_action=action, mask=None, scores=scores, **numbers)
    learner, metrics = jax.jit(learn)(jax.random.key(0), start, samples, hparams, jnp.float32(LR))
    assert all(np.isfinite(value) for value in metrics.values())
    exact = learned_by_hand(name, params, of, EPOCHS if hasattr(config, "num_epochs") else 1)
    for key, table in exact.items():
        # Gradients of numbers of at most 10 with some 32 roundings each, in steps that do not enlarge them.
        np.testing.assert_allclose(learner.weights[0][key], table, rtol=0, atol=EPOCHS * LR * 32 * 10 * EPS)
    assert np.abs(exact["logits"] - params["logits"]).max() > 0.02
    assert (np.abs(exact["values"] - params["values"]).max() > 0.02) == (name != "reinforce, off")
