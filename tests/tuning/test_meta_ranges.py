"""Meta-training with thetas that lead outside of the ranges of hyper-parameters, and with trainings that all fail."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paraboloid_algorithm import CURVATURE, PEAK, PER_ITERATION, paraboloid, place_theta

import jaxrl
from envs.errors import UserValueError
from jaxrl.checks import is_concrete
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.options import MetaOptions, checked
from jaxrl.tuning.learned.theta import Theta
from jaxrl.tuning.outer.gradient_task import GradientTask
from jaxrl.tuning.outer.held_out import Comparison
from jaxrl.tuning.outer.inner_task import InnerTask

HIGHEST = 0.6  # of x


def bounded() -> Any:
    """The paraboloid, which refuses x above `HIGHEST`."""

    def prepare(hparams: Any, num_settings: int | None = None, run_length: int | None = None) -> Any:
        del num_settings, run_length
        if is_concrete(hparams.x) and np.any(np.asarray(hparams.x) > HIGHEST):
            raise UserValueError(f"x must be at most {HIGHEST}, got {hparams.x}")
        return hparams

    return paraboloid()._replace(prepare=prepare)


def meta(algo: Any, theta: Theta, **changes: Any) -> jaxrl.MetaResult:
    options: dict[str, Any] = {
        "inner_steps": PER_ITERATION,
        "generations": 1,
        "population": 8,
        "seeds": 1,
        "test_seeds": 0,
    }
    options |= {"eval_episodes": 1, "progress": False} | changes
    return jaxrl.meta(algo, theta, **options)


def test_thetas_outside_of_ranges_are_marked_and_fail() -> None:
    task = InnerTask(bounded(), place_theta(), PER_ITERATION, 1, 1, "final", "return")
    x = np.asarray([0.0, 0.7, 0.5, 0.9, 0.6, -3.0, 0.61], np.float32)
    thetas, outside = task.within_ranges({"x": x, "y": np.zeros(7, np.float32)})
    np.testing.assert_array_equal(outside, x > np.float32(HIGHEST))
    np.testing.assert_array_equal(thetas["x"], np.where(outside, 0.0, x))


def test_members_outside_of_ranges_are_counted_and_left_out_of_means() -> None:
    learned = meta(bounded(), place_theta(HIGHEST - 0.3), std=0.5, generations=2, inner_seeds=2)
    failed = learned.result.values("failed")[0, 0]
    assert np.all((failed > 0) & (failed < 16) & (failed % 2 == 0))
    returns = learned.result.values("return")[0, 0]
    assert np.all(np.isfinite(returns))
    # The best that a member within the range can reach.
    assert np.all(learned.result.values("best_return") <= -(CURVATURE[0] * (HIGHEST - PEAK[0]) ** 2) + 1e-5)


def test_a_generation_of_members_outside_of_ranges_ends_no_call() -> None:
    task = InnerTask(bounded(), place_theta(), PER_ITERATION, 1, 1, "final", "return")
    thetas = {"x": np.asarray([1.0, 2.0], np.float32), "y": np.zeros(2, np.float32)}
    options = checked(jaxrl.meta, MetaOptions, {"progress": False})
    for each in (task, GradientTask(task)):
        waves = each.waves(jax.tree.map(np.zeros_like, thetas), plan_layout(2, 2, None), options)
        outcome = each.train(waves, thetas, np.arange(2), StopRequest())
        assert outcome is not None and np.isnan(outcome.value).all()
        one = {"x": np.asarray([1.0, 0.2], np.float32), "y": np.zeros(2, np.float32)}
        outcome = each.train(waves, one, np.arange(2), StopRequest())
        assert outcome is not None
        expected = [np.nan, -CURVATURE[0] * (0.2 - PEAK[0]) ** 2 - CURVATURE[1] * PEAK[1] ** 2]
        np.testing.assert_allclose(outcome.value, expected, rtol=1e-5)


def test_a_learned_theta_outside_of_ranges_is_left_out_of_the_comparison() -> None:
    comparison = Comparison([bounded()], place_theta(), PER_ITERATION, 1, 3, "final", "none")
    options = checked(jaxrl.meta, MetaOptions, {"progress": False})
    learned = [{"x": np.float32(x), "y": np.float32(0)} for x in (0.2, 1.5, 0.3)]
    with pytest.warns(RuntimeWarning, match=r"^theta as learned leads to .* for the outer seeds 5, which are left out"):
        (result,) = comparison.results(learned, [4, 5, 6], None, options, StopRequest()).values()
    assert [setting["theta"] for setting in result.settings] == ["start", "seed 4", "seed 6"]


def test_a_start_near_the_end_of_a_range_is_learned_and_one_between_two_ends_is_refused() -> None:
    assert np.isfinite(meta(bounded(), place_theta(HIGHEST - 0.05), std=0.01).result.values("return")).all()

    def folded(theta: Any, hparams: Any) -> Any:
        return dataclasses.replace(hparams, x=HIGHEST + jnp.abs(theta["x"]), y=theta["y"])

    message = r"^theta 'place' must lead to .* within their ranges, but a change of \['x'\] by 0.25 does not: x must be"
    with pytest.raises(ValueError, match=message):
        meta(bounded(), place_theta()._replace(apply=folded))


def test_trainings_that_all_fail_are_reported_as_such() -> None:
    with pytest.raises(ValueError, match=r"^the objective must be finite, got nan for all .*: lower std, or start"):
        meta(paraboloid(), place_theta(50.0))
    with pytest.warns(
        RuntimeWarning, match=r"^if the other shards are like this one, nothing is learned: the objective"
    ):
        meta(paraboloid(), place_theta(50.0), seeds=2, shard=(0, 2))
    with pytest.raises(
        ValueError, match=r"^the objective must be finite, got nan for all .*: start elsewhere, or lower"
    ):
        meta(paraboloid(), place_theta(50.0), strategy="gradient", population=None)
