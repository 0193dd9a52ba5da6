"""Learned and planned crowds compared with measurements of pedestrians: speeds, flows, lanes.

The speeds of people are those of Weidmann (1993), as commonly cited. The flow through a door is compared with the
largest flow of his curve. The speed in bends is left out, because no source for it could be read.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import numpy as np

from bench.studies import crowd_people_report as report
from bench.studies import crowd_walks
from bench.studies.crowd_planners import PLANNERS, learning
from bench.studies.crowd_walks import BINS, DECISIONS, LARGEST, NEAR, Walks
from bench.studies.crowds import Place, check_room
from bench.studies.study import Study, StudyRun
from envs.crowd import Crowd
from envs.crowd.dynamics import DYNAMICS
from envs.errors import UserValueError
from jaxrl.checks import check_choices, check_count, check_counts

if TYPE_CHECKING:
    import xarray

    from jaxrl.results.result import Result

WIDEST = 19.0  # m, of a door in the arena


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: sizes of the scenes, planners and learned policies."""

    people: tuple[int, ...] = (10, 20, 35, 50)
    """Numbers of people in the corridor; learned policies are trained, and lanes measured, with the largest."""
    door_people: int = 20
    """Number of people who walk through a door."""
    circle_people: int = 12
    """Number of people on a circle, whose free speeds are measured."""
    widths: tuple[float, ...] = (0.6, 0.8, 1.0, 1.4, 2.0)
    """Widths of the door in m; learned policies are trained at 1 m."""
    planners: tuple[str, ...] = tuple(PLANNERS)
    """Planners, which read the state, in addition to the learned policies."""
    dynamics: str = "cartesian-velocity"
    """Dynamics of the planners; learned policies use those of their preset."""
    seeds: int = 4
    """Number of seeds of the learned policies; 0 omits them."""
    repeats: int = 4
    """Number of repeats of each planner, with other episodes each; they are to planners what seeds are to learning."""
    env_steps: int = 0
    """Number of environment steps of a run; 0 for the preset's."""
    episodes: int = 16
    """Number of episodes of each repeat of a planner and of each seed of the learned policies."""
    seed: int = 0
    """Random seed of the episodes, which are the same for the repeat and the seed of one number."""
    block: int = 1
    """Number of runs computed in one block: 1 is fastest on a CPU, 0 for the library's choice."""

    def __post_init__(self) -> None:
        check_choices("people", self.people)
        for number in self.people:
            _check_room("people", "corridor", number)
        _check_room("door_people", "choke", self.door_people)
        _check_room("circle_people", "circle", self.circle_people)
        check_choices("widths", self.widths)
        body = 2 * float(Crowd().default_params.radius)
        for width in self.widths:
            if not body < width <= WIDEST:
                raise UserValueError(
                    f"widths must be above {body:g} m, the width of a body, and at most {WIDEST:g} m, got {width}"
                )
        if self.planners:
            check_choices("planners", self.planners, tuple(PLANNERS))
        check_choices("dynamics", (self.dynamics,), DYNAMICS)
        check_counts(self, seeds=0, repeats=2, env_steps=0, episodes=2, block=0)
        if self.seeds == 1:
            raise UserValueError("seeds must be 0 or a whole number of at least 2, got 1")
        if not (self.planners or self.seeds):
            raise UserValueError(
                f"planners must name one or more of {', '.join(PLANNERS)}, or seeds must be at least 2, got none and 0"
            )


def run(settings: Settings, study: StudyRun) -> None:
    """Let every policy walk in each scene, then write tables and a figure."""
    crowds: report.Crowds = {}
    if settings.seeds:
        crowds["learned"] = {scene: _learned(scene, number, settings, study) for scene, number in _sizes(settings)}
    for planner in settings.planners:
        crowds[planner] = {
            scene: study.compute(
                f"{scene}_{planner}",
                lambda scene=scene, planner=planner, number=number: _planned(scene, planner, number, settings),
            )
            for scene, number in _sizes(settings)
        }
    study.table("people", report.measures(crowds), _caption(settings))
    study.table("speeds", report.speeds(crowds), _speeds_caption(settings))
    study.table("doors", report.doors(crowds), _doors_caption(settings))
    study.figure("crowd_people", report.drawn(crowds))


def _check_room(name: str, scenario: str, number: int) -> None:
    check_count(name, number, 2)
    check_room(name, number, Place(scenario, number))


def _sizes(settings: Settings) -> tuple[tuple[str, int], ...]:
    return (
        ("corridor", max(settings.people)),
        ("choke", settings.door_people),
        ("circle", settings.circle_people),
    )


