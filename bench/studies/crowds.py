"""Shared parts of the studies of crowds: scenarios by name, learning settings, measures of runs, tables and figures."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.frames import estimate
from envs.crowd import SCENARIOS, Crowd
from envs.errors import UserValueError
from envs.spelling import near_or_all
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.presets.crowd import NUM_ITERATIONS, NUM_STEPS, minibatches
from jaxrl.results.statistics import bootstrap_interval, iqm, probability_of_improvement

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

    from jaxrl.presets.preset import Preset
    from jaxrl.results.result import Result

RATIO = "energy-plus over optimum"
TIME = "time to goal"
METRICS = {name: name for name in ("success", "return", "energy", "contacts")} | {
    "mean speed": "mean_speed",
    TIME: "time_to_goal",
}
# Factors that make larger values better, of the measures that `chance` compares.
SIGNS = {"success": 1.0, "return": 1.0, "energy": -1.0, RATIO: -1.0, TIME: -1.0, "contacts": -1.0}
KINDS = {"": "greedy actions", "_sampled": "sampled actions"}

__all__ = [
    "KINDS",
    "RATIO",
    "TIME",
    "Cell",
    "Place",
    "as_place",
    "cell",
    "chance",
    "check_room",
    "dots",
    "frame_of",
    "library_settings",
    "measured",
    "measures_of",
    "run_length",
    "said_length",
]


class Place(NamedTuple):
    """A scenario with a number of agents; written `circle12`."""

    scenario: str
    num_agents: int

    def __str__(self) -> str:
        return f"{self.scenario}{self.num_agents}"


class Cell(NamedTuple):
    """The runs of one combination.

    Attributes:
      labels: Labels of the combination, `{column: text}`, the scenario first.
      runs: Measures of the runs, `{measure: [seeds]}`, nan for a failed run.
    """

    labels: dict[str, str]
    runs: dict[str, np.ndarray]


def as_place(name: str, **static: Any) -> Place:
    """A scenario by its name and number of agents, such as `circle12`.

    Args:
      name: Name of the scenario, followed by the number of agents.
      **static: Static fields of the environment, such as its preset.

    Raises:
      ValueError: There is no such scenario, or it has no room for so many agents.
    """
    match = re.fullmatch(r"([a-z-]+?)(\d+)", name)
    if match is None or match[1] not in SCENARIOS:
        hint = "" if name in SCENARIOS else near_or_all(match[1] if match else name, SCENARIOS, "there are")
        raise UserValueError(
            f"scenarios takes a scenario and a number of agents, such as circle12, got {name!r}{hint.rstrip('.')}"
        )
    place = Place(match[1], int(match[2]))
    check_room("scenarios", name, place, **static)
    return place


def check_room(setting: str, value: Any, place: Place, **static: Any) -> None:
    """Raise an error that names the setting and its value unless the scenario has room for so many agents.

    Args:
      setting: Name of the setting.
      value: Value of the setting, for the message.
      place: Scenario and number of agents.
      **static: Static fields of the environment, such as its preset.

    Raises:
      ValueError: The scenario has no room for so many agents.
    """
    try:
        Crowd(scenario=place.scenario, num_agents=place.num_agents, **static)
    except ValueError as error:
        raise UserValueError(f"{setting} has {value!r}, but {error}") from None


def library_settings(place: Place, num_envs: int, static: dict[str, Any]) -> Preset:
    """The learning settings of the library's preset of `crowd/circle`, for another scenario.

    Minibatches are about as large as in that preset. Observations of rays alone, to which its pooling and scales do not
    apply, are normalised by their running mean and variance.

    Args:
      place: Scenario and number of agents.
      num_envs: Number of worlds of a rollout, with 200 decisions each.
      static: Static fields of the environment, including the perception.

    Returns:
      A preset of 1000 iterations.
    """
    own = jaxrl.preset("ppo", "crowd/circle")
    rows = num_envs * NUM_STEPS * place.num_agents
    size = own.config.num_envs * own.config.num_steps * Crowd.num_agents // own.config.num_minibatches
    config = dataclasses.replace(own.config, num_envs=num_envs, num_minibatches=minibatches(rows, size))
    if static["perception"] == "rays":
        of_neighbours = {name: getattr(PPOConfig, name) for name in ("pooling", "own_scale", "neighbour_scale")}
        config = dataclasses.replace(config, **of_neighbours, normalise_observation=True)
    return own._replace(
        environment=f"crowd/{place.scenario}",
        config=config,
        env_steps=NUM_ITERATIONS * num_envs * NUM_STEPS,
        static={"num_agents": place.num_agents, **static},
    )


def run_length(settings: Any, place: Place) -> int:
    """Number of environment steps of a run: that of the settings, or else the one of their agent-steps."""
    return settings.env_steps or math.ceil(settings.agent_steps / place.num_agents)


def said_length(settings: Any) -> str:
    """The length of a run as text for a caption."""
    if settings.env_steps:
        return f"{settings.env_steps:,} environment steps"
    return f"{settings.agent_steps:,} agent-steps"


def measured(result: Result, kind: str = "") -> list[dict[str, np.ndarray]]:
    """The measures of the runs as in `Cell.runs`, for each setting of a result at its last point.

    Args:
      result: Result of a crowd.
      kind: Suffix of the metrics, one of `KINDS`.
    """
    failed = result.failed_runs()

    def last(name: str) -> np.ndarray:
        return np.where(failed, np.nan, result.values(name + kind)[..., -1].astype(np.float64))

    runs = {measure: last(metric) for measure, metric in METRICS.items()}
    runs[RATIO] = last("energy_plus") / last("optimum")
    return [{measure: values[i] for measure, values in runs.items()} for i in range(len(failed))]


def measures_of(result: Result, settings: Sequence[str]) -> xarray.Dataset:
    """The measures of the runs with greedy and with sampled actions, each `[actions, setting, seed]`.

    Args:
      result: Result of a crowd.
      settings: Texts of its settings, the coordinate "setting"; those of "actions" are `KINDS`.
    """
    import xarray

    kinds = [measured(result, kind) for kind in KINDS]
    values = {measure: np.array([[runs[measure] for runs in kind] for kind in kinds]) for measure in kinds[0][0]}
    coords = {"actions": list(KINDS.values()), "setting": list(settings), "seed": list(result.seeds)}
    return xarray.Dataset({measure: (tuple(coords), array) for measure, array in values.items()}, coords)


def cell(measures: xarray.Dataset, labels: dict[str, str], kind: str, setting: str) -> Cell:
    """The runs of one setting in `measures_of` a result, with actions of a kind in `KINDS`."""
    one = measures.sel(actions=KINDS[kind], setting=setting)
    return Cell(labels, {str(name): values.values for name, values in one.items()})


def chance(pairs: Sequence[tuple[Cell, Cell]], measure: str) -> str:
    """The probability that a run of the first of a pair is better than one of the second, its interval, and a verdict.

    Args:
      pairs: Pairs of cells, over which the probability is averaged.
      measure: Name in `SIGNS`; a failed run is worse than all others.
    """

    def scores(side: int) -> np.ndarray:
        values = SIGNS[measure] * np.stack([pair[side].runs[measure] for pair in pairs])
        return np.where(np.isnan(values), -np.inf, values)

    estimated = probability_of_improvement(scores(0), scores(1))
    verdict = "better" if estimated.low > 0.5 else "worse" if estimated.high < 0.5 else "unclear"
    return f"{estimated.value:.2f} [{estimated.low:.2f}, {estimated.high:.2f}] {verdict}"


def frame_of(cells: Iterable[Cell], measures: Sequence[str]) -> pandas.DataFrame:
    """A row per combination: labels, `estimate` of each measure, and the number of failed runs if there are any."""
    import pandas

    rows = []
    for cell in cells:
        failed = int(np.sum(~np.isfinite(cell.runs[measures[0]])))
        rows.append({**cell.labels, **{name: estimate(cell.runs[name]) for name in measures}, "failed": failed})
    frame = pandas.DataFrame(rows)
    return frame if frame["failed"].to_numpy().any() else frame.drop(columns="failed")


def dots(
    cells: Sequence[Cell], measures: Sequence[str], label: Callable[[Cell], str], series: Callable[[Cell], str]
) -> matplotlib.figure.Figure:
    """A row of plots per scenario, one per measure: interquartile means with their intervals.

    Args:
      cells: Cells, whose labels begin with the scenario.
      measures: Measures of the columns.
      label: Function from a cell to the label of its line.
      series: Function from a cell to the name of its colour; cells of one line are drawn slightly apart.
    """
    from matplotlib.figure import Figure

    from jaxrl import plotting

    places = list(dict.fromkeys(cell.labels["scenario"] for cell in cells))
    lines = list(dict.fromkeys(map(label, cells)))
    colours = list(dict.fromkeys(map(series, cells)))
    size = (2.4 * len(measures) + 2.6, (0.28 * len(lines) + 1.0) * len(places) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(places), len(measures), squeeze=False, sharey=True)
    for row, place in enumerate(places):
        for column, measure in enumerate(measures):
            ax = axes[row, column]
            for cell in cells:
                good = cell.runs[measure][np.isfinite(cell.runs[measure])]
                if cell.labels["scenario"] != place or good.size < 2:
                    continue
                interval = bootstrap_interval(iqm, good)
                colour = colours.index(series(cell))
                ax.errorbar(
                    interval.value,
                    lines.index(label(cell)) + 0.5 * (colour + 0.5 - len(colours) / 2) / len(colours),
                    xerr=[[interval.value - interval.low], [interval.high - interval.value]],
                    color=plotting.COLOURS[colour % len(plotting.COLOURS)],
                    marker="o",
                    markersize=4,
                    linewidth=1.2,
                )
            ax.set_xlabel(measure)
            plain_axes(ax, grid="x")
            ax.set_axisbelow(True)
        axes[row, 0].set_title(place, loc="left", fontsize=10)
        axes[row, 0].set_yticks(range(len(lines)), lines, fontsize=8)
    axes[0, 0].set_ylim(len(lines) - 0.5, -0.5)
    if len(colours) > 1:
        for i, name in enumerate(colours):
            axes[0, 0].plot([], [], marker="o", color=plotting.COLOURS[i % len(plotting.COLOURS)], label=name)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside upper right", ncols=len(colours))
    return figure
