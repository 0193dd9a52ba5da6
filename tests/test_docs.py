"""The documentation is correct: its Python runs, its commands parse, its tables and names are those of the code.

Its pages are short, and its links lead to pages, headings and files that exist.
"""

import collections
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from algorithm_pages import published_rows
from documents import ROOT, blocks, commands, parse_command, run_blocks

import envs
import jaxrl
from bench.studies import STUDIES
from envs import registry
from jaxrl.bandits import POLICIES
from jaxrl.lazy import imported_names
from jaxrl.presets import registry as presets

DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
WITH_PYTHON = [name for name, text in PAGES.items() if blocks(text, "python")]
PROGRAMS = ("jaxrl ", "python -m bench.studies ")
COMMANDS = {command for text in PAGES.values() for command in commands(text) if command.startswith(PROGRAMS)}

# Those that `make test-all` alone runs.
SLOW = (
    *(name for name in WITH_PYTHON if name.startswith("algorithms/")),
    "how-to/acting.md",
    "how-to/centralised-critic.md",
    "how-to/compare.md",
    "how-to/decide.md",
    "how-to/evaluate.md",
    "how-to/films.md",
    "how-to/images.md",
    "how-to/known-optimum.md",
    "how-to/memory.md",
    "how-to/migrate.md",
    "how-to/repeat.md",
    "how-to/replay-levels.md",
    "how-to/meta.md",
    "how-to/results.md",
    "how-to/search.md",
    "how-to/time-limits.md",
    "how-to/tracking.md",
    "how-to/what-the-critic-sees.md",
    "how-to/worlds-that-vary.md",
    "how-to/wrappers.md",
    "index.md",
    "tutorials/algorithm.md",
    "tutorials/continuous-control.md",
    "tutorials/crowds.md",
    "tutorials/discounting.md",
    "tutorials/environment.md",
    "tutorials/evolution.md",
    "tutorials/first-run.md",
    "tutorials/learn-a-discount.md",
    "tutorials/partners.md",
    "tutorials/q-learning.md",
    "tutorials/scaling.md",
    "tutorials/sweeps.md",
)  # `make test-all` runs them
ROWS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in WITH_PYTHON]


@pytest.mark.parametrize("name", ROWS)
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a script or a notebook, which finds modules in its directory
    run_blocks(PAGES[name], name)


def test_tutorials_have_python_blocks() -> None:
    tutorials = {name for name in PAGES if name.startswith("tutorials/") and not name.endswith("index.md")}
    assert len(tutorials) == 15 and tutorials <= set(WITH_PYTHON)


def one_of_each_form() -> set[str]:
    """A command of each form: each subcommand, with an algorithm and a set of options."""
    forms: dict[tuple[str, ...], str] = {}
    for command in sorted(COMMANDS):
        words = command.split()
        options = sorted({word for word in words if word.startswith("--")})
        forms.setdefault((*words[1:3], *options), command)
    return {command for command in forms.values() if "brax/" not in command}  # whose import takes seconds


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=() if command in one_of_each_form() else pytest.mark.slow)
        for command in sorted(COMMANDS)
        if not command.endswith("--help")
    ],
)
def test_commands_parse(command: str) -> None:
    parse_command(command)


def rows_of_presets() -> dict[tuple[str, str, str | None], int]:
    """Environment steps in the rows of presets, by algorithm, environment and `--tuned`."""
    return {
        (row.algorithm, row.environment, row.tuned): int(row.cells["Env steps"].replace(",", ""))
        for row in published_rows()
    }


def test_every_preset_has_a_row() -> None:
    assert {row[:2] for row in rows_of_presets() if row[2] is None} == set(presets.names())


