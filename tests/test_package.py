"""The package as a whole: its public names, the cost of importing it, and addresses that it must own."""

import ast
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import jaxrl
from jaxrl.lazy import imported_names
from jaxrl.version import REPOSITORY, __version__

ROOT = Path(__file__).parent.parent
PUBLIC_MODULES = sorted(name for name, (module, _) in imported_names("jaxrl").items() if module == "jaxrl")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MUJOCO = ("mujoco", "mujoco-mjx")  # Brax and Playground import them


def run_python(code: str, **environment: str) -> str:
    """The standard output of `code` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", jaxrl.__all__)
def test_every_public_name_can_be_imported(name: str):
    value = getattr(jaxrl, name)
    if not isinstance(value, str) and not isinstance(value, type(jaxrl)):
        assert value.__doc__, f"jaxrl.{name} has no docstring"


@pytest.mark.parametrize("package", [jaxrl, jaxrl.bandits], ids=lambda package: package.__name__)
def test_public_names_are_those_that_type_checkers_resolve(package: Any):
    eager = {"__version__"} if package is jaxrl else set()
    names = imported_names(package.__name__)
    assert set(package.__all__) == set(names) | eager and len(package.__all__) == len(names) + len(eager)
    assert set(package.__all__) <= set(dir(package))
    for name, (module, attribute) in names.items():
        scope: dict[str, Any] = {}
        exec(f"from {module} import {attribute}", scope)
        assert getattr(package, name) is scope[attribute]


@pytest.mark.parametrize("package", [jaxrl, jaxrl.bandits], ids=lambda package: package.__name__)
def test_functions_are_not_hidden_by_modules(package: Any):
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    public = set(PUBLIC_MODULES) if package is jaxrl else {"bounds"}
    assert modules & set(package.__all__) == public
    for name in modules:
        importlib.import_module(f"{package.__name__}.{name}")
    assert all(
        callable(getattr(package, name)) for name in ("train", "ppo", "plan", "policy") if name in package.__all__
    )


def test_public_modules_can_be_imported_by_their_names():
    names = ", ".join(f"jaxrl.{name}" for name in PUBLIC_MODULES)
    assert run_python(f"import {names}; print(jaxrl.statistics.iqm([1.0, 2.0, 3.0]))") == "2.0\n"
    for name in PUBLIC_MODULES:
        module = importlib.import_module(f"jaxrl.{name}")
        assert getattr(jaxrl, name) is module
        assert module.__all__ and all(hasattr(module, each) for each in module.__all__), name


def test_an_unknown_name_gets_near_matches():
    with pytest.raises(AttributeError, match=r"no attribute 'Hyperbollic'; did you mean Hyperbolic"):
        _ = jaxrl.Hyperbollic  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(jaxrl, "qqqqqq")


def test_importing_jaxrl_imports_nothing_slow():
    code = """
