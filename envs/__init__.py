"""Environments as pure JAX functions, behind one contract.

`make(name)` builds an environment, `names()` lists them, `check(env)` tests any environment. A custom environment is
built from `Environment`, `EnvParams`, `EnvState` and `spaces`, or by `from_functions`; `adapt` takes objects of other
interfaces. `wrappers` modify environments, and `probes` are tiny
environments with closed-form values. Keys of `unrolled` speed up random draws on CPUs.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envs import probes, wrappers
    from envs.adapters.incoming.adapting import adapt
    from envs.adapters.incoming.functions import from_functions
    from envs.base import Environment, EnvParams, EnvState, MetricRule, spaces
    from envs.checking import ContractError, check
    from envs.choices import MultiDiscrete
    from envs.registry import make, names
    from envs.threefry import unrolled

__all__ = [
    "ContractError",
    "EnvParams",
    "EnvState",
    "Environment",
    "MetricRule",
    "MultiDiscrete",
    "adapt",
    "check",
    "from_functions",
    "make",
    "names",
    "probes",
    "spaces",
    "unrolled",
    "wrappers",
]

_HOME = {
    "ContractError": "envs.checking",
    "EnvParams": "envs.base",
    "EnvState": "envs.base",
    "Environment": "envs.base",
    "MetricRule": "envs.base",
    "MultiDiscrete": "envs.choices",
    "adapt": "envs.adapters.incoming.adapting",
    "check": "envs.checking",
    "from_functions": "envs.adapters.incoming.functions",
    "make": "envs.registry",
    "names": "envs.registry",
    "spaces": "envs.base",
    "unrolled": "envs.threefry",
}
_MODULES = ("probes", "wrappers")


if not TYPE_CHECKING:  # so that type checkers report unknown names

    def __getattr__(name: str) -> Any:
        """Import a name on first use: `import envs` alone loads neither JAX nor gymnax."""
        if name in _MODULES:
            return importlib.import_module(f"envs.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'envs' has no attribute {name!r}")
        value = vars(importlib.import_module(_HOME[name]))[name]
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
