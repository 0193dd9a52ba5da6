"""Public names of a package that are imported when they are first used."""

import ast
import difflib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def imported_names(package: str) -> dict[str, tuple[str, str]]:
    """Modules and attributes `{name: (module, attribute)}` of the imports under `if TYPE_CHECKING:` of a package.

    Args:
      package: Name of a package that is being imported, or was.
    """
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}


def attach(
    package: str, *eager: str, before: Callable[[], None] = lambda: None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose public names are imported on demand.

    The imports under `if TYPE_CHECKING:`, which type checkers follow, are the only list of these names.

    Args:
      package: Name of the package.
      *eager: Further public names, which the package defines itself.
      before: Function that is called before a module is imported.
    """
    names, namespace = imported_names(package), vars(sys.modules[package])
    public = sorted([*names, *eager])

    def get(name: str) -> Any:
        if name not in names:
            # `envs.spelling` is not used here, because the installed `envs` may be another package, which `before`
            # rejects.
            same = [each for each in public if each.lower() == name.lower()]
            near = same or difflib.get_close_matches(name, public, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}", name=name)
        before()
        module, attribute = names[name]
        if module == package:
            return importlib.import_module(f"{package}.{attribute}")
        # As in `from module import attribute`, which also imports a module of that name.
        namespace[name] = getattr(__import__(module, fromlist=[attribute]), attribute)
        return namespace[name]

    return get, lambda: sorted({*namespace, *public}), public
