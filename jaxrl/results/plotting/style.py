"""Common style of the pictures: colours, lines, axes, legends, files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.arguments import check_flag
from envs.errors import UserValueError
from envs.files import replacing

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import numpy.typing as npt

# Okabe and Ito's colours, which colour-blind readers can distinguish, without yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINE_STYLES = ("-", "--", "-.", ":")
FEW_BANDS = 4  # from which on bands hide each other
BAND = "_interval"  # label of bands, which legends omit
MOST_LINES = len(COLOURS) * len(LINE_STYLES)
SUFFIXES = (".png", ".pdf", ".svg", ".jpg")


def require_few(count: int, remedy: str) -> None:
    """Raise an error for more lines than can be distinguished."""
    if count > MOST_LINES:
        raise UserValueError(f"{count} lines cannot be distinguished, {MOST_LINES} can: {remedy}.")


def require_picture(path: str | Path) -> None:
    """Raise an error for a file name without the suffix of a picture."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UserValueError(f"path is {str(path)!r}; a picture's name ends in {', '.join(SUFFIXES)}.")


def axes(ax: matplotlib.axes.Axes | None, path: str | Path | None) -> matplotlib.axes.Axes:
    """The axes to draw on: `ax`, or those of a new figure."""
    if path is not None:
        require_picture(path)
    return new_figure(path, (6.4, 4.2)).subplots() if ax is None else ax


def new_figure(path: str | Path | None, size: tuple[float, float]) -> matplotlib.figure.Figure:
    """A figure of a width and a height in inches, which opens no window if it is written to a file."""
    if path is not None:
        from matplotlib.figure import Figure

        return Figure(figsize=size, layout="constrained")
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout="constrained")


def write_picture(figure: Any, path: str | Path | None) -> None:
    """Write a figure to a file; None writes nothing."""
    if path is not None:
        with replacing(Path(path)) as part:
            figure.savefig(part, dpi=150)


def style(index: int) -> dict[str, Any]:
    """Colour, line style and width of the line at a position; colour and style change with the position.

    Args:
      index: Position of the line in the picture, from 0 on.

    Returns:
      Arguments of `matplotlib.axes.Axes.plot`.
    """
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINE_STYLES[(index % len(COLOURS) + index // len(COLOURS)) % len(LINE_STYLES)],
        "linewidth": 1.8,
    }


def band(
    ax: matplotlib.axes.Axes, index: int, x: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, num_lines: int
) -> None:
    """The interval of a line; from four lines on all are fainter and have edges, so that no band hides another.

    Args:
      ax: Axes to draw on.
      index: Position of the line.
      x: Places, `[points]`.
      low, high: Ends of the intervals, `[points]`.
      num_lines: Number of lines in the picture.
    """
    from matplotlib.colors import to_rgba, to_rgba_array

    edge = to_rgba(COLOURS[index % len(COLOURS)], 0.6)
    ax.fill_between(x, low, high, facecolor=to_rgba(edge, 0.18), edgecolor=edge, linewidth=0, label=BAND)
    for each in ax.collections if num_lines >= FEW_BANDS else ():
        if each.get_label() == BAND:
            each.set_facecolor([to_rgba(colour, 0.06) for colour in to_rgba_array(each.get_facecolor())])
            each.set_linewidth(0.6)


def lines_on(ax: matplotlib.axes.Axes | None) -> int:
    """Number of lines that the axes already have, and position of the next one."""
    return 0 if ax is None else len(ax.get_lines())


def reference_line(ax: matplotlib.axes.Axes, value: float, label: str) -> None:
    """A thin dashed line over the whole width at a value, with its label at the right end, drawn once for each label.

    It is not one of the axes' lines, whose colours and legend it leaves alone.

    Args:
      ax: Axes to draw on.
      value: Height of the line.
      label: Text above the line.
    """
    if any(text.get_text() == label for text in ax.texts):
        return
    across = ax.get_yaxis_transform()
    ax.hlines(value, 0, 1, transform=across, colors="0.35", linestyles="--", linewidths=0.9, zorder=1)
    place: Any = {"xycoords": across, "xytext": (-2, 2), "textcoords": "offset points", "ha": "right", "va": "bottom"}
    ax.annotate(label, (1, value), **place, fontsize="small", color="0.35")


def label_of(ax: matplotlib.axes.Axes, *parts: str | None) -> str:
    """Label of a new line, with a number behind it if another line of the axes has it already.

    Args:
      ax: Axes of the line.
      *parts: Name of the result and of its setting; empty ones are omitted.
    """
    name = ": ".join(filter(None, parts))
    taken = sum(label == name or label.startswith(f"{name} (") for label in ax.get_legend_handles_labels()[1])
    return f"{name} ({taken + 1})" if name and taken else name


def describe(ax: matplotlib.axes.Axes, lines_before: int, text: str, title: str) -> None:
    """Set the text of the vertical axis and the title; texts that differ from those of earlier lines are generalised.

    Args:
      ax: Axes.
      lines_before: Number of lines before this call.
      text: Text of the vertical axis.
      title: Title, an estimate with details behind it.
    """
    if lines_before:
        text = ", ".join(dict.fromkeys([*filter(None, [ax.get_ylabel()]), text]))
        title = title if ax.get_title() in ("", title) else "interquartile means with intervals"
    ax.set_ylabel(text)
    ax.set_title(title, fontsize="medium")


def finish(
    ax: matplotlib.axes.Axes, path: str | Path | None = None, title: str | None = None, *, legend: bool = True
) -> matplotlib.axes.Axes:
    """Set grid, spines and legend.

    Args:
      ax: Axes with all of their lines.
      path: File to write the figure to; None for none.
      title: Title of the legend; None for none.
      legend: Whether lines with a label are named in a legend.

    Returns:
      The axes.
    """
    check_flag("legend", legend)
    ax.grid(True, color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    lines = ax.get_legend_handles_labels()[0]
    if len(lines) > 8 and legend:
        ax.legend(title=title, frameon=False, fontsize="small", handlelength=3, loc="upper left", bbox_to_anchor=(1, 1))
    elif lines and legend:
        ax.legend(title=title, frameon=False, fontsize="small", handlelength=3)
    write_picture(ax.figure, path)
    return ax
