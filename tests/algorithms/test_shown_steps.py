"""The steps that tutorials show are those of the algorithms' files."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def without_types(function: ast.FunctionDef) -> str:
    """Body of a function, whose inner functions have no annotations."""
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return "\n".join(ast.unparse(statement) for statement in function.body)


@pytest.mark.parametrize(("page", "name"), [("network", "ppo"), ("copied-algorithm", "td3")])
def test_a_tutorial_shows_the_step_of_an_algorithm(page: str, name: str) -> None:
    text = (ROOT / f"docs/tutorials/{page}.md").read_text()
    (shown,) = re.findall(r"```text\n(hparams = agent\.(?:prepare|current|scheduled).*?)```", text, flags=re.DOTALL)
    (expected,) = ast.parse("def step():\n" + textwrap.indent(shown, "    ")).body
    (actual,) = (
        node
        for node in ast.walk(ast.parse((ROOT / f"jaxrl/algorithms/{name}.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "step"
    )
    assert isinstance(expected, ast.FunctionDef)
    assert without_types(actual) == without_types(expected)
