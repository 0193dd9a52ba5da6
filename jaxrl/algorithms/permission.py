"""Modules that a description may import: those of jaxrl and of known libraries, and what the user names."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from envs import registry as environments
from envs.errors import UserTypeError, UserValueError

OURS = ("envs", "jaxrl")
# Environments of Gymnasium's that make one of another library, by whatever name their field env_id has.
_OF_ANY_NAME = {"gymnasium/GymV21Environment-v0": "gym", "gymnasium/GymV26Environment-v0": "gym"}

__all__ = ["Allow", "NotAllowedError", "check_allowed", "modules_of"]

Allow = str | Collection[str]


class NotAllowedError(UserValueError):
    """A description names a module that the user has not named."""


def modules_of(allow: Allow) -> tuple[str, ...]:
    """The modules that are allowed.

    Args:
      allow: Names of modules, one or several.

    Raises:
      TypeError: It holds something else than names of modules.
    """
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    for name in allowed:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise UserTypeError(f"allow takes names of modules, such as 'my_algorithms', got {name!r}")
    return allowed


def check_allowed(spec: Mapping[str, Any], own: Collection[str], allow: Allow = ()) -> None:
    """Refuses a description that names a module of the user's own, before anything is imported.

    Args:
      spec: Description, as in `registry.describe`.
      own: Names of algorithms, and paths `module:function`, that are jaxrl's.
      allow: Names of modules that may be imported, with those inside them; one or several.

    Raises:
      NotAllowedError: It names another one.
    """
    allowed = modules_of(allow)
    named = [("algorithm", spec["algorithm"])] if spec["algorithm"] not in own else []
    named += [("environment", name) for name in _environments(spec["environment"])]
    for what, name in named:
        module = _module(what, str(name))
        if module is None or any(f"{module}.".startswith(f"{each}.") for each in allowed):
            continue
        raise NotAllowedError(
            f"the {what} {name!r} is of the module {module!r}, which a result imports only where you allow it: pass "
            f"allow={module!r} (--allow {module}), with PYTHONPATH set to the directory that holds it where that is "
            "another one."
        )


def _environments(spec: Any) -> Iterator[str]:
    """The names of an environment and of all that it wraps."""
    if isinstance(spec, Mapping) and "name" in spec:
        yield spec["name"]
        for value in dict(spec.get("static") or {}).values():
            yield from _environments(value)


def _module(what: str, name: str) -> str | None:
    """The module that a name takes a permission for; None where it takes none."""
    if name in _OF_ANY_NAME:
        return _OF_ANY_NAME[name]
    library, slash, _ = name.partition("/")
    if ":" not in name or (what == "environment" and slash and library in environments.LIBRARIES):
        return None
    module = name.partition(":")[0]
    return None if what == "environment" and module.partition(".")[0] in OURS else module
