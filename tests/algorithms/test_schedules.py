"""Schedules of every algorithm that has some: what they change and over how long, and what ends learning."""

from typing import Any

import jax.numpy as jnp
import pytest
from linear_task import LinearTask

from jaxrl.algorithms.registry import ROWS, builder_of, config_class

ANNEALED = [name for name in ROWS if name != "evolve"]
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
