"""Imports point one way between packages, without circles between modules."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Rows of the parts (packages and modules) of a package: a part imports only parts of earlier rows.
ROWS = {
    "jaxrl": """version lazy deprecation pytrees importing | checks | discounts | learning | sweeps | algorithms
        | presets | results | tracking | runtime | policies tuning bandits
        | benchmark | report distributed hazards plotting statistics | cli""",
    "jaxrl.runtime": """machine hosts loop | accelerators | layout options laws | call programs
        | runs evaluate_again checkpoints warm_start | plan drive merging | env_sharding | execution | training
        | resuming plan_call shard_identities""",
    "envs": """terminal pytrees | loops | errors spelling threefry law_progress casting | settings arguments deprecation
        | files base discount_curves | choices | abstract_checking gymnax_environment registry probes
        | checking wrappers bandits control decision memory games crowd | cooperation pde | rendering | adapters""",
    "envs.adapters": "incoming outgoing",
}
ORDER = {
    f"{package}.{part}": row
    for package, rows in ROWS.items()
    for row, parts in enumerate(rows.split("|"))
    for part in parts.split()
}


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


def part_of(module: str, package: str) -> str | None:
    """The part of the package that a module is or is in; None for another package's, and for the package itself."""
    inside = module.startswith(f"{package}.")
    return ".".join(module.split(".")[: package.count(".") + 2]) if inside else None


@pytest.mark.parametrize("package", ROWS)
def test_every_part_of_a_package_has_a_row(package: str):
    parts = {part_of(module, package) for module in MODULES} - {None}
    assert parts == {part for part in ORDER if part.rpartition(".")[0] == package}


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"jaxrl"}))
def test_imports_point_to_earlier_rows(module: str):
    if module.startswith("envs"):
        assert not [name for name in MODULES[module] if name.startswith("jaxrl")]
    for package in ROWS:
        own = part_of(module, package)
        for other in {part_of(name, package) for name in MODULES[module]} - {None, own}:
            assert own is None or ORDER[str(other)] < ORDER[own], f"{module} imports {other}"


def test_there_is_no_circle():
    # A package's `__init__` exports definitions of its modules, so that a module may import it without a circle.
    packages = {name for name in MODULES if any(other.startswith(f"{name}.") for other in MODULES)}
    list(graphlib.TopologicalSorter({name: MODULES[name] - packages for name in MODULES}).static_order())


@pytest.mark.slow_rows("jaxrl.bandits.bounds")
@pytest.mark.parametrize(
    "leaf", ["jaxrl.discounts", "jaxrl.learning.advantages", "jaxrl.plotting", "jaxrl.bandits.bounds"]
)
def test_leaves_load_no_runtime(leaf: str):
    code = f"import sys, {leaf}; sys.exit(any(name.startswith('jaxrl.runtime') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
