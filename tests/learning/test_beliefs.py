"""Beliefs compared with float64 NumPy, and the learning of PPO from them."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import envs
import jaxrl
from envs.cooperation.levers import LeverGame
from jaxrl.learning.beliefs import LOG_STD, Belief, belief_about

BELIEF = Belief((3, 2, 2), (True, False, True))
LEVERS = LeverGame(num_levers=2)
TINY = jaxrl.PPOConfig(
    num_envs=4, num_steps=12, num_epochs=1, num_minibatches=2, hidden=(6,), memory="gru", memory_size=5, reset_pool=4
)


@pytest.mark.slow
def test_a_belief_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(5, 4, BELIEF.num_outputs))
    first, number, last = rng.integers(0, 3, (5, 4)), rng.normal(size=(5, 4, 2)), rng.integers(0, 2, (5, 4))
    logits, mean, others = outputs[..., :3], outputs[..., 3:5], outputs[..., 7:]
    log_std = np.clip(outputs[..., 5:7], *LOG_STD)
    chance, of_others = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (logits, others))
    log_prob = np.log(np.take_along_axis(chance, first[..., None], -1)[..., 0])
    log_prob += np.log(np.take_along_axis(of_others, last[..., None], -1)[..., 0])
    log_prob += stats.norm.logpdf(number, mean, np.exp(log_std)).sum(-1)
    single = jnp.float32(outputs)
    behaviour = (jnp.int32(first), jnp.float32(number), jnp.int32(last))
    # Sums of some ten float32 terms of size ten at most.
    np.testing.assert_allclose(BELIEF.log_prob(single, behaviour), log_prob, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(BELIEF.mean(single), np.concatenate([chance, mean, of_others], -1), rtol=1e-5, atol=1e-6)
    entropies = [stats.entropy(each, axis=-1) / math.log(each.shape[-1]) for each in (chance, of_others)]
    expected = np.concatenate([entropies[0][..., None], np.exp(log_std), entropies[1][..., None]], -1)
    np.testing.assert_allclose(BELIEF.uncertainty(single), expected, rtol=1e-5, atol=1e-6)


def test_a_belief_about_a_number_is_never_certain() -> None:
    outputs = jnp.float32([0.0, -50.0])
    number = Belief((1,), (False,))
    np.testing.assert_allclose(number.uncertainty(outputs), [math.exp(LOG_STD[0])], rtol=1e-6)
    assert np.isfinite(number.log_prob(outputs, (jnp.ones(1),)))


def test_it_is_about_the_behaviour_of_one_agent() -> None:
    assert belief_about(LEVERS, ()) == Belief((7, 2, 1), (True, True, False))
    with pytest.raises(ValueError, match=r"belief takes an environment of one agent .* got cartpole without one"):
        jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(TINY, belief="conditioned"))
    with pytest.raises(ValueError, match="got cooperation/levers-self-play with several agents"):
        jaxrl.ppo(envs.make("cooperation/levers-self-play"), dataclasses.replace(TINY, belief="random"))
    with pytest.raises(ValueError, match="belief='auxiliary' takes a memory"):
        jaxrl.PPOConfig(belief="auxiliary")
    for belief, effective in {
        "none": (),
        "random": (),
        "auxiliary": ("belief_coef",),
        "staged": ("belief_env_steps",),
    }.items():
        hparams = jaxrl.ppo(LEVERS, dataclasses.replace(TINY, belief=belief)).hparams
        for name in ("belief_coef", "belief_env_steps"):
            assert (getattr(hparams, name) is not None) == (name in effective)


def gradients(config: Any, belief_coef: float) -> tuple[Any, ...]:
    """The parameters of PPO after one iteration less those before, and its metrics; and the algorithm."""
    algo = jaxrl.ppo(LEVERS, config)
    hparams = algo.hparams
    if hparams.belief_coef is not None:
        hparams = hparams.replace(belief_coef=belief_coef)
    hparams = algo.prepare(hparams)

    @jax.jit
    def run(key: jax.Array) -> Any:
        state = algo.init(key, hparams, LEVERS.default_params)
        after, metrics = algo.step(key, jnp.int32(0), state, hparams, LEVERS.default_params)
        moved = jax.tree.map(jnp.subtract, after.weights[0], state.weights[0])
        return moved["params"], metrics, algo.policy(after, hparams)

    return *run(jax.random.key(0)), algo


@pytest.mark.slow
def test_supervision_alone_changes_the_belief() -> None:
    """Without a weight the layer of the belief does not change, although the policy sees it; with a weight it does."""
    config = dataclasses.replace(TINY, belief="conditioned")
    unsupervised, metrics, *_ = gradients(config, 0.0)
    # Initial parameters are computed twice, and differ by roundings of numbers below 1; a step of Adam has about lr.
    rounding, shortest = 1e-6, 1e-4
    assert all(np.abs(leaf).max() < rounding for leaf in jax.tree.leaves(unsupervised["heads"]["belief_layer"]))
    assert all(np.abs(leaf).max() > shortest for leaf in jax.tree.leaves(unsupervised["heads"]["heads"]))
    supervised, metrics, policy, algo = gradients(config, 1.0)
    assert np.abs(supervised["heads"]["belief_layer"]["kernel"]).max() > shortest
    # Seven rules and two levers, about as likely at first, and a rate of 0 under a standard deviation of about 1.
    assert 2.0 < metrics["belief_loss"] < math.log(7) + math.log(2) + 3.0
    # The acting policy has the belief among its scores.
    memory = jax.tree.map(lambda leaf: leaf[None], algo.actor.initial_memory(policy))
    scores, _ = algo.actor.scores(policy, memory, jnp.zeros((1, 7)), None)
    assert scores["logits"].shape == (1, 3) and scores["belief"].shape == (1, 7 + 2 + 2)


@pytest.mark.slow
def test_a_staged_belief_is_trained_alone_and_then_constant() -> None:
    algo = jaxrl.ppo(LEVERS, dataclasses.replace(TINY, belief="staged", num_minibatches=1))
    # Two iterations of 4 environments and 12 steps; without a first moment, the first step of Adam is the step size.
    hparams = algo.prepare(algo.hparams.replace(belief_env_steps=96.0, adam_b1=0.0))

    @jax.jit
    def run(key: jax.Array) -> Any:
        def step(state: Any, iteration: jax.Array) -> Any:
            state, _ = algo.step(key, iteration, state, hparams, LEVERS.default_params)
            return state, state.weights[0]["params"]

        state = algo.init(key, hparams, LEVERS.default_params)
        return state.weights[0]["params"], jax.lax.scan(step, state, jnp.arange(4))[1]

    first, later = jax.tree.map(np.asarray, run(jax.random.key(0)))
    moved = []
    for iteration in range(4):
        before = first if iteration == 0 else jax.tree.map(lambda leaf, i=iteration: leaf[i - 1], later)
        change = jax.tree.map(lambda new, old, i=iteration: np.abs(new[i] - old).max(), later, before)
        actor_critic = max(jax.tree.leaves(change["heads"].pop("heads")))
        moved.append((max(jax.tree.leaves(change)), actor_critic))
    # Initial parameters are computed twice, and differ by roundings of numbers below 1; later ones are equal.
    assert all(belief > 1e-4 and heads < (1e-6 if i == 0 else 1e-12) for i, (belief, heads) in enumerate(moved[:2]))
    assert all(belief == 0 and heads > 1e-4 for belief, heads in moved[2:])
    assert moved[2][1] <= (1 + 1e-3) * hparams.lr  # not sqrt(3) times, without the correction for two steps before


@pytest.mark.slow
@pytest.mark.parametrize("belief", ["conditioned", "staged", "auxiliary", "random"])
def test_every_use_of_a_belief_keeps_the_laws(belief: Any) -> None:
    algo = jaxrl.ppo(LEVERS, dataclasses.replace(TINY, belief=belief, num_epochs=2))
    if belief == "staged":  # both stages, within the two iterations that are compared
        algo = algo._replace(hparams=algo.hparams.replace(belief_env_steps=60.0, entropy_decay_env_steps=1_000.0))
    jaxrl.check(algo)


@pytest.mark.slow
def test_beliefs_learn_to_identify_the_partner() -> None:
    """Two partners, which differ in their first pull."""
    config = dataclasses.replace(TINY, num_envs=32, num_epochs=4, num_minibatches=4, hidden=(16,), memory_size=16)
    algo = jaxrl.ppo(LEVERS, dataclasses.replace(config, belief="conditioned"))
    rules = np.asarray(LEVERS.default_params.population.rule)
    weights = np.float32(rules == 0)  # the partner prefers one lever or the other
    params = dataclasses.replace(LEVERS.default_params, weights=weights)
    result = jaxrl.train(algo, algo.hparams.replace(lr=3e-3), seeds=8, env_steps=40_000, evals=1, env_params=params)
    # The preference is uncertain at the first of eight steps alone: log(2) / 8. The rate has no spread, so its part is
    # bounded below by that of the smallest standard deviation. A belief that ignores the memory has log(2).
    least = math.log(2) / 8 + LOG_STD[0] + 0.5 * math.log(2 * math.pi)
    losses = result.values("belief_loss")[0, :, -1]
    assert least - 0.01 < np.median(losses) < least + math.log(2) / 2
    optimum: Any = LEVERS.optimum(params)
    # Guess once, then always right: 7.45 of 8.
    assert np.median(result.values("return")[0, :, -1]) > 0.95 * optimum
