"""NAVIX's environments under the contract."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_suites import STEPS, Native, assert_parity

import envs
import jaxrl
from jaxrl.algorithms.registry import build, describe

navix: Any = pytest.importorskip("navix", reason="takes navix: make test-suites installs it")
pytestmark = pytest.mark.slow

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
EMPTY = "navix/Navix-Empty-5x5-v0"
TASKS = (
    "Navix-Empty-5x5-v0",
    "Navix-Empty-Random-6x6-v0",
    "Navix-DoorKey-5x5-v0",
    "Navix-DoorKey-Random-8x8-v0",
    "Navix-FourRooms-v0",
    "Navix-LavaGapS5-v0",
    "Navix-LavaGapS7-v0",
    "Navix-SimpleCrossingS9N2-v0",
    "Navix-SimpleCrossingS11N5-v0",
    "Navix-Dynamic-Obstacles-5x5-v0",
    "Navix-Dynamic-Obstacles-6x6-Random-v0",
    "Navix-Dynamic-Obstacles-16x16-v0",
    "Navix-DistShift1-v0",
    "Navix-DistShift2-v0",
    "Navix-GoToDoor-5x5-v0",
    "Navix-GoToDoor-8x8-v0",
)
VIEWS = ("symbolic_first_person", "categorical", "categorical_first_person", "rgb", "rgb_first_person")


def native(env_id: str, **fields: Any) -> Native:
    """A task by NAVIX's own functions, whose states have the types of a step from the start."""
    task = navix.make(env_id, **fields)

    def reset(key: jax.Array) -> Any:
        timestep = task.reset(key)
        stepped = jax.eval_shape(task._step, timestep, 0)
        return timestep.observation, jax.tree.map(
            lambda leaf, like: jax.lax.convert_element_type(leaf, like.dtype), timestep, stepped
        )

    def step(key: jax.Array, timestep: Any, action: Any) -> Any:
        del key
        timestep = task._step(timestep, action)
        return timestep.observation, timestep, timestep.reward, timestep.is_termination(), timestep.is_truncation()

    return Native(reset, step)


def actions_of(env: Any, key: jax.Array, actions: list[int], **changes: Any) -> Any:
    """Observations, rewards and both flags of an episode of these actions."""
    params = env.default_params.replace(**changes)

    def body(state: Any, action: Any) -> Any:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return state, (obs, reward, terminated, env.is_truncated(state, params))

    return jax.lax.scan(body, env.reset_env(key, params)[1], jnp.asarray(actions))[1]


@pytest.mark.parametrize("env_id", TASKS)
def test_500_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    env: Any = envs.make(f"navix/{env_id}")
    ours = assert_parity(env, native(env_id), key)
    assert np.any(ours.truncated | ours.terminated) or env.default_params.max_steps_in_episode > STEPS


@pytest.mark.parametrize("view", VIEWS)
def test_other_observations_equal_the_suites_own(view: str, key: jax.Array):
    env: Any = envs.make("navix/Navix-DoorKey-Random-6x6-v0", observation_fn=view)
    fields = {"observation_fn": getattr(navix.observations, view)}
    ours = assert_parity(env, native("Navix-DoorKey-Random-6x6-v0", **fields), key, 200)
    space = env.observation_space(env.default_params)
    assert ours.obs.shape[1:] == space.shape and ours.obs.dtype == space.dtype
    assert np.all(ours.obs >= space.low) and np.all(ours.obs <= space.high)


@pytest.mark.parametrize("env_id", TASKS[::4])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"navix/{env_id}"), progress=False)


def test_the_codes_of_the_suite_are_choices():
    counts = envs.make(EMPTY).observation_space(envs.make(EMPTY).default_params).counts
    kinds = [value for name, value in vars(navix.entities.EntityIds).items() if name.isupper()]
    assert counts.shape == (5, 5, 3)
    assert np.all(counts == (1 + max(map(int, kinds)), len(navix.rendering.registry.PALETTE.as_array()), 4))


def test_the_goal_terminates_and_the_limit_truncates(key: jax.Array):
    """In the room of 3 x 3 free cells the goal is two steps ahead and two to the right; a turn takes a step."""
    env: Any = envs.make(EMPTY)
    assert env.default_params.max_steps_in_episode == 100
    obs, rewards, terminated, truncated = actions_of(env, key, [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD])
    np.testing.assert_array_equal(terminated, [False, False, False, False, True])
    np.testing.assert_array_equal(rewards, [0, 0, 0, 0, 1])
    assert not np.any(truncated)
    np.testing.assert_array_equal(obs[-1, 3, 3], [10, 0, 1])  # the agent, southward, on the goal
    _, rewards, terminated, truncated = actions_of(env, key, [DONE] * 100)
    assert not np.any(terminated) and not np.any(rewards)
    np.testing.assert_array_equal(truncated, [False] * 99 + [True])


def test_the_goal_at_the_limit_is_a_termination_and_the_last_observations_are_kept(key: jax.Array):
    env: Any = envs.make(EMPTY, max_steps=5)
    for last, ends in ((FORWARD, True), (DONE, False)):
        _, state = env.reset(key)
        result: Any = None
        for action in (FORWARD, FORWARD, RIGHT, FORWARD, last):
            result = env.step(key, state, action)
            state = result[1]
        obs, _, reward, terminated, truncated, info = result
        assert bool(terminated) is ends and bool(truncated) and float(reward) == float(ends)
        assert int(info["final_observation"][3 if ends else 2, 3, 0]) == 10  # the agent is on the goal, or above it
        assert int(obs[1, 1, 0]) == 10  # a new episode


