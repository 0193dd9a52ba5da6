"""Reinforcement learning in JAX under any discount: thousands of seeds and settings in one call.

Names are imported when they are first used, so that `import jaxrl` alone loads neither JAX nor other slow modules.
"""

from typing import TYPE_CHECKING

from jaxrl.lazy import attach
from jaxrl.version import REPOSITORY, __version__

if TYPE_CHECKING:
    from jaxrl import bandits, presets, tracking
    from jaxrl.algorithms.a2c import A2CConfig, A2CHParams, a2c
    from jaxrl.algorithms.contract import Algorithm
    from jaxrl.algorithms.dqn import DQNConfig, DQNHParams, dqn
    from jaxrl.algorithms.evolve import EvolveConfig, EvolveHParams, evolve
    from jaxrl.algorithms.mdpo import MDPOConfig, MDPOHParams, mdpo
    from jaxrl.algorithms.ppo import PPOConfig, PPOHParams, ppo
    from jaxrl.algorithms.ppo_kl import PPOKLConfig, PPOKLHParams, ppo_kl
    from jaxrl.algorithms.pqn import PQNConfig, PQNHParams, pqn
    from jaxrl.algorithms.reinforce import ReinforceConfig, ReinforceHParams, reinforce
    from jaxrl.algorithms.sac import sac
    from jaxrl.algorithms.sac_config import SACConfig, SACHParams
    from jaxrl.algorithms.spo import SPOConfig, SPOHParams, spo
    from jaxrl.algorithms.td3 import TD3Config, TD3HParams, td3
    from jaxrl.bandits.runner import run_bandit
    from jaxrl.discounts import hazards
    from jaxrl.discounts import properties as discount_properties
    from jaxrl.discounts.fitting import fit
    from jaxrl.discounts.parsing import (
        BetaWeighted,
        Exponential,
        FixedHorizon,
        Hyperbolic,
        QuasiHyperbolic,
        Tabulated,
        Truncated,
        as_discount,
    )
    from jaxrl.learning.advantages import gae, lambda_returns, mixture_ugae, monte_carlo, ugae
    from jaxrl.policies.crowds import walk
    from jaxrl.policies.export import export_policy
    from jaxrl.policies.load_exported import load_exported
    from jaxrl.policies.partners import Partners, load_partners
    from jaxrl.policies.rendering import render
    from jaxrl.presets import crowd as presets_crowd
    from jaxrl.presets.registry import preset
    from jaxrl.report.page import write_report
    from jaxrl.results import plotting, statistics
    from jaxrl.results.loading import load_result
    from jaxrl.results.result import Result
    from jaxrl.runtime.hosts import processes as distributed
    from jaxrl.runtime.laws.algorithm_laws import check
    from jaxrl.runtime.merging import merge
    from jaxrl.runtime.options import RunOptions
    from jaxrl.runtime.plan_call import Plan, plan
    from jaxrl.runtime.resuming import resume
    from jaxrl.runtime.training import TrainOutput, make_train, train
    from jaxrl.sweeps.sweep import Choice, LogUniform, Sweep, Uniform, grid, sample
    from jaxrl.tuning.halving import Halving
    from jaxrl.tuning.population import PopulationResult, population_based_training
    from jaxrl.tuning.result import SearchResult
    from jaxrl.tuning.search import search

__all__ = [
    "REPOSITORY",
    "A2CConfig",
    "A2CHParams",
    "Algorithm",
    "BetaWeighted",
    "Choice",
    "DQNConfig",
    "DQNHParams",
    "EvolveConfig",
    "EvolveHParams",
    "Exponential",
    "FixedHorizon",
    "Halving",
    "Hyperbolic",
    "LogUniform",
    "MDPOConfig",
    "MDPOHParams",
    "PPOConfig",
    "PPOHParams",
    "PPOKLConfig",
    "PPOKLHParams",
    "PQNConfig",
    "PQNHParams",
    "Partners",
    "Plan",
    "PopulationResult",
    "QuasiHyperbolic",
    "ReinforceConfig",
    "ReinforceHParams",
    "Result",
    "RunOptions",
    "SACConfig",
    "SACHParams",
    "SPOConfig",
    "SPOHParams",
    "SearchResult",
    "Sweep",
    "TD3Config",
    "TD3HParams",
    "Tabulated",
    "TrainOutput",
    "Truncated",
    "Uniform",
    "__version__",
    "a2c",
    "as_discount",
    "bandits",
    "check",
    "discount_properties",
    "distributed",
    "dqn",
    "evolve",
    "export_policy",
    "fit",
    "gae",
    "grid",
    "hazards",
    "lambda_returns",
    "load_exported",
    "load_partners",
    "load_result",
    "make_train",
    "mdpo",
    "merge",
    "mixture_ugae",
    "monte_carlo",
    "plan",
    "plotting",
    "population_based_training",
    "ppo",
    "ppo_kl",
    "pqn",
    "preset",
    "presets",
    "presets_crowd",
    "reinforce",
    "render",
    "resume",
    "run_bandit",
    "sac",
    "sample",
    "search",
    "spo",
    "statistics",
    "td3",
    "tracking",
    "train",
    "ugae",
    "walk",
    "write_report",
]

