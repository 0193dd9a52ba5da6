"""Edited copies of an algorithm, or of its file, are not treated like the original."""

import dataclasses
import importlib
import json
import pickle
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
from jaxrl.algorithms.contract import checked_config
from jaxrl.cli import main as cli
from jaxrl.cli.train import asked
from jaxrl.results.dataset import ResultError
from jaxrl.sweeps.batching import batched_hparams

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


@dataclasses.dataclass
class Unfrozen:
    """Configuration without a hash."""

    width: int = 4


def of_unfrozen(env: Any, config: Unfrozen | None = None) -> Any:
    """PPO with a configuration without a hash."""
    config = Unfrozen() if config is None else config
    algo = jaxrl.ppo(env, dataclasses.replace(SMALL, hidden=(config.width,)))
    return algo._replace(config=config, builder=f"{__name__}:of_unfrozen")


def test_algorithms_with_a_configuration_without_a_hash_are_described() -> None:
    described = registry.describe(of_unfrozen(envs.make("cartpole"), Unfrozen(3)))
    assert described["algorithm"] == f"{__name__}:of_unfrozen" and described["config"] == {"width": 3}


def test_descriptions_of_an_algorithm_rebuild_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    algo, built = jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(SMALL, hidden=(3,))), []
    again = registry.again
    monkeypatch.setattr(registry, "again", lambda *arguments: built.append(again(*arguments)) or built[-1])
    assert registry.describe(algo) == registry.describe(algo)
    assert [each.config for each in built] == [algo.config]


@pytest.mark.slow
def test_equal_algorithms_are_recognised_in_any_order_of_building() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), SMALL)
    for width in range(1, 70):  # more than the builder keeps
        jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(SMALL, hidden=(width,)))
    assert registry.describe(algo)["algorithm"] == "ppo"


class Forgetful:
    """Tracker whose last method lacks its argument."""

    def start(self, call: Any, resumed: Any) -> None: ...
    def __call__(self, env_step: Any, metrics: Any) -> None: ...
    def finish(self) -> None: ...


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_chunk": 3}, r"^on_chunk must be a function of \(env_step, metrics\), got 3$"),
        ({"on_chunk": lambda m: None}, r"^on_chunk must take \(env_step, metrics\), but it takes \(m\)$"),
        ({"trackers": [Forgetful()]}, r"^finish of Forgetful in trackers must take \(result\), but it takes \(\)$"),
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


@pytest.fixture
def cautious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Copy of DQN's file with a hyper-parameter and a static field of its own, and with other defaults."""
    own_module("dqn", tmp_path, monkeypatch)
    file = tmp_path / "own_dqn.py"
    text = file.read_text().replace("    double: bool = True", "    margin: int = 3\n    double: bool = False")
    file.write_text(
        text.replace("    munchausen_alpha: Any = 0.9", "    caution: Any = 0.3\n    munchausen_alpha: Any = 0.8")
    )
    monkeypatch.delitem(sys.modules, "own_dqn")
    importlib.invalidate_caches()
    return importlib.import_module("own_dqn")


def test_a_configuration_of_the_original_is_converted(cautious: Any) -> None:
    original = jaxrl.DQNConfig(num_envs=2, hidden=(7,), reset_pool=5)
    config = cautious.dqn(envs.make("cartpole"), original).config
    assert type(config) is cautious.DQNConfig and config.margin == 3
    assert {name: getattr(config, name) for name in vars(original)} == vars(original)  # `double`, too


def test_a_configuration_of_a_parent_class_is_converted() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(jaxrl.DQNConfig):
        margin: int = 3

    assert checked_config(jaxrl.DQNConfig(n_step=2), Mine) == Mine(n_step=2)
    assert checked_config(Mine(margin=4), jaxrl.DQNConfig) == Mine(margin=4)
    with pytest.raises(TypeError, match=r"^config must be a Mine, such as Mine\(num_envs=8\), got PPOConfig$"):
        checked_config(jaxrl.PPOConfig(), Mine)


def test_a_changed_field_that_the_copy_lacks_is_refused(cautious: Any) -> None:
    original = cautious.DQNConfig(num_envs=2)
    assert jaxrl.dqn(envs.make("cartpole"), original).config == jaxrl.DQNConfig(num_envs=2, double=False)
    sentence = (
        r"^jaxrl\.algorithms\.dqn\.DQNConfig takes the values of DQNConfig and has no field 'margin', which is 4 there$"
    )
    with pytest.raises(TypeError, match=sentence):
        jaxrl.dqn(envs.make("cartpole"), dataclasses.replace(original, margin=4))


