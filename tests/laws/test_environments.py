"""The laws of the contract over every environment of the library; each law can fail."""

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import agents
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import envs
import jaxrl
from envs import base, probes, wrappers
from envs import gymnax_environment as adapter
from envs.base import spaces
from envs.checking import check_abstractly
from envs.registry import ROWS

OURS = sorted(ROWS)
PROBES = [name for name in OURS if name.startswith("probe/")]
# The quick ones of gymnax's; a MinAtar game alone takes five seconds and more to compile.
GYMNAX_QUICK = ("CartPole-v1", "DeepSea-bsuite", "MemoryChain-bsuite", "GaussianBandit-misc", "FrozenLake-misc")
GYMNAX_SLOW = [name for name in adapter.environment_ids() if name not in (*GYMNAX_QUICK, "MNISTBandit-bsuite")]


# One scenario stands for the crowds here; the others differ in where people start.
CROWDS_SLOW = [name for name in OURS if name.startswith("crowd/") and name != "crowd/circle"]
# The quick bandits differ in their observations, the others in the origin of their values.
BANDITS_SLOW = [
    f"bandit/{name}"
    for name in (
        "gaussian",
        "poisson",
        "exponential",
        "student-t",
        "pareto",
        "logistic",
        "piecewise",
        "random-walk",
        "sinusoidal",
        "sequence",
        "constrained-adversary",
        "drifting-adversary",
        "adaptive-adversary",
        "sleeping",
        "delayed",
        "gilbert-elliott",
        "coupled-interventions",
        "coupled-capacity",
        "coupled-path",
        "coupled-matching",
    )
]


# The others are quick to compile: a bandit, a memory task, a game, a decision task, control tasks and probes.
OTHERS_SLOW = [
    "acrobot",
    "bandit/dueling",
    "bandit/linear",
    "cooperation/foraging",
    "cooperation/foraging-characters",
    "cooperation/crowd",
    "cooperation/levers",
    "cooperation/levers-characters",
    "crowd/circle",
    "lander",
    "lander-continuous",
    "lq/ac1",
    "lq/chain-of-masses",
    "lq/double-integrator",
    "lq/he1",
    "lq/lqg-double-integrator",
    "lq/unstable",
    "fishery",
    "inventory",
    "kelly",
    "memory/acrobot",
    "memory/autoencode",
    "memory/bandit",
    "memory/battleship-small",
    "memory/cartpole",
    "memory/concentration",
    "memory/count-recall",
    "memory/delayed-match",
    "memory/mountain-car",
    "memory/mountain-car-continuous",
    "memory/noisy-cartpole",
    "memory/noisy-pendulum",
    "memory/pendulum",
    "memory/repeat-first",
    "memory/t-maze",
    "mountain-car",
    "mountain-car-continuous",
    "pathworld",
    "pde/burgers",
    "pde/kuramoto-sivashinsky",
    "pde/wave",
    "preference-reversal",
    "queue",
    "random-dilemmas",
    "replacement",
    "river",
    "maze",
]
SELF_PLAY_SLOW = [name for name in OURS if name.endswith("-self-play")]
SLOW = {*CROWDS_SLOW, *BANDITS_SLOW, *SELF_PLAY_SLOW, *OTHERS_SLOW, "bandit/restless"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in OURS])
def test_ours_keep_the_laws(name: str) -> None:
    envs.check(envs.make(name))


