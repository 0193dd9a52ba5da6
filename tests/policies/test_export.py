"""Exported policies: read in a process without jaxrl, and compared with the policy and with NumPy by hand."""

import builtins
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agents
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs import EnvParams, EnvState, spaces
from jaxrl.algorithms.contract import policy_shapes
from jaxrl.cli import main as cli
from jaxrl.policies import export
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result

FORMATS = ("stablehlo", "safetensors", "onnx")
# Sums of 16 float32 numbers below 1 in another order differ by some 1e-7; ONNX Runtime's tanh by as much again.
TOLERANCES = {"stablehlo": 1e-6, "safetensors": 1e-6, "onnx": 1e-5}
SHORT: dict[str, Any] = {"num_envs": 2, "num_steps": 4, "num_minibatches": 1, "num_epochs": 1}
SMALL: dict[str, Any] = {**SHORT, "hidden": (16, 16)}
LRS, SEEDS = [1e-3, 1e-2], [3, 5]


def filled(algo: jaxrl.Algorithm, seed: int, *axes: int) -> Any:
    """Parameters such as training could produce, without compiling anything."""
    draws = np.random.default_rng(seed)

    def fill(at: Any, leaf: Any) -> np.ndarray:
        name = jax.tree_util.keystr(at, simple=True, separator=".")
        if name == "observation_clip":
            return np.full(axes, 1.5, np.float32)  # low enough to have an effect
        drawn = draws.normal(size=(*axes, *leaf.shape)) * 0.3
        return np.asarray(np.exp(drawn) if name.startswith("observations.variance") else drawn, np.float32)

    return jax.tree.map_with_path(fill, policy_shapes(algo))


def scores_of(policy: TrainedPolicy, obs: Any) -> dict[str, Any]:
    """The numbers by which the policy itself chooses an action."""
    return policy.algo.actor.scores(policy.params, (), obs, None)[0]


def policy_of(env: envs.Environment, **config: Any) -> TrainedPolicy:
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(**SMALL, **config))
    return TrainedPolicy(algo, filled(algo, 7), {}, 0)


@pytest.fixture(scope="module")
def cartpole() -> Result:
    """Two learning rates with two seeds, as if they had been trained."""
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL, normalise_observation=True))
    sweep = jaxrl.grid(algo.hparams, {"lr": LRS})
    metrics = metrics_dataset({"return": np.zeros((2, 2, 1))}, seeds=SEEDS, env_steps=[8], sweep=sweep)
    return Result(metrics, filled(algo, 1, 2, 2), algo, sweep.hparams)


@pytest.fixture(scope="module")
def pendulum() -> TrainedPolicy:
    return policy_of(envs.make("pendulum"))


