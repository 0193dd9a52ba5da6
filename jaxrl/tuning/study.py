"""A study that several processes may work on: no trial is lost, and none is done twice."""

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

from envs.errors import MissingPackageError
from jaxrl.results.dataset import ResultError
from jaxrl.results.plain import as_read, from_json, to_json
from jaxrl.runtime.checkpoints.identity import difference
from jaxrl.sweeps.distributions import Choice, LogUniform
from jaxrl.tuning.space import Setting, Space

# Attributes of a study and of its trials. A trial that has failed and was told nothing of is to be done anew.
IDENTITY, TOLD, PLACE, WORKER, BEAT = "jaxrl", "jaxrl told", "jaxrl place", "worker", "alive "
SECONDS_BETWEEN_BEATS = 20.0
SECONDS_TO_LIVE = 300.0
_PATIENCE = 60.0  # seconds that a process waits for another's transaction in SQLite

__all__ = ["Asked", "Told", "TrialStudy", "opened"]


class Asked(NamedTuple):
    """A trial to be done.

    Attributes:
      number: in the study.
      setting: to train with.
    """

    number: int
    setting: Setting


class Told(NamedTuple):
    """What is known of a trial that has ended.

    Attributes:
      number: in the study.
      state: "complete", "pruned" (stopped by halving) or "failed" (metrics that are not finite).
      setting: its values.
      score: over the tuning seeds, at the last evaluation; nan for a failed one.
      returns: of each tuning seed then.
      env_steps: that its runs took, all seeds together.
    """

    number: int
    state: str
    setting: Setting
    score: float
    returns: list[float]
    env_steps: int


