"""Brax's and MuJoCo Playground's environments under the contract."""

import copy
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs as brax_envs
from etils import epath
from flax import struct

import envs
import jaxrl
from envs.adapters.incoming import playground, suite
from envs.adapters.incoming.physics import PhysicsParams
from envs.adapters.incoming.suite import SuiteState
from envs.checking import check_abstractly
from jaxrl.algorithms.registry import build, describe

STEPS = 20
PENDULUM = {"backend": "spring"}


@pytest.fixture(scope="module")
def pendulum() -> Any:
    """The smallest of Brax's tasks on its fastest backend."""
    return envs.make("brax/inverted_pendulum", **PENDULUM)


def native_rollout(task: Any, key: jax.Array, actions: jax.Array) -> Any:
    """Observations, rewards, ends and metrics by the engine's own functions, with no reset."""

    def body(state: Any, action: Any) -> Any:
        state = task.step(state.replace(metrics=dict(state.metrics)), action)
        types = jax.tree.map(lambda leaf: jnp.asarray(leaf).dtype, first)
        state = jax.tree.map(lambda leaf, dtype: jnp.asarray(leaf, dtype), state, types)
        return state, (state.obs, state.reward, state.done, state.metrics)

    first = task.reset(key)
    return first.obs, jax.lax.scan(body, first, actions)[1]


@functools.partial(jax.jit, static_argnums=0)
def rollout(env: Any, key: jax.Array, actions: jax.Array, params: Any) -> Any:
    def body(state: Any, action: Any) -> Any:
        obs, state, reward, terminated, info = env.step_env(key, state, action, params)
        return state, (obs, reward, terminated, info.get("metrics", {}))  # this task has none

    obs, state = env.reset_env(key, params)
    return obs, jax.lax.scan(body, state, actions)[1]


def assert_equal_rollouts(env: Any, task: Any, key: jax.Array, tolerance: float) -> None:
    actions = jax.random.uniform(key, (STEPS, task.action_size), minval=-1.0)
    first, (obs, reward, done, metrics) = jax.jit(lambda key: native_rollout(task, key, actions))(key)
    our_first, ours = rollout(env, key, actions, env.default_params)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)  # noqa: E731
    jax.tree.map(close, our_first, first)
    jax.tree.map(close, ours[0], obs)
    close(ours[1], reward)
    np.testing.assert_array_equal(ours[2], np.asarray(done) > 0)
    jax.tree.map(close, ours[3], {name.replace("/", "_"): value for name, value in metrics.items()})


@pytest.mark.slow
def test_a_random_rollout_equals_the_native_one(pendulum: Any, key: jax.Array):
    # Gravity and the like are factors of 1, exactly, but folded into other places of the program: its roundings, of
    # a stiff simulation over 40 substeps, differ by some of a float32's 1.2e-7 each.
    assert_equal_rollouts(pendulum, brax_envs.get_environment("inverted_pendulum", backend="spring"), key, 1e-4)


@pytest.mark.slow
def test_the_pole_that_falls_terminates_and_the_limit_truncates(pendulum: Any, key: jax.Array):
    params = pendulum.default_params
    assert params.max_steps_in_episode == 1000
    _, (obs, _, terminated, _) = rollout(pendulum, key, jnp.ones((STEPS, 1)), params)
    fallen = np.abs(np.asarray(obs)[:, 1]) > 0.2
    np.testing.assert_array_equal(terminated, fallen)
    assert fallen.any() and not fallen[0]
    for time, cut in ((999, False), (1000, True)):
        assert bool(pendulum.is_truncated(SuiteState(jnp.int32(time), None), params)) == cut


@pytest.mark.slow
def test_types_are_strong_and_the_state_is_stable(pendulum: Any):
    check_abstractly(pendulum)


@pytest.mark.slow
def test_equal_environments_are_equal(pendulum: Any):
    assert pendulum == envs.make("brax/inverted_pendulum", **PENDULUM) == copy.deepcopy(pendulum)
    assert (
        len({pendulum, copy.deepcopy(pendulum), envs.make("brax/inverted_pendulum", backend="spring", n_frames=2)}) == 2
    )
    spec = describe(jaxrl.ppo(pendulum))
    assert spec["environment"] == {"name": "brax/inverted_pendulum", "static": PENDULUM}
    assert build(spec).env == pendulum
    assert "brax/ant" in envs.names("brax")
    assert "brax/fast" not in envs.names("brax")