@pytest.mark.fast_rows("CartPole-v1")
@pytest.mark.parametrize("name", GYMNAX_QUICK)
def test_gymnax_keeps_the_laws(name: str) -> None:
    envs.check(envs.make(f"gymnax/{name}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", GYMNAX_SLOW)
def test_the_rest_of_gymnax_keeps_the_laws(name: str) -> None:
    envs.check(envs.make(f"gymnax/{name}"))


@pytest.mark.fast_rows("ActionDependent(continuous=True)")
@pytest.mark.parametrize(
    "env",
    [
        probes.ActionDependent(continuous=True),
        probes.ActionAndObservationDependent(continuous=True),
        probes.DelayedReward(delay=3),
        probes.OnlyTruncates(steps=4),
    ],
    ids=str,
)
def test_probes_keep_the_laws_with_other_fields(env: base.Environment) -> None:
    envs.check(env)


# --- each law can fail -------------------------------------------------------------------


@struct.dataclass
class State(base.EnvState):
    time: jax.Array
    x: jax.Array


@struct.dataclass
class Params(base.EnvParams):
    speed: float = 1.0
    max_steps_in_episode: int = 20


@dataclass(frozen=True)
class Walk(base.Environment):
    """A sound environment; each class below breaks it in one way."""

    @property
    def default_params(self) -> Any:
        return Params()

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        x = jax.random.uniform(key)
        return x[None], State(jnp.zeros((), jnp.int32), x)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        x = jnp.clip(state.x + params.speed * action[0], -5.0, 5.0)
        return x[None], State(state.time + 1, x), -jnp.abs(x), jnp.abs(x) > 4, {}

    def action_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,))

    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-5.0, 5.0, (1,))


class ByIdentity(Walk):
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Unhashable(Walk):
    __hash__ = None  # type: ignore[assignment]


class WeakReset(Walk):
    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        obs, state = super().reset_env(key, params)
        return obs, state.replace(time=0)


