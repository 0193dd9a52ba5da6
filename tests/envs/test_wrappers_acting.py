"""Wrappers of actions: repeated, sticky, delayed and discrete actions."""

import re
from dataclasses import dataclass
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from echo_environment import HIGH, LOW, RESET, Echo, equal, keys, play

import envs
from envs import base, probes, wrappers
from envs.abstract_checking import check_abstractly
from envs.base import spaces

CARTPOLE, PENDULUM = envs.make("cartpole"), envs.make("pendulum")


def test_repeating_is_so_many_steps_of_the_environment_inside() -> None:
    env = wrappers.action_repeat(PENDULUM, 3)
    actions = jnp.linspace(-2, 2, 5)[:, None]
    seen = play(env, keys(5), actions)
    each = jnp.concatenate([jax.random.split(key, 3) for key in keys(5)])
    reset = PENDULUM.reset_env(RESET, PENDULUM.default_params)
    equal(seen.first[0], reset[0])
    state, rewards, step = reset[1], [], jax.jit(PENDULUM.step_env)
    for i, key in enumerate(each):
        obs, state, reward, _, _ = step(key, state, actions[i // 3], PENDULUM.default_params)
        rewards.append(float(reward))
        if i % 3 == 2:
            # A few roundings of numbers up to 8: two programs may fuse the same step differently.
            np.testing.assert_allclose(seen.obs[i // 3], obs, atol=1e-5)
            np.testing.assert_allclose(seen.reward[i // 3], sum(rewards[-3:]), rtol=1e-5)
    np.testing.assert_array_equal(seen.state.time, np.arange(1, 6))
    np.testing.assert_array_equal(seen.state.inner.time, 3 * np.arange(1, 6))


def test_repeating_stops_at_a_termination() -> None:
    env = wrappers.action_repeat(probes.OnlyTerminates(steps=5), 3)
    seen = play(env, keys(2), jnp.zeros(2, jnp.int32))
    np.testing.assert_array_equal(seen.reward, [3, 2])
    np.testing.assert_array_equal(seen.terminated, [False, True])
    np.testing.assert_array_equal(seen.state.inner.time, [3, 5])
    np.testing.assert_array_equal(seen.obs[1], np.eye(5)[0])  # of the state at which it terminated


def test_repeating_stops_at_the_time_limit_which_never_terminates() -> None:
    env = wrappers.action_repeat(probes.OnlyTruncates(steps=4), 3)
    assert env.default_params.max_steps_in_episode == 2  # 4 / 3 decisions
    seen = play(env, keys(2), jnp.zeros(2, jnp.int32))
    np.testing.assert_array_equal(seen.reward, [3, 1])
    np.testing.assert_array_equal(seen.truncated, [False, True])
    assert not np.any(seen.terminated)
    params = env.default_params.replace(max_steps_in_episode=1)
    np.testing.assert_array_equal(play(env, keys(1), jnp.zeros(1, jnp.int32), params).truncated, [True])


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        (50.5, "must be a whole number, got 50.5"),
        (0, "must be at least 1, got 0"),
        (np.array([200, -3]), "must be at least 1, got -3"),
    ],
)
def test_the_inner_time_limit_of_a_repetition_is_checked(limit: Any, sentence: str) -> None:
    env = wrappers.action_repeat(envs.make("pendulum"), 4)
    sentence = rf"^inner\.max_steps_in_episode of action_repeat\(pendulum\) {re.escape(sentence)}$"
    params = env.default_params.replace(inner=env.default_params.inner.replace(max_steps_in_episode=limit))
    with pytest.raises(ValueError, match=sentence):
        env.checked_params(params)
    outer = wrappers.sticky_actions(env, 0.5)
    with pytest.raises(ValueError, match=sentence):
        outer.checked_params(outer.default_params.replace(inner=params.replace(max_steps_in_episode=50)))


def test_action_repeat_sums_rewards_over_the_active_steps_of_each_agent() -> None:
    """Agent i acts for i + 2 steps and earns i + 1 in each; all are over after 4."""
    env = wrappers.action_repeat(agents.Crowd(3), 3)
    seen = play(env, keys(2), jnp.ones((2, 3), jnp.int32))
    np.testing.assert_array_equal(seen.reward, [[2, 6, 9], [0, 0, 3]])
    np.testing.assert_array_equal(seen.info["active"], [[True] * 3, [False, False, True]])
    np.testing.assert_array_equal(seen.info["agent_terminated"], [[True, True, False], [True] * 3])
    np.testing.assert_array_equal(seen.terminated, [False, True])
    metrics = seen.info["metrics"]
    np.testing.assert_array_equal(metrics["acting"], [3 + 3 + 2, 1])
    np.testing.assert_allclose(metrics["share"], [(1 + 1 + 2 / 3) / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(metrics["total"], [(2 + 3 + 3) / 3, (2 + 3 + 4) / 3], rtol=1e-6)


@dataclass(frozen=True)
class Forgetful(Echo):
    """Two agents; the first one terminates in the first step, which nothing reports afterwards."""

    agents: tuple[int, ...] = (2,)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        ended = (jnp.arange(2) == 0) & (state.time == 1)
        return obs, state, reward, terminated, {**info, "agent_terminated": ended, "step": state.time}


def test_an_agent_that_terminated_earns_nothing_more_in_a_repetition() -> None:
    env = wrappers.action_repeat(Forgetful(), 3)
    seen = play(env, keys(2), jnp.ones((2, 2, 2)))
    np.testing.assert_array_equal(seen.reward, [[2, 6], [6, 6]])
    np.testing.assert_array_equal(seen.info["agent_terminated"], [[True, False], [False, False]])
    np.testing.assert_array_equal(seen.info["step"], [3, 6])  # its other values are those of the last step


def test_actions_that_never_stick_are_those_given() -> None:
    env = wrappers.sticky_actions(CARTPOLE, 0.0)
    actions = jax.random.randint(jax.random.key(1), (8,), 0, 2)
    seen = play(env, keys(8), actions)
    state = env.reset_env(RESET, env.default_params)[1].inner
    for i, key in enumerate(keys(8)):  # its steps draw nothing, so that the key does not matter
        obs, state, *_ = CARTPOLE.step_env(key, state, actions[i], CARTPOLE.default_params)
        np.testing.assert_allclose(seen.obs[i], obs, atol=1e-5)


def test_actions_that_always_stick_are_the_first_one() -> None:
    env = wrappers.sticky_actions(Echo(), 1.0)
    actions = jnp.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(play(env, keys(5), actions).obs, np.tile(actions[0], (5, 1)))


@pytest.mark.slow
def test_each_agent_sticks_on_its_own_with_the_probability_that_is_traced() -> None:
    count = 4096
    env = wrappers.sticky_actions(Echo((count,)), 0.5)
    actions = jnp.stack([jnp.zeros((count, 2)), jnp.ones((count, 2)), 2 * jnp.ones((count, 2))])

    def shares(probability: jax.Array) -> jax.Array:
        obs = play(env, keys(3), actions, env.default_params.replace(probability=probability)).obs
        return jnp.mean(obs[..., 0] == jnp.array([0.0, 1.0])[:, None, None], axis=-1)

    for probability in (0.25, 0.7):
        zeros, ones = shares(jnp.float32(probability))
        error = 5 * np.sqrt(0.25 / count)  # five standard deviations of a share, at most
        assert zeros[0] == 1
        assert abs(zeros[1] - probability) < error
        assert abs(zeros[2] - probability**2) < error  # the action that was taken sticks, not the one that was passed
        assert abs(ones[2] - probability * (1 - probability)) < error


def test_a_forbidden_action_does_not_stick() -> None:
    """Agent i may not take (time + i) modulo 3: of 0 and 1, taken at first, only the second is allowed at time 0."""
    env = wrappers.sticky_actions(agents.Crowd(2, masked=True), 1.0)
    actions = jnp.array([[1, 0], [2, 1]], jnp.int32)
    total = play(env, keys(2), actions).state.inner.total
    # At time 1 agent 0 may not take 1 again, and agent 1 may take 0.
    np.testing.assert_array_equal(total[1] - total[0], [2, 0])


def test_late_actions_are_those_of_some_steps_ago() -> None:
    actions = jnp.arange(12.0).reshape(6, 2)
    seen = play(wrappers.delay_actions(Echo(), 2), keys(6), actions)
    nearest = np.clip(np.zeros(2), LOW, HIGH)  # to 0
    np.testing.assert_array_equal(seen.obs, [nearest, nearest, *actions[:4]])
    taken = jnp.array([0, 0, 0, 1, 1, 0, 1, 0], jnp.int32)
    late = play(wrappers.delay_actions(CARTPOLE, 3), keys(8), jnp.roll(taken, -3))
    inner = play(CARTPOLE, keys(8), taken)
    equal((late.obs, late.reward, late.terminated), (inner.obs, inner.reward, inner.terminated))


@pytest.mark.parametrize("crowd", [(), (3,)], ids=["one", "three"])
def test_discrete_actions_are_evenly_spaced_from_bound_to_bound(crowd: tuple[int, ...]) -> None:
    env = wrappers.discretise_actions(Echo(crowd), (3, 5))
    space = env.action_space(env.default_params)
    assert isinstance(space, spaces.Tuple)
    assert [part.n for part in space.spaces if isinstance(part, spaces.Discrete)] == [3, 5]
    chosen = np.array([[i, j] for i in range(3) for j in range(5)], np.int32)
    actions = tuple(jnp.broadcast_to(part.reshape(-1, *[1] * len(crowd)), (15, *crowd)) for part in chosen.T)
    grids = [np.linspace(low, high, n)[i] for low, high, n, i in zip(LOW, HIGH, (3, 5), chosen.T, strict=True)]
    grid = np.stack(grids, axis=-1).reshape(15, *[1] * len(crowd), 2)
    seen = play(env, keys(15), actions).obs
    np.testing.assert_array_equal(seen, np.broadcast_to(grid, (15, *crowd, 2)))


def test_bounds_hold_of_actions_and_of_their_space() -> None:
    env = wrappers.bound_actions(Echo(), 0.75)
    space = env.action_space(env.default_params)
    assert isinstance(space, spaces.Box)
    low, high = np.maximum(LOW, -0.75), np.minimum(HIGH, 0.75)
    np.testing.assert_array_equal(np.stack([space.low, space.high]), np.stack([low, high]).astype(np.float32))
    actions = jnp.linspace(-2, 2, 10).reshape(5, 2)
    np.testing.assert_array_equal(play(env, keys(5), actions).obs, np.clip(actions, -0.75, 0.75))
    crowd = wrappers.bound_actions(envs.make("crowd/circle"), 3.0)
    space = crowd.action_space(crowd.default_params)
    assert isinstance(space, spaces.Box) and np.all(space.low == -3) and np.all(space.high == 3)


def test_one_number_becomes_one_choice() -> None:
    env = wrappers.discretise_actions(PENDULUM, 5)
    assert isinstance(env.action_space(env.default_params), spaces.Discrete) and env.num_actions == 5
    seen = play(env, keys(5), jnp.arange(5))
    equal(seen.obs, play(PENDULUM, keys(5), jnp.linspace(-2, 2, 5)[:, None]).obs)
    with pytest.raises(TypeError, match="num_actions is defined for a Discrete or Box action space"):
        _ = wrappers.discretise_actions(Echo(), 5).num_actions


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda: wrappers.action_repeat(CARTPOLE, 0), r"times of action_repeat is 0; it takes a whole number"),
        (lambda: wrappers.delay_actions(CARTPOLE, 1.5), r"steps of delay_actions is 1\.5; it takes a whole number"),  # type: ignore[arg-type]
        (lambda: wrappers.action_repeat(agents.Crowd(masked=True), 2), r"at every step; Crowd has action masks"),
        (lambda: wrappers.delay_actions(agents.Crowd(masked=True), 2), r"at every step; Crowd has action masks"),
        (lambda: wrappers.sticky_actions(CARTPOLE, 1.5), r"probability of sticky_actions is 1\.5; it takes a number"),
        (lambda: wrappers.sticky_actions(CARTPOLE, "x"), r"probability of sticky_actions is 'x'; it takes a number"),  # type: ignore[arg-type]
        (lambda: wrappers.discretise_actions(CARTPOLE, 3), r"finite bounds; that of cartpole is Discrete\(2"),
        (lambda: wrappers.discretise_actions(envs.make("crowd/circle"), 3), r"finite bounds; that of crowd/circle"),
        (lambda: wrappers.bound_actions(CARTPOLE, 1.0), r"a Box of real numbers; that of cartpole is Discrete\(2"),
        (lambda: wrappers.bound_actions(PENDULUM, 0), r"bound of bound_actions is 0; it takes a finite number above 0"),
        (lambda: wrappers.bound_actions(PENDULUM, np.inf), r"bound of bound_actions is inf; it takes a finite number"),
        (lambda: wrappers.discretise_actions(PENDULUM, 1), r"bins of discretise_actions is 1; it takes a whole number"),
        (lambda: wrappers.discretise_actions(PENDULUM, (2, 3)), r"has 2 counts; an action of pendulum has 1 numbers"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(wrap: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap()


def test_invalid_parameters_are_refused() -> None:
    env = wrappers.sticky_actions(CARTPOLE, 0.25)
    params: Any = env.default_params
    env.check_params(params.replace(probability=np.array([0.0, 1.0])))
    with pytest.raises(ValueError, match=r"probability of sticky_actions is 1\.5"):
        env.check_params(params.replace(probability=np.array([0.5, 1.5])))
    with pytest.raises(ValueError, match=r"inner\.max_steps_in_episode of sticky_actions\(cartpole\) is 7"):
        env.check_params(params.replace(inner=params.inner.replace(max_steps_in_episode=7)))


@pytest.mark.slow
def test_the_one_time_limit_reaches_the_environment_inside() -> None:
    """Nested ones included: a time feature inside shows the remaining time of the limit outside."""
    env: base.Environment = wrappers.sticky_actions(wrappers.time_feature(PENDULUM), 0.0)
    env = wrappers.observation_noise(env, 0.0)
    params = env.default_params.replace(max_steps_in_episode=4)
    seen = play(env, keys(4), jnp.zeros((4, 1)), params)
    np.testing.assert_array_equal(seen.obs[:, -1], [0.75, 0.5, 0.25, 0])
    np.testing.assert_array_equal(seen.truncated, [False, False, False, True])


@dataclass(frozen=True)
class Whole(Echo):
    """An environment that takes whole numbers, or a dictionary of a choice and numbers."""

    in_parts: bool = False

    def action_space(self, params: Any = None) -> Any:
        whole = spaces.Box(-3, 3, (2,), jnp.int32)
        return spaces.Dict({"choice": spaces.Discrete(3), "whole": whole}) if self.in_parts else whole

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        whole = action["whole"] + action["choice"][..., None] if self.in_parts else action
        return super().step_env(key, state, whole.astype(jnp.float32), params)


def test_every_whole_number_can_be_chosen() -> None:
    env = wrappers.discretise_actions(Whole(), 7)
    seen = play(env, keys(7), tuple(jnp.arange(7) for _ in range(2)))
    np.testing.assert_array_equal(seen.obs[:, 0], np.arange(-3, 4))


@pytest.mark.slow
def test_actions_of_several_parts_are_late_and_stick() -> None:
    env = Whole(in_parts=True)
    choice = jnp.arange(4) % 3
    actions = {"choice": choice, "whole": jnp.arange(8).reshape(4, 2) % 4}
    late = play(wrappers.delay_actions(env, 1), keys(4), actions)
    np.testing.assert_array_equal(late.obs[0], [0, 0])
    np.testing.assert_array_equal(late.obs[1:], (actions["whole"] + choice[:, None])[:3])
    stuck = play(wrappers.sticky_actions(env, 1.0), keys(4), actions)
    np.testing.assert_array_equal(stuck.obs, np.tile(actions["whole"][0] + choice[0], (4, 1)))


@pytest.mark.fast_rows("1000000000")
@pytest.mark.parametrize("limit", [1, 3, 4, 10**9])
def test_inner_wrappers_observe_the_earlier_time_limit(limit: int) -> None:
    """All delayed rewards are paid at the earlier limit, and no time remains there."""
    actions = jnp.ones((60, 2))
    for build in (
        lambda env: wrappers.time_limit(wrappers.action_repeat(env, 2), limit),
        lambda env: wrappers.action_repeat(wrappers.time_limit(env, min(2 * limit, 100)), 2),
    ):
        paid, at = [], min(limit, 50) - 1
        for env in (Echo(), wrappers.delay_rewards(Echo(), 3)):
            seen = play(build(env), keys(60), actions)
            assert int(np.argmax(seen.truncated)) == at
            paid.append(float(np.sum(seen.reward[: at + 1])))
        assert paid[0] == paid[1] == 4.0 * (at + 1)
        inside = play(build(wrappers.time_feature(Echo())), keys(60), actions)
        outside = play(wrappers.time_feature(build(Echo())), keys(60), actions)
        for seen in (inside, outside):
            np.testing.assert_allclose(seen.obs[: at + 1, -1], 1 - np.arange(1, at + 2) / (at + 1), atol=1e-6)
            assert seen.obs[at, -1] == 0


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: wrappers.discretise_actions(PENDULUM, 3.5), ValueError, "bins of discretise_actions is 3.5; it takes"),  # type: ignore[arg-type]
        (lambda: wrappers.sticky_actions(CARTPOLE, [0.1, 0.2]), ValueError, "is .0.1, 0.2.; it takes a number"),  # type: ignore[arg-type]
        (lambda: wrappers.observation_noise(CARTPOLE, "x"), ValueError, "scale of observation_noise is 'x'; it"),  # type: ignore[arg-type]
        (
            lambda: wrappers.transform_observation(CARTPOLE, jnp.sin, low="x"),  # type: ignore[arg-type]
            ValueError,
            "low of transform_observation is 'x'; it takes a number",
        ),
        (lambda: wrappers.transform_observation(CARTPOLE, list), TypeError, r"must return an array, .*, got \["),
    ],
)
def test_a_value_that_is_not_a_number_gets_one_sentence(make: Any, error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_numbers_of_arrays_are_numbers() -> None:
    assert wrappers.discretise_actions(PENDULUM, np.int64(5)) == wrappers.discretise_actions(PENDULUM, 5)  # type: ignore[arg-type]
    assert wrappers.sticky_actions(CARTPOLE, np.float64(0.25)) == wrappers.sticky_actions(CARTPOLE, 0.25)
    assert hash(wrappers.observation_noise(CARTPOLE, jnp.float32(0.5))) == hash(  # type: ignore[arg-type]
        wrappers.observation_noise(CARTPOLE, 0.5)
    )


@dataclass(frozen=True)
class EachSpeaks(agents.Crowd):
    """A crowd with a metric that has a number for each agent."""

    @property
    def metric_rules(self) -> Any:
        return {"speed": "sum"}

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward, terminated, {**info, "metrics": {"speed": 51.0 * jnp.ones(self.num_agents)}}


@pytest.mark.parametrize(("num_agents", "times"), [(2, 2), (2, 3), (3, 2), (1, 2)])
def test_a_repetition_leaves_a_metric_of_each_agent_to_the_environment(num_agents: int, times: int) -> None:
    """Only the environment knows how agents are weighted: the law refuses the metric with a repetition as without."""
    env = EachSpeaks(num_agents)
    repeated = wrappers.action_repeat(env, times)
    for each in (env, repeated):
        with pytest.raises(
            envs.ContractError, match=r"metric law: 'speed' has shape \(\d,\); it must be one number for"
        ):
            check_abstractly(each)
    seen = play(repeated, keys(1), jnp.ones((1, num_agents), jnp.int32))
    steps = min(times, num_agents + 1)
    np.testing.assert_array_equal(seen.info["metrics"]["speed"], np.full((1, num_agents), 51.0 * steps))
