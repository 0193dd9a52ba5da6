"""Images of crowds: a frame with people as discs, and the paths of a whole episode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.files import replacing
from envs.pytrees import Params, State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from envs.crowd.trajectories import Trajectory

INK, WALL, ARRIVED = "#222222", "#8c8c8c", "#d9d9d9"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # safe for colour-blind readers
TRAIL = 15  # number of decisions that a trail shows
MARGIN = 1.0  # m around the drawing

__all__ = ["draw", "paths"]


def draw(ax: Axes, params: Params) -> Callable[[Any], None]:
    """A function that draws states of a crowd into axes: walkers with headings and trails, goals, walls, pillars.

    Args:
      ax: Axes with equal scales.
      params: Not used; everything is in the state.

    Returns:
      A function of a concrete state.
    """
    del params
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle, Rectangle

    made: dict[str, Any] = {}
    trail: list[np.ndarray] = []

    def make(state: State) -> None:
        for artist in (*ax.patches, *ax.collections):
            artist.remove()
        trail.clear()
        position, present = np.asarray(state.walkers.position), np.asarray(state.present)
        _limit(ax, np.concatenate([position[present], np.asarray(state.goals.centre)[present]]))
        _goals(ax, state.goals, present)
        made["boxes"] = [ax.add_patch(Rectangle((0, 0), *size, color=WALL)) for size in _sizes(state.obstacles)]
        _pillars(ax, state.obstacles)
        made["trails"] = ax.add_collection(LineCollection([], linewidths=1, alpha=0.6, zorder=2))
        made["headings"] = ax.add_collection(LineCollection([], colors="white", linewidths=1.5, zorder=4))
        made["discs"] = [
            ax.add_patch(Circle((0, 0), radius, zorder=3)) if here else None
            for radius, here in zip(np.asarray(state.traits.radius), present, strict=True)
        ]

    def update(state: State) -> None:
        if not made or int(state.time) == 0:
            make(state)
        position, walking = np.asarray(state.walkers.position), np.asarray(state.walking)
        radius, heading = np.asarray(state.traits.radius), np.asarray(state.walkers.heading)
        trail.append(position)
        del trail[:-TRAIL]
        for i, disc in enumerate(made["discs"]):
            if disc is not None:
                disc.center = tuple(position[i])
                disc.set_color(COLOURS[i % len(COLOURS)] if walking[i] else ARRIVED)
        ahead = radius[:, None] * np.stack([np.cos(heading), np.sin(heading)], -1)
        made["headings"].set_segments(np.stack([position, position + ahead], 1)[walking])
        made["trails"].set_segments(np.stack(trail, 1)[walking])
        made["trails"].set_colors([COLOURS[i % len(COLOURS)] for i in np.flatnonzero(walking)])
        lows = np.asarray(state.obstacles.box_centre) - np.asarray(state.obstacles.box_half)
        for box, low in zip(made["boxes"], lows, strict=True):
            box.set_xy(tuple(low))

    return update


def paths(trajectory: Trajectory, *, path: str | Path | None = None, title: str | None = None) -> Figure:
    """The paths of all agents through an episode, coloured by speed; a dotted line joins each start and its goal.

    Args:
      trajectory: Trajectory of one episode, from `envs.crowd.roll`.
      path: Image file to write as well.
      title: Title of the image.

    Returns:
      The figure; squares are goals, open rings are starts.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(6.4, 5.6), dpi=120, layout="constrained")
    ax = figure.add_subplot()
    ax.set_aspect("equal")
    present = np.asarray(trajectory.present)
    position, velocity = np.asarray(trajectory.position)[:, present], np.asarray(trajectory.velocity)[:, present]
    goals = np.asarray(trajectory.goals.centre)[present]
    _limit(ax, np.concatenate([position.reshape(-1, 2), goals]))
    _goals(ax, trajectory.goals, present)
    lows = np.asarray(trajectory.box_centre)[0] - np.asarray(trajectory.obstacles.box_half)
    for low, size in zip(lows, _sizes(trajectory.obstacles), strict=True):
        ax.add_patch(Rectangle(tuple(low), *size, color=WALL))
    _pillars(ax, trajectory.obstacles)
    walks = np.asarray(trajectory.walking)[:-1, present]
    segments = np.stack([position[:-1], position[1:]], axis=2)[walks]
    speed = np.linalg.norm(velocity[1:], axis=-1)[walks]
    lines = LineCollection(list(segments), array=speed, cmap="cividis", linewidths=1.5)
    lines.set_clim(0.0, max(2.0, float(speed.max(initial=0.0))))
    ax.add_collection(lines)
    for start, goal in zip(position[0], goals, strict=True):
        ax.plot(*np.stack([start, goal], axis=1), ":", color=INK, linewidth=0.6, alpha=0.5, zorder=1)
    ax.plot(*position[0].T, "o", color=INK, markerfacecolor="none", markersize=5)
    figure.colorbar(lines, ax=ax, label="speed (m/s)")
    ax.set_xlabel("x (m)")
    ax.set_ylabel("z (m)")
    handles = [
        Line2D([], [], color=INK, marker="o", markerfacecolor="none", linestyle="", label="start"),
        Line2D([], [], color=COLOURS[2], marker="s", markerfacecolor="none", linestyle="", label="goal"),
        Line2D([], [], color=INK, linestyle=":", linewidth=0.6, label="from start to goal"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    if title is not None:
        ax.set_title(title)
    if path is not None:
        with replacing(Path(path)) as part:
            figure.savefig(part)
    return figure


def _limit(ax: Axes, points: np.ndarray) -> None:
    """Show all points; walls may extend beyond the limits."""
    low, high = points.min(axis=0) - MARGIN, points.max(axis=0) + MARGIN
    half = (high - low).max() / 2
    middle = (low + high) / 2
    ax.set_xlim(middle[0] - half, middle[0] + half)
    ax.set_ylim(middle[1] - half, middle[1] + half)


def _goals(ax: Axes, goals: Any, present: np.ndarray) -> None:
    from matplotlib.patches import Rectangle

    boxes = np.concatenate([np.asarray(goals.centre), np.asarray(goals.half)], axis=1)[present]
    for x, z, half_x, half_z in np.unique(boxes, axis=0):
        ax.add_patch(
            Rectangle((x - half_x, z - half_z), 2 * half_x, 2 * half_z, fill=False, edgecolor=COLOURS[2], alpha=0.8)
        )


def _sizes(obstacles: Any) -> np.ndarray:
    return 2 * np.asarray(obstacles.box_half)


def _pillars(ax: Axes, obstacles: Any) -> None:
    from matplotlib.patches import Circle

    for centre, radius in zip(np.asarray(obstacles.pillar_centre), np.asarray(obstacles.pillar_radius), strict=True):
        ax.add_patch(Circle(tuple(centre), radius, color=WALL))
