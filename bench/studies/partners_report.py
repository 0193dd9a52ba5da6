"""Tables of the study of partners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.studies.frames import MISSING, estimate, improvement

if TYPE_CHECKING:
    import pandas

# Share of the oracle's reward that counts as reached.
REACHED = 0.9

__all__ = [
    "ADAPTATION",
    "IMPROVEMENT",
    "adaptation_table",
    "improvement_table",
    "returns_table",
    "steps_table",
    "with_failures",
]


def returns_table(
    played: dict[str, Any], members: dict[str, np.ndarray], known: np.ndarray, bayes: float
) -> pandas.DataFrame:
    """A row per method: returns with each group of partners, and as shares of the best ones."""
    import pandas

    best = known.sum(axis=1)
    rows = []
    for method, data in played.items():
        returns = data["reward"].values.sum(axis=-1)
        met = members["training"]
        row: dict[str, Any] = {"method": method}
        row |= {name: estimate(returns[:, chosen].mean(axis=1)) for name, chosen in members.items()}
        beside = data["stranger_reward"].values.sum(axis=-1).mean(axis=1) if "stranger_reward" in data else None
        row["self-play"] = "" if beside is None else estimate(beside)
        row["share of best response"] = estimate((returns[:, met] / best[met]).mean(axis=1))
        row["share of Bayes"] = estimate(returns[:, met].mean(axis=1) / bayes)
        row["calibration error"] = float(data["calibration_error"]) if "calibration_error" in data else float("nan")
        rows.append(row)
    return with_failures(pandas.DataFrame(rows), played)


def with_failures(frame: pandas.DataFrame, played: dict[str, Any]) -> pandas.DataFrame:
    """The frame with the number of failed runs of each method, whose rewards are nan, if there are any."""
    failed = [int(np.isnan(data["reward"].values).any(axis=(1, 2)).sum()) for data in played.values()]
    return frame.assign(failed=failed) if any(failed) else frame


IMPROVEMENT = "Probability that a run of the method returns more than one of the GRU, with its 95 % interval."


def improvement_table(played: dict[str, Any], members: dict[str, np.ndarray], methods: list[str]) -> pandas.DataFrame:
    """A row per method: its probability of improvement over the GRU with each group of partners, of good runs."""
    import pandas

    def returns(method: str, chosen: np.ndarray) -> np.ndarray:
        values = played[method]["reward"].values.sum(axis=-1)[:, chosen].mean(axis=1)
        return values[np.isfinite(values)]

    def chance(method: str, chosen: np.ndarray) -> str:
        own, others = returns(method, chosen), returns("GRU", chosen)
        if min(own.size, others.size) < 2:
            return MISSING
        return improvement(own, others)

    rows = [
        {"method": method, **{name: chance(method, chosen) for name, chosen in members.items()}} for method in methods
    ]
    return pandas.DataFrame(rows)


ADAPTATION = (
    f"Beside partners of training: the first step of an episode whose mean reward is at least {REACHED:.0%} of the "
    "oracle's at that step, and the environment steps of training after which the mean return is at least that share "
    "of the oracle's at the end; empty where it is not reached."
)


def adaptation_table(played: dict[str, Any], met: np.ndarray) -> pandas.DataFrame:
    """A row per method: the step of an episode, and of training, at which it has most of the oracle's reward."""
    import pandas

    def rewards(method: str) -> np.ndarray:
        return np.nanmean(played[method]["reward"].values[:, met], axis=(0, 1))

    def returns(method: str) -> np.ndarray:
        return np.nanmean(played[method]["trained_return"].values, axis=0)

    rows = []
    for method, data in played.items():
        step = np.flatnonzero(rewards(method) >= REACHED * rewards("oracle"))
        evaluation = np.flatnonzero(returns(method) >= REACHED * returns("oracle")[-1])
        env_steps = data["env_step"].values
        rows.append(
            {
                "method": method,
                "step of the episode": str(step[0] + 1) if len(step) else "",
                "environment steps": f"{int(env_steps[evaluation[0]]):,}" if len(evaluation) else "",
            }
        )
    return pandas.DataFrame(rows)


def steps_table(regrets: dict[str, np.ndarray], accuracies: dict[str, np.ndarray]) -> pandas.DataFrame:
    """A row per step of an episode: the regret of each method, and the accuracy of each belief."""
    import pandas

    steps = np.arange(1, len(next(iter(regrets.values()))) + 1)
    accuracy = {f"accuracy: {name}": values for name, values in accuracies.items()}
    return pandas.DataFrame({"step": steps, **{f"regret: {name}": each for name, each in regrets.items()}, **accuracy})
