"""A user-defined algorithm works wherever PPO does, also in the shell by its name `module:function`."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloning as cloning_module
import jax
import numpy as np
import pytest
from cloning import PER_ITERATION, CloningConfig, cloning, expert

import envs
import jaxrl
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import builder_of, describe
from jaxrl.cli import main as cli
from jaxrl.policies.export import export_policy
from jaxrl.policies.load_exported import load_exported
from jaxrl.results.dataset import ResultError
from jaxrl.runtime.evaluate_again import evaluate_result

NAME = "cloning:cloning"
SMALL = CloningConfig(prefill=32, batch=4)
RUN: Any = {"seeds": 2, "env_steps": 10 * PER_ITERATION, "evals": 4, "eval_episodes": 2, "progress": False}


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    return cloning(envs.make("cartpole"), SMALL)


@pytest.fixture(scope="module")
def run(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("second") / "run"
    jaxrl.train(algo, jaxrl.grid(algo.hparams, {"lr": [0.1, 0.5]}), out=out, **RUN)
    return out


def test_it_acts_as_ppo_does(algo: Algorithm) -> None:
    config = jaxrl.PPOConfig(num_envs=1, num_steps=4, num_minibatches=1, hidden=SMALL.hidden)
    assert algo.actor is jaxrl.ppo(algo.env, config).actor


@pytest.mark.slow
def test_cloning_learns_from_its_prefill(algo: Algorithm) -> None:
    fast = dataclasses.replace(algo.hparams, lr=0.5, late_lr=0.5)
    result = jaxrl.train(algo._replace(hparams=fast), **RUN | {"env_steps": 600 * PER_ITERATION, "evals": 2})
    assert result.values("loss")[..., -1].max() < 0.2  # log 2 = .69 before it has learned
    policy, obs = result.policy(seed=1), jax.random.uniform(jax.random.key(0), (200, 4), minval=-0.2, maxval=0.2)
    assert np.mean(policy(obs) == expert(obs)) > 0.7  # .82 from 32 samples; .5 without learning


@pytest.mark.slow
def test_metrics_are_reduced_by_their_rules(run: Path) -> None:
    result = jaxrl.load_result(run)
    assert "discounted_return" not in result.metrics
    points = [3, 5, 8, 10]  # iterations; the metrics of iteration i, from 0, are i
    np.testing.assert_array_equal(result.metrics["env_step"], np.multiply(points, PER_ITERATION))
    between = [range(*pair) for pair in zip([0, *points], points, strict=False)]
    for name, reduced in (("newest", max), ("total", sum), ("average", lambda some: sum(some) / len(some))):
        expected = [reduced(some) for some in between]
        np.testing.assert_allclose(result.values(name), np.broadcast_to(expected, (2, 2, 4)), rtol=1e-6)


@pytest.mark.slow
def test_chunks_do_not_change_a_metric(algo: Algorithm, run: Path, tmp_path: Path) -> None:
    # Chunks end at evaluations and wherever a checkpoint is due; here one is due after every iteration.
    sweep = jaxrl.grid(algo.hparams, {"lr": [0.1, 0.5]})
    often = jaxrl.train(algo, sweep, out=tmp_path / "often", checkpoint_minutes=1e-9, **RUN)
    result = jaxrl.load_result(run)
    for name in map(str, result.metrics.data_vars):
        np.testing.assert_array_equal(often.values(name), result.values(name), err_msg=name)


@pytest.mark.slow
def test_a_hyper_parameter_may_matter_late(algo: Algorithm) -> None:
    jaxrl.check(algo, num_steps=4)
    with pytest.raises(envs.ContractError, match=r"within 3 steps: \.late_lr did not"):
        jaxrl.check(algo)


@pytest.mark.slow
def test_a_result_records_how_its_algorithm_is_built(run: Path, algo: Algorithm) -> None:
    config = json.loads((run / "config.json").read_text())
    assert config["algorithm"] == NAME
    assert config["config"] == {"prefill": 32, "batch": 4, "hidden": [8]}
    loaded = jaxrl.load_result(run, allow="cloning")
    assert loaded.algo is not None and loaded.algo.config == SMALL and loaded.algo.builder == NAME
    again = evaluate_result(loaded, 2)
    assert np.isfinite(again.values("return")).all()


def elsewhere(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=directory, timeout=300)


LOAD = """
import json
import jaxrl
result = jaxrl.load_result("run", allow="cloning")
builder = None if result.algo is None else result.algo.builder
print(json.dumps({"algo": builder, "points": result.metrics.sizes["env_step"]}))
"""


@pytest.mark.slow
def test_another_process_loads_a_run_if_its_module_can_be_imported(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    without = elsewhere(LOAD + "result.policy(seed=0, lr=0.1)", tmp_path)
    assert json.loads(without.stdout) == {"algo": None, "points": 4}  # its metrics need no algorithm
    assert "there is no module 'cloning' here; set PYTHONPATH to the directory that holds it" in without.stderr
    shutil.copy(cloning_module.__file__, tmp_path)
    done = elsewhere(LOAD + "print(result.policy(seed=0, lr=0.1))", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == {"algo": NAME, "points": 4}


@pytest.mark.slow
def test_a_builder_of_a_notebook_is_unknown(algo: Algorithm, tmp_path: Path) -> None:
    own = algo._replace(builder="__main__:cloning")
    with pytest.raises(ValueError, match="the algorithm 'cloning' cannot be imported by name"):
        describe(own)
    result = jaxrl.train(own, out=tmp_path / "run", **RUN | {"env_steps": 10, "evals": 1})
    assert result.policy(seed=0) is not None
    loaded = jaxrl.load_result(tmp_path / "run")
    assert loaded.algo is None
    with pytest.raises(ResultError, match=r"the algorithm 'cloning' cannot be imported by name\): pass algo= to load"):
        loaded.policy(seed=0)
    assert jaxrl.load_result(tmp_path / "run", algo=own).policy(seed=0) is not None


@pytest.mark.slow
def test_it_is_searched_and_exported(algo: Algorithm, run: Path, tmp_path: Path) -> None:
    space = {"lr": jaxrl.LogUniform(0.01, 1.0), "config.batch": jaxrl.Choice([2, 4])}
    result = jaxrl.search(
        algo, space, trials=4, env_steps=50, search="random", seeds=1, test_seeds=1, eval_episodes=1, progress=False
    )
    assert len(result.trials) == 4 and result.incumbent is not None
    with pytest.raises(ValueError, match="cloning has no default one"):
        jaxrl.search(algo, trials=2, env_steps=50, progress=False)
    policy = jaxrl.load_result(run, allow="cloning").policy(seed=0, lr=0.5)
    file = export_policy(policy, tmp_path / "policy.onnx")
    obs = np.asarray(jax.random.normal(jax.random.key(0), (5, 4)), np.float32)
    np.testing.assert_array_equal(load_exported(file)(obs), policy(obs))


# --- in the shell ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_shell_trains_plans_evaluates_resumes_and_exports_a_second_algorithm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    train = [NAME, "cartpole", "--env-steps", "100", "--evals", "2", "--eval-episodes", "2", "--no-progress"]
    changed = ["--config.batch", "4", "--hparams.lr", "0.1", "0.5", "--hparams.late-lr", "0.2", "--seeds", "2"]
    assert cli.main(["plan", *train, *changed]) == 0
    assert cli.main(["train", *train, *changed, "--out", out]) == 0
    assert jaxrl.load_result(out).algo is None
    result = jaxrl.load_result(out, allow="cloning")
    assert result.algo is not None and result.algo.config == CloningConfig(batch=4)
    assert result.values("newest").shape == (2, 2, 2)
    assert cli.main(["evaluate", out, "--episodes", "2", "--allow", "cloning"]) == 0
    assert cli.main(["resume", out, "--env-steps", "200", "--allow", "cloning"]) == 0
    assert jaxrl.load_result(out).metrics["env_step"].values[-1] == 200
    assert cli.main(["export", out, "--at", "lr=0.5", "--format", "stablehlo", "--allow", "cloning"]) == 0
    assert "gives action int32[batch]" in capsys.readouterr().out
    sweep = ["--space", "lr=log:1e-2:1", "config.batch=2,4", "--trials", "2", "--search", "random", "--seeds", "1"]
    few = ["--test-seeds", "1", "--env-steps", "50", "--eval-episodes", "1", "--no-progress"]
    assert cli.main(["search", NAME, "cartpole", *sweep, *few]) == 0
    assert "Searching lr=log:0.01:1" in capsys.readouterr().out


def failed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.main(list(args)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("train clonning:cloning cartpole", "there is no module 'clonning' here"),
        ("train cloning:clone cartpole", "cloning has no function 'clone'; did you mean 'cloning'?"),
        ("train pop cartpole", "There is no algorithm 'pop'; did you mean 'spo' or 'ppo'?"),
        (
            "train nothing cartpole",
            "known are ppo, dqn, pqn, reinforce, a2c, spo, mdpo, ppo_kl, sac, td3, evolve, and module:function for a "
            "custom one",
        ),
        ("train remembering:correlated cartpole", "remembering:correlated must return an Algorithm, got Actor"),
        (f"search {NAME} cartpole --trials 2", "cloning has no default one"),
        (f"train {NAME} cartpole --config.batch 0", "batch must be"),
        (f"train {NAME} cartpole --hparams.lam 0.9", "lam"),
    ],
)
def test_a_near_miss_gets_one_sentence(args: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in failed(capsys, *args.split())


@pytest.mark.slow
def test_an_algorithm_without_a_configuration_goes_by_its_name(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    options = ["--env-steps", "40", "--evals", "1", "--eval-episodes", "2", "--no-progress", "--out", out]
    assert cli.main(["train", "remembering:echo", "remembering:Repeat", *options]) == 0
    result = jaxrl.load_result(out, allow="remembering")
    assert result.algo is not None and result.algo.config is None
    np.testing.assert_array_equal(result.values("return"), 5)
    options = ["--space", "strength=10,100", "--trials", "2", "--search", "grid", "--seeds", "1", "--test-seeds", "0"]
    small = ["--env-steps", "40", "--eval-episodes", "2", "--no-progress"]
    assert cli.main(["search", "remembering:echo", "remembering:Repeat", *options, *small]) == 0


def test_help_of_the_users_own_algorithm_lists_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", NAME, "cartpole", "--help"])
    printed = capsys.readouterr().out
    assert "--hparams.late-lr" in printed and "--config.prefill" in printed and "--config.num-envs" not in printed
    assert cli.main(["--help"]) == 0
    assert "module:function" in capsys.readouterr().out


def test_builder_of_lists_the_valid_names() -> None:
    assert builder_of(NAME) is cloning
    assert isinstance(builder_of("ppo")(envs.make("cartpole")), Algorithm)
