"""Reinforcement learning in JAX under any discount: thousands of seeds and settings in one call.

Names are imported when they are first used, so that `import jaxrl` alone loads neither JAX nor other slow modules.
"""

from typing import TYPE_CHECKING

from jaxrl.lazy import attach
from jaxrl.version import __version__ as __version__

if TYPE_CHECKING:  # the list of public names; the repeated names export them to type checkers
    # isort: off
    # fmt: off
    from jaxrl import (
        bandits as bandits, benchmark as benchmark, distributed as distributed, hazards as hazards,
        plotting as plotting, presets as presets, statistics as statistics, tracking as tracking
    )
    from jaxrl.algorithms.a2c import A2CConfig as A2CConfig, A2CHParams as A2CHParams, a2c as a2c
    from jaxrl.algorithms.contract import Algorithm as Algorithm
    from jaxrl.algorithms.dqn import DQNConfig as DQNConfig, DQNHParams as DQNHParams, dqn as dqn
    from jaxrl.algorithms.evolve import EvolveConfig as EvolveConfig, EvolveHParams as EvolveHParams, evolve as evolve
    from jaxrl.algorithms.mdpo import MDPOConfig as MDPOConfig, MDPOHParams as MDPOHParams, mdpo as mdpo
    from jaxrl.algorithms.ppo import PPOConfig as PPOConfig, PPOHParams as PPOHParams, ppo as ppo
    from jaxrl.algorithms.ppo_kl import PPOKLConfig as PPOKLConfig, PPOKLHParams as PPOKLHParams, ppo_kl as ppo_kl
    from jaxrl.algorithms.pqn import PQNConfig as PQNConfig, PQNHParams as PQNHParams, pqn as pqn
    from jaxrl.algorithms.reinforce import (
        ReinforceConfig as ReinforceConfig, ReinforceHParams as ReinforceHParams, reinforce as reinforce
    )
    from jaxrl.algorithms.sac import SACConfig as SACConfig, SACHParams as SACHParams, sac as sac
    from jaxrl.algorithms.spo import SPOConfig as SPOConfig, SPOHParams as SPOHParams, spo as spo
    from jaxrl.algorithms.td3 import TD3Config as TD3Config, TD3HParams as TD3HParams, td3 as td3
    from jaxrl.bandits.runner import run_bandit as run_bandit
    from jaxrl.discounts.fitting import fit as fit
    from jaxrl.discounts.parsing import (
        BetaWeighted as BetaWeighted, Exponential as Exponential, ExponentialMixture as ExponentialMixture,
        FixedHorizon as FixedHorizon, Hyperbolic as Hyperbolic, QuasiHyperbolic as QuasiHyperbolic,
        Tabulated as Tabulated, TruncatedDiscount as TruncatedDiscount, as_discount as as_discount
    )
    from jaxrl.learning.advantages import (
        gae as gae, lambda_returns as lambda_returns, mixture_ugae as mixture_ugae, monte_carlo as monte_carlo,
        ugae as ugae
    )
    from jaxrl.learning.composites import Curve as Curve
    from jaxrl.learning.output_networks import Networks as Networks
    from jaxrl.policies.collecting import collect as collect
    from jaxrl.policies.crowds import walk as walk
    from jaxrl.policies.evaluating import evaluate as evaluate
    from jaxrl.policies.export import export_policy as export_policy
    from jaxrl.policies.films import films as films
    from jaxrl.policies.load_exported import load_exported as load_exported
    from jaxrl.policies.partners import Partners as Partners, load_partners as load_partners
    from jaxrl.policies.rendering import render as render
    from jaxrl.policies.saving import save_steps as save_steps, to_minari as to_minari
    from jaxrl.presets.registry import preset as preset
    from jaxrl.report.comparing import compare as compare
    from jaxrl.report.comparison import Comparison as Comparison
    from jaxrl.report.page import write_report as write_report
    from jaxrl.report.sequential_comparison import SequentialComparison as SequentialComparison
    from jaxrl.results.held_out import held_out_table as held_out_table
    from jaxrl.results.json_values import versions as versions
    from jaxrl.results.loading import load_result as load_result
    from jaxrl.results.result import Result as Result
    from jaxrl.runtime.evaluate_again import evaluate_result as evaluate_result
    from jaxrl.runtime.laws.algorithm_laws import check as check
    from jaxrl.runtime.merging import merge as merge
    from jaxrl.runtime.options import RunOptions as RunOptions
    from jaxrl.runtime.plan_call import Plan as Plan, plan as plan
    from jaxrl.runtime.programs import clear_programs as clear_programs
    from jaxrl.runtime.resuming import resume as resume
    from jaxrl.runtime.training import TrainOutput as TrainOutput, make_train as make_train, train as train
    from jaxrl.sweeps.sweep import (
        Choice as Choice, LogUniform as LogUniform, Sweep as Sweep, Uniform as Uniform, grid as grid, sample as sample
    )
    from jaxrl.tuning.halving import Halving as Halving
    from jaxrl.tuning.learned.discount import learned_discount as learned_discount
    from jaxrl.tuning.learned.drift import learned_drift as learned_drift
    from jaxrl.tuning.learned.numbers import learned_numbers as learned_numbers
    from jaxrl.tuning.learned.optimiser import learned_optimiser as learned_optimiser
    from jaxrl.tuning.learned.schedules import learned_schedule as learned_schedule
    from jaxrl.tuning.learned.theta import Theta as Theta
    from jaxrl.tuning.meta import meta as meta
    from jaxrl.tuning.outer.result import (
        MetaResult as MetaResult, load_meta_table as load_meta_table, load_theta as load_theta
    )
    from jaxrl.tuning.population import (
        PopulationResult as PopulationResult, population_based_training as population_based_training
    )
    from jaxrl.tuning.result import SearchResult as SearchResult
    from jaxrl.tuning.search import search as search
    # fmt: on


def require_own_envs() -> None:
    """Raise ImportError where the package `envs` is not the one that comes with jaxrl."""
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
    # A distribution installed later, such as envs of PyPI, writes its own __init__.py into the same directory.
    if spec.origin is not None and spec.origin.endswith(".py") and os.path.isfile(spec.origin):
        with open(spec.origin, encoding="utf-8", errors="replace") as file:
            if "from envs.registry import" not in file.read():
                raise ImportError(f"{spec.origin} is of another package 'envs': uninstall it and install jaxrl again")


def _warn_of_another_envs() -> None:
    """Warn early if another package provides `envs`, before an attribute of it is missing."""
    import warnings

    try:
        require_own_envs()
    except ImportError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)


_get, __dir__, __all__ = attach(__name__, "__version__", before=require_own_envs)
if not TYPE_CHECKING:  # so that type checkers report unknown names
    __getattr__ = _get
_warn_of_another_envs()