def _learned(scene: str, number: int, settings: Settings, study: StudyRun) -> xarray.Dataset:
    """Train the preset of a scene, then let each seed walk; a unit is a seed, with a sample per episode."""

    def walk_after_training() -> xarray.Dataset:
        preset = learning(Place(scene, number))
        result = study.train(
            f"{scene}_learned",
            preset.algo,
            seeds=settings.seeds,
            env_steps=settings.env_steps or preset.env_steps,
            evals=1,
            eval_episodes=2,
            block=settings.block or None,
        )
        return _each_seed(scene, number, settings, result)

    return study.compute(f"{scene}_learned_walks", walk_after_training)


def _each_seed(scene: str, number: int, settings: Settings, result: Result) -> xarray.Dataset:
    import xarray

    walked = [
        episodes(scene, crowd_walks.learned(scene, result.policy(seed=seed), number), settings, seed)
        for seed in range(settings.seeds)
    ]
    units = xarray.concat(walked, "unit", data_vars="all")
    return units.where(xarray.DataArray(~result.failed_runs()[0], dims="unit"))


def _planned(scene: str, planner: str, number: int, settings: Settings) -> xarray.Dataset:
    """A planner's episodes; a unit is a repeat, with a sample per episode."""
    import xarray

    walks = crowd_walks.planned(scene, PLANNERS[planner], settings.dynamics, number)
    return xarray.concat([episodes(scene, walks, settings, repeat) for repeat in range(settings.repeats)], "unit")


def episodes(scene: str, walks: Walks, settings: Settings, unit: int) -> xarray.Dataset:
    """The measures of a unit's episodes in a scene, `[sample, ...]` and, where it has several sizes, by these."""
    import xarray

    keys = jax.random.split(jax.random.fold_in(jax.random.key(settings.seed), unit), settings.episodes)
    over = {**dict.fromkeys(("speed", "moments"), "density"), **dict.fromkeys(("order", "order_by_chance"), "time")}
    over["free_speed"] = "person"

    def dataset(values: dict[str, np.ndarray]) -> xarray.Dataset:
        dims = {name: ("sample", over[name]) if name in over else "sample" for name in values}
        return xarray.Dataset({name: (dims[name], value) for name, value in values.items()})

    if scene == "corridor":
        sizes = [dataset(walks(keys, num_present=number)) for number in settings.people]
        seconds = np.arange(DECISIONS[scene] + 1) * walks.interval
        coords = {"people": list(settings.people), "density": (np.arange(BINS) + 0.5) * LARGEST / BINS, "time": seconds}
        return xarray.concat(sizes, "people").assign_coords(coords).transpose("sample", ...)
    if scene == "choke":
        widths = [dataset(walks(keys, width=width)) for width in settings.widths]
        return xarray.concat(widths, "width").assign_coords(width=list(settings.widths)).transpose("sample", ...)
    return dataset(walks(keys))


def _caption(settings: Settings) -> str:
    return (
        f"Crowds by policy. {_units(settings)} The distance from Weidmann's curve, in m/s, is the root mean square "
        "over the moments of people in the middle of the corridor, where two groups meet. Lanes are those of "
        f"{max(settings.people)} people while both groups are in its middle; by chance, groups are permuted among the "
        "same places, and the reduced order is (order - chance) / (1 - chance). Free speeds and their standard "
        f"deviation, in m/s, are those of people on a circle with nobody within {NEAR:g} m; all of them prefer 1.33 "
        "m/s, so that the deviation is only that of their ways of walking."
    )


def _speeds_caption(settings: Settings) -> str:
    return (
        "Mean speed towards the goal in m/s by the density of other people around a person in 1/m^2, of which the last "
        f"row has all larger ones, in a corridor with counterflow, and Weidmann's curve. {_units(settings)}"
    )


def _doors_caption(settings: Settings) -> str:
    return (
        "Flow through a door by its width in m, in people per second and per second and metre, from the first to the "
        f"last who passes or, where not all {settings.door_people} people pass within {DECISIONS['choke']} decisions, "
        "to the end; and the share of people who pass. Planners are led to the door, because they do not look for it. "
        f"The largest flow of Weidmann's curve is {report.capacity():.2f} people per second and metre. "
        f"{_units(settings)}"
    )


def _units(settings: Settings) -> str:
    """The sentence on what the intervals of a table are over."""
    learned = (
        f"{settings.seeds} seeds of the learned policies, trained with the largest number of people, a door of 1 m and "
        "polar acceleration"
    )
    planned = f"{settings.repeats} repeats of the planners, with {settings.dynamics}"
    over = " and ".join([learned] * bool(settings.seeds) + [planned] * bool(settings.planners))
    return f"Interquartile means with 95 % intervals over {over}, of {settings.episodes} episodes each."


STUDY = Study(
    "crowd-people", "Learned and planned crowds compared with pedestrians: speeds, flows, lanes.", Settings, run
)
