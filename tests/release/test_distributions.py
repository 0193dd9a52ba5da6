"""What is in the wheel and the source distribution in dist/, which `make release-check` builds, and what they say."""

import re
import subprocess
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest
from documents import ROOT
from packaging.requirements import Requirement

from jaxrl.version import REPOSITORY, __version__

WHEEL = ROOT / f"dist/jaxrl-{__version__}-py3-none-any.whl"
SDIST = ROOT / f"dist/jaxrl-{__version__}.tar.gz"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_BYTES = {WHEEL: 1_500_000, SDIST: 6_000_000}
LEFT_OUT = ("bench/studies/cells/", "bench/benchmark/")  # of the source distribution


def in_wheel() -> set[str]:
    """Names of the files of the wheel."""
    with zipfile.ZipFile(WHEEL) as archive:
        return set(archive.namelist())


def in_sdist() -> set[str]:
    """Names of the files of the source distribution, without the folder that they are in."""
    with tarfile.open(SDIST) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def tracked() -> set[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(filter(None, listed.stdout.split("\0")))


def metadata(path: Path) -> Message:
    """What a distribution says about itself."""
    if path == WHEEL:
        with zipfile.ZipFile(WHEEL) as archive:
            return HeaderParser().parsestr(archive.read(f"jaxrl-{__version__}.dist-info/METADATA").decode())
    with tarfile.open(SDIST) as archive:
        member = archive.extractfile(f"jaxrl-{__version__}/PKG-INFO")
        assert member is not None
        return HeaderParser().parsestr(member.read().decode())


def test_nothing_else_is_in_dist() -> None:
    assert {path for path in (ROOT / "dist").iterdir() if path.name != ".gitignore"} == {WHEEL, SDIST}


@pytest.mark.parametrize("path", MOST_BYTES, ids=lambda path: path.suffix)
def test_they_are_small(path: Path) -> None:
    assert 500_000 < path.stat().st_size < MOST_BYTES[path]


def test_the_wheel_has_both_packages_and_nothing_else() -> None:
    sources = {name for name in tracked() if name.startswith(("jaxrl/", "envs/"))}
    information = {name for name in in_wheel() if name.startswith(f"jaxrl-{__version__}.dist-info/")}
    assert in_wheel() - information == sources
    assert {"jaxrl/py.typed", "envs/py.typed", "jaxrl/report/page.html", "envs/crowd/player/player.html"} <= sources
    names = {name.partition("/")[2] for name in information}
    assert names == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def test_the_source_distribution_has_the_repository() -> None:
    assert in_sdist() - {"PKG-INFO"} == {name for name in tracked() if not name.startswith(LEFT_OUT)}


@pytest.mark.parametrize("path", MOST_BYTES, ids=lambda path: path.suffix)
def test_distributions_carry_the_metadata_of_the_project(path: Path) -> None:
    said = metadata(path)
    assert (said["Name"], said["Version"], said["License-Expression"]) == ("jaxrl", __version__, PROJECT["license"])
    assert said["Summary"] == PROJECT["description"]
    assert set(said["Requires-Python"].split(",")) == set(PROJECT["requires-python"].split(","))
    assert said.get_all("Classifier") == PROJECT["classifiers"]
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload() == (ROOT / "README.md").read_text()
    assert (said.get_all("Project-URL") or []) == [f"Repository, {REPOSITORY}"] * bool(REPOSITORY)
    assert set(said.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])
    needed = [Requirement(each) for each in said.get_all("Requires-Dist") or []]
    always = {str(each) for each in needed if each.marker is None}
    assert always == {str(Requirement(each)) for each in PROJECT["dependencies"]}
    assert not [each for each in needed if each.url]


def test_the_wheel_has_the_command() -> None:
    with zipfile.ZipFile(WHEEL) as archive:
        written = archive.read(f"jaxrl-{__version__}.dist-info/entry_points.txt").decode()
    assert re.findall(r"^jaxrl *= *(.*)$", written, flags=re.MULTILINE) == [PROJECT["scripts"]["jaxrl"]]
