"""Collected steps are those of evaluation, with every fact about an episode kept apart."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from remembering import chain, recall
from untrained import SMALL, cartpole_result, policy_of

import envs
import jaxrl
from envs.errors import UserError
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import memoryless
from jaxrl.results.dataset import metrics_dataset
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result

PAYS, ACTIONS = (1.0, 2.0), np.array([[1.0], [2.0]], np.float32)
EPISODES = 3


def steady() -> Algorithm:
    """An algorithm whose policy is the action that every agent takes."""

    def scores(policy: Any, obs: jax.Array, mask: Any) -> dict[str, jax.Array]:
        return {"chosen": jnp.broadcast_to(policy, obs.shape[:-1]).astype(jnp.int32)}

    actor = memoryless(
        scores,
        lambda key, shape: jax.random.randint(key, shape, 0, agents.NUM_ACTIONS),
        lambda noise, scores, greedy, mask: (scores["chosen"] if greedy else noise, None),
    )
    idle = lambda key, iteration, state, hparams, env_params: (state, {})  # noqa: E731
    nothing = lambda key, hparams, env_params: jnp.zeros(())  # noqa: E731
    return Algorithm(
        "steady", agents.Crowd(2, masked=True), None, None, nothing, idle, lambda state, _: state, actor, 1
    )


@pytest.fixture(scope="module")
def crowd() -> xarray.Dataset:
    """Greedy episodes of two settings, which pay differently and act differently."""
    sweep: Any = SimpleNamespace(dims=("env.pay",), shape=(2,), coords={"env.pay": (("env.pay",), PAYS)})
    metrics = metrics_dataset({"return": np.zeros((2, 1, 1))}, seeds=[7], env_steps=[64], sweep=sweep)
    params: Any = agents.CrowdParams()
    params = params.replace(pay=np.asarray(PAYS, np.float32), max_steps_in_episode=np.full(2, 100, np.int32))
    return jaxrl.collect(Result(metrics, ACTIONS, steady(), env_params=params), episodes=2)


@pytest.fixture(scope="module")
def cartpole() -> TrainedPolicy:
    return policy_of(jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL)))


@pytest.fixture(scope="module")
def stream(cartpole: TrainedPolicy) -> xarray.Dataset:
    return jaxrl.collect(cartpole, steps=90, num_envs=2, greedy=False)


def test_steps_of_a_crowd_are_those_by_hand(crowd: xarray.Dataset) -> None:
    assert crowd["reward"].dims == ("env.pay", "seed", "episode", "step", "agent")
    assert crowd["terminated"].dims == crowd["reward"].dims[:-1]
    assert crowd["observation"].dims == crowd["next_observation"].dims == (*crowd["reward"].dims, "observation_dim_0")
    # Agent i acts for i + 2 steps and earns pay (i + 1) action; then it is not active, and the episode goes on.
    active = np.array([[1, 1], [1, 1], [0, 1]], bool)
    reward = np.array([1, 4])[:, None, None] * active * [1, 2]
    for setting in range(2):
        for episode in range(2):
            one = crowd.isel({"env.pay": setting, "seed": 0, "episode": episode})
            np.testing.assert_array_equal(one["active"], active)
            np.testing.assert_array_equal(one["reward"], reward[setting])
            np.testing.assert_array_equal(one["agent_terminated"], [[0, 0], [1, 0], [1, 1]])
            np.testing.assert_array_equal(one["terminated"], [False, False, True])
            np.testing.assert_array_equal(one["truncated"], False)
            np.testing.assert_array_equal(one["action"], setting + 1)
            np.testing.assert_array_equal(
                one["observation"][:, :, 0], [[1, 1], [1 / 2, np.float32(2 / 3)], [0, np.float32(1 / 3)]]
            )
            np.testing.assert_array_equal(one["final_observation"][:, 0], [0, 0])
            np.testing.assert_array_equal(one["action_mask"][0], [[False, True, True], [True, False, True]])
            assert one["length"] == 3
    assert crowd.attrs == {"algorithm": "steady", "environment": steady().env.name, "greedy": 1}
    assert not crowd["failed"].any() and crowd["failed"].dims == ("env.pay", "seed")


@pytest.mark.parametrize(("greedy", "metric"), [(True, "return"), (False, "return_sampled")])
def test_episodes_are_those_of_evaluate(greedy: bool, metric: str) -> None:
    result = cartpole_result()
    steps = jaxrl.collect(result, episodes=EPISODES, greedy=greedy, key=4)
    evaluated = jaxrl.evaluate(result, episodes=EPISODES, key=4)
    np.testing.assert_array_equal(steps["reward"].sum("step"), evaluated[metric])
    np.testing.assert_array_equal(steps["length"], evaluated[metric.replace("return", "length")])
    alone = jaxrl.collect(result.policy(seed=5, lr=1e-3), episodes=EPISODES, greedy=greedy, key=4)
    together = steps.sel(seed=5, lr=1e-3).isel(step=alone["step"])
    xarray.testing.assert_allclose(alone, together, rtol=1e-5)
    xarray.testing.assert_equal(alone["action"], together["action"])


def test_the_last_observation_is_the_one_before_the_reset(stream: xarray.Dataset, cartpole: TrainedPolicy) -> None:
    obs, after = stream["observation"].values, stream["next_observation"].values
    ended = (stream["terminated"] | stream["truncated"]).values
    assert stream.sizes["step"] == 90 and ended.sum() > 4 and not stream["truncated"].any()
    np.testing.assert_array_equal(obs[:, 1:][~ended[:, :-1]], after[:, :-1][~ended[:, :-1]])
    outside = (np.abs(after[..., 0]) > 2.4) | (np.abs(after[..., 2]) > 12 * np.pi / 180)
    np.testing.assert_array_equal(outside, ended)
    assert np.all(np.abs(obs[:, 1:][ended[:, :-1]]) <= 0.05)  # first states
    whole = jaxrl.collect(cartpole, episodes=EPISODES)
    for episode in range(EPISODES):
        one = whole.isel(episode=episode)
        length = int(one["length"])
        np.testing.assert_array_equal(one["final_observation"], one["next_observation"][length - 1])
        assert abs(float(one["final_observation"][2])) > 12 * np.pi / 180
        assert one["terminated"].values.tolist() == [False] * (length - 1) + [True] + [False] * (
            whole.sizes["step"] - length
        )
        assert one["observation"][length:].isnull().all() and one["reward"][length:].isnull().all()
        assert one["observation"][:length].notnull().all()
    assert len(np.unique(whole["length"])) > 1


def test_streams_continue_with_other_episodes(stream: xarray.Dataset) -> None:
    ended = stream["terminated"].values
    starts = stream["observation"].values[:, 1:][ended[:, :-1]]
    assert len(np.unique(starts[:, 0])) == len(starts)


def test_the_time_limit_truncates_and_does_not_terminate(cartpole: TrainedPolicy) -> None:
    # A parameter has the name of a variable.
    values = {"max_steps_in_episode": [3, 5], "length": [0.5]}
    steps = jaxrl.collect(cartpole, episodes=2, env_params=values).sel({"eval.length": 0.5})
    assert not steps["terminated"].any()
    for limit in (3, 5):
        one = steps.sel({"eval.max_steps_in_episode": limit})
        np.testing.assert_array_equal(one["length"], limit)
        np.testing.assert_array_equal(one["truncated"], np.arange(5) == np.full((2, 1), limit - 1))


def test_probabilities_and_values_are_those_of_the_policy(stream: xarray.Dataset, cartpole: TrainedPolicy) -> None:
    obs = stream["observation"].values
    # Networks of other batch sizes; a few roundings of float32.
    np.testing.assert_allclose(stream["probability"], cartpole.probabilities(obs), rtol=1e-5)
    np.testing.assert_allclose(stream["value"], cartpole.values(obs), rtol=1e-5, atol=1e-5)
    taken = np.take_along_axis(stream["probability"].values, stream["action"].values[..., None], -1)[..., 0]
    np.testing.assert_allclose(stream["log_prob"], np.log(taken.astype(np.float64)), rtol=1e-5, atol=1e-6)
    assert len(np.unique(stream["action"])) == 2


def test_log_densities_are_those_of_a_normal_distribution() -> None:
    policy = policy_of(jaxrl.ppo(envs.make("pendulum"), jaxrl.PPOConfig(**SMALL)))
    small = jax.tree.map(lambda leaf: np.float32(0.1) * leaf, policy.params)
    small = small._replace(log_std=np.array([-3.0], np.float32))
    steps = jaxrl.collect(TrainedPolicy(policy.algo, small), steps=50, greedy=False)
    scores = TrainedPolicy(policy.algo, small).scores(steps["observation"].values)
    mean, std = (np.asarray(scores[name], np.float64)[..., 0] for name in ("mean", "std"))
    raw = steps["action"].values[..., 0].astype(np.float64) / 2  # of the bounds, within which these actions are
    assert np.all(np.abs(raw) < 1)
    expected = -0.5 * ((raw - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    # A rounding of the action is divided by the standard deviation 0.05.
    np.testing.assert_allclose(steps["log_prob"], expected, atol=1e-3)
    assert "probability" not in steps and "action_dim_0" in steps["action"].dims


def test_parts_of_actions_and_observations_are_variables() -> None:
    duel = envs.make("bandit/dueling")
    steps = jaxrl.collect(policy_of(jaxrl.ppo(duel, jaxrl.PPOConfig(**SMALL))), steps=30, greedy=False)
    logs = 0.0
    for part in ("0", "1"):
        assert steps[f"action.{part}"].dims == ("env", "step")
        shares = steps[f"probability.{part}"].transpose(..., f"choice.{part}").values.astype(np.float64)
        logs += np.log(np.take_along_axis(shares, steps[f"action.{part}"].values[..., None], -1)[..., 0])
    np.testing.assert_allclose(steps["log_prob"], logs, rtol=1e-5)  # of both choices together, which are independent


def test_parts_of_the_recording_are_joined(cartpole: TrainedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = jaxrl.collect(cartpole, episodes=EPISODES), jaxrl.collect(cartpole, steps=25, num_envs=2)
    monkeypatch.setattr("jaxrl.policies.collecting.CHUNK", 7)
    xarray.testing.assert_identical(jaxrl.collect(cartpole, episodes=EPISODES), whole[0])
    xarray.testing.assert_identical(jaxrl.collect(cartpole, steps=25, num_envs=2), whole[1])


def test_a_memory_lasts_for_an_episode() -> None:
    algo = recall(chain())
    policy = TrainedPolicy(algo, algo.policy(None, algo.hparams))
    steps = jaxrl.collect(policy, steps=18, num_envs=4)
    np.testing.assert_array_equal(steps["reward"].sum("step"), 3.0)  # the optimum of three episodes of six steps


def test_action_values_are_recorded() -> None:
    policy = policy_of(jaxrl.dqn(envs.make("cartpole"), jaxrl.DQNConfig(num_envs=2, num_steps=4, hidden=(4,))))
    steps = jaxrl.collect(policy, steps=20)
    np.testing.assert_array_equal(steps["q_value"].argmax("choice"), steps["action"])
    assert steps["q_value"].dims == ("env", "step", "choice") and "value" not in steps


@dataclasses.dataclass(frozen=True)
class Broken(type(envs.make("cartpole"))):
    """A pole whose observation after some steps is lost."""

    lost_after: int = 3

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, *others = super().step_env(key, state, action, params)
        return jnp.where(state.time == self.lost_after, jnp.nan, obs), state, *others


def test_nan_observations_are_refused(cartpole: TrainedPolicy) -> None:
    message = r"observations of .* must be numbers, got a nan before or after 4 steps, first at step 2"
    with pytest.raises(UserError, match=message):
        jaxrl.collect(cartpole, Broken(), episodes=2)
    failed = TrainedPolicy(cartpole.algo, jax.tree.map(lambda leaf: leaf * np.nan, cartpole.params))
    assert jaxrl.collect(failed, Broken(), episodes=2)["failed"]


def test_nan_observations_of_later_episodes_are_refused(cartpole: TrainedPolicy, stream: xarray.Dataset) -> None:
    ended = stream["terminated"].values
    after = int(ended.argmax(axis=1).max()) + 2  # more steps than the first episodes have
    starts = np.concatenate([np.zeros((2, 1), int), np.where(ended[:, :-1], np.arange(1, 90), 0)], axis=1)
    taken = np.arange(1, 91) - np.maximum.accumulate(starts, axis=1)
    (first,) = np.flatnonzero((taken == after).any(axis=0))[:1]
    with pytest.raises(UserError, match=f"first at step {first}\\."):
        jaxrl.collect(cartpole, Broken(after), steps=90, num_envs=2, greedy=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "collect takes one of episodes and steps, got neither"),
        ({"episodes": 2, "steps": 3}, "collect takes one of episodes and steps, got episodes=2 and steps=3"),
        ({"episodes": 0}, "episodes must be a whole number"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps": 5, "num_envs": 0}, "num_envs must be a whole number"),
        ({"episodes": 5, "num_envs": 2}, "num_envs has no effect with episodes"),
        ({"episodes": 1, "greedy": "no"}, "greedy takes True or False"),
        ({"episodes": 1, "env": envs.make("pendulum")}, "policy was trained on cartpole"),
    ],
)
def test_wrong_arguments_are_refused(cartpole: TrainedPolicy, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        jaxrl.collect(cartpole, **arguments)


def test_steps_beyond_the_memory_are_refused(cartpole: TrainedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxrl.policies.collecting.available", lambda: 1000)
    with pytest.raises(UserError, match=r"collect needs .* of memory are available: take fewer"):
        jaxrl.collect(cartpole, episodes=2)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"collect needs [\d.]+ GiB more"):  # before a step is taken
        jaxrl.collect(cartpole, steps=10**12)
