"""Wrappers of observations and rewards: frames, delays, functions, vectors, noise."""

import dataclasses
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from echo_environment import Echo, equal, keys, play
from test_wrappers import DictCrowd, TupleProbe

import envs
from envs import base, probes, wrappers
from envs.base import spaces
from envs.checking import TOLERANCE

CARTPOLE = envs.make("cartpole")
LAKE = envs.make("gymnax/FrozenLake-misc")  # which shows a whole number

KINDS: dict[str, tuple[base.Environment, Any]] = {
    "vector": (CARTPOLE, jnp.array([0, 1, 1, 0, 0, 1], jnp.int32)),
    "vectors of a crowd": (agents.Crowd(4), jnp.arange(24, dtype=jnp.int32).reshape(6, 4) % 3),
    "dictionaries of a crowd": (DictCrowd(4), jnp.arange(24, dtype=jnp.int32).reshape(6, 4) % 3),
    "tuple": (TupleProbe(steps=9), jnp.zeros(6, jnp.int32)),
    "number": (LAKE, jnp.array([0, 1, 2, 3, 2, 1], jnp.int32)),
}


def shown(env: base.Environment, actions: Any) -> Any:
    """Observations `[7, ...]`, the first one included, and the rest of the six steps."""
    seen = play(env, keys(6), actions)
    return jax.tree.map(lambda a, b: np.concatenate([a[None], b]), seen.first[0], seen.obs), seen


@pytest.mark.parametrize(("env", "actions"), KINDS.values(), ids=KINDS)
def test_the_last_frame_is_the_observation_and_those_before_it_the_past(env: base.Environment, actions: Any) -> None:
    frames, stacked = shown(wrappers.frame_stack(env, 3), actions)
    obs, inner = shown(env, actions)
    axis = 1 + len(inner.reward.shape[1:])
    for ago in range(3):
        then = np.maximum(np.arange(7) - ago, 0)
        equal(
            jax.tree.map(lambda leaf, ago=ago: np.take(leaf, 2 - ago, axis), frames),
            jax.tree.map(lambda leaf, then=then: leaf[then], obs),
        )
    equal((stacked.reward, stacked.terminated, stacked.truncated), (inner.reward, inner.terminated, inner.truncated))


@pytest.mark.parametrize(("env", "actions"), KINDS.values(), ids=KINDS)
def test_late_observations_are_those_of_some_steps_ago(env: base.Environment, actions: Any) -> None:
    late, seen = shown(wrappers.delay_observations(env, 2), actions)
    obs, inner = shown(env, actions)
    equal(late, jax.tree.map(lambda leaf: leaf[np.maximum(np.arange(7) - 2, 0)], obs))
    equal((seen.reward, seen.terminated, seen.truncated), (inner.reward, inner.terminated, inner.truncated))


def test_frames_have_bounds_like_observations() -> None:
    space = wrappers.frame_stack(envs.make("pendulum"), 2).observation_space(envs.make("pendulum").default_params)
    np.testing.assert_array_equal(space.high, [[1, 1, 8]] * 2)
    number = wrappers.frame_stack(LAKE, 2).observation_space(LAKE.default_params)
    assert isinstance(number, spaces.Box) and number.shape == (2,) and number.dtype == jnp.int32
    np.testing.assert_array_equal(number.high, [15, 15])


def squares(obs: jax.Array) -> dict[str, jax.Array]:
    return {"squares": obs**2, "sum": jnp.sum(obs), "positive": obs[0] > 0}


