"""TargetGym's tasks under the contract."""

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

pytest.importorskip("target_gym", reason="takes TargetGym: make test-suites installs it")
targetgym: Any = pytest.importorskip("envs.adapters.incoming.targetgym")
registry: Any = targetgym._targetgym()
pytestmark = pytest.mark.slow

TASKS = tuple(registry.env_names())


def native(env_id: str) -> Native:
    """A task by TargetGym's own functions; `truncated` is what gymnax's `step` makes of the suite's time."""
    spec = registry.get(env_id)
    task, params = spec.make_env(), spec.make_test_params()

    def step(key: jax.Array, state: Any, action: Any) -> Any:
        obs, state, reward, terminated, _ = task.step_env(key, state, action, params)
        return obs, state, reward, terminated, task.is_truncated(state, params)

    return Native(lambda key: task.reset_env(key, params), step)


def last_of(env: Any, key: jax.Array, action: Any, steps: int, params: Any) -> Any:
    """What `step` returned in the first step that ended an episode, and the number of steps to it."""
    _, state = env.reset(key, params)
    for count in range(1, steps + 1):
        returned = env.step(key, state, action, params)
        state = returned[1]
        if bool(returned[3]) or bool(returned[4]):
            return returned, count
    raise AssertionError(f"no end within {steps} steps")


@pytest.mark.parametrize("env_id", TASKS)
def test_500_random_steps_equal_the_suites_own(env_id: str, key: jax.Array):
    rtol = 1e-6 if env_id == "wind_turbine" else 0.0  # some units in the last place of float32, of 6e-8 each
    ours = assert_parity(envs.make(f"targetgym/{env_id}"), native(env_id), key, rtol=rtol)
    assert np.all((ours.reward >= 0) & (ours.reward <= 1)) and len(np.unique(ours.reward)) > 1


@pytest.mark.parametrize("env_id", ["cstr", "four_tank", "reactor", "plane", "patrol_bearing_only"])
def test_it_keeps_the_laws(env_id: str):
    envs.check(envs.make(f"targetgym/{env_id}"))


def test_a_runaway_terminates_and_the_limit_truncates(key: jax.Array):
    """The temperature may not exceed `T_max`: with a limit below it, the first step ends the episode."""
    env: Any = envs.make("targetgym/cstr")
    params = env.default_params
    (obs, _, _, terminated, truncated, info), steps = last_of(env, key, jnp.zeros(1), 1, params.replace(T_max=320.0))
    assert (bool(terminated), bool(truncated), steps) == (True, False, 1)
    assert float(info["final_observation"][1]) > 320 and float(obs[1]) == 330
    (obs, _, _, terminated, truncated, info), steps = last_of(env, key, jnp.zeros(1), 100, params)
    assert (bool(terminated), bool(truncated), steps) == (False, True, 100)
    assert float(info["final_observation"][1]) != 330 and float(obs[1]) == 330
    (*_, terminated, truncated, _), steps = last_of(
        env, key, jnp.zeros(1), 1, params.replace(T_max=320.0, max_steps_in_episode=1)
    )
    assert bool(terminated)


def test_the_reactors_limit_counts_the_agents_steps(key: jax.Array):
    env: Any = envs.make("targetgym/reactor")
    assert env.default_params.max_steps_in_episode == 864
    _, steps = last_of(env, key, jnp.zeros(1), 3, env.default_params.replace(max_steps_in_episode=3))
    assert steps == 3
    _, state = env.reset(key, env.default_params.replace(max_steps_in_episode=3))
    assert int(env.step_env(key, state, jnp.zeros(1), env.default_params)[1].inner.time) == 10


def test_observations_are_scaled_by_the_parameters_of_the_episode(key: jax.Array):
    """The suite's own step scales the flows of the column by its default limits, whatever the parameters are."""
    env: Any = envs.make("targetgym/distillation")
    params = env.default_params.replace(L_max=3.5)
    _, state = env.reset_env(key, params)
    obs, after, *_ = env.step_env(key, state, jnp.ones(2), params)
    share = (after.inner.L - params.L_min) / (params.L_max - params.L_min)
    assert np.any(np.isclose(obs, share, rtol=1e-5) | np.isclose(obs, 100 * share, rtol=1e-5))


