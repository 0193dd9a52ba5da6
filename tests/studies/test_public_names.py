"""The studies use public names alone.

A name is public if `docs/reference` shows it, in one of two ways. A section of its module, `::: module`, lists it among
its members or, without such a list, the module has it in `__all__`. Or its module is `envs`, `jaxrl` or one of the
reference's table of modules, and has it in `__all__`.
"""

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "bench/studies").glob("*.py"))
REFERENCE = "\n".join(page.read_text() for page in sorted((ROOT / "docs/reference").glob("*.md")))
SECTION = re.compile(r"^::: (\S+)$(?:\n    options:\n      members: \[(.*)\]$)?", flags=re.MULTILINE)
MODULE = re.compile(r"^\| `((?:envs|jaxrl)[\w.]*)` \|", flags=re.MULTILINE)


def public_names() -> dict[str, set[str]]:
    """Public names by module."""
    listed = {module: members.split(", ") if members else None for module, members in SECTION.findall(REFERENCE)}
    listed |= dict.fromkeys(("envs", "jaxrl"))
    names = {module: set(members or exported(importlib.import_module(module))) for module, members in listed.items()}
    for path in MODULE.findall(REFERENCE):
        package, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(package), name, None) if package else None
        value = importlib.import_module(path) if value is None else value
        if isinstance(value, ModuleType):
            names[path] = set(exported(value))
    return names


def exported(module: ModuleType) -> list[str]:
    """The names in `__all__`, or without it those that the module defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


PUBLIC = public_names()


def private_names(text: str) -> list[str]:
    """The names of jaxrl and envs in a module's text that are not public, at any place in it."""
    tree = ast.parse(text)
    used: set[tuple[str, str]] = set()
    bound: dict[str, str] = {}  # modules by the names that they have in the text
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in ("envs", "jaxrl"):
                    bound[alias.asname or alias.name.partition(".")[0]] = alias.name
                    used |= {(alias.name, "*")} - {(module, "*") for module in PUBLIC}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("envs", "jaxrl"):
            for alias in node.names:
                used.add((str(node.module), alias.name))
                if f"{node.module}.{alias.name}" in PUBLIC:
                    bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := module_of(node.value, bound)) is not None:
            used.add((module, node.attr))
    return sorted(".".join(each) for each in used if each[1] not in PUBLIC.get(each[0], ()))


def module_of(node: ast.expr, bound: dict[str, str]) -> str | None:
    """The public module that an expression names, such as `jaxrl.statistics`."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute) and (parent := module_of(node.value, bound)) is not None:
        return path if (path := f"{parent}.{node.attr}") in PUBLIC else None
    return None


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_studies_use_public_names(file: Path):
    assert not private_names(file.read_text())


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("import jaxrl\njaxrl.train", []),
        ("from jaxrl import statistics as s\ns.iqm", []),
        ("from jaxrl.results.statistics import iqm", []),
        ("def f():\n    from envs.crowd import Crowd", []),
        ("import jaxrl\njaxrl.statistics.resample", ["jaxrl.statistics.resample"]),
        ("import jaxrl\njaxrl.learning", ["jaxrl.learning"]),
        ("import jaxrl.runtime.drive.driver", ["jaxrl.runtime.drive.driver.*"]),
        ("from jaxrl.runtime.drive.driver import drive", ["jaxrl.runtime.drive.driver.drive"]),
        ("from jaxrl import *", ["jaxrl.*"]),
        ("def f():\n    from jaxrl.checks import short", ["jaxrl.checks.short"]),
        ("from envs.crowd import contacts", ["envs.crowd.contacts"]),
    ],
)
def test_private_names_are_noticed(text: str, private: list[str]):
    assert private_names(text) == private
