"""Public names of a package that are imported when they are first used."""

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["attach"]


def attach(
    package: str,
    namespace: dict[str, Any],
    names: Mapping[str, Sequence[str]],
    modules: Mapping[str, str],
    before: Callable[[], None] = lambda: None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package whose public names are imported on demand.

    Args:
      package: Name of the package.
      namespace: Its `globals()`; `__all__` is among them.
      names: `{module: names}`, public names by the module that defines them, relative to the package.
      modules: `{name: module}`, modules that are public under their own names, relative to the package.
      before: Function that is called before a module is imported.
    """
    module_of = {name: module for module, defined in names.items() for name in defined}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{modules[name]}")
        if name not in module_of:
            # `envs.spelling` is not used here, because the installed `envs` may be another package, which `before`
            # rejects.
            near = difflib.get_close_matches(name, namespace["__all__"], n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}", name=name)
        before()
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        namespace[name] = value
        return value

    return get, lambda: sorted({*namespace, *namespace["__all__"]})
