"""Comparison of policies: their mean regret, as lines and as a table, and the lower bounds for a bandit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from jaxrl.bandits.bounds.lower import lai_robbins, minimax
from jaxrl.bandits.bounds.prior import lai
from jaxrl.pytrees import EnvParams
from jaxrl.results.mean_curves import lines_of
from jaxrl.results.tables import Table

if TYPE_CHECKING:
    from envs.bandits.base import Bandit
    from jaxrl.results.result import Result

# Kind of rewards by the bandit's name, in the form that `lai_robbins` takes.
FAMILIES = MappingProxyType({f"bandit/{name}": name for name in ("bernoulli", "gaussian", "poisson", "exponential")})

__all__ = ["bounds_of", "headline", "regret_table"]


def regret_table(results: Mapping[str, Result], *, confidence: float = 0.95) -> Table:
    """A row for every policy and setting: mean regret at the end and its interval, optimal pulls, simple regret.

    Args:
      results: Results of `run_bandit` by label.
      confidence: Confidence of the interval of the mean.

    Returns:
      A table that prints well and has `to_pandas()`. Runs that failed are left out and counted.
      For bandits without a regret it contains the reward of a pull.

    Raises:
      ValueError: There are no results, or only some of them have a regret.
    """
    first = headline(results)
    others = [
        name for name in ("optimal", "simple_regret") if all(name in result.metrics for result in results.values())
    ]
    lines = lines_of(results, first, confidence)
    lines_of_others = [lines_of(results, name, confidence) for name in others]
    paths = list(dict.fromkeys(path for line in lines for path in line.setting))
    rows = []
    for line, *rest in zip(lines, *lines_of_others, strict=True):
        numbers = [float(part[-1]) for part in (*line.mean, *(other.mean.value for other in rest))]
        labels = [line.label, *(line.setting.get(path, "") for path in paths)]
        rows.append((*labels, *numbers, line.runs, line.failed))
    titles = [{"optimal": "optimal pulls"}.get(name, name.replace("_", " ")) for name in others]
    names = ("policy", *paths, first, "low", "high", *titles, "runs", "failed")
    if not any(line.failed for line in lines):
        names, rows = names[:-1], [row[:-1] for row in rows]
    pulls = " or ".join(f"{last:,}" for last in sorted({int(line.steps[-1]) for line in lines}))
    title = f"{first} after {pulls} pulls: mean over runs, {confidence:.0%} interval of the mean"
    return Table(title, names, tuple(rows), 1 + len(paths))


def headline(results: Mapping[str, Result]) -> str:
    """The metric by which results are compared: `regret`, or `reward` where the bandit has no regret."""
    return "regret" if any("regret" in result.metrics for result in results.values()) else "reward"


def bounds_of(env: Bandit, env_params: EnvParams = None) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The lower bounds for a bandit, in the form that `jaxrl.plotting.regret_curves` draws.

    Args:
      env: Bandit.
      env_params: One setting of its parameters; its defaults if None.

    Returns:
      `{label: function of the numbers of pulls}`: the asymptotic lower bound on a given instance with known rewards
      (Lai and Robbins) or, for Bernoulli arms, on the mean over the prior (Lai); and the lower bound on the worst
      instance (minimax). Empty if no bound is known, or none is above 0.
    """
    family = FAMILIES.get(env.name)
    if family is None:
        return {}
    params = env.default_params if env_params is None else env_params
    lower_bounds: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    if params.means is not None:
        sigma = float(params.sigma) if family == "gaussian" else 1.0
        proper = sigma > 0 and (family not in ("poisson", "exponential") or np.all(np.asarray(params.means) > 0))
        slope = float(lai_robbins(params.means, family, sigma)) if proper else 0.0
        if slope > 0:
            lower_bounds["Lai-Robbins, for many pulls"] = lambda steps: slope * np.log(steps)
    elif family == "bernoulli":
        over_prior = lai(env.num_arms, float(params.alpha), float(params.beta))
        lower_bounds["Lai, mean over the prior, for many pulls"] = lambda steps: over_prior * np.log(steps) ** 2
    if family == "bernoulli":
        lower_bounds["minimax, on some instance"] = lambda steps: minimax(env.num_arms, steps)
    return lower_bounds