@pytest.mark.slow  # builds the algorithm of every preset
def test_rows_of_presets_have_the_steps_that_these_take() -> None:
    rows = rows_of_presets()
    rounded = {}
    for algorithm, environment, tuned in rows:
        preset = presets.preset(algorithm, environment, tuned=tuned)
        iteration = preset.algo.env_steps_per_iteration
        rounded[algorithm, environment, tuned] = -(-preset.env_steps // iteration) * iteration
    assert rows == rounded


def test_every_discount_of_the_table_is_the_class_in_its_row() -> None:
    table = PAGES["reference/discounts.md"]
    rows = re.findall(r"^\| (`[^|]*`) \| `(\w+)\(([^)]*)\)` \|", table, flags=re.MULTILINE)
    assert len(rows) == 8
    for strings, name, parameters in rows:
        for string in re.findall(r"`([^`]+)`", strings):
            discount = jaxrl.as_discount(float(string) if re.fullmatch(r"[\d.]+", string) else string)
            assert type(discount) is getattr(jaxrl, name)
            assert string in (str(discount), "0.98")
            if name != "Tabulated":
                assert tuple(vars(discount)) == tuple(parameters.split(", "))


def test_every_study_has_a_page_of_results_that_begins_with_its_command() -> None:
    for name in STUDIES:
        first = commands(PAGES[f"results/{name}.md"])[0].split()
        assert first[:4] == ["python", "-m", "bench.studies", name]
        assert f"]({name}.md)" in PAGES["results/index.md"]


def test_the_picture_of_the_packages_has_all_of_them() -> None:
    packages = {path.parent.name for path in (ROOT / "jaxrl").glob("*/__init__.py")}
    picture = (DOCS / "pictures/packages.svg").read_text()
    assert set(re.findall(r">jaxrl/(\w+)<", picture)) == packages


def test_every_path_of_the_repository_exists() -> None:
    listed = {
        path
        for text in PAGES.values()
        for path in re.findall(r"`((?:envs|jaxrl|notebooks|tests|bench|docs)/(?:[\w.-]+/)*(?:[\w-]+\.\w+)?)`", text)
    }
    assert "jaxrl/discounts/" in listed
    for path in listed:
        assert (ROOT / path).exists(), path


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of a page: its headings as Markdown abbreviates them, and the modules that it reports."""
    headings = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    slugs = {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
    return slugs | set(re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE))


def broken_links(text: str, page: Path) -> list[str]:
    """The links of a page within the repository that lead to no file, or to no heading of their page."""
    broken = []
    films = [film.removeprefix("../") for film in re.findall(r'<video[^>]* src="([^"]+)"', text)]  # of the built site
    for link in [*re.findall(r"\]\(([^)\s]+)\)", prose(text)), *films]:
        path, _, anchor = link.partition("#")
        if path.startswith("https://"):
            continue
        target = page.parent / path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text() if path else text)):
            broken.append(link)
    return broken


WITH_LINKS = [*(f"docs/{name}" for name in PAGES), *(path.name for path in sorted(ROOT.glob("*.md")))]
WITH_LINKS += [f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


@pytest.mark.parametrize("page", WITH_LINKS)
def test_every_link_leads_to_a_file_and_to_a_heading(page: str) -> None:
    assert not broken_links((ROOT / page).read_text(), ROOT / page)


def test_broken_links_are_noticed() -> None:
    text = "# Part 1: the `end`\n[1](#part-1-the-end) [2](index.md#install) "
    text += "[3](reference/parts.md#jaxrl.learning.rollout)"
    broken = ["absent.md", "index.md#absent", "#absent", "reference/discounts.md#absent", "../absent.md"]
    text += "".join(f" [4]({link})" for link in broken) + "\n```\n# absent\n```\n"
    assert broken_links(text, DOCS / "new.md") == broken


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_short(name: str) -> None:
    by_hand = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", PAGES[name], flags=re.DOTALL)
    assert len(by_hand.split()) < 1_000


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE))
    assert {page for page in listed if not page.startswith("https://")} == set(PAGES)


SECTION = re.compile(r"^::: (\S+)$(?:\n    options:\n      members: \[(.*)\]$)?", flags=re.MULTILINE)


def documented() -> list[object]:
    """The classes and functions of the reference, once for each section that shows them."""
    shown = []
    for name, members in SECTION.findall("\n".join(PAGES.values())):
        module = importlib.import_module(name)
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == name]
        public = getattr(module, "__all__", [key for key in own if not key.startswith("_")])
        listed = members.split(", ") if members else public
        shown += [vars(module)[key] for key in listed]
    return [
        value for value in shown if getattr(value, "__module__", "").startswith(("envs.", "jaxrl.")) and value.__doc__
    ]


@pytest.mark.parametrize("package", [jaxrl, jaxrl.bandits, envs, envs.wrappers], ids=lambda package: package.__name__)
def test_every_public_name_is_once_in_the_reference(package: Any) -> None:
    shown = collections.Counter(map(id, documented()))
    rows = re.findall(r"^\| `((?:envs|jaxrl)\.[\w.]+)` \|", PAGES["reference/index.md"], flags=re.MULTILINE)
    for name in package.__all__:
        assert shown[id(getattr(package, name))] + rows.count(f"{package.__name__}.{name}") == 1, name


# Modules of `envs.adapters` that users neither call nor get objects from.
INSIDE_ADAPTERS = {
    "incoming.from_gymnasium",
    "incoming.interfaces",
    "incoming.jumanji_making",
    "incoming.jumanji_spaces",
    "incoming.simulators",
    "incoming.their_spaces",
    "outgoing.agents",
    "outgoing.gymnasium_spaces",
    "outgoing.gymnasium_stepping",
    "outgoing.packing",
    "outgoing.window",
}


def test_the_reference_has_every_public_name() -> None:
    reported = {module for text in PAGES.values() for module in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)}
    for module in reported:
        importlib.import_module(module)
    defining = imported_names("jaxrl").items()
    expected = {module for name, (module, _) in defining if not inspect.ismodule(getattr(jaxrl, name))}
    expected |= set(envs._HOME.values())
    expected |= {row.module for row in registry.ROWS.values()}
    expected |= {module for module, _ in POLICIES.values()}
    expected |= {vars(envs.wrappers)[name].__module__ for name in envs.wrappers.__all__ if name.islower()}
    adapters = {f"{path.parent.name}.{path.stem}" for path in (ROOT / "envs" / "adapters").glob("*/[!_]*.py")}
    assert adapters > INSIDE_ADAPTERS
    expected |= {f"envs.adapters.{module}" for module in adapters - INSIDE_ADAPTERS}
    shown = re.findall(r"`((?:jaxrl/)?\w+(?:/\w+)*)\.py`", PAGES["tutorials/copied-algorithm.md"])
    paths = {name if "/" in name else f"jaxrl/algorithms/{name}" for name in shown}
    assert len(paths) > 10
    expected |= {path.replace("/", ".") for path in paths}
    assert expected <= reported
