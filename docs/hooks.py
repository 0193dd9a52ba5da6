"""Hooks of MkDocs: formulas become MathML, intervals in tables stay on one line, and the benchmark gets its page."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from jaxrl.benchmark.data import load
from jaxrl.report.benchmark_page import write_page

# As pymdownx.arithmatex writes formulas: \( \) in a line, \[ \] on lines of their own.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)
_CAPITAL = re.compile("<mi>(&#x003(?:9[3-9A-F]|A[0-9]);)</mi>")  # Greek capitals, which TeX sets upright
_CELL = re.compile(r"<td>.*?</td>")
_INTERVAL = re.compile(r"(?<=\d) \[(-?[\d.,]+), (-?[\d.,]+)\]")  # after its estimate


def mathml(formula: str, display: str = "inline") -> str:
    r"""MathML of a formula, which browsers show without a script and without a network.

    Args:
      formula: Formula in LaTeX.
      display: "inline", or "block" for a formula on lines of its own.

    Raises:
      ValueError: The formula has a command that the converter does not know.
    """
    written = convert(formula, display=display)
    if "\\" in written:
        raise ValueError(f"the formula {formula!r} has a command that latex2mathml does not know: {written}")
    return _CAPITAL.sub(r'<mi mathvariant="normal">\1</mi>', written)


def on_page_content(text: str, **_: Any) -> str:
    """HTML of a page as its readers get it."""
    text = _FORMULA.sub(
        lambda found: mathml(html.unescape(found[2]), "inline" if found[1] == "span" else "block"), text
    )
    return _CELL.sub(lambda cell: _INTERVAL.sub("\u00a0[\\1,\u00a0\\2]", cell[0]), text)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the page of the benchmark's curves beside the page of its table."""
    write_page(load(), Path(config["site_dir"], "results", "benchmark", "benchmark.html"))