import sys
before = set(sys.modules)
import jaxrl
print(sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""
    imported = set(ast.literal_eval(run_python(code)))
    assert imported.isdisjoint({"jax", "numpy", "flax", "optax", "gymnax", "distrax", "matplotlib", "xarray", "envs"})


def import_seconds(code: str, after: str = "pass") -> float:
    """The least processor time of `code` in three fresh interpreters, because a busy machine or a cold disk adds time.

    The first of them may store the bytecode, as installers do, wherever `PYTHONDONTWRITEBYTECODE` says not to. The
    garbage collector is off: a full pass visits every object of the libraries, and whether one falls into `code`
    depends on how many objects there are.
    """
    timed = f"""
import gc, time
gc.disable()
{after}
start = time.process_time()
{code}
print(time.process_time() - start)
"""
    return min(float(run_python(timed, PYTHONDONTWRITEBYTECODE="")) for _ in range(3))


def test_importing_jaxrl_takes_under_a_second():
    assert import_seconds("import jaxrl") < 1.0


@pytest.mark.slow
def test_first_use_costs_little_more_than_its_libraries():
    first_use = "import jaxrl; jaxrl.ppo, jaxrl.train, jaxrl.grid, jaxrl.ugae"
    assert import_seconds(first_use, after="import jax, gymnax, distrax, optax") < 0.3


def refusal(*lines: str) -> str:
    """The message of the ImportError of `jaxrl.ppo` after lines of a program."""
    attempt = ("try:", "    jaxrl.ppo", "except ImportError as error:", "    print(error)")
    return run_python("\n".join(["import sys", *lines, *attempt]))


def test_another_envs_package_is_named_in_one_sentence(tmp_path: Path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    message = refusal("import jaxrl", f"sys.path.insert(0, {str(tmp_path)!r})")
    assert str(tmp_path / "envs") in message
    assert "hides the one that comes with jaxrl" in message
    assert len(message.splitlines()) == 1


def test_an_envs_package_that_replaced_files_of_jaxrl_is_named(tmp_path: Path):
    shutil.copytree(ROOT / "jaxrl", tmp_path / "jaxrl", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/__init__.py").write_text("env = None\n")
    expected = f"{tmp_path / 'envs/__init__.py'} is of another package 'envs': uninstall it and install jaxrl again"
    assert refusal(f"sys.path.insert(0, {str(tmp_path)!r})", "import jaxrl").strip() == expected


def own_addresses(text: str) -> list[str]:
    """The addresses and package indices in a text at which a reader would expect this project."""
    text = "\n".join(line for line in text.splitlines() if "jaxrl" in line)
    words = re.split(r"[\s\"'`<>(){}\[\]]+", text)
    hosted = [word for word in words if re.search(r"://|git@|\.(?:com|io|org)\b", word)]
    named = [word for word in hosted if re.search(r"(?<![\w-])jaxrl(?![\w-])", word)]
    return named + re.findall(r"\bpip3? install (?:-\S+ )*[\"']?jaxrl\b(?![./-])", text)


def text_files() -> list[Path]:
    """The files of the project that hold text: all but those in folders that .gitignore names."""
    ignored = {"build", "dist", "runs", "__pycache__"}
    hidden = {".ci", ".github"}
    tops = [top for top in ROOT.iterdir() if top.name in hidden or (top.name[0] != "." and top.name not in ignored)]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    return [path for path in paths if path.is_file() and not ignored & {*path.parts} and b"\0" not in path.read_bytes()]


def test_no_text_leads_to_an_address_that_the_project_does_not_own():
    files = text_files()
    names = (
        "README.md",
        "mkdocs.yml",
        "notebooks/quickstart.ipynb",
        ".github/workflows/docs.yml",
        "requirements/locked.txt",
    )
    assert {Path(__file__), *(ROOT / name for name in names)} <= set(files)
    for path in files:
        for address in own_addresses(path.read_text()):
            assert REPOSITORY and REPOSITORY in address, f"{path.relative_to(ROOT)} names {address}"


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/{0}/{0}",
        "git+https://github.com/someone/{0}.git",
        "git@github.com:someone/{0}.git",
        "https://colab.research.google.com/github/{0}/{0}/blob/main/notebooks/quickstart.ipynb",
        "https://raw.githubusercontent.com/someone/{0}/main/docs/pictures/x.png",
        "github.com/someone/{0}",
        "https://{0}.github.io/docs",
        "https://{0}.readthedocs.io",
        "https://pypi.org/project/{0}/",
        "https://img.shields.io/pypi/v/{0}",
        "pip install {0}",
        "pip install -U '{0}[export]'",
        'pip install "{0}[cuda12] @ somewhere',
    ],
)
def test_addresses_of_the_project_are_noticed(address: str):
    assert own_addresses(f"See [this]({address.format('jaxrl')}).")


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/luchris429/purejaxrl",
        "https://github.com/google/brax",
        "pip install '.[export]' in a clone of jaxrl",
    ],
)
def test_addresses_of_others_stay(text: str):
    assert not own_addresses(text)


def test_the_version_is_known_to_the_installer():
    from importlib import metadata

    assert PROJECT["tool"]["hatch"]["version"]["path"] == "jaxrl/version.py"
    try:
        installed = metadata.version("jaxrl")
    except metadata.PackageNotFoundError:
        pytest.skip("jaxrl runs from a source tree that is not installed")
    assert installed == __version__


def test_notebooks_are_stored_without_outputs():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs"), f"{path.name} was saved with outputs"


