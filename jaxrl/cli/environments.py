"""`jaxrl envs`: table of the named environments."""

import importlib
import math
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np
from packaging.requirements import Requirement

import envs
from envs.base import OPTIMUM_KINDS, Environment, OptimumKind, bound_of, optimum_of, spaces
from envs.errors import installing
from envs.gymnax_environment import DOWNLOADED
from envs.registry import LIBRARIES, ROWS
from envs.wrappers.wrapper import limit
from jaxrl.discounts.parsing import as_discount
from jaxrl.pytrees import DiscountLike
from jaxrl.results.text_tables import aligned, plain_lines

_COLUMNS = ("name", "observation", "action", "limit", "optimum", "bar")


def environments_text() -> str:
    """Table with a row for each environment of this project and of gymnax."""
    rows = [_row(name) for name in envs.names()]
    right = [column in _COLUMNS[3:] for column in _COLUMNS]
    return "\n".join(
        [
            *plain_lines(aligned([_COLUMNS, *rows], right)),
            "",
            "limit: steps of an episode; optimum: best expected return of an episode, - where it is not known exactly,",
            "or <= and an upper bound;",
            "bar: return that counts as solved; each under the default parameters, as are the sizes of observations",
            "and actions, of one agent. The optimum of a bandit depends on its instance; jaxrl bandit reports regret.",
            "An environment that downloads data when it is made has no sizes here.",
            "",
            *_libraries(),
        ]
    )


def optima_text(discount: str | None = None) -> str:
    """Table with a row for each environment of this project and of gymnax whose optimum is known.

    Args:
      discount: Discount as text; None for the undiscounted return.
    """
    curve = None if discount is None else as_discount(discount)
    rows = []
    for name in envs.names():
        env = None if name in DOWNLOADED else envs.make(name)
        optima = [_optimum(name, env, curve, kind) for kind in OPTIMUM_KINDS] if env is not None else []
        if any(value != "-" for value in optima):
            rows.append((name, *optima))
    return "\n".join(
        [
            *plain_lines(aligned([("name", *OPTIMUM_KINDS), *rows], [False, True, True, True])),
            "",
            f"Best expected return of an episode under the default parameters, discounted by {discount or 'nothing'}:",
            "precommitted, of all policies; stationary, of those of the observation alone or of a class of the task;",
            "sophisticated, of the policy that no change of a single step improves; - where it is not known exactly,",
            "or <= and an upper bound where one is known.",
        ]
    )


def _libraries() -> list[str]:
    """Lines on the environments of other libraries, none of which is imported."""
    lines = ["Environments of other libraries, which `jaxrl envs LIBRARY` lists:"]
    for library, module in LIBRARIES.items():
        if library != "gymnax":
            lines.append(f"  {library}/...  {_installed(library, vars(importlib.import_module(module)))}")
    return lines


def _installed(library: str, adapter: Mapping[str, Any]) -> str:
    """The version of a library, or how to install it, by the names that its adapter's module defines."""
    if "REQUIREMENT" not in adapter:
        return "installed with jaxrl"
    name = Requirement(adapter["REQUIREMENT"]).name
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"not installed: {adapter.get('INSTALLING', installing(library))}"


def _row(name: str) -> tuple[str, ...]:
    if name in DOWNLOADED:
        return (name, *["-"] * (len(_COLUMNS) - 1))
    env = envs.make(name)
    params, row = env.default_params, ROWS.get(name)
    bar = "-" if row is None or row.bar is None else f"{row.bar:g}"
    spaces_of = (_space(env.observation_space(params)), _space(env.action_space(params)))
    return (name, *spaces_of, str(int(np.max(limit(env, params)))), _optimum(name, env), bar)


def _optimum(name: str, env: Environment, discount: DiscountLike = None, kind: OptimumKind = "precommitted") -> str:
    """The optimum as text: as a bound of the precommitted one where this alone is known, "-" where nothing is."""
    row = ROWS.get(name)
    if row is not None and row.optimum is not None:
        return f"{row.optimum:g}" if discount is None else "-"
    value = optimum_of(env, None, discount, kind)
    if value is not None:
        return f"{value:g}"
    most = bound_of(env, None, discount) if kind == "precommitted" else None
    return "-" if most is None else f"<= {most:g}"


def _space(space: spaces.Space) -> str:
    """Short description of a space: its numbers, its choices, or those of its parts."""
    if isinstance(space, spaces.Discrete):
        return f"{space.n} choices"
    if isinstance(space, spaces.Box):
        return f"{' x '.join(map(str, space.shape)) or 1} number{'s' * (math.prod(space.shape) != 1)}"
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else vars(space)["spaces"]
    texts = [_space(part) for part in parts]
    return f"{len(texts)} x {texts[0]}" if len(set(texts)) == 1 and len(texts) > 1 else ", ".join(texts)
