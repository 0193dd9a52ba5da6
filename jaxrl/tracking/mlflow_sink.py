"""Runs of MLflow, identified by their tags when a call resumes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from envs.errors import UserValueError
from jaxrl.results.format import reason
from jaxrl.tracking.runs import Points, Tracked

CALL, RUN = "jaxrl.call", "jaxrl.run"
STATUSES = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
SQLITE = "sqlite:///"
MOST_PARAMS = 100  # parameters in one request

__all__ = ["MLflow"]


class MLflow:
    """A sink that logs to an MLflow store.

    Args:
      uri: URI of the store.
      experiment: Name of the experiment, created if it is missing.
      tags: Tags of every run.
    """

    def __init__(self, uri: str, experiment: str, tags: Mapping[str, str]) -> None:
        self._uri, self._experiment, self._tags = uri, experiment, tags

    def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        """See `Sink.open`; raises ValueError if MLflow cannot store runs there."""
        from mlflow import MlflowClient

        self._tracked = tracked
        self._ids: dict[int, str] = {}
        self._begun: set[int] = set()
        with _storing(self._uri):
            if self._uri.startswith(SQLITE):
                Path(self._uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
            self._client = MlflowClient(tracking_uri=self._uri)
            experiment = self._client.get_experiment_by_name(self._experiment)
            made = self._client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
            self._experiment_id = made
            last = np.full(len(tracked.runs), -1)
            if resuming:
                self._ids = self._earlier()
                for i, id in self._ids.items():
                    last[i] = self._last_step(id)
        return last

    def write(self, points: Points) -> None:
        """See `Sink.write`."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        for i, values in zip(points.runs.tolist(), points.values.tolist(), strict=True):
            pairs = zip(points.names, values, strict=True)
            metrics = [Metric(_name(name), value, now, points.env_step) for name, value in pairs]
            with _storing(self._uri):
                if i not in self._begun:
                    self._begin(i)
                self._client.log_batch(self._ids[i], metrics=metrics)

    def film(self, run: int, env_step: int, path: Path) -> None:
        """See `Sink.film`; films are artifacts."""
        del env_step  # the file has it in its name
        with _storing(self._uri):
            self._client.log_artifact(self._ids[run], str(path), "films")

    def close(self, ends: list[str]) -> None:
        """See `Sink.close`."""
        with _storing(self._uri):
            for i in self._begun:
                self._client.set_terminated(self._ids[i], STATUSES[ends[i]])

    def _begin(self, i: int) -> None:
        from mlflow.entities import Param

        self._begun.add(i)
        if i in self._ids:
            self._client.update_run(self._ids[i], "RUNNING")
            return
        run = self._tracked.runs[i]
        tags = {**self._tags, CALL: self._tracked.identity, RUN: run.name}
        made = self._client.create_run(self._experiment_id, run_name=run.name, tags=tags)
        self._ids[i] = made.info.run_id
        params = [Param(_name(name), str(value)) for name, value in run.config.items()]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._ids[i], params=params[first : first + MOST_PARAMS])

    def _earlier(self) -> dict[int, str]:
        """The latest earlier run of each name of this call, by position among the runs."""
        places = {run.name: i for i, run in enumerate(self._tracked.runs)}
        runs: dict[int, str] = {}
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id],
                filter_string=f"tags.`{CALL}` = '{self._tracked.identity}'",
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            for run in page:
                runs.setdefault(places[run.data.tags[RUN]], run.info.run_id)
            token = page.token
            if not token:
                return runs

    def _last_step(self, id: str) -> int:
        names = list(self._client.get_run(id).data.metrics)
        return max(
            (point.step for name in names[:1] for point in self._client.get_metric_history(id, name)), default=-1
        )


@contextlib.contextmanager
def _storing(uri: str) -> Iterator[None]:
    """Turn errors of the store into one sentence, such as those of a read-only or full file system."""
    try:
        yield
    except Exception as error:  # of any library underneath: those of a database are not MLflow's own
        raise UserValueError(f"uri is {uri!r}, where MLflow cannot store runs: {reason(error)}.") from error


def _name(name: str) -> str:
    """The name with only the characters that MLflow accepts: letters, digits and a few signs."""
    return "".join(sign if sign.isalnum() or sign in "_-. /" else "_" for sign in name)
