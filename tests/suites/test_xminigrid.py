"""XLand-MiniGrid's environments under the contract."""

import copy
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_suites import STEPS, Native, assert_parity
from xminigrid.core.constants import Colors, Tiles
from xminigrid.registration import make

import envs
import jaxrl
from envs.adapters.incoming.xminigrid import _constants
from jaxrl.algorithms.registry import build, describe

TASKS = (
    "MiniGrid-BlockedUnlockPickUp",
    "MiniGrid-DoorKey-5x5",
    "MiniGrid-DoorKey-8x8",
    "MiniGrid-Empty-5x5",
    "MiniGrid-Empty-6x6",
    "MiniGrid-EmptyRandom-6x6",
    "MiniGrid-FourRooms",
    "MiniGrid-LockedRoom",
    "MiniGrid-MemoryS8",
    "MiniGrid-Playground",
    "MiniGrid-Unlock",
    "MiniGrid-UnlockPickUp",
    "XLand-MiniGrid-R1-9x9",
    "XLand-MiniGrid-R4-9x9",
)


def native(env_id: str, **fields: Any) -> Native:
    """A task by XLand-MiniGrid's own functions."""
    task, params = make(env_id, **fields)

    def step(key: jax.Array, timestep: Any, action: Any) -> Any:
        del key
        timestep = task.step(params, timestep, action)
        ended = timestep.last()
        terminated = ended & (timestep.discount == 0)
        return timestep.observation, timestep, timestep.reward, terminated, ended & ~terminated

    def reset(key: jax.Array) -> Any:
        timestep = task.reset(params, key)
        return timestep.observation, timestep

    return Native(reset, step)


def actions_of(env: Any, key: jax.Array, actions: list[int]) -> Any:
    """Rewards and both flags of an episode of these actions."""
    params = env.default_params

    def body(state: Any, action: Any) -> Any:
        _, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return state, (reward, terminated, env.is_truncated(state, params))

    return jax.lax.scan(body, env.reset_env(key, params)[1], jnp.asarray(actions))[1]


@pytest.mark.fast_rows("MiniGrid-Empty-5x5")
@pytest.mark.parametrize("env_id", TASKS)
def test_500_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    env: Any = envs.make(f"xminigrid/{env_id}")
    ours = assert_parity(env, native(env_id), key)
    assert np.any(ours.truncated | ours.terminated) or env.default_params.max_steps_in_episode > STEPS


@pytest.mark.fast_rows("MiniGrid-Empty-6x6")
@pytest.mark.parametrize("env_id", ["MiniGrid-Empty-6x6", "MiniGrid-MemoryS8", "XLand-MiniGrid-R4-9x9"])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"xminigrid/{env_id}"))


def test_the_goal_terminates_and_the_limit_truncates(key: jax.Array):
    """In the room of 3 x 3 free cells the goal is two steps ahead and two to the right; a turn takes a step."""
    env: Any = envs.make("xminigrid/MiniGrid-Empty-5x5")
    assert env.default_params.max_steps_in_episode == 4 * 5 * 5
    rewards, terminated, truncated = actions_of(env, key, [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(terminated, [False, False, False, False, True])
    np.testing.assert_allclose(rewards, [0, 0, 0, 0, 1 - 0.9 * 5 / 100], rtol=1e-6)  # one rounding of a float32
    assert not np.any(truncated)
    rewards, terminated, truncated = actions_of(env, key, [1] * 100)
    assert not np.any(terminated) and not np.any(rewards)
    np.testing.assert_array_equal(truncated, [False] * 99 + [True])


def test_the_goal_at_the_limit_is_a_termination(key: jax.Array):
    env: Any = envs.make("xminigrid/MiniGrid-Empty-5x5", max_steps=5)
    *_, reward, terminated, truncated, info = _last_of(env, key, [0, 0, 1, 0, 0])
    assert bool(terminated) and float(reward) == pytest.approx(0.1, rel=1e-6)
    assert info["final_observation"].shape == (7, 7, 2)
    *_, reward, terminated, truncated, _ = _last_of(env, key, [1, 1, 1, 1, 1])
    assert not bool(terminated) and bool(truncated) and float(reward) == 0


def _last_of(env: Any, key: jax.Array, actions: list[int]) -> Any:
    _, state = env.reset(key, env.default_params)
    result: Any = None
    for action in actions:
        result = env.step(key, state, action, env.default_params)
        state = result[1]
    return result


def test_static_fields_change_shapes_and_names_are_kept(key: jax.Array):
    env = envs.make("xminigrid/MiniGrid-Empty-6x6", view_size=5)
    assert env.reset_env(key, env.default_params)[0].shape == (5, 5, 2)
    assert env == envs.make("xminigrid/MiniGrid-Empty-6x6", view_size=5) == copy.deepcopy(env)
    spec = describe(jaxrl.ppo(env))
    assert spec["environment"] == {"name": "xminigrid/MiniGrid-Empty-6x6", "static": {"view_size": 5}}
    assert build(spec).env == env


def test_rulesets_are_traced(key: jax.Array):
    """A goal of XLand: hold a yellow ball, which lies in the room."""
    env: Any = envs.make("xminigrid/XLand-MiniGrid-R1-9x9")
    goal = jnp.array([1, Tiles.BALL, Colors.YELLOW, 0, 0], jnp.uint8)
    tiles = jnp.array([[Tiles.BALL, Colors.YELLOW]], jnp.uint8)
    rulesets = [env.default_params.ruleset, env.default_params.ruleset.replace(goal=goal, init_tiles=tiles)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rulesets)

    @jax.jit
    @jax.vmap
    def ball(ruleset: Any) -> Any:
        _, state = env.reset_env(key, env.default_params.replace(ruleset=ruleset))
        return jnp.any(state.inner.state.grid[..., 0] == Tiles.BALL)

    np.testing.assert_array_equal(ball(stacked), [False, True])


def test_a_ruleset_may_have_any_number_of_rules(key: jax.Array):
    env: Any = envs.make("xminigrid/XLand-MiniGrid-R1-9x9")
    ruleset = env.default_params.ruleset
    three = env.default_params.replace(ruleset=ruleset.replace(rules=jnp.tile(ruleset.rules, (3, 1))))
    _, state = jax.jit(env.reset_env)(key, three)
    jax.jit(env.step_env)(key, state, jnp.int32(0), three)


def test_drawn_goals_stay_in_the_state():
    assert set(_constants(cast(Any, envs.make("xminigrid/MiniGrid-Empty-5x5")))) == {"goal_encoding", "rule_encoding"}
    assert set(_constants(cast(Any, envs.make("xminigrid/MiniGrid-Unlock")))) == {"rule_encoding"}


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'xminigrid/MiniGrid-Emty-5x5'; did you mean"):
        envs.make("xminigrid/MiniGrid-Emty-5x5")
    with pytest.raises(ValueError, match="has no static field 'view'; did you mean 'view_size'"):
        envs.make("xminigrid/MiniGrid-Empty-5x5", view=5)
    for value in ("a", 0, 5.0):
        with pytest.raises(ValueError, match=f"^view_size must be a whole number of at least 1, got {value!r}$"):
            envs.make("xminigrid/MiniGrid-Empty-5x5", view_size=value)
    assert "xminigrid/MiniGrid-DoorKey-5x5" in envs.names("xminigrid")


def test_an_image_of_a_state(key: jax.Array):
    from envs.rendering import frame

    env = envs.make("xminigrid/MiniGrid-Empty-5x5")
    _, state = env.reset_env(key, env.default_params)
    image = frame(env, state, env.default_params)
    assert image.shape[2] == 3 and len(np.unique(image)) > 5
