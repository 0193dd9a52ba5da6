"""Whittle indices compared with policy iteration in float64, and the policy with exact planning."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import restless as reference

import envs
from envs.bandits import (
    BernoulliBandit,
    DecliningParams,
    GilbertElliott,
    GilbertElliottParams,
    MatchingBandit,
    PathBandit,
    RestlessBandit,
    make_arms,
)
from envs.bandits.restless import beliefs
from jaxrl.bandits import run_bandit
from jaxrl.bandits.base import BanditAlgorithm
from jaxrl.bandits.dynamic_programming import plan, policy_table, policy_values, start_value
from jaxrl.bandits.policies.planners import exact_planning, myopic
from jaxrl.bandits.policies.ucb import ucb1
from jaxrl.bandits.policies.whittle_index import WhittleHParams, highest, require_indexable, whittle, whittle_indices

GAMMA = float(np.float32(0.95))  # of the same problem that is solved in float32


def random_arms(num_arms: int, num_states: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Transitions `[N, 2, S, S]`, rows the softmax of normal numbers, and normal rewards `[N, 2, S]`."""
    generator = np.random.default_rng(seed)
    weights = np.exp(spread * generator.normal(size=(num_arms, 2, num_states, num_states)))
    transitions = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return transitions, generator.normal(size=(num_arms, 2, num_states)).astype(np.float32)


def in_float64(transitions: np.ndarray) -> np.ndarray:
    """The same law with rows that sum to 1 in float64, too."""
    law = np.asarray(transitions, np.float64)
    return law / law.sum(-1, keepdims=True)


def arms_of_both_kinds(num_states: int) -> tuple[np.ndarray, np.ndarray]:
    """60 arms with transitions spread out, 34 nearly deterministic, and 6 that are known not to be indexable."""
    calm, wild = random_arms(60, num_states, 1.0, 0), random_arms(400, num_states, 5.0, 1)
    flagged = np.flatnonzero(~np.asarray(whittle_indices(*wild, GAMMA).indexable))[:6]
    chosen = np.concatenate([np.arange(34), flagged])
    transitions, rewards = (np.concatenate([first, second[chosen]]) for first, second in zip(calm, wild, strict=True))
    return transitions, rewards


