"""JaxMARL's environments as crowds: compared with JaxMARL's own steps up to the end, and errors."""

import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs.checking import check_abstractly
from jaxrl.algorithms.registry import build, describe

NAMES = (
    "MPE_simple_v3",
    "MPE_simple_spread_v3",
    "MPE_simple_reference_v3",
    "switch_riddle",
    "SMAX",
    "HeuristicEnemySMAX",
)
SLOW = ("MPE_simple_v3", "MPE_simple_spread_v3", "MPE_simple_reference_v3", "SMAX", "HeuristicEnemySMAX")


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """Import JaxMARL, and MuJoCo with it, in the process that tests it alone."""
    pytest.importorskip("jaxmarl", reason="the extra jaxmarl")


@functools.cache
def made(name: str) -> Any:
    return envs.make(f"jaxmarl/{name}")


def jaxmarl_make(name: str) -> Any:
    return importlib.import_module("jaxmarl").make(name)


def test_names_are_those_of_environments_whose_agents_are_alike() -> None:
    assert set(envs.names("jaxmarl")) == {f"jaxmarl/{name}" for name in NAMES}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NAMES]
)
def test_they_keep_the_laws(name: str) -> None:
    envs.check(made(name), num_steps=16)


@pytest.mark.slow_rows("MPE_simple_spread_v3-26")
@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("MPE_simple_spread_v3", 26),
        ("switch_riddle", 6),
        pytest.param("MPE_simple_reference_v3", 26, marks=pytest.mark.slow),
        pytest.param("HeuristicEnemySMAX", 101, marks=pytest.mark.slow),
    ],
)
def test_episodes_are_jaxmarls_own(name: str, length: int) -> None:
    """Observations, rewards, ends and masks of an episode equal those of the environment as JaxMARL makes it."""
    env, theirs = made(name), jaxmarl_make(name)
    params = env.default_params
    assert params.max_steps_in_episode == length
    ours, own = jax.jit(env.step_env), jax.jit(theirs.step_env)
    key = jax.random.key(5)
    obs, state = env.reset_env(key, params)
    their_obs, their_state = theirs.reset(key)
    taken, over, alive = 0, False, np.ones(theirs.num_agents, bool)
    while not over:
        np.testing.assert_allclose(obs, np.stack([their_obs[agent] for agent in theirs.agents]), rtol=0, atol=1e-5)
        key, action_key = jax.random.split(key)
        action = jax.random.randint(action_key, (theirs.num_agents,), 0, 2)  # the riddle continues under it
        mask = env.action_mask(state, params)
        if mask is not None:
            available = theirs.get_avail_actions(their_state)
            np.testing.assert_array_equal(mask, np.stack([available[agent] for agent in theirs.agents]).astype(bool))
            action = jnp.argmax(mask * jax.random.uniform(action_key, mask.shape), axis=-1)
        obs, state, reward, terminated, info = ours(key, state, action, params)
        actions = {agent: action[i] for i, agent in enumerate(theirs.agents)}
        their_obs, their_state, their_reward, done, _ = own(key, their_state, actions)
        np.testing.assert_allclose(reward, [their_reward[agent] for agent in theirs.agents], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(info["active"], alive)
        taken, over = taken + 1, bool(done["__all__"])
        truncated = bool(env.is_truncated(state, params))
        assert over == (bool(terminated) or truncated)
        dones = np.array([bool(done[agent]) for agent in theirs.agents])
        # JaxMARL's time limit does not terminate an agent here.
        np.testing.assert_array_equal(info["agent_terminated"], terminated | (dones & (not over)))
        alive = alive & ~np.asarray(info["agent_terminated"])
    assert taken <= length and (taken == length or name == "HeuristicEnemySMAX")


def test_the_riddle_ends_when_someone_tells() -> None:
    env = made("switch_riddle")
    _, state = env.reset_env(jax.random.key(0), env.default_params)
    _, _, reward, terminated, info = env.step_env(jax.random.key(1), state, jnp.full(3, 2), env.default_params)
    np.testing.assert_array_equal(reward, [-1.0, -1.0, -1.0])
    assert terminated and np.all(info["agent_terminated"]) and np.all(info["active"])


@pytest.mark.slow
def test_the_global_observation_is_all_observations() -> None:
    env = made("MPE_simple_spread_v3")
    obs, state = env.reset_env(jax.random.key(0), env.default_params)
    np.testing.assert_allclose(env.global_observation(state, env.default_params), np.ravel(obs), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_global_observation_of_a_battle_is_its_world_state() -> None:
    battle = made("HeuristicEnemySMAX")
    _, state = battle.reset_env(jax.random.key(0), battle.default_params)
    theirs: Any = jaxmarl_make("HeuristicEnemySMAX")
    expected = theirs.get_world_state(state.inner)
    np.testing.assert_array_equal(battle.global_observation(state, battle.default_params), expected)


@pytest.mark.slow
def test_fields_are_jaxmarls_and_results_know_them() -> None:
    env = envs.make("jaxmarl/MPE_simple_spread_v3", num_agents=2, max_steps=10)
    assert check_abstractly(env) == (2,) and env.default_params.max_steps_in_episode == 11
    assert env == envs.make("jaxmarl/MPE_simple_spread_v3", max_steps=10, num_agents=2) != made("MPE_simple_spread_v3")
    described = describe(jaxrl.ppo(env))
    assert described["environment"]["name"] == "jaxmarl/MPE_simple_spread_v3"
    assert build(described).env == env
    smax = importlib.import_module("jaxmarl.environments.smax")
    three: Any = envs.make("jaxmarl/HeuristicEnemySMAX", scenario="3s_vs_5z")
    assert three.inner.num_agents == smax.map_name_to_scenario("3s_vs_5z").num_allies == 3


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        (
            "MPE_simple_tag_v3",
            {},
            r"has unlike agents: adversary_0 observes Box\[16\] and agent_0 observes Box\[14\]; supported",
        ),
        (
            "SMAX",
            {"num_enemies": 3},
            r"has unlike agents: ally_0 acts in Discrete\(8\) and enemy_0 acts in Discrete\(10\)",
        ),
        (
            "overcooked",
            {},
            r"There is no environment 'jaxmarl/overcooked'; `envs\.names\('jaxmarl'\)` lists its environments",
        ),
        ("switch_riddle", {"num_agents": 2}, "cannot be made with {'num_agents': 2}: The minimum number of agents"),
        ("MPE_simple_spread_v3", {"num_agent": 2}, "has no static field 'num_agent'; did you mean 'num_agents'"),
        ("HeuristicEnemySMAX", {"scenario": "4m"}, "cannot be made with {'scenario': '4m'}: '4m'"),
    ],
)
def test_environments_that_cannot_be_adapted_raise_one_sentence(
    name: str, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        envs.make(f"jaxmarl/{name}", **fields)
    assert "\n" not in str(caught.value)