def test_parameters_are_traced_and_metrics_are_errors(key: jax.Array):
    env: Any = envs.make("targetgym/four_tank")
    assert env.metric_rules == {"error_0": "mean", "error_1": "mean"}
    params = env.default_params

    @jax.jit
    @jax.vmap
    def errors(floor: jax.Array) -> Any:
        changed = params.replace(precision_floor=floor)
        _, state = env.reset_env(key, changed)
        obs, _, reward, _, info = env.step_env(key, state, jnp.zeros(2), changed)
        return obs, reward, info["metrics"]

    obs, rewards, metrics = errors(jnp.array([1e-4, 1e-2]))
    assert float(rewards[0]) < float(rewards[1])  # a coarser sensor forgives the same error
    np.testing.assert_array_equal(metrics["error_0"], jnp.abs(obs[:, 0] - obs[:, 4]))
    np.testing.assert_array_equal(metrics["error_1"], jnp.abs(obs[:, 1] - obs[:, 5]))


def test_the_range_of_returns_follows_from_that_of_rewards():
    env: Any = envs.make("targetgym/hvac")
    assert env.return_range(env.default_params) == (0.0, 720.0)
    assert env.return_range(env.default_params.replace(energy_weight=0.15)) is None


@pytest.mark.parametrize("env_id", ["cstr", "four_tank", "ph_neutralization"])
def test_the_published_returns_of_the_pid_controller_follow_from_the_adapter(env_id: str):
    """The suite's controller earns its recorded returns here; single precision on another machine moves them a bit."""
    env: Any = envs.make(f"targetgym/{env_id}")
    published, params = targetgym.published_returns(env_id), env.default_params
    assert published["pid"].shape == published["mpc"].shape == (10,)
    step = jax.jit(lambda key, state, action: env.step_env(key, state, action, params)[:4])
    for seed in range(2):
        controller, key = registry.get(env_id).make_pid(), jax.random.key(seed)
        (obs, state), total = env.reset_env(key, params), 0.0
        for _ in range(params.max_steps_in_episode):  # the suite's rollout uses one key for all steps
            action = jnp.atleast_1d(jnp.asarray(controller(np.asarray(obs)), jnp.float32))
            obs, state, reward, terminated = step(key, state, action)
            total += float(reward)
            assert not bool(terminated)
        np.testing.assert_allclose(total, published["pid"][seed], rtol=1e-3)


def test_records_that_do_not_fit_are_left_out():
    assert targetgym.published_returns("patrol_bearing_only") == targetgym.published_returns("reactor") == {}
    with_record = [env_id for env_id in TASKS if targetgym.published_returns(env_id)]
    assert len(with_record) == 19
    with pytest.raises(ValueError, match="env_id is 'cst', which is not a task of TargetGym; did you mean 'cstr'"):
        targetgym.published_returns("cst")


def test_static_fields_change_shapes_and_names_are_kept(key: jax.Array):
    env = envs.make("targetgym/plane", observe_wind=True)
    assert env.reset_env(key, env.default_params)[0].shape == (12,)
    assert env == envs.make("targetgym/plane", observe_wind=True) == copy.deepcopy(env)
    assert hash(env) == hash(copy.deepcopy(env)) and env != envs.make("targetgym/plane")
    spec = describe(jaxrl.ppo(env))
    assert spec["environment"] == {"name": "targetgym/plane", "static": {"observe_wind": True}}
    assert build(spec).env == env


def test_errors_are_one_sentence():
    with pytest.raises(ValueError, match=r"^There is no environment 'targetgym/cst'; did you mean 'targetgym/cstr'"):
        envs.make("targetgym/cst")
    with pytest.raises(ValueError, match="has no static field 'integration'"):
        envs.make("targetgym/cstr", integration="rk4_1")
    with pytest.raises((TypeError, ValueError), match="observe_wind"):
        envs.make("targetgym/plane", observe_wind=2)


@pytest.mark.parametrize("env_id", ["cstr", "plane", "reactor"])
def test_an_image_of_a_state(env_id: str, key: jax.Array):
    from envs.rendering import frame

    env = envs.make(f"targetgym/{env_id}")
    _, state = env.reset_env(key, env.default_params)
    image = frame(env, state, env.default_params)
    assert image.shape[2] == 3 and len(np.unique(image)) > 5
