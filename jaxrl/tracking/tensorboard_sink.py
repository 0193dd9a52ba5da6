"""Event files of TensorBoard: one directory per run and one append per point, without threads or open files."""

from __future__ import annotations

import importlib
import math
import os
import re
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from envs.errors import ExistsError
from envs.files import refuse_links, writing
from jaxrl.tracking.runs import Points, Run, Tracked

SUFFIX = ".jaxrl"  # suffix of our event files; no other files are replaced

__all__ = ["TensorBoard"]


class TensorBoard:
    """A sink that writes event files, a thousand runs at a time.

    An event of a run holds all its metrics at a step. When a call resumes, each run gets a further
    file, which begins by withdrawing later steps of earlier files, so that evaluations after the
    checkpoint are shown once.

    Args:
      directory: Directory of all runs, with a subdirectory for each.
      force: Whether to replace existing runs of the same names.
    """

    def __init__(self, directory: Path, force: bool) -> None:
        self._directory, self._force = directory, force

    def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        """See `Sink.open`; raises FileExistsError if runs exist and the call does not resume."""
        with writing(self._directory):
            return self._open(tracked, resuming)

    def _open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        self._runs, self._resuming = tracked.runs, resuming
        self._files: list[Path | None] = [None] * len(tracked.runs)
        self._directory.mkdir(parents=True, exist_ok=True)
        for run in tracked.runs:
            path = self._path(run)
            refuse_links(*(place for place in (path, *path.parents) if self._directory in place.parents))
            if resuming:
                continue
            earlier = _event_files(path)
            if earlier and not self._force:
                raise ExistsError(
                    f"{self._directory} holds {run.name} already: choose another directory, or replace it with "
                    f"force=True (--force)."
                )
            for file in earlier:
                file.unlink()
        return np.full(len(tracked.runs), -1)

    def write(self, points: Points) -> None:
        """See `Sink.write`."""
        event, summary, now = _proto("event").Event, _proto("summary").Summary, time.time()
        for i, values in zip(points.runs.tolist(), points.values.tolist(), strict=True):
            head = [] if self._files[i] is not None else self._begin(i, points)
            named = zip(points.names, values, strict=True)
            scalars = [summary.Value(tag=name, simple_value=value) for name, value in named]
            point = event(wall_time=now, step=points.env_step, summary=summary(value=scalars))
            self._append(i, [*head, point])

    def film(self, run: int, env_step: int, path: Path) -> None:
        """See `Sink.film`; it is among the images, which are animated."""
        from PIL import Image

        event, summary = _proto("event").Event, _proto("summary").Summary
        with Image.open(path) as picture:
            width, height = picture.size
        image = summary.Image(height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes())
        shown = summary(value=[summary.Value(tag="film", image=image)])
        self._append(run, [event(wall_time=time.time(), step=env_step, summary=shown)])

    def close(self, ends: list[str]) -> None:
        """See `Sink.close`; stopped runs get no end event."""
        now, status = time.time(), _proto("api").Status
        statuses = {"finished": status.Value("STATUS_SUCCESS"), "failed": status.Value("STATUS_FAILURE")}
        for i, end in enumerate(ends):
            if end in statuses and self._files[i] is not None:
                self._append(i, [_proto("event").Event(wall_time=now, summary=_session_end(statuses[end], now))])

    def _begin(self, i: int, points: Points) -> list[Any]:
        """The events before the first point of a run; also chooses the name of its file."""
        run, now, event = self._runs[i], time.time(), _proto("event").Event
        directory = self._path(run)
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        earlier = _event_files(directory)
        stamp = max([int(now), *(int(file.name.split(".")[3]) + 1 for file in earlier)])  # files are read in this order
        name = f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}{SUFFIX}"
        self._files[i] = directory / name
        head = [event(wall_time=now, file_version="brain.Event:2")]
        if earlier:
            session = _proto("event").SessionLog
            again = session(status=session.SessionStatus.Value("START"))
            return [*head, event(wall_time=now, step=points.env_step, session_log=again)]
        summaries = [_session_start(run, now)]
        if run.seed == self._runs[0].seed:  # one table per setting
            summaries.append(_configuration(run))
        if i == 0 and f"{points.names[0]}/low" in points.names:
            summaries.append(_bands(points.names))
        return head + [event(wall_time=now, summary=summary) for summary in summaries]

    def _append(self, i: int, events: Iterable[Any]) -> None:
        file = self._files[i]
        assert file is not None
        with writing(file), file.open("ab") as stream:
            stream.write(b"".join(_record(event.SerializeToString()) for event in events))

    def _path(self, run: Run) -> Path:
        """The directory of a run beneath that of all, with a name that every file system accepts."""
        parts = [re.sub(r'[<>:"\\|?*\x00-\x1f]|^\.*$', "_", part) for part in run.name.split("/")]
        return self._directory.joinpath(*parts)


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"events.out.tfevents.*{SUFFIX}"))


def _record(data: bytes) -> bytes:
    """A record of an event file: its length and its data, each followed by a checksum."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))])


def _session_start(run: Run, now: float) -> Any:
    """The hyper-parameters, for TensorBoard's page of hyper-parameters."""
    start = _proto("plugin_hparams").SessionStartInfo(start_time_secs=now)
    for name, value in run.hparams.items():
        if isinstance(value, str) or not math.isfinite(value):
            start.hparams[name].string_value = str(value)
        else:
            start.hparams[name].number_value = value
    return _of_plugin("session_start_info", session_start_info=start)


def _configuration(run: Run) -> Any:
    """The configuration of a run as a table."""
    from tensorboardX import summary

    rows = "\n".join(f"| {name} | {value} |" for name, value in run.config.items())
    return summary.text("configuration", f"| name | value |\n|---|---|\n{rows}")


def _bands(names: tuple[str, ...]) -> Any:
    """The layout of a page that draws each metric with its interval."""
    from tensorboardX import summary

    metrics = [name for name in names if f"{name}/low" in names]
    return summary.custom_scalars(
        {"bands": {name: ["Margin", [name, f"{name}/low", f"{name}/high"]] for name in metrics}}
    )


def _session_end(status: int, now: float) -> Any:
    end = _proto("plugin_hparams").SessionEndInfo(status=status, end_time_secs=now)
    return _of_plugin("session_end_info", session_end_info=end)


def _of_plugin(tag: str, **fields: Any) -> Any:
    """A summary for the page of hyper-parameters."""
    content = _proto("plugin_hparams").HParamsPluginData(**fields).SerializeToString()
    summary, metadata = _proto("summary").Summary, _proto("summary").SummaryMetadata
    data = metadata(plugin_data=metadata.PluginData(plugin_name="hparams", content=content))
    return summary(value=[summary.Value(tag=f"_hparams_/{tag}", metadata=data)])


def _proto(name: str) -> Any:
    """A module of protobuf messages, imported on demand because the import creates their classes."""
    return importlib.import_module(f"tensorboardX.proto.{name}_pb2")
