"""Comparison of discounts: their curves, one-step rates and shares of the weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.errors import UserValueError
from jaxrl.results.plotting.style import (
    COLOURS,
    axes,
    finish,
    new_figure,
    require_few,
    require_picture,
    style,
    write_picture,
)

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

MOST_SIDE_BY_SIDE = len(COLOURS)
_SHADES = ("#08306B", "#6BAED6", "#DEEBF7")  # of one hue, dark to light, so that they differ in grey too
_TEXTS = ("white", "black", "black")


def discount_curves(
    discounts: Sequence[Any] | Mapping[str, Any],
    horizon: int,
    *,
    ax: matplotlib.axes.Axes | None = None,
    path: str | Path | None = None,
) -> matplotlib.axes.Axes:
    """The weight of a reward against its delay, a line per discount.

    Args:
      discounts: Numbers, strings, Discounts or priors of `jaxrl.hazards`; the keys of a mapping are their labels.
      horizon: Longest delay drawn, in steps.
      ax, path: Axes and picture file, as for `learning_curves`.

    Returns:
      The axes.

    Raises:
      ValueError: An element is not a discount, or there are more lines than can be distinguished.
    """
    named = _named(discounts)
    require_few(len(named), "draw fewer of them")
    ax = axes(ax, path)
    _draw_curves(ax, named, horizon)
    return finish(ax, path, None)


def discount_overview(
    discounts: Sequence[Any] | Mapping[str, Any],
    horizon: int,
    *,
    boundaries: tuple[int, int, int] = (100, 1_000, 10_000),
    path: str | Path | None = None,
) -> matplotlib.figure.Figure:
    """Several families in one figure: curves with their effective horizons, one-step rates, and shares of the weight.

    Args:
      discounts: Discounts as in `discount_curves`, at most 7; user-defined families have no effective horizon.
      horizon: Longest delay drawn, in steps. Effective horizons within it are marked on the curves; the legend lists
        all of them.
      boundaries: Delays at which the near, the middle and the far future end; the shares refer to the weight before
        the last of them.
      path: Picture file to write in addition.

    Returns:
      The figure, with three axes.

    Raises:
      ValueError: There are no or too many discounts, an element is not a discount, or the suffix of `path` is not one
        of a picture.
    """
    from jaxrl.discounts.families import Family
    from jaxrl.discounts.properties import effective_horizon, future_shares, one_step_rates

    named = _named(discounts)
    if not 1 <= len(named) <= MOST_SIDE_BY_SIDE:
        raise UserValueError(f"discounts takes 1 to {MOST_SIDE_BY_SIDE} discounts, got {len(named)}.")
    if len(boundaries) != 3:
        raise UserValueError(f"boundaries takes three delays, got {boundaries!r}.")
    if path is not None:
        require_picture(path)
    figure = new_figure(path, (11.0, 6.6))
    grid = figure.add_gridspec(2, 2, height_ratios=(3.0, 0.8 + 0.28 * len(named)))
    curves, rates = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    shares = figure.add_subplot(grid[1, :])

    _draw_curves(curves, named, horizon)
    for line, (label, discount) in zip(list(curves.lines), named.items(), strict=True):
        if not isinstance(discount, Family):
            continue
        within = float(effective_horizon(discount))
        text = f"{within:,.0f} steps" if np.isfinite(within) else "infinite"
        line.set_label(f"{label}: effective horizon {text}")
        if within <= horizon:
            weight = float(np.asarray(discount.curve(int(within)))[-1])
            curves.plot([within], [weight], marker="o", color=line.get_color(), markeredgecolor="white", markersize=8)
    curves.set_title("curves; a dot at the effective horizon", fontsize="medium")
    finish(curves, None, None)
    handles, labels = curves.get_legend_handles_labels()
    curves.legend().remove()  # one legend, above both
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, handlelength=3)

    steps, drawn = np.arange(horizon), []
    for index, (label, discount) in enumerate(named.items()):
        drawn.append(np.asarray(one_step_rates(discount, horizon)))
        rates.plot(steps, drawn[-1], label=label, **style(index))
    rates.set_xlabel("delay t (steps)")
    rates.set_ylabel("one-step rate \N{GREEK CAPITAL LETTER GAMMA}(t + 1) / \N{GREEK CAPITAL LETTER GAMMA}(t)")
    rates.set_xlim(0, horizon)
    # Leave out jumps (quasi-hyperbolic, fixed horizon): they would fill the y range.
    later = np.asarray(drawn)[:, 1:]
    low = later[later > 0].min(initial=1.0)
    margin = max(0.1 * (1.0 - low), 1e-3)
    rates.set_ylim(low - margin, 1.0 + margin)
    cut = np.min(drawn) < low - margin
    rates.set_title("one-step rates" + (" (first drops and ends lie below)" if cut else ""), fontsize="medium")
    finish(rates, None, None)
    rates.legend().remove()

    table = np.asarray([future_shares(discount, boundaries) for discount in named.values()], np.float64)
    _draw_shares(shares, list(named), table, boundaries)
    write_picture(figure, path)
    return figure


def _named(discounts: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    from jaxrl.discounts.parsing import as_discount

    if isinstance(discounts, Mapping):
        return {label: as_discount(value) for label, value in discounts.items()}
    return {str(discount): discount for discount in map(as_discount, discounts)}


def _draw_curves(ax: matplotlib.axes.Axes, named: Mapping[str, Any], horizon: int) -> None:
    for index, (label, discount) in enumerate(named.items()):
        ax.plot(np.arange(horizon + 1), np.asarray(discount.curve(horizon)), label=label, **style(index))
    ax.set_xlabel("delay t (steps)")
    ax.set_ylabel("discount weight \N{GREEK CAPITAL LETTER GAMMA}(t)")
    ax.set_xlim(0, horizon)
    ax.set_ylim(0, 1.02)


def _draw_shares(
    ax: matplotlib.axes.Axes, labels: Sequence[str], shares: np.ndarray, boundaries: tuple[int, ...]
) -> None:
    """Bars from left to right, near, middle and far, a row for each discount."""
    starts = (0, *boundaries[:-1])
    rows = np.arange(len(labels))
    left = np.zeros(len(labels))
    for column, name in enumerate(("near", "middle", "far")):
        widths = shares[:, column]
        span = f"{name}: {starts[column]:,} to {boundaries[column] - 1:,} steps"
        ax.barh(rows, widths, left=left, height=0.7, color=_SHADES[column], edgecolor="0.3", linewidth=0.6, label=span)
        for row in rows[widths > 0.06]:
            place = (float(left[row] + widths[row] / 2), float(row))
            look: Any = {"ha": "center", "va": "center", "fontsize": "small", "color": _TEXTS[column]}
            ax.text(*place, f"{widths[row]:.0%}", **look)
        left = left + widths
    ax.set_yticks(rows, labels)
    for index, tick in enumerate(ax.get_yticklabels()):
        tick.set_color(COLOURS[index % len(COLOURS)])
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel(f"share of the weight of the first {boundaries[-1]:,} steps")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="small")
