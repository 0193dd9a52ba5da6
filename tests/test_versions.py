"""The locked versions are complete, and allowed by pyproject.toml on every Python; the lowest are its lower bounds."""

import importlib.util
import itertools
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from typing import Any

import pytest
from documents import ROOT
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = (ROOT / "requirements/locked.txt").read_text()
PYTHONS = ("3.11.5", "3.12.0", "3.13.0")
MAKEFILE = (ROOT / "Makefile").read_text()
# Extras that targets of the Makefile install.
EXTRAS = sorted(set(re.findall(r"\$\(call stamp,(\w+(?:\$\(comma\)\w+)*)\)", MAKEFILE)))


def script() -> Any:
    """The module that make runs, which no package contains."""
    specification = importlib.util.spec_from_file_location("versions", ROOT / "requirements/versions.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


versions = script()


def pins(lines: list[str], python: str) -> dict[str, Version]:
    """The versions in lines of a lock file that hold on Linux for a Python version."""
    environment = {**default_environment(), "python_full_version": python, "python_version": python.rpartition(".")[0]}
    chosen = {}
    for line in lines:
        if not line.startswith(" "):
            requirement = Requirement(line.removesuffix("\\").strip())
            if requirement.marker is None or requirement.marker.evaluate(environment):
                assert requirement.name not in chosen, line
                (pinned,) = requirement.specifier
                assert pinned.operator == "=="
                chosen[versions.name_of(requirement.name)] = Version(pinned.version)
    return chosen


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("extras", EXTRAS)
def test_locked_versions_are_allowed(extras: str, python: str) -> None:
    needed = versions.requirements(extras.replace("$(comma)", ",").split(","))
    lines, missing = versions.locked(LOCKED, needed)
    assert not missing, "make lock adds them"
    chosen = pins(lines, python)
    for requirement in map(Requirement, needed):
        assert requirement.specifier.contains(chosen[versions.name_of(requirement.name)]), "make lock updates them"


def test_make_installs_several_extras() -> None:
    assert {"dev", "docs", "test", "video"} <= set(EXTRAS)


def dependencies(name: str) -> set[str]:
    """Names of the packages that an installed one needs here, without its extras."""
    needed = [Requirement(each) for each in metadata.requires(name) or []]
    always = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return {versions.name_of(each.name) for each in always}


def test_dependencies_of_locked_packages_are_locked() -> None:
    lines, _ = versions.locked(LOCKED, versions.requirements(["test"]))
    chosen = pins(lines, ".".join(map(str, sys.version_info[:3])))
    assert len(chosen) > 200
    installed = {versions.name_of(each.name) for each in metadata.distributions()} & set(chosen)
    for name in installed:
        # Of another version than the locked one something else may be needed.
        if Version(metadata.version(name)) == chosen[name]:
            assert dependencies(name) <= set(chosen), name


def test_every_file_has_a_hash_and_no_address() -> None:
    assert "://" not in LOCKED and "--index" not in LOCKED and "--find-links" not in LOCKED
    for name, _, lines in versions.entries(LOCKED):
        assert lines[1:] and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", each) for each in lines[1:]), (
            name
        )
        assert lines[0].endswith("\\") and not lines[-1].endswith("\\")


SMALL = """# made by uv
alpha==1.0 \\
    --hash=sha256:1
    # via jaxrl (pyproject.toml)
beta-two==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:2
    # via
    #   alpha
    #   gamma
delta==3.0 \\
    --hash=sha256:3
    # via beta-two
gamma==4.0 \\
    --hash=sha256:4
    # via jaxrl (pyproject.toml)
"""


def test_the_part_that_requirements_need_is_taken() -> None:
    lines, missing = versions.locked(SMALL, ["Alpha[extra]>=1", "epsilon"])
    assert [line.split("==")[0] for line in lines if "==" in line] == ["alpha", "beta-two", "delta"]
    assert len(lines) == 6 and missing == {"epsilon"}


def test_extras_that_name_others_are_followed() -> None:
    names = {versions.name_of(each) for each in versions.requirements(["notebooks"])}
    assert {"ipykernel", "imageio-ffmpeg", "jax"} <= names
    with pytest.raises(ValueError, match=r"^an extra is one of cuda12, .*, got 'vidoe'$"):
        versions.requirements(["vidoe"])


def test_lowest_versions_are_the_lower_bounds() -> None:
    assert versions.lowest(["a[x]>=1.2,<3", "b>=4", "a>=1.2"]) == ["a==1.2", "b==4"]
    extras = PROJECT["optional-dependencies"].values()
    for requirement in itertools.chain(PROJECT["dependencies"], *extras):
        assert re.match(r"jaxrl\[|[\w.-]+(\[[\w,-]+\])?>=[\d.]+(,<[\d.]+)?$", requirement), requirement


def test_it_runs_without_any_package() -> None:
    call = [sys.executable, "-I", "-S", str(ROOT / "requirements/versions.py")]
    for kind, line in (("locked", "jax=="), ("lowest", "jax==0.10")):
        printed = subprocess.run([*call, kind, "video"], capture_output=True, text=True, check=True)
        assert line in printed.stdout and not printed.stderr
    suite = subprocess.run([*call, "locked", "craftax"], capture_output=True, text=True, check=True)
    assert suite.stderr == "No locked version of craftax: pip chooses one.\n"
