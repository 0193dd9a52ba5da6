"""Edited copies of an algorithm, or of its file, are not treated like the original."""

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from same_bits import assert_same_bits

import envs
import jaxrl
from jaxrl.algorithms import registry
from jaxrl.cli import main as cli
from jaxrl.results.dataset import ResultError

SMALL = jaxrl.PPOConfig(num_envs=2, num_steps=4, num_epochs=1, num_minibatches=1, hidden=(4,))


def contrary() -> Any:
    """PPO whose policy chooses the action with the lowest score."""
    algo = jaxrl.ppo(envs.make("cartpole"), SMALL)

    def scores(policy: Any, memory: Any, obs: Any, mask: Any) -> Any:
        outputs, memory = algo.actor.scores(policy, memory, obs, mask)
        return {"logits": -outputs["logits"]}, memory

    return algo._replace(actor=algo.actor._replace(scores=scores))


@pytest.mark.slow
def test_an_edited_copy_is_unknown_by_name_and_known_by_itself(tmp_path: Path) -> None:
    algo = contrary()
    result = jaxrl.train(algo, env_steps=8, evals=1, eval_episodes=1, progress=False, out=tmp_path / "run")
    obs = jnp.asarray([0.01, 0.0, 0.02, 0.0])
    with pytest.raises(ResultError, match=r"'ppo' is an edited copy of the result of jaxrl\.algorithms\.ppo:ppo"):
        jaxrl.load_result(tmp_path / "run").policy()
    assert jaxrl.load_result(tmp_path / "run", algo=algo).policy()(obs) == result.policy()(obs)


def test_an_edited_copy_is_not_searched_as_the_original() -> None:
    with pytest.raises(ValueError, match="is an edited copy"):
        registry.rebuilt(contrary(), dataclasses.replace(SMALL, num_steps=8))


@pytest.mark.slow
def test_equal_algorithms_are_known_whenever_they_were_built() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), SMALL)
    for width in range(1, 70):  # more than the builder keeps
        jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(SMALL, hidden=(width,)))
    assert registry.describe(algo)["algorithm"] == "ppo"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_chunk": 3}, r"on_chunk takes a function of \(env_step, metrics\), got 3"),
        ({"trackers": jaxrl}, "trackers takes a list, such as"),
        ({"trackers": [3]}, "trackers takes those of jaxrl.tracking, or objects with their methods, got 3"),
        ({"force": "no"}, "force takes True or False, got 'no'"),
    ],
)
def test_options_of_another_type_are_refused_before_anything_is_compiled(options: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        jaxrl.train(jaxrl.ppo(envs.make("cartpole"), SMALL), env_steps=8, **options)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"learning_rate": "max"}, r"metric_rules\['learning_rate'\] must be one of mean, last, sum, got 'max'"),
        ({"learning_rat": "last"}, "metric_rules must be one of .*learning_rate.*, got 'learning_rat'"),
    ],
)
def test_unknown_rules_of_metrics_are_refused(rules: Any, sentence: str) -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), SMALL)._replace(metric_rules=rules)
    with pytest.raises(ValueError, match=sentence):
        jaxrl.train(algo, env_steps=8, evals=1, eval_episodes=1, progress=False)


# A line of each algorithm's loss, or of its targets, and one that makes it maximise the opposite.
EDITS = {
    "ppo": ("policy_loss = clipped_surrogate(", "policy_loss = -clipped_surrogate("),
    "a2c": ("policy_loss = policy_gradient(", "policy_loss = -policy_gradient("),
    "reinforce": ("policy_loss = policy_gradient(", "policy_loss = -policy_gradient("),
    "mdpo": ("policy_loss = surrogate(", "policy_loss = -surrogate("),
    "ppo_kl": ("policy_loss = surrogate(", "policy_loss = -surrogate("),
    "spo": ("policy_loss = quadratic_surrogate(", "policy_loss = -quadratic_surrogate("),
    "dqn": ("        reward = batch.reward\n", "        reward = -batch.reward\n"),
    "pqn": ("lambda_targets(hparams.lam, steps.reward,", "lambda_targets(hparams.lam, -steps.reward,"),
    "sac": ("weighted_mean(temperature * log_prob - q, active)", "weighted_mean(temperature * log_prob + q, active)"),
    "td3": ("return -weighted_mean(q,", "return weighted_mean(q,"),
    "evolve": ("population, episodes.returns, asked", "population, -episodes.returns, asked"),
}