@pytest.mark.slow
@pytest.mark.parametrize("num_states", [3, 6])
def test_indices_are_those_of_policy_iteration_and_other_arms_have_none(num_states: int) -> None:
    transitions, rewards = arms_of_both_kinds(num_states)
    index, indexable = map(np.asarray, whittle_indices(transitions, rewards, GAMMA))
    law, paid = in_float64(transitions), rewards.astype(np.float64)
    expected = np.asarray([reference.is_indexable(*arm, GAMMA) for arm in zip(law, paid, strict=True)])
    np.testing.assert_array_equal(indexable, expected)
    # The counts show that the test covers both: over a hundred arms in all have indices, and some have none.
    assert indexable.sum() >= 85
    assert (~indexable).sum() >= 6
    assert np.isnan(index[~indexable]).all()
    required = np.stack([reference.whittle_index(law[i], paid[i], GAMMA) for i in np.flatnonzero(indexable)])
    np.testing.assert_allclose(index[indexable], required, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_arms_without_indices_are_said() -> None:
    arms = make_arms(*arms_of_both_kinds(3))
    with pytest.raises(ValueError, match=r"of 100 arms these are not: .*94, 95, 96, 97, 98, 99; exact-planning"):
        require_indexable(arms, GAMMA)
    require_indexable(jax.tree.map(lambda leaf: leaf[:34], arms), GAMMA)


def test_without_a_future_the_index_is_the_gain_of_a_pull() -> None:
    transitions, rewards = random_arms(3, 3, 1.0, 2)
    index = whittle_indices(transitions, rewards, 0.0).index
    np.testing.assert_allclose(index, rewards[:, 1] - rewards[:, 0], atol=1e-6)


@pytest.mark.slow
def test_channels_have_the_beliefs_of_a_hidden_chain_and_the_indices_of_the_closed_form() -> None:
    bad, good, memory = np.asarray([0.2, 0.4]), np.asarray([0.7, 0.9]), 5
    env = GilbertElliott(good_after_bad=tuple(bad), good_after_good=tuple(good), memory=memory)
    arms = env.default_params.arms
    chain = np.stack([np.stack([1 - bad, bad], -1), np.stack([1 - good, good], -1)], axis=1)
    powers = np.stack([np.linalg.matrix_power(chain, age)[..., 1] for age in range(1, memory)], axis=-1)
    belief = np.asarray(beliefs(jnp.asarray(bad), jnp.asarray(good), memory))
    stationary = bad / (1 - good + bad)
    np.testing.assert_allclose(belief[..., :-1], powers, atol=1e-6)
    np.testing.assert_allclose(belief[..., -1], np.stack([stationary] * 2, -1), atol=1e-6)
    np.testing.assert_allclose(arms.expected[:, 1], belief.reshape(2, -1), atol=1e-6)
    # Liu and Zhao (2010), theorem 2: good channels and those never seen, of positive correlation.
    index, indexable = whittle_indices(arms.transitions, arms.expected, GAMMA)
    assert indexable.all()
    required = belief[:, 1] / (1 - GAMMA * good[:, None] + GAMMA * belief[:, 1])
    np.testing.assert_allclose(np.asarray(index).reshape(2, 2, memory)[:, 1], required, atol=1e-5)


def test_the_highest_indices_are_pulled_within_the_budget_and_none_below_zero() -> None:
    index, order = jnp.asarray([0.2, 0.5, -0.1, 0.5, 0.0]), jnp.arange(5)
    assert highest(index, 1, order).tolist() == [0, 1, 0, 0, 0]
    assert highest(index, 1, order[::-1]).tolist() == [0, 0, 0, 1, 0]
    for either in (order, order[::-1], jnp.asarray([2, 0, 4, 1, 3])):
        assert highest(index, 2, either).tolist() == [0, 1, 0, 1, 0]
        assert highest(index, 3, either).tolist() == highest(index, 5, either).tolist() == [1, 1, 0, 1, 0]


def exact_worth(env: Any, key: jax.Array) -> dict[str, jax.Array]:
    """The exact discounted values of the policies `[X]` on an instance from the prior, and its arms."""
    params = env.default_params
    params = env.known(env.instance(key, params), params)

    def values(policy: BanditAlgorithm) -> jax.Array:
        return policy_values(env, params, policy_table(policy, env, params), GAMMA)

    best = plan(env, params, GAMMA)
    return {
        "whittle": values(whittle()),
        "myopic": values(myopic()),
        "exact": best.values,
        "actions": best.actions,
        "table": policy_table(whittle(), env, params),
        "arms": params.arms,
        "start": start_value(env, params, best.values),
        "indexable": whittle_indices(params.arms.transitions, params.arms.expected, GAMMA).indexable,
    }


@pytest.mark.slow
def test_whittle_is_close_to_exact_planning_and_above_the_myopic_policy() -> None:
    """Exact values discounted by 0.95, from uniform first states, without simulation, on 100 problems of the prior."""
    env = RestlessBandit(num_arms=4, num_states=3, budget=1)
    worth = jax.jit(jax.vmap(lambda key: exact_worth(env, key)))(jax.random.split(jax.random.key(0), 100))
    worth = jax.tree.map(np.asarray, worth)
    assert worth["indexable"].all()
    whittle_worth, myopic_worth, best = (worth[name].mean(1) for name in ("whittle", "myopic", "exact"))
    np.testing.assert_allclose(worth["start"], best, rtol=1e-5)
    assert np.all(whittle_worth <= best * (1 + 1e-5))
    assert np.all(whittle_worth >= 0.95 * best)
    gain = (whittle_worth - myopic_worth) / best
    assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(len(gain))
    # The library's values equal those of the reference on a few of these.
    for i in range(3):
        arms = jax.tree.map(lambda leaf, i=i: leaf[i].astype(np.float64), worth["arms"])
        law, expected = in_float64(arms.transitions), np.asarray(arms.expected)
        values, _ = reference.solve(law, expected, GAMMA, reference.within_budget(4, 1))
        promised = 1e-6 / (1 - GAMMA) * np.abs(values).max()
        np.testing.assert_allclose(worth["exact"][i], values, rtol=0, atol=promised)
        touched = np.asarray(jax.vmap(env.touched)(jnp.asarray(worth["table"][i])))
        required = reference.value_of(law, expected, GAMMA, touched)
        np.testing.assert_allclose(worth["whittle"][i], required, rtol=0, atol=promised)


@pytest.mark.slow
def test_runs_report_rewards_pulls_and_whether_arms_are_indexable() -> None:
    transitions, rewards = arms_of_both_kinds(3)
    chosen = [0, 1, 2, 99]
    env = RestlessBandit(budget=2, transitions=transitions[chosen].tolist(), rewards=rewards[chosen].tolist())
    steps, runs = 200, 50
    result = run_bandit(
        whittle(), env, WhittleHParams(GAMMA), steps=steps, runs=runs, points=[1, steps], progress=False
    )
    assert set(result.metrics.data_vars) == {"reward", "pulls", "indexable"}
    np.testing.assert_allclose(result.metrics["indexable"], 0.75)
    pulls = result.metrics["pulls"].isel(env_step=-1).sum("arm").values
    assert np.all(pulls <= 2 * steps)
    # The mean of the first step is known: first states are uniform, and each has its action.
    params = env.default_params
    table = np.asarray(policy_table(whittle(), env, params))
    states = list(itertools.product(range(3), repeat=4))
    first = [sum(rewards[chosen[n], table[x, n], s[n]] for n in range(4)) for x, s in enumerate(states)]
    got = result.metrics["reward"].isel(env_step=0).values
    assert abs(got.mean() - np.mean(first)) < 4.5 * np.std(first) / np.sqrt(runs)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: RestlessBandit(num_arms=3, budget=4), "budget must be a whole number from 1 to 3, the number of arms"),
        (lambda: GilbertElliott(num_arms=3, budget=0), "budget must be a whole number from 1 to 3"),
        (lambda: RestlessBandit(num_arms=1), "num_arms must be a whole number of at least 2, got 1"),
        (lambda: RestlessBandit(num_states=1), "num_states must be a whole number of at least 2, got 1"),
        (lambda: RestlessBandit(transitions=((((1.0,),),),)), "transitions and rewards must be given together"),
        (
            lambda: make_arms(np.full((2, 2, 2, 2), 0.4), np.zeros((2, 2, 2))),
            r"transitions must be probabilities that sum to 1, got the row \[0.4 0.4\]",
        ),
        (lambda: make_arms(np.full((2, 2, 2, 2), 0.5), np.zeros((2, 2))), r"rewards must have the shape \(2, 2, 2\)"),
        (lambda: GilbertElliott(good_after_bad=(0.1, 1.0), good_after_good=(0.5, 0.5)), r"good_after_bad .* \(0, 1\)"),
        (
            lambda: envs.make("bandit/gilbert-elliott", good_after_bad=0.1, good_after_good=0.5),
            "good_after_bad must be a sequence of finite numbers, got 0.1",
        ),
        (lambda: RestlessBandit(transitions="x", rewards="y"), "transitions must be numbers, in rows of one length"),
        (
            lambda: DecliningParams(spread=-1.0),
            "spread must be finite and at least 0",
        ),
        (lambda: GilbertElliottParams(low=0.95), "low must be at most high"),
        (lambda: WhittleHParams(gamma=1.0), r"gamma must lie in \[0, 1\), got 1.0"),
        (lambda: whittle_indices(jnp.ones((3, 3)), jnp.ones(3), 0.9), "transitions and rewards must have the shapes"),
        (
            lambda: run_bandit(whittle(), BernoulliBandit(), steps=5),
            "whittle takes a restless bandit with a budget, .* got bandit/bernoulli",
        ),
        (lambda: run_bandit(whittle(), PathBandit(), steps=5), "got bandit/coupled-path"),
        (
            lambda: run_bandit(myopic(), BernoulliBandit(), steps=5),
            "myopic takes a bandit of Markov chains",
        ),
        (
            lambda: run_bandit(exact_planning(), RestlessBandit(num_arms=12), steps=5),
            "exact-planning takes at most 4,194,304 pairs .* has 531,441 states and 13 actions",
        ),
        (
            lambda: run_bandit(myopic(), MatchingBandit(num_arms=8), steps=5),
            "bandit/coupled-matching has 6,561 joint actions; at most 4,096",
        ),
        (
            lambda: run_bandit(ucb1(), RestlessBandit(num_arms=3), steps=5),
            "ucb1 pulls one of 3 arms at a time, which bandit/restless does not take",
        ),
        (lambda: plan(RestlessBandit(), RestlessBandit().default_params, 0.9), "planning takes the instance"),
    ],
)
def test_invalid_arguments_are_refused(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def test_arms_of_another_shape_are_refused() -> None:
    params = DecliningParams(arms=make_arms(np.full((2, 2, 3, 3), 1 / 3)))
    with pytest.raises(ValueError, match=r"arms of bandit/restless must have transitions \(3, 2, 3, 3\)"):
        RestlessBandit(num_arms=3).instance(jax.random.key(0), params)
