"""A film of a crowd for browsers: a single page."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.crowd.rendering import COLOURS, MARGIN, TRAIL
from envs.errors import UserValueError
from envs.files import replacing

if TYPE_CHECKING:
    from envs.crowd.trajectories import Trajectory

TEMPLATE = Path(__file__).with_name("player.html")
MOST = 32_767  # largest 16-bit integer

__all__ = ["player"]


def player(trajectory: Trajectory, *, path: str | Path, title: str | None = None) -> Path:
    """Write an episode as a page that plays it: people as discs, coloured by speed, power or person.

    The page is a single file without references to others; 50 people over 200 decisions take about 150 kB.
    Between decisions agents move in straight lines. The energy shown for a person is power times the
    interval, summed; the decision in which an agent arrives counts in full.

    Args:
      trajectory: Trajectory of one episode, from `envs.crowd.roll`.
      path: File to write, `.html`; an existing one is replaced.
      title: Title of the page; "A crowd" if None.

    Returns:
      The path.

    Raises:
      ValueError: The suffix is another one, there are several episodes, no agent takes part, numbers are not finite,
        or the file cannot be written.
    """
    file = Path(path)
    if file.suffix.lower() != ".html":
        raise UserValueError(f"path is {str(file)!r}; a player's name ends in .html.")
    # The data must not contain the end tag of the script element around it.
    data = json.dumps(_episode(trajectory), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {"TITLE": html.escape("A crowd" if title is None else title), "DATA": data}
    page = re.sub("__(TITLE|DATA)__", lambda match: parts[match[1]], TEMPLATE.read_text(encoding="utf-8"))
    with replacing(file) as part:
        part.write_text(page, encoding="utf-8")
    return file


def _episode(trajectory: Trajectory) -> dict[str, Any]:
    """The data of the page: agents that take part, lengths in metres, times in seconds."""
    shape = np.shape(trajectory.position)
    if len(shape) != 3:
        raise UserValueError(
            f"trajectory must be of one episode, with positions [T + 1, N, 2], got {shape}; "
            "one of several is jax.tree.map(lambda leaf: leaf[0], trajectory)."
        )
    agents = np.flatnonzero(np.asarray(trajectory.present))
    if not len(agents):
        raise UserValueError("trajectory must have an agent that takes part, but none is present.")
    position = np.asarray(trajectory.position)[:, agents]
    centre, half = (np.asarray(leaf)[agents] for leaf in (trajectory.goals.centre, trajectory.goals.half))
    walking = np.asarray(trajectory.walking)[:, agents]
    boxes, obstacles = np.asarray(trajectory.box_centre), trajectory.obstacles
    if np.all(boxes == boxes[:1]):
        boxes = boxes[:1]
    pillars = np.concatenate(
        [np.asarray(obstacles.pillar_centre), np.asarray(obstacles.pillar_radius)[:, None]], axis=1
    )
    seen = np.concatenate([position.reshape(-1, 2), centre - half, centre + half])
    return {
        "num_frames": shape[0],
        "interval": float(trajectory.interval),
        "agents": agents.tolist(),
        "position": _packed("position", position),
        "heading": _packed("heading", np.asarray(trajectory.heading)[:, agents]),
        "speed": _packed("velocity", np.linalg.norm(np.asarray(trajectory.velocity)[:, agents], axis=-1)),
        "power": _packed("power", np.asarray(trajectory.power)[:, agents]),
        "enters": np.where(walking.any(axis=0), np.argmax(walking, axis=0), shape[0]).tolist(),
        "walks": np.sum(walking, axis=0).tolist(),
        "radius": _rounded(np.asarray(trajectory.traits.radius)[agents]),
        "goals": _rounded(np.concatenate([centre, half], axis=1)),
        "box_centre": _packed("box_centre", boxes),
        "box_half": _rounded(np.asarray(obstacles.box_half)),
        "pillars": _rounded(pillars),
        "view": _rounded(np.stack([seen.min(axis=0) - MARGIN, seen.max(axis=0) + MARGIN])),
        "trail": TRAIL,
        "colours": COLOURS,
    }


def _packed(name: str, values: np.ndarray) -> dict[str, Any]:
    """Numbers as 16-bit integers, rounded to a 65,534th of their range, and the value of one unit."""
    if not np.all(np.isfinite(values)):
        raise UserValueError(f"trajectory must have finite numbers, but those of {name} are not.")
    unit = float(np.max(np.abs(values), initial=0.0)) / MOST or 1.0
    integers = np.round(values / unit).astype("<i2")
    return {"unit": unit, "data": base64.b64encode(integers.tobytes()).decode()}


def _rounded(values: np.ndarray) -> list[Any]:
    """Numbers in metres to a tenth of a millimetre."""
    return np.round(values.astype(np.float64), 4).tolist()