def test_hyper_parameters_of_the_original_are_converted(cautious: Any) -> None:
    algo, original = (module.dqn(envs.make("cartpole")).hparams for module in (cautious, jaxrl))
    original = original.replace(lr=0.25, discount="beta:0.9,0.5")
    single = batched_hparams(algo, original)
    assert (type(single), single.lr, single.caution) == (cautious.DQNHParams, [0.25], [np.float32(0.3)])
    sweep = jaxrl.grid(original, {"lr": [0.5, 0.25], "discount.mu": [0.7, 0.8, 0.9]})
    swept = batched_hparams(algo, sweep)
    np.testing.assert_array_equal(swept.caution, np.full(6, 0.3, np.float32))
    np.testing.assert_array_equal(swept.lr, sweep.hparams.lr)
    np.testing.assert_array_equal(swept.discount.mu, sweep.hparams.discount.mu)
    assert swept.munchausen_alpha is None  # without effect there and here


def test_a_copy_starts_from_the_preset_of_the_original(cautious: Any) -> None:
    preset = jaxrl.preset("dqn", "cartpole")
    for build in (cautious.dqn, "own_dqn:dqn"):
        algo = preset.of(build)
        assert (algo.name, algo.env, algo.settings_from) == (
            "own_dqn:dqn",
            preset.algo.env,
            "preset of dqn on cartpole",
        )
        assert {name: getattr(algo.config, name) for name in vars(preset.config)} == vars(preset.config)
        assert {name: getattr(algo.hparams, name) for name in vars(preset.algo.hparams)} == vars(preset.algo.hparams)
        assert (algo.config.margin, algo.hparams.caution) == (3, 0.3)
    with pytest.raises(
        TypeError, match=r"SACConfig takes the values of DQNConfig and has no field 'dueling', which is True"
    ):
        preset.of(jaxrl.sac)
    with pytest.raises(TypeError, match=r"^of takes a function that builds an algorithm, such as my_dqn\.dqn, got Alg"):
        preset.of(preset.algo)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ValueError, match=r"jaxrl\.preset\('dqn', 'cartpole'\)\.of\('own_dqn:dqn'\), or .* --preset dqn$"
    ):
        jaxrl.preset("own_dqn:dqn", "cartpole")


def test_a_copy_starts_from_the_preset_of_the_original_in_the_shell(
    cautious: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["own_dqn:dqn", "cartpole", "--env-steps", "9"]
    defaults = asked(words, "train").algo
    assert defaults.config == cautious.DQNConfig() and defaults.settings_from == "defaults"
    hint = "Starting from the defaults of own_dqn:dqn (--preset dqn starts from the preset of dqn on cartpole).\n"
    assert capsys.readouterr().out == hint
    algo = asked([*words, "--preset", "dqn", "--config.margin", "5", "--hparams.caution", "0.5"], "train").algo
    assert capsys.readouterr().out.startswith("Starting from the preset of dqn on cartpole (")
    expected = jaxrl.preset("dqn", "cartpole").of(cautious.dqn)
    assert algo.config == dataclasses.replace(expected.config, margin=5)
    assert algo.hparams == expected.hparams.replace(caution=0.5)
    assert algo.settings_from == expected.settings_from
    with pytest.raises(ValueError, match="--preset dqn has no effect; leave out one"):
        asked([*words, "--preset", "dqn", "--no-preset"], "train")
    with pytest.raises(ValueError, match="There is no preset for 'dqm cartpole'; did you mean 'dqn cartpole'"):
        asked([*words, "--preset", "dqm"], "train")


@pytest.mark.slow
def test_a_result_records_the_origin_of_its_settings(tmp_path: Path) -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), SMALL)
    tuned = algo._replace(settings_from="preset of ppo on cartpole")
    run: Any = {"evals": 1, "eval_episodes": 1, "progress": False, "out": tmp_path / "run"}
    result = jaxrl.train(tuned, env_steps=8, **run)
    assert result.metrics.attrs["settings_from"] == "preset of ppo on cartpole"
    assert pickle.loads(pickle.dumps(tuned)).settings_from == tuned.settings_from
    loaded = jaxrl.load_result(tmp_path / "run")
    assert loaded.algo is not None and loaded.algo.settings_from == "preset of ppo on cartpole"
    longer_run: Any = {**run, "evals": 3}
    longer = jaxrl.resume(tmp_path / "run", env_steps=16, progress=False)
    assert longer.metrics.attrs["settings_from"] == "preset of ppo on cartpole"
    again = jaxrl.train(algo, env_steps=24, resume=True, **longer_run)  # equal settings, named otherwise
    assert again.metrics.attrs["settings_from"] == "defaults"


def test_a_copy_names_the_module_to_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = own_module("a2c", tmp_path, monkeypatch)
    assert registry.modules_to_allow(module.a2c(envs.make("cartpole"))) == ["own_a2c"]
    assert registry.modules_to_allow(jaxrl.a2c(envs.make("cartpole"))) == []
    assert registry.modules_to_allow(contrary()) == []
