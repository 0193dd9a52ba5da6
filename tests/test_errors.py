"""User errors are raised as classes of `envs.errors`, by which the command line distinguishes them from bugs."""

import ast
from pathlib import Path

import pytest

from envs import errors

ROOT = Path(__file__).parents[1]
PLAIN = {"ValueError", "TypeError", "ImportError", "FileExistsError"}
# This module reports that another package hides `envs`, and may import nothing from `envs` before that.
BEFORE_ENVS = "jaxrl/__init__.py"
FILES = [file for package in ("envs", "jaxrl") for file in (ROOT / package).rglob("*.py")]


@pytest.mark.parametrize("file", [file.relative_to(ROOT).as_posix() for file in sorted(FILES)])
def test_refusals_are_classes_of_ours(file: str) -> None:
    raised = [node.exc for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.Raise)]
    calls = [at.func for at in raised if isinstance(at, ast.Call)]
    assert file == BEFORE_ENVS or not [at.id for at in calls if isinstance(at, ast.Name) and at.id in PLAIN]


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"UserError", "installing"}))
def test_each_class_is_one_of_pythons_too(name: str) -> None:
    kind = vars(errors)[name]
    assert issubclass(kind, errors.UserError) and issubclass(kind, (ValueError, TypeError, ImportError, OSError))
    assert str(kind("one sentence.")) == "one sentence."
