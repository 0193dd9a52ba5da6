"""The loop of one run: evaluations of failed runs, and errors for clashing names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import agents
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.base import MetricRule
from jaxrl.algorithms.contract import Algorithm, prepared_for
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning.actor import memoryless
from jaxrl.runtime.loop import Run, make_loop


@flax.struct.dataclass
class HParams:
    """Hyper-parameters with only a discount."""

    discount: Any = Exponential(0.9)


class Policy(NamedTuple):
    """A weight, with metrics that may be NaN or infinite without a failure."""

    weight: jax.Array
    bound: jax.Array
    count: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]


@dataclass(frozen=True)
class NamedCrowd(agents.Crowd):
    """A crowd with one more metric, of any name."""

    extra: str = "acting"

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        return {**super().metric_rules, self.extra: "last"}

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        *rest, info = super().step_env(key, state, action, params)
        return *rest, {**info, "metrics": {**info["metrics"], self.extra: jnp.float32(7.0)}}


def algorithm(weight: float = 1.0, loss: float = 0.0, env: Any = None, metric: str = "loss") -> Algorithm:
    """An algorithm that always takes the first action, like an argmax over NaNs."""

    def init(key: jax.Array, hparams: Any, env_params: Any) -> jax.Array:
        return jnp.full(3, weight)

    def scores(policy: Policy, obs: jax.Array, mask: Any) -> dict[str, jax.Array]:
        return {"logits": jnp.broadcast_to(policy.weight, (*obs.shape[:-1], 3))}

    def choose(noise: Any, scores: Any, greedy: Any, mask: Any) -> tuple[jax.Array, None]:
        return jnp.argmax(scores["logits"], axis=-1), None

    return Algorithm(
        name="still",
        env=agents.Crowd() if env is None else env,
        config=None,
        hparams=HParams(),
        init=init,
        step=lambda key, iteration, state, hparams, env_params: (state, {metric: jnp.float32(loss)}),
        policy=lambda state, hparams: Policy(state, jnp.float32(jnp.inf), jnp.int32(3)),
        actor=memoryless(scores, jax.random.uniform, choose),
        env_steps_per_iteration=1,
        prepare=prepared_for(8),
        discount=lambda hparams: hparams.discount,
    )


def evaluated(algo: Algorithm) -> dict[str, Any]:
    loop, key = make_loop(algo, eval_episodes=2), jax.random.key(0)
    arguments = (algo.prepare(algo.hparams), algo.env.default_params)

    def run() -> tuple[Run, dict[str, jax.Array]]:
        begun = loop.init(key, *arguments)
        return loop.evaluate(loop.advance(begun, key, *arguments, 0, 2), key, *arguments, 2)

    return jax.device_get(jax.jit(run)()[1])


EPISODE_METRICS = [
    f"{name}{suffix}"
    for name in ("return", "discounted_return", "length", "acting", "share", "total")
    for suffix in ("", "_sampled")
]


def test_a_healthy_run_has_finite_metrics_although_a_bound_is_infinite() -> None:
    metrics = evaluated(algorithm())
    assert set(metrics) == {*EPISODE_METRICS, "loss"}
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["length"] == 3


def test_without_a_discount_there_is_no_discounted_return() -> None:
    metrics = evaluated(algorithm()._replace(discount=None))
    assert set(metrics) == {name for name in EPISODE_METRICS if not name.startswith("discounted")} | {"loss"}


def test_metrics_are_reduced_by_their_rules() -> None:
    def step(
        key: Any, iteration: Any, state: jax.Array, hparams: Any, env_params: Any
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        return state + 1, dict.fromkeys(("mean", "last", "sum"), state[0])

    algo = algorithm()._replace(step=step, metric_rules={"last": "last", "sum": "sum"})
    metrics = evaluated(algo)
    assert {name: metrics[name] for name in ("mean", "last", "sum")} == {"mean": 1.5, "last": 2.0, "sum": 3.0}


@pytest.mark.parametrize(("weight", "loss"), [(np.nan, 0.0), (1.0, np.nan), (1.0, np.inf)])
def test_a_failed_run_has_no_episode_metrics_although_it_acts(weight: float, loss: float) -> None:
    metrics = evaluated(algorithm(weight, loss))
    assert all(np.isnan(metrics[name]) for name in EPISODE_METRICS)
    np.testing.assert_equal(metrics["loss"], np.float32(loss))


@pytest.mark.parametrize(
    "extra", ["return", "discounted_return", "length", "return_sampled", "length_sampled", "share_sampled"]
)
def test_a_metric_named_like_an_evaluations_own_is_refused(extra: str) -> None:
    with pytest.raises(ValueError, match=f"metric_rules of NamedCrowd has {extra}, which are metrics of the eval"):
        evaluated(algorithm(env=NamedCrowd(extra=extra)))


def test_a_metric_named_like_the_algorithms_is_refused() -> None:
    assert evaluated(algorithm(env=NamedCrowd(extra="lost")))["lost"] == 7
    with pytest.raises(ValueError, match="loss is a metric of still and of the evaluation of NamedCrowd too"):
        evaluated(algorithm(env=NamedCrowd(extra="loss")))
    with pytest.raises(ValueError, match="return is a metric of still and of the evaluation of Crowd too"):
        evaluated(algorithm(metric="return"))
