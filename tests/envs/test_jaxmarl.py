"""Crowds under JaxMARL's interface: equality with the native ones, and JaxMARL's own classes around them."""

import dataclasses
from typing import Any, cast

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from echo_environment import Echo, EchoParams
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper, MPELogWrapper

import envs
from envs import wrappers
from envs.adapters.outgoing.agents import sample
from envs.adapters.outgoing.jaxmarl import JaxMARLEnv, as_jaxmarl
from envs.base import spaces
from envs.wrappers.wrapper import Wrapper

# Returns of the tiny crowd's agents: agent i acts for i + 2 steps and is paid (i + 1) * action.
ACTIONS = {"agent_0": jnp.int32(1), "agent_1": jnp.int32(2)}


def tiny(**params: Any) -> JaxMARLEnv:
    env = agents.Crowd(num_agents=2)
    return as_jaxmarl(env, dataclasses.replace(env.default_params, **params))


def crowd() -> JaxMARLEnv:
    return as_jaxmarl(envs.make("crowd/circle", num_agents=2))


def test_adapted_environments_have_all_attributes_of_jaxmarl():
    env = tiny()
    theirs = {name for name in vars(MultiAgentEnv) if not name.startswith("_")}
    theirs |= set(vars(MultiAgentEnv(2)))
    assert theirs <= {*dir(env)}
    assert (env.num_agents, env.agents) == (2, ["agent_0", "agent_1"])
    assert env.agent_classes == {"agent": ["agent_0", "agent_1"]}
    assert env.action_space("agent_1").n == agents.NUM_ACTIONS
    assert env.observation_space("agent_0").shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("native", "metric"),
    [
        (agents.Crowd(num_agents=3), "share"),
        pytest.param(
            envs.make("crowd/random", num_agents=3, num_neighbours=1, substeps=2), "reward_goal", marks=pytest.mark.slow
        ),
    ],
    ids=["tiny", "pedestrians"],
)
def test_a_random_rollout_equals_the_native_one(native: Any, metric: str, key: jax.Array):
    """With a time limit, before which some agents are done; the last agent of the tiny crowd is done after 4 steps."""
    params = dataclasses.replace(native.default_params, max_steps_in_episode=6)
    env = as_jaxmarl(native, params)
    actions = sample(native.action_space(params), key, (10, 3))

    def theirs(key: jax.Array) -> Any:
        obs, state = env.reset(key)

        def body(state: Any, x: Any) -> Any:
            key, action = x
            obs, state, reward, done, info = env.step(key, state, {a: action[i] for i, a in enumerate(env.agents)})
            return state, (obs, reward, done, info)

        return obs, jax.lax.scan(body, state, (jax.random.split(key, 10), actions))[1]

    def ours(key: jax.Array) -> Any:
        obs, state = native.reset_env(key, params)

        def body(state: Any, x: Any) -> Any:
            step_key, reset_key = jax.random.split(x[0])
            obs, state, reward, ended, info = native.step_env(step_key, state, x[1], params)
            cut = native.is_truncated(state, params) & ~ended
            done = ended | cut
            obs, state = jax.tree.map(
                lambda new, old: jnp.where(done, new, old), native.reset_env(reset_key, params), (obs, state)
            )
            return state, (obs, reward, done, cut, info)

        return obs, jax.lax.scan(body, state, (jax.random.split(key, 10), actions))[1]

    first, (obs, reward, done, info) = jax.jit(theirs)(key)
    expected_first, (expected, expected_reward, expected_done, cut, expected_info) = jax.jit(ours)(key)
    for i, agent in enumerate(env.agents):
        jax.tree.map(
            np.testing.assert_array_equal, first[agent], jax.tree.map(lambda leaf, i=i: leaf[i], expected_first)
        )
        jax.tree.map(np.testing.assert_array_equal, obs[agent], jax.tree.map(lambda leaf, i=i: leaf[:, i], expected))
        np.testing.assert_array_equal(reward[agent], expected_reward[:, i])
    np.testing.assert_array_equal(done["__all__"], expected_done)
    assert list(np.flatnonzero(expected_done)) == ([3, 7] if metric == "share" else [5])
    arrived = np.asarray(expected_info["agent_terminated"])
    np.testing.assert_array_equal(info["terminated"], arrived)
    np.testing.assert_array_equal(info["truncated"], np.asarray(cut)[:, None] & ~arrived)
    np.testing.assert_array_equal(info["active"], expected_info["active"])
    np.testing.assert_array_equal(info[metric][:, 1], expected_info["metrics"][metric])
    assert {leaf.shape for leaf in info.values()} == {(10, 3)}


