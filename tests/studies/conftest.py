"""Finished parts of the published studies, which a source distribution leaves out."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cells() -> Path:
    """The directory with one folder of finished parts for each study."""
    directory = ROOT / "bench/studies/cells"
    if not directory.is_dir() and not (ROOT / ".git").exists():
        pytest.skip("a source distribution has no finished parts of studies")
    return directory


@pytest.fixture(scope="session")
def results() -> Path:
    """The directory of the pages of results."""
    return ROOT / "docs/results"
