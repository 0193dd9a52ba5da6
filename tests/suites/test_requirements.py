"""Versions of suites: those of the extras, and the messages for missing and for other ones."""

import importlib
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import envs
from envs.adapters.incoming import suite
from envs.registry import LIBRARIES

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# gymnax and Gymnasium are no extras, and POPGym Arcade is installed without the requirements that replace gymnax.
OTHERS = ("gymnax", "functional", "gymnasium", "popgym_arcade")
SUITES = [library for library in LIBRARIES if library not in OTHERS]


@pytest.mark.parametrize("library", SUITES)
def test_the_requirement_of_a_suite_is_installed_by_its_extra(library: str):
    requirement = vars(importlib.import_module(LIBRARIES[library]))["REQUIREMENT"]
    assert Requirement(requirement) in [Requirement(each) for each in EXTRAS[library]]


def test_extras_have_no_underscores():
    """Older versions of pip, such as 23.2, do not know an extra by a name with one, and only warn."""
    assert not [extra for extra in EXTRAS if "_" in extra]


def test_a_missing_suite_is_reported_with_its_extra():
    with pytest.raises(ImportError, match=r"^nothing/\.\.\. needs an extra: pip install '\.\[nothing\]' "):
        suite.imported("nothing_of_this_name", "nothing", "nothing>=1")


def test_another_version_is_reported():
    with pytest.raises(ImportError, match=r"^xminigrid/\.\.\. takes xminigrid <0\.9, and 0\.9.* is installed"):
        suite.imported("xminigrid", "xminigrid", "xminigrid<0.9")


def test_a_module_of_this_name_without_its_distribution_is_missing(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    suite.imported.cache_clear()
    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(ImportError, match=r"^xminigrid/\.\.\. needs an extra: "):
        envs.names("xminigrid")
