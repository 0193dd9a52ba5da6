"""Schedules of every algorithm that has some: what they change and over how long, and what ends learning."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask

import jaxrl
from jaxrl import Curve
from jaxrl.algorithms.registry import ROWS, builder_of, config_class
from jaxrl.runtime.training import _warn_of_schedules

ANNEALED = [name for name in ROWS if name != "evolve"]
CURVED = ("ppo", "spo", "mdpo", "ppo_kl", "a2c", "reinforce")
FIXED = {"automatic_temperature": False}


def built(name: str, fields: dict[str, Any]) -> tuple[Any, Any]:
    """A small algorithm, and its hyper-parameters without a schedule."""
    builder, env = builder_of(name), LinearTask(discrete=name not in ("sac", "td3"))
    algo = builder(env, config_class(builder)(**{**ROWS[name].small, **fields}))
    return algo, algo.hparams.replace(**dict.fromkeys(algo.hparams.final_fractions, 1.0))


def numbers(hparams: Any) -> dict[str, float]:
    """Hyper-parameters with an effect, without the discount."""
    return {name: float(value) for name, value in vars(hparams).items() if name != "discount" and value is not None}


@pytest.mark.parametrize(("name", "fields"), [*((name, {}) for name in ANNEALED), ("sac", FIXED)])
def test_a_final_fraction_changes_its_own_values_over_the_run(name: str, fields: dict[str, Any]) -> None:
    algo, constant = built(name, fields)
    assert jnp.isinf(algo.prepare(constant, None, 100).anneal_env_steps)
    for end in constant.final_fractions:
        prepared = algo.prepare(constant.replace(**{end: 0.5}), None, 100)
        expected = numbers(prepared)
        scaled = expected.keys() & set(constant.schedules[end])
        assert scaled
        for env_steps, share in ((50, 0.75), (200, 0.5)):
            values = {name: value * (share if name in scaled else 1) for name, value in expected.items()}
            assert numbers(prepared.at(jnp.float32(env_steps))) == pytest.approx(values)


@pytest.mark.parametrize("name", ANNEALED)
def test_a_step_size_of_0_ends_learning(name: str) -> None:
    algo, constant = built(name, {})
    assert algo.stopped(algo.prepare(constant, None, 100), 100) is None
    prepared = algo.prepare(constant.replace(lr_end=0.0), None, 100)
    assert algo.stopped(prepared, 99) is None
    assert algo.stopped(prepared, 100).endswith("within 100 env steps (lr_end=0)")


@pytest.mark.parametrize("name", CURVED)
def test_a_curve_covers_the_run_and_every_step_reads_its_value(name: str) -> None:
    algo, constant = built(name, {})
    fields = [
        field for field, kind in constant.composites.items() if kind is Curve and vars(constant)[field] is not None
    ]
    values = {field: np.linspace(0.2, 0.9, 3 + i)[::-1] ** 2 for i, field in enumerate(fields)}
    hparams = constant.replace(**{field: Curve(each) for field, each in values.items()})
    prepared = algo.prepare(hparams, None, 100)
    assert prepared.curved == fields and prepared.anneal_env_steps == 100
    assert jnp.isinf(algo.prepare(hparams).anneal_env_steps)
    for env_steps in (0, 30, 99, 100, 300):
        now = prepared.at(jnp.float32(env_steps))
        for field, each in values.items():
            exact = np.interp(env_steps, np.linspace(0, 100, len(each)), each)
            assert float(getattr(now, field)) == pytest.approx(exact, rel=1e-5), field
    key, params = jax.random.key(0), algo.env.default_params
    state = jax.eval_shape(algo.init, key, prepared, params)
    stepped, _ = jax.eval_shape(algo.step, key, jnp.int32(0), state, prepared, params)
    assert jax.tree.structure(stepped) == jax.tree.structure(state)


def test_a_curve_of_the_step_size_that_ends_at_0_ends_learning() -> None:
    algo, constant = built("ppo", {})
    falling = algo.prepare(constant.replace(lr=Curve([1e-3, 1e-4, 0.0])), None, 100)
    assert algo.stopped(falling, 99) is None
    assert algo.stopped(falling, 100).endswith("fell to 0 within 100 env steps (lr is a curve)")
    assert algo.stopped(algo.prepare(constant.replace(lr=Curve([0.0, 1e-3])), None, 100), 100) is None


def test_a_longer_run_keeps_the_end_of_a_curve_and_reports_this() -> None:
    algo, constant = built("ppo", {})
    hparams = jax.tree.map(np.float32, constant).replace(clip_eps=Curve([0.2, 0.1]))
    short, longer = (algo.prepare(hparams, None, env_steps) for env_steps in (100, 200))
    with pytest.warns(RuntimeWarning, match="schedules of clip_eps end after the first 100 env steps"):
        _warn_of_schedules(100, short, longer)


def test_a_curve_without_effect_is_refused() -> None:
    algo, constant = built("reinforce", {})
    with pytest.raises(ValueError, match=r"lam has no effect on this environment and configuration, got curve:0.1,1;"):
        algo.prepare(constant.replace(lam=Curve([0.1, 1.0])))


@pytest.mark.slow
def test_a_training_with_constant_curves_is_that_with_their_numbers_bit_for_bit() -> None:
    algo, constant = built("ppo", {})
    train = jaxrl.make_train(algo, env_steps=5 * algo.env_steps_per_iteration, evals=1, eval_episodes=2)
    plain = {"lr": 3e-3, "lam": 0.9, "entropy_coef": 0.01, "clip_eps": 0.2}
    curves = {name: Curve([value] * 4) for name, value in plain.items()}
    keys = jax.random.split(jax.random.key(0), 3)
    with_numbers, with_curves = (
        jax.jit(jax.vmap(train, in_axes=(0, None)))(keys, constant.replace(**fields)) for fields in (plain, curves)
    )
    for one, other in zip(*map(jax.tree.leaves, (with_numbers.policy, with_curves.policy)), strict=True):
        np.testing.assert_array_equal(one, other)
