"""Standing still: when the least effort is not to move, and whether training finds that policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import jaxrl
from bench.studies.frames import MISSING
from bench.studies.least_effort import (
    DECISIONS,
    PREFERRED,
    THRESHOLD,
    TIME_LIMIT,
    cheapest,
    decision_weights,
    least,
    standing_cost,
    threshold,
)
from bench.studies.study import Study, StudyRun
from envs.crowd import PRESETS
from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.rewards import Weights
from envs.crowd.scenarios import GOAL_HALF, CircleParams
from envs.errors import UserValueError
from envs.wrappers import time_feature
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.ppo import PPOConfig, ppo
from jaxrl.checks import check_counts
from jaxrl.results.statistics import bootstrap_interval, iqm

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

    from jaxrl.results.result import Result

TO_TOUCH = GOAL_HALF + 0.2  # m from a goal's centre at which a body touches it
TOLERANCE = 0.03  # relative to the optimum and to the preferred speed
LONGEST_SHARE = 1.5  # longest distance in the arena, as a share of the threshold

# Settings of this project: networks wide enough for one walker without neighbours.
CONFIG = PPOConfig(
    num_envs=8,
    num_steps=DECISIONS,
    num_epochs=4,
    num_minibatches=4,
    own_hidden=(64,),
    neighbour_hidden=(1,),
    hidden=(64,),
    own_scale=2.0,
    normalise_reward=True,
    reset_pool=2,
    time_limits="terminal",
)
HPARAMS: dict[str, Any] = {
    "lr": 1e-3,
    "lr_end": 0.1,
    "discount": jaxrl.Exponential(1.0),
    "lam": 1.0,
    "target_kl": 0.05,
    "entropy_coef": 0.0,
    "log_std_init": -0.5,
}
# Changes under guiding rewards: less noise, because a noisy policy that walks at v* is too fast with greedy actions.
GUIDED: dict[str, Any] = {"lr": 2e-3, "lr_end": 0.0, "discount": jaxrl.Exponential(0.98), "log_std_init": -1.0}
PURE = Weights(bmr=1.0, drag=1.0)
WALKING_REWARDS = {
    "2022": PRESETS["2022"].weights,
    "energy-and-potential": Weights(potential=1.0, bmr=1.0, drag=1.0),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: distances, discounts and lengths of training."""

    shares: tuple[float, ...] = (0.4, 0.7, 1.3)
    """Distances to the touch of the goal under pure energy, as shares of the threshold T v* / 2."""
    discounts: tuple[str, ...] = (
        "exp:gamma=1",
        "exp:gamma=0.999",
        "exp:gamma=0.99",
        "hyperbolic:k=0.001",
        "hyperbolic:k=0.01",
    )
    """Discounts under pure energy."""
    lessons: tuple[float, ...] = (0.5, 0.0, 1.0)
    """Shares of the guiding potential in a first stage before pure energy, which trains walking to the goal at v*
    times this share. At 0.5 walkers with a distance below the threshold arrive in time, so that the stage favours
    neither outcome; 0 is pure energy from the beginning."""
    lesson_share: float = 0.4
    """Share of training in the first stage."""
    seeds: int = 8
    """Number of seeds of every setting; equal seeds share their keys."""
    env_steps: int = 150_000
    """Number of environment steps of a run under pure energy."""
    guided_env_steps: int = 400_000
    """Number of environment steps of a run under the guiding rewards."""
    evals: int = 5
    """Number of evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 8
    """Number of whole episodes of an evaluation, played greedily."""

    def __post_init__(self) -> None:
        for name in ("shares", "discounts", "lessons"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise UserValueError(
                    f"{name} takes one or more different values, got {' '.join(map(str, values)) or 'none'}"
                )
        for share in self.shares:
            if not 0 < share <= LONGEST_SHARE:
                raise UserValueError(
                    f"shares takes numbers in (0, {LONGEST_SHARE:g}], the limit of the arena, got {share}"
                )
        for discount in self.discounts:
            jaxrl.as_discount(discount)  # raises an error for an invalid discount
        for lesson in self.lessons:
            if not 0 <= lesson <= 1:
                raise UserValueError(f"lessons takes numbers in [0, 1], got {lesson}")
        if not 0 < self.lesson_share < 1:
            raise UserValueError(f"lesson_share must lie in (0, 1), got {self.lesson_share}")
        check_counts(self, seeds=2, env_steps=1, guided_env_steps=1, evals=1, eval_episodes=1)


def run(settings: Settings, study: StudyRun) -> None:
    """Train one walker under two guiding rewards and under pure energy, then write tables and a figure."""
    algo = algorithm()
    common: dict[str, Any] = {
        "seeds": settings.seeds,
        "evals": settings.evals,
        "eval_episodes": settings.eval_episodes,
    }
    hparams = dataclasses.replace(algo.hparams, **GUIDED)
    steps = settings.guided_env_steps
    guided = {
        name: study.train(f"walk_{name}", algo, hparams, env_params=guided_params(weights), env_steps=steps, **common)
        for name, weights in WALKING_REWARDS.items()
    }
    study.table("walking", walking(guided), _WALKING)
    axes = {
        "discount": [jaxrl.as_discount(each) for each in settings.discounts],
        "env.weights.potential": settings.lessons,
        "env.scenario.radius": [radius_of(share) for share in settings.shares],
    }
    sweep, params = jaxrl.grid(algo.hparams, axes), pure_params(settings)
    pure = study.train("pure_energy", algo, sweep, env_params=params, env_steps=settings.env_steps, **common)
    frames = standing(pure, settings)
    for lesson, frame in frames.items():
        study.table(f"standing_{lesson:g}", frame, _standing_caption(lesson))
    study.table("thresholds", thresholds(settings.discounts), _THRESHOLDS)
    study.figure("standing_still", _figure(frames, settings))


def algorithm() -> Algorithm:
    """PPO for one walker on a circle with the preset of 2022, which observes the remaining time."""
    algo = ppo(time_feature(Crowd("circle", num_agents=1, iterations=1)), CONFIG)
    return algo._replace(hparams=dataclasses.replace(algo.hparams, **HPARAMS))


def guided_params(weights: Weights) -> CrowdParams:
    """The circle of 2022 with scattered starts and goals, under a reward."""
    base = Crowd("circle", num_agents=1).default_params
    return dataclasses.replace(base, weights=weights, later_weights=weights)


def pure_params(settings: Settings) -> CrowdParams:
    """Pure energy after a first stage with a share of the potential, without scattered starts and goals."""
    return dataclasses.replace(
        Crowd("circle", num_agents=1).default_params,
        scenario=CircleParams(radius_of(1.0), 0.0),
        weights=dataclasses.replace(PURE, potential=settings.lessons[0]),
        later_weights=PURE,
        switch_env_steps=settings.lesson_share * settings.env_steps,
    )


def radius_of(share: float) -> float:
    """The radius of the circle, in m, at which the distance to the touch is `share` times the threshold."""
    return (share * THRESHOLD + TO_TOUCH) / 2


def walking(guided: dict[str, Result]) -> pandas.DataFrame:
    """A row per reward: energy-plus over the optimum and mean speed over v*, each with its interval."""
    import pandas

    rows = []
    for name, result in guided.items():
        cost = _last(result, "energy_plus")[0] / _last(result, "optimum")[0]
        speed = _last(result, "mean_speed")[0] / PREFERRED
        near = (np.abs(cost - 1) <= TOLERANCE) & (np.abs(speed - 1) <= TOLERANCE)
        rows.append(
            {
                "reward": name,
                **_estimate("energy-plus / optimum", cost),
                **_estimate("mean speed / v*", speed),
                "success": float(np.mean(_last(result, "success")[0])),
                "within 3 %": _of(near),
            }
        )
    return pandas.DataFrame(rows)


def standing(result: Result, settings: Settings) -> dict[float, pandas.DataFrame]:
    """For each first lesson a row per discount and distance: the best outcome, and the seeds that walk and stand."""
    import pandas

    success, reached = _last(result, "success"), _last(result, "mean_speed") * TIME_LIMIT
    paid, energy, optimum = -_last(result, "discounted_return"), _last(result, "energy"), _last(result, "optimum")
    rows: dict[float, list[dict[str, Any]]] = {lesson: [] for lesson in settings.lessons}
    for i, setting in enumerate(result.settings):
        lesson = settings.lessons[i // len(settings.shares) % len(settings.lessons)]
        share = settings.shares[i % len(settings.shares)]
        distance = share * THRESHOLD
        weights = decision_weights(setting["discount"])
        bound = least(distance, weights)
        should_walk = bound < standing_cost(weights)
        walks = success[i] == 1
        stands = (success[i] == 0) & (reached[i] < 0.1 * distance)
        rows[lesson].append(
            {
                "discount": setting["discount"],
                "distance / threshold": share,
                "m": distance,
                "best speed": cheapest(distance, weights)[0],
                "best": "walk" if should_walk else "stand",
                "walk": _of(walks),
                "stand": _of(stands),
                "as is best": _of(walks if should_walk else stands),
                **_estimate("cost / least", paid[i] / bound),
                **_estimate("energy / optimum", energy[i] / optimum[i]),
            }
        )
    return {lesson: pandas.DataFrame(records) for lesson, records in rows.items()}


def thresholds(discounts: Sequence[str]) -> pandas.DataFrame:
    """A row per discount: the smallest distance at which standing is best."""
    import pandas

    distances = {each: threshold(each) for each in discounts}
    return pandas.DataFrame(
        [{"discount": each, "threshold": at, "of T v* / 2": at / THRESHOLD} for each, at in distances.items()]
    )


def _last(result: Result, metric: str) -> np.ndarray:
    """A metric at the end, `[settings, seeds]`, nan for a failed run."""
    values = result.values(metric)[:, :, -1].astype(np.float64)
    return np.where(result.failed_runs(), np.nan, values)


def _of(flags: np.ndarray) -> str:
    return f"{int(np.sum(flags))} of {flags.size}"


def _estimate(name: str, values: np.ndarray) -> dict[str, Any]:
    """The interquartile mean of the runs that did not fail, and its interval."""
    good = values[np.isfinite(values)]
    if good.size < 2:
        return {name: float("nan"), f"interval of {name}": MISSING}
    estimate = bootstrap_interval(iqm, good)
    return {name: float(estimate.value), f"interval of {name}": f"[{estimate.low:.3f}, {estimate.high:.3f}]"}


def _figure(frames: dict[float, pandas.DataFrame], settings: Settings) -> matplotlib.figure.Figure:
    """A plot for each first lesson: the seeds that walk over the distance, and the threshold beyond which to stand."""
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(3.3 * len(settings.lessons) + 2.2, 3.6), layout="constrained")
    axes = figure.subplots(1, len(settings.lessons), squeeze=False, sharey=True)[0]
    count = len(settings.discounts)
    for ax, (lesson, frame) in zip(axes, frames.items(), strict=True):
        for i, discount in enumerate(settings.discounts):
            here = slice(i * len(settings.shares), (i + 1) * len(settings.shares))
            rows = frame.iloc[here].sort_values("distance / threshold")
            walk = np.array([int(cell.split()[0]) / settings.seeds for cell in rows["walk"]])
            look = plotting.style(i)
            apart = 0.016 * (i - (count - 1) / 2)  # offset that keeps coinciding lines visible
            ax.plot(rows["distance / threshold"], walk + apart, marker="o", markersize=4, label=discount, **look)
            ax.axvline(threshold(discount) / THRESHOLD, color=look["color"], linewidth=0.9, linestyle=":")
        ax.set_title(f"first lesson {lesson:g} v*" if lesson else "no first lesson")
        ax.set_xlabel("distance / (T v* / 2)")
        plotting.finish(ax)
        ax.get_legend().remove()
    axes[0].set_ylabel("share of seeds that walk")
    axes[0].set_ylim(-0.06, 1.06)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, title="discount; dotted:\nstanding is best beyond", frameon=False, loc="outside right upper"
    )
    return figure


_SCENE = (
    f"One walker alone on a circle, preset 2022, {DECISIONS} decisions in T = {TIME_LIMIT:.2f} s, the time observed "
    "and its limit a termination."
)
_WALKING = (
    f"{_SCENE} Radius 6 m, starts and goals scattered by 0.5 m; gamma 0.98. Energy-plus over the "
    "optimum to the touch of the goal, and mean speed over v*, of greedy episodes: interquartile means over seeds with "
    "bootstrap intervals at 95 %, and the number of seeds within 3 % in both."
)
_THRESHOLDS = "The distance, in m, beyond which standing costs less than any walk, by discount."


def _standing_caption(lesson: float) -> str:
    start = f"after a first stage that trains walking to the goal at {lesson:g} v*" if lesson else "from the beginning"
    return (
        f"{_SCENE} Pure energy, {start}. Distances to the touch, in m; the threshold T v* / 2 is {THRESHOLD:.3f} m. "
        "Best speed: the cheapest constant speed under the discount, in m/s, by brute force; best: whether any "
        "walk beats standing. Walk: seeds whose greedy walker arrives; stand: seeds that cover less than a tenth of "
        "the way. Cost: the discounted energy relative to the lower bound for variable speeds and free accelerations; "
        "energy relative to the optimum of the way. Interquartile means over seeds with bootstrap intervals at 95 %."
    )


STUDY = Study(
    "standing-still",
    "One walker: energy and speed under guiding rewards; walking or standing still if energy is the only reward.",
    Settings,
    run,
)
