"""The generated parts of the pages of algorithms, docs/algorithms.

    python tests/algorithm_pages.py        writes them

Each of these pages is written by hand, but for the parts between `<!-- NAME:begin -->` and `<!-- NAME:end -->`: the
source, the default search space, the presets with their published returns, the hyper-parameters, the configuration, and
the table of capabilities.
"""

import dataclasses
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capabilities import CAPABILITIES, names, refusal

import envs
from jaxrl.algorithms import registry
from jaxrl.cli.dataclass_options import field_texts
from jaxrl.discounts.parsing import Discount, Exponential
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.presets.registry import PRESETS

DOCS = Path(__file__).parent.parent / "docs"
PAGES = DOCS / "algorithms"
RESULTS = (
    "presets",
    "presets-algorithms",
    "presets-off-policy",
    "presets-actor-critic",
    "presets-memory",
    "presets-known-optimum",
    "presets-physical",
    "presets-crowds",
)
_CONTINUOUS = ("sac", "td3")  # whose defaults are those on Pendulum; of the others, those on CartPole


class PublishedRow(NamedTuple):
    """Row of a table of presets.

    Attributes:
      algorithm: Name of the algorithm.
      environment: Name of the environment.
      tuned: Name of tuned settings, None for the preset.
      changed: Whether the command changes settings of the preset.
      page: Name of the page.
      cells: Cells by the heads of their columns.
    """

    algorithm: str
    environment: str
    tuned: str | None
    changed: bool
    page: str
    cells: Mapping[str, str]


