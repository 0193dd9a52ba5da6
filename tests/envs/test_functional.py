"""Gymnasium's functional environments under the contract."""

import copy
import pickle
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.phys2d.pendulum import PendulumFunctional
from gymnasium.experimental.functional import FuncEnv

import envs
from envs.adapters.incoming.functional import from_func_env
from envs.base import spaces
from jaxrl.algorithms.registry import build, describe

LATEST = (
    "functional/phys2d/CartPole-v1",
    "functional/phys2d/Pendulum-v0",
    "functional/tabular/Blackjack-v0",
    "functional/tabular/CliffWalking-v0",
)


class Walk(FuncEnv):
    """A walk on the line, with its own constants and choices."""

    observation_space = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(-np.inf, np.inf, (1,)), "side": gymnasium.spaces.Discrete(2, start=5)}
    )
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def initial(self, rng: Any, params: Any = None) -> Any:
        return jnp.zeros(())

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        return state + action * self.stride

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return {"place": state[None], "side": 5 + (state > 0)}

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return next_state

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.abs(state) > 3

    stride = 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", LATEST)
def test_gymnasiums_own_keep_the_laws(name: str):
    envs.check(envs.make(name), num_steps=32)


@pytest.mark.slow_rows("functional/tabular/Blackjack-v0")
@pytest.mark.parametrize("name", LATEST)
def test_a_random_rollout_equals_the_native_one(name: str, key: jax.Array):
    env = envs.make(name)
    reference: Any = gymnasium.make(name.removeprefix("functional/")).unwrapped
    params, step = env.default_params, jax.jit(env.step_env)
    obs, state = env.reset_env(key, params)
    native = reference.func_env.initial(key)
    for t in range(12):
        # Two compilations: as many roundings of numbers up to 10 as there are steps.
        expected = np.asarray(reference.func_env.observation(native, key)).reshape(obs.shape)
        np.testing.assert_allclose(obs, expected, rtol=1e-5, atol=1e-6)
        step_key = jax.random.fold_in(key, t)
        action = env.action_space(params).sample(step_key)
        native_action = action[None] if "Cliff" in name else action
        after = reference.func_env.transition(native, native_action, step_key)
        obs, state, reward, terminated, _ = step(step_key, state, action, params)
        np.testing.assert_allclose(
            reward, reference.func_env.reward(native, native_action, after, step_key), rtol=1e-5, atol=1e-6
        )
        assert bool(terminated) == bool(reference.func_env.terminal(after, step_key))
        native = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype).reshape(like.shape), after, state.inner)
        if terminated:
            return


def test_floats_are_parameters_and_the_rest_is_static(key: jax.Array):
    env = envs.make("functional/phys2d/Pendulum-v0")
    params = env.default_params
    assert (params.max_steps_in_episode, params.g, params.l) == (200, 10.0, 1.0)
    state, action = env.reset_env(key, params)[1], jnp.zeros(1)
    step = jax.jit(jax.vmap(lambda g: env.step_env(key, state, action, params.replace(g=g))[0][2]))
    speeds = np.asarray(step(jnp.array([0.0, 10.0, 20.0])))
    assert speeds[2] - speeds[1] == pytest.approx(speeds[1] - speeds[0], rel=1e-5)
    assert speeds[1] != speeds[0]

    natural: Any = envs.make("functional/tabular/Blackjack-v0", natural=True, sutton_and_barto=False)
    assert natural.func_env.default_params.natural
    assert natural != envs.make("functional/tabular/Blackjack-v0")
    assert natural == envs.make("functional/tabular/Blackjack-v0", sutton_and_barto=False, natural=True)


@pytest.mark.parametrize("name", LATEST)
def test_parameters_can_be_copied_and_pickled(name: str):
    params = envs.make(name).default_params.replace(max_steps_in_episode=jnp.int32(5))
    for again in (pickle.loads(pickle.dumps(params)), copy.deepcopy(params), copy.copy(params)):
        assert type(again) is type(params)
        assert again == params


@pytest.mark.slow
def test_ones_own_is_adapted(key: jax.Array):
    env = from_func_env(Walk(), time_limit=7)
    envs.check(env)
    assert env.name == "Walk"
    assert env == from_func_env(Walk(), time_limit=7) == copy.deepcopy(env)
    assert len({env, from_func_env(Walk()), from_func_env(Walk({"stride": 0.5}), 7)}) == 3
    for held in (np.ones(2), {"a": np.ones(2), "b": 1}, gymnasium.spaces.Box(0, 1, (2,)), spaces.Discrete(3)):
        assert from_func_env(Walk({"held": held})) == from_func_env(Walk({"held": copy.deepcopy(held)}))
    assert from_func_env(Walk({"held": np.ones(2)})) != from_func_env(Walk({"held": np.zeros(2)}))
    space = env.observation_space(env.default_params)
    assert isinstance(space, spaces.Dict) and space.spaces["side"].n == 2
    _, state = env.reset_env(key, env.default_params)
    obs, _, reward, terminated, _ = env.step_env(key, state, jnp.int32(2), env.default_params)  # by default 1 in Walk
    assert (obs["place"].tolist(), int(obs["side"]), float(reward), bool(terminated)) == ([1.0], 1, 1.0, False)


def test_a_run_directory_can_describe_a_functional_environment():
    import jaxrl

    algo = jaxrl.ppo(envs.make("functional/tabular/Blackjack-v0", natural=True))
    spec = describe(algo)
    assert spec["environment"] == {"name": "functional/tabular/Blackjack-v0", "static": {"natural": True}}
    assert build(spec).env == algo.env
    with pytest.raises(ValueError, match="an object"):
        describe(jaxrl.ppo(from_func_env(PendulumFunctional())))


class Texts(Walk):
    observation_space = gymnasium.spaces.Text(3)


@pytest.mark.parametrize(
    ("do", "error", "sentence"),
    [
        (lambda: envs.make("functional/phys2d/CartPol-v1"), ValueError, "did you mean 'functional/phys2d/CartPole-v1'"),
        (lambda: envs.make("functional/zzz"), ValueError, "no environment 'functional/zzz'; `envs.names"),
        (lambda: envs.make("functional/tabular/Blackjack-v0", nature=True), ValueError, "did you mean 'natural'"),
        (
            lambda: envs.make("functional/phys2d/Pendulum-v0", g=9.0),
            ValueError,
            "no static field 'g'; its static",
        ),
        (lambda: envs.make("functional/tabular/CliffWalking-v0", g=1), ValueError, "it has no static fields"),
        (lambda: envs.make("functional/tabular/Blackjack-v0", natural=[1]), TypeError, "cannot be hashed"),
        (lambda: from_func_env("CartPole"), TypeError, "func_env takes a gymnasium.* got 'CartPole'"),
        (
            lambda: from_func_env(Walk(), time_limit=0),
            ValueError,
            "time_limit takes a whole number",
        ),
        (lambda: from_func_env(Walk({"stride": {1}})), TypeError, "Walk.stride is .1., which cannot be hashed"),
        (lambda: from_func_env(Texts()), ValueError, "Texts: the observation space is a Text; supported spaces are"),
        (lambda: envs.names("brex"), ValueError, "library is 'brex'; did you mean 'brax'"),
    ],
)
def test_bad_input_gets_one_sentence(do: Any, error: type, sentence: str):
    with pytest.raises(error, match=sentence) as caught:
        do()
    assert "\n" not in str(caught.value)
