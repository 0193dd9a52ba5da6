"""Evaluation of finished policies: each in its own environment, on every device, without failed ones."""

from types import SimpleNamespace
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import memoryless
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.result import Result
from jaxrl.runtime.evaluate_again import evaluate_result

PAYS, SEEDS = (1.0, 2.0), (3, 4, 5, 6, 7)
ACTIONS = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 2, 1]], np.float32)


def algorithm() -> Algorithm:
    def scores(policy: Any, obs: jax.Array, mask: Any) -> dict[str, jax.Array]:
        # A comparison with NaN is false: a failed policy acts too, always by the first action.
        return {"chosen": jnp.where(policy > 1.5, 2, jnp.where(policy > 0.5, 1, 0))}

    def choose(sampled: jax.Array, scores: Any, greedy: Any, mask: Any) -> tuple[jax.Array, None]:
        return jnp.where(greedy, scores["chosen"], sampled), None

    return Algorithm(
        name="steady",
        env=agents.Crowd(2),
        config=None,
        hparams=None,
        init=lambda key, hparams, env_params: jnp.zeros(()),
        step=lambda key, iteration, state, hparams, env_params: (state, {}),
        policy=lambda state, hparams: state,
        actor=memoryless(scores, lambda key, shape: jax.random.randint(key, shape, 0, agents.NUM_ACTIONS), choose),
        env_steps_per_iteration=1,
    )


def finished(actions: np.ndarray, loss: Any = 0.0) -> Result:
    sweep: Any = SimpleNamespace(dims=("env.pay",), shape=(2,), coords={"env.pay": (("env.pay",), PAYS)})
    values = {"return": np.zeros((2, 5, 1)), "loss": np.zeros((2, 5, 1)) + np.asarray(loss)}
    dataset = metrics_dataset(values, seeds=SEEDS, env_steps=[64], sweep=sweep, attrs={"eval_episodes": 1})
    params: Any = agents.CrowdParams()
    params = params.replace(pay=np.asarray(PAYS, np.float32), max_steps_in_episode=np.full(2, 100, np.int32))
    return Result(dataset, actions, algorithm(), env_params=params)


def by_hand() -> np.ndarray:
    """Two steps of the first agent, three of the second, averaged over both."""
    return np.asarray(PAYS)[:, None] * ACTIONS * (2 * 1 + 3 * 2) / 2


@pytest.mark.slow
def test_every_policy_meets_its_own_environment() -> None:
    evaluated = evaluate_result(finished(ACTIONS), 4)
    # Small whole numbers, exact in float32.
    np.testing.assert_array_equal(evaluated.values("return")[..., 0], by_hand())
    np.testing.assert_array_equal(evaluated.values("length")[..., 0], np.full((2, 5), 3.0))
    assert evaluated.metrics.attrs["eval_episodes"] == 4
    assert not any(str(name).startswith("discounted") for name in evaluated.metrics.data_vars)
    sampled = evaluated.values("return_sampled")[..., 0]
    assert len(np.unique(sampled[0])) > 1
    np.testing.assert_array_equal(sampled[1], 2 * sampled[0])  # equal seeds draw the same actions
    other = evaluate_result(finished(ACTIONS), 4, key=1)
    assert not np.array_equal(other.values("return_sampled")[..., 0], sampled)


@pytest.mark.slow
def test_a_run_that_failed_stays_one_although_its_policy_acts() -> None:
    actions = ACTIONS.copy()
    actions[0, 3] = np.nan
    loss = np.zeros((2, 5, 1))
    loss[1, 0] = np.inf
    evaluated = evaluate_result(finished(actions, loss), 2)
    failed = np.zeros((2, 5), bool)
    failed[0, 3] = failed[1, 0] = True
    np.testing.assert_array_equal(evaluated.failed_runs(), failed)
    for name in evaluated.metrics.data_vars:
        np.testing.assert_array_equal(np.isnan(evaluated.values(str(name))[..., 0]), failed)
    np.testing.assert_array_equal(evaluated.values("return")[..., 0], np.where(failed, np.nan, by_hand()))
    assert evaluated.table().to_pandas()["failed"].tolist() == [1, 1]


@pytest.mark.slow
def test_many_episodes_of_few_policies_at_once_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate_result(finished(ACTIONS), 3)
    monkeypatch.setattr("jaxrl.runtime.evaluate_again.EPISODES_AT_ONCE", 1)
    np.testing.assert_array_equal(evaluate_result(finished(ACTIONS), 3).values("return"), whole.values("return"))