def published_rows() -> Iterator[PublishedRow]:
    """The rows of all tables of presets whose runs are as long as the presets say."""
    for page in RESULTS:
        head: list[str] = []
        for line in (DOCS / f"results/{page}.md").read_text().splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if "Command" in cells:
                head = cells
            if "`jaxrl train " not in line or not cells or "--env-steps" in line:
                continue
            command = cells[-1].strip("`")
            tuned = re.search(r"--tuned (\w+)", command)
            changed = re.search(r"--(config|hparams|static|env)\b", command) is not None
            algorithm, environment = command.split()[2:4]
            yield PublishedRow(
                algorithm, environment, tuned and tuned[1], changed, page, dict(zip(head, cells, strict=True))
            )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown."""
    lines = ["|".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(["|".join(head), "|".join(["---"] * len(head)), *lines])


def shown(value: Any) -> str:
    """Default of a setting, or a value of a search space, as code."""
    if isinstance(value, Discount):
        value = float(value.gamma) if isinstance(value, Exponential) else str(value)
    if isinstance(value, float) and 1_000 <= value < math.inf:
        value = round(value)
    if type(value) is int:
        return f"`{value:,}`"
    return "`" + (f'"{value}"' if isinstance(value, str) else re.sub(r"e-0", "e-", repr(value))) + "`"


def algorithm(name: str) -> Any:
    """The algorithm with its defaults."""
    return registry.make(name, envs.make("pendulum" if name in _CONTINUOUS else "cartpole"))


def source(name: str) -> str:
    """Source of an algorithm, of the docstring of its function."""
    text = inspect.getdoc(registry.builder_of(name)) or ""
    return "Source: " + " ".join(text.partition("Source:")[2].split())


def space(name: str) -> str:
    """Default search space of an algorithm."""
    rows = []
    for path, values in registry.default_space(algorithm(name)).items():
        if hasattr(values, "values"):
            drawn = "one of " + ", ".join(shown(value) for value in values.values)
        else:
            scale = "logarithmic" if type(values).__name__ == "LogUniform" else "linear"
            drawn = f"{shown(values.low)} to {shown(values.high)}, {scale}"
        rows.append((f"`{path}`", drawn))
    return table(("Setting", "Values"), rows)


def _result(row: PublishedRow) -> str:
    """Published result of a preset."""
    cells = row.cells
    if "Arrive" in cells:
        return f"{float(cells['Arrive']):.1%} of agents arrive".replace("%", " %")
    name = next(head for head in ("IQM", "IQM with memory", "Greedy mean") if head in cells)
    return f"{'mean' if name == 'Greedy mean' else 'IQM'} {cells[name]}"


def presets(name: str) -> str:
    """Presets of an algorithm with their published greedy returns."""
    published = {(row.algorithm, row.environment): row for row in published_rows() if not (row.tuned or row.changed)}
    known = [published[name, preset.environment] for preset in PRESETS if preset.algorithm == name]
    head = ("Environment", "Env steps", "Seeds", "Greedy return", "Command")
    rows = [
        (f"`{row.environment}`", row.cells["Env steps"], row.cells["Seeds"], _result(row), row.cells["Command"])
        for row in known
    ]
    links = [f"[{_title(page)}](../results/{page}.md)" for page in dict.fromkeys(row.page for row in known)]
    share = ", or the share of agents that arrive" * any("Arrive" in row.cells for row in known)
    about = f"The interquartile mean (IQM) or the mean of greedy returns{share}, measured as described on"
    return f"{about} {', '.join(links)}:\n\n{table(head, rows)}"


def _title(page: str) -> str:
    """Title of a page of results."""
    return (DOCS / f"results/{page}.md").read_text().partition("\n")[0].removeprefix("# ")


def _meaning(text: str) -> str:
    """Description of a setting as a cell, with asterisks that are no emphasis."""
    return re.sub(r"(`[^`]*`)|\*", lambda part: part[1] or r"\*", text).rstrip(".")


def _fields(names: Iterable[str], kind: type, defaults: Any, idle: Iterable[str] = ()) -> str:
    """Table of settings: name, default, meaning; a star where the default configuration makes no use of one."""
    texts = field_texts(kind)
    rows = [
        (f"`{name}`" + " \\*" * (name in idle), shown(getattr(defaults, name)), _meaning(texts[name])) for name in names
    ]
    return table(("Name", "Default", "Meaning"), rows)


def hparams(name: str) -> str:
    """Hyper-parameters of an algorithm."""
    algo = algorithm(name)
    kind = type(algo.hparams)
    idle = [field.name for field in dataclasses.fields(kind) if getattr(algo.hparams, field.name) is None]
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    values = dataclasses.replace(algo.hparams, **{name: known[name] for name in idle})
    text = _fields(known, kind, values, idle)
    return text + ("\n\n\\* Without effect in the default configuration." if idle else "")


def config(name: str) -> str:
    """Fields of the configuration of an algorithm, without those of every network that keep their defaults."""
    defaults = registry.config_class(registry.builder_of(name))()
    common = {field.name: field.default for field in dataclasses.fields(NetworkConfig)}
    names = [
        field.name
        for field in dataclasses.fields(defaults)
        if field.name not in common or field.default != common[field.name]
    ]
    return _fields(sorted(names, key=lambda name: name in common), type(defaults), defaults)


def network(_: str) -> str:
    """Fields of the configuration of every network."""
    texts = field_texts(NetworkConfig)
    rows = [
        (f"`{field.name}`", shown(field.default), _meaning(texts[field.name]))
        for field in dataclasses.fields(NetworkConfig)
    ]
    return table(("Name", "Default", "Meaning"), rows)


def capabilities(_: str) -> str:
    """Capabilities of all algorithms."""
    columns = names()
    rows = [(title, *("no" if refusal(name, title) else "yes" for name in columns)) for title in CAPABILITIES]
    return table(("", *(f"[{name}]({name}.md)" for name in columns)), rows)


def refusals(_: str) -> str:
    """Messages on capabilities that an algorithm lacks, of the first that lacks it."""
    rows = []
    for title, each in CAPABILITIES.items():
        texts = {name: text for name in names() if (text := refusal(name, title)) is not None}
        if texts and each.group != "Schedules":
            rows.append((title, *next((f"`{name}`", text) for name, text in texts.items())))
    return table(("Capability", "Algorithm", "Message"), rows)


PARTS: dict[str, Callable[[str], str]] = {
    "source": source,
    "space": space,
    "presets": presets,
    "hparams": hparams,
    "config": config,
    "network": network,
    "capabilities": capabilities,
    "refusals": refusals,
}


def generated(page: Path) -> str:
    """Text of a page with its generated parts written anew.

    Raises:
      KeyError: There is no such part.
    """

    def written(part: re.Match[str]) -> str:
        return f"<!-- {part[1]}:begin -->\n\n{PARTS[part[1]](page.stem)}\n\n<!-- {part[1]}:end -->"

    return re.sub(r"<!-- (\w+):begin -->\n.*?<!-- \1:end -->", written, page.read_text(), flags=re.DOTALL)


def main() -> None:
    """Write the generated parts of all pages."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(generated(page))


if __name__ == "__main__":
    sys.exit(main())