@pytest.fixture(scope="module")
def run(cartpole: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cartpole.save(tmp_path_factory.mktemp("exported") / "run")


# Another program's use of the files: without jaxrl, and without JAX where it is not needed.
ELSEWHERE = """
import json, sys
from pathlib import Path
import numpy as np

folder = Path(sys.argv[1])
answers = {}
for name in ("cartpole", "pendulum"):
    obs = np.load(folder / f"{name}.npy")

    import onnxruntime
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))
    outputs = [output.name for output in session.get_outputs()]
    for count in (1, len(obs)):
        leaves = session.run(outputs, {"obs": obs[:count]})
        answers |= {f"{name}.onnx.{count}.{output}": leaf for output, leaf in zip(outputs, leaves)}
    spec = json.loads(session.get_modelmeta().custom_metadata_map["jaxrl"])
    assert [port["name"] for port in spec["outputs"]] == outputs

    from safetensors import safe_open
    with safe_open(folder / f"{name}.safetensors", "numpy") as stream:
        spec = json.loads(stream.metadata()["jaxrl"])
        weights = {key: stream.get_tensor(key) for key in stream.keys()}
    x = obs
    for path, formula in spec["normalisation"].items():
        assert formula == "clip((x - mean) / sqrt(variance + 1e-8), -observation_clip, observation_clip)"
        bound = weights["observation_clip"]
        x = np.clip((x - weights[path + ".mean"]) / np.sqrt(weights[path + ".variance"] + 1e-8), -bound, bound)
    def dense(layer):
        return x @ weights[f"params.params.{layer}.kernel"] + weights[f"params.params.{layer}.bias"]
    assert spec["config"]["activation"] == "tanh"
    for layer in range(len(spec["config"]["hidden"])):
        x = np.tanh(dense(f"actor_{layer}"))
    x = dense("actor_out")
    space = spec["action_space"]
    if space["kind"] == "discrete":
        numbers, action = "logits", np.argmax(x, -1)
    else:
        low, high = space["low"], space["high"]
        numbers, action = "mean", np.clip((low + high) / 2 + (high - low) / 2 * x, low, high)
    answers |= {f"{name}.safetensors.{len(obs)}.{numbers}": x, f"{name}.safetensors.{len(obs)}.action": action}
assert "jax" not in sys.modules

import jax
for name in ("cartpole", "pendulum"):
    obs = np.load(folder / f"{name}.npy")
    exported = jax.export.deserialize(bytearray((folder / f"{name}.stablehlo").read_bytes()))
    assert {"cpu", "cuda", "tpu"} <= set(exported.platforms)
    for count in (1, len(obs)):
        answers |= {f"{name}.stablehlo.{count}.{at}": leaf for at, leaf in exported.call(obs[:count]).items()}
assert "jaxrl" not in sys.modules and "flax" not in sys.modules
np.savez(folder / "answers.npz", **answers)
"""


@pytest.fixture(scope="module")
def elsewhere(cartpole: Result, pendulum: TrainedPolicy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both policies in all formats, and their outputs in a fresh process."""
    folder = tmp_path_factory.mktemp("elsewhere")
    policies = {"cartpole": cartpole.policy(lr=1e-2, seed=5), "pendulum": pendulum}
    for name, policy in policies.items():
        for file_format in FORMATS:
            jaxrl.export_policy(policy, folder / f"{name}.{file_format}")
    draws = np.random.default_rng(0)
    obs = {"cartpole": draws.normal(size=(5, 4)), "pendulum": draws.normal(size=(5, 3))}
    for name, drawn in obs.items():
        np.save(folder / f"{name}.npy", drawn.astype(np.float32))
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "answers.npz") as archive:
        return {"folder": folder, "answers": dict(archive), "obs": obs, "policies": policies}


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(("name", "numbers"), [("cartpole", "logits"), ("pendulum", "mean")])
def test_a_process_without_jaxrl_gets_the_policys_answers(
    name: str, numbers: str, file_format: str, elsewhere: dict[str, Any]
):
    policy, obs = elsewhere["policies"][name], elsewhere["obs"][name].astype(np.float32)
    answers, tolerance = elsewhere["answers"], TOLERANCES[file_format]
    expected = np.stack([scores_of(policy, row)[numbers] for row in obs])
    actions = np.stack([policy(row) for row in obs])
    assert np.ptp(expected) > 0.1  # the observations are distinguished
    for count in (5,) if file_format == "safetensors" else (1, 5):
        got = answers[f"{name}.{file_format}.{count}.{numbers}"]
        np.testing.assert_allclose(got, expected[:count], rtol=0, atol=tolerance)
        action = answers[f"{name}.{file_format}.{count}.action"]
        # Torques are up to 2: one rounding more.
        np.testing.assert_allclose(action, actions[:count], rtol=0, atol=0 if name == "cartpole" else 2 * tolerance)


@pytest.mark.slow
def test_the_continuous_actions_compared_reach_the_bounds_and_lie_between(elsewhere: dict[str, Any]):
    mean = elsewhere["answers"]["pendulum.stablehlo.5.mean"]
    assert np.any(np.abs(mean) < 1)
    policy = elsewhere["policies"]["pendulum"]
    loaded = jaxrl.load_exported(elsewhere["folder"] / "pendulum.stablehlo")
    far = 50 * elsewhere["obs"]["pendulum"].astype(np.float32)
    np.testing.assert_allclose(loaded(far), policy(far), rtol=0, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_loaded_export_takes_the_same_observations_as_its_policy(file_format: str, elsewhere: dict[str, Any]):
    policy, loaded = (
        elsewhere["policies"]["cartpole"],
        jaxrl.load_exported(elsewhere["folder"] / f"cartpole.{file_format}"),
    )
    obs = elsewhere["obs"]["cartpole"].astype(np.float32)
    for some in (obs[0], obs[:1], obs, obs[:4].reshape(2, 2, 4)):
        np.testing.assert_array_equal(loaded(some), policy(some))
        assert loaded.respond(some)["logits"].shape == (*some.shape[:-1], 2)
    assert loaded(obs[0]).dtype == np.int32
    for wrong in (obs[:, :3], {"own": obs}, np.float32(1)):
        with pytest.raises(ValueError, match=r"^obs .*[Tt]akes|takes obs"):
            loaded(wrong)
    with pytest.raises(ValueError, match="obs and mask give obs, mask; this policy takes obs"):
        loaded(obs, mask=np.ones((5, 2), bool))


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_describes_its_inputs_and_its_origin(file_format: str, elsewhere: dict[str, Any]):
    spec = jaxrl.load_exported(elsewhere["folder"] / f"cartpole.{file_format}").spec
    assert spec["inputs"] == [{"name": "obs", "shape": ["batch", 4], "dtype": "float32"}]
    assert spec["outputs"] == [
        {"name": "action", "shape": ["batch"], "dtype": "int32"},
        {"name": "logits", "shape": ["batch", 2], "dtype": "float32"},
    ]
    assert spec["action_space"] == {"kind": "discrete", "n": 2, "dtype": "int32"}
    assert spec["observation_space"]["shape"] == [4]
    assert list(spec["normalisation"]) == ["observations"]
    assert spec["setting"] == {"lr": 1e-2} and spec["seed"] == 5
    assert spec["environment"]["name"] == "cartpole" and spec["config"]["hidden"] == [16, 16]
    assert spec["env_params"]["gravity"] == pytest.approx(9.8)
    assert spec["versions"]["jax"] == jax.__version__
    pendulum = jaxrl.load_exported(elsewhere["folder"] / f"pendulum.{file_format}").spec
    assert pendulum["action_space"] == {"kind": "box", "shape": [1], "low": -2.0, "high": 2.0, "dtype": "float32"}
    assert pendulum["outputs"] == [
        {"name": "action", "shape": ["batch", 1], "dtype": "float32"},
        {"name": "mean", "shape": ["batch", 1], "dtype": "float32"},
        {"name": "std", "shape": ["batch", 1], "dtype": "float32"},
    ]
    assert pendulum["normalisation"] == {}


@pytest.mark.slow_rows("onnx")
@pytest.mark.parametrize("file_format", FORMATS)
def test_masks_and_crowds_of_any_size(file_format: str, tmp_path: Path):
    policy = policy_of(agents.Crowd(3, masked=True))
    loaded = jaxrl.load_exported(
        jaxrl.export_policy(policy, tmp_path / f"policy.{file_format}"),
        policy.algo if file_format == FORMATS[1] else None,
    )
    draws = np.random.default_rng(0)
    obs = draws.normal(size=(4, 7, 2)).astype(np.float32)
    mask = draws.integers(0, 3, (4, 7, 1)) != np.arange(3)
    larger = TrainedPolicy(jaxrl.ppo(agents.Crowd(7, masked=True), jaxrl.PPOConfig(**SMALL)), policy.params)
    np.testing.assert_array_equal(loaded(obs, mask), larger(obs, mask=mask))
    assert np.any(loaded(obs, mask) != np.argmax(loaded.respond(obs, mask)["logits"], -1))  # masks matter
    with pytest.raises(ValueError, match=r"mask has the shape \(4, 6, 3\); it takes \(agents, 3\)"):
        loaded(obs, mask[:, :6])
    with pytest.raises(ValueError, match="obs and mask give obs; this policy takes obs, mask"):
        loaded(obs)


@dataclass(frozen=True)
class Branches(envs.Environment):
    """Two discrete choices at a time, from observations in a dictionary."""

    @property
    def default_params(self) -> EnvParams:
        return EnvParams(max_steps_in_episode=8)

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[Any, EnvState]:
        del params
        seen = jax.random.normal(key, (3,))
        return {"far": seen[:2], "near": seen[2:]}, EnvState(jnp.zeros((), jnp.int32))  # pyright: ignore[reportArgumentType]

    def step_env(self, key: jax.Array, state: EnvState, action: Any, params: EnvParams) -> Any:
        state = state.replace(time=state.time + 1)  # pyright: ignore[reportAttributeAccessIssue]
        obs = self.reset_env(key, params)[0]
        return obs, state, jnp.float32(action[0] + action[1]), jnp.zeros((), bool), {}

    def action_space(self, params: EnvParams | None = None) -> spaces.Tuple:
        return spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])

    def observation_space(self, params: EnvParams) -> spaces.Dict:
        return spaces.Dict({"far": spaces.Box(-9.0, 9.0, (2,)), "near": spaces.Box(-9.0, 9.0, (1,))})


@dataclass(frozen=True)
class Seen(Branches):
    """One choice, from an observation of any type and length."""

    dtype: Any = jnp.float32
    size: int = 2

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[Any, EnvState]:
        del params
        return jnp.ones(self.size, self.dtype), EnvState(jnp.zeros((), jnp.int32))  # pyright: ignore[reportArgumentType]

    def step_env(self, key: jax.Array, state: EnvState, action: Any, params: EnvParams) -> Any:
        return super().step_env(key, state, (action, 0), params)

    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete:  # pyright: ignore[reportIncompatibleMethodOverride]
        return spaces.Discrete(2)

    def observation_space(self, params: EnvParams) -> spaces.Box:  # pyright: ignore[reportIncompatibleMethodOverride]
        return spaces.Box(-9.0, 9.0, (self.size,), self.dtype)


class Halves(nn.Module):
    """A linear policy computed in bfloat16, which returns numbers of a type."""

    returned: Any = jnp.float32

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        numbers = nn.Dense(3, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16)(obs)
        return numbers[:2].astype(self.returned), numbers[2].astype(jnp.float32)


NO_BFLOAT16 = (
    "is bfloat16, which ONNX Runtime cannot take from NumPy or return to it; stablehlo and safetensors take it"
)


@pytest.mark.parametrize(
    ("env", "returned", "sentence"),
    [
        (Seen(), jnp.bfloat16, rf"logits of the policy {NO_BFLOAT16}\.$"),
        (Seen(jnp.bfloat16), jnp.float32, rf"obs of the policy {NO_BFLOAT16}\.$"),
        (Seen(), jnp.float32, r"exported as onnx: the file cannot be run \(.*\); stablehlo takes any\.$"),
    ],
)
def test_a_policy_in_bfloat16_is_refused_by_onnx_alone(env: Any, returned: Any, sentence: str, tmp_path: Path):
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(**SHORT), Halves(returned))
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), policy_shapes(algo))
    policy = TrainedPolicy(algo, params, {}, 0)
    with pytest.raises(ResultError, match=sentence):
        jaxrl.export_policy(policy, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
    if returned == jnp.bfloat16:  # the export compares its answers with the policy's
        for file_format in ("safetensors", "stablehlo"):
            jaxrl.export_policy(policy, tmp_path / f"policy.{file_format}")


def test_a_number_type_that_safetensors_lacks_gets_one_sentence():
    from safetensors.numpy import save

    policy: Any = SimpleNamespace(params={"kernel": np.ones(3, jnp.int4)})
    with pytest.raises(ResultError, match=r"safetensors cannot store this policy \(.*dtype .*\); stablehlo takes"):
        export._safetensors(save, policy, "{}")


@pytest.mark.slow_rows("safetensors", "stablehlo")
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_policy_that_sees_nothing_answers_by_its_biases(file_format: str, tmp_path: Path):
    policy = policy_of(Seen(size=0))
    obs = np.zeros((3, 0), np.float32)
    expected = np.broadcast_to(scores_of(policy, obs[0])["logits"], (3, 2))
    got = jaxrl.load_exported(
        jaxrl.export_policy(policy, tmp_path / f"policy.{file_format}"),
        policy.algo if file_format == "safetensors" else None,
    ).respond(obs)["logits"]
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCES[file_format])


def test_arrays_without_numbers_do_not_differ():
    """Such as the mean of an action of no numbers, or an empty memory."""
    assert export._difference(np.zeros((2, 0)), np.zeros((2, 0))) == 0
    assert export._difference([4.0, 1.0], [2.0, 1.0]) == 1.0  # 2 of the largest number, 2
    assert np.isnan(export._difference([np.nan], [0.0]))


@pytest.mark.slow_rows("onnx", "stablehlo")
@pytest.mark.parametrize("file_format", FORMATS)
def test_several_actions_from_a_dictionary(file_format: str, tmp_path: Path):
    policy = policy_of(Branches(), normalise_observation=True)
    file = jaxrl.export_policy(policy, tmp_path / f"policy.{file_format}")
    loaded = jaxrl.load_exported(file, allow=Branches.__module__)
    draws = np.random.default_rng(0)
    obs = {"far": draws.normal(size=(6, 2)).astype(np.float32), "near": draws.normal(size=(6, 1)).astype(np.float32)}
    got, expected = loaded(obs), policy(obs)
    assert [port["name"] for port in loaded.spec["outputs"]] == ["action.0", "action.1", "logits"]
    assert isinstance(got, tuple) and len(got) == len(expected) == 2
    for actual_part, expected_part in zip(got, expected, strict=True):
        np.testing.assert_array_equal(actual_part, expected_part)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_crowd_that_sees_neighbours(file_format: str, pooling: str, tmp_path: Path):
    policy = policy_of(envs.make("crowd/circle", num_agents=5), pooling=pooling, own_hidden=(8,), neighbour_hidden=(8,))
    loaded = jaxrl.load_exported(jaxrl.export_policy(policy, tmp_path / f"policy.{file_format}"))
    draws = np.random.default_rng(0)
    obs = {
        port["name"].removeprefix("obs."): draws.uniform(size=(2, 5, *port["shape"][2:])).astype(np.float32)
        for port in loaded.spec["inputs"]
    }
    np.testing.assert_allclose(loaded(obs), policy(obs), rtol=0, atol=10 * TOLERANCES[file_format])


@pytest.mark.slow
def test_the_command_writes_the_chosen_policy(run: Path, cartpole: Result, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["export", str(run), "--at", "lr=1e-3", "--seed", "5", "--platforms", "cpu"]) == 0
    text = capsys.readouterr().out
    assert f"Wrote {run / 'policy.stablehlo'}: lr 0.001, seed 5." in text
    assert "takes obs float32[batch, 4]\ngives action int32[batch]; logits float32[batch, 2]\n" in text
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    loaded = jaxrl.load_exported(run / "policy.stablehlo")
    expected = cartpole.policy(lr=1e-3, seed=5)
    logits = jax.vmap(lambda row: scores_of(expected, row)["logits"])(obs)
    np.testing.assert_allclose(loaded.respond(obs)["logits"], logits, rtol=0, atol=1e-6)
    assert json.loads((run / "policy.stablehlo.json").read_text())["platforms"] == ["cpu"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--format tflite", "format is 'tflite'; it takes stablehlo, safetensors, onnx"),
        ("--format onxn", "format is 'onxn'; did you mean 'onnx'"),
        ("--at lr=1e-3 lr=1e-2", "--at has lr twice, 1e-3 and 1e-2"),
        ("--at lr=1e-3 --out policy.bin", "path is 'policy.bin'; an exported policy's name ends in .stablehlo"),
        ("--at lr=1e-3 --format onnx --out p.safetensors", "the name of p.safetensors ends in .safetensors; they must"),
        ("--format onnx", "has 2 settings: choose one by --at NAME=VALUE, lr of 0.001, 0.01"),
        ("--at lr", "--at takes NAME=VALUE"),
        ("--at lr=7", "lr is '7'; this result has 0.001, 0.01"),
        ("--at lr=1e-3 --seed 4", "seed is 4; this result has 3, 5"),
        ("--at lr=1e-3 --platforms abacus", "platforms takes cpu, cuda, rocm, tpu, got 'abacus'"),
        ("--at lr=1e-3 --format onnx", "policy.onnx exists already: choose another name, or --force (force=True)"),
    ],
)
def test_bad_input_gets_one_sentence(options: str, sentence: str, run: Path, capsys: pytest.CaptureFixture[str]):
    (run / "policy.onnx").write_text("of another")
    assert cli.main(["export", str(run), *options.split()]) == 2
    message = capsys.readouterr().err
    assert message.startswith("jaxrl: ") and message.count("\n") == 1
    assert sentence in message
    assert (run / "policy.onnx").read_text() == "of another"


def test_a_bandit_has_no_policy_to_export(tmp_path: Path):
    metrics = metrics_dataset(
        {"regret": np.zeros((1, 1, 1))},
        seeds=[0],
        env_steps=[1],
        attrs={"algorithm_unknown": "it is of the bandit policy ucb1, which learns as it acts"},
    )
    with pytest.raises(ResultError, match=r"policy cannot be exported, .*: it is of the bandit policy ucb1"):
        jaxrl.export_policy(Result(metrics, {}), tmp_path / "policy.onnx")


def test_policies_that_cannot_be_exported_raise_one_sentence(cartpole: Result, pendulum: TrainedPolicy, tmp_path: Path):
    path = tmp_path / "policy.stablehlo"
    with pytest.raises(TypeError, match=r"policy must be a Result or a policy from .*, got str"):
        jaxrl.export_policy("runs/x", path)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ResultError, match="2 settings"):
        jaxrl.export_policy(cartpole, path)
    with pytest.raises(ResultError, match="seed is missing"):
        jaxrl.export_policy(cartpole, path, at={"lr": 1e-3})
    with pytest.raises(ValueError, match="choose the run of a Result"):
        jaxrl.export_policy(pendulum, path, seed=0)
    assert not list(tmp_path.iterdir())


def test_a_file_that_would_differ_from_the_policy_is_not_kept(
    pendulum: TrainedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bytes_of = export._stablehlo

    def of_another(program: Any, platforms: Any) -> bytes:
        def shifted(*arguments: Any) -> Any:
            outputs = program.function(*arguments)
            return {**outputs, "action": outputs["action"] + 0.01}

        return bytes_of(program._replace(function=shifted), platforms)

    monkeypatch.setattr(export, "_stablehlo", of_another)
    with pytest.raises(ResultError, match="cannot be exported as stablehlo: the file differs from it by"):
        jaxrl.export_policy(pendulum, tmp_path / "policy.stablehlo")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_format", "library"), [("safetensors", "safetensors"), ("onnx", "onnxruntime"), ("stablehlo", "flatbuffers")]
)
def test_a_missing_extra_is_named(
    file_format: str,
    library: str,
    elsewhere: dict[str, Any],
    pendulum: TrainedPolicy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    actual = builtins.__import__

    def absent(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {library!r}")
        return actual(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    hint = r"pip install '\.\[export\]' in a clone of jaxrl"
    sentence = rf"^format '{file_format}' needs the extra: {hint} \(No module named '{library}'\)$"
    with pytest.raises(ImportError, match=sentence):
        jaxrl.export_policy(pendulum, tmp_path / f"policy.{file_format}")
    with pytest.raises(ImportError, match=sentence):
        jaxrl.load_exported(elsewhere["folder"] / f"pendulum.{file_format}")


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_damaged_and_missing_files_get_one_sentence(file_format: str, elsewhere: dict[str, Any], tmp_path: Path):
    whole = elsewhere["folder"] / f"pendulum.{file_format}"
    file = tmp_path / whole.name
    with pytest.raises(ResultError, match="does not exist; jaxrl export"):
        jaxrl.load_exported(file)
    data = whole.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    if file_format == "stablehlo":
        with pytest.raises(ResultError, match=r"pendulum.stablehlo.json, which describes .*, is missing"):
            jaxrl.load_exported(file)
        (tmp_path / "pendulum.stablehlo.json").write_text(Path(f"{whole}.json").read_text())
    with pytest.raises(ResultError, match="is damaged"):
        jaxrl.load_exported(file)
    with pytest.raises(ValueError, match=r"path is '.*policy.txt'; an exported policy's name ends in"):
        jaxrl.load_exported(tmp_path / "policy.txt")


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_byte_of_a_file_is_guarded(file_format: str, elsewhere: dict[str, Any], tmp_path: Path):
    whole = elsewhere["folder"] / f"pendulum.{file_format}"
    names = [whole.name, f"{whole.name}.json"] if file_format == "stablehlo" else [whole.name]
    for name in names:
        shutil.copy(whole.with_name(name), tmp_path)
    for name in names:
        file = tmp_path / name
        content = file.read_bytes()
        for at in range(0, len(content), len(content) // 24):
            file.write_bytes(content[:at] + bytes([content[at] ^ 0x01]) + content[at + 1 :])
            with pytest.raises(ResultError, match=r"damaged|cannot be read"):
                jaxrl.load_exported(tmp_path / whole.name)
        file.write_bytes(content)
    assert jaxrl.load_exported(tmp_path / whole.name).spec["format"] == file_format


@pytest.mark.slow
def test_a_program_of_a_newer_jax_gets_one_sentence(elsewhere: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    def unreadable(self: Any) -> str:
        raise RuntimeError("INVALID_ARGUMENT: Failed to deserialize StableHLO")

    monkeypatch.setattr(jax.export.Exported, "mlir_module", unreadable)
    sentence = rf"written by JAX {jax.__version__}, cannot be read by JAX .*: INVALID_ARGUMENT: Failed to deser"
    with pytest.raises(ResultError, match=sentence):
        jaxrl.load_exported(elsewhere["folder"] / "pendulum.stablehlo")


def test_weights_of_a_network_of_ones_own_ask_for_the_algorithm(tmp_path: Path):
    from jaxrl.learning.networks import MLPActorCritic

    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SHORT), MLPActorCritic(2, (8,)))
    policy = TrainedPolicy(algo, filled(algo, 2))
    file = jaxrl.export_policy(policy, tmp_path / "policy.safetensors")
    with pytest.raises(
        ResultError, match=r"does not describe how to build its algorithm \(its network is the user's own"
    ):
        jaxrl.load_exported(file)
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    np.testing.assert_array_equal(jaxrl.load_exported(file, algo)(obs), policy(obs))
    with pytest.raises(ResultError, match="does not fit the algorithm ppo: it holds other parameters"):
        jaxrl.load_exported(file, jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL)))
