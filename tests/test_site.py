"""The site is easy to read: short sidebars, code that fits, one notation of numbers, and nothing from the network."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import algorithm_pages
import pytest
import yaml
from documents import ROOT

from jaxrl.algorithms import registry

DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
MOST_ENTRIES = 40  # of a sidebar
LONGEST_LINE = 110  # characters of code that a window of 1,400 pixels shows


def entries(nav: Any) -> Iterator[str]:
    """Titles of groups and paths of pages in a part of the navigation."""
    for entry in nav:
        for title, inside in entry.items() if isinstance(entry, dict) else [("", entry)]:
            if isinstance(inside, str):
                yield inside
            else:
                yield title
                yield from entries(inside)


def test_a_sidebar_has_few_entries() -> None:
    assert "navigation.tabs" in CONFIG["theme"]["features"]  # which divides the sidebar
    for tab in CONFIG["nav"]:
        assert len(list(entries([tab]))) <= MOST_ENTRIES, tab


def test_results_come_after_the_reference() -> None:
    tabs = [title for tab in CONFIG["nav"] for title in tab]
    assert tabs.index("Algorithms") < tabs.index("Reference") < tabs.index("Results")


def test_the_site_takes_nothing_from_the_network() -> None:
    assert CONFIG["theme"]["font"] is False
    assert not [path for key in ("extra_css", "extra_javascript") for path in CONFIG.get(key, []) if "://" in path]


def hooks() -> Any:
    """The module of MkDocs' hooks, which no package contains."""
    specification = importlib.util.spec_from_file_location("hooks", ROOT / CONFIG["hooks"][0])
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_formula_becomes_mathml() -> None:
    text = re.sub(r"^```.*?^```|`[^`]*`", "", "".join(PAGES.values()), flags=re.MULTILINE | re.DOTALL)
    formulas = set(re.findall(r"\$([^$\n]+)\$", text))
    assert len(formulas) > 40
    for formula in formulas:
        assert hooks().mathml(formula).startswith("<math ")
    with pytest.raises(ValueError, match=r"latex2mathml does not know"):
        hooks().mathml(r"\nosuch x")


def test_a_page_has_mathml_in_place_of_formulas() -> None:
    written = hooks().on_page_content(r'<p><span class="arithmatex">\(\Gamma(t) &lt; 1\)</span>.</p>')
    assert re.sub(r"&#x0*(\w+);", lambda code: chr(int(code[1], 16)), re.sub(r"</?\w[^>]*>", "", written)) == "Γ(t)<1."
    assert '<mi mathvariant="normal">' in written and "arithmatex" not in written


def test_an_interval_in_a_table_stays_on_one_line() -> None:
    row = "<tr><td>500.0 [499.3, 500.0]</td><td><strong>-1 [-2, 1,000] +</strong></td><td>a rate in [0, 1]</td></tr>"
    whole = row.replace("0 [499.3, ", "0\u00a0[499.3,\u00a0").replace("1 [-2, ", "1\u00a0[-2,\u00a0")
    assert hooks().on_page_content(row) == whole
    assert hooks().on_page_content("<p>1 [0, 2]</p>") == "<p>1 [0, 2]</p>"


@pytest.mark.parametrize("name", PAGES)
def test_every_line_of_code_fits(name: str) -> None:
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    assert not [line for block in blocks for line in block.splitlines() if len(line) > LONGEST_LINE]


def prose(text: str) -> str:
    """A page without its code, addresses and links."""
    return re.sub(r"^```.*?^```|`[^`]*`|\]\([^)]*\)|https?://\S+", "", text, flags=re.MULTILINE | re.DOTALL)


def odd_numbers(text: str) -> list[str]:
    """Numbers without a digit before the point, and those of a table without a comma after the thousands."""
    text = prose(text)
    cells = "\n".join(line for line in text.splitlines() if "|" in line)
    bare = re.findall(r"(?<![\w.\\/)\]])\.\d+", text)
    return bare + [number for number in re.findall(r"(?<![\w.,])\d{4,}(?!\w)", cells) if not 1900 < int(number) < 2100]


