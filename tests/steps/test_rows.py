"""Every algorithm of the registry has an iteration in float64."""

from pathlib import Path

import pytest

from jaxrl.algorithms.registry import ROWS


@pytest.mark.parametrize("name", ROWS)
def test_every_algorithm_is_compared_with_float64(name: str) -> None:
    files = [path.read_text() for path in Path(__file__).parent.glob("test_*_step*.py")]
    assert any(f"jaxrl.{name}(" in text or f"jaxrl.{name}," in text for text in files)