BACKENDS = [
    "spring",
    *(pytest.param(backend, marks=pytest.mark.slow) for backend in ("generalized", "positional", "mjx")),
]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_scales_are_traced_and_scale(backend: str, key: jax.Array):
    """Without gravity the pole falls more slowly, and a gear of twice the strength doubles the force."""
    env = envs.make("brax/inverted_pendulum", backend=backend)
    params = env.default_params

    @jax.jit
    def speeds(gravity: jax.Array, gear: jax.Array, action: jax.Array) -> jax.Array:
        changed = params.replace(gravity_scale=gravity, gear_scale=gear)
        obs, state = env.reset_env(key, changed)
        obs, *_ = env.step_env(key, state, action[None], changed)
        return obs[2:]  # of cart and pole

    def speed(gravity: float, gear: float, action: float) -> np.ndarray:
        return np.asarray(speeds(jnp.float32(gravity), jnp.float32(gear), jnp.float32(action)))

    pushes = [speed(1.0, gear, 1.0)[0] - speed(1.0, gear, 0.0)[0] for gear in (1.0, 2.0)]
    assert pushes[1] == pytest.approx(2 * pushes[0], rel=0.05)
    falls = [abs(speed(gravity, 1.0, 0.0)[1] - speed(0.0, 1.0, 0.0)[1]) for gravity in (1.0, 2.0)]
    assert falls[1] > 1.5 * falls[0] > 0


@pytest.mark.slow
def test_only_friction_pushes_along_the_floor(key: jax.Array):
    """The centre of mass of a hopper, which starts at 0.004 m/s, in the air, and touches the floor in step 9."""
    env = envs.make("brax/hopper", backend="spring")
    actions = jax.random.uniform(key, (15, 3), minval=-1.0)

    @jax.jit
    def speeds(friction: jax.Array) -> jax.Array:
        params = env.default_params.replace(friction_scale=friction)

        def body(state: Any, action: Any) -> Any:
            state = env.step_env(key, state, action, params)[1]
            links = state.inner.pipeline_state
            return state, jnp.average(links.xd_i.vel[:, 0], weights=links.mass)

        return jax.lax.scan(body, env.reset_env(key, params)[1], actions)[1]

    without, usual = (np.asarray(speeds(jnp.float32(scale))) for scale in (0.0, 1.0))
    np.testing.assert_array_equal(without[:8], usual[:8])
    assert np.abs(without).max() < 0.005  # the engine adds 0.8% a step
    assert np.abs(usual[8:]).min() > 0.05


@pytest.mark.slow
def test_metrics_are_reduced_by_their_kind():
    rules = envs.make("brax/ant", backend="spring").metric_rules
    assert (rules["reward_forward"], rules["x_position"], rules["x_velocity"]) == ("sum", "last", "mean")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inverted_pendulum", "ant"])
def test_brax_keeps_the_laws(name: str):
    envs.check(envs.make(f"brax/{name}", backend="spring"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["generalized", "positional", "mjx"])
def test_every_backend_runs_with_parameters_that_are_traced(backend: str, key: jax.Array):
    env = envs.make("brax/inverted_pendulum", backend=backend)
    task = brax_envs.get_environment("inverted_pendulum", backend=backend)
    assert_equal_rollouts(env, task, key, 1e-3)


@pytest.mark.parametrize(
    ("do", "error", "sentence"),
    [
        (lambda: envs.make("brax/ants"), ValueError, "no environment 'brax/ants'; did you mean 'brax/ant'"),
        (
            lambda: envs.make("brax/ant", backnd="spring"),
            ValueError,
            "no static field 'backnd'; did you mean 'back",
        ),
        (
            lambda: envs.make("brax/ant", healthy_z_range={}),
            TypeError,
            "healthy_z_range' is {}, which cannot",
        ),
    ],
)
def test_bad_input_gets_one_sentence(do: Any, error: type, sentence: str):
    with pytest.raises(error, match=sentence) as caught:
        do()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["gravity_scale", "friction_scale", "gear_scale"])
