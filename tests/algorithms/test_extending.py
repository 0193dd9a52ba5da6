"""A user-defined environment, loss and network, and every kind of action and observation, through the public API."""

import dataclasses
import importlib.util
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import agents
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from quick_jit import quick_jit

import envs
import jaxrl
import jaxrl.algorithms.ppo
from envs.base import EnvParams, EnvState, spaces
from jaxrl.results.dataset import ResultError

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
MOST_LINES = 30

SMALL = jaxrl.PPOConfig(num_envs=8, num_steps=32, num_minibatches=4, hidden=(16,))
FAST = {"lr": 1e-2, "discount": 0.9}


def tuned(algo: jaxrl.Algorithm, **hparams: Any) -> jaxrl.Algorithm:
    """The algorithm with a rate that suits the tiny tasks of this file."""
    return algo._replace(hparams=dataclasses.replace(algo.hparams, **{**FAST, **hparams}))


def last(result: jaxrl.Result, metric: str = "return") -> np.ndarray:
    """A metric at the end, `[settings, seeds]`."""
    return result.values(metric)[:, :, -1]


# --- a user-defined environment ----------------------------------------------------------


def cell_of_the_notebook(tag: str) -> str:
    """The source of the notebook's one cell with this tag."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    (cell,) = (cell for cell in cells if tag in cell["metadata"].get("tags", []))
    return "".join(cell["source"])


def without_imports(source: str) -> list[str]:
    """The lines of a definition, without the imports before it."""
    lines = source.strip().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not re.match(r"(from|import) ", line))
    return lines[first:]


@pytest.fixture(scope="module")
def orchard() -> Any:
    """The notebook's environment, defined as a notebook defines it: in `__main__`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell_of_the_notebook("environment"), NOTEBOOK.name, "exec"), namespace)
    return namespace["Orchard"]()


def test_an_environment_takes_at_most_30_lines() -> None:
    lines = without_imports(cell_of_the_notebook("environment"))
    assert any("envs.Environment" in line for line in lines)
    assert len(lines) <= MOST_LINES


def test_the_docs_show_the_notebooks_environment() -> None:
    assert cell_of_the_notebook("environment").strip() in (ROOT / "docs/tutorials/discounting.md").read_text()


@pytest.mark.slow
def test_an_environment_of_ones_own_keeps_the_laws(orchard: Any) -> None:
    envs.check(orchard, num_steps=16)


@pytest.mark.slow
def test_an_environment_of_ones_own_trains_and_its_result_loads(orchard: Any, tmp_path: Path) -> None:
    # A reward of 1 is two steps away, one of 3 eight steps: worth .8 and 3 * .8^7 = .63 under .8 to the t,
    # .8 and 3 / 2.75 = 1.09 under the hyperbola with the same first step. A random walk ends on the left with
    # probability 8 / 10 and so earns 1.4.
    algo = tuned(jaxrl.ppo(orchard, dataclasses.replace(SMALL, num_steps=64)))
    sweep = jaxrl.grid(algo.hparams, {"discount": [0.8, "hyperbolic:k=0.25"], "env.large": [3.0]})
    result = jaxrl.train(
        algo, sweep, seeds=4, env_steps=20_000, evals=1, eval_episodes=8, out=tmp_path / "run", progress=False
    )
    np.testing.assert_array_equal(np.median(last(result), axis=1), [1.0, 3.0])

    unknown = jaxrl.load_result(tmp_path / "run")
    with pytest.raises(ResultError, match=r"Orchard cannot be imported by name\): pass algo= to load_result in Python"):
        unknown.policy(discount=0.8, seed=0)
    loaded, seed = jaxrl.load_result(tmp_path / "run", algo=algo), int(np.argmin(last(result)[0]))
    assert loaded.policy(discount=0.8, seed=seed)(jnp.zeros(1)) == 0  # to the left


# --- a user-defined loss -----------------------------------------------------------------

