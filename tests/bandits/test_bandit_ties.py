"""No result of a bandit policy depends on the place of an arm: ties are broken in an order drawn for each run."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from bandit_draws import LEVEL, STANDARD_ERRORS

import envs
import jaxrl
from envs.bandits import SequenceBandit
from envs.bandits.delayed import DelayedBandit
from jaxrl.bandits.arms import one_hot
from jaxrl.bandits.base import BanditAlgorithm, Task, View, argmax
from jaxrl.bandits.policies.planners import exact_planning, myopic
from jaxrl.bandits.policies.whittle_index import whittle


class Seen(NamedTuple):
    """Rewards of each arm so far, in the order of the policy.

    Attributes:
      pulls: Number of rewards.
      sums: Sum of the rewards.
    """

    pulls: jax.Array
    sums: jax.Array


def policy_of(index: Any) -> BanditAlgorithm:
    """A policy that takes the first of the arms with the highest index, a function `(state, view) -> [K]`."""

    def init(key: jax.Array, task: Task, params: Any, hparams: Any) -> Seen:
        return Seen(jnp.zeros(task.num_arms), jnp.zeros(task.num_arms))

    def choose(key: jax.Array, state: Seen, view: View, hparams: Any) -> jax.Array:
        return argmax(index(state, view), view.mask)

    def update(state: Seen, view: View, action: jax.Array, reward: jax.Array, hparams: Any) -> Seen:
        pulled = one_hot(state.pulls, action)
        return Seen(state.pulls + pulled, state.sums + pulled * reward)

    def measure(state: Seen) -> dict[str, jax.Array]:
        return {"worst_mean": jnp.min(jnp.where(state.pulls > 0, state.sums / state.pulls, jnp.inf))}

    hparams = jaxrl.bandits.ucb1().hparams
    return BanditAlgorithm(
        "by-index",
        hparams,
        init,
        choose,
        update,
        lambda state, hparams: argmax(state.pulls),
        lambda task: None,
        measure,
    )


def last_of(policy: BanditAlgorithm, env: Any, runs: int, steps: int, env_params: Any = None) -> Any:
    result = jaxrl.run_bandit(
        policy, env, steps=steps, runs=runs, points=[steps], env_params=env_params, progress=False
    )
    return result.metrics.isel(env_step=-1)


def assert_equal_shares(pulls: np.ndarray) -> None:
    """Check that the arm that a run pulls most is every arm equally often, by the chi-square test."""
    counts = np.bincount(np.argmax(pulls, axis=1), minlength=pulls.shape[1])
    assert scipy.stats.chisquare(counts).pvalue > LEVEL, counts


@pytest.mark.slow_rows("True")
@pytest.mark.parametrize("mask", [False, True])
def test_equal_arms_have_equal_shares_for_any_place(mask: bool) -> None:
    """The index of all arms is 0; of those that are awake in the second case, each run has one order throughout."""
    inner = envs.make("bandit/bernoulli", means=(0.5,) * 4)
    env = envs.make("bandit/sleeping", inner=inner) if mask else inner
    last = last_of(policy_of(lambda state, view: jnp.zeros(4)), env, runs=400, steps=20)
    assert_equal_shares(last["pulls"].values)
    if not mask:
        assert np.all(np.max(last["pulls"].values, axis=1) == 20)


def test_the_regret_of_epsilon_greedy_does_not_depend_on_which_arm_is_best() -> None:
    """All arms look alike until the best one pays for the first time."""
    env = envs.make("bandit/bernoulli", means=(0.2, 0.0, 0.0, 0.0, 0.0))
    moved = env.default_params.replace(means=jnp.asarray((0.0, 0.0, 0.0, 0.0, 0.2)))
    policy = jaxrl.bandits.epsilon_greedy()
    first, last = (last_of(policy, env, 1000, 40, params)["regret"].values for params in (None, moved))
    error = np.sqrt((first.var() + last.var()) / 1000)
    assert abs(first.mean() - last.mean()) < STANDARD_ERRORS * error


def test_contexts_follow_the_order_in_which_a_policy_sees_the_arms() -> None:
    """The first feature is the value of an arm, so its maximum has no regret."""
    env = envs.make("bandit/linear", num_arms=5, theta=(1.0, 0.0, 0.0))
    last = last_of(policy_of(lambda state, view: view.context[:, 0]), env, 20, 30)
    # Thirty differences of two roundings of the same product, of at most 1.
    assert np.all(last["regret"].values <= 30 * 2 * np.finfo(np.float32).eps)


def test_rewards_that_arrive_later_belong_to_the_arm_that_was_pulled() -> None:
    """Arm i pays exactly i: the policy's own mean of its worst arm is the least number of an arm that it pulled."""
    env = DelayedBandit(inner=SequenceBandit(table=((1.0, 2.0, 3.0),) * 40))
    last = last_of(policy_of(lambda state, view: -state.pulls), env, 32, 40)
    np.testing.assert_array_equal(last["worst_mean"], 1.0)


@pytest.mark.slow_rows("myopic", "exact-planning")
@pytest.mark.parametrize("policy", [whittle(), myopic(), exact_planning()], ids=["whittle", "myopic", "exact-planning"])
def test_planners_break_ties_of_equal_arms_in_any_order(policy: BanditAlgorithm) -> None:
    """Three equal arms that never move, of which one may be pulled: each run pulls one arm, which is any of them."""
    stay, pay = ((1.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (1.0, 1.0))
    env = envs.make("bandit/restless", transitions=((stay, stay),) * 3, rewards=(pay,) * 3, budget=1)
    last = last_of(policy, env, 60, 4)
    assert np.all(np.max(last["pulls"].values, axis=1) == 4)
    assert_equal_shares(last["pulls"].values)
