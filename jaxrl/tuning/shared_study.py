"""A study that several processes can share: no trial is lost, and none is run twice."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from jaxrl.results.dataset import ResultError
from jaxrl.results.json_values import as_read, from_json, to_json
from jaxrl.runtime.checkpoints.identity import difference
from jaxrl.sweeps.distributions import Choice, LogUniform
from jaxrl.tuning.space import Setting, Space
from jaxrl.tuning.storages import import_optuna, storage_of

# Attributes of a study and of its trials. A failed trial without an outcome is run again.
IDENTITY, OUTCOME, PLACE, WORKER, BEAT = "jaxrl", "jaxrl told", "jaxrl place", "worker", "alive "
SECONDS_BETWEEN_BEATS = 20.0
SECONDS_TO_LIVE = 300.0
_STATES = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}  # of an outcome, with Optuna's name of each

__all__ = ["Asked", "Outcome", "TrialStudy", "opened"]


class Asked(NamedTuple):
    """A trial to run.

    Attributes:
      number: Number of the trial in the study.
      setting: Setting to train with.
    """

    number: int
    setting: Setting


class Outcome(NamedTuple):
    """The outcome of a finished trial.

    Attributes:
      number: Number of the trial in the study.
      state: State of the trial: "complete", "pruned" (stopped by halving) or "failed" (metrics that are not finite).
      setting: Setting of the trial.
      score: Aggregate over the tuning seeds at the last evaluation; nan for a failed trial.
      returns: Return of each tuning seed at the last evaluation.
      env_steps: Number of environment steps of its runs, over all seeds.
    """

    number: int
    state: str
    setting: Setting
    score: float
    returns: list[float]
    env_steps: int


class TrialStudy:
    """The view of one process on a study.

    Every trial has a place in `0 ... num_trials - 1`; a trial that is run again because its process died
    keeps its place. Whether a trial counts follows from the study alone, so that all
    processes agree without communicating.

    Args:
      study: Study of Optuna.
      space: Space to sample from.
      sampler: Sampler of Optuna, or a Design.
      num_trials: Number of trials of the complete study, over all processes.
    """

    def __init__(self, study: Any, space: Space, sampler: Any, num_trials: int) -> None:
        self._study, self._space, self._sampler, self._num_trials = study, space, sampler, num_trials
        self._own: dict[int, Any] = {}
        self._worker = f"{_host()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        study.sampler = sampler

    def ask(self, count: int) -> list[Asked]:
        """At most `count` trials that no process has finished or is running; empty if none is left.

        Trials of dead processes are assigned again.
        """
        from jaxrl.tuning.samplers import Design

        self._beat()
        self._reclaim()
        asked: list[Asked] = []
        while len(asked) < count and self.num_free():
            trial = self._study.ask()
            self._own[trial.number] = trial
            trial.set_user_attr(WORKER, self._worker)
            trials = self._trials()
            places = _places(trials)
            place = places[trial.number]
            other = [t for t in trials if t.number < trial.number and places[t.number] == place and _counts(t)]
            if place >= self._num_trials or other:
                self._drop(trial.number)
                continue
            if isinstance(self._sampler, Design):
                self._sampler.place = place
            asked.append(Asked(trial.number, self._suggested(trial)))
        return asked

    def tell(self, outcome: Outcome) -> None:
        """Store the outcome of a trial of this process."""
        trial = self._own.pop(outcome.number)
        with self._outlived():
            trial.set_user_attr(OUTCOME, to_json(outcome._replace(setting={})._asdict()))
            if outcome.state == "pruned":
                trial.report(outcome.score, outcome.env_steps)
            self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        from optuna.trial import TrialState

        state = TrialState[_STATES[outcome.state]]
        self._study.tell(outcome.number, outcome.score if outcome.state == "complete" else None, state=state)

    @contextlib.contextmanager
    def _outlived(self) -> Iterator[None]:
        """Ignore the error that another process considered this one dead and reassigned its trial."""
        import optuna

        with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
            yield

    def release(self, trials: Sequence[Asked]) -> None:
        """Release trials that did not finish, so that any process can run them."""
        for trial in trials:
            self._own.pop(trial.number, None)
            self._drop(trial.number)
        self._reclaim()

    def outcomes(self) -> list[Outcome]:
        """Outcomes of all finished trials of all processes."""
        return [
            _outcome_of(trial)._replace(setting={path: trial.params[path] for path in self._space.distributions})
            for trial in self._trials()
            if OUTCOME in trial.user_attrs and trial.state.is_finished()
        ]

    def num_free(self) -> int:
        """Number of trials that no process has finished or is running."""
        trials = self._trials()
        places = _places(trials)
        taken = {places[trial.number] for trial in trials if _counts(trial)}
        return self._num_trials - len({place for place in taken if place < self._num_trials})

    def num_running(self) -> int:
        """Number of running trials of all processes."""
        return sum(trial.state.name == "RUNNING" for trial in self._trials())

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Signal to other processes, at intervals, that this one is alive."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(SECONDS_BETWEEN_BEATS):
                with contextlib.suppress(Exception):  # the next beat follows soon
                    self._beat()

        self._beat()
        thread = threading.Thread(target=beat, name="jaxrl-search", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(Exception):  # the error of a lost storage was raised before
                self._study.set_user_attr(BEAT + self._worker, 0.0)

    def _beat(self) -> None:
        self._study.set_user_attr(BEAT + self._worker, time.time())

    def _reclaim(self) -> None:
        """Release the trials of dead processes, and enqueue trials for places without one."""
        attrs = self._study.user_attrs
        for trial in self._trials():
            if trial.state.name == "RUNNING" and self._is_lost(trial, attrs):
                with self._outlived():
                    if OUTCOME in trial.user_attrs:  # its process died between the two steps of `tell`
                        self._finish(_outcome_of(trial))
                    else:
                        self._drop(trial.number)
        trials = self._trials()
        places = _places(trials)
        taken = {places[trial.number] for trial in trials if _counts(trial) or trial.state.name == "WAITING"}
        for trial in trials:
            place = places[trial.number]
            if not _counts(trial) and place < self._num_trials and place not in taken:
                taken.add(place)
                self._study.enqueue_trial(dict(trial.params), user_attrs={PLACE: place})

    def _is_lost(self, trial: Any, attrs: Mapping[str, Any]) -> bool:
        worker = trial.user_attrs.get(WORKER)
        if worker == self._worker:
            return False
        if worker is None:  # its process died before it signed the trial, or is alive and about to sign
            others = [name.removeprefix(BEAT) for name in attrs if name.startswith(BEAT)]
            if all(other == self._worker or _is_dead(other, attrs) for other in others):
                return True
            started = trial.datetime_start
            return started is not None and time.time() - started.timestamp() > SECONDS_TO_LIVE
        return _is_dead(worker, attrs)

    def _drop(self, number: int) -> None:
        from optuna.trial import TrialState

        with self._outlived():
            self._study.tell(number, state=TrialState.FAIL)

    def _suggested(self, trial: Any) -> Setting:
        setting: Setting = {}
        for path, distribution in self._space.distributions.items():
            if isinstance(distribution, Choice):
                setting[path] = trial.suggest_categorical(path, self._space.labels(path))
            else:
                logarithmic = isinstance(distribution, LogUniform)
                setting[path] = trial.suggest_float(path, distribution.low, distribution.high, log=logarithmic)
        return setting

    def _trials(self) -> list[Any]:
        return self._study.get_trials(deepcopy=False)


@contextlib.contextmanager
def opened(storage: str | None, name: str, identity: Mapping[str, Any]) -> Iterator[Any]:
    """An Optuna study, created if it is missing, open within the context.

    Args:
      storage: URL of the storage, see `jaxrl.tuning.storages.storage_of`; None keeps the study in memory.
      name: Name of the study.
      identity: Settings that all its trials share.

    Raises:
      ImportError: Optuna or the storage's driver is not installed.
      ResultError: The storage cannot be used, or the study is of another search.
    """
    optuna = import_optuna()
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with storage_of(storage) as backend:
            study = optuna.create_study(storage=backend, study_name=name, direction="maximize", load_if_exists=True)
            expected = as_read(dict(identity))
            if IDENTITY not in study.user_attrs:
                if study.get_trials(deepcopy=False):
                    raise ResultError(f"the study {name!r} was not created by jaxrl: choose another name for this one")
                study.set_user_attr(IDENTITY, json.dumps(to_json(expected)))
            changed = difference(from_json(json.loads(study.user_attrs[IDENTITY])), expected)
            if changed is not None:
                raise ResultError(
                    f"the study {name!r} is of another search: {changed}; choose another name, or the same search"
                )
            yield study
    finally:
        optuna.logging.set_verbosity(verbosity)


def _counts(trial: Any) -> bool:
    """Whether a trial is running or has an outcome."""
    return trial.state.name == "RUNNING" or (trial.state.is_finished() and OUTCOME in trial.user_attrs)


def _outcome_of(trial: Any) -> Outcome:
    """The outcome that is stored in a trial.

    Raises:
      ResultError: The outcome is not one of jaxrl, for example because the study was changed by hand.
    """
    values = from_json(trial.user_attrs[OUTCOME])
    try:
        outcome = Outcome(**values)
        sound = outcome.state in _STATES and len([float(value) for value in (outcome.score, *outcome.returns)]) > 1
        if sound and outcome.number == trial.number:
            return outcome._replace(env_steps=int(outcome.env_steps))
    except (TypeError, ValueError, OverflowError):
        pass
    raise ResultError(
        f"trial {trial.number} of the study is damaged: it has the outcome {json.dumps(values)[:60]}; choose another "
        "name for the study (study=, --study), or another storage."
    )


def _places(trials: Sequence[Any]) -> dict[int, int]:
    """The place of each trial, by its number: the place of the trial that it repeats, or else the next one."""
    places, fresh = {}, 0
    for trial in sorted(trials, key=lambda trial: trial.number):
        if PLACE in trial.user_attrs:
            places[trial.number] = trial.user_attrs[PLACE]
        else:
            places[trial.number], fresh = fresh, fresh + 1
    return places


def _is_dead(worker: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a process is dead: it does not run on this machine, or its last beat is too long ago."""
    host, pid, _ = worker.rsplit(":", 2)
    if host == _host() and not psutil.pid_exists(int(pid)):
        return True
    return time.time() - attrs.get(BEAT + worker, 0.0) > SECONDS_TO_LIVE


def _host() -> str:
    """The name of this machine or container, within which process ids are unique."""
    spaces = Path("/proc/self/ns/pid")
    try:
        return f"{platform.node()}/{spaces.stat().st_ino}"
    except OSError:
        return platform.node()