def test_negative_factors_are_refused(name: str, pendulum: Any):
    with pytest.raises(ValueError, match=rf"^randomise takes .*: env\.{name} must be at least 0 and finite, got -\d"):
        envs.wrappers.randomise(pendulum, {name: jaxrl.Uniform(-1.0, 0.0)})
    pendulum.check_params(pendulum.default_params.replace(**{name: np.zeros(2)}))


@pytest.mark.parametrize(
    ("package", "do", "extra"),
    [
        ("brax", lambda: envs.make("brax/ant"), "brax"),
        ("mujoco_playground", lambda: envs.names("playground"), "playground"),
        ("pettingzoo", lambda: _pettingzoo(), "pettingzoo"),
    ],
)
def test_a_missing_package_names_its_extra(package: str, do: Any, extra: str, monkeypatch: pytest.MonkeyPatch):
    suite.imported.cache_clear()
    for name in [*sys.modules]:
        if name.partition(".")[0] == package or name == "envs.adapters.outgoing.pettingzoo_parallel":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"need(s)? an extra: pip install '\.\[{extra}\]' in a clone") as caught:
        do()
    assert "\n" not in str(caught.value)


def _pettingzoo() -> Any:
    from envs.adapters.outgoing.pettingzoo import as_pettingzoo

    return as_pettingzoo(envs.make("crowd/circle"))


@struct.dataclass
class DictState:
    """State of a `DictTask`."""

    obs: Any
    metrics: Any
    info: Any
    reward: Any = 0.0
    done: Any = 0.0


@dataclass(frozen=True)
class DictTask:
    """A task whose observation is a dictionary with these entries."""

    keys: tuple[str, ...]
    action_size = 1

    def reset(self, key: jax.Array) -> DictState:
        del key
        return DictState({name: jnp.zeros(2) for name in self.keys}, {}, {})

    def step(self, state: DictState, action: jax.Array) -> DictState:
        del action
        return state


class DictEnvironment(playground.PlaygroundEnvironment):
    """Playground's adapter of a `DictTask`, whose entries are its fields."""

    @property
    def inner(self) -> Any:
        return DictTask(tuple(name for name, _ in self.fields))

    @property
    def time_limit(self) -> int:
        return 8

    def scaled(self, params: PhysicsParams) -> Any:
        return self.inner


def test_privileged_observations_are_for_the_critic():
    env = DictEnvironment("Robot", (("state", 0), ("privileged_state", 0)))
    assert set(env.observation_space(env.default_params).spaces) == {"state", "privileged_state"}  # pyright: ignore
    with pytest.warns(RuntimeWarning, match="^on playground/Robot the actor sees 'state' of the observations, and its"):
        algo = jaxrl.ppo(env)
    assert jax.eval_shape(algo.env.reset_env, jax.random.key(0), env.default_params)[0].shape == (2,)


@pytest.mark.parametrize("keys", [("state",), ("goal", "state")])
def test_other_dictionaries_are_observed_whole(keys: tuple[str, ...]):
    env = DictEnvironment("Robot", tuple((name, 0) for name in keys))
    space: Any = env.observation_space(env.default_params)
    assert tuple(space.spaces) == keys


def tetrahedron() -> bytes:
    """A mesh in the binary form of STL."""
    corners = 0.05 * np.concatenate([np.zeros((1, 3)), np.eye(3)]).astype(np.float32)
    faces = ([0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3])
    triangles = (np.zeros(3, np.float32).tobytes() + corners[face].tobytes() + b"\0\0" for face in faces)
    return bytes(80) + len(faces).to_bytes(4, "little") + b"".join(triangles)


