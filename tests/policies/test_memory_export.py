"""A memory in a file: a named input and output, and its initial value, for programs without jaxrl."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_task import LinearTask
from remembering import Repeat, chain, echo, recall, with_actor

import jaxrl
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.cli import main as cli
from jaxrl.learning.exploration import network_memory
from jaxrl.policies.export import FORMATS, export_policy
from jaxrl.policies.export_program import kind_of_memory
from jaxrl.policies.load_exported import load_exported, open_exported
from jaxrl.results.policy import TrainedPolicy

MEMORIES = {
    "gru": ["hidden"],
    "lstm": ["cell", "hidden"],
    "lru": ["imaginary", "real"],
    "mingru": ["hidden"],
    "s5": ["imaginary", "real"],
    "gtrxl": ["count", "inputs"],
}
TASKS = {"chain": (lambda: recall(chain()), 1.0, 6), "repeat": (lambda: echo(Repeat()), 5.0, 5)}


def policy_of(algo: Algorithm) -> TrainedPolicy:
    return TrainedPolicy(algo, algo.policy(None, algo.hparams))


@pytest.fixture(scope="module", params=[(task, name) for task in TASKS for name in FORMATS], ids="-".join)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, float, int, Path]:
    task, name = request.param
    make, optimum, length = TASKS[task]
    algo = make()
    path = tmp_path_factory.mktemp("exported") / f"policy.{name}"
    return algo, optimum, length, export_policy(policy_of(algo), path)


@pytest.mark.slow
def test_a_file_solves_the_task_one_by_one_and_many_at_a_time(exported: Any) -> None:
    algo, optimum, length, path = exported
    env, params, policy = algo.env, algo.env.default_params, load_exported(path, allow="remembering")
    assert policy.remembers
    for front in ((), (3,), (2, 2)):
        count = int(np.prod(front))
        reset, step = jax.vmap(env.reset_env, (0, None)), jax.jit(jax.vmap(env.step_env, (0, 0, 0, None)))
        obs, state = reset(jax.random.split(jax.random.key(count), count), params)
        memory, total = policy.initial_memory(*front), np.zeros(count)
        for t in range(length):
            action, memory = policy(np.reshape(obs, (*front, -1)), memory=memory)
            assert np.shape(action) == front
            keys = jax.random.split(jax.random.key(t), count)
            obs, state, reward, _, _ = step(keys, state, jnp.reshape(jnp.asarray(action), count), params)
            total += np.asarray(reward)
        np.testing.assert_array_equal(total, optimum)


@pytest.mark.slow_rows("chain-onnx", "chain-stablehlo")
def test_an_end_clears_that_memory_alone(exported: Any) -> None:
    policy = load_exported(exported[-1], allow="remembering")
    size = policy.spec["inputs"][0]["shape"][1]
    obs = (np.arange(6 * size) % 2).reshape(3, 2, size).astype(np.float32)
    _, memory = policy(obs, memory=policy.initial_memory(3, 2))
    ended = np.array([[True, False], [False, False], [False, True]])
    after = policy.remembered(memory, ended)
    np.testing.assert_array_equal(after["memory.seen"], np.where(ended, 0, 1))
    np.testing.assert_array_equal(after["memory.first"], np.where(ended[..., None], 0, obs))
    assert {name: leaf.dtype for name, leaf in after.items()} == {name: leaf.dtype for name, leaf in memory.items()}
    whole = policy.remembered(memory, np.array([True, False, False]))  # of environments, with all their agents
    np.testing.assert_array_equal(whole["memory.seen"], [[0, 0], [1, 1], [1, 1]])


@pytest.mark.slow_rows("chain-onnx", "chain-stablehlo")
def test_a_file_names_its_memory_and_has_its_start(exported: Any) -> None:
    algo, _, _, path = exported
    spec = load_exported(path, allow="remembering").spec
    size = algo.env.observation_space(algo.env.default_params).shape[0]
    ports = [
        {"name": "memory.first", "shape": ["batch", size], "dtype": "float32"},
        {"name": "memory.seen", "shape": ["batch"], "dtype": "int32"},
    ]
    assert [port for port in spec["inputs"] if port["name"].startswith("memory")] == ports
    after = [{**port, "name": f"next_{port['name']}"} for port in ports]
    assert [port for port in spec["outputs"] if "memory" in port["name"]] == after
    assert spec["memory"] == {"memory.first": [0.0] * size, "memory.seen": 0}


def test_without_its_memory_a_file_is_refused(exported: Any) -> None:
    algo, _, _, path = exported
    policy = load_exported(path, allow="remembering")
    obs = np.zeros(algo.env.observation_space(algo.env.default_params).shape, np.float32)
    with pytest.raises(
        ValueError, match=r"^memory is None, .*policy\.initial_memory\(\) at the start .* policy\(obs, memory"
    ):
        policy(obs)
    with pytest.raises(ValueError, match=r"memory\.first has the shape"):
        policy(np.stack([obs, obs]), memory=policy.initial_memory())
    with pytest.raises(ValueError, match=r"obs, mask and memory give obs, memory\.seen; this policy takes obs, memory"):
        policy(obs, memory={"memory.seen": np.int32(0)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "names", "file_format"),
    [
        ("gru", ["hidden"], "onnx"),
        *(
            pytest.param(kind, names, file_format, marks=pytest.mark.slow)
            for kind, names in MEMORIES.items()
            for file_format in FORMATS
            if (kind, file_format) != ("gru", "onnx")
        ),
    ],
)
def test_a_recurrent_network_acts_from_a_file(kind: Any, names: list[str], file_format: str, tmp_path: Path) -> None:
    own: dict[str, Any] = {"memory_window": 3, "memory_layers": 2, "memory_heads": 5} if kind == "gtrxl" else {}
    config = jaxrl.PPOConfig(
        num_envs=4, num_steps=4, hidden=(6,), memory=kind, memory_size=5, normalise_observation=True, **own
    )
    algo = jaxrl.ppo(Repeat(), config)
    draws = np.random.default_rng(5)
    params = jax.tree.map(lambda leaf: np.asarray(draws.uniform(0.1, 1, leaf.shape), leaf.dtype), policy_shapes(algo))
    policy = TrainedPolicy(algo, params, {}, 0)
    exported = load_exported(export_policy(policy, tmp_path / f"policy.{file_format}"), allow="remembering")
    assert [port["name"] for port in exported.spec["inputs"]] == ["obs", *(f"memory.{kind}.{name}" for name in names)]
    memory, copied = policy.initial_memory(3), exported.initial_memory(3)
    for obs in draws.uniform(size=(4, 3, 4)).astype(np.float32):
        response = exported.respond(obs, memory=copied)
        scores, memory = algo.actor.scores(params, memory, jnp.asarray(obs), None)
        # As `export.TOLERANCES`, at each of the steps.
        np.testing.assert_allclose(response["logits"], scores["logits"], rtol=0, atol=4e-5)
        ended = np.array([False, True, False])
        memory, copied = policy.remembered(memory, ended), exported.remembered(response["memory"], ended)
        for name in names:
            np.testing.assert_allclose(copied[f"memory.{kind}.{name}"], memory[name], rtol=0, atol=4e-5)
            own_memory = copied[f"memory.{kind}.{name}"]
            assert np.any(own_memory[0] != 0) and not np.any(own_memory[1])


def test_a_memory_of_another_kind_is_refused(tmp_path: Path) -> None:
    def exported_of(**fields: Any) -> Any:
        algo = jaxrl.ppo(Repeat(), jaxrl.PPOConfig(num_envs=4, num_steps=4, hidden=(6,), **fields))
        params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), policy_shapes(algo))
        return load_exported(
            export_policy(TrainedPolicy(algo, params), tmp_path / f"{len(fields)}.safetensors", force=True), algo
        )

    gated, minimal = (exported_of(memory=kind, memory_size=5) for kind in ("gru", "mingru"))
    wider, plain, obs = exported_of(memory="gru", memory_size=7), exported_of(), np.zeros(4, np.float32)
    memory = minimal(obs, memory=minimal.initial_memory())[1]
    with pytest.raises(ValueError, match=r"^obs, .* give obs, memory\.mingru\.hidden; .* obs, memory\.gru\.hidden"):
        gated(obs, memory=memory)
    with pytest.raises(ValueError, match=r"^memory has memory\.mingru\.hidden; this policy takes memory\.gru\.hidden"):
        gated.remembered(memory, False)
    with pytest.raises(ValueError, match=r"^memory\.gru\.hidden has the shape \(3, 7\); it takes \(5,\), with any"):
        gated.remembered(wider.initial_memory(3), np.ones(3, bool))
    with pytest.raises(ValueError, match=r"^memory is None, but this policy remembers; it takes"):
        gated.remembered(None, False)
    for front, ended, axes in (((), (5,), r"\(\)"), ((5,), (5, 5), r"\(5,\)"), ((4, 2), (3,), r"\(4, 2\)")):
        shape = re.escape(str(ended))
        sentence = rf"^ended has the shape {shape}; with memory\.gru\.hidden of the shape .* it takes {axes}"
        with pytest.raises(ValueError, match=sentence):
            gated.remembered(gated.initial_memory(*front), np.ones(ended, bool))
    assert plain.remembered(None, False) == {}


def test_a_file_of_a_memory_without_its_kind_is_read(tmp_path: Path) -> None:
    algo = jaxrl.ppo(Repeat(), jaxrl.PPOConfig(num_envs=4, num_steps=4, hidden=(6,), memory="lstm", memory_size=5))
    draws = np.random.default_rng(5)
    params = jax.tree.map(lambda leaf: np.asarray(draws.uniform(0.1, 1, leaf.shape), leaf.dtype), policy_shapes(algo))
    file, obs = tmp_path / "policy.safetensors", draws.uniform(size=(3, 4)).astype(np.float32)
    exported = load_exported(export_policy(TrainedPolicy(algo, params), file), algo)
    earlier = open_exported(file, json.loads(json.dumps(exported.spec).replace("memory.lstm.", "memory.")), algo)
    responses = []
    for each in (exported, earlier):
        memory = each.respond(obs, memory=each.initial_memory(3))["memory"]
        responses.append(each.respond(obs, memory=each.remembered(memory, np.zeros(3, bool))))
    assert [*responses[1]["memory"]] == ["memory.cell", "memory.hidden"]
    for one, other in zip(*(response["memory"].values() for response in responses), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(responses[0]["logits"], responses[1]["logits"])


SMALL: dict[str, Any] = {
    "num_updates": 1,
    "batch_size": 16,
    "buffer_size": 64,
    "prefill": 32,
    "sequence_length": 4,
    "hidden": (6,),
    "memory": "gru",
    "memory_size": 5,
}
LEARNERS: dict[str, tuple[Any, str, list[str]]] = {
    "dqn": (lambda: jaxrl.dqn(Repeat(), jaxrl.DQNConfig(**SMALL)), "q", ["hidden"]),
    "sac": (
        lambda: jaxrl.sac(LinearTask(), jaxrl.SACConfig(**SMALL, noise="ornstein-uhlenbeck")),
        "mean",
        ["begun", "network.hidden", "noise"],
    ),
    "td3": (lambda: jaxrl.td3(LinearTask(), jaxrl.TD3Config(**SMALL)), "mean", ["hidden"]),
}


@pytest.mark.slow_rows("sac-stablehlo", "td3")
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_policy_that_learned_from_sequences_acts_from_a_file(name: str, file_format: str, tmp_path: Path) -> None:
    make, entry, names = LEARNERS[name]
    algo, draws = make(), np.random.default_rng(5)
    params = jax.tree.map(lambda leaf: np.asarray(draws.uniform(0.1, 1, leaf.shape), leaf.dtype), policy_shapes(algo))
    policy = TrainedPolicy(algo, params, {}, 0)
    exported = load_exported(
        export_policy(policy, tmp_path / f"policy.{file_format}"), allow=["remembering", "linear_task"]
    )
    assert [port["name"] for port in exported.spec["inputs"]][1:] == [f"memory.gru.{each}" for each in names]
    memory, copied = policy.initial_memory(3), exported.initial_memory(3)
    size = algo.env.observation_space(algo.env.default_params).shape[0]
    for obs in draws.uniform(size=(4, 3, size)).astype(np.float32):
        response = exported.respond(obs, memory=copied)
        scores, memory = algo.actor.scores(params, memory, jnp.asarray(obs), None)
        # As `export.TOLERANCES`, at each of the steps.
        np.testing.assert_allclose(response[entry], scores[entry], rtol=0, atol=4e-5)
        copied = response["memory"]
        hidden = copied[next(name for name in copied if name.endswith("hidden"))]
        np.testing.assert_allclose(hidden, network_memory(memory)["hidden"], rtol=0, atol=4e-5)
        assert np.all(hidden != 0)


ELSEWHERE = """
import json, sys
import numpy as np

