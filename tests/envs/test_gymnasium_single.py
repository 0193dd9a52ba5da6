"""Every environment as a Gymnasium environment: its checker, rollouts compared with native ones, names, errors."""

import builtins
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.functional_jax_env import FunctionalJaxEnv
from gymnasium.utils.env_checker import check_env

import envs
from envs.adapters.outgoing.gymnasium import as_func_env, as_gymnasium, ids, register
from envs.adapters.outgoing.gymnasium_spaces import checked_action, native_action, shown, to_gymnasium
from envs.base import spaces
from envs.checking import TOLERANCE
from envs.control.cartpole import CartPole
from envs.registry import ROWS

QUICK_BANDITS = ("bernoulli", "linear", "dueling", "sleeping", "delayed", "restless")
SLOW = {name for name in ROWS if name.startswith("bandit/") and name.removeprefix("bandit/") not in QUICK_BANDITS}
SINGLE = [pytest.param(env_id, marks=pytest.mark.slow) if name in SLOW else env_id for env_id, name in ids().items()]

# Warnings of the checker for correct environments: numbers may be of any size, and actions not of size 1.
ADVICE = "minimum value is -infinity|maximum value is infinity|recommend using a symmetric and normalized space"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    register()


def made(env_id: str) -> Any:
    """The environment of a name, without episodes of one step, for the checker."""
    static: dict[str, Any] = {"steps": 4} if "OnlyTruncates" in env_id else {}
    return gymnasium.make(env_id, render_mode="rgb_array", **static).unwrapped


def native(env: Any, params: Any, seed: int, actions: list[Any]) -> list[tuple]:
    """A rollout of the environment itself, by the rule that `envs.adapters.outgoing.gymnasium` states."""
    reset_key, step_key = jax.random.split(jax.random.key(seed))
    reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
    resets, reported = 1, []
    obs, state = reset(jax.random.fold_in(reset_key, 0), params)
    for t, action in enumerate(actions):
        obs, state, reward, terminated, info = step(jax.random.fold_in(step_key, t), state, action, params)
        truncated = env.is_truncated(state, params)
        first = None
        if terminated or truncated:
            first, state = reset(jax.random.fold_in(reset_key, resets), params)
            resets += 1
        reported.append((obs, float(reward), bool(terminated), bool(truncated), info.get("metrics"), first))
    return reported


def close(a: Any, b: Any) -> bool:
    """Check equality up to the differences of two compilations of a step, over the steps of these rollouts."""

    def close_leaf(a: Any, b: Any) -> bool:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return bool(np.allclose(a, b, rtol=0, atol=TOLERANCE * max(1.0, np.abs(b).max(initial=0.0))))

    return jax.tree.all(jax.tree.map(close_leaf, a, b))


@pytest.mark.slow
@pytest.mark.parametrize("env_id", SINGLE)
def test_gymnasiums_checker_passes_and_rollouts_are_the_native_ones(env_id: str) -> None:
    adapted = made(env_id)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(adapted)
    assert [str(w.message) for w in caught if not re.search(ADVICE, str(w.message))] == []

    env, params, space = adapted.env, adapted.params, adapted.action_space
    space.seed(1)
    obs, info = adapted.reset(seed=7)
    actions, seen = [], []
    for _ in range(24):
        mask = info.get("action_mask")
        action = space.sample() if mask is None else space.sample(mask)
        obs, reward, terminated, truncated, info = adapted.step(action)
        assert obs in adapted.observation_space and type(reward) is float and type(terminated) is bool
        first = None
        if terminated or truncated:
            first, again = adapted.reset()
        several = isinstance(env.action_space(params), spaces.Tuple)
        actions.append(tuple(jnp.asarray(action)) if several else jnp.asarray(action))
        seen.append((obs, reward, terminated, truncated, info.get("metrics"), first))
        info = again if first is not None else info
    for actual, expected in zip(seen, native(env, params, 7, actions), strict=True):
        assert close(actual[0], expected[0]) and close(actual[1], expected[1]) and actual[2:4] == expected[2:4]
        assert (actual[4] is None) == (expected[4] is None) and (actual[5] is None) == (expected[5] is None)
        assert all(close(actual[4][name], value) for name, value in (expected[4] or {}).items())
        assert actual[5] is None or close(actual[5], expected[5])


def test_seeds_reproduce_and_differ() -> None:
    env = as_gymnasium(envs.make("cartpole"))
    first, second, third = env.reset(seed=3)[0], env.reset()[0], env.reset(seed=3)[0]
    assert np.array_equal(first, third) and not np.array_equal(first, second)
    assert np.array_equal(second, env.reset()[0])
    assert not np.array_equal(first, env.reset(seed=4)[0])
    unseeded = [as_gymnasium(envs.make("cartpole")).reset()[0] for _ in range(2)]
    assert not np.array_equal(*unseeded)
    first[:] = 0  # returned arrays are writable


