"""Tables and the figure of the study that compares crowds with pedestrians."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.studies.crowd_walks import LARGEST
from bench.studies.figures import plain_axes
from bench.studies.frames import MISSING, estimate
from envs.crowd.pedestrians import weidmann_speed
from jaxrl.results.statistics import bootstrap_interval, iqm

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas
    import xarray

    # Datasets `[unit, sample, ...]` by policy and scene: units are repeats of planners, or seeds of learned policies,
    # with a sample per episode.
    Crowds = dict[str, dict[str, xarray.Dataset]]

FREE_SPEED, SPREAD = 1.34, 0.26  # m/s, mean and standard deviation of free speeds; Weidmann (1993), as commonly cited

__all__ = ["capacity", "curve", "doors", "drawn", "measures", "speeds"]


def curve(corridor: xarray.Dataset) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Mean speeds in m/s by density and their numbers of moments, `[unit, density]`, over all sizes and samples.

    The speed is nan where a density does not occur.
    """
    moments = corridor["moments"].sum(("people", "sample"))
    total = (corridor["speed"].fillna(0.0) * corridor["moments"]).sum(("people", "sample"))
    return total / moments.where(moments > 0), moments


def measures(crowds: Crowds) -> pandas.DataFrame:
    """A row per policy with its distance from Weidmann's curve, its lanes and its free speeds."""
    import pandas

    rows = []
    for policy, scenes in crowds.items():
        speed, moments = curve(scenes["corridor"])
        error = speed - np.asarray(weidmann_speed(speed["density"].values))
        crowded = scenes["corridor"].sel(people=scenes["corridor"]["people"].max())
        order, chance = (crowded[name].mean(("sample", "time")) for name in ("order", "order_by_chance"))
        alone = scenes["circle"]["free_speed"]
        columns = {
            "distance from Weidmann": np.sqrt((error**2 * moments).sum("density") / moments.sum("density")),
            "order of lanes": order,
            "order by chance": chance,
            "reduced order": (order - chance) / (1 - chance),
            "free speed": alone.mean(("sample", "person")),
            "deviation": alone.std(("sample", "person")),
        }
        rows.append({"policy": policy, **{name: estimate(values.values) for name, values in columns.items()}})
    people = {"policy": "people", "free speed": f"{FREE_SPEED}", "deviation": f"{SPREAD}"}
    return pandas.DataFrame([*rows, people]).fillna(MISSING)


def speeds(crowds: Crowds) -> pandas.DataFrame:
    """A row per density that occurs, with the mean speed of each policy and that of Weidmann's curve."""
    import pandas

    of_each = {policy: curve(scenes["corridor"])[0] for policy, scenes in crowds.items()}
    density = next(iter(of_each.values()))["density"].values
    columns = {policy: [estimate(speed.sel(density=at).values) for at in density] for policy, speed in of_each.items()}
    weidmann = [f"{speed:.3f}" for speed in np.asarray(weidmann_speed(density))]
    frame = pandas.DataFrame({"density": density, "Weidmann": weidmann, **columns})
    return frame.replace(MISSING, None).dropna(how="all", subset=list(columns)).fillna(MISSING)


def doors(crowds: Crowds) -> pandas.DataFrame:
    """A row per policy and width with the flow through the door, and with the share of people who passed it."""
    import pandas

    rows = []
    for policy, scenes in crowds.items():
        for width in scenes["choke"]["width"].values:
            door = scenes["choke"].sel(width=width).mean("sample")
            columns = {"1/s": door["flow"], "1/(m s)": door["flow"] / width, "passed": door["passed"]}
            cells = {name: estimate(values.values) for name, values in columns.items()}
            rows.append({"policy": policy, "width": float(width), **cells})
    return pandas.DataFrame(rows)


def capacity() -> float:
    """The largest flow of Weidmann's curve per metre of width, in 1/(m s)."""
    density = np.linspace(0.01, 5.4, 1000)
    return float(np.max(density * np.asarray(weidmann_speed(density))))


def drawn(crowds: Crowds) -> matplotlib.figure.Figure:
    """Speeds by density, flows by width, lanes over time, and the distribution of free speeds, with those of people.

    Speeds, flows and lanes are interquartile means over the units, the first two with their intervals.
    """
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(10, 7), layout="constrained")
    (by_density, by_width), (lanes, alone) = figure.subplots(2, 2)
    people: dict[str, Any] = {"color": "0.3", "linestyle": "--", "label": "people"}
    density = np.linspace(0.05, LARGEST, 100)
    by_density.plot(density, np.asarray(weidmann_speed(density)), **people)
    speed = np.linspace(0.5, 2.2, 200)
    alone.plot(speed, [0.5 * (1 + math.erf((v - FREE_SPEED) / (SPREAD * math.sqrt(2)))) for v in speed], **people)
    for colour, (policy, scenes) in zip(plotting.COLOURS, crowds.items(), strict=False):
        corridor, door = scenes["corridor"], scenes["choke"]["flow"].mean("sample")
        _estimates(by_density, curve(corridor)[0], "density", colour, policy)
        _estimates(by_width, door, "width", colour, policy)
        over_time = corridor.sel(people=corridor["people"].max()).mean("sample")
        for name, style in (("order", {"label": policy}), ("order_by_chance", {"linestyle": ":", "linewidth": 1})):
            middle = iqm(over_time[name].transpose("unit", "time").values, axis=0, nan_policy="propagate")
            lanes.plot(over_time["time"], middle, color=colour, **style)
        own = scenes["circle"]["free_speed"].values.ravel()
        own = np.sort(own[np.isfinite(own)])
        alone.step(own, (np.arange(own.size) + 1) / own.size, where="post", color=colour, label=policy)
    lanes.set_ylim(-0.05, 1.45)  # room for the legend
    width = next(iter(crowds.values()))["choke"]["width"].values
    by_width.plot(width, capacity() * width, **people)
    lanes.plot([], [], color="0.3", linestyle=":", linewidth=1, label="by chance")
    for ax, x, y in (
        (by_density, "density (1/m\N{SUPERSCRIPT TWO})", "speed (m/s)"),
        (by_width, "width of the door (m)", "flow (1/s)"),
        (lanes, "time (s)", "order of lanes"),
        (alone, "free speed (m/s)", "share of people"),
    ):
        ax.set_xlabel(x)
        ax.set_ylabel(y)
        plain_axes(ax)
        ax.set_axisbelow(True)
        ax.legend(frameon=False, fontsize=8, ncols=2 if ax is lanes else 1)
    return figure


def _estimates(ax: matplotlib.axes.Axes, values: xarray.DataArray, along: str, colour: str, policy: str) -> None:
    """Draw interquartile means over the units with their intervals, where at least two units have a value."""
    places, columns = values[along].values, values.transpose(along, "unit").values
    good = [(place, column[np.isfinite(column)]) for place, column in zip(places, columns, strict=True)]
    points = [(place, bootstrap_interval(iqm, column)) for place, column in good if len(column) > 1]
    at = [place for place, _ in points]
    ax.plot(at, [interval.value for _, interval in points], "o-", color=colour, label=policy)
    low, high = [interval.low for _, interval in points], [interval.high for _, interval in points]
    ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
