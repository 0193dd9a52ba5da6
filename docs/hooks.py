"""What the site takes from elsewhere in the repository: parts of the README, whole files, and pictures.

A line `<!-- include README.md: Presets -->` is replaced by the section of that name, and
`<!-- include CHANGELOG.md -->` by a file without its title, so that no figure stands in two places.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://github.com/jaxrl/jaxrl"
PICTURES = "notebooks/pictures/"
INCLUDE = re.compile(r"^<!-- include ([\w.]+)(?:: (.+?))? -->$", flags=re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures of the README."""
    for picture in sorted((ROOT / PICTURES).glob("*.png")):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in what a page includes."""
    up = "../" * page.file.src_uri.count("/")
    return INCLUDE.sub(lambda found: _included(*found.groups(), up), markdown)


def _included(name: str, section: str | None, up: str) -> str:
    text = (ROOT / name).read_text()
    text = text.partition("\n")[2] if section is None else _section(text, section)
    if text is None:
        raise PluginError(f"{name} has no section {section!r}")
    return LINK.sub(lambda found: f"]({_target(found[1], name, up)})", text)


def _section(text: str, title: str) -> str | None:
    """From the heading with this title to the next one that is not below it."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", text, flags=re.MULTILINE)
    if heading is None:
        return None
    rest = text[heading.end() :]
    after = re.search(rf"^#{{1,{len(heading[1])}}} ", _without_code(rest), flags=re.MULTILINE)
    return heading[0] + (rest[: after.start()] if after else rest)


def _without_code(text: str) -> str:
    """The text with as many spaces in place of fenced code, whose comments look like headings."""
    return re.sub(r"^```.*?^```", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.MULTILINE | re.DOTALL)


def _target(target: str, name: str, up: str) -> str:
    """Where a link of a file in the root leads from a page of the site."""
    if target.startswith(("http://", "https://")):
        return target
    if target.startswith(PICTURES):
        return f"{up}pictures/{target.removeprefix(PICTURES)}"
    return f"{REPOSITORY}/blob/main/{name if target.startswith('#') else ''}{target}"