def test_spaces_of_every_kind() -> None:
    env = as_gymnasium(envs.make("mountain-car-continuous"), render_mode=None)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    nested = spaces.Dict(
        {"b": spaces.Tuple((spaces.Box(0, 255, (2, 2), jnp.uint8), spaces.Discrete(3))), "a": spaces.Discrete(2)}
    )
    space = to_gymnasium(nested)
    assert space == gymnasium.spaces.Dict(
        {
            "a": gymnasium.spaces.Discrete(2),
            "b": gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 255, (2, 2), np.uint8), gymnasium.spaces.Discrete(3)]),
        }
    )
    value = jax.device_get(shown(nested, nested.sample(jax.random.key(0))))
    assert space.contains(value | {"a": np.int64(value["a"]), "b": (value["b"][0], np.int64(value["b"][1]))})
    action = native_action(nested, checked_action(nested, space.sample()))
    assert action["b"][0].dtype == np.uint8 and action["a"].dtype == np.int32
    pairs = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(5)))
    assert to_gymnasium(pairs) == gymnasium.spaces.MultiDiscrete([2, 5])
    assert [int(part) for part in native_action(pairs, checked_action(pairs, np.array([1, 4])))] == [1, 4]


@dataclass(frozen=True)
class Other(CartPole):
    """An environment with a space for which Gymnasium has no counterpart."""

    def action_space(self, params: Any = None) -> Any:
        return spaces.Box(0, 1, (), jnp.bfloat16)


def test_bad_input_gets_one_sentence() -> None:
    cartpole = envs.make("cartpole")
    pendulum = envs.make("pendulum")
    cases: list[tuple[Any, type, str]] = [
        (lambda: as_gymnasium("cartpole"), TypeError, r"as_gymnasium takes an environment, such as envs\.make"),
        (lambda: as_gymnasium(envs.make("crowd/circle")), ValueError, "crowd/circle has 12 agents.* as_pettingzoo"),
        (lambda: as_func_env(envs.make("crowd/circle")), ValueError, "as_func_env takes a single-agent environment"),
        (
            lambda: as_gymnasium(Other()),
            TypeError,
            "action space of cartpole is Box.* no counterpart",
        ),
        (
            lambda: as_gymnasium(cartpole, pendulum.default_params),
            TypeError,
            "params must be CartPoleParams of cartpole",
        ),
        (
            lambda: as_gymnasium(cartpole, render_mode="ansi"),
            ValueError,
            "render_mode is 'ansi'; it takes None",
        ),
        (
            lambda: as_gymnasium(cartpole).reset(seed=-1),
            ValueError,
            "seed is -1; it takes a whole number of at least 0",
        ),
        (lambda: gymnasium.make("jaxrl/CartPole-v1", gravity=9.8), ValueError, "no static field 'gravity'"),
    ]
    for call, error, sentence in cases:
        with pytest.raises(error, match=sentence) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(gymnasium.error.UnregisteredEnv, match="CartPol"):
        gymnasium.make("jaxrl/CartPol-v1")