ORIGINAL_LOSS = "policy_loss = clipped_surrogate(log_ratio, advantage, rows.weight, hparams.clip_eps)"
EDITED_LOSS = """step = hparams.clip_eps * jnp.tanh(jnp.expm1(log_ratio) / hparams.clip_eps)
        policy_loss = -weighted_mean(step * advantage, rows.weight)"""


@pytest.fixture(scope="module")
def own_ppo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A copy of PPO's file outside the package, with a smooth clip in place of the corner."""
    source = Path(jaxrl.algorithms.ppo.__file__).read_text()
    assert source.count(ORIGINAL_LOSS) == 1
    edited = source.replace(ORIGINAL_LOSS, EDITED_LOSS).replace("clipped_surrogate, ", "")
    assert "clipped_surrogate" not in edited
    path = tmp_path_factory.mktemp("own") / "smooth_ppo.py"
    path.write_text(edited)
    yield imported(path)
    del sys.modules[path.stem]


def imported(path: Path) -> ModuleType:
    """The module of a file, as imported from the path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_copy_of_ppo_with_an_edited_loss_trains(own_ppo: Any, orchard: Any) -> None:
    algo = tuned(own_ppo.ppo(orchard, own_ppo.PPOConfig(num_envs=8, num_steps=64, hidden=(16,), reset_pool=64)))
    result = jaxrl.train(algo, seeds=4, env_steps=20_000, evals=1, eval_episodes=8, progress=False)
    assert np.median(last(result)) == 3.0  # the optimum under an exponential .9


@pytest.mark.slow
def test_a_copy_of_ppo_with_an_edited_loss_keeps_the_laws(own_ppo: Any) -> None:
    config = own_ppo.PPOConfig(num_envs=2, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(4,))
    jaxrl.check(own_ppo.ppo(envs.make("cartpole"), config))


# --- a user-defined network --------------------------------------------------------------


class Convolutional(nn.Module):
    """A convolution over the board, then one layer with a gate."""

    num_outputs: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        board = obs.reshape(10, 5, 1).astype(jnp.float32)
        features = nn.relu(nn.Conv(8, (3, 3))(board)).ravel()
        features = nn.tanh(nn.Dense(16)(features)) * nn.sigmoid(nn.Dense(16)(features))
        return nn.Dense(self.num_outputs)(features), nn.Dense(1)(features)[0]


@pytest.mark.slow
def test_a_network_of_ones_own_trains_and_its_result_loads(tmp_path: Path) -> None:
    # One ball falls in one of five columns; it is caught (1) or not (-1).
    env = envs.make("gymnax/Catch-bsuite")
    algo = tuned(jaxrl.ppo(env, dataclasses.replace(SMALL, hidden=jaxrl.PPOConfig().hidden), Convolutional(3)))
    result = jaxrl.train(
        algo, seeds=2, env_steps=20_000, evals=1, eval_episodes=16, out=tmp_path / "run", progress=False
    )
    assert last(result).min() > 0.9

    unknown = jaxrl.load_result(tmp_path / "run")
    with pytest.raises(ResultError, match=r"user's own Convolutional\): pass algo= to load_result"):
        unknown.policy(seed=1)
    obs, _ = env.reset_env(jax.random.key(3), env.default_params)
    policy = jaxrl.load_result(tmp_path / "run", algo=algo).policy(seed=1)
    assert policy(obs) == result.policy(seed=1)(obs)
    assert jax.tree.all(jax.tree.map(np.array_equal, policy.params, result.policy(seed=1).params))


def test_a_network_with_a_wrong_output_gets_one_sentence() -> None:
    sentence = r"^network must return \(outputs \[3\], value \[\]\) for one observation, got shapes \(4,\) and \(\)$"
    with pytest.raises(ValueError, match=sentence):
        jaxrl.ppo(envs.make("gymnax/Catch-bsuite"), SMALL, Convolutional(4))


# --- every kind of action and observation ------------------------------------------------

STEPS = 8


@struct.dataclass
class LockParams(EnvParams):
    """Parameters of the locks.

    Attributes:
      max_steps_in_episode: Time limit, the only end of an episode.
    """

    max_steps_in_episode: jax.Array | int = STEPS


@struct.dataclass
class LockState(EnvState):
    """A lock: int32 `[2]`, each digit's value at this step."""

    time: jax.Array
    digits: jax.Array


