"""Images of tasks without a location in space: bandits as bars, decisions as roads in time, probes as chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.decision.preference_reversal import LATER, SOONER
from envs.pytrees import Params, State

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from envs.bandits.base import Bandit
    from envs.decision.delayed_choice import DelayedChoice
    from envs.decision.pathworld import Pathworld
    from envs.decision.preference_reversal import PreferenceReversal
    from envs.decision.random_dilemmas import RandomDilemmas

Update = Callable[[Any], None]

INK, LIGHT, BODY, ROD, MARK = "#222222", "#bdbdbd", "#0072B2", "#D55E00", "#009E73"

__all__ = ["bandit", "delayed_choice", "pathworld", "preference_reversal", "probe", "random_dilemmas"]


def bandit(ax: Axes, env: Bandit, params: Params) -> Update:
    """The true value of every arm as a bar; the arms pulled last are marked, with their rewards."""
    import jax

    num_arms = env.num_arms
    pulls = jax.jit(env.pulls)
    mask = jax.jit(env.action_mask)
    ax.set_xlim(-1, num_arms)
    ax.set_ylim(-0.25, 1.3)
    ax.set_aspect("auto")
    ax.plot([-0.5, num_arms - 0.5], [0, 0], color=INK, linewidth=1.5)
    bars = ax.bar(range(num_arms), [0.0] * num_arms, width=0.7, color=BODY)
    for arm in range(num_arms):
        ax.text(arm, -0.06, str(arm), ha="center", va="top", color=INK, fontsize=11)
    (marks,) = ax.plot([], [], "v", color=ROD, markersize=13)
    caption = ax.text(0.98, 0.97, "", transform=ax.transAxes, ha="right", va="top", color=ROD, fontsize=12)
    scale = ax.text(0.5, 0.02, "", transform=ax.transAxes, ha="center", va="bottom", color=INK, fontsize=11)

    def update(state: State) -> None:
        values = np.asarray(state.values, np.float64)
        low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
        heights = (values - low) / max(high - low, 1e-9)
        allowed = mask(state, params)
        awake = np.asarray(allowed) if isinstance(allowed, jax.Array) else np.ones(num_arms, bool)
        for bar, height, free in zip(bars, heights, awake, strict=True):
            bar.set_height(max(height, 0.005))
            bar.set_color(BODY if free else LIGHT)
        pulled = np.flatnonzero(np.asarray(pulls(state.last_action))) if int(state.time) else np.zeros(0, int)
        marks.set_data(pulled, heights[pulled] + 0.07)
        caption.set_text(f"paid {float(state.last_reward):.3g}" if int(state.time) else "")
        scale.set_text(f"expected rewards, from {low:.3g} to {high:.3g}")

    return update


def pathworld(ax: Axes, env: Pathworld, params: Params) -> Update:
    """Every path drawn as long as its duration, with its reward at its end; the walker is on the chosen one."""
    longest = (env.num_paths - 1) ** 2
    ax.set_xlim(-0.12 * longest, 1.12 * longest)
    ax.set_ylim(-1, env.num_paths + 0.5)
    ax.set_aspect("auto")
    roads = [ax.plot([0, path**2], [path, path], color=LIGHT, linewidth=4)[0] for path in range(env.num_paths)]
    for path in range(env.num_paths):
        ax.text(path**2 + 0.02 * longest, path, f"{path}", ha="left", va="center", color=MARK, fontsize=11)
    (walker,) = ax.plot([], [], "o", color=ROD, markersize=11, zorder=3)

    def update(state: State) -> None:
        started, path = int(state.time) > 0, int(state.path)
        for number, road in enumerate(roads):
            road.set_color(BODY if started and number == path else LIGHT)
        walker.set_data([min(int(state.time), path**2)] if started else [-0.06 * longest], [path] if started else [0])

    return update


def delayed_choice(ax: Axes, env: DelayedChoice, params: Params) -> Update:
    """Two roads of equal length, with their rewards at the ends."""
    steps = int(params.num_steps)
    road = _roads(ax, [(steps, float(params.first_reward)), (steps, float(params.second_reward))], steps)
    return lambda state: road(int(state.time), int(state.choice) if int(state.time) else None)


def random_dilemmas(ax: Axes, env: RandomDilemmas, params: Params) -> Update:
    """Two roads as long as their delays, with their rewards at the ends."""
    made: list[tuple[tuple[float, ...], Callable[..., None]]] = []

    def update(state: State) -> None:
        delays, rewards = np.asarray(state.delays), np.asarray(state.rewards)
        drawn = (*map(float, delays), *map(float, rewards))
        if not made or made[0][0] != drawn:
            for artist in (*ax.lines, *ax.texts[1:]):  # the first text counts the steps
                artist.remove()
            pairs = [(int(delay) + 1, float(reward)) for delay, reward in zip(delays, rewards, strict=True)]
            made[:] = [(drawn, _roads(ax, pairs, int(params.max_delay)))]
        made[0][1](int(state.time), int(state.choice) if int(state.time) else None)

    return update


def preference_reversal(ax: Axes, env: PreferenceReversal, params: Params) -> Update:
    """Two roads, to the sooner and to the later reward, with the place of the second choice between them."""
    sooner, later = int(params.sooner_step), int(params.later_step)
    pairs = {SOONER: (sooner + 1, float(params.sooner_reward)), LATER: (later + 1, float(params.later_reward))}
    road = _roads(ax, [pairs[0], pairs[1]], later + 1)
    ax.plot([sooner, sooner], [0.15, 0.85], color=INK, linewidth=1.5, linestyle=":")
    return lambda state: road(int(state.time), int(state.commitment) if int(state.time) else None)


def probe(ax: Axes, env: Any, params: Params) -> Update:
    """A chain of states with the present one filled, and a square past its end; or the observed sign."""
    shown = env.observations()
    size = len(shown)
    signs = shown.shape[1] == 1 and size > 1
    names = [f"{int(value):+d}" for value in shown[:, 0]] if signs else [str(state) for state in range(size)]
    places = np.arange(size, dtype=float)
    ax.set_xlim(-1, size + 1)
    ax.set_ylim(-1, 1)
    ax.set_aspect("auto")
    if not signs:
        ax.plot([0, size], [0, 0], color=LIGHT, linewidth=3, zorder=1)
        ax.plot([size], [0], "s", color=LIGHT, markersize=30, zorder=2)
    ax.plot(places, 0 * places, "o", color=LIGHT, markersize=44, zorder=2)
    (at,) = ax.plot([], [], "o", color=ROD, markersize=30, zorder=3)
    for place, name in zip(places, names, strict=True):
        ax.text(place, -0.5, name, ha="center", va="top", color=INK, fontsize=14)

    def update(state: State) -> None:
        at.set_data([float(state.sign > 0)] if signs else [min(int(state.time), size)], [0.0])

    return update


def _roads(ax: Axes, ends: list[tuple[int, float]], longest: int) -> Callable[[int, int | None], None]:
    """Two roads of given lengths with rewards at their ends; returns a function that moves the walker along one."""
    ax.set_xlim(-0.15 * longest, 1.2 * longest)
    ax.set_ylim(-0.6, 1.6)
    ax.set_aspect("auto")
    roads = []
    for height, (steps, reward) in enumerate(ends):
        roads += ax.plot([0, steps], [height, height], color=LIGHT, linewidth=6)
        ax.plot([steps], [height], "D", color=MARK, markersize=11)
        ax.text(steps, height + 0.1, f"{reward:.3g}", ha="center", va="bottom", color=MARK, fontsize=13)
        ax.text(-0.02 * longest, height, f"{height}", ha="right", va="center", color=INK, fontsize=13)
    (walker,) = ax.plot([], [], "o", color=ROD, markersize=14, zorder=3)

    def update(time: int, choice: int | None) -> None:
        for number, road in enumerate(roads):
            road.set_color(BODY if number == choice else LIGHT)
        walker.set_data([-0.1 * longest if choice is None else time], [0.5 if choice is None else choice])

    return update
