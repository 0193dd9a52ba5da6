"""Functions by their paths `module:name`, and paths of functions."""

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from envs.errors import UserValueError
from envs.spelling import near

__all__ = ["imported", "name_of", "path_of"]


def imported(path: str, what: str = "algorithm") -> Any:
    """Function of a path `module:name`.

    Args:
      path: Path.
      what: Role of the function, for error messages.

    Raises:
      ValueError: There is no such module, or no function of this name in it.
    """
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # a module that it imports is missing
        raise UserValueError(f"The {what} {path!r} cannot be found: there is no module {module!r} here") from error
    if not callable(function):
        functions = [word for word, value in vars(sys.modules[module]).items() if inspect.isfunction(value)]
        hint = near(name, functions) or "."
        raise UserValueError(f"The {what} {path!r} cannot be found: {module} has no function {name!r}{hint}")
    return function


def name_of(function: Callable[..., Any]) -> str:
    """Path of a function, or its name where it has none."""
    return path_of(function) or getattr(function, "__qualname__", type(function).__name__)


def path_of(function: Callable[..., Any]) -> str | None:
    """Path `module:name` by which another process imports a function; None if there is none.

    The module is the outermost package that has the function by its name, as `optax` has `optax._src.alias.adamw`.

    Args:
      function: Function, or another object with a name.
    """
    home, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if not isinstance(home, str) or not isinstance(name, str) or home == "__main__":
        return None
    parts = home.split(".")
    for end in range(1, len(parts) + 1):
        module = ".".join(parts[:end])
        if module in sys.modules and vars(sys.modules[module]).get(name) is function:
            return f"{module}:{name}"
    return None
