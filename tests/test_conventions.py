"""Conventions of docstrings and annotations that ruff does not check."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Verbs in the third person that are not also the plural of a noun, such as "Steps", with which a docstring may begin.
THIRD_PERSON = """
    Adds Advances Appends Applies Broadcasts Builds Checks Chooses Closes Collects Compares Compiles Computes Connects
    Converts Copies Counts Creates Decorates Deletes Disables Divides Does Draws Enables Evaluates Executes Extracts
    Fails Finishes Follows Gathers Gets Gives Imports Joins Keeps Kills Lets Loads Makes Maps Merges Moves Opens Pads
    Parses Passes Prevents Prints Puts Raises Reads Rebuilds Records Refuses Rejects Releases Removes Repeats Replaces
    Replicates Reports Reshapes Resolves Resumes Saves Says Searches Sends Sets Shows Silences Slices Splits Stops
    Stores Submits Takes Tells Trains Turns Unrolls Updates Uses Waits Warns Watches Writes
"""


def functions(folder: str) -> list[tuple[Path, ast.FunctionDef]]:
    """The functions of all files below a folder, each with its file."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted((ROOT / folder).rglob("*.py"))}
    return [(file, node) for file in trees for node in ast.walk(trees[file]) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("folder", ["jaxrl", "envs", "bench", "tests", "requirements"])
def test_docstrings_of_functions_that_act_are_imperatives(folder: str) -> None:
    docstrings = [(file, node.name, ast.get_docstring(node) or "") for file, node in functions(folder)]
    firsts = [(file, name, text.partition(" ")[0].rstrip(",;:")) for file, name, text in docstrings if text]
    verbs = set(THIRD_PERSON.split())
    assert firsts
    assert not [f"{file}: {name}: {first}" for file, name, first in firsts if first in verbs]


def test_at_most_a_twentieth_of_all_parameters_is_annotated_any() -> None:
    parameters = [
        parameter
        for _, node in [*functions("jaxrl"), *functions("envs")]
        for parameter in ast.walk(node.args)
        if isinstance(parameter, ast.arg) and parameter.arg not in ("self", "cls")
    ]
    untyped = [each for each in parameters if each.annotation is None or ast.unparse(each.annotation) == "Any"]
    assert len(parameters) > 5000
    assert len(untyped) <= 0.05 * len(parameters), f"{len(untyped)} of {len(parameters)}"
