"""Evaluation in Python has the numbers of training and of `evaluate_result`, under any parameters."""

from typing import Any

import agents
import jax
import numpy as np
import pytest
from untrained import LRS, SEEDS, SMALL, cartpole_result, policy_of

import envs
import jaxrl
from envs.errors import UserError
from jaxrl.policies.runs import runs_of
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result

AXES = ("eval.gravity", "eval.max_steps_in_episode")
EPISODES = 4  # a power of two, by which sums of rewards are divided exactly


@pytest.fixture(scope="module")
def trained() -> Result:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL))
    return jaxrl.train(algo, seeds=[3, 5], env_steps=16, evals=1, eval_episodes=EPISODES, progress=False)


@pytest.fixture(scope="module")
def result() -> Result:
    return cartpole_result()


def test_the_key_of_an_evaluation_in_training_gives_its_numbers(trained: Result) -> None:
    iteration = trained.metrics["env_step"].values[-1] // 8
    for run, seed in enumerate(trained.seeds):
        key = jax.random.fold_in(jax.random.split(jax.random.key(seed), 3)[2], iteration)
        again = jaxrl.evaluate(trained.policy(seed=seed), None, EPISODES, key)
        for name in ("return", "return_sampled", "length", "length_sampled"):
            assert again[name].dims == ("episode",)
            assert again[name].mean() == trained.values(name)[0, run, -1]
        assert again["seed"] == seed
    assert np.ptp(again["return_sampled"].values) > 0


def test_a_seed_gives_the_numbers_of_evaluate_result(result: Result) -> None:
    again = jaxrl.evaluate(result, episodes=EPISODES, key=7)
    assert again["return"].dims == ("lr", "seed", "episode")
    assert again["seed"].values.tolist() == SEEDS and again["lr"].values.tolist() == LRS
    whole = jaxrl.evaluate_result(result, EPISODES, key=7)
    for name in ("return", "return_sampled", "length"):
        np.testing.assert_array_equal(again[name].mean("episode"), whole.metrics[name].isel(env_step=0))
    alone = jaxrl.evaluate(result.policy(seed=5, lr=1e-2), episodes=EPISODES, key=7)
    np.testing.assert_array_equal(alone["return_sampled"], again["return_sampled"].sel(seed=5, lr=1e-2))
    other = jaxrl.evaluate(result, episodes=EPISODES, key=8)
    assert not np.array_equal(other["return_sampled"], again["return_sampled"])


def test_values_of_parameters_are_axes_on_the_same_episodes(result: Result) -> None:
    values = {"gravity": [9.8, 30.0], "max_steps_in_episode": [3, 500]}
    under = jaxrl.evaluate(result, episodes=EPISODES, env_params=values)
    assert under["return"].dims == ("lr", "seed", *AXES, "episode")
    np.testing.assert_array_equal(under["length"].sel({AXES[1]: 3}), 3)
    usual = jaxrl.evaluate(result, episodes=EPISODES)
    for name in ("return", "return_sampled"):
        np.testing.assert_array_equal(under[name].sel(dict(zip(AXES, (9.8, 500), strict=True))), usual[name])
        assert not np.array_equal(under[name].sel(dict(zip(AXES, (30, 500), strict=True))), usual[name])
    params = envs.make("cartpole").default_params.replace(gravity=30.0)
    whole = jaxrl.evaluate(result, episodes=EPISODES, env_params=params)
    np.testing.assert_array_equal(whole["return"], under["return"].sel(dict(zip(AXES, (30, 500), strict=True))))


def test_each_run_meets_the_parameters_of_its_training(result: Result) -> None:
    limits: Any = envs.make("cartpole").default_params.replace(max_steps_in_episode=np.array([2, 5], np.int32))
    limits = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), 2), limits)
    again = jaxrl.evaluate(Result(result.metrics, result.policies, result.algo, result.hparams, limits), episodes=2)
    np.testing.assert_array_equal(again["length"].transpose("lr", ...)[0], 2)
    np.testing.assert_array_equal(again["length"].transpose("lr", ...)[1], 5)


def test_a_curriculum_is_at_its_end() -> None:
    class Later(type(envs.make("cartpole"))):
        def params_at(self, params: Any, env_steps: Any) -> Any:
            return params.replace(gravity=params.gravity + env_steps)

    policy = policy_of(jaxrl.ppo(Later(), jaxrl.PPOConfig(**SMALL)))
    unknown = runs_of(policy, None, None, 0).env_params.gravity
    policy.env_steps = 100
    np.testing.assert_allclose(runs_of(policy, None, None, 0).env_params.gravity, unknown + 100)
    np.testing.assert_allclose(runs_of(policy, None, Later().default_params, 0).env_params.gravity, unknown)


def test_failed_runs_are_nan(result: Result) -> None:
    broken = jax.tree.map(np.copy, result.policies)
    jax.tree.leaves(broken)[0][1, 0] = np.nan
    metrics = result.metrics.copy(deep=True)
    metrics["return"][0, 1] = np.nan
    again = jaxrl.evaluate(Result(metrics, broken, result.algo, result.hparams), episodes=2)
    expected = np.array([[False, True], [True, False]])[..., None].repeat(2, -1)
    for values in again.data_vars.values():
        np.testing.assert_array_equal(np.isnan(values), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": None}, "policy must be a trained policy"),
        ({"policy": lambda obs: 0}, "policy must be a trained policy"),
        ({"env": "cartpole"}, "env must be an environment"),
        ({"env": envs.make("pendulum")}, "policy was trained on cartpole, whose observations or actions are unlike"),
        ({"episodes": 0}, "episodes must be a whole number of at least 1"),
        ({"episodes": 2.5}, "episodes must be a whole number"),
        ({"key": -1}, "key takes a whole number in"),
        ({"key": "a"}, "key takes one random key"),
        ({"env_params": {}}, "env_params takes at least one name"),
        ({"env_params": {"gravty": [1.0]}}, "gravty"),
        ({"env_params": {"gravity": []}}, "gravity"),
        ({"env_params": {"gravity": ["a"]}}, "gravity"),
        ({"env_params": {"max_steps_in_episode": [0]}}, "max_steps_in_episode must be at least 1"),
        ({"env_params": {3: [1.0]}}, "3"),
        ({"env_params": agents.CrowdParams()}, "env_params must be"),
    ],
)
def test_wrong_arguments_are_refused(result: Result, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        jaxrl.evaluate(**({"policy": result.policy(seed=3, lr=1e-3), "episodes": 1} | arguments))


def test_a_policy_keeps_the_length_of_its_training(trained: Result) -> None:
    policy = trained.policy(seed=3)
    assert isinstance(policy, TrainedPolicy) and policy.env_steps == trained.metrics["env_step"].values[-1]
