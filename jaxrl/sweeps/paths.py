"""Dotted paths into nested dataclasses and other pytrees, such as `discount.mu` or `motor.torque`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from jaxrl.discounts.parsing import Discount
from jaxrl.pytrees import PyTree


class Place(NamedTuple):
    """The place to which a path leads.

    Attributes:
      there: Whether the path exists.
      value: Value at the path; where it does not exist, the innermost part that does.
      inside: Path of that part followed by a dot, empty for the root.
      known: Paths of the fields of that part.
    """

    there: bool
    value: Any
    inside: str
    known: list[str]


def fields_of(node: PyTree) -> list[str]:
    """The fields of a dataclass that are leaves or hold leaves; none of anything else."""
    if not dataclasses.is_dataclass(node):
        return []
    return [field.name for field in dataclasses.fields(node) if field.init and field.metadata.get("pytree_node", True)]


def place(root: Any, path: str) -> Place:
    """Follow a path from a dataclass.

    Args:
      root: Dataclass that may have dataclasses inside.
      path: Fields from the outermost to the innermost, separated by dots.
    """
    node, inside = root, ""
    for name in path.split("."):
        names = fields_of(node)
        if name not in names:
            return Place(False, node, inside, [inside + each for each in names])
        node, inside = getattr(node, name), f"{inside}{name}."
    return Place(True, node, inside, [inside + each for each in fields_of(node)])


def replaced(root: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass with the values at these paths replaced, all those of one part at once.

    Args:
      root: Dataclass that has all of the paths.
      values: New value of each path.
    """
    changes: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            changes[name] = value
    changes |= {name: replaced(getattr(root, name), inner) for name, inner in nested.items()}
    return dataclasses.replace(root, **changes)


def leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[str, Any]]:
    """The leaves of a pytree with their paths, two of which may be equal where a key has a dot.

    Args:
      tree: Any pytree; a leaf alone has the empty path.
      is_leaf: Test for subtrees that count as leaves, as in `jax.tree.leaves`.
    """
    pairs = jax.tree.leaves_with_path(tree, is_leaf=is_leaf)
    return [(jax.tree_util.keystr(at, simple=True, separator="."), leaf) for at, leaf in pairs]


def numbers(settings: Any) -> dict[str, Any]:
    """The values of nested dataclasses by their paths, including None; a discount and an array are one value each.

    Args:
      settings: Dataclass that is a pytree; anything else has none.
    """
    if not dataclasses.is_dataclass(settings):
        return {}
    return dict(leaves(settings, lambda node: isinstance(node, Discount) or not dataclasses.is_dataclass(node)))
