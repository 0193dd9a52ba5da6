"""Crowds as PettingZoo's parallel environments: its own checks, and equality with the native ones step by step."""

import warnings
from typing import Any, cast

import agents
import gymnasium
import jax
import numpy as np
import pytest
from echo_environment import Echo, EchoParams
from pettingzoo.test import parallel_api_test, parallel_seed_test

import envs
from envs import wrappers
from envs.adapters.outgoing.pettingzoo import as_pettingzoo
from envs.crowd import Areas, Crowd, Straight

QUICK = ("crowd/circle", "crowd/random", "crowd/choke")  # the others differ in where people start
SCENARIOS = [name for name in envs.names() if name.startswith("crowd/")]


def small(name: str) -> Any:
    """A crowd that compiles in seconds."""
    return envs.make(name, num_agents=3, num_neighbours=1, substeps=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in SCENARIOS])
def test_pettingzoos_own_tests_pass(name: str):
    env = small(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the API test uses this often
        parallel_api_test(as_pettingzoo(env), num_cycles=300)
        parallel_seed_test(lambda: as_pettingzoo(env), num_cycles=50)


def native_rollout(env: Any, params: Any, seed: int, actions: np.ndarray) -> list[Any]:
    """Observations, rewards and finished agents, with the keys that the adapter is documented to use."""
    key, reset_key = jax.random.split(jax.random.key(seed))
    obs, state = jax.jit(env.reset_env)(reset_key, params)
    step = jax.jit(env.step_env)
    seen = [(obs, None, None, None)]
    for action in actions:
        key, step_key = jax.random.split(key)
        obs, state, reward, _, info = step(step_key, state, action, params)
        seen.append((obs, reward, info["agent_terminated"], env.is_truncated(state, params)))
    return seen


@pytest.mark.slow
def test_a_random_rollout_equals_the_native_one():
    env = small("crowd/random")
    params = env.default_params.replace(max_steps_in_episode=12)
    actions = np.random.default_rng(0).normal(size=(12, 3, 2)).astype(np.float32)
    native = native_rollout(env, params, 5, actions)
    parallel = as_pettingzoo(env, params)
    obs, infos = parallel.reset(seed=5)
    assert infos == {agent: {} for agent in parallel.possible_agents}
    for t, action in enumerate(actions):
        expected = native[t][0]
        for i, agent in enumerate(parallel.possible_agents):
            for part, leaf in obs[agent].items():
                np.testing.assert_array_equal(leaf, expected[part][i])
        obs, rewards, terminations, truncations, _ = parallel.step(
            {agent: action[i] for i, agent in enumerate(parallel.agents)}
        )
        _, reward, finished, cut = native[t + 1]
        np.testing.assert_array_equal(list(rewards.values()), reward)
        assert list(terminations.values()) == list(np.asarray(finished))
        assert list(truncations.values()) == [bool(cut)] * 3 == [t == 11] * 3
    assert parallel.agents == []


@pytest.mark.slow
def test_finished_agents_leave():
    """Two agents walk to goals at different distances: the nearer one arrives first, is terminated and leaves."""
    scene = Areas(spawns=[((0, 0), (0.1, 0.1)), ((0, 5), (0.1, 5.1))], goals=[((1, -1), (2, 1)), ((3, 4), (4, 6))])
    env = Crowd(scenario=scene, num_agents=2, substeps=2)
    params = env.default_params
    parallel, policy = as_pettingzoo(env, params), Straight(env)
    act = jax.jit(lambda state: policy(jax.random.key(0), None, state))
    parallel.reset(seed=0)
    left: dict[str, int] = {}
    for t in range(params.max_steps_in_episode):
        action = np.asarray(act(parallel._state))
        before = list(parallel.agents)
        obs, rewards, terminations, truncations, _ = parallel.step({agent: action[int(agent[-1])] for agent in before})
        for reported in (obs, rewards, terminations, truncations):
            assert list(reported) == before
        assert not any(truncations.values())
        left |= {agent: t for agent in before if terminations[agent]}
        assert parallel.agents == [agent for agent in before if not terminations[agent]]
        if not parallel.agents:
            break
    assert left["agent_0"] < left["agent_1"] < params.max_steps_in_episode - 1
    obs, _ = parallel.reset()
    assert parallel.agents == list(obs) == ["agent_0", "agent_1"]


@pytest.mark.slow
def test_absent_agents_are_left_out():
    env = small("crowd/circle")
    parallel = as_pettingzoo(env, env.default_params.replace(num_present=2))
    obs, _ = parallel.reset(seed=0)
    assert parallel.agents == list(obs) == ["agent_0", "agent_1"]
    obs, *_ = parallel.step({agent: np.zeros(2) for agent in parallel.agents})
    assert list(obs) == ["agent_0", "agent_1"]


@pytest.mark.slow
def test_seeds_make_episodes_and_unseeded_resets_continue():
    parallel, other = (as_pettingzoo(small("crowd/random")) for _ in range(2))
    first = parallel.reset(seed=3)[0]["agent_0"]["own"]
    second = parallel.reset()[0]["agent_0"]["own"]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(other.reset(seed=3)[0]["agent_0"]["own"], first)
    np.testing.assert_array_equal(other.reset()[0]["agent_0"]["own"], second)


@pytest.mark.slow
def test_large_seeds_make_episodes_of_their_own():
    parallel = as_pettingzoo(small("crowd/random"))
    firsts = [parallel.reset(seed=seed)[0]["agent_0"]["own"] for seed in (1, 2**32 + 1, 2**70)]
    assert len({first.tobytes() for first in firsts}) == 3


def test_an_episode_that_terminates_ends_for_all_and_discrete_actions_work():
    parallel = as_pettingzoo(agents.Crowd(num_agents=2))
    parallel.reset(seed=0)
    steps = 0
    while parallel.agents:
        actions = {agent: parallel.action_space(agent).sample() for agent in parallel.agents}
        _, _, terminations, truncations, infos = parallel.step(actions)
        assert not any(truncations.values())
        assert all("acting" in info["metrics"] for info in infos.values())
        steps += 1
    assert all(terminations.values())
    assert steps == 3  # of the last of two agents, which act for 2 and 3 steps


def test_masks_are_infos_and_sample():
    env = agents.Crowd(num_agents=2, masked=True)
    parallel = as_pettingzoo(env)
    _, infos = parallel.reset(seed=0)
    for t in range(3):
        for agent in parallel.agents:
            mask, forbidden = infos[agent]["action_mask"], (t + int(agent[-1])) % 3  # by the crowd's docstring
            np.testing.assert_array_equal(mask, np.arange(3) != forbidden)
            assert all(mask[parallel.action_space(agent).sample(mask)] for _ in range(10))
        infos = parallel.step(dict.fromkeys(parallel.agents, 0))[4]
        assert all(set(info) == {"metrics", "action_mask"} for info in infos.values())


def test_no_agent_writes_into_anothers_infos():
    parallel = as_pettingzoo(agents.Crowd(num_agents=2))
    parallel.reset(seed=0)
    infos = parallel.step({"agent_0": 1, "agent_1": 1})[4]
    infos["agent_0"]["metrics"]["acting"] = -1.0
    assert infos["agent_1"]["metrics"]["acting"] == 2


def test_several_choices_are_a_vector():
    """Three bins of [-1, 1] and five of [0.5, 4.5]; the crowd pays the sum of the chosen values."""
    parallel = as_pettingzoo(wrappers.discretise_actions(Echo((2,)), (3, 5)))
    assert parallel.action_space("agent_0") == gymnasium.spaces.MultiDiscrete([3, 5])
    parallel.reset(seed=0)
    obs, rewards, *_ = parallel.step({"agent_0": np.array([0, 4]), "agent_1": np.array([1, 1])})
    np.testing.assert_array_equal(list(obs.values()), [[-1, 4.5], [0, 1.5]])
    assert list(rewards.values()) == [3.5, 1.5]


@pytest.mark.slow
def test_a_picture_is_drawn():
    parallel = as_pettingzoo(small("crowd/circle"), render_mode="rgb_array")
    parallel.reset(seed=0)
    picture = parallel.render()
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
    assert as_pettingzoo(small("crowd/circle")).render() is None


@pytest.mark.slow_rows("<lambda>-RuntimeError-after every agent has finished; call reset\\\\(\\\\)")
@pytest.mark.parametrize(
    ("do", "error", "sentence"),
    [
        (lambda: as_pettingzoo(envs.make("cartpole")), ValueError, "takes a crowd, .* and cartpole has a single agent"),
        (lambda: as_pettingzoo(cast(Any, "crowd/circle")), TypeError, "env is 'crowd/circle'; it must be an instance"),
        (
            lambda: as_pettingzoo(small("crowd/circle"), EchoParams()),
            TypeError,
            "params must be CrowdParams of crowd/circle, got EchoParams",
        ),
        (
            lambda: as_pettingzoo(agents.Crowd(), agents.CrowdParams(max_steps_in_episode=0)),
            ValueError,
            "max_steps_in_episode is 0; as_pettingzoo takes a whole number of at least 1",
        ),
        (
            lambda: as_pettingzoo(small("crowd/circle"), small("crowd/circle").default_params.replace(num_present=99)),
            ValueError,
            "num_present must lie between 1 and num_agents, 3, got 99",
        ),
        (lambda: tiny().reset(seed=-1), ValueError, "seed is -1; it takes a whole number"),
        (lambda: tiny().reset(seed=1.5), ValueError, "seed is 1.5; it takes a whole number"),
        (lambda: tiny().step({"agent_0": 0, "agent_1": 99}), ValueError, "agent_1's action is 99; it takes a choice"),
        (lambda: tiny().step({"agent_0": -1, "agent_1": 0}), ValueError, "agent_0's action is -1; it takes a choice"),
        (lambda: tiny().step({"agent_0": 1.7, "agent_1": 0}), ValueError, "agent_0's action has numbers of the type"),
        (
            lambda: started().step(dict.fromkeys(("agent_0", "agent_1", "agent_2"), np.zeros((2, 1)))),
            ValueError,
            r"agent_0's action has the shape \(2, 1\); it takes \(2,\)",
        ),
        (
            lambda: as_pettingzoo(small("crowd/circle"), render_mode="ansi"),
            ValueError,
            "render_mode takes 'rgb_arr",
        ),
        (
            lambda: as_pettingzoo(small("crowd/circle")).step({}),
            RuntimeError,
            r"before the first reset\(\); call",
        ),
        (lambda: finished().step({}), RuntimeError, r"after every agent has finished; call reset\(\)"),
        (lambda: started().step({"agent_0": np.zeros(2)}), ValueError, "agent_0, agent_1, agent_2, got agent_0"),
        (
            lambda: as_pettingzoo(small("crowd/circle"), render_mode="rgb_array").render(),
            RuntimeError,
            r"before the first reset\(\)",
        ),
    ],
)
def test_bad_input_gets_one_sentence(do: Any, error: type, sentence: str):
    with pytest.raises(error, match=sentence) as caught:
        do()
    assert "\n" not in str(caught.value)


def tiny() -> Any:
    """Two agents that choose one of three."""
    parallel = as_pettingzoo(agents.Crowd(num_agents=2))
    parallel.reset(seed=0)
    return parallel


def started() -> Any:
    parallel = as_pettingzoo(small("crowd/circle"))
    parallel.reset(seed=0)
    return parallel


def finished() -> Any:
    env = small("crowd/circle")
    parallel = as_pettingzoo(env, env.default_params.replace(max_steps_in_episode=1))
    parallel.reset(seed=0)
    parallel.step({agent: np.zeros(2) for agent in parallel.agents})
    assert parallel.agents == []
    return parallel
