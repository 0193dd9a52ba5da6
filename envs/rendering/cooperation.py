"""Pictures of cooperative tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from envs.pytrees import Params, State
from envs.rendering.tasks import BODY, INK, LIGHT, MARK, ROD, Update

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from envs.cooperation.foraging import Foraging
    from envs.cooperation.levers import LeverGame

__all__ = ["foraging", "levers"]

FRUIT = (MARK, "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")


def levers(ax: Axes, env: LeverGame, params: Params) -> Update:
    """The levers in a row, with the agent below and its partner above the ones that they pulled last."""
    count = env.num_levers
    ax.set_xlim(-0.8, count + 0.6)
    ax.set_ylim(-1.3, 1.3)
    ax.set_aspect("auto")
    (paid,) = ax.plot([], [], "s", color=MARK, markersize=52, zorder=0)
    for lever in range(count):
        ax.plot([lever, lever], [-0.35, 0.35], color=LIGHT, linewidth=16, solid_capstyle="round", zorder=1)
        pay = float(params.odd) if lever == 0 else 1.0
        ax.text(lever, 0, f"{pay:g}", ha="center", va="center", color=INK, fontsize=12, zorder=3)
    ax.text(count, 0, "none", ha="center", va="center", color=INK, fontsize=12)
    agents = [ax.plot([], [], "o", color=colour, markersize=22, zorder=2)[0] for colour in (BODY, ROD)]

    def update(state: State) -> None:
        last = np.asarray(getattr(state, "game", state).last)
        for agent, (marker, height) in enumerate(zip(agents, (-0.8, 0.8), strict=True)):
            marker.set_data([last[agent]] if last[agent] >= 0 else [], [height] if last[agent] >= 0 else [])
        together = 0 <= last[0] == last[1] < count
        paid.set_data([last[0]] if together else [], [0] if together else [])

    return update


def foraging(ax: Axes, env: Foraging, params: Params) -> Update:
    """The grid with a fruit of each kind in its colour, the agent, and its partner to the right in a shared cell."""
    size, kinds = env.size, env.num_kinds
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)
    for line in range(size + 1):
        ax.plot([-0.5, size - 0.5], [line - 0.5] * 2, color=LIGHT, linewidth=1, zorder=0)
        ax.plot([line - 0.5] * 2, [-0.5, size - 0.5], color=LIGHT, linewidth=1, zorder=0)
    mark = 200 / size
    colours = [FRUIT[kind % len(FRUIT)] for kind in range(kinds)]
    fruits = [ax.plot([], [], "D", color=colour, markersize=mark, zorder=1)[0] for colour in colours]
    agents = [ax.plot([], [], "o", color=colour, markersize=0.6 * mark, zorder=2)[0] for colour in (BODY, ROD)]

    def update(state: State) -> None:
        game = getattr(state, "game", state)
        for fruit, (row, column) in zip(fruits, np.asarray(game.fruit), strict=True):
            fruit.set_data([column], [row])
        for agent, shift, (row, column) in zip(agents, (-0.22, 0.22), np.asarray(game.place), strict=True):
            agent.set_data([column + shift], [row])

    return update
