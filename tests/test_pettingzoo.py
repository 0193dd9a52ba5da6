"""Crowds as PettingZoo's parallel environments: its own checks, and equality with the native ones step by step."""

import warnings
from typing import Any, cast

import agents
import jax
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import envs
from envs.adapters.pettingzoo import as_pettingzoo
from envs.crowd import Areas, Crowd, Straight

QUICK = ("crowd/circle", "crowd/random", "crowd/choke")  # the others differ in where people start
SCENARIOS = [name for name in envs.names() if name.startswith("crowd/")]


def small(name: str) -> Any:
    """A crowd that compiles in seconds."""
    return envs.make(name, num_agents=3, num_neighbours=1, substeps=2)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in SCENARIOS])
def test_pettingzoos_own_tests_pass(name: str):
    env = small(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of which the API test makes much use
        parallel_api_test(as_pettingzoo(env), num_cycles=300)
        parallel_seed_test(lambda: as_pettingzoo(env), num_cycles=50)


def native_rollout(env: Any, params: Any, seed: int, actions: np.ndarray) -> list[Any]:
    """Observations, rewards and who had finished, with the keys that the adapter is documented to use."""
    key, reset_key = jax.random.split(jax.random.key(seed))
    obs, state = jax.jit(env.reset_env)(reset_key, params)
    step = jax.jit(env.step_env)
    seen = [(obs, None, None, None)]
    for action in actions:
        key, step_key = jax.random.split(key)
        obs, state, reward, _, info = step(step_key, state, action, params)
        seen.append((obs, reward, info["agent_terminated"], env.is_truncated(state, params)))
    return seen


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


def test_agents_leave_when_they_finish():
    """Two walk to goals at different distances: the near one arrives, is terminated and leaves, then the other."""
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
        for told in (obs, rewards, terminations, truncations):
            assert list(told) == before
        assert not any(truncations.values())
        left |= {agent: t for agent in before if terminations[agent]}
        assert parallel.agents == [agent for agent in before if not terminations[agent]]
        if not parallel.agents:
            break
    assert left["agent_0"] < left["agent_1"] < params.max_steps_in_episode - 1
    obs, _ = parallel.reset()
    assert parallel.agents == list(obs) == ["agent_0", "agent_1"]


def test_only_those_who_take_part_are_there():
    env = small("crowd/circle")
    parallel = as_pettingzoo(env, env.default_params.replace(num_present=2))
    obs, _ = parallel.reset(seed=0)
    assert parallel.agents == list(obs) == ["agent_0", "agent_1"]
    obs, *_ = parallel.step({agent: np.zeros(2) for agent in parallel.agents})
    assert list(obs) == ["agent_0", "agent_1"]


def test_seeds_make_episodes_and_unseeded_resets_go_on():
    parallel, other = (as_pettingzoo(small("crowd/random")) for _ in range(2))
    first = parallel.reset(seed=3)[0]["agent_0"]["own"]
    second = parallel.reset()[0]["agent_0"]["own"]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(other.reset(seed=3)[0]["agent_0"]["own"], first)
    np.testing.assert_array_equal(other.reset()[0]["agent_0"]["own"], second)


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
    assert steps == 3  # of the last of two agents, who act for 2 and 3 steps


def test_a_picture_is_drawn():
    parallel = as_pettingzoo(small("crowd/circle"), render_mode="rgb_array")
    parallel.reset(seed=0)
    picture = parallel.render()
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
    assert as_pettingzoo(small("crowd/circle")).render() is None


@pytest.mark.parametrize(
    ("do", "error", "sentence"),
    [
        (lambda: as_pettingzoo(envs.make("cartpole")), ValueError, "takes a crowd, .* and cartpole has a single agent"),
        (lambda: as_pettingzoo(cast(Any, "crowd/circle")), TypeError, "env is 'crowd/circle'; it is an instance"),
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
