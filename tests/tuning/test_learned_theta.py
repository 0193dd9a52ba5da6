"""What an outer loop learns inside PPO: the drift of its objective, its optimiser, and schedules."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask
from paraboloid_algorithm import PER_ITERATION, descent

import jaxrl
from jaxrl import Curve
from jaxrl.algorithms.registry import ROWS
from jaxrl.learning.drift import Drift
from jaxrl.learning.optimisers import LearnedOptimiser
from jaxrl.tuning.learned.drift import learned_drift
from jaxrl.tuning.learned.optimiser import learned_optimiser
from jaxrl.tuning.learned.registry import theta_named
from jaxrl.tuning.learned.schedules import learned_schedule
from jaxrl.tuning.learned.theta import Theta

SMALL = ROWS["ppo"].small


QUICK: dict[str, Any] = {"generations": 2, "population": 4, "seeds": 1, "test_seeds": 2, "eval_episodes": 2}


def ppo(discrete: bool = True, **fields: Any) -> Any:
    return jaxrl.ppo(LinearTask(discrete=discrete), jaxrl.PPOConfig(**{**SMALL, **fields}))


def applied(theta: Theta, algo: Any, value: Any) -> Any:
    """Hyper-parameters of a population of two, of which the second has the numbers `value`."""
    population = jax.tree.map(lambda one, other: jnp.stack([one, other]), theta.initial, value)
    return jax.jit(jax.vmap(lambda each: theta.apply(each, algo.hparams)))(population)


def test_a_learned_drift_begins_as_the_clip_and_reaches_the_hyper_parameters() -> None:
    algo = ppo(drift="learned", drift_width=3)
    theta = learned_drift(algo)
    assert theta.name == "drift" and theta.initial == Drift.initial(3)
    assert theta.apply(theta.initial, algo.hparams) == algo.hparams
    other = jax.tree.map(lambda leaf: leaf + np.float32(0.5), theta.initial)
    hparams = applied(theta, algo, other)
    jax.tree.map(lambda leaf, one: np.testing.assert_array_equal(leaf[1], one), hparams.drift, other)
    assert algo.prepare(jax.tree.map(np.asarray, hparams), 2, 100).drift.offset.tolist() == [0.0, 0.5]
    assert learned_drift(algo._replace(hparams=algo.hparams.replace(drift=other))).initial == other
    with pytest.raises(ValueError, match=r"learned_drift takes PPO with PPOConfig\(drift='learned'\)"):
        learned_drift(ppo())


def test_a_learned_optimiser_begins_as_adam_and_reaches_the_hyper_parameters() -> None:
    algo = ppo(optimiser="learned", optimiser_width=3)
    theta = learned_optimiser(algo)
    assert theta.name == "optimiser" and theta.initial == LearnedOptimiser.initial(3)
    assert theta.apply(theta.initial, algo.hparams) == algo.hparams
    other = jax.tree.map(lambda leaf: leaf + np.float32(0.5), theta.initial)
    hparams = applied(theta, algo, other)
    jax.tree.map(lambda leaf, one: np.testing.assert_array_equal(leaf[1], one), hparams.optimiser, other)
    prepared: Any = algo.prepare(jax.tree.map(np.asarray, hparams), 2, 100)
    assert prepared.optimiser.offset.tolist() == [[0.0, 0.0], [0.5, 0.5]]
    assert prepared.anneal_env_steps.tolist() == [100, 100]
    assert learned_optimiser(algo._replace(hparams=algo.hparams.replace(optimiser=other))).initial == other
    together = theta_named(ppo(optimiser="learned", drift="learned"), ["optimiser", "drift", "lam=0.8:1"])
    assert together.name == "optimiser + drift + lam"
    with pytest.raises(ValueError, match=r"^learned_optimiser takes .* has optimiser='learned', got"):
        learned_optimiser(ppo())


@pytest.mark.parametrize(("name", "start"), [("lr", 3e-3), ("entropy_coef", 0.02), ("clip_eps", 0.2), ("lam", 0.9)])
def test_a_learned_schedule_begins_at_the_number_and_changes_its_logarithm_or_logit(name: str, start: float) -> None:
    algo = ppo()
    algo = algo._replace(hparams=algo.hparams.replace(**{name: start}))
    theta = learned_schedule(algo, name, points=4)
    assert theta.name == f"schedule of {name}" and theta.initial.tolist() == [0.0] * 4
    value = np.asarray([-2.0, 0.0, 0.5, 100.0], np.float32)
    hparams = applied(theta, algo, value)
    curves = getattr(hparams, name).values
    assert np.all(np.asarray(curves[0]) == np.float32(start)), "bit for bit, so that plain PPO is where it begins"
    change = np.clip(value.astype(np.float64), -30, 30)
    odds = start / (1 - start) * np.exp(change)
    exact = odds / (1 + odds) if name == "lam" else start * np.exp(change)
    np.testing.assert_allclose(curves[1], exact, rtol=2e-5)
    rest = dataclasses.replace(hparams, **{name: np.full(2, start)})
    jax.tree.map(lambda leaf, one: np.testing.assert_allclose(leaf, [one, one], rtol=1e-6), rest, algo.hparams)
    slope = jax.grad(lambda each: jnp.sum(getattr(theta.apply(each, algo.hparams), name).values))(theta.initial)
    np.testing.assert_allclose(slope, start * (1 - start) if name == "lam" else start, rtol=1e-5)


def test_a_learned_lambda_begins_bit_equal_under_compilation() -> None:
    algo = ppo()
    for start in (0.05, 0.5, 0.9, 0.95, 0.97, 0.99, 1.0):
        theta = learned_schedule(algo._replace(hparams=algo.hparams.replace(lam=start)), "lam")
        values = jax.jit(jax.vmap(lambda each, theta=theta: theta.apply(each, algo.hparams).lam.values))
        np.testing.assert_array_equal(values(np.zeros((3, 5), np.float32)), np.full((3, 5), start, np.float32))


def test_lambda_of_1_can_be_learned() -> None:
    algo = ppo()
    theta = learned_schedule(algo._replace(hparams=algo.hparams.replace(lam=1.0)), "lam", points=2)
    changes = [np.asarray([change, 0], np.float32) for change in (0, 50, -2, -50)]
    values = [float(theta.apply(change, algo.hparams).lam.values[0]) for change in changes]
    assert values[:2] == [1.0, 1.0] and values[2] == pytest.approx(1 - 6.35e-3, abs=1e-4) and 0 < values[3] < 0.002


def test_an_outer_loop_learns_an_optimiser_that_is_better_than_adam() -> None:
    algo = descent(iterations=4)
    options: dict[str, Any] = {"generations": 8, "population": 16, "seeds": 1, "test_seeds": 8, "block": 16}
    options |= {"inner_seeds": 2, "lr": 0.1, "std": 0.2, "eval_episodes": 1, "progress": False}
    outer = jaxrl.meta(algo, learned_optimiser(algo), inner_steps=4 * PER_ITERATION, **options)
    (held_out,) = outer.held_out.values()
    start, learned = held_out.values("return")[..., -1].mean(-1)
    assert learned > start + 0.3, (start, learned)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["drift", "optimiser", "schedule"])
def test_an_outer_loop_begins_with_plain_ppo_and_learns_from_there(what: str) -> None:
    algo, plain = ppo(False, **({} if what == "schedule" else {what: "learned"})), ppo(False)
    theta = theta_named(algo, ["schedule:lr" if what == "schedule" else what])
    steps = 4 * algo.env_steps_per_iteration
    outer = jaxrl.meta(algo, theta, inner_steps=steps, progress=False, **QUICK)
    leaves = jax.tree.leaves(outer.learned(0))
    assert any(np.any(leaf != first) for leaf, first in zip(leaves, jax.tree.leaves(theta.initial), strict=True))
    start = jaxrl.train(algo, theta.apply(theta.initial, algo.hparams), seeds=2, env_steps=steps, progress=False)
    alone = jaxrl.train(plain, seeds=2, env_steps=steps, progress=False)
    for one, other in zip(jax.tree.leaves(start.policies), jax.tree.leaves(alone.policies), strict=True):
        np.testing.assert_array_equal(one, other)
    learned = jaxrl.train(algo, outer.hparams(), seeds=2, env_steps=steps, progress=False)
    changed = zip(jax.tree.leaves(learned.policies), jax.tree.leaves(alone.policies), strict=True)
    assert any(not np.array_equal(one, other) for one, other in changed)


def test_thetas_that_cannot_be_learned_are_refused() -> None:
    algo = ppo()
    with pytest.raises(ValueError, match=r"may be a curve \(lr, lam, entropy_coef, clip_eps\), got 'value_coef'"):
        learned_schedule(algo, "value_coef")
    with pytest.raises(ValueError, match="points"):
        learned_schedule(algo, "lr", points=1)
    with pytest.raises(ValueError, match=r"lr takes a positive number in algo.hparams"):
        learned_schedule(algo._replace(hparams=algo.hparams.replace(lr=Curve([1.0, 0.0]))), "lr")
    with pytest.raises(ValueError, match="entropy_coef takes a positive number"):
        learned_schedule(algo._replace(hparams=algo.hparams.replace(entropy_coef=0.0)), "entropy_coef")
    with pytest.raises(
        ValueError, match=r"^name takes a field without another schedule, got 'lr': lr_end takes 1 where"
    ):
        learned_schedule(algo._replace(hparams=algo.hparams.replace(lr_end=0.0)), "lr")
    dqn = jaxrl.dqn(LinearTask(discrete=True), jaxrl.DQNConfig(**ROWS["dqn"].small))
    with pytest.raises(ValueError, match=r"dqn that may be a curve \(none here\), got 'lr'"):
        learned_schedule(dqn, "lr")