def test_wrong_actions_and_steps_out_of_order_get_one_sentence() -> None:
    env = as_gymnasium(envs.make("cartpole"), envs.make("cartpole").default_params.replace(max_steps_in_episode=2))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"step was called before reset; call env\.reset"):
        env.step(0)
    env.reset(seed=0)
    for action, sentence in (
        (2, r"action is 2; it takes a choice of Discrete\(2"),
        (-1, "action is -1"),
        (0.5, "whole numbers"),
        ([0, 1], r"action has the shape \(2,\); it takes \(\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            env.step(action)
    env.step(0)
    assert env.step(1)[3]
    with pytest.raises(gymnasium.error.ResetNeeded, match="the episode had terminated or been truncated"):
        env.step(0)
    env.reset()
    env.step(0)


def test_human_rendering_opens_a_window_and_names_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    env = gymnasium.make("jaxrl/Pendulum-v1", render_mode="human")
    env.reset(seed=0)
    env.step(np.zeros(1, np.float32))
    assert env.render() is None
    import pygame

    assert pygame.display.get_caption()[0] == "pendulum"
    env.close()
    env.close()
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pygame":
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"takes pygame.*pip install '\.\[gymnasium\]' in a clone"):
        as_gymnasium(envs.make("pendulum"), render_mode="human").reset()


def test_an_old_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium.vector

    monkeypatch.delattr(gymnasium.vector, "AutoresetMode")
    with pytest.raises(ImportError, match=r'Gymnasium 1\.1 or later, as gymnax does: pip install "gymnasium>=1\.1"'):
        as_gymnasium(envs.make("cartpole"))


@pytest.mark.slow
def test_names_in_gymnasium() -> None:
    assert {"jaxrl/CartPole-v1", "jaxrl/MountainCar-v0", "jaxrl/Pathworld-v0", "jaxrl/BernoulliBandit-v0"} < set(ids())
    several = {name for name in ROWS if name.startswith(("crowd/", "game/")) or name.endswith("-self-play")}
    assert sorted(ids().values()) == sorted(set(ROWS) - several)
    assert register() == tuple(ids())
    env = gymnasium.make("jaxrl/Pathworld-v0", num_paths=4)
    assert env.action_space == gymnasium.spaces.Discrete(4)
    frames: Any = gymnasium.make("jaxrl/BernoulliBandit-v0", render_mode="rgb_array_list")
    frames.reset(seed=0)
    frames.step(np.int64(1))
    assert len(frames.render()) == 2


def test_another_time_limit_ends_one_or_many_environments_sooner() -> None:
    env = gymnasium.make("jaxrl/Pendulum-v1", max_episode_steps=3)
    env.reset(seed=0)
    assert [bool(env.step(np.zeros(1, np.float32))[3]) for _ in range(3)] == [False, False, True]
    many: Any = gymnasium.make_vec("jaxrl/Pendulum-v1", num_envs=2, max_episode_steps=300)
    assert many.unwrapped.params.max_steps_in_episode == 300
    with pytest.raises(ValueError, match="max_steps_in_episode is 0; as_gymnasium_vector takes a whole number"):
        gymnasium.make_vec("jaxrl/Pendulum-v1", num_envs=2, max_episode_steps=0)


@pytest.mark.slow
def test_observations_lie_in_their_space_in_64_bits_too() -> None:
    code = """
import numpy as np, jax, envs
jax.config.update("jax_enable_x64", True)
from envs.adapters.outgoing.gymnasium import as_gymnasium
for name in ("cartpole", "bandit/bernoulli"):
    env = as_gymnasium(envs.make(name))
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space, obs
    obs, *_ = env.step(0)
    assert obs in env.observation_space, obs
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_only_windows_take_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    for name in ("gymnasium/CartPole-v1", "functional/phys2d/CartPole-v1"):
        assert name in envs.names(name.partition("/")[0])
        env = envs.make(name)
        env.reset(jax.random.key(0), env.default_params)
    frames = as_gymnasium(envs.make("cartpole"), render_mode="rgb_array")
    frames.reset(seed=0)
    assert frames.render() is not None


def test_registering_loads_no_jax() -> None:
    code = """
import sys
from envs.adapters.outgoing.gymnasium import register
assert "jax" not in sys.modules and "gymnasium" not in sys.modules
register()
assert "jax" not in sys.modules
import gymnasium
assert "jaxrl/CartPole-v1" in gymnasium.registry
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)


@pytest.mark.slow_rows("bandit/dueling")
@pytest.mark.parametrize("name", ["cartpole", "delayed-choice", "bandit/dueling"])
def test_the_functional_form_is_the_environment_itself(name: str) -> None:
    env = envs.make(name)
    func_env = as_func_env(env)
    func_env.transform(jax.jit)
    single = FunctionalJaxEnv(func_env, metadata={"render_modes": ["rgb_array"], "jax": True}, render_mode="rgb_array")
    single.action_space.seed(0)
    key = jax.random.PRNGKey(5)
    reset_key, key = jax.random.split(key)
    obs, info = single.reset(seed=5)
    first, state = env.reset_env(reset_key, env.default_params)
    step = jax.jit(env.step_env)
    assert close(obs, first) and ("action_mask" in info) == (name == "delayed-choice")
    for _ in range(12):
        action = single.action_space.sample()
        native_action = tuple(jnp.asarray(action)) if np.ndim(action) else jnp.asarray(action)
        step_key, key = jax.random.split(key)
        native_obs, state, pay, terminated, _ = step(step_key, state, native_action, env.default_params)
        obs, reward, ended, _, info = single.step(action)
        assert close(obs, native_obs) and close(reward, pay) and ended == bool(terminated)
        assert not info["truncated"]
    assert single.render().shape[2] == 3
    single.close()
    params = func_env.get_default_params(max_steps_in_episode=1)
    after = func_env.transition(func_env.initial(key, params), action, key, params)
    assert func_env.transition_info(after, action, after, params)["truncated"]