name, path = sys.argv[1:]
if name == "onnx":
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    spec = json.loads(session.get_modelmeta().custom_metadata_map["jaxrl"])
    assert [port.name for port in session.get_inputs()] == [port["name"] for port in spec["inputs"]]
    outputs = [port.name for port in session.get_outputs()]
    run = lambda inputs: dict(zip(outputs, session.run(outputs, inputs)))
    assert "jax" not in sys.modules
else:
    import jax
    spec = json.loads(open(path + ".json").read())
    exported = jax.export.deserialize(bytearray(open(path, "rb").read()))
    def run(inputs):
        arguments, _ = jax.tree.unflatten(exported.in_tree, [inputs[port["name"]] for port in spec["inputs"]])
        leaves = jax.tree.leaves(exported.call(*arguments))
        return dict(zip([port["name"] for port in spec["outputs"]], leaves))
dtypes = {port["name"]: port["dtype"] for port in spec["inputs"]}
memory = {name: np.asarray([value], dtypes[name]) for name, value in spec["memory"].items()}
answers = []
for symbol in (2, 0, 3, 1):
    after = run({"obs": np.eye(4, dtype=np.float32)[[symbol]], **memory})
    answers.append(int(np.asarray(after["action"])[0]))
    memory = {name: np.asarray(after[f"next_{name}"]) for name in memory}