def test_agents_that_finish_keep_their_place_until_all_have(key: jax.Array):
    env = tiny()
    step = jax.jit(env.step)
    _, state = env.reset(key)
    seen = []
    for _ in range(4):
        _, state, reward, done, _ = step(key, state, ACTIONS)
        seen.append([*(bool(done[name]) for name in (*env.agents, "__all__")), *map(float, reward.values())])
    assert seen == [
        [False, False, False, 1.0, 4.0],
        [True, False, False, 1.0, 4.0],
        [True, True, True, 0.0, 4.0],
        [False, False, False, 1.0, 4.0],  # of the next episode
    ]
    assert int(state.step) == 1


@pytest.mark.slow
def test_jaxmarls_rollout_manager_batches_and_sums(key: jax.Array):
    wrapped: Any = tiny()
    env = CTRolloutManager(wrapped, batch_size=3)
    actions = {name: jnp.full(3, action) for name, action in ACTIONS.items()}
    obs, state = env.batch_reset(key)
    for t in range(3):
        obs, state, reward, done, _ = env.batch_step(key, state, actions)
        np.testing.assert_array_equal(reward["__all__"], [[5, 5, 4][t]] * 3)
        np.testing.assert_array_equal(done["agent_0"], [t > 0] * 3)
        # Shares of steps left and of actions, agent 0's of two steps and agent 1's of three, then its index.
        left, taken = 1 - min(t + 1, 2) / 2, min(t + 1, 2) / 4
        assert obs["agent_0"][0].tolist() == ([left, taken, 1, 0] if t == 0 else [0, 0, 0, 0])
    assert obs["__all__"].shape == (3, 4)
    assert env.batch_sample(key, "agent_1").shape == (3,)


@dataclasses.dataclass(frozen=True)
class Compass(Wrapper):
    """A crowd whose people choose one of four directions, or to stand."""

    def action_space(self, params: Any = None) -> spaces.Discrete:
        return spaces.Discrete(5)

    def step_env(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
        directions = jnp.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1)], jnp.float32)
        return super().step_env(key, state, directions[action], params)


@pytest.mark.slow
def test_jaxmarls_wrappers_hold_pedestrians(key: jax.Array):
    """JaxMARL's loggers, and its rollout manager for Q-learning, which takes choices and flat observations."""
    people = envs.make("crowd/circle", num_agents=2, num_neighbours=1, substeps=2)
    native = wrappers.flatten_observation(Compass(people))
    params = native.default_params.replace(max_steps_in_episode=3)
    bare: Any = as_jaxmarl(native, params)
    choices = jax.random.randint(key, (4, 2), 0, 5)
    keys = jax.random.split(jax.random.key(1), 4)

    def play(env: Any) -> Any:
        """Rewards `[4, 2]`, ends `[4]` and the infos of four steps."""
        state, reported = env.reset(key)[1], []
        for step_key, choice in zip(keys, choices, strict=True):
            _, state, reward, done, info = env.step(step_key, state, dict(zip(env.agents, choice, strict=True)))
            reported.append((list(map(float, (reward[agent] for agent in env.agents))), bool(done["__all__"]), info))
        return tuple(zip(*reported, strict=True))

    rewards, ends, _ = play(bare)
    assert ends == (False, False, True, False) and np.any(rewards)
    for wrapper, factor in ((LogWrapper, 1), (MPELogWrapper, 2)):  # the second one counts in sums of its two agents
        paid, over, infos = play(wrapper(bare))
        assert (paid, over) == (rewards, ends)
        logged = infos[2]["returned_episode_returns"]
        np.testing.assert_allclose(logged, factor * np.sum(rewards[:3], axis=0), rtol=1e-6)
        np.testing.assert_array_equal(infos[2]["returned_episode_lengths"], [3, 3])
    manager = CTRolloutManager(bare, batch_size=2)
    obs, state = manager.batch_reset(key)
    size = native.observation_space(params).shape[0]
    assert {name: leaf.shape for name, leaf in obs.items()} == {
        "agent_0": (2, size + 2),
        "agent_1": (2, size + 2),
        "__all__": (2, 2 * size),
    }
    seen = manager.batch_step(key, state, {name: manager.batch_sample(key, name) for name in bare.agents})
    reward = seen[2]
    np.testing.assert_allclose(reward["__all__"], reward["agent_0"] + reward["agent_1"], rtol=1e-6)
    np.testing.assert_array_equal(obs["agent_1"][:, size:], [[0, 1]] * 2)