def test_lava_and_balls_terminate_and_distshift_ignores_lava(key: jax.Array):
    env: Any = envs.make("navix/Navix-DistShift1-v0")
    _, rewards, terminated, _ = actions_of(env, key, [FORWARD] * 6)  # over three cells of lava
    np.testing.assert_array_equal(terminated, [False] * 5 + [True])
    np.testing.assert_array_equal(rewards, [0] * 5 + [1])
    for env_id in ("LavaGapS7", "Dynamic-Obstacles-6x6"):
        env = envs.make(f"navix/Navix-{env_id}-v0")
        ours = assert_parity(env, native(f"Navix-{env_id}-v0"), key)
        assert np.any(np.asarray(ours.terminated) & (np.asarray(ours.reward) == 0))


def test_the_penalty_is_traced_and_relative_to_the_suites_limit(key: jax.Array):
    env: Any = envs.make(EMPTY, max_steps=50)
    path = [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD]
    rewards = jax.vmap(lambda c: actions_of(env, key, path, penality_coeff=c)[1][-1])(jnp.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(rewards, [1.0, 0.95, 0.9], rtol=1e-6)  # one rounding of a float32
    params = env.default_params.replace(penality_coeff=0.5)
    np.testing.assert_allclose(env.return_range(params), (-0.5, 1.0))


@pytest.mark.parametrize(("env_id", "least"), [("Empty-5x5", 5), ("Empty-8x8", 11), ("DistShift2", 6)])
def test_the_optimum_is_that_of_the_shortest_path(env_id: str, least: int, key: jax.Array):
    env: Any = envs.make(f"navix/Navix-{env_id}-v0")
    half = (least - 1) // 2
    path = [FORWARD] * 6 if env_id == "DistShift2" else [FORWARD] * half + [RIGHT] + [FORWARD] * half
    terminated = actions_of(env, key, path)[2]
    assert bool(terminated[-1]) and not np.any(terminated[:-1]) and len(path) == least
    assert env.optimum(discount=0.9) == pytest.approx(0.9 ** (least - 1))
    assert env.optimum(env.default_params.replace(max_steps_in_episode=least - 1)) == 0
    assert env.optimum(env.default_params.replace(penality_coeff=1.0)) == pytest.approx(1 - least / 100)
    assert env.optimum(env.default_params.replace(penality_coeff=-1.0)) == pytest.approx(2.0)  # waiting pays
    with pytest.raises(ValueError, match=r"^env\.max_steps_in_episode must be at least 1, got 0$"):
        env.optimum(env.default_params.replace(max_steps_in_episode=0))
    assert envs.make(f"navix/Navix-{env_id}-v0", reward_fn="time_cost").optimum() is None
    assert envs.make("navix/Navix-LavaGapS5-v0").optimum() is None


def test_static_fields_are_functions_or_their_names(key: jax.Array):
    env: Any = envs.make(EMPTY, observation_fn="rgb", action_set="COMPLETE_ACTION_SET", max_steps=7)
    assert env.action_space().n == 10 and env.default_params.max_steps_in_episode == 7
    assert env.reset_env(key, env.default_params)[0].shape == (40, 40, 3)
    same = envs.make(EMPTY, max_steps=7, action_set="COMPLETE_ACTION_SET", observation_fn="rgb")
    assert env == same == copy.deepcopy(env) and hash(env) == hash(same)
    spec = describe(jaxrl.ppo(env))
    fields = {"action_set": "COMPLETE_ACTION_SET", "max_steps": 7, "observation_fn": "rgb"}
    assert spec["environment"] == {"name": EMPTY, "static": fields}
    assert build(spec).env == env
    costly: Any = envs.make(EMPTY, reward_fn=navix.rewards.time_cost)
    assert costly.return_range(costly.default_params) is None
    np.testing.assert_allclose(actions_of(costly, key, [DONE] * 3)[1], -0.01, rtol=1e-6)


def test_states_carry_no_images_of_cells(key: jax.Array):
    """NAVIX's state of a room of 19 x 19 cells has 69 kB of them."""
    env: Any = envs.make("navix/Navix-FourRooms-v0")
    _, state = env.reset_env(key, env.default_params)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state) if hasattr(leaf, "nbytes")) < 4000


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'navix/Navix-Emty-5x5-v0'; did you mean"):
        envs.make("navix/Navix-Emty-5x5-v0")
    with pytest.raises(ValueError, match="has no static field 'max_step'; did you mean 'max_steps'"):
        envs.make(EMPTY, max_step=5)
    with pytest.raises(ValueError, match="observation_fn of NAVIX is 'symbol'; did you mean 'symbolic'"):
        envs.make(EMPTY, observation_fn="symbol")
    with pytest.raises(ValueError, match=r"^navix/Navix-KeyCorridorS3R1-v0 has no reward: its goal is a ball"):
        envs.make("navix/Navix-KeyCorridorS3R1-v0")
    assert "navix/Navix-GoToDoor-5x5-v0" in envs.names("navix") and len(envs.names("navix")) == 35


def test_the_refused_tasks_have_no_reward(key: jax.Array):
    """The state's goal is a ball, which nothing records, and the locked door's code of 8 bits has overflowed."""
    from envs.adapters.incoming.navix import REFUSED

    for env_id in REFUSED:
        timestep = navix.make(env_id).reset(key)
        assert type(timestep.state.entities["goal"]).__name__ == "Ball"
        events = timestep.state.events.record_walk_into(timestep.state.get_goals(), jnp.zeros(2, int))
        assert not bool(events.goal_reached.happened) and int(timestep.observation[..., 2].max()) == 254


def test_an_image_of_a_state(key: jax.Array):
    from envs.rendering import frame

    env = envs.make(EMPTY)
    _, state = env.reset_env(key, env.default_params)
    image = frame(env, state, env.default_params)
    assert image.shape[2] == 3 and len(np.unique(image)) > 5