@pytest.mark.slow
class TestPlayground:
    """MuJoCo Playground, of 400 MB, is not part of the extra `test`: make test-all installs it."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("mujoco_playground")

    @pytest.fixture
    def robots(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A folder in place of mujoco_menagerie, which is downloaded, with a tetrahedron for every mesh of Go1.

        The meshes are for drawing: masses, inertias and the shapes that touch are in the files of Playground.
        """
        module = importlib.import_module("mujoco_playground._src.mjx_env")
        files = Path(str(module.ROOT_PATH)) / "locomotion/go1/xmls"
        for file in files.glob("*.xml"):
            for mesh in re.findall(r"mujoco_menagerie/(unitree_go1/assets/\w+\.stl)", file.read_text()):
                (tmp_path / mesh).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / mesh).write_bytes(tetrahedron())
        monkeypatch.setattr(module, "MENAGERIE_PATH", epath.Path(tmp_path))
        playground._inner.cache_clear()
        yield
        playground._inner.cache_clear()

    @pytest.mark.parametrize("name", ["CartpoleBalance", "PointMass"])
    def test_it_keeps_the_laws(self, name: str):
        envs.check(envs.make(f"playground/{name}"))

    def test_a_random_rollout_equals_the_native_one(self, key: jax.Array):
        registry = importlib.import_module("mujoco_playground").registry
        task = registry.load("PendulumSwingup", config_overrides={"impl": "jax"})
        assert_equal_rollouts(envs.make("playground/PendulumSwingup"), task, key, 1e-4)

    @pytest.mark.usefixtures("robots")
    def test_the_critic_of_a_real_robot_sees_its_privileged_state(self, tmp_path: Path):
        env = envs.make("playground/Go1JoystickFlatTerrain", episode_length=20)
        config = jaxrl.PPOConfig(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))
        sentence = (
            "^on playground/Go1JoystickFlatTerrain the actor sees 'state' of the observations, and its critic 'priv"
        )
        with pytest.warns(RuntimeWarning, match=sentence):
            algo = jaxrl.ppo(env, config)
        result = jaxrl.train(algo, seeds=1, env_steps=64, evals=1, eval_episodes=1)
        assert np.isfinite(result.metrics["return"]).all()
        assert result.metrics["value_loss"].item() > 0
        widths = {np.shape(leaf) for leaf in jax.tree.leaves(result.policies)}
        assert {shape[-2:] for shape in widths} >= {(48, 8), (123, 8)}  # the first layers of the actor and the critic
        policy = result.policy(seed=0)
        exported = jaxrl.load_exported(jaxrl.export_policy(policy, tmp_path / "robot.safetensors"), algo)
        assert [(port["name"], port["shape"][-1]) for port in exported.spec["inputs"]] == [("obs", 48)]
        seen = np.linspace(-1.0, 1.0, 48, dtype=np.float32)
        np.testing.assert_allclose(exported(seen), policy(seen), rtol=0, atol=1e-6)

    def test_robots_that_are_not_downloaded_get_one_sentence(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        module = importlib.import_module("mujoco_playground._src.mjx_env")
        monkeypatch.setattr(module, "MENAGERIE_PATH", epath.Path(tmp_path / "none"))
        monkeypatch.setattr(module, "EXTERNAL_DEPS_PATH", epath.Path(tmp_path))

        def fail(*_: Any) -> None:
            raise subprocess.CalledProcessError(128, ["git", "clone"])

        monkeypatch.setattr(module, "_clone_with_progress", fail)
        playground._inner.cache_clear()
        with pytest.raises(ImportError, match=r"Go1JoystickFlatTerrain takes the robots of mujoco_menagerie, .* 128"):
            envs.make("playground/Go1JoystickFlatTerrain", episode_length=20)

    def test_another_error_of_a_task_is_not_one_of_robots(self, monkeypatch: pytest.MonkeyPatch):
        def fail(*_: Any, **__: Any) -> None:
            raise OSError("no space")

        monkeypatch.setattr(importlib.import_module("mujoco_playground").registry, "load", fail)
        playground._inner.cache_clear()
        with pytest.raises(OSError, match=r"^no space$"):
            envs.make("playground/PointMass", episode_length=20)

    def test_the_configuration_is_static(self):
        env: Any = envs.make("playground/PendulumSwingup", ctrl_dt=0.04)
        assert env.inner.dt == 0.04
        assert env.default_params.max_steps_in_episode == 1000
        assert env == playground.make("PendulumSwingup", ctrl_dt=0.04) != playground.make("PendulumSwingup")

    @pytest.mark.parametrize(
        ("name", "static", "sentence"),
        [
            ("playground/CartpolBalance", {}, "did you mean 'playground/CartpoleBalance'"),
            ("playground/CartpoleBalance", {"ctrldt": 0.1}, "no static field 'ctrldt'; did you mean 'ctrl_dt'"),
        ],
    )
    def test_bad_input_gets_one_sentence(self, name: str, static: dict, sentence: str):
        with pytest.raises(ValueError, match=sentence):
            envs.make(name, **static)
