"""An algorithm whose functions were replaced is not treated like the one from its builder."""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import envs
import jaxrl
from jaxrl.algorithms import registry
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


@pytest.mark.parametrize("name", registry.ROWS)
def test_a_copy_of_an_algorithms_file_is_recorded_by_its_own_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"jaxrl.algorithms.{name}")
    (tmp_path / f"own_{name}.py").write_text(Path(str(module.__file__)).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, f"own_{name}", raising=False)
    build = getattr(importlib.import_module(f"own_{name}"), name)
    algo = build(envs.make("pendulum" if name == "td3" else "cartpole"))
    assert algo.builder == f"own_{name}:{name}"
    assert registry.describe(algo)["algorithm"] == f"own_{name}:{name}"
    assert registry.row_of(algo) is None