_NAMES_OF_MODULE = {
    "algorithms.a2c": ("A2CConfig", "A2CHParams", "a2c"),
    "algorithms.contract": ("Algorithm",),
    "algorithms.dqn": ("DQNConfig", "DQNHParams", "dqn"),
    "algorithms.evolve": ("EvolveConfig", "EvolveHParams", "evolve"),
    "algorithms.mdpo": ("MDPOConfig", "MDPOHParams", "mdpo"),
    "algorithms.ppo": ("PPOConfig", "PPOHParams", "ppo"),
    "algorithms.ppo_kl": ("PPOKLConfig", "PPOKLHParams", "ppo_kl"),
    "algorithms.pqn": ("PQNConfig", "PQNHParams", "pqn"),
    "algorithms.reinforce": ("ReinforceConfig", "ReinforceHParams", "reinforce"),
    "algorithms.sac": ("sac",),
    "algorithms.sac_config": ("SACConfig", "SACHParams"),
    "algorithms.spo": ("SPOConfig", "SPOHParams", "spo"),
    "algorithms.td3": ("TD3Config", "TD3HParams", "td3"),
    "bandits.runner": ("run_bandit",),
    "discounts.fitting": ("fit",),
    "discounts.parsing": (
        "BetaWeighted",
        "Exponential",
        "FixedHorizon",
        "Hyperbolic",
        "QuasiHyperbolic",
        "Tabulated",
        "Truncated",
        "as_discount",
    ),
    "learning.advantages": ("gae", "lambda_returns", "mixture_ugae", "monte_carlo", "ugae"),
    "policies.crowds": ("walk",),
    "policies.export": ("export_policy",),
    "policies.load_exported": ("load_exported",),
    "policies.partners": ("Partners", "load_partners"),
    "policies.rendering": ("render",),
    "presets.registry": ("preset",),
    "report.page": ("write_report",),
    "results.loading": ("load_result",),
    "results.result": ("Result",),
    "runtime.laws.algorithm_laws": ("check",),
    "runtime.merging": ("merge",),
    "runtime.options": ("RunOptions",),
    "runtime.plan_call": ("Plan", "plan"),
    "runtime.resuming": ("resume",),
    "runtime.training": ("TrainOutput", "make_train", "train"),
    "sweeps.sweep": ("Choice", "LogUniform", "Sweep", "Uniform", "grid", "sample"),
    "tuning.halving": ("Halving",),
    "tuning.population": ("PopulationResult", "population_based_training"),
    "tuning.result": ("SearchResult",),
    "tuning.search": ("search",),
}
# Modules that are public under their own names.
_MODULES = {
    "bandits": "bandits",
    "discount_properties": "discounts.properties",
    "distributed": "runtime.hosts.processes",
    "hazards": "discounts.hazards",
    "plotting": "results.plotting",
    "presets": "presets",
    "presets_crowd": "presets.crowd",
    "statistics": "results.statistics",
    "tracking": "tracking",
}


def require_own_envs() -> None:
    """Raises ImportError where the package `envs` is not the one that comes with jaxrl."""
    import importlib.util
    import os

    try:
        spec = importlib.util.find_spec("envs")
    except ValueError:  # a module without a specification
        raise ImportError("another 'envs' hides the one that comes with jaxrl; rename it") from None
    if spec is None:
        raise ImportError("the package 'envs', which comes with jaxrl, is not installed; install jaxrl again")
    expected = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, "envs"))
    located = [os.path.realpath(path) for path in spec.submodule_search_locations or [spec.origin or "?"]]
    if expected not in located:
        raise ImportError(f"another 'envs', {located[0]}, hides the one that comes with jaxrl, {expected}; rename it")


def _warn_of_another_envs() -> None:
    """Warns early if another package provides `envs`, before an attribute of it is missing."""
    import warnings

    try:
        require_own_envs()
    except ImportError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)


__getattr__, __dir__ = attach(__name__, globals(), _NAMES_OF_MODULE, _MODULES, require_own_envs)
_warn_of_another_envs()
