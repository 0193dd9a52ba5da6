"""Octax's games under the contract."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_suites import Native, assert_parity

import envs
import jaxrl
from jaxrl.algorithms.registry import build, describe

suite: Any = pytest.importorskip("octax.environments", reason="takes Octax: make test-suites installs it")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types")]

TASKS = (
    "airplane",
    "blinky",
    "brix",
    "cavern1",
    "deep",
    "filter",
    "flight_runner",
    "missile",
    "pong",
    "rocket",
    "shooting_stars",
    "space_flight1",
    "spacejam",
    "squash",
    "submarine",
    "tank",
    "target_shooter3",
    "tetris",
    "ufo",
    "vertical_brix",
    "wipe_off",
    "worm",
)


def native(env_id: str, **fields: Any) -> Native:
    """A game by Octax's own functions; the adapter turns its frames `[frames, columns, rows]` into one image."""
    task, _ = suite.create_environment(env_id, **fields)

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        del key
        state, obs, reward, terminated, truncated, _ = task.step(state, action)
        return jnp.moveaxis(obs, (0, 1, 2), (2, 1, 0)), state, reward, terminated, truncated

    def reset(key: jax.Array) -> Any:
        state, obs, _ = task.reset(key)
        return jnp.moveaxis(obs, (0, 1, 2), (2, 1, 0)), state

    return Native(reset, step)


@pytest.mark.parametrize("env_id", TASKS)
def test_500_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    ours = assert_parity(envs.make(f"octax/{env_id}"), native(env_id), key)
    assert len(np.unique(ours.obs, axis=0)) > 1


@pytest.mark.parametrize("env_id", ["brix", "airplane"])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"octax/{env_id}"))


def test_a_lost_ball_terminates_and_the_limit_truncates(key: jax.Array):
    """Brix starts with 5 balls, and the suite ends an episode when 4 are left; nobody moves the paddle."""
    env: Any = envs.make("octax/brix")
    params = env.default_params
    assert params.max_steps_in_episode == 4500
    none = env.action_space(params).n - 1

    def ended(limit: int) -> Any:
        _, state = env.reset(key, params)
        start = state
        for count in range(1, 200):
            obs, state, _, terminated, truncated, info = env.step(
                key, state, none, params.replace(max_steps_in_episode=limit)
            )
            if bool(terminated) or bool(truncated):
                assert np.any(info["final_observation"] != obs) and int(state.time) == 0
                np.testing.assert_array_equal(state.inner.memory, start.inner.memory)
                return count, bool(terminated), bool(truncated)
        raise AssertionError("no end within 200 steps")

    count, terminated, truncated = ended(4500)
    assert terminated and not truncated
    assert ended(count - 1) == (count - 1, False, True)
    assert ended(count)[:2] == (count, True)


def test_the_score_is_a_metric_and_the_sum_of_rewards(key: jax.Array):
    env: Any = envs.make("octax/target_shooter1")
    assert env.metric_rules == {"score": "last"}
    params = env.default_params

    def body(state: Any, action: Any) -> Any:
        _, state, reward, _, info = env.step_env(key, state, action, params)
        return state, (reward, info["metrics"]["score"])

    actions = jax.random.randint(key, (300,), 0, env.action_space(params).n)
    rewards, scores = jax.lax.scan(body, env.reset_env(key, params)[1], actions)[1]
    np.testing.assert_array_equal(jnp.cumsum(rewards), scores)


def test_static_fields_change_shapes_and_names_are_kept(key: jax.Array):
    env = envs.make("octax/brix", frame_skip=2)
    assert env.reset_env(key, env.default_params)[0].shape == (32, 64, 2)
    assert env == envs.make("octax/brix", frame_skip=2) == copy.deepcopy(env) != envs.make("octax/brix")
    assert hash(env) == hash(copy.deepcopy(env))
    spec = describe(jaxrl.ppo(env))
    assert spec["environment"] == {"name": "octax/brix", "static": {"frame_skip": 2}}
    assert build(spec).env == env


def test_games_with_levels_have_a_name_for_each():
    names = envs.names("octax")
    assert {"octax/brix", "octax/space_flight10", "octax/cavern6"} <= set(names)
    assert "octax/cavern" not in names and len(names) == len(set(names))
    one, other = envs.make("octax/cavern1"), envs.make("octax/cavern2")
    assert one != other and one.inner.rom_data != other.inner.rom_data  # pyright: ignore[reportAttributeAccessIssue]


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'octax/brics'; did you mean 'octax/brix'"):
        envs.make("octax/brics")
    with pytest.raises(ValueError, match="has no static field 'frameskip'; did you mean 'frame_skip'"):
        envs.make("octax/brix", frameskip=2)


def test_an_image_of_a_state(key: jax.Array):
    from envs.rendering import frame

    env = envs.make("octax/brix")
    image = frame(env, env.reset_env(key, env.default_params)[1], env.default_params)
    assert image.shape[2] == 3 and len(np.unique(image)) >= 2
