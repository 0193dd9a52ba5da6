"""Deprecated names warn at the caller's line, name the release that removes them, and are gone when it comes."""

import ast
import dataclasses
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from documents import ROOT
from flax import struct

from jaxrl.deprecation import DeprecatedWarning, removal, warn_deprecated
from jaxrl.version import __version__


def numbers(release: str) -> tuple[int, ...]:
    """The major and the minor number of a version."""
    return tuple(int(number) for number in release.split(".")[:2])


def overdue(text: str, version: str) -> list[str]:
    """The first arguments of the deprecations in a module that the release of `version` removes."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    named = [call for call in calls if getattr(call.func, "id", getattr(call.func, "attr", None)) == "warn_deprecated"]
    late = []
    for call in named:
        (since,) = (ast.literal_eval(each.value) for each in call.keywords if each.arg == "since")
        if numbers(removal(since)) <= numbers(version):
            late.append(ast.literal_eval(call.args[0]))
    return late


def test_the_warning_is_at_the_line_of_the_user(tmp_path: Path) -> None:
    inside = 'from jaxrl.deprecation import warn_deprecated\ndef old():\n    warn_deprecated("a", "b", since="0.2")\n'
    library: dict[str, object] = {"__name__": "jaxrl.results.old"}
    exec(compile(inside + "def outer():\n    old()\n", "library.py", "exec"), library)
    user: dict[str, object] = {"__name__": "study", "outer": library["outer"]}
    with pytest.warns(DeprecatedWarning) as caught:
        exec(compile("\n\nouter()\n", "study.py", "exec"), user)
    (warning,) = caught
    assert (warning.filename, warning.lineno) == ("study.py", 3)
    assert str(warning.message) == "a is deprecated since jaxrl 0.2 and is removed in 0.4; use b."


def test_python_shows_the_warning_by_default() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)  # as Python begins
        warn_deprecated("a", "b", since="1.9")
    assert [each.category for each in caught] == [DeprecatedWarning]


SETTING = """
@struct.dataclass
class Setting:
    lr: float = 0.1

    def __post_init__(self):
        if self.lr != 0.1:
            warn_deprecated("lr", since="0.2")
"""


@pytest.mark.parametrize("copying", ["setting.replace(lr=1.0)", "dataclasses.replace(setting, lr=1.0)"])
def test_a_field_warns_at_the_line_of_the_user(copying: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("jaxrl.settings")
    monkeypatch.setitem(sys.modules, "jaxrl.settings", module)
    vars(module).update(warn_deprecated=warn_deprecated, struct=struct)
    exec(compile(SETTING, "library.py", "exec"), vars(module))
    user = {"__name__": "study", "dataclasses": dataclasses, "setting": vars(module)["Setting"]()}
    with pytest.warns(DeprecatedWarning) as caught:
        exec(compile(f"\n\n{copying}\n", "study.py", "exec"), user)
    assert [(each.filename, each.lineno) for each in caught] == [("study.py", 3)]
    assert str(caught[0].message) == "lr is deprecated since jaxrl 0.2 and is removed in 0.4."


@pytest.mark.parametrize(("since", "removed"), [("0.2", "0.4"), ("0.9", "0.11"), ("1.0", "2.0"), ("3.12", "4.0")])
def test_it_works_in_two_releases(since: str, removed: str) -> None:
    assert removal(since) == removed


@pytest.mark.parametrize("since", ["0.2.0", "0", "", "next", "v0.2"])
def test_a_release_is_two_numbers(since: str) -> None:
    with pytest.raises(ValueError, match=rf"^since takes a release such as '0.2', got '{since}'$"):
        warn_deprecated("a", "b", since=since)


def test_no_deprecation_is_overdue() -> None:
    for package in ("jaxrl", "envs"):
        for path in (ROOT / package).rglob("*.py"):
            assert not overdue(path.read_text(), __version__), path


def test_overdue_deprecations_are_detected() -> None:
    text = 'warn_deprecated("a", "b", since="0.2")\ndeprecation.warn_deprecated("c", "d", since="0.10")'
    assert overdue(text, "0.3.9") == []
    assert overdue(text, "0.4.0") == ["a"]
    assert overdue(text, "0.12.0") == ["a", "c"]
