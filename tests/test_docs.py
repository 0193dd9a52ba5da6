"""The documentation does what it says: its Python runs, its commands parse, and the reference has every public name.

That its links lead somewhere is what `make docs` tests.
"""

import importlib
import re
from pathlib import Path

import pytest
from documents import ROOT, blocks, commands, parse_command, run_blocks

import envs
import jaxrl
from envs import registry
from jaxrl.bandits import POLICIES

DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
WITH_PYTHON = [name for name, text in PAGES.items() if blocks(text, "python")]
COMMANDS = {command for text in PAGES.values() for command in commands(text) if command.startswith("jaxrl ")}

# Pages that train the same program run in one test, which compiles it once.
TOGETHER = (
    ("index.md", "how-to/compare.md", "tutorials/discounting.md", "tutorials/sweeps.md"),
    ("how-to/films.md", "how-to/results.md", "how-to/tracking.md", "tutorials/first-run.md", "tutorials/scaling.md"),
)
SLOW = ("how-to/repeat.md", "how-to/search.md")  # `make test-all` runs them
ALONE = [(name,) for name in WITH_PYTHON if name not in {*SLOW, *(name for group in TOGETHER for name in group)}]
GROUPS = [*TOGETHER, *ALONE, *(pytest.param((name,), marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("names", GROUPS, ids=" ".join)
def test_python_blocks_run(names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in names:
        directory = tmp_path / Path(name).stem
        directory.mkdir()
        monkeypatch.chdir(directory)
        monkeypatch.syspath_prepend(directory)  # as in a script or a notebook, where one's own modules are found
        run_blocks(PAGES[name], name)


def test_tutorials_have_python_blocks() -> None:
    tutorials = {name for name in PAGES if name.startswith("tutorials/") and not name.endswith("index.md")}
    assert len(tutorials) == 8 and tutorials <= set(WITH_PYTHON)


@pytest.mark.parametrize("command", sorted(command for command in COMMANDS if not command.endswith("--help")))
def test_commands_parse(command: str) -> None:
    parse_command(command)


def test_every_include_is_there() -> None:
    found = [found for text in PAGES.values() for found in re.findall(r"<!-- include ([\w.]+)(?:: (.+?))? -->", text)]
    assert ("CHANGELOG.md", "") in found
    for file, section in found:
        assert not section or f"\n## {section}\n" in (ROOT / file).read_text()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE))
    assert listed == set(PAGES)


# Modules of `envs.adapters` that no user calls, and whose objects no user is handed.
INSIDE_ADAPTERS = {
    "agents",
    "casting",
    "from_gymnasium",
    "gymnasium_spaces",
    "gymnasium_stepping",
    "packing",
    "simulators",
    "window",
}


def test_the_reference_has_every_public_name() -> None:
    told = {module for text in PAGES.values() for module in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)}
    for module in told:
        importlib.import_module(module)
    wanted = {f"jaxrl.{module}" for module in jaxrl._NAMES_OF_MODULE} | set(envs._HOME.values())
    wanted |= {row.module for row in registry.ROWS.values()}
    wanted |= {f"jaxrl.bandits.policies.{module}" for module, _ in POLICIES.values()}
    wanted |= {vars(envs.wrappers)[name].__module__ for name in envs.wrappers.__all__ if name.islower()}
    adapters = {path.stem for path in (ROOT / "envs" / "adapters").glob("[!_]*.py")}
    assert adapters > INSIDE_ADAPTERS
    wanted |= {f"envs.adapters.{module}" for module in adapters - INSIDE_ADAPTERS}
    assert wanted <= told