class PythonBranch(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        if params.speed > 0:
            return super().step_env(key, state, action, params)
        raise AssertionError


class IntegerReward(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, _, terminated, info = super().step_env(key, state, action, params)
        return obs, state, jnp.int32(1), terminated, info


class PythonReward(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, _, terminated, info = super().step_env(key, state, action, params)
        return obs, state, 1.0, terminated, info


class PythonFlag(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        return obs, state, reward, False, info


class FourValues(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        return super().step_env(key, state, action, params)[:4]


class OnlyAnObservation(Walk):
    def reset_env(self, key: jax.Array, params: Any) -> Any:
        return super().reset_env(key, params)[0]


class RewardPerAgent(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, jnp.broadcast_to(reward, (3,)), terminated, info


class OutsideItsSpace(Walk):
    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-0.5, 0.5, (1,))


class LimitTerminates(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, reward, terminated, info = super().step_env(key, state, 0 * action, params)
        return obs, state, reward, terminated | (state.time >= params.max_steps_in_episode), info


class NoLimit(Walk):
    def is_truncated(self, state: Any, params: Any) -> jax.Array:
        return jnp.zeros((), bool)


@struct.dataclass
class ParamsWithoutLimit(base.EnvParams):
    speed: float = 1.0


class LimitNotGiven(Walk):
    @property
    def default_params(self) -> Any:
        return ParamsWithoutLimit()


class ForgetsTheFinalObservation(Walk):
    def step(self, key: jax.Array, state: Any, action: Any, params: Any = None) -> Any:
        obs, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, state, reward, terminated, truncated, {**info, "final_observation": obs}


class Divides(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward / (action[0] + 1), terminated, info


class UnnamedMetric(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, reward, terminated, _ = super().step_env(key, state, action, params)
        return obs, state, reward, terminated, {"metrics": {"speed": reward}}


class MasksABox(Walk):
    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.ones(1, bool)


@dataclass(frozen=True)
class OtherSpaces(Walk):
    action: Any = None
    observation: Any = None

    def action_space(self, params: Any = None) -> Any:
        return self.action() if self.action else super().action_space(params)

    def observation_space(self, params: Any) -> Any:
        return self.observation() if self.observation else super().observation_space(params)


@struct.dataclass
class Timeless:
    x: jax.Array


class NoTime(Walk):
    def reset_env(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        obs, state = super().reset_env(key, params)
        return obs, Timeless(state.x)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        return state.x[None], state, -jnp.abs(state.x), state.x > 4, {}


class NoMethods(base.Environment):
    pass


class NoStep(Walk):
    step_env = base.Environment.step_env


class Assigns(Walk):
    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        state.time += 1
        return super().step_env(key, state, action, params)


class Stuck(Walk):
    """An environment that forbids every action after two steps of an episode."""

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        return super().step_env(key, state, jnp.zeros(1), params)

    def action_space(self, params: Any = None) -> Any:
        return spaces.Discrete(2)

    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.broadcast_to(state.time < 2, (2,))


class StuckInOnePart(Stuck):
    def action_space(self, params: Any = None) -> Any:
        return spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))

    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.ones(3, bool), super().action_mask(state, params)


class StuckAgent(agents.Crowd):
    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.broadcast_to((jnp.arange(self.num_agents) < 1)[:, None], (self.num_agents, agents.NUM_ACTIONS))


class PythonState(Walk):
    """An environment that counts its calls outside JAX, so that a compiled step and an eager one differ."""

    calls = 0

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        PythonState.calls += 1
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward + PythonState.calls, terminated, info


@pytest.mark.slow
def test_a_sound_environment_passes() -> None:
    envs.check(Walk())


@pytest.mark.slow_rows("LimitTerminates-")
@pytest.mark.parametrize(
    ("env", "law"),
    [
        (ByIdentity(), "hash law"),
        (Unhashable(), "cannot be hashed"),
        (WeakReset(), r"state\.time is weak int32\[\] after a reset"),
        (PythonBranch(), "tracing law"),
        (IntegerReward(), r"the reward is int32\[\]; it must be float32\[\]"),
        (PythonReward(), r"type law: the reward is the Python value 1\.0; it must be an array"),
        (PythonFlag(), r"type law: terminated is the Python value False; it must be an array"),
        (FourValues(), r"step law: step_env returns 4 values"),
        (OnlyAnObservation(), r"reset law: reset_env returns a single value"),
        (RewardPerAgent(), r"batch law: the observation has shape \(1,\)"),
        (OutsideItsSpace(), "outside its space"),
        (LimitTerminates(), "terminated must not depend on the time limit"),
        (NoLimit(), "continues past 5 steps"),
        (LimitNotGiven(), r"time law: max_steps_in_episode is 1, .*; give default_params a limit"),
        (wrappers.sticky_actions(LimitNotGiven(), 0.5), "time law: max_steps_in_episode is 1"),
        (ForgetsTheFinalObservation(), "final_observation must be step_env's"),
        (Divides(), "finite law: reward .* of the lowest actions"),
        (UnnamedMetric(), r"metric law: .*\['speed'\], metric_rules has \[\]"),
        (MasksABox(), "mask law"),
        (Stuck(), r"mask law: action_mask\(...\) forbids every action after 2 steps"),
        (StuckInOnePart(), r"mask law: action_mask\(...\)\[1\] forbids every action after 2 steps"),
        (StuckAgent(), r"mask law: .* forbids every action for agent \[1\] after 0 steps"),
        (PythonState(), "must"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, base.Environment) else "",
)
def test_each_broken_law_is_named(env: base.Environment, law: str) -> None:
    with pytest.raises(envs.ContractError, match=law):
        envs.check(env)


@pytest.mark.fast_rows("TimeLimit")
@pytest.mark.parametrize(
    "env",
    [
        wrappers.sticky_actions(probes.OnlyTruncates(), 0.5),
        wrappers.action_repeat(probes.OnlyTruncates(steps=2), 2),
        wrappers.time_limit(LimitNotGiven(), 20),
    ],
    ids=str,
)
def test_a_limit_of_one_step_may_be_given_and_a_wrapper_may_give_one(env: base.Environment) -> None:
    envs.check(env)


TAKES = r"it must be a space of envs\.spaces \(Discrete, Box, Tuple, Dict\)"


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Assigns(), r"frozen law: cannot assign to field 'time', .* such as state\.replace\(time=state\.time \+ 1\)"),
        (NoMethods(), "NoMethods does not define reset_env, step_env, action_space, observation_space; an environment"),
        (NoStep(), "NoStep does not define step_env; an environment defines reset_env, step_env"),
        (NoTime(), r"state law: the state is a Timeless; it must be a subclass of envs\.EnvState, whose time counts"),
        (
            OtherSpaces(action=lambda: gymnasium.spaces.Discrete(2)),
            rf"action_space of OtherSpaces is Discrete\(2\) of gymnasium; {TAKES}",
        ),
        (OtherSpaces(action=lambda: "Discrete"), f"action_space of OtherSpaces is 'Discrete'; {TAKES}"),
        (OtherSpaces(action=lambda: None), f"action_space of OtherSpaces is None; {TAKES}"),
        (
            OtherSpaces(observation=lambda: gymnasium.spaces.Box(0, 1)),
            f"observation_space of OtherSpaces is Box.* of gymnasium; {TAKES}",
        ),
        (
            OtherSpaces(observation=lambda: spaces.Tuple((spaces.Discrete(2), spaces.Space()))),
            f"observation_space of OtherSpaces at 1 is .*Space object.* of gymnax; {TAKES}",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, base.Environment) else "",
)
@pytest.mark.parametrize("use", [envs.check, jaxrl.ppo])
def test_incomplete_environments_raise_one_sentence_that_names_the_fault(
    env: base.Environment, sentence: str, use: Any
) -> None:
    with pytest.raises(envs.ContractError, match=sentence) as caught:
        use(env)
    assert "\n" not in str(caught.value)


class WeakObservation(Walk):
    """Its observations are Python numbers chosen by a condition, which JAX types weakly."""

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        obs, state = super().reset_env(key, params)
        return jnp.where(obs > 0, 1.0, 0.0), state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict]:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return jnp.where(obs > 0, 1.0, 0.0), state, reward, terminated, info


def test_weak_types_of_an_observation_become_strong() -> None:
    assert jnp.where(jnp.ones(1) > 0, 1.0, 0.0).weak_type  # pyright: ignore[reportAttributeAccessIssue]
    check_abstractly(WeakObservation())
    obs, _ = WeakObservation().reset_env(jax.random.key(0), WeakObservation().default_params)
    assert not obs.weak_type and obs.dtype == jnp.float32  # pyright: ignore[reportAttributeAccessIssue]


def test_check_takes_environments_only() -> None:
    with pytest.raises(TypeError, match=r"subclass of envs\.Environment"):
        envs.check("cartpole")  # type: ignore[arg-type]


# --- names -------------------------------------------------------------------------------


def test_names_and_gymnasium_ids_make_the_same_environment() -> None:
    for name in OURS:
        assert envs.make(name) == envs.make(name)
        assert envs.make(name).default_params is not None
    for row_name, row in ROWS.items():
        if row.gymnasium_id is not None:
            assert envs.make(row.gymnasium_id) == envs.make(row_name)
            assert envs.make(row_name).name == row_name
    assert envs.make("probe/delayed-reward", delay=4) == probes.DelayedReward(delay=4)
    assert set(OURS) < set(envs.names())
    assert "gymnax/Breakout-MinAtar" in envs.names()


def test_module_and_class() -> None:
    assert envs.make("envs.probes:DelayedReward", delay=2) == probes.DelayedReward(delay=2)


@pytest.mark.parametrize(
    ("name", "static", "error", "sentence"),
    [
        ("cartpol", {}, ValueError, "There is no environment 'cartpol'; did you mean 'cartpole'"),
        ("cart-pole", {}, ValueError, "did you mean 'cartpole'"),
        ("CartPole-v2", {}, ValueError, "did you mean 'cartpole'"),
        ("MountainCar", {}, ValueError, "'mountain-car'"),
        ("gymnax/breakout-minatar", {}, ValueError, "did you mean 'gymnax/Breakout-MinAtar'"),
        ("Breakout-MinAtar", {}, ValueError, "did you mean 'gymnax/Breakout-MinAtar'"),
        ("delayed-reward", {}, ValueError, "did you mean 'probe/delayed-reward'"),
        ("zzz", {}, ValueError, "There is no environment 'zzz'; known are cartpole, pendulum"),
        ("cartpole", {"gravity": 9.8}, ValueError, "'cartpole' has no static field 'gravity'; it has no static fields"),
        ("probe/delayed-reward", {"dealy": 2}, ValueError, "no static field 'dealy'; did you mean 'delay'"),
        ("probe/delayed-reward", {"delay": 0}, ValueError, "delay is 0; it takes a whole number of at least 1"),
        ("gymnax/Catch-bsuite", {"row": 3}, ValueError, "no static field 'row'; its static fields are rows, columns"),
        ("cooperation/levers", {"reveals": "yes"}, TypeError, "reveals takes True or False, got 'yes'"),
        ("cooperation/crowd", {"reveals": 1}, TypeError, "reveals takes True or False, got 1"),
        ("gymnax/FourRooms-misc", {"use_visual_obs": "no"}, TypeError, "use_visual_obs takes True or False, got 'no'"),
        ("gymnax/Catch-bsuite", {"rows": [3]}, TypeError, "cannot be hashed"),
        ("no_such_module:Env", {}, ValueError, "There is no module 'no_such_module'"),
        ("envs.probes:DelayedRewards", {}, ValueError, "defines no 'DelayedRewards'; did you mean 'DelayedReward'"),
        (3, {}, TypeError, "name is 3; it takes a string, such as 'cartpole'"),
        (None, {}, TypeError, "name is None; it takes a string, such as 'cartpole'"),
        (probes.OnlyTruncates(), {}, TypeError, r"name is OnlyTruncates.* \(an environment object is used as it is\)"),
        ("envs.registry:Row", {}, TypeError, r"or a subclass of envs\.Environment"),
    ],
)
def test_bad_names_and_fields_get_one_sentence(name: Any, static: dict, error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence) as caught:
        envs.make(name, **static)
    assert "\n" not in str(caught.value)


def test_equal_environments_share_a_compilation() -> None:
    for name in ("acrobot", "gymnax/Catch-bsuite"):
        first, second = envs.make(name), envs.make(name)
        traces = []

        def reset(env: base.Environment, key: jax.Array, traces: list = traces) -> Any:
            traces.append(env)
            return env.reset_env(key, env.default_params)

        compiled = jax.jit(reset, static_argnums=0)
        compiled(first, jax.random.key(0))
        compiled(second, jax.random.key(1))
        assert len(traces) == 1
    assert envs.make("gymnax/Catch-bsuite") is not None
    assert envs.make("gymnax/Catch-bsuite", rows=8) != envs.make("gymnax/Catch-bsuite")
    assert envs.make("gymnax/Catch-bsuite", rows=8, columns=5) == envs.make("gymnax/Catch-bsuite", columns=5, rows=8)


def test_an_adapter_first_used_inside_a_trace_leaks_nothing() -> None:
    # DeepSea draws random numbers in its constructor.
    env = adapter.GymnaxEnvironment("DeepSea-bsuite", (("size", 5),))
    obs, _ = jax.jit(lambda key: env.reset_env(key, env.default_params))(jax.random.key(0))
    again, _ = jax.jit(lambda key: env.reset_env(key, env.default_params))(jax.random.key(0))
    np.testing.assert_array_equal(obs, again)


def test_deep_sea_keeps_its_own_step() -> None:
    """Its count of bad episodes outlives the automatic reset, which the common step would clear."""
    env = envs.make("gymnax/DeepSea-bsuite")
    obs, state = env.reset(jax.random.key(0))
    terminated = truncated = jnp.zeros((), bool)
    for i in range(3 * env.default_params.max_steps_in_episode):
        key = jax.random.key(i)
        wrong = 1 - state.action_mapping[state.row, state.column]
        obs, state, _, terminated, truncated, _ = env.step(key, state, wrong)
    assert bool(terminated | truncated) and obs.dtype == jnp.float32
    assert int(state.total_bad_episodes) == 3


def test_import_is_lazy() -> None:
    """`import envs` alone loads neither JAX nor gymnax, and has all names of `__all__`."""
    code = "import sys, envs; assert 'jax' not in sys.modules and 'gymnax' not in sys.modules; print(len(dir(envs)))"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert time.perf_counter() - start < 5  # the start of an interpreter on a busy machine
    assert callable(envs.check) and issubclass(envs.ContractError, ValueError)
    with pytest.raises(AttributeError, match="no attribute 'cheque'"):
        envs.cheque  # type: ignore[attr-defined]  # noqa: B018


# --- probes ------------------------------------------------------------------------------


def play(env: Any, steps: int = 200) -> dict[bytes, list[float]]:
    """Discounted returns of whole episodes, by first observation and by every later one, best actions taken.

    An independent computation of the values: play, then add up the rewards after each visit.
    """
    params, best = env.default_params, env.best_actions()
    listed = env.observations()
    curve = 0.9 ** np.arange(steps + 1)
    actual: dict[bytes, list[float]] = {}
    for seed in range(8):
        obs, state = env.reset_env(jax.random.key(seed), params)
        visits, rewards = [], []
        for _ in range(steps):
            index = int(np.argmax(np.all(listed == np.asarray(obs), axis=1)))
            assert np.array_equal(listed[index], obs)
            action = jnp.zeros((1,)) if env.continuous else jnp.int32(0)
            action = action if best is None else jnp.asarray(best[index])
            visits.append(listed[index].tobytes())
            obs, state, reward, terminated, _ = env.step_env(jax.random.key(0), state, action, params)
            rewards.append(float(reward))
            if terminated:
                break
        for t, visit in enumerate(visits):
            rest = np.array(rewards[t:])
            actual.setdefault(visit, []).append(float(rest @ curve[: len(rest)]))
        if not terminated:  # for ever: the first visit alone has (almost) all of its rewards before it
            actual = {visit: values[:1] for visit, values in actual.items()}
            break
    return actual


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", PROBES)
def test_values_are_the_returns_of_the_best_actions(name: str, continuous: bool) -> None:
    env: Any = envs.make(name, continuous=continuous)
    actual = play(env)
    curve = 0.9 ** np.arange(101)
    for lam in (0.0, 0.5, 1.0):  # under an exponential discount all have the same fixed point
        values = env.values(curve, lam)
        assert len(actual) == len(values)
        for obs, value in zip(env.observations(), values, strict=True):
            # Rewards are sums of float32 of size 1; what 200 steps leave out of the infinite sum is 10 * 0.9**200.
            np.testing.assert_allclose(actual[obs.tobytes()], value, rtol=1e-6)


def test_values_without_an_exponential() -> None:
    curve = 1 / (1 + 0.5 * np.arange(20))
    g1, g2, g3 = curve[1:4]
    np.testing.assert_allclose(probes.DelayedReward().values(curve, 0.3), [g1, 1])
    np.testing.assert_allclose(probes.DelayedReward(delay=3).values(curve), [g3, g2, g1, 1])
    np.testing.assert_allclose(probes.DelayedReward(delay=2).values(curve, 0.0), [g1 * g1, g1, 1])
    np.testing.assert_allclose(probes.OnlyTerminates().values(curve), [1 + g1 + g2, 1 + g1, 1])
    for lam in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(probes.OnlyTruncates().values(curve, lam), [1 / (1 - g1)])
    first = (1 + g1) / (1 - g2)
    np.testing.assert_allclose(probes.OnlyTruncates(steps=2).values(curve), [first, 1 + g1 * first])


def test_a_curve_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="curve has 2 entries; a chain of 4 states needs at least 5"):
        probes.DelayedReward(delay=3).values(np.ones(2))


def test_wrong_actions_cost() -> None:
    for continuous in (False, True):
        env = probes.ActionAndObservationDependent(continuous=continuous)
        for obs, best, value in zip(env.observations(), env.best_actions(), env.values(np.ones(2)), strict=True):
            state = probes.ProbeState(jnp.int32(0), jnp.float32(obs[0]))
            worst = jnp.asarray(-best if continuous else 1 - best)
            _, _, reward, terminated, _ = env.step_env(jax.random.key(0), state, worst, env.default_params)
            assert float(reward) == -value and bool(terminated)


def test_probes_end_as_declared() -> None:
    truncates, terminates = probes.OnlyTruncates(steps=3), probes.OnlyTerminates(steps=3)
    for env, ends in ((truncates, (False, True)), (terminates, (True, False))):
        _, state = env.reset(jax.random.key(0))
        flags = []
        for i in range(3):
            _, state, _, terminated, truncated, _ = env.step(jax.random.key(i), state, jnp.int32(0))
            flags.append((bool(terminated), bool(truncated)))
        assert flags == [(False, False), (False, False), ends]


def test_fields_are_static() -> None:
    for name in OURS:
        env = envs.make(name)
        assert dataclasses.is_dataclass(env) and hash(env) == hash(envs.make(name))


# --- checks by algorithms ------------------------------------------------------------------


class ExtraAxis(Walk):
    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-5.0, 5.0, (6, 6))

    def reset_env(self, key: Any, params: Any) -> Any:
        _, state = super().reset_env(key, params)
        return jnp.zeros((6, 6, 3)), state

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        _, *rest = super().step_env(key, state, action, params)
        return jnp.zeros((6, 6, 3)), *rest


class OtherLength(Walk):
    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(-5.0, 5.0, (2,))


class OtherType(Walk):
    def observation_space(self, params: Any) -> spaces.Box:
        return spaces.Box(0, 5, (1,), jnp.int32)


@dataclass(frozen=True)
class Knows(Walk):
    """A walk whose critics see its time, as the space of the facts says, or not."""

    space: Callable[[], Any]
    facts: bool = True

    def privileged_space(self, params: Any) -> Any:
        return self.space()

    def privileged(self, state: Any, params: Any) -> Any:
        return state.time if self.facts else ()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Knows(lambda: spaces.Discrete(3)), r"^privileged law: privileged\(\.\.\.\) is \d+, outside its space"),
        (
            Knows(lambda: spaces.Box(0.0, 9.0, (3,))),
            r"^privileged law: privileged\(\.\.\.\) is int32\[\]; it must be float32\[3\] as in its space\.$",
        ),
        (
            Knows(lambda: spaces.Discrete(99), facts=False),
            r"^privileged law: privileged\(\.\.\.\) is \(\); it must be int32\[\]",
        ),
        (
            Knows(lambda: "Discrete"),
            r"^space law: privileged_space of Knows is 'Discrete'; it must be a space of envs\.spaces",
        ),
    ],
    ids=["outside", "another shape", "no facts", "no space"],
)
def test_facts_for_critics_lie_in_their_space(env: Any, sentence: str) -> None:
    with pytest.raises(envs.ContractError, match=sentence):
        envs.check(env, progress=False)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (LimitNotGiven(), r"^time law: max_steps_in_episode is 1, .*; give default_params a limit"),
        (
            ExtraAxis(),
            r"^observation law: a reset's observation is float32\[6, 6, 3\]; it must be float32\[6, 6\]",
        ),
        (
            OtherLength(),
            r"^observation law: a reset's observation is float32\[1\]; it must be float32\[2\] as in",
        ),
        (
            OtherType(),
            r"^observation law: a reset's observation is float32\[1\]; it must be int32\[1\] as in",
        ),
    ],
)
def test_an_environment_that_breaks_the_contract_is_refused_before_a_run(env: Any, sentence: str) -> None:
    with pytest.raises(envs.ContractError, match=sentence):
        check_abstractly(env)


@pytest.mark.parametrize(
    ("env", "action"), [("cartpole", 2), ("cartpole", -1), ("cartpole", 0.5), ("pendulum", [2.5]), ("pendulum", 0.5)]
)
def test_an_action_outside_its_space_is_refused(env: str, action: Any) -> None:
    made = envs.make(env)
    key = jax.random.key(0)
    _, state = made.reset(key)
    with pytest.raises(ValueError, match=r"^action must lie in the action space, .*, got"):
        made.step(key, state, jnp.asarray(action))
    assert made.step(key, state, made.action_space(made.default_params).sample(key))[2].shape == ()


def test_a_negative_length_is_refused() -> None:
    for env, params in (("cartpole", {"length": -1.0}), ("pendulum", {"mass": 0.0}), ("acrobot", {"dt": np.nan})):
        made = envs.make(env)
        name, value = next(iter(params.items()))
        with pytest.raises(ValueError, match=rf"^env\.{name} must be above 0 and finite, got {value}"):
            made.check_params(made.default_params.replace(**params))
