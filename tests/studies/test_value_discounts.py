"""The parts of the study `value-discounts`: exact choosers, trees equal to the environments, rules of heads."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.studies import STUDIES, run_study, value_discounts
from bench.studies.choice_tasks import Task, tasks
from bench.studies.choosers import (
    Branch,
    Decision,
    naive,
    own_heads,
    plans,
    precommitted,
    sophisticated,
    value_of,
)
from bench.studies.value_discounts import PUBLISHED, QUADRATURE, Settings, curve, nodes, published_nodes
from envs.decision.pathworld import Pathworld
from envs.decision.preference_reversal import PreferenceReversal
from envs.decision.random_dilemmas import RandomDilemmas

STEPS, NUM_PATHS, TAX = 8, 4, 0.05
HYPERBOLIC, STEEP = (1 / (1 + k * np.arange(40)) for k in (0.25, 1.0))


@pytest.fixture(scope="module")
def small() -> dict[str, Task]:
    return tasks(STEPS, NUM_PATHS, TAX, num_dilemmas=12)


def random_tree(rng: np.random.Generator, depth: int, index: Any = None) -> Decision:
    """Rewards that grow with their delays, so that the best choice changes with the distance."""
    index = iter(range(100)) if index is None else index

    def branch(action: int) -> Branch:
        delay = int(rng.integers(0, 20))
        reward = float(rng.uniform(1, 3)) * (1 + 0.5 * delay)
        return Branch(str(action), ((delay, reward),), 6, random_tree(rng, depth - 1, index) if depth > 1 else None)

    return Decision(next(index), tuple(branch(action) for action in range(2)))


def test_exponential_choosers_agree_and_hyperbolic_ones_are_worth_less_than_the_plan() -> None:
    differing = 0
    for seed in range(30):
        tree = random_tree(np.random.default_rng(seed), 3)
        exponential = 0.9 ** np.arange(40)
        chosen = [chooser(tree, exponential) for chooser in (precommitted, naive, sophisticated)]
        assert len({one.path for one in chosen}) == 1
        np.testing.assert_allclose([one.believed for one in chosen], chosen[0].value, rtol=1e-12)
        alone = own_heads(tree, exponential, np.array([0.9]), np.ones(1))
        assert alone.path == chosen[0].path and alone.believed == pytest.approx(chosen[0].value, rel=1e-12)
        plan, planning, foreseeing = (chooser(tree, STEEP) for chooser in (precommitted, naive, sophisticated))
        assert max(planning.value, foreseeing.value) <= plan.value + 1e-12
        assert planning.believed == plan.value and foreseeing.believed == foreseeing.value
        differing += len({plan.path, planning.path, foreseeing.path}) > 1
        # Each rate assumes its own best plan, so that their sum is at least the best value of a single one.
        rates, weights = np.array([0.5, 0.95]), np.array([0.4, 0.6])
        mixed = weights @ rates[:, None] ** np.arange(40)
        assert own_heads(tree, mixed, rates, weights).believed >= precommitted(tree, mixed).value - 1e-12
    assert differing > 5


@pytest.mark.slow
def test_choosers_know_the_values_of_the_environments(small: dict[str, Task]) -> None:
    task = small["preference-reversal"]
    values = PreferenceReversal().values(HYPERBOLIC, task.params)
    (first,) = task.first
    later, sooner = 1, 0
    for path, value in (((sooner,), values.sooner), ((later, 1), values.later), ((later, 0), values.switching)):
        assert value_of(first, HYPERBOLIC, path) == pytest.approx(value, rel=1e-6)  # parameters are float32
    assert values.reverses and not values.foreseeing_later
    assert precommitted(first, HYPERBOLIC).path == (later, 1)
    assert naive(first, HYPERBOLIC).path == (later, 0)
    assert sophisticated(first, HYPERBOLIC).path == (sooner,)
    paths = [value_of(small["pathworld"].first[0], HYPERBOLIC, (i,)) for i in range(NUM_PATHS)]
    np.testing.assert_allclose(paths, Pathworld(num_paths=NUM_PATHS).estimates(HYPERBOLIC))
    task = small["random-dilemmas"]
    exact = RandomDilemmas().values(HYPERBOLIC, task.obs, task.params)
    assert [naive(first, HYPERBOLIC).path[0] for first in task.first] == exact.argmax(1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pathworld", "delayed-choice", "preference-reversal", "random-dilemmas"])
def test_trees_pay_the_rewards_of_the_environments(small: dict[str, Task], name: str) -> None:
    """Every path of a tree is played: decisions equal the observed ones, and rewards have their delays."""
    task = small[name]
    starts = jax.random.split(jax.random.key(0), len(task.first))

    @jax.jit
    def step(state: Any, action: Any) -> Any:
        return task.env.step_env(jax.random.key(1), state, action, task.params)

    for first, key in zip(task.first[:3], starts, strict=False):
        for path in plans(first):
            decision, choices, due, paid = first, list(path), {}, {}
            obs, state = task.env.reset_env(key, task.params)
            at = 0
            for t in range(STEPS + 2 + NUM_PATHS**2):
                if decision is not None and t == at:
                    np.testing.assert_array_equal(obs, task.obs[decision.index])
                    np.testing.assert_array_equal(task.env.action_mask(state, task.params), task.mask[decision.index])
                    action = choices.pop(0)
                    branch = decision.branches[action]
                    due |= {t + delay: reward for delay, reward in branch.rewards}
                    at, decision = t + branch.after, branch.then
                obs, state, reward, terminated, _ = step(state, jnp.int32(action))
                if reward != 0:
                    paid[t] = float(reward)
                if terminated:
                    break
            assert terminated and not choices
            assert paid == pytest.approx({t: reward for t, reward in due.items() if reward}, rel=1e-6)


def test_the_published_rule_errs_as_published() -> None:
    rates, weights = published_nodes(0.01, 10)
    assert weights.sum() == pytest.approx(1.0) and rates[0] == 0.0
    assert (weights[-1], rates[-1]) == (pytest.approx(0.664, abs=1e-3), pytest.approx(0.98917, abs=1e-5))
    steps = np.arange(501)
    implied = rates ** steps[:, None] @ weights
    error = np.abs(implied - 1 / (1 + 0.01 * steps))
    assert (error.argmax(), error.max()) == (173, pytest.approx(0.249, abs=1e-3))
    assert implied[500] == pytest.approx(0.003, abs=1e-4)
    np.testing.assert_allclose(published_nodes(0.1, 10)[0], rates**10)  # the same curve of k t


def test_quadrature_is_close() -> None:
    settings = Settings()
    exact, steps = curve(settings), np.arange(len(curve(settings)))[:, None]
    errors = {
        rule: np.abs(nodes(rule, settings)[0] ** steps @ nodes(rule, settings)[1] - exact).max()
        for rule in (QUADRATURE, PUBLISHED)
    }
    assert errors[QUADRATURE] < 1e-6 and errors[PUBLISHED] > 0.2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"k": 0.0}, r"k must lie in \[0.001, 1.0\], got 0.0"),
        ({"num_paths": 2}, "num_paths must be a whole number of at least 3, got 2"),
        ({"seeds": 1}, "seeds must be a whole number of at least 2, got 1"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**settings)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: value_discounts.METHODS[name] for name in ("DQN, joint heads", "DQN, own heads, published rule")}
    monkeypatch.setattr(value_discounts, "METHODS", some)
    settings = Settings(steps=4, num_paths=3, dilemmas=4, seeds=2, env_steps=64)
    run_study(STUDIES["value-discounts"], settings, tmp_path / "run", progress=False)
    written = {file.name for file in (tmp_path / "run").iterdir()}
    assert {"curves.md", "choosers.csv", "choices.md"} <= written
    before = capsys.readouterr().out
    assert "sophisticated" in before and "DQN, joint heads" in before
    run_study(STUDIES["value-discounts"], settings, tmp_path / "run", progress=False)
    assert capsys.readouterr().out == before
