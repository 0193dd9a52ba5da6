"""Both distributions in dist/, each installed outside the tree into an environment that has nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import ROOT

from jaxrl.version import __version__

pytestmark = pytest.mark.slow
FILES = {"wheel": f"jaxrl-{__version__}-py3-none-any.whl", "sdist": f"jaxrl-{__version__}.tar.gz"}
SHORTER = {"--seeds 64": "--seeds 4", "--env-steps 200000": "--env-steps 8192", "--evals 8": "--evals 2"}
Run = Callable[..., str]


@pytest.fixture(scope="module", params=FILES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs a program of the environment in an empty directory, and returns what it prints."""
    environment = tmp_path_factory.mktemp(request.param)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    # Nothing that the suite sets, or that leads to the tree.
    kept = {name: text for name, text in os.environ.items() if not re.match(r"JAX|XLA|PYTHON|VIRTUAL_ENV|COV", name)}

    def program(name: str, *arguments: str, **variables: str) -> str:
        directory = environment / "work"
        directory.mkdir(exist_ok=True)
        call = [environment / "bin" / name, *arguments]
        done = subprocess.run(
            call, cwd=directory, capture_output=True, text=True, env={**kept, **variables}, timeout=1_800
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
        return done.stdout

    program("python", "-m", "pip", "install", "--quiet", f"{ROOT / 'dist' / FILES[request.param]}[notebooks]")
    program("python", "-m", "pip", "check")
    return program


@pytest.fixture
def work(run: Run) -> Path:
    """The directory in which programs run."""
    return Path(run("python", "-c", "import os; print(os.getcwd())").strip())


def test_it_is_the_installed_one(run: Run) -> None:
    code = "import envs, jaxrl; print(jaxrl.__version__, jaxrl.__file__, envs.__file__)"
    version, *paths = run("python", "-c", code).split()
    assert version == __version__
    assert all("site-packages" in path and str(ROOT) not in path for path in paths)


def test_the_command_explains_itself(run: Run) -> None:
    shown = run("jaxrl", "--help")
    assert all(f" {command} " in shown for command in ("train", "plot", "render", "bandit", "search", "resume"))
    assert "cartpole" in run("jaxrl", "envs")
    assert __version__ in run("jaxrl", "version")


def test_the_demo(run: Run, work: Path) -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert recipe is not None
    lines = re.sub(r"\\\n\s*", " ", recipe[1]).splitlines()
    commands = [line.split("$(BIN)/jaxrl ")[1] for line in lines if line.startswith("\t@$(BIN)/jaxrl ")]
    assert [command.split()[0] for command in commands] == ["train", "plot", "render"]
    for long, short in SHORTER.items():
        assert long in commands[0]
        commands[0] = commands[0].replace(long, short)
    train, *others = (command.split() for command in commands)
    assert "hyperbolic:k=0.020408163" in run("jaxrl", *train)
    for arguments in others:
        run("jaxrl", *arguments)
    for name in ("metrics.nc", "metrics.csv", "return.png", "cartpole.mp4"):
        assert (work / "runs/demo" / name).stat().st_size > 1_000, name


def test_a_bandit(run: Run, work: Path) -> None:
    call = "bandit --env bernoulli --arms 10 --policies ucb1,thompson --steps 500 --runs 50 --out runs/b"
    shown = run("jaxrl", *call.split())
    for policy in ("ucb1", "thompson"):
        assert policy in shown
        assert (work / "runs/b" / policy / "metrics.nc").is_file()


def test_type_checkers_know_its_types(run: Run, work: Path) -> None:
    for name in ("fits.py", "does_not_fit.py"):
        shutil.copy(ROOT / "tests/typed" / name, work)
    python = run("python", "-c", "import sys; print(sys.executable)").strip()
    checker = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python]
    checked = subprocess.run([*checker, "fits.py", "does_not_fit.py"], cwd=work, capture_output=True, text=True)
    mistakes = json.loads(checked.stdout)["generalDiagnostics"]
    reported = {(Path(each["file"]).name, each["range"]["start"]["line"], each["rule"]) for each in mistakes}
    lines = (work / "does_not_fit.py").read_text().splitlines()
    expected = {("does_not_fit.py", at, line.split("# ")[1]) for at, line in enumerate(lines) if "# report" in line}
    assert reported == expected and len(expected) >= 8
    first = {
        **os.environ,
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
    }  # `--verifytypes` takes its Python there
    verify = [*checker[:-2], "--verifytypes", "jaxrl"]
    verified = subprocess.run(verify, cwd=work, capture_output=True, text=True, env=first)
    assert json.loads(verified.stdout)["typeCompleteness"]["pyTypedPath"].endswith("jaxrl/py.typed")


def test_the_quickstart(run: Run, work: Path) -> None:
    notebook = work / "quickstart.ipynb"
    shutil.copy(ROOT / "notebooks/quickstart.ipynb", notebook)
    run("jupyter-execute", "--inplace", "--timeout=1200", str(notebook), JAXRL_NOTEBOOK_SMALL="1")
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert f"jaxrl {__version__}" in json.dumps(cells[0]["outputs"])
