"""The list of planted faults, and the machinery that plants them."""

import ast
import functools
import re
from pathlib import Path
from typing import Any

import planting
import pytest
from faults import AREAS
from page import PAGE, page
from planting import CAUGHT, PASSED, ROOT, Copy, Fault, objection, plant_all

FAULTS = [fault for area in AREAS.values() for fault in area]


def test_there_are_many_faults_of_different_names() -> None:
    assert len(FAULTS) >= 60 and all(AREAS.values())
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({fault[1:4] for fault in FAULTS}) == len(FAULTS)
    assert all(re.fullmatch("[a-z0-9-]+", fault.name) for fault in FAULTS)  # names that a shell takes as they are


@pytest.mark.parametrize("area", AREAS)
def test_every_old_text_occurs_once(area: str) -> None:
    assert [sentence for fault in AREAS[area] if (sentence := objection(fault))] == []


@pytest.mark.parametrize("area", AREAS)
def test_every_changed_file_is_still_python(area: str) -> None:
    for fault in AREAS[area]:
        compile((ROOT / fault.file).read_text().replace(fault.old, fault.new), fault.file, "exec")


def names_in(mark: ast.expr) -> tuple[str, list[Any]]:
    """The name of a mark, such as `slow_rows`, and its arguments; those of other decorators are not looked at."""
    call = mark if isinstance(mark, ast.Call) else ast.Call(mark, [], [])
    values = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    return getattr(call.func, "attr", ""), values


@functools.cache
def functions_in(file: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file by their names."""
    body = ast.parse((ROOT / file).read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def problem(test: str) -> str | None:
    """What is wrong with the name of a test: there is no such function, or it is slow."""
    file, _, name = test.partition("::")
    name, _, row = name.removesuffix("]").partition("[")
    function = functions_in(file).get(name)
    if function is None:
        return f"{test} does not exist"
    marks = dict(map(names_in, function.decorator_list))
    fast = marks.get("fast_rows")
    slow = row in marks.get("slow_rows", []) or (fast and row and not any(part in row for part in fast))
    return f"{test} is marked slow" if "slow" in marks or slow else None


def test_every_named_test_exists_and_is_fast() -> None:
    """By the text of its file; that a row exists too is found by the command."""
    assert [sentence for fault in FAULTS if (sentence := problem(fault.test))] == []


def test_a_name_of_no_fast_test_is_noticed() -> None:
    file = "tests/learning/test_recurrent.py"
    assert problem(f"{file}::test_nothing") == f"{file}::test_nothing does not exist"
    gradients = f"{file}::test_gradients_of_a_sequence_are_those_of_its_steps"
    assert problem(f"{gradients}[lru]") == f"{gradients}[lru] is marked slow"
    assert problem(f"{gradients}[gru]") is None


def test_the_page_is_that_of_the_list() -> None:
    assert PAGE.read_text() == page(), "write it anew with python tests/mutants --page"


SMALL = Fault(
    "small",
    "jaxrl/learning/optimisers.py",
    "return 0.1 ** (env_steps / decay_env_steps)",
    "return 0.2 ** (env_steps / decay_env_steps)",
    "tests/learning/test_optimisers.py::test_an_exponential_schedule_falls_to_a_tenth",
)


def test_a_fault_is_caught_in_a_copy(tmp_path: Path) -> None:
    said: list[str] = []
    outcomes, wrong = plant_all([SMALL], tmp_path / "copies", 1, said.append)
    assert outcomes["small"].verdict == CAUGHT and not wrong
    assert said[-1].endswith("caught  small")
    assert SMALL.old in (ROOT / SMALL.file).read_text()  # only the copy is changed


@pytest.mark.parametrize(
    ("sound", "ended", "sentence"),
    [
        ("passed", {SMALL.test: "passed"}, f"small survives: {SMALL.test} passes with the fault."),
        ("passed", {SMALL.test: "error"}, f"small survives: {SMALL.test} ends with error with the fault."),
        ("passed", "took longer than 600 s", f"with the fault small, {SMALL.test} took longer than 600 s."),
        ("failed", {}, f"{SMALL.test} ends with failed without a fault."),
        (None, {}, f"{SMALL.test} does not exist or is marked slow."),
    ],
)
def test_faults_that_are_not_caught_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sound: str | None, ended: Any, sentence: str
) -> None:
    monkeypatch.setattr(planting, "COPIED", ("jaxrl/learning",))
    monkeypatch.setattr(planting, "LOGS", tmp_path / "logs")
    changed = []

    def run_tests(folder: Path, tests: list[str], log: Path, longest: float) -> Any:
        changed.append(SMALL.new in (folder / SMALL.file).read_text())
        if changed[-1]:
            return ended
        return {f"{test}[row]": sound for test in tests if sound and test == SMALL.test}

    monkeypatch.setattr(planting, "run_tests", run_tests)
    outcomes, wrong = plant_all([SMALL], tmp_path / "copies", 2, lambda line: None)
    assert wrong == [sentence]
    assert len(outcomes) == (sound == "passed") and changed == [False, True][: 1 + len(outcomes)]


def test_a_test_that_does_not_exist_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pytest runs none of the named tests where one of them does not exist."""
    monkeypatch.setattr(planting, "COPIED", ())
    monkeypatch.setattr(planting, "LOGS", tmp_path)

    def run_tests(folder: Path, tests: list[str], log: Path, longest: float) -> Any:
        return {} if "missing" in tests else dict.fromkeys(tests, "passed")

    monkeypatch.setattr(planting, "run_tests", run_tests)
    outcomes = Copy(tmp_path / "copy").sound(["a", "b", "missing", "c"], "sound")
    assert [name for name, outcome in outcomes.items() if outcome.verdict == PASSED] == ["a", "b", "c"]
    assert outcomes["missing"].verdict == "missing does not exist or is marked slow."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old": "nothing like it"}, "the old text of small must occur exactly once in .*, but occurs 0 times"),
        ({"old": "env_steps"}, r"must occur exactly once in .*, but occurs \d\d times"),
        ({"file": "jaxrl/nothing.py"}, "small changes jaxrl/nothing.py, which does not exist"),
        ({"new": SMALL.old}, "the new text of small equals the old one"),
    ],
)
def test_a_text_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        outcomes, wrong = plant_all([SMALL._replace(**change)], tmp_path, 1, print)
        assert not outcomes and not any(tmp_path.iterdir())
        raise AssertionError(*wrong)
