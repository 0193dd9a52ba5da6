"""Imports point one way between packages, without circles between modules."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A package imports only packages of earlier rows; packages of one row do not import each other.
ROWS = """version lazy | checks | discounts | learning | sweeps | algorithms | presets | results | tracking | runtime
| policies tuning bandits | report | cli"""
ORDER = {package: row for row, packages in enumerate(ROWS.split("|")) for package in packages.split()}


def modules() -> dict[str, set[str]]:
    """The modules of jaxrl and envs, each with its imports from them, at any place in its text."""
    files = [file for package in ("jaxrl", "envs") for file in (ROOT / package).rglob("*.py")]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    imports = {}
    for name, file in names.items():
        nodes = list(ast.walk(ast.parse(file.read_text())))
        taken = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                taken |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        imports[name] = {each for each in taken if each in names and each != name}
    return imports


MODULES = modules()


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"jaxrl"}))
def test_imports_point_to_earlier_packages(module: str):
    root, _, rest = module.partition(".")
    if root == "envs":
        assert not [name for name in MODULES[module] if name.startswith("jaxrl")]
        return
    own = rest.partition(".")[0]
    for name in MODULES[module] - {"jaxrl"}:
        package = name.split(".")[1] if name.startswith("jaxrl.") else own
        assert package == own or ORDER[package] < ORDER[own], f"{module} imports {name}"


def test_there_is_no_circle():
    # A package's `__init__` exports definitions of its modules, so that a module may import it without a circle.
    packages = {name for name in MODULES if any(other.startswith(f"{name}.") for other in MODULES)}
    list(graphlib.TopologicalSorter({name: MODULES[name] - packages for name in MODULES}).static_order())


@pytest.mark.slow_rows("jaxrl.bandits.bounds")
@pytest.mark.parametrize(
    "leaf", ["jaxrl.discounts", "jaxrl.learning.advantages", "jaxrl.results.plotting", "jaxrl.bandits.bounds"]
)
def test_leaves_load_no_runtime(leaf: str):
    code = f"import sys, {leaf}; sys.exit(any(name.startswith('jaxrl.runtime') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