@dataclasses.dataclass(frozen=True)
class Forgetful(Echo):
    """Agent i terminates in step i + 1, without a later report, and still receives rewards; the episode never ends."""

    agents: tuple[int, ...] = (3,)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, _ = super().step_env(key, state, action, params)
        return obs, state, reward, terminated, {"agent_terminated": jnp.arange(1, 4) == state.time}


def test_terminations_of_agents_are_remembered(key: jax.Array):
    env = as_jaxmarl(Forgetful())
    actions = dict.fromkeys(env.agents, jnp.ones(2))
    _, state = env.reset(key)
    before = np.zeros(3, bool)
    for t in range(3):
        _, state, reward, done, info = env.step_env(key, state, actions)
        finished = np.arange(3) <= t
        assert [bool(done[name]) for name in env.agents] == list(finished)
        assert bool(done["__all__"]) == (t == 2)
        assert list(map(float, reward.values())) == list(np.where(before, 0, 2))
        np.testing.assert_array_equal(info["terminated"], finished)
        np.testing.assert_array_equal(info["active"], ~before)
        assert not np.any(info["truncated"])
        before = finished


def test_the_time_limit_truncates_unfinished_agents(key: jax.Array):
    env = as_jaxmarl(Forgetful(), dataclasses.replace(Forgetful().default_params, max_steps_in_episode=2))
    actions = dict.fromkeys(env.agents, jnp.ones(2))
    state = env.reset(key)[1]
    for _ in range(2):
        _, state, _, done, info = env.step(key, state, actions)
    assert all(map(bool, done.values()))
    np.testing.assert_array_equal(info["terminated"], [True, True, False])
    np.testing.assert_array_equal(info["truncated"], [False, False, True])
    assert int(state.step) == 0 and not np.any(state.done)


@dataclasses.dataclass(frozen=True)
class Counted(agents.Crowd):
    """An environment that records every Python call of its functions."""

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        CALLS.append("reset")
        return super().reset_env(key, params)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        CALLS.append("step")
        return super().step_env(key, state, action, params)


CALLS: list[str] = []


def test_equal_environments_share_programs_compiled_at_the_first_call(key: jax.Array):
    def play(env: JaxMARLEnv) -> float:
        _, state = env.reset(key)
        _, state, *_ = env.step(key, state, ACTIONS)
        *_, reward, _, _ = env.step_env(key, state, ACTIONS | {"somebody": 0})
        return float(reward["agent_0"])

    env = as_jaxmarl(Counted(num_agents=2))
    other = as_jaxmarl(Counted(num_agents=2), dataclasses.replace(Counted().default_params, pay=2.0))
    CALLS.clear()
    assert play(env) == 1
    assert sorted(CALLS) == ["reset", "step"]  # a program is traced once for all callers
    assert (play(env), play(other)) == (1, 2)
    assert len(CALLS) == 2