assert not any(module == "jaxrl" or module.startswith("jaxrl.") for module in sys.modules)
print(json.dumps({"answers": answers, "seen": int(memory["memory.seen"][0])}))
"""


@pytest.mark.slow_rows("stablehlo")
@pytest.mark.parametrize("name", ["onnx", "stablehlo"])
def test_a_program_without_jaxrl_reads_names_and_starts(name: str, tmp_path: Path) -> None:
    path = export_policy(policy_of(echo(Repeat())), tmp_path / f"policy.{name}")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, name, str(path)], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"answers": [2, 2, 2, 2], "seen": 4}


@pytest.mark.parametrize("name", FORMATS)
def test_a_memory_may_be_constant_or_equal_a_score(name: str, tmp_path: Path) -> None:
    # One output is an input then, and another one is two outputs.
    algo = echo(Repeat())

    def scores(policy: Any, memory: Any, obs: jax.Array, mask: Any) -> Any:
        numbers, _ = algo.actor.scores(policy, {"first": memory["first"], "seen": memory["flag"] * 0}, obs, mask)
        return numbers, {**memory, "first": numbers["logits"]}

    def initial_memory(policy: Any) -> Any:
        return {"first": jnp.zeros(4), "flag": jnp.int32(3)}

    policy = policy_of(with_actor(algo, scores=scores, initial_memory=initial_memory))
    exported = load_exported(export_policy(policy, tmp_path / f"policy.{name}"), policy.algo)
    action, memory = exported(np.eye(4, dtype=np.float32)[2], memory=exported.initial_memory())
    assert int(action) == 2 and int(memory["memory.flag"]) == 3
    np.testing.assert_array_equal(memory["memory.first"], [0, 0, 1e4, 0])


@pytest.mark.slow
def test_the_command_line_exports_a_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    algo = echo(Repeat())
    result = jaxrl.train(algo, env_steps=1, evals=1, eval_episodes=1, progress=False, out=tmp_path / "run")
    assert result.values("return").item() == 5
    assert cli.main(["export", str(tmp_path / "run"), "--format", "onnx", "--allow", "remembering"]) == 0
    printed = capsys.readouterr().out
    assert "takes obs float32[batch, 4]; memory.first float32[batch, 4]; memory.seen int32[batch]" in printed
    policy = load_exported(tmp_path / "run" / "policy.onnx")
    _, memory = policy(np.eye(4, dtype=np.float32)[1], memory=policy.initial_memory())
    assert int(policy(np.eye(4, dtype=np.float32)[3], memory=memory)[0]) == 1


def test_the_memory_of_a_users_network_has_no_kind() -> None:
    algo = jaxrl.ppo(chain(), jaxrl.PPOConfig(memory="gru", memory_size=4, num_envs=2, num_steps=4, num_minibatches=1))
    assert kind_of_memory(algo) == "gru"
    assert kind_of_memory(algo._replace(network=object())) == ""