@pytest.mark.parametrize("name", ["vector", "vectors of a crowd"])
def test_observations_become_a_function_of_themselves(name: str) -> None:
    inner, actions = KINDS[name]
    env = wrappers.transform_observation(inner, squares, low=0.0)
    new, _ = shown(env, actions)
    obs, _ = shown(inner, actions)
    np.testing.assert_allclose(new["squares"], obs**2, rtol=1e-6)
    np.testing.assert_allclose(new["sum"], obs.sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(new["positive"], obs[..., 0] > 0)
    space = env.observation_space(env.default_params)
    assert isinstance(space, spaces.Dict) and (space.spaces["sum"].low, space.spaces["sum"].high) == (0, np.inf)
    boolean = space.spaces["positive"]
    assert boolean.dtype == bool and (boolean.low, boolean.high) == (0, 1)
    assert env == wrappers.transform_observation(inner, squares, low=0.0)
    assert env != wrappers.transform_observation(inner, squares)


@pytest.mark.slow
def test_observations_become_vectors() -> None:
    obs, _ = shown(DictCrowd(4), KINDS["dictionaries of a crowd"][1])
    flat, _ = shown(wrappers.flatten_observation(DictCrowd(4)), KINDS["dictionaries of a crowd"][1])
    equal(flat, np.concatenate([obs["both"], obs["total"][..., None]], axis=-1))  # by name
    position, _ = shown(LAKE, KINDS["number"][1])
    flat, _ = shown(wrappers.flatten_observation(LAKE), KINDS["number"][1])
    equal(flat, np.eye(16, dtype=np.float32)[position])
    catch = envs.make("gymnax/Catch-bsuite")  # a matrix
    obs, state = catch.reset_env(jax.random.key(0), catch.default_params)
    equal(wrappers.flatten_observation(catch).reset_env(jax.random.key(0), catch.default_params), (obs.ravel(), state))
    mixed = wrappers.flatten_observation(wrappers.time_feature(wrappers.frame_stack(envs.make("pendulum"), 2)))
    space = mixed.observation_space(mixed.default_params)
    np.testing.assert_array_equal(space.high, [1, 1, 8, 1, 1, 8, 1])
    np.testing.assert_array_equal(space.low, [-1, -1, -8, -1, -1, -8, 0])


def test_hidden_components_are_left_out_and_nothing_else_changes() -> None:
    actions = jnp.asarray(np.random.default_rng(0).integers(0, 2, 8))
    env = wrappers.hide(CARTPOLE, 3, 1, 3)
    hidden, whole = play(env, keys(8), actions), play(CARTPOLE, keys(8), actions)
    pairs = [(hidden.obs, whole.obs[:, [0, 2]]), (hidden.first[0], whole.first[0][jnp.array([0, 2])])]
    pairs += zip(*map(jax.tree.leaves, (hidden[2:], whole[2:])), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)  # of two compilations
    space, inside = (each.observation_space(each.default_params) for each in (env, CARTPOLE))
    equal((space.low, space.high), (inside.low[jnp.array([0, 2])], inside.high[jnp.array([0, 2])]))
    assert env == wrappers.hide(CARTPOLE, 1, 3) and vars(env)["components"] == (1, 3) and env.optimum() is None

    crowd = agents.Crowd(2, masked=True)
    env, names = (
        wrappers.hide(crowd, 1),
        wrappers.hide(wrappers.time_feature(wrappers.frame_stack(crowd, 2)), "observation"),
    )
    obs, state = env.reset_env(jax.random.key(0), env.default_params)
    assert obs.shape == (2, 1) and env.metric_rules == crowd.metric_rules
    equal(env.action_mask(state, env.default_params), crowd.action_mask(state, crowd.default_params))
    obs, state = names.reset_env(jax.random.key(0), names.default_params)
    assert set(obs) == set(names.observation_space(names.default_params).spaces) == {"remaining_time"}


@pytest.mark.slow
def test_noise_is_independent_normal_and_of_the_scale_that_is_traced() -> None:
    count = 4096
    env = wrappers.observation_noise(Echo((count,)), 1.0)
    actions = jnp.ones((2, count, 2))

    def noise(scale: float) -> np.ndarray:
        seen = play(env, keys(2), actions, env.default_params.replace(scale=scale))
        return np.stack([seen.first[0], *(seen.obs - actions)])  # [3, count, 2]; the first observation is 0

    assert not noise(0.0).any()
    standard, wide = noise(1.0), noise(3.0)
    np.testing.assert_allclose(wide, 3 * standard, atol=1e-5)
    columns = standard.transpose(0, 2, 1).reshape(6, count)
    # Five standard deviations of a mean, of a standard deviation and of a correlation.
    assert np.all(np.abs(columns.mean(1)) < 5 / np.sqrt(count))
    assert np.all(np.abs(columns.std(1) - 1) < 5 / np.sqrt(2 * count))
    assert np.all(np.abs(np.corrcoef(columns) - np.eye(6)) < 5 / np.sqrt(count))
    space = env.observation_space(env.default_params)
    assert (space.low, space.high) == (-np.inf, np.inf)


def test_noise_leaves_whole_numbers_and_dynamics_alone() -> None:
    inner = wrappers.transform_observation(CARTPOLE, signs)
    env = wrappers.observation_noise(inner, 0.5)
    actions = KINDS["vector"][1]
    seen = play(env, keys(6), actions)
    assert seen.obs["sign"].dtype == jnp.int32
    assert not np.any(seen.obs["obs"] == squares_of(seen.state))
    np.testing.assert_array_equal(seen.obs["sign"], np.sign(squares_of(seen.state)))
    with pytest.raises(ValueError, match=r"shows real numbers; gymnax/FrozenLake-misc shows Discrete\(16"):
        wrappers.observation_noise(LAKE, 0.5)


def signs(obs: jax.Array) -> dict[str, jax.Array]:
    return {"obs": obs, "sign": jnp.sign(obs).astype(jnp.int32)}


def squares_of(state: Any) -> np.ndarray:
    """CartPole's observation, from its state."""
    return np.stack([state.x, state.x_dot, state.theta, state.theta_dot], axis=-1)


def halved(reward: jax.Array) -> jax.Array:
    return reward / 2 - 1


def test_transform_reward_applies_to_active_agents_alone() -> None:
    seen = play(wrappers.transform_reward(agents.Crowd(3), halved), keys(4), jnp.ones((4, 3), jnp.int32))
    # Agent i earns i + 1 in i + 2 steps.
    np.testing.assert_array_equal(seen.reward, [[-0.5, 0, 0.5], [-0.5, 0, 0.5], [0, 0, 0.5], [0, 0, 0.5]])
    one = play(wrappers.transform_reward(CARTPOLE, halved), keys(2), jnp.zeros(2, jnp.int32))
    np.testing.assert_array_equal(one.reward, [-0.5, -0.5])


def test_late_rewards_come_after_so_many_steps_and_none_is_lost_at_the_end() -> None:
    echo = wrappers.delay_rewards(Echo(), 2)
    actions = jnp.arange(10.0).reshape(5, 2)  # with the sums 1, 5, 9, 13, 17
    params: Any = echo.default_params.replace(max_steps_in_episode=5)
    seen = play(echo, keys(5), actions, params)
    np.testing.assert_array_equal(seen.reward, [0, 0, 1, 5, 9 + 13 + 17])  # all at the time limit
    np.testing.assert_array_equal(play(echo, keys(5), actions).reward, [0, 0, 1, 5, 9])
    terminating = wrappers.delay_rewards(probes.OnlyTerminates(steps=3), 5)
    np.testing.assert_array_equal(play(terminating, keys(3), jnp.zeros(3, jnp.int32)).reward, [0, 0, 3])
    crowd = wrappers.delay_rewards(agents.Crowd(3), 1)
    seen = play(crowd, keys(4), jnp.ones((4, 3), jnp.int32))  # agent i is over after i + 2 steps
    np.testing.assert_array_equal(seen.reward, [[0, 0, 0], [2, 2, 3], [0, 4, 3], [0, 0, 6]])


@pytest.mark.parametrize(
    ("wrap", "error", "message"),
    [
        (lambda: wrappers.frame_stack(CARTPOLE, 0), ValueError, r"num_frames of frame_stack is 0; it takes a who"),
        (lambda: wrappers.frame_stack("cartpole", 2), TypeError, r"frame_stack takes an environment, such as"),  # type: ignore[arg-type]
        (lambda: wrappers.delay_observations(CARTPOLE, True), ValueError, r"steps of delay_observations is True; it t"),
        (lambda: wrappers.delay_rewards(CARTPOLE, -1), ValueError, r"steps of delay_rewards is -1; it takes a whole"),
        (lambda: wrappers.observation_noise(CARTPOLE, -0.5), ValueError, r"scale of observation_noise is -0\.5; it ta"),
        (lambda: wrappers.transform_observation(CARTPOLE, 3), TypeError, r"takes a function of an observation, not 3"),  # type: ignore[arg-type]
        (lambda: wrappers.transform_reward(CARTPOLE, 3), TypeError, r"takes a function of a reward, not 3"),  # type: ignore[arg-type]
        (lambda: wrappers.transform_reward(CARTPOLE, lambda r: r[None]), ValueError, r"a number for a number, got Sh"),
        (lambda: wrappers.hide(CARTPOLE, 4), ValueError, r"component 4; observations of .* have the indices 0 to 3"),
        (lambda: wrappers.hide(CARTPOLE, -1), ValueError, r"component -1; observations of cartpole have the indices"),
        (lambda: wrappers.hide(CARTPOLE, "x"), ValueError, r"component 'x'; observations of cartpole have the"),
        (lambda: wrappers.hide(wrappers.time_feature(LAKE), "x"), ValueError, r"have 'observation', 'remaining_time'"),
        (lambda: wrappers.hide(CARTPOLE), ValueError, r"hide takes at least one component to leave out; obs"),
        (lambda: wrappers.hide(CARTPOLE, 0, 1, 2, 3), ValueError, r"hide must leave at least one component of an o"),
        (lambda: wrappers.hide(LAKE, 0), ValueError, r"shows an array or a dictionary, and gymnax/F.* shows D"),
        (lambda: wrappers.hide(CARTPOLE, 0.5), TypeError, r"a component of hide is an index or a name, not 0\.5"),  # type: ignore[arg-type]
        (lambda: wrappers.time_limit(CARTPOLE, 0), ValueError, r"max_steps of time_limit is 0; it takes a whole numbe"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(wrap: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrap()


def test_a_time_limit_replaces_the_one_before_and_stays_a_parameter() -> None:
    for max_steps in (3, 5000):  # below CartPole's own, and above
        env = wrappers.time_limit(CARTPOLE, max_steps)
        assert env.default_params == dataclasses.replace(CARTPOLE.default_params, max_steps_in_episode=max_steps)
    env = wrappers.time_limit(CARTPOLE, 3)
    seen = play(env, keys(6), KINDS["vector"][1])
    np.testing.assert_array_equal(seen.truncated, np.arange(1, 7) >= 3)
    assert not np.any(seen.terminated)
    params: Any = env.default_params
    later = play(env, keys(6), KINDS["vector"][1], params.replace(max_steps_in_episode=jnp.int32(5)))
    np.testing.assert_array_equal(later.truncated, np.arange(1, 7) >= 5)
