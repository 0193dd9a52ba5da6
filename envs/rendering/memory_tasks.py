"""Pictures of the tasks that require memory, and of the climbing game."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.pytrees import Params, State
from envs.rendering.tasks import BODY, INK, LIGHT, MARK, ROD, Update

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from envs.games.climbing import ClimbingGame
    from envs.memory.autoencode import Autoencode
    from envs.memory.bandit import BanditEpisode
    from envs.memory.battleship import Battleship
    from envs.memory.chain import MemoryChain
    from envs.memory.concentration import Concentration
    from envs.memory.count_recall import CountRecall
    from envs.memory.delayed_match import DelayedMatch
    from envs.memory.repeat_first import RepeatFirst
    from envs.memory.t_maze import TMaze

__all__ = [
    "autoencode",
    "bandit",
    "battleship",
    "chain",
    "climbing",
    "concentration",
    "count_recall",
    "delayed_match",
    "repeat_first",
    "t_maze",
]

SUITS = ("\N{BLACK SPADE SUIT}", "\N{BLACK HEART SUIT}", "\N{BLACK DIAMOND SUIT}", "\N{BLACK CLUB SUIT}")


def repeat_first(ax: Axes, env: RepeatFirst, params: Params) -> Update:
    """The first card, face down once others follow, the card shown, and the remaining part of the deck."""
    _stage(ax, 3)
    first, shown = _card(ax, 0.6), _card(ax, 1.8)
    (deck,) = ax.plot([], [], color=BODY, linewidth=8, solid_capstyle="butt")
    ax.text(0.6, 0.12, "first", ha="center", color=INK, fontsize=12)
    ax.text(1.8, 0.12, "now", ha="center", color=INK, fontsize=12)

    def update(state: State) -> None:
        time, now = int(state.time), int(state.shown)
        first(SUITS[int(state.first)], MARK if time == 0 else LIGHT)
        shown(SUITS[now] if now < len(SUITS) else "", ROD)
        deck.set_data([2.7, 2.7], [0.2, 0.2 + 0.7 * (1 - time / env.num_cards)])

    return update


def t_maze(ax: Axes, env: TMaze, params: Params) -> Update:
    """The corridor with its two arms, the one that pays marked, and the agent."""
    length = int(params.length)
    ax.set_xlim(-0.08 * length - 0.5, 1.08 * length + 0.5)
    ax.set_ylim(-1.6, 1.6)
    ax.set_aspect("auto")
    ax.plot([0, length], [0, 0], color=LIGHT, linewidth=14, solid_capstyle="projecting", zorder=1)
    ax.plot([length, length], [-1, 1], color=LIGHT, linewidth=14, solid_capstyle="projecting", zorder=1)
    (goal,) = ax.plot([], [], "D", color=MARK, markersize=13, zorder=2)
    (sign,) = ax.plot([], [], color=MARK, markersize=13, zorder=2)
    (agent,) = ax.plot([], [], "o", color=ROD, markersize=13, zorder=3)

    def update(state: State) -> None:
        up = int(state.goal) == 2
        goal.set_data([length], [1 if up else -1])
        sign.set_data([0], [0.6])
        sign.set_marker("^" if up else "v")
        agent.set_data([int(state.position)], [0])

    return update


def delayed_match(ax: Axes, env: DelayedMatch, params: Params) -> Update:
    """The sample and the test of the trial, each filled while it is shown, and the progress of the trial."""
    _stage(ax, 3)
    sample, test = _card(ax, 0.6), _card(ax, 2.4)
    (done,) = ax.plot([], [], color=BODY, linewidth=8, solid_capstyle="butt")
    steps = int(params.delay) + 2

    def update(state: State) -> None:
        phase = int(state.time) % steps
        sample(str(int(state.sample)), MARK if phase == 0 else LIGHT)
        test(str(int(state.test)) if phase == steps - 1 else "?", ROD if phase == steps - 1 else LIGHT)
        done.set_data([1.1, 1.1 + 0.8 * (phase + 1) / steps], [0.5, 0.5])

    return update


def chain(ax: Axes, env: MemoryChain, params: Params) -> Update:
    """The steps to the question in a row, the present one filled, and the bits at their start."""
    length = int(params.memory_length)
    ax.set_xlim(-1, length + 1)
    ax.set_ylim(-1, 1)
    ax.set_aspect("auto")
    ax.plot([0, length], [0, 0], color=LIGHT, linewidth=3, zorder=1)
    ax.plot([length], [0], "s", color=LIGHT, markersize=24, zorder=1)
    ax.text(length, -0.45, "answer", ha="center", color=INK, fontsize=12)
    bits = ax.text(0, 0.35, "", ha="left", color=MARK, fontsize=14)
    (at,) = ax.plot([], [], "o", color=ROD, markersize=16, zorder=2)

    def update(state: State) -> None:
        shown = " ".join(str(int(bit)) for bit in np.atleast_1d(state.context))
        bits.set_text(f"{shown}, asked for number {int(state.query)}")
        at.set_data([min(int(state.time), length)], [0])

    return update


def bandit(ax: Axes, env: BanditEpisode, params: Params) -> Update:
    """The success probability of each arm as a bar, and the arm pulled last, filled if it paid."""
    ax.set_xlim(-0.7, env.num_arms - 0.3)
    ax.set_ylim(-0.25, 1.2)
    ax.set_aspect("auto")
    ax.plot([-0.5, env.num_arms - 0.5], [0, 0], color=INK, linewidth=1.5)
    bars = ax.bar(range(env.num_arms), [0.0] * env.num_arms, width=0.7, color=BODY)
    (pulled,) = ax.plot([], [], "o", color=ROD, markersize=16)

    def update(state: State) -> None:
        for bar, chance in zip(bars, np.asarray(state.chances), strict=True):
            bar.set_height(float(chance))
        arm = int(state.arm)
        pulled.set_data([arm] if arm >= 0 else [], [-0.12] if arm >= 0 else [])
        pulled.set_fillstyle("full" if state.success > 0 else "none")

    return update


def autoencode(ax: Axes, env: Autoencode, params: Params) -> Update:
    """The card to look at or to name, and the height of the pile of cards that are watched and not yet named."""
    _stage(ax, 3)
    card = _card(ax, 1.5)
    (pile,) = ax.plot([], [], color=BODY, linewidth=8, solid_capstyle="butt")
    word = ax.text(1.5, 0.12, "", ha="center", color=INK, fontsize=12)
    last = env.num_cards - 1

    def update(state: State) -> None:
        time = int(state.time)
        names = time >= last
        card(SUITS[int(state.suits[min(time, max(2 * last - time, 0))])], MARK if names else ROD)
        word.set_text("name" if names else "watch")
        pile.set_data([2.5, 2.5], [0.2, 0.2 + 0.7 * max(min(time, 2 * last - time) + 1, 0) / env.num_cards])

    return update


def count_recall(ax: Axes, env: CountRecall, params: Params) -> Update:
    """The value shown, the value asked for, and the number of cards of each value that have been shown, as bars."""
    ax.set_xlim(-3.2, env.num_values)
    ax.set_ylim(0, 1.1)
    ax.set_aspect("auto")
    shown, asked = _card(ax, -2.6), _card(ax, -1.4)
    for x, word in ((-2.6, "shown"), (-1.4, "asked")):
        ax.text(x, 0.12, word, ha="center", color=INK, fontsize=12)
    bars = ax.bar(range(env.num_values), [0.0] * env.num_values, bottom=0.1, width=0.7, color=BODY)

    def update(state: State) -> None:
        shown(str(int(state.value)), ROD)
        asked(str(int(state.query)), MARK)
        for bar, left in zip(bars, np.asarray(state.left), strict=True):
            bar.set_height(0.9 * (1 - int(left) / env.num_alike))

    return update


def concentration(ax: Axes, env: Concentration, params: Params) -> Update:
    """The cards in rows, face down unless they are visible; paired ones have another colour."""
    columns = math.ceil(math.sqrt(2.7 * env.num_cards))
    rows = math.ceil(env.num_cards / columns)
    ax.set_xlim(-1, columns)
    ax.set_ylim(-rows, 1)
    ax.set_aspect("auto")
    texts = [ax.text(card % columns, -(card // columns), "", ha="center", va="center") for card in range(env.num_cards)]

    def update(state: State) -> None:
        for text, value, shown, paired in zip(texts, state.values, state.shown, state.paired, strict=True):
            text.set_text(str(int(value)) if shown else "?")
            text.set_color(MARK if paired else ROD if shown else LIGHT)
            text.set_fontsize(18)

    return update


def battleship(ax: Axes, env: Battleship, params: Params) -> Update:
    """The board with its ships, the hits and the misses, and the cell that is shown."""
    size = env.board_size
    ax.set_xlim(-1, size)
    ax.set_ylim(-size, 1)
    column, row = np.arange(size**2) % size, -(np.arange(size**2) // size)
    marker = 160 / size
    ax.plot(column, row, "s", color="#eeeeee", markersize=1.25 * marker, linestyle="none")
    layers = [
        ax.plot([], [], form, color=colour, markersize=marker * scale, linestyle="none", fillstyle=fill)[0]
        for form, colour, scale, fill in (
            *(("s", BODY, 1.2, "full"), ("X", ROD, 0.8, "full"), ("o", INK, 0.3, "full"), ("o", MARK, 0.9, "none")),
        )
    ]

    def update(state: State) -> None:
        ships, shots = np.asarray(state.ships), np.asarray(state.shots)
        shown = np.arange(size**2) == int(state.cell)
        for layer, cells in zip(layers, (ships, ships & shots, ~ships & shots, shown), strict=True):
            layer.set_data(column[cells], row[cells])

    return update


def climbing(ax: Axes, env: ClimbingGame, params: Params) -> Update:
    """The number of agents that took each action last, and the reward if all of them take it."""
    ax.set_xlim(-0.7, 2.7)
    ax.set_ylim(-0.2 * env.num_agents, 1.25 * env.num_agents)
    ax.set_aspect("auto")
    ax.plot([-0.5, 2.5], [0, 0], color=INK, linewidth=1.5)
    bars = ax.bar(range(3), [0.0] * 3, width=0.7, color=BODY)
    for action, pay in enumerate((11, 7, 5)):
        label = f"{action}: all of them, {pay}"
        ax.text(action, -0.04 * env.num_agents, label, ha="center", va="top", color=INK, fontsize=12)

    def update(state: State) -> None:
        counts = np.bincount(np.asarray(state.last)[np.asarray(state.last) >= 0], minlength=3)
        for bar, count in zip(bars, counts, strict=True):
            bar.set_height(float(count))

    return update


def _stage(ax: Axes, width: float) -> None:
    ax.set_xlim(0, width)
    ax.set_ylim(0, 1.1)
    ax.set_aspect("auto")


def _card(ax: Axes, x: float) -> Any:
    """A card; returns a function that writes on it in a colour."""
    from matplotlib.patches import FancyBboxPatch

    card = FancyBboxPatch((x - 0.2, 0.3), 0.4, 0.5, boxstyle="round,pad=0.02,rounding_size=0.03", facecolor="white")
    ax.add_patch(card)
    text = ax.text(x, 0.54, "", ha="center", va="center", fontsize=40)

    def write(word: str, colour: str) -> None:
        text.set_text(word)
        text.set_color(colour)
        card.set_edgecolor(colour)

    return write