def own_module(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Copy `own_NAME` of an algorithm's file, with its edit, in the current directory."""
    text = Path(str(importlib.import_module(f"jaxrl.algorithms.{name}").__file__)).read_text()
    old, new = EDITS[name]
    assert text.count(old) == 1
    (directory / f"own_{name}.py").write_text(text.replace(old, new))
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, f"own_{name}", raising=False)
    return importlib.import_module(f"own_{name}")


def env_of(name: str) -> str:
    return "pendulum" if name in ("sac", "td3") else "cartpole"


@pytest.mark.parametrize("name", registry.ROWS)
def test_a_copy_of_an_algorithms_file_is_recorded_by_its_own_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo = getattr(own_module(name, tmp_path, monkeypatch), name)(envs.make(env_of(name)))
    assert algo.name == algo.builder == f"own_{name}:{name}"
    assert registry.describe(algo)["algorithm"] == f"own_{name}:{name}"
    assert registry.row_of(algo) is None


@pytest.mark.fast_rows("evolve")
@pytest.mark.parametrize("name", registry.ROWS)
def test_an_edited_copy_of_an_algorithms_file_is_trained_resumed_and_searched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, path = own_module(name, tmp_path, monkeypatch), f"own_{name}:{name}"
    env, small = envs.make(env_of(name)), registry.ROWS[name].small
    original, edited = (getattr(one, name) for one in (importlib.import_module(f"jaxrl.algorithms.{name}"), module))
    algo = edited(env, dataclasses.replace(edited(env).config, **small))
    run: Any = {"seeds": 2, "env_steps": 4 * algo.env_steps_per_iteration, "evals": 4, "eval_episodes": 1}
    whole = jaxrl.train(algo, **run, progress=False)
    assert whole.metrics.attrs["algorithm"] == path
    unedited = jaxrl.train(original(env, dataclasses.replace(original(env).config, **small)), **run, progress=False)
    leaves = (jax.tree.leaves(result.policies) for result in (whole, unedited))
    assert any(np.any(one != other) for one, other in zip(*leaves, strict=True))

    def stop(env_step: int, metrics: Any) -> None:
        if env_step >= run["env_steps"] // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.warns(RuntimeWarning, match="interrupted: progress is kept"):
        jaxrl.train(algo, **run, progress=False, out="run", checkpoint_minutes=1e-9, on_chunk=stop)
    with pytest.raises(ValueError, match=f"own_{name}"):
        jaxrl.resume("run", progress=False)
    assert_same_bits(jaxrl.resume("run", allow=f"own_{name}", progress=False), whole)
    assert json.loads(Path("run/run.json").read_text())["algorithm"] == path
    jaxrl.load_result("run", allow=f"own_{name}").policy(seed=0)
    fields = [
        part
        for field, value in small.items()
        for part in (f"--config.{field.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,)))
    ]
    words = f"search {path} {env_of(name)} --space lr=1e-4,1e-3 --search random --trials 2 --seeds 1 --out search"
    steps = ["--env-steps", str(2 * algo.env_steps_per_iteration), "--eval-episodes", "1", "--no-progress"]
    assert cli.main([*words.split(), *steps, *fields]) == 0
    assert f"2 of 2 trials of {path} on" in capsys.readouterr().out


def test_a_renamed_copy_needs_its_name_as_the_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = own_module("a2c", tmp_path, monkeypatch)
    file = Path(str(module.__file__))
    file.write_text(file.read_text().replace("def a2c(", "def mine("))
    monkeypatch.delitem(sys.modules, "own_a2c")
    importlib.invalidate_caches()
    with pytest.raises(
        ValueError, match=r"must be 'own_a2c:mine', got 'own_a2c:a2c'; .* write f\"\{__name__\}:mine\"$"
    ):
        importlib.import_module("own_a2c").mine(envs.make("cartpole"))


def test_a_configuration_of_the_original_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = own_module("a2c", tmp_path, monkeypatch)
    sentence = r"^config must be a own_a2c\.A2CConfig, such as .*, got jaxrl\.algorithms\.a2c\.A2CConfig$"
    with pytest.raises(TypeError, match=sentence):
        module.a2c(envs.make("cartpole"), jaxrl.A2CConfig())


def test_a_copy_names_the_module_to_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = own_module("a2c", tmp_path, monkeypatch)
    assert registry.modules_to_allow(module.a2c(envs.make("cartpole"))) == ["own_a2c"]
    assert registry.modules_to_allow(jaxrl.a2c(envs.make("cartpole"))) == []
    assert registry.modules_to_allow(contrary()) == []