def test_notebooks_begin_alike_and_have_a_small_size():
    begins = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert "In Colab, upload" in "".join(cells[0]["source"]), f"{path.name} does not say how to use it in Colab"
        first = "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code"))
        begin, small, sizes = first.partition('SMALL = os.environ.get("JAXRL_NOTEBOOK_SMALL") == "1"')
        assert small and " if SMALL else " in sizes, path.name
        begins.add(begin)
    assert len(begins) == 1


def first_cell() -> str:
    """The first cell of code of a notebook, up to what differs from the others."""
    cells = json.loads((ROOT / "notebooks/quickstart.ipynb").read_text())["cells"]
    return "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code")).partition("SMALL = ")[0]


ADDRESS = "https://example.org/publisher/project"


def installed_by_notebooks(address: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the first cell of a notebook asks pip for, where jaxrl is not installed and has a public address."""
    asked: list[str] = []

    def run(call: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "nvidia-smi" in call:
            raise FileNotFoundError
        asked.append(call[-1])
        return subprocess.CompletedProcess(call, 0)

    cell = first_cell().partition("import jax\n")[0]
    assert '\nADDRESS = ""  #' in cell
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", run)
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        patch.delenv("COLAB_TPU_1VM", raising=False)
        patch.setattr(os.path, "exists", lambda path: False)  # devices of TPUs
        exec(cell.replace('ADDRESS = ""', f"ADDRESS = {address!r}"), {})
    return asked


def test_notebooks_install_from_a_clone_a_file_or_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="jaxrl is not installed, and no clone of it is here"):
        installed_by_notebooks("", monkeypatch)
    assert installed_by_notebooks(ADDRESS, monkeypatch) == [f"jaxrl @ git+{ADDRESS}"]
    assert capsys.readouterr().out.endswith(f"Installed jaxrl from {ADDRESS}.\n")
    for name in ("jaxrl.zip", "jaxrl-0.1.0-py3-none-any.whl"):  # the wheel, where both are there
        (tmp_path / name).touch()
        assert installed_by_notebooks(ADDRESS, monkeypatch) == [str(tmp_path / name)]
    monkeypatch.chdir(ROOT / "notebooks")
    assert installed_by_notebooks("", monkeypatch) == [str(ROOT)]
    assert f"Installed jaxrl from {ROOT}.\n" in capsys.readouterr().out


def test_notebooks_have_the_address_of_the_repository():
    (address,) = re.findall(r'^ADDRESS = "(.*)"  #', first_cell(), flags=re.MULTILINE)
    assert address == REPOSITORY


def test_imports_match_the_declared_dependencies():
    imported = set()
    for path in [*(ROOT / "jaxrl").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    imported -= {"jaxrl", "envs", "__future__", *sys.stdlib_module_names}

    def declared(requirements: list[str]) -> set[str]:
        names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}  # pyright: ignore[reportOptionalSubscript]
        modules = {"pillow": "PIL", "orbax-checkpoint": "orbax", "playground": "mujoco_playground"}
        return {modules.get(name, name.replace("-", "_")) for name in names}

    # xarray writes files by h5netcdf.
    always = declared(PROJECT["project"]["dependencies"]) - {"h5netcdf"}
    extras = PROJECT["project"]["optional-dependencies"].keys() - {"dev", "docs", "notebooks", "test"}
    optional = set().union(*(declared(PROJECT["project"]["optional-dependencies"][extra]) for extra in extras))
    optional.add("pygame")  # gymnasium[classic-control]
    assert always <= imported <= always | optional


def test_mujoco_and_its_jax_version_have_the_same_bounds():
    extras = PROJECT["project"]["optional-dependencies"]
    bounds = {name: re.findall(rf"^{name}([<>=].*)$", "\n".join(extras["brax"]), flags=re.M) for name in MUJOCO}
    assert bounds["mujoco"] == bounds["mujoco-mjx"] == [">=3.6,<4"]
    assert "jaxrl[brax]" in extras["playground"]


def test_envs_imports_nothing_of_jaxrl():
    for path in (ROOT / "envs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(module.split(".")[0] == "jaxrl" for module in modules), path
