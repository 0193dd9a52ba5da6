"""Prints versions of the packages that jaxrl with some extras needs, for pip, before anything is installed.

python requirements/versions.py locked test,docs   # those that were tested together, with hashes of their files
python requirements/versions.py lowest test,docs   # the lowest that pyproject.toml allows
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKED = Path(__file__).with_name("locked.txt")
PROJECT = "jaxrl"


def name_of(requirement: str) -> str:
    """The normalised name of a requirement."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def requirements(extras: Iterable[str]) -> list[str]:
    """The requirements of jaxrl with these extras, those of extras that name others included.

    Raises:
      ValueError: An extra is not one of pyproject.toml.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"]
    needed, waiting, seen = list(project["dependencies"]), list(extras), set()
    while waiting:
        extra = waiting.pop()
        if extra not in known:
            raise ValueError(f"an extra is one of {', '.join(known)}, got {extra!r}")
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in known[extra]:
            inner = re.fullmatch(rf"{PROJECT}\[(.*)\]", requirement)
            if inner:
                waiting += inner[1].split(",")
            else:
                needed.append(requirement)
    return needed


def lowest(needed: Iterable[str]) -> list[str]:
    """Constraints of pip by which each requirement gets the lowest version that it allows."""
    bounds = {(name_of(each), bound) for each in needed for bound in re.findall(r">=([\w.]+)", each)}
    return [f"{name}=={bound}" for name, bound in sorted(bounds)]


def entries(text: str) -> list[tuple[str, set[str], list[str]]]:
    """The name, the packages that need it, and the lines for pip of each entry of a lock file that uv wrote."""
    listed: list[tuple[str, set[str], list[str]]] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#") or not words:
            continue
        if not line.startswith(" "):
            listed.append((name_of(line), set(), [line]))
        elif words[0] == "#":
            parents = [word for word in words[1:] if word not in ("via", "(pyproject.toml)")]
            listed[-1][1].update(name_of(parent) for parent in parents)
        else:
            listed[-1][2].append(line)
    return listed


def locked(text: str, needed: Iterable[str]) -> tuple[list[str], set[str]]:
    """The part of a lock file that requirements need, and the names of requirements that it lacks.

    A package that several others need comes along if one of them does, even where that one needs it for an extra of
    its own only.
    """
    chosen, listed = {name_of(each) for each in needed}, entries(text)
    missing = chosen - {name for name, _, _ in listed}
    while more := {name for name, parents, _ in listed if parents & chosen} - chosen:
        chosen |= more
    return [line for name, _, lines in listed if name in chosen for line in lines], missing


def main() -> None:
    """Print the versions, and name on the standard error the requirements that have no locked ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("locked", "lowest"))
    parser.add_argument("extras", nargs="?", default="", help="extras of pyproject.toml, separated by commas")
    arguments = parser.parse_args()
    needed = requirements(filter(None, arguments.extras.split(",")))
    if arguments.kind == "lowest":
        print(*lowest(needed), sep="\n")
        return
    lines, missing = locked(LOCKED.read_text(), needed)
    if missing:
        print(f"No locked version of {', '.join(sorted(missing))}: pip chooses one.", file=sys.stderr)
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