class TrialStudy:
    """One process's view of a study.

    Every trial has a place in `0 ... num_trials - 1`, the same for a trial that is done anew because
    whoever was at it died. Whether a trial counts follows from the study alone, so that all
    processes agree without talking to each other.

    Args:
      study: Optuna's.
      space: what to sample from.
      sampler: Optuna's, or a Design.
      num_trials: of the study in all, by however many processes.
    """

    def __init__(self, study: Any, space: Space, sampler: Any, num_trials: int):
        self._study, self._space, self._sampler, self._num_trials = study, space, sampler, num_trials
        self._mine: dict[int, Any] = {}
        self._worker = f"{_host()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        study.sampler = sampler

    def ask(self, count: int) -> list[Asked]:
        """At most `count` trials that nobody has done or is doing; none where there are no more.

        Trials of processes that died are given out anew.
        """
        from jaxrl.tuning.samplers import Design

        self._beat()
        self._reclaim()
        asked: list[Asked] = []
        while len(asked) < count and self.num_free():
            trial = self._study.ask()
            self._mine[trial.number] = trial
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

    def tell(self, told: Told) -> None:
        """Notes how a trial of this process ended."""
        trial = self._mine.pop(told.number)
        with self._outlived():
            trial.set_user_attr(TOLD, to_json(told._replace(setting={})._asdict()))
            if told.state == "pruned":
                trial.report(told.score, told.env_steps)
            self._finish(told)

    def _finish(self, told: Told) -> None:
        from optuna.trial import TrialState

        state = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}[told.state]
        self._study.tell(told.number, told.score if told.state == "complete" else None, state=state)

    @contextlib.contextmanager
    def _outlived(self) -> Iterator[None]:
        """Lets it be that another process took this one for dead, and has given its trial to somebody else."""
        import optuna

        with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
            yield

    def release(self, trials: Sequence[Asked]) -> None:
        """Gives back trials that were not done, for whoever asks next."""
        for trial in trials:
            self._mine.pop(trial.number, None)
            self._drop(trial.number)
        self._reclaim()

    def told(self) -> list[Told]:
        """Every trial that has ended, by whomever."""
        return [
            _told(trial)._replace(setting={path: trial.params[path] for path in self._space.distributions})
            for trial in self._trials()
            if TOLD in trial.user_attrs and trial.state.is_finished()
        ]

    def num_free(self) -> int:
        """Trials that nobody has done or is doing."""
        trials = self._trials()
        places = _places(trials)
        taken = {places[trial.number] for trial in trials if _counts(trial)}
        return self._num_trials - len({place for place in taken if place < self._num_trials})

    def num_running(self) -> int:
        """Trials under way, here or elsewhere."""
        return sum(trial.state.name == "RUNNING" for trial in self._trials())

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Lets other processes know that this one is there."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(SECONDS_BETWEEN_BEATS):
                with contextlib.suppress(Exception):  # the next one comes soon
                    self._beat()

        self._beat()
        thread = threading.Thread(target=beat, name="jaxrl-search", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(Exception):  # a storage that is gone has told so already
                self._study.set_user_attr(BEAT + self._worker, 0.0)

    def _beat(self) -> None:
        self._study.set_user_attr(BEAT + self._worker, time.time())

    def _reclaim(self) -> None:
        """Gives back the trials of the dead, and enqueues whatever place has nobody."""
        attrs = self._study.user_attrs
        for trial in self._trials():
            if trial.state.name == "RUNNING" and self._is_lost(trial, attrs):
                with self._outlived():
                    if TOLD in trial.user_attrs:  # it died just before the end of telling
                        self._finish(_told(trial))
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
        if worker is None:  # died before it signed, or is just about to sign, which a process does that is alive
            others = [name.removeprefix(BEAT) for name in attrs if name.startswith(BEAT)]
            if all(other == self._worker or _is_dead(other, attrs) for other in others):
                return True
            return trial.datetime_start is not None and _age(trial.datetime_start) > SECONDS_TO_LIVE
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
    """An Optuna study, made where there is none, for as long as the context lasts.

    Args:
      storage: a URL as SQLAlchemy takes it; None keeps the study in memory.
      name: of the study.
      identity: what all trials of it must have in common.

    Raises:
      ImportError: Optuna, or the storage's own driver, is not installed.
      ResultError: the storage cannot be used, or the study is another one.
    """
    optuna = import_optuna()
    import sqlalchemy.exc

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    backend = None
    try:
        try:
            backend = None if storage is None else _storage(storage)
            study = optuna.create_study(storage=backend, study_name=name, direction="maximize", load_if_exists=True)
            wanted = as_read(dict(identity))
            if IDENTITY not in study.user_attrs:
                if study.get_trials(deepcopy=False):
                    raise ResultError(f"the study {name!r} is none of jaxrl's: choose another name for this one")
                study.set_user_attr(IDENTITY, json.dumps(to_json(wanted)))
            found = difference(from_json(json.loads(study.user_attrs[IDENTITY])), wanted)
            if found is not None:
                raise ResultError(
                    f"the study {name!r} is of another search: {found}; choose another name, or the same search"
                )
            yield study
        except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            reason = str(getattr(error.__cause__ or error, "orig", None) or error).strip().splitlines()[0]
            raise ResultError(f"the storage {_shown(storage)} cannot be used: {reason.rstrip('.')}") from error
    finally:
        if backend is not None:
            backend.remove_session()
            backend.engine.dispose()
        optuna.logging.set_verbosity(verbosity)


def import_optuna() -> Any:
    """The module.

    Raises:
      ImportError: naming the extra that brings it.
    """
    try:
        import cmaes
        import optuna
    except ImportError:
        raise MissingPackageError("a search needs the extra `search`: pip install 'jaxrl[search]'") from None
    del cmaes
    return optuna


def _storage(url: str) -> Any:
    import optuna
    import sqlalchemy.event
    import sqlalchemy.exc

    local = url.startswith("sqlite")
    options = {"connect_args": {"timeout": _PATIENCE}} if local else {}
    for attempts_left in reversed(range(5)):
        try:
            found = optuna.storages.RDBStorage(url, engine_kwargs=options)
            break
        except ImportError as error:
            raise MissingPackageError(
                f"the storage {_shown(url)} needs a package that is not installed: {error.__cause__ or error}"
            ) from None
        except (sqlalchemy.exc.OperationalError, sqlalchemy.exc.IntegrityError) as error:
            # Another process makes the same tables at this moment.
            if not attempts_left or not ("already exists" in str(error) or "UNIQUE" in str(error)):
                raise
            time.sleep(0.2)
    else:
        raise AssertionError
    if local:
        # SQLite locks a file when it is first written to: of two processes that have read the same waiting trial both
        # would take it. A lock from the beginning of a transaction lets one of them read at a time.
        @sqlalchemy.event.listens_for(found.engine, "connect")
        def connect(connection: Any, _: Any) -> None:
            connection.isolation_level = None

        @sqlalchemy.event.listens_for(found.engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        found.engine.dispose()  # connections from before
    return found


def _shown(storage: str | None) -> str:
    """A URL without its password."""
    import sqlalchemy.engine
    import sqlalchemy.exc

    try:
        return sqlalchemy.engine.make_url(storage or "").render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return repr((storage or "").partition("@")[2] or storage)


def _counts(trial: Any) -> bool:
    """Whether a trial is done or being done, and not given back."""
    return trial.state.name == "RUNNING" or (trial.state.is_finished() and TOLD in trial.user_attrs)


def _told(trial: Any) -> Told:
    values = from_json(trial.user_attrs[TOLD])
    return Told(**{**values, "env_steps": int(values["env_steps"])})


def _places(trials: Sequence[Any]) -> dict[int, int]:
    """The place of each trial, by its number: that of the trial that it does anew, or else the next one."""
    places, fresh = {}, 0
    for trial in sorted(trials, key=lambda trial: trial.number):
        if PLACE in trial.user_attrs:
            places[trial.number] = trial.user_attrs[PLACE]
        else:
            places[trial.number], fresh = fresh, fresh + 1
    return places


def _is_dead(worker: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a process is gone: it is not among those of this machine, or has long told nothing."""
    host, pid, _ = worker.rsplit(":", 2)
    if host == _host() and not _runs(int(pid)):
        return True
    return time.time() - attrs.get(BEAT + worker, 0.0) > SECONDS_TO_LIVE


def _age(moment: Any) -> float:
    return time.time() - moment.timestamp()


def _host() -> str:
    """This machine, or this container of it, where a process has a number of its own."""
    spaces = Path("/proc/self/ns/pid")
    try:
        return f"{platform.node()}/{spaces.stat().st_ino}"
    except OSError:
        return platform.node()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
