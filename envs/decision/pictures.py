"""Pictures of decision tasks as labelled bars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bars"]

INK, LIGHT, BODY, MARK = "#222222", "#bdbdbd", "#0072B2", "#D55E00"


def bars(
    ax: "Axes",
    heights: Sequence[float],
    labels: Sequence[str],
    *,
    top: float,
    bottom: float = 0.0,
    line: float | None = None,
    marked: Sequence[int] = (),
    caption: str = "",
) -> None:
    """Draw labelled bars inside limits.

    Args:
      ax: Matplotlib axes.
      heights: Height of each bar.
      labels: Text below each bar.
      top, bottom: Limits of the heights, which are drawn to scale.
      line: Height of a dashed line, such as a threshold; None for no line.
      marked: Indices of bars in the colour of marks.
      caption: Text above the bars.
    """
    span = max(top - bottom, 1e-9)
    ax.set_xlim(-1, len(heights))
    ax.set_ylim(-0.3, 1.3)
    ax.set_aspect("auto")
    zero = min(max((0 - bottom) / span, 0.0), 1.0)
    ax.plot([-0.6, len(heights) - 0.4], [zero, zero], color=INK, linewidth=1.5)
    for place, (height, label) in enumerate(zip(heights, labels, strict=True)):
        share = min(max((height - bottom) / span, 0.0), 1.0)
        low, tall = min(zero, share), max(abs(share - zero), 0.01)
        ax.bar([place], [1.0], width=0.7, color="white", edgecolor=LIGHT)
        ax.bar([place], [tall], bottom=low, width=0.7, color=MARK if place in marked else BODY)
        ax.text(place, -0.06, label, ha="center", va="top", color=INK, fontsize=11)
    if line is not None:
        at = (line - bottom) / span
        ax.plot([-0.6, len(heights) - 0.4], [at, at], color=MARK, linewidth=2, linestyle="--")
    ax.text((len(heights) - 1) / 2, 1.12, caption, ha="center", va="bottom", color=INK, fontsize=12)