def test_the_next_episode_starts_where_requested(key: jax.Array):
    env = tiny(max_steps_in_episode=1)
    _, start = env.reset(key)
    _, elsewhere, *_ = env.step_env(key, start, ACTIONS)
    obs, state, _, done, info = env.step(key, start, ACTIONS, elsewhere)
    assert bool(done["__all__"]) and np.all(info["truncated"]) and not np.any(info["terminated"])
    jax.tree.map(np.testing.assert_array_equal, (obs, state), (env.get_obs(elsewhere), elsewhere))


def test_jaxmarls_log_wrapper_counts_episodes(key: jax.Array):
    wrapped: Any = tiny()
    env = LogWrapper(wrapped)

    def run(key: jax.Array) -> Any:
        def body(state: Any, key: jax.Array) -> Any:
            *_, info = (out := env.step(key, state, ACTIONS))
            return out[1], info

        return jax.lax.scan(body, env.reset(key)[1], jax.random.split(key, 7))[1]

    info = jax.jit(jax.vmap(run))(jax.random.split(key, 3))
    ended = np.asarray(info["returned_episode"][0])
    np.testing.assert_array_equal(ended, np.isin(np.arange(7), [2, 5])[:, None].repeat(2, axis=1))
    np.testing.assert_array_equal(info["returned_episode_returns"][:, 2], [[2.0, 12.0]] * 3)
    np.testing.assert_array_equal(info["returned_episode_lengths"][:, 5], [[3, 3]] * 3)


def test_parameters_may_be_traced(key: jax.Array):
    """Action 1 of agent 0 pays `pay`."""

    def paid(pay: jax.Array) -> jax.Array:
        env = tiny(pay=pay)
        return env.step(key, env.reset(key)[1], ACTIONS)[2]["agent_0"]

    np.testing.assert_array_equal(jax.vmap(paid)(jnp.array([1.0, 3.0])), [1, 3])


def test_masks_are_available_actions(key: jax.Array):
    env = as_jaxmarl(agents.Crowd(num_agents=2, masked=True))
    state = env.reset(key)[1]
    mask = env.env.action_mask(state.env_state, env.params)
    for i, agent in enumerate(env.agents):
        np.testing.assert_array_equal(env.get_avail_actions(state)[agent], mask[i])
    assert not np.all(mask)
    assert np.all(tiny().get_avail_actions(tiny().reset(key)[1])["agent_0"])


@pytest.mark.parametrize(
    ("do", "error", "sentence"),
    [
        (lambda key: as_jaxmarl(envs.make("cartpole")), ValueError, "as_jaxmarl takes a crowd, .* has a single agent"),
        (lambda key: as_jaxmarl(cast(Any, "crowd/circle")), TypeError, "env is 'crowd/circle'; it must be an instance"),
        (
            lambda key: as_jaxmarl(crowd().env, EchoParams()),
            TypeError,
            "params must be CrowdParams of crowd/circle, got EchoParams",
        ),
        (
            lambda key: as_jaxmarl(crowd().env, crowd().params.replace(num_present=99)),
            ValueError,
            "num_present must lie between 1 and num_agents, 2, got 99",
        ),
        (lambda key: tiny(max_steps_in_episode=0), ValueError, "max_steps_in_episode is 0; as_jaxmarl takes a whole"),
        (
            lambda key: jax.eval_shape(lambda key: tiny().step(key, tiny().reset(key)[1], {"agent_1": 0}), key),
            ValueError,
            "one for each of agent_0, agent_1, and misses agent_0",
        ),
        (
            lambda key: jax.eval_shape(lambda key: (env := crowd()).get_avail_actions(env.reset(key)[1]), key),
            TypeError,
            "is for Discrete actions",
        ),
    ],
)
def test_bad_input_gets_one_sentence(key: jax.Array, do: Any, error: type, sentence: str):
    with pytest.raises(error, match=sentence) as caught:
        do(key)
    assert "\n" not in str(caught.value)