@dataclass(frozen=True)
class Lock(envs.Environment):
    """Two digits are shown at every step, one of 3 and one of 2; naming both, one per branch, pays 1."""

    @property
    def default_params(self) -> LockParams:
        return LockParams()

    def reset_env(self, key: jax.Array, params: LockParams) -> tuple[Any, LockState]:
        del params
        state = LockState(jnp.zeros((), jnp.int32), jax.random.randint(key, (2,), 0, jnp.array([3, 2])))
        return self.observe(state), state

    def step_env(
        self, key: jax.Array, state: LockState, action: Any, params: LockParams
    ) -> tuple[Any, LockState, jax.Array, jax.Array, dict[Any, Any]]:
        del params
        reward = self.reward(state, action)
        state = LockState(state.time + 1, jax.random.randint(key, (2,), 0, jnp.array([3, 2])))
        return self.observe(state), state, reward, jnp.zeros((), bool), {}

    def reward(self, state: LockState, action: Any) -> jax.Array:
        right = (action[0] == state.digits[0]) & (action[1] == state.digits[1])
        return right.astype(jnp.float32)

    def observe(self, state: LockState) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return jnp.concatenate([jax.nn.one_hot(state.digits[0], 3), jax.nn.one_hot(state.digits[1], 2)])

    def action_space(self, params: LockParams | None = None) -> spaces.Space:
        del params
        return spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])

    def observation_space(self, params: LockParams | None = None) -> spaces.Space:
        del params
        return spaces.Box(0.0, 1.0, (5,))


@dataclass(frozen=True)
class MaskedLock(Lock):
    """One number names both digits, another choice pays 100 and is never allowed."""

    def reward(self, state: LockState, action: Any) -> jax.Array:
        right = (action == 2 * state.digits[0] + state.digits[1]).astype(jnp.float32)
        return jnp.where(action == 6, 100.0, right)

    def action_mask(self, state: LockState, params: LockParams) -> jax.Array:
        del state, params
        return jnp.arange(7) < 6

    def action_space(self, params: LockParams | None = None) -> spaces.Space:
        del params
        return spaces.Discrete(7)


@dataclass(frozen=True)
class MaskedTupleLock(Lock):
    """In the first branch, the digit itself and the previous one are allowed; the other one would pay 100."""

    def action_mask(self, state: LockState, params: LockParams) -> tuple[jax.Array, jax.Array]:
        del params
        behind = (state.digits[0] - jnp.arange(3)) % 3
        return behind < 2, jnp.ones(2, bool)

    def reward(self, state: LockState, action: Any) -> jax.Array:
        forbidden = (state.digits[0] - action[0]) % 3 == 2
        return jnp.where(forbidden, 100.0, super().reward(state, action))


@dataclass(frozen=True)
class DictionaryLock(Lock):
    """Observations are dictionaries of a vector and a number."""

    def observe(self, state: LockState) -> Any:
        return {"second": state.digits[1].astype(jnp.float32), "first": jax.nn.one_hot(state.digits[0], 3)}

    def observation_space(self, params: LockParams | None = None) -> spaces.Space:
        del params
        return spaces.Dict({"second": spaces.Box(0.0, 1.0, ()), "first": spaces.Box(0.0, 1.0, (3,))})


