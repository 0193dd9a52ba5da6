"""Reinforcement learning in JAX under any discount: thousands of seeds and settings in one call.

Names are imported when they are first used, so that `import jaxrl` alone starts neither JAX
nor anything else that is slow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxrl.version import REPOSITORY, __version__

if TYPE_CHECKING:
    from jaxrl import (
        bandits,
        discount_properties,
        distributed,
        hazards,
        plotting,
        presets,
        presets_crowd,
        statistics,
        tracking,
    )
    from jaxrl.advantages import gae, lambda_returns, mixture_ugae, monte_carlo, ugae
    from jaxrl.algorithms.base import Algorithm
    from jaxrl.algorithms.ppo import PPOConfig, PPOHParams, ppo
    from jaxrl.bandits.running import run_bandit
    from jaxrl.checking import check
    from jaxrl.crowds import walk
    from jaxrl.discount_fit import fit
    from jaxrl.discounting import (
        BetaWeighted,
        Exponential,
        FixedHorizon,
        Hyperbolic,
        QuasiHyperbolic,
        Tabulated,
        Truncated,
        as_discount,
    )
    from jaxrl.export import export_policy
    from jaxrl.exported import load_exported
    from jaxrl.halving import Halving
    from jaxrl.merging import merge
    from jaxrl.planning import Plan, plan
    from jaxrl.population import PopulationResult, population_based_training
    from jaxrl.presets import preset
    from jaxrl.rendering import render
    from jaxrl.report import write_report
    from jaxrl.results import Result
    from jaxrl.resuming import resume
    from jaxrl.run_directory import load_result
    from jaxrl.search_result import SearchResult
    from jaxrl.searching import search
    from jaxrl.sweeps import Choice, LogUniform, Sweep, Uniform, grid, sample
    from jaxrl.training import TrainOutput, make_train, train

__all__ = [
    "REPOSITORY",
    "Algorithm",
    "BetaWeighted",
    "Choice",
    "Exponential",
    "FixedHorizon",
    "Halving",
    "Hyperbolic",
    "LogUniform",
    "PPOConfig",
    "PPOHParams",
    "Plan",
    "PopulationResult",
    "QuasiHyperbolic",
    "Result",
    "SearchResult",
    "Sweep",
    "Tabulated",
    "TrainOutput",
    "Truncated",
    "Uniform",
    "__version__",
    "as_discount",
    "bandits",
    "check",
    "discount_properties",
    "distributed",
    "export_policy",
    "fit",
    "gae",
    "grid",
    "hazards",
    "lambda_returns",
    "load_exported",
    "load_result",
    "make_train",
    "merge",
    "mixture_ugae",
    "monte_carlo",
    "plan",
    "plotting",
    "population_based_training",
    "ppo",
    "preset",
    "presets",
    "presets_crowd",
    "render",
    "resume",
    "run_bandit",
    "sample",
    "search",
    "statistics",
    "tracking",
    "train",
    "ugae",
    "walk",
    "write_report",
]

_NAMES_OF_MODULE = {
    "advantages": ("gae", "lambda_returns", "mixture_ugae", "monte_carlo", "ugae"),
    "algorithms.base": ("Algorithm",),
    "algorithms.ppo": ("PPOConfig", "PPOHParams", "ppo"),
    "bandits.running": ("run_bandit",),
    "checking": ("check",),
    "crowds": ("walk",),
    "discount_fit": ("fit",),
    "discounting": (
        "BetaWeighted",
        "Exponential",
        "FixedHorizon",
        "Hyperbolic",
        "QuasiHyperbolic",
        "Tabulated",
        "Truncated",
        "as_discount",
    ),
    "export": ("export_policy",),
    "exported": ("load_exported",),
    "halving": ("Halving",),
    "merging": ("merge",),
    "population": ("PopulationResult", "population_based_training"),
    "planning": ("Plan", "plan"),
    "presets": ("preset",),
    "rendering": ("render",),
    "report": ("write_report",),
    "results": ("Result",),
    "resuming": ("resume",),
    "run_directory": ("load_result",),
    "search_result": ("SearchResult",),
    "searching": ("search",),
    "sweeps": ("Choice", "LogUniform", "Sweep", "Uniform", "grid", "sample"),
    "training": ("TrainOutput", "make_train", "train"),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}
_MODULES = frozenset(
    {
        "bandits",
        "discount_properties",
        "distributed",
        "hazards",
        "plotting",
        "presets",
        "presets_crowd",
        "statistics",
        "tracking",
    }
)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name in _MODULES:
        return importlib.import_module(f"jaxrl.{name}")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(_unknown_name(name), name=name)
    require_own_envs()
    value = getattr(importlib.import_module(f"jaxrl.{_MODULE_OF_NAME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _unknown_name(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, __all__, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"module 'jaxrl' has no attribute {name!r}{hint}"


def require_own_envs() -> None:
    """Raises ImportError where the package `envs` is not the one that comes with jaxrl."""
    import importlib.util
    import os

    spec = importlib.util.find_spec("envs")
    if spec is None:
        raise ImportError("the package 'envs', which comes with jaxrl, is not installed; install jaxrl again")
    expected = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, "envs"))
    found = [os.path.realpath(path) for path in spec.submodule_search_locations or [spec.origin or "?"]]
    if expected not in found:
        raise ImportError(f"another 'envs', {found[0]}, hides the one that comes with jaxrl, {expected}; rename it")
