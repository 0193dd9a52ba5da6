"""The functions of a package that take arrays, read from its text, and whether they open with assertions of shapes."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
# Types that hold no array; a function with another type asserts its shape, or is exempt.
WITHOUT_ARRAYS = {
    "int",
    "int | None",
    "str",
    "float",
    "tuple[int, ...]",
    "Environment",
    "EnvShards | None",
    "nn.Module",
    "spaces.Space",
    "ActionHead",
    "LamWeights",
}
# Conversions, and checks of a user's arguments.
BEFORE = (ast.Assign, ast.AnnAssign, ast.Delete, ast.If, ast.Import, ast.ImportFrom)


def array_functions(package: str) -> dict[str, ast.FunctionDef]:
    """The public functions of a package that take an array or a tree, by "module.function" or "module.Class.method"."""
    functions = {}
    for file in sorted((ROOT / "jaxrl" / package).glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions[f"{file.stem}.{node.name}"] = node
            elif isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                public = [each for each in methods if not each.name.startswith("_") or each.name == "__call__"]
                functions |= {f"{file.stem}.{node.name}.{method.name}": method for method in public}
    return {name: function for name, function in functions.items() if _takes_arrays(function)}


def _takes_arrays(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    types = [ast.unparse(each.annotation) for each in arguments if each.annotation is not None]
    return any(each not in WITHOUT_ARRAYS and not each.startswith("Callable") for each in types)


def opens_with_assertions(function: ast.FunctionDef, asserting: frozenset[str] = frozenset()) -> bool:
    """Whether only conversions and checks precede the first call of chex, or of a helper with assertions."""
    for statement in function.body[ast.get_docstring(function) is not None :]:
        if isinstance(statement, ast.FunctionDef):
            return False
        if "chex.assert_" in ast.unparse(statement) or _calls(statement) & asserting:
            return True
        if not isinstance(statement, BEFORE):
            return False
    return False


def _calls(statement: ast.stmt) -> set[str]:
    """The names of the functions and methods that are called in a statement."""
    called = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    names = {each.id for each in called if isinstance(each, ast.Name)}
    return names | {each.attr for each in called if isinstance(each, ast.Attribute)}


def assert_complete(
    package: str, exempt: dict[str, str], tested: set[str], asserting: frozenset[str] = frozenset()
) -> None:
    """Check that every function of a package that takes arrays opens with tested assertions, or is exempt.

    Args:
      package: Name of the package.
      exempt: Reasons by name of the functions that need no assertion.
      tested: Names of the functions that are called with a wrong shape.
      asserting: Names of the helpers that assert in place of their callers.
    """
    functions = array_functions(package)
    opening = {name for name, function in functions.items() if opens_with_assertions(function, asserting)}
    assert sorted(functions.keys() - opening) == sorted(exempt), "those without an assertion, and the exempt ones"
    assert sorted(opening - tested) == [], "those without a call of a wrong shape"


def assert_refused(call: Callable[[], Any], argument: str) -> None:
    """Check that the call fails in an assertion of chex whose message names `argument`."""
    named = rf"(?s)^\[Chex\] .*\[([^\[\]]*, )?{argument}(, [^\[\]]*)?\](\n|$)"
    with pytest.raises((AssertionError, ValueError), match=named):
        call()
