"""Opening a result imports only modules of jaxrl, and modules that the user allows, whatever the result names."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import previous_format
import pytest

import envs
import jaxrl
from jaxrl.algorithms.allowed_modules import NotAllowedError, check_allowed
from jaxrl.algorithms.registry import describe
from jaxrl.cli import main as cli
from jaxrl.policies.export import export_policy
from jaxrl.policies.load_exported import load_exported
from jaxrl.results.dataset import ResultError
from jaxrl.runtime.resuming import resume

CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))
TRAP = """
import pathlib
pathlib.Path(__file__).with_name("sprung").touch()
import dataclasses
from envs.control.cartpole import CartPole
from jaxrl.algorithms.ppo import ppo as build
@dataclasses.dataclass(frozen=True)
class Thing(CartPole):
    pass
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PPO on CartPole, with its weights exported."""
    out = tmp_path_factory.mktemp("trust") / "kept"
    algo = jaxrl.ppo(envs.make("cartpole"), CONFIG)
    result = jaxrl.train(algo, env_steps=32, evals=2, eval_episodes=1, out=out, progress=False)
    export_policy(result.policy(seed=0), out / "policy.safetensors")
    return out


@pytest.fixture(autouse=True)
def without_trap() -> Iterator[None]:
    """The module of an edited run is not loaded before a test, nor by an earlier one."""
    sys.modules.pop("evil", None)
    yield
    sys.modules.pop("evil", None)


def edited(kept: Path, to: Path, change: dict[str, Any]) -> Path:
    """A copy of the run in a directory with its own module, which its files name."""
    shutil.copytree(kept, to)
    (to / "evil.py").write_text(TRAP)
    for name in ("config.json", "run.json"):
        spec = json.loads((to / name).read_text())
        previous_format.write_json(to / name, spec | change)
    return to


def thing(name: str) -> dict[str, Any]:
    static = json.loads(json.dumps(describe(jaxrl.ppo(envs.make("cartpole"), CONFIG))["environment"]["static"]))
    return {"name": name, "static": static}


def wrapped(name: str) -> dict[str, Any]:
    env = jaxrl.ppo(envs.wrappers.time_limit(envs.make("cartpole"), 9), CONFIG)
    described = json.loads(json.dumps(describe(env)["environment"]))
    inner = next(field for field, value in described["static"].items() if isinstance(value, dict))
    described["static"][inner] = thing(name)
    return described


NAMING = {
    "algorithm": lambda: {"algorithm": "evil:build"},
    "environment": lambda: {"environment": thing("evil:Thing")},
    "wrapped": lambda: {"environment": wrapped("evil:Thing")},
    "package": lambda: {"environment": thing("shared-run.evil:Thing")},
    "slash": lambda: {"environment": thing("crowd/evil:Thing")},
}


@pytest.mark.slow
@pytest.mark.parametrize("naming", NAMING)
def test_opening_imports_nothing_that_the_result_names(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], naming: str
) -> None:
    run = edited(kept, tmp_path / "shared-run", NAMING[naming]())
    for directory in (run, tmp_path):
        monkeypatch.syspath_prepend(str(directory))
    monkeypatch.chdir(run)
    loaded = jaxrl.load_result(run)
    assert loaded.algo is None and "imports only where you allow it" in loaded.metrics.attrs["algorithm_unknown"]
    np.testing.assert_array_equal(loaded.values("return"), jaxrl.load_result(kept).values("return"))
    with pytest.raises(ResultError, match=r"allow='.*evil' \(--allow .*evil\), with PYTHONPATH set"):
        loaded.policy(seed=0)
    with pytest.raises(ResultError, match="imports only where you allow it"):
        resume(run, progress=False)
    for command in ("evaluate", "export", "render", "resume"):
        assert cli.main([command, str(run)]) == 2
        assert "imports only where you allow it" in capsys.readouterr().err
    assert cli.main(["plot", str(run)]) == 0
    assert cli.main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert not (run / "sprung").exists() and "evil" not in sys.modules


@pytest.mark.slow
def test_only_modules_that_the_user_allows_are_imported(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = edited(kept, tmp_path / "run", {"environment": thing("evil:Thing")})
    monkeypatch.syspath_prepend(str(run))
    assert cli.main(["evaluate", str(run), "--episodes", "1", "--allow", "other"]) == 2
    assert not (run / "sprung").exists()
    assert cli.main(["evaluate", str(run), "--episodes", "1", "--allow", "evil"]) == 0
    assert (run / "sprung").exists()
    loaded = jaxrl.load_result(run, allow="evil")
    assert loaded.algo is not None and "algorithm_unknown" not in loaded.metrics.attrs
    assert jaxrl.load_result(run, allow=["other", "evil"]).algo == loaded.algo
    assert cli.main(["resume", str(run), "--env-steps", "48", "--no-progress", "--allow", "evil"]) == 0
    assert jaxrl.load_result(run, allow="evil").metrics["env_step"].values[-1] == 48
    capsys.readouterr()


def test_weights_import_no_module_named_in_their_metadata(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.numpy
    from safetensors import safe_open

    run = edited(kept, tmp_path / "run", {})
    monkeypatch.syspath_prepend(str(run))
    file = run / "policy.safetensors"
    with safe_open(file, framework="numpy") as stream:
        arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        spec = json.loads(stream.metadata()["jaxrl"])
    spec = {name: value for name, value in spec.items() if name not in ("checksum", "files")}
    spec["environment"] = thing("evil:Thing")
    safetensors.numpy.save_file(arrays, file, metadata={"jaxrl": json.dumps(spec)})
    with pytest.raises(ResultError, match=r"the environment 'evil:Thing' .* pass allow='evil'"):
        load_exported(file)
    assert not (run / "sprung").exists()
    obs = np.zeros(4, np.float32)
    assert load_exported(file, allow="evil")(obs) == load_exported(kept / "policy.safetensors")(obs)


@pytest.mark.slow
def test_a_package_that_is_missing_is_not_looked_for_beside_the_run(kept: Path, tmp_path: Path) -> None:
    run = edited(kept, tmp_path / "run", {})
    code = "import sys; from jaxrl.cli import main; main.main(sys.argv[1:]); print(sys.path[-1])"
    for args, looked in (([], False), (["--allow", "evil"], True)):
        command = [sys.executable, "-P", "-c", code, "evaluate", "--episodes", "1", *args, str(run)]
        done = subprocess.run(command, cwd=run, capture_output=True, text=True, timeout=300, check=True)
        assert (done.stdout.splitlines()[-1] == str(run)) == looked


@pytest.mark.parametrize(
    ("args", "looked"),
    [
        (["evaluate", "runs/x", "--allow", "mine"], True),
        (["evaluate", "runs/x", "--allow=mine"], True),
        (["train", "ppo", "mine:Maze"], True),
        (["train", "my.algorithms:build", "cartpole"], True),
        (["bandit", "--env", "mine:Arms"], True),
        (["bandit", "--env=mine:Arms"], True),
        (["evaluate", "runs/x"], False),
        (["train", "ppo", "cartpole", "--seeds", "7:8"], False),
        (["train", "ppo", "cartpole", "--seeds=7:8"], False),
        (["train", "ppo", "cartpole", "--hparams.discount", "beta:0.98,0.5", "hyperbolic:k=0.02"], False),
        (["render", "runs/x", "--at", "discount=beta:0.98,0.5"], False),
        (["search", "ppo", "cartpole", "--space", "lr=log:1e-4:1e-2", "lam=0.8:1"], False),
        (["search", "ppo", "cartpole", "--storage", "sqlite:///study.db"], False),
        (["train", "ppo", "cartpole", "--coordinator", "host0:1234"], False),
        (["train", "ppo", "cartpole", "--devices", "gpu:0"], False),
        (["train", "ppo", ":Maze"], False),
    ],
)
def test_the_current_directory_is_searched_only_for_modules_that_the_arguments_name(
    args: list[str], looked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(cli, "_dispatch", lambda argv: 0)
    assert cli.main(args) == 0
    assert (os.getcwd() in sys.path) == looked


def test_saving_again_keeps_an_environment_that_is_not_allowed(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = edited(kept, tmp_path / "run", {"environment": thing("evil:Thing")})
    monkeypatch.syspath_prepend(str(run))
    jaxrl.load_result(run).save(tmp_path / "again")
    again = jaxrl.load_result(tmp_path / "again", allow="evil")
    assert again.algo is not None and again.policy(seed=0) is not None


@pytest.mark.parametrize(
    ("name", "module"),
    [("os:system", "os"), ("jaxrl.cli.main:main", "jaxrl.cli.main"), ("envsevil:ppo", "envsevil")],
)
def test_no_function_of_any_module_builds_an_algorithm(name: str, module: str) -> None:
    spec = {"algorithm": name, "environment": {"name": "cartpole", "static": {}}, "config": None}
    with pytest.raises(NotAllowedError, match=f"of the module '{module}'"):
        check_allowed(spec, {"ppo"})


@pytest.mark.parametrize("allow", ["my/algorithms", ["fine", 3], "mine:Thing"])
def test_allow_takes_modules(kept: Path, allow: Any) -> None:
    with pytest.raises(TypeError, match="allow takes names of modules, such as 'my_algorithms', got"):
        jaxrl.load_result(kept, allow=allow)


def test_environments_that_import_modules_by_name_require_permission() -> None:
    static = {"env_id": "evil:Thing-v0"}
    spec = {"algorithm": "ppo", "environment": {"name": "gymnasium/GymV26Environment-v0", "static": static}}
    with pytest.raises(NotAllowedError, match="of the module 'gym'"):
        check_allowed(spec, {"ppo"})
