"""The README's Python blocks run as they stand, in order, in one namespace.

Only the numbers that make them long are replaced: `seeds` by 4 and `env_steps` by 4,096.
Everything else, the files they write included, is what a reader would get.
"""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def shortened(block: str) -> str:
    """The block with fewer seeds and environment steps."""
    block = re.sub(r"\bseeds=[\d_]+", "seeds=4", block)
    return re.sub(r"\benv_steps=[\d_]+", "env_steps=4_096", block)


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(BLOCKS, start=1):
        exec(compile(shortened(block), f"README.md, Python block {number}", "exec"), namespace)


def test_the_two_commands_are_on_lines_of_their_own():
    commands = [line.split("#")[0].strip() for line in README.splitlines()]
    assert "make demo" in commands
    assert "make test" in commands


def test_there_are_python_blocks():
    assert any("jaxrl.train(" in block for block in BLOCKS)
