"""Dynamic programming over finite problems where numbers are small or large."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

import envs
from envs.base import OPTIMUM_KINDS
from envs.decision import dynamic_programming
from envs.decision.dynamic_programming import FiniteProblem
from envs.decision.inventory import Inventory
from envs.decision.replacement import Replacement


def test_plans_are_right_where_weights_are_small() -> None:
    """Under a discount of 0.1 few later steps matter; the weight of the step 20 is 1e-20."""
    env: Any = envs.make("inventory")
    actions = env.plan(discount=0.1).actions
    np.testing.assert_array_equal(actions[20], np.maximum(3 - np.arange(11), 0))
    np.testing.assert_array_equal(actions[:25], np.tile(actions[0], (25, 1)))


@pytest.mark.parametrize("kind", OPTIMUM_KINDS)
def test_optima_scale_with_rewards(kind: str) -> None:
    problem = Replacement().problem()
    solve, curve = getattr(dynamic_programming, kind), 1 / (1 + 0.3 * np.arange(8))
    usual, small = (solve(problem._replace(rewards=scale * problem.rewards), curve) for scale in (1.0, 2.0**-40))
    assert small.value == usual.value * 2.0**-40
    np.testing.assert_array_equal(small.actions, usual.actions)


@pytest.mark.parametrize("kind", OPTIMUM_KINDS)
def test_large_rewards_of_one_state_hide_no_differences_in_another(kind: str) -> None:
    """Two states that stay where they are; float64 knows 1e13 to 0.002."""
    rewards = np.array([[0.0, 1.0], [-1e13, -1e13]])
    stays = np.array([[[0], [0]], [[1], [1]]])
    problem = FiniteProblem(rewards, np.ones((2, 2), bool), stays, np.ones((2, 2, 1)), np.array([1.0, 0.0]))
    plan = getattr(dynamic_programming, kind)(problem, np.ones(3))
    assert plan.value == 3.0
    np.testing.assert_array_equal(plan.actions, np.tile([1, 0], (3, 1)))


def test_large_demands_have_their_probabilities() -> None:
    """800^800 / 800! exceeds the numbers of float64."""
    env: Any = Inventory(capacity=1, max_demand=1000)
    problem = env.problem(env.default_params.replace(mean_demand=800.0))
    expected = poisson.pmf(np.arange(1001), 800)
    np.testing.assert_allclose(problem.probabilities[0, 0], expected / expected.sum(), rtol=1e-9, atol=1e-300)