def crowded_cells(text: str) -> list[str]:
    """Cells of tables with several numbers, other than one with its interval, apart from summaries of benchmarks."""
    text = re.sub(r"<!-- benchmarks:begin -->.*?<!-- benchmarks:end -->", "", text, flags=re.DOTALL)
    cells = [cell.strip(" *") for line in prose(text).splitlines() if "|" in line for cell in line.split("|")]
    number = r"-?[\d.,]*\d(?: ?[%MGsk]\w*)?"
    several = rf"{number}(?: \[.*?\])?(?:, |; | / ){number}\b.*"
    return [cell for cell in cells if re.fullmatch(several, cell)]


@pytest.mark.parametrize("name", PAGES)
def test_numbers_have_one_notation(name: str) -> None:
    assert not odd_numbers(PAGES[name])
    assert not crowded_cells(PAGES[name])


def test_other_notations_are_noticed() -> None:
    assert odd_numbers("from .5 to [-.1, 0.2]\n| 12345 | 2,345 | 2023 |\n`.5` `12345` file.5") == [".5", ".1", "12345"]
    crowded = ["486.9, 486.7", "0.96; 1.25 [0.99, 1.41]", "4.0 / 4.1", "1.05 [1.0, 1.1]; 0.34"]
    fine = ["1,001,472", "500.0 [499.3, 500.0]", "15 of 16", "SAC, Acrobot", "1.625 ± 0.028"]
    assert crowded_cells("\n".join(f"| {cell} | x |" for cell in crowded + fine)) == crowded


def test_every_algorithm_has_a_page() -> None:
    assert {f"algorithms/{name}.md" for name in registry.ROWS} <= set(PAGES)
    for name in registry.ROWS:
        assert f"]({name}.md)" in PAGES["algorithms/index.md"]
        parts = re.findall(r"<!-- (\w+):begin -->", PAGES[f"algorithms/{name}.md"])
        assert parts == ["source", "space", "presets", "hparams", "config"]


@pytest.mark.parametrize("page", sorted(algorithm_pages.PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_tables_of_an_algorithm_are_those_of_the_registry(page: Path) -> None:
    assert page.read_text() == algorithm_pages.generated(page), "python tests/algorithm_pages.py writes them"


# Numbers of links in the sidebars that a reader sees before scrolling, without those that are folded.
COUNT_ENTRIES = """
return ["primary", "secondary"].map(name => [...document.querySelectorAll(`.md-sidebar--${name} .md-nav__link`)].filter(
  link => link.checkVisibility({visibilityProperty: true, opacityProperty: true}) && link.getClientRects().length
    && link.getBoundingClientRect().top < innerHeight && !link.closest('.md-nav[aria-expanded="false"]')).length)
"""
CUT_LINES = """
return [...document.querySelectorAll("pre code")].filter(code => code.scrollWidth > code.clientWidth)
  .map(code => code.textContent)
"""


@pytest.mark.slow  # builds the site, and opens all of its pages
@pytest.mark.seconds_to_compile(180)
def test_the_built_site(tmp_path: Path, browser: Any) -> None:
    site = tmp_path / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def resize(width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 1_000}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    pages = sorted(site.rglob("index.html"))
    assert len(pages) == len(PAGES)
    try:
        for page in pages:
            text = page.read_text()
            assert "arithmatex" not in text, page
            assert not re.findall(r'<(?:script|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//', text), page
            resize(1_400)
            browser.get(page.as_uri())
            shown = browser.execute_script(COUNT_ENTRIES)
            assert 0 < shown[0] <= MOST_ENTRIES and shown[1] <= MOST_ENTRIES, (page, shown)
            assert not browser.execute_script(CUT_LINES), page
            resize(400)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 400, page
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
