"""Modules that a description may import: those of jaxrl and of known libraries, and those that the user allows."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from envs import registry as environments
from envs.errors import UserTypeError, UserValueError

OURS = ("envs", "jaxrl")
# Packages whose modules need no permission, by what is imported from them.
_PERMITTED = {"environment": OURS, "optimiser": ("optax",)}
# Fields of configurations that take the path of a function.
FUNCTIONS = ("optimiser", "actor_sees", "critic_sees")
FUNCTION = "function"  # key of the path of a function in descriptions of environments
FUNCTION_OF_ENVIRONMENT = "environment's function"
# Environments of Gymnasium that create an environment of another library, which their field env_id names.
_OF_ANY_NAME = {"gymnasium/GymV21Environment-v0": "gym", "gymnasium/GymV26Environment-v0": "gym"}

__all__ = [
    "FUNCTION",
    "FUNCTIONS",
    "FUNCTION_OF_ENVIRONMENT",
    "Allow",
    "NotAllowedError",
    "check_allowed",
    "custom_modules",
    "modules_of",
]

Allow = str | Collection[str]


class NotAllowedError(UserValueError):
    """Error for a description that names a module that the user has not allowed."""


def modules_of(allow: Allow) -> tuple[str, ...]:
    """Names of the allowed modules.

    Args:
      allow: Names of modules, one or several.

    Raises:
      TypeError: `allow` contains other values than names of modules.
    """
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    for name in allowed:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise UserTypeError(f"allow takes names of modules, such as 'my_algorithms', got {name!r}")
    return allowed


def check_allowed(spec: Mapping[str, Any], own: Collection[str], allow: Allow = ()) -> None:
    """Reject a description that names a custom module, before anything is imported.

    Args:
      spec: Description by `registry.describe`.
      own: Names and paths `module:function` of jaxrl's algorithms.
      allow: Names of modules that may be imported, including their submodules; one or several.

    Raises:
      NotAllowedError: The description names another module.
    """
    allowed = modules_of(allow)
    for what, name, module in custom_modules(spec, own):
        if any(f"{module}.".startswith(f"{each}.") for each in allowed):
            continue
        raise NotAllowedError(
            f"the {what} {name!r} is of the module {module!r}, which a result imports only where you allow it: pass "
            f"allow={module!r} (--allow {module}), with PYTHONPATH set to the directory that holds it where that is "
            "another one."
        )


def custom_modules(spec: Mapping[str, Any], own: Collection[str]) -> Iterator[tuple[str, Any, str]]:
    """Kind, name and module of each part of a description that is of a custom module.

    Args:
      spec: Description by `registry.describe`.
      own: Names and paths `module:function` of jaxrl's algorithms.
    """
    named = [("algorithm", spec["algorithm"])] if spec["algorithm"] not in own else []
    named += [("environment", name) for name in _environments(spec["environment"])]
    named += [(FUNCTION_OF_ENVIRONMENT, name) for name in _functions([spec["environment"], spec.get("config")])]
    config = spec.get("config") or {}
    named += [(what, config[what]) for what in FUNCTIONS if isinstance(config.get(what), str)]
    for what, name in named:
        if (module := _module(what, str(name))) is not None:
            yield what, name, module


def _environments(spec: Any) -> Iterator[str]:
    """Names of an environment and of all environments that it wraps."""
    if isinstance(spec, Mapping) and "name" in spec:
        yield spec["name"]
        for value in dict(spec.get("static") or {}).values():
            yield from _environments(value)


def _functions(spec: Any) -> Iterator[str]:
    """Paths of the functions that a description names by `FUNCTION`, at any depth."""
    if isinstance(spec, Mapping):
        if FUNCTION in spec:
            yield str(spec[FUNCTION])
        for value in spec.values():
            yield from _functions(value)
    elif isinstance(spec, list | tuple):
        for value in spec:
            yield from _functions(value)


def _module(what: str, name: str) -> str | None:
    """Module that needs permission; None if none does."""
    if what == FUNCTION_OF_ENVIRONMENT:
        return name.partition(":")[0]
    if name in _OF_ANY_NAME:
        return _OF_ANY_NAME[name]
    library, slash, _ = name.partition("/")
    if ":" not in name or (what == "environment" and slash and library in environments.LIBRARIES):
        return None
    module = name.partition(":")[0]
    return None if module.partition(".")[0] in _PERMITTED.get(what, ()) else module