@dataclass(frozen=True)
class MaskedDictionaryLock(MaskedTupleLock, DictionaryLock):
    """Masks on both branches, and observations in a dictionary."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(MaskedDictionaryLock, marks=pytest.mark.slow),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in (Lock, MaskedLock, DictionaryLock)),
    ],
)
def test_every_kind_of_action_and_observation_is_learned(kind: type[Lock]) -> None:
    algo = tuned(jaxrl.ppo(kind(), dataclasses.replace(SMALL, normalise_observation=kind is DictionaryLock)))
    result = jaxrl.train(algo, seeds=2, env_steps=8_000, evals=1, eval_episodes=16, progress=False)
    assert not result.failed
    # Guessing opens a lock of 6 every sixth time; a single forbidden choice would pay more than the largest possible
    # return.
    assert last(result).min() > 0.9 * STEPS and last(result).max() <= STEPS
    assert last(result, "return_sampled").max() <= STEPS


@pytest.mark.slow
def test_a_crowd_is_learned() -> None:
    # Agent i acts for i + 2 steps and earns (i + 1) times the action, at most 2: 4 and 12 for two agents.
    algo = tuned(jaxrl.ppo(agents.Crowd(2), dataclasses.replace(SMALL, normalise_reward=True)))
    result = jaxrl.train(algo, seeds=2, env_steps=8_000, evals=2, eval_episodes=8, progress=False)
    assert not result.failed
    np.testing.assert_array_equal(last(result), (4 + 12) / 2)


# --- inactive agents ---------------------------------------------------------------------


@struct.dataclass
class NoisyParams(agents.CrowdParams):
    """Parameters of the noisy crowd.

    Attributes:
      idle: Number added to observations and rewards of agents that have finished.
      busy: Number added to rewards of agents that have not finished.
    """

    idle: jax.Array | float = 0.0
    busy: jax.Array | float = 0.0


@dataclass(frozen=True)
class NoisyCrowd(agents.Crowd):
    """A crowd in which agents that stand still have the observations and rewards `idle`."""

    @property
    def default_params(self) -> NoisyParams:
        return NoisyParams()

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        obs = obs + jnp.where(info["agent_terminated"], params.idle, 0.0)[:, None]
        reward = reward + jnp.where(info["active"], params.busy, params.idle)
        return obs, state, reward, terminated, info


@pytest.mark.parametrize("where", ["batch", "minibatch"])
@pytest.mark.fast_rows("minibatch")
def test_inactive_transitions_do_not_change_the_update(where: Any, key: jax.Array) -> None:
    config = jaxrl.PPOConfig(
        num_envs=2,
        num_steps=16,
        num_epochs=2,
        num_minibatches=4,
        hidden=(8,),
        normalise_advantage=where,
        normalise_observation=True,
        normalise_reward=True,
    )
    algo = jaxrl.ppo(NoisyCrowd(3), config)

    @quick_jit
    def three_iterations(env_params: NoisyParams) -> Any:
        state = algo.init(key, algo.hparams, env_params)
        step = lambda state, at: algo.step(at[0], at[1], state, algo.hparams, env_params)  # noqa: E731
        state, metrics = jax.lax.scan(step, state, (jax.random.split(key, 3), jnp.arange(3)))
        return algo.policy(state, algo.hparams), state.optimiser, metrics

    def leaves(**env_params: Any) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(three_iterations(NoisyParams(**env_params)))]

    plain, idle, busy = leaves(), leaves(idle=777.0), leaves(busy=1.0)
    assert all(np.isfinite(leaf).all() for leaf in plain)
    for one, other in zip(plain, idle, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(not np.array_equal(one, other) for one, other in zip(plain, busy, strict=True))


def test_the_crowd_of_this_file_has_inactive_transitions() -> None:
    # Otherwise the test above shows nothing: three agents act for 2, 3 and 4 of an episode's 4 steps.
    env = NoisyCrowd(3)
    params = NoisyParams(idle=777.0)
    _, state = env.reset_env(jax.random.key(0), params)
    rewards = []
    for _ in range(4):
        obs, state, reward, terminated, _ = env.step_env(jax.random.key(0), state, jnp.zeros(3, jnp.int32), params)
        rewards.append(reward)
    assert bool(terminated) and math.isclose(float(obs[0, 0]), 777.0)
    np.testing.assert_array_equal(np.array(rewards) == 777.0, np.arange(4)[:, None] >= [2, 3, 4])
