"""Each coupled family against its exact solution: joint actions enumerated, policy iteration in float64."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import restless as reference

import envs
from envs.bandits import CapacityBandit, GilbertElliott, InterventionBandit, MatchingBandit, PathBandit, RestlessBandit
from envs.bandits.markov import MarkovBandit
from jaxrl.bandits import run_bandit
from jaxrl.bandits.dynamic_programming import joint_states, plan, policy_table, policy_values
from jaxrl.bandits.policies.planners import exact_planning

GAMMA = float(np.float32(0.8))
PROMISED = 1e-6 / (1 - GAMMA)  # relative error of the library's values, as a share of the greatest value
REACH = ((1, 1, 0), (0, 1, 1), (1, 1, 1), (0, 0, 1))
EDGES = ((1, 0, 1), (0, 1, 1))
STAR = ((0, 1, 1, 1), (1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0))
# The family, its small instance, and the allowed effects on its arms, enumerated from the definition.
SMALL: dict[str, tuple[MarkovBandit, set[tuple[int, ...]]]] = {
    "interventions": (InterventionBandit(budget=2, reach=REACH), reference.interventions(REACH, 2, 2)),
    "matching": (MatchingBandit(edges=EDGES), reference.matchings(EDGES)),
    "capacity": (
        CapacityBandit(costs=(2, 1, 1), capacities=(2, 1)),
        reference.within_capacity((2, 1, 1), (2, 1)),
    ),
    "path": (PathBandit(neighbours=STAR, length=3, num_states=2), reference.paths(STAR, 3)),
    "budget": (RestlessBandit(num_arms=3, budget=2), reference.within_budget(3, 2)),
    "channels": (
        GilbertElliott(good_after_bad=(0.1, 0.3), good_after_good=(0.8, 0.6), memory=4),
        reference.within_budget(2, 1),
    ),
}


def instance(env: MarkovBandit) -> Any:
    params = env.default_params
    return env.known(env.instance(jax.random.key(1), params), params)


def in_float64(law: Any) -> np.ndarray:
    law = np.asarray(law, np.float64)
    return law / law.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", SMALL)
def test_actions_cover_exactly_the_combinations_that_the_constraint_allows(name: str) -> None:
    env, allowed = SMALL[name]
    actions = np.asarray(list(itertools.product(*map(range, env.branches))))
    touched = {tuple(done) for done in np.asarray(jax.vmap(env.touched)(jnp.asarray(actions))).tolist()}
    assert touched == allowed
    assert len(allowed) < len(actions)


@pytest.mark.parametrize(
    ("name", "action", "touched"),
    [
        ("interventions", (1, 0, 1, 1), (2, 2, 1)),  # the fourth is one too many
        ("interventions", (1, 1, 0, 0), (1, 2, 1)),
        ("matching", (1, 1, 1), (1, 0, 0)),  # one arm gets a worker, the others do not
        ("matching", (2, 2, 1), (0, 2, 1)),  # no edge from worker 2 to arm 0
        ("capacity", (1, 1, 2), (1, 0, 2)),  # worker 1 is full
        ("capacity", (2, 2, 1), (0, 0, 1)),  # arm 0 takes more hours than worker 2 has
        ("path", (1, 0, 2), (1, 1, 1, 0)),
        ("path", (1, 2, 0), (1, 1, 0, 0)),  # no edge from 1 to 2: the path waits
    ],
)
def test_infeasible_parts_of_an_action_are_left_out(
    name: str, action: tuple[int, ...], touched: tuple[int, ...]
) -> None:
    assert tuple(SMALL[name][0].touched(jnp.asarray(action)).tolist()) == touched


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ("budget", "channels") else name for name in SMALL]
)
def test_plans_and_episodes_agree_with_the_exact_solution(name: str) -> None:
    """Plans equal the solution, and 2,000 episodes under it are worth its values, within 4.5 standard errors."""
    env, allowed = SMALL[name]
    params = instance(env)
    arms = params.arms
    law = in_float64(arms.transitions)
    rewards, arrivals = np.asarray(arms.rewards, np.float64), np.asarray(arms.arrivals, np.float64)
    expected = rewards + np.einsum("nast,nat->nas", law, arrivals)
    values, touched = reference.solve(law, expected, GAMMA, allowed)
    best = jax.jit(lambda params: plan(env, params, GAMMA))(params)
    np.testing.assert_allclose(best.values, values, rtol=0, atol=PROMISED * np.abs(values).max())
    # If joint actions tie, either may be taken: the plan's action has the same value.
    done = np.asarray(jax.vmap(env.touched)(best.actions))
    np.testing.assert_allclose(reference.value_of(law, expected, GAMMA, done), values, rtol=1e-6, atol=1e-6)
    # Episodes in the environment itself, under the reference's actions.
    answer = {tuple(env.touched(jnp.asarray(a)).tolist()): a for a in itertools.product(*map(range, env.branches))}
    actions = jnp.asarray([answer[tuple(row)] for row in touched.tolist()])
    weights = jnp.asarray(env.num_states ** np.arange(env.num_arms - 1, -1, -1))
    steps, episodes = 60, 2000

    def episode(key: jax.Array) -> jax.Array:
        def step(state: Any, t: jax.Array) -> tuple[Any, jax.Array]:
            _, state, reward, _, _ = env.step_env(
                jax.random.fold_in(key, t), state, actions[state.states @ weights], params
            )
            return state, reward * GAMMA**t

        start = env.reset_env(jax.random.fold_in(key, steps), params)[1]
        return jnp.sum(jax.lax.scan(step, start, jnp.arange(steps))[1])

    got = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(2), episodes)), np.float64)
    start = np.ones(1)
    for row in np.asarray(arms.start, np.float64):
        start = np.kron(start, row)
    cut = GAMMA**steps * np.abs(values).max()
    assert abs(got.mean() - start @ values) < 4.5 * got.std() / np.sqrt(episodes) + 2 * cut


@pytest.mark.slow
def test_exact_values_of_a_policy_are_those_of_the_reference() -> None:
    env, _ = SMALL["matching"]
    params = instance(env)
    table = np.zeros((27, 3), np.int32)
    table[:, 0] = joint_states(env)[:, 1] % 2
    got = policy_values(env, params, jnp.asarray(table), GAMMA)
    law = in_float64(params.arms.transitions)
    expected = np.asarray(params.arms.expected, np.float64)
    required = reference.value_of(law, expected, GAMMA, table)
    np.testing.assert_allclose(got, required, rtol=0, atol=PROMISED * np.abs(required).max())


@pytest.mark.slow
def test_runs_of_the_planning_policy_do_as_the_plan_says() -> None:
    env, _ = SMALL["path"]
    params = instance(env)
    table = np.asarray(policy_table(exact_planning(), env, params))
    np.testing.assert_array_equal(table, plan(env, params, exact_planning().hparams.gamma).actions)
    result = run_bandit(exact_planning(), env, steps=100, runs=20, points=[100], env_params=params, progress=False)
    assert set(result.metrics.data_vars) == {"reward", "pulls"}
    pulls = result.metrics["pulls"].values
    assert pulls.sum() <= 3 * 100 * 20
    # On a star, a path over two leaves goes through the centre.
    assert np.all(pulls[..., 0] >= pulls[..., 1:].sum(-1) - 100)


def test_constraints_may_be_arrays() -> None:
    assert envs.make("bandit/coupled-matching", edges=np.array(EDGES)) == MatchingBandit(edges=EDGES)
    arrays = envs.make("bandit/coupled-capacity", costs=np.array([1, 2]), capacities=np.array([2]))
    assert arrays == CapacityBandit(costs=(1, 2), capacities=(2,))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: InterventionBandit(num_arms=3, budget=4),
            "budget must be a whole number from 1 to 3, the number of in",
        ),
        (lambda: InterventionBandit(reach=((1, 0), (0, 0))), "reach must give an arm to every intervention"),
        (lambda: InterventionBandit(reach=((1, 0), (1,))), "reach must be rows of zeros and ones, all of one length"),
        (lambda: MatchingBandit(num_workers=0), "num_workers must be a whole number of at least 1, got 0"),
        (lambda: MatchingBandit(edges=((1, 2),)), "edges must be rows of zeros and ones"),
        (
            lambda: envs.make("bandit/coupled-matching", edges=(1, 0)),
            "edges must be rows of zeros and ones, all of one length",
        ),
        (lambda: MatchingBandit(edges=()), "edges must be rows of zeros and ones, all of one length"),
        (lambda: envs.make("bandit/coupled-capacity", costs=3), "costs must be a sequence of whole numbers, got 3"),
        (
            lambda: envs.make("bandit/coupled-capacity", costs=(1.5, 2)),
            "costs must be a whole number of at least 1, got 1.5",
        ),
        (lambda: CapacityBandit(capacities=()), r"capacities must be a sequence of whole numbers, got \(\)"),
        (lambda: CapacityBandit(costs=(2, 0)), "costs must be a whole number of at least 1, got 0"),
        (lambda: CapacityBandit(costs=(2, 3), capacities=(1,)), "capacities must be .* at least 2, the least cost"),
        (lambda: PathBandit(num_arms=3, length=4), "length must be a whole number from 1 to 3, the number of arms"),
        (lambda: PathBandit(neighbours=((0, 1), (0, 0))), "neighbours must be symmetric"),
    ],
)
def test_invalid_constraints_are_refused(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()
