"""Environments from two functions."""

import sys
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxrl_functions import allowed, leaky_reset, leaky_step, reset, step

import envs
import jaxrl
from jaxrl.algorithms.registry import build, describe


def test_two_functions_are_an_environment(key: jax.Array):
    env: Any = envs.from_functions(reset, step, actions=2, time_limit=5)
    _, state = env.reset(key, env.default_params)
    info: Any = None
    for time in range(5):
        obs, state, _, terminated, truncated, info = env.step(key, state, 1, env.default_params)
        assert obs.shape == (1,) and bool(truncated) == (time == 4) and not bool(terminated)
    assert float(info["final_observation"][0]) == pytest.approx(0.5)
    envs.check(env, progress=False)


def test_equal_arguments_share_a_compilation():
    first, second = (envs.from_functions(reset, step, actions=2, time_limit=5) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert first != envs.from_functions(reset, step, actions=2, time_limit=6)
    spec = describe(jaxrl.ppo(first))
    assert build(spec, allow=("jaxrl_functions",)).env == first


def test_parameters_are_traced_and_masks_forbid(key: jax.Array):
    env: Any = envs.from_functions(
        leaky_reset, leaky_step, actions=2, time_limit=5, params={"leak": 0.5, "gain": 1.0}, action_mask=allowed
    )
    params = env.default_params
    assert (params.leak, params.gain, params.max_steps_in_episode) == (0.5, 1.0, 5)
    _, state = env.reset_env(key, params)
    np.testing.assert_array_equal(env.action_mask(state, params), [True, False])
    levels = jax.vmap(lambda leak: env.step_env(key, state, jnp.int32(1), params.replace(leak=leak))[0][0])
    np.testing.assert_allclose(levels(jnp.array([0.0, 1.0])), [1.0, 1.0])
    sweep = jaxrl.grid(jaxrl.ppo(env).hparams, {"env.leak": [0.1, 0.9]})
    assert len(sweep) == 2


def bad_step(key: Any, state: Any, action: Any) -> Any:
    return jnp.zeros(1), state, 0.0


def push(key: jax.Array, level: jax.Array, action: jax.Array) -> Any:
    """A step by a number in place of a choice."""
    return step(key, level, action[0])


def test_spaces_are_compared_by_value(key: jax.Array):
    """gymnax compares them by identity, so that each copy of an environment would be compiled again."""

    def pushed(high: float) -> Any:
        box = envs.spaces.Box(-1.0, high, (1,), jnp.float32)
        return envs.from_functions(reset, push, actions=box, time_limit=5, observations=envs.spaces.Box(-9, 9, (1,)))

    assert pushed(1.0) == pushed(1.0) and pushed(1.0) != pushed(2.0)
    envs.check(pushed(1.0), progress=False)


def whole_reset(key: jax.Array) -> Any:
    """A level as a whole number, which steps make a float."""
    del key
    return jnp.zeros(1, jnp.int32), jnp.int32(0)


def test_whole_numbers_and_floats_become_floats(key: jax.Array):
    env: Any = envs.from_functions(whole_reset, step, actions=2, time_limit=5)
    obs, state = env.reset_env(key, env.default_params)
    assert (obs.dtype, state.inner.dtype) == (jnp.float32, jnp.float32)


def wide_step(key: jax.Array, level: jax.Array, action: jax.Array) -> Any:
    obs, level, reward, terminated = step(key, level, action)
    return jnp.tile(obs, 4), level, reward, terminated


def two_rewards(key: jax.Array, level: jax.Array, action: jax.Array) -> Any:
    obs, level, reward, terminated = step(key, level, action)
    return obs, level, jnp.stack([reward, reward]), terminated


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"reset": 3}, TypeError, r"^reset must be a function of \(key\), got 3$"),
        ({"step": reset}, TypeError, r"^step must be a function of \(key, state, action\), got reset\(key.*\).*$"),
        ({"step": bad_step}, TypeError, r"^bad_step must return \(obs, state, reward, terminated\), got 3 values"),
        (
            {"step": wide_step},
            TypeError,
            r"^wide_step must return an obs of the shapes that reset returns, fl",
        ),
        ({"step": two_rewards}, TypeError, r"^two_rewards must return one number as reward, got float32\[2\]"),
        (
            {"params": {"class": 1.0}},
            ValueError,
            "^params must have names that Python allows for attributes, got ",
        ),
        ({"params": {"c": 1j}}, ValueError, "^params must be numbers, got 1j for 'c'$"),
        ({"actions": 0}, ValueError, "^actions must be a whole number of at least 1, or an action space of envs.space"),
        ({"time_limit": 0}, ValueError, "^time_limit must be a whole number of at least 1, got 0$"),
        ({"observations": 3}, TypeError, "^observations must be a space of envs.spaces, or None, got 3$"),
        ({"params": {"a b": 1.0}}, ValueError, "^params must have names that Python allows for attributes, got 'a b'"),
        ({"params": {"a": "x"}}, ValueError, "^params must be numbers, got 'x' for 'a'$"),
        ({"params": 3}, TypeError, "^params must be a dictionary of numbers by name, or None, got 3$"),
    ],
)
def test_errors_are_one_sentence(changes: Any, kind: Any, message: str):
    arguments = {"reset": reset, "step": step, "actions": 2, "time_limit": 5} | changes
    with pytest.raises(kind, match=message):
        envs.from_functions(**arguments)


def test_an_object_of_a_module_goes_by_its_name(monkeypatch: pytest.MonkeyPatch):
    env = envs.make("cartpole")
    monkeypatch.setitem(sys.modules, "mysuite", SimpleNamespace(env=env, size=3))
    assert envs.make("mysuite:env") is env
    with pytest.raises(TypeError, match=r"^'mysuite:env' is an object, which takes no static fields, got view_size\.$"):
        envs.make("mysuite:env", view_size=5)
    with pytest.raises(
        TypeError, match=r"^'mysuite:size' is 3; it must be an environment object or a subclass of envs"
    ):
        envs.make("mysuite:size")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("xminigrid", r"`envs\.names\('xminigrid'\)` lists its environments\.$"),
        ("XMiniGrid/MiniGrid-Empty-6x6", r"did you mean 'xminigrid/MiniGrid-Empty-6x6'\?$"),
        ("popgym-arcade/CartPoleEasy", r"did you mean 'popgym_arcade/CartPoleEasy'\?$"),
    ],
)
def test_a_prefix_in_another_spelling_is_recognised(name: str, hint: str):
    with pytest.raises(ValueError, match=rf"^There is no environment '{name}'; {hint}"):
        envs.make(name)
