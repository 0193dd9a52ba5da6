"""Number of files that a reader of an algorithm has to follow."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxrl.algorithms import registry

ROOT = Path(__file__).parents[2]
LIMITS = {
    "dqn": 33,
    "pqn": 34,
    "ppo": 29,
    "sac": 33,
    "td3": 33,
}  # files of algorithms/ and learning/, the algorithm's own included
OTHERS = 28
MODULES = 26


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, at its top and within functions, and names that may be modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def reached(module: str) -> set[str]:
    """Modules of `jaxrl.algorithms` and `jaxrl.learning` that a module reaches by imports, itself included."""
    seen, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        places = (ROOT / f"{name.replace('.', '/')}.py", ROOT / name.replace(".", "/") / "__init__.py")
        path = next((path for path in places if path.is_file()), None)
        if name.startswith("jaxrl.") and name not in seen and path is not None:
            seen.add(name)
            waiting += imports(path)
    return {name for name in seen if name.startswith(("jaxrl.algorithms.", "jaxrl.learning."))}


@pytest.mark.parametrize("name", registry.ROWS)
def test_an_algorithm_reaches_few_files(name: str) -> None:
    module = registry.ROWS[name].builder.partition(":")[0]
    files = reached(module)
    assert module in files and "jaxrl.algorithms.contract" in files
    assert len(files) <= LIMITS.get(name, OTHERS), sorted(files)


def test_the_package_of_algorithms_has_few_files() -> None:
    assert len(list((ROOT / "jaxrl/algorithms").rglob("*.py"))) <= MODULES


def test_no_algorithm_imports_another() -> None:
    modules = {row.builder.partition(":")[0] for row in registry.ROWS.values()}
    for module in modules:
        assert not modules & reached(module) - {module}, module
