"""Storages of studies: databases in SQLAlchemy's format, and Optuna's journal in a file."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from envs.errors import MissingPackageError, installing
from jaxrl.results.dataset import ResultError

JOURNAL = "journal:"  # prefix of the path of a journal
_PATIENCE = 60.0  # seconds to wait for a transaction of another process in SQLite

__all__ = ["JOURNAL", "import_optuna", "storage_of"]


def import_optuna() -> Any:
    """The module `optuna`.

    Raises:
      ImportError: Optuna is not installed; the message names the extra.
    """
    try:
        import cmaes
        import optuna
    except ImportError:
        raise MissingPackageError(f"a search needs the extra `search`: {installing('search')}") from None
    del cmaes
    return optuna


@contextlib.contextmanager
def storage_of(url: str | None) -> Iterator[Any]:
    """A storage of Optuna, open within the context; errors of it in the context are reported in one sentence.

    Args:
      url: URL in SQLAlchemy's format, or `journal:` and the path of a file, whose folder exists; None for memory.

    Raises:
      ImportError: The storage's driver is not installed.
      ResultError: The storage cannot be used.
      ValueError: There is no path after `journal:`.
    """
    if url is None:
        yield None
        return
    import optuna
    import sqlalchemy.exc

    from jaxrl.tuning.journal import JournalError, journal

    backend = None
    try:
        if url.startswith(JOURNAL):
            yield journal(url.removeprefix(JOURNAL))
        else:
            backend = _database(url)
            yield backend
    except (
        sqlalchemy.exc.SQLAlchemyError,
        optuna.exceptions.StorageInternalError,
        json.JSONDecodeError,
        JournalError,
    ) as error:
        cause = None if isinstance(error, JournalError) else error.__cause__
        reason = str(getattr(cause or error, "orig", None) or error).strip().splitlines()[0]
        raise ResultError(f"the storage {_shown(url)} cannot be used: {reason.rstrip('.')}") from error
    finally:
        if backend is not None:
            backend.remove_session()
            backend.engine.dispose()


def _database(url: str) -> Any:
    import optuna
    import sqlalchemy.event
    import sqlalchemy.exc

    local = url.startswith("sqlite")
    options = {"connect_args": {"timeout": _PATIENCE}} if local else {}
    for attempts_left in reversed(range(5)):
        try:
            backend = optuna.storages.RDBStorage(url, engine_kwargs=options)
            break
        except ImportError as error:
            raise MissingPackageError(
                f"the storage {_shown(url)} needs a package that is not installed: {error.__cause__ or error}"
            ) from None
        except (sqlalchemy.exc.OperationalError, sqlalchemy.exc.IntegrityError) as error:
            # Another process is creating the same tables.
            if not attempts_left or not ("already exists" in str(error) or "UNIQUE" in str(error)):
                raise
            time.sleep(0.2)
    else:
        raise AssertionError
    if local:
        # SQLite locks a file at the first write: two processes that have read the same waiting trial would both take
        # it. A lock from the beginning of a transaction lets only one of them read at a time.
        @sqlalchemy.event.listens_for(backend.engine, "connect")
        def connect(connection: Any, _: Any) -> None:
            connection.isolation_level = None

        @sqlalchemy.event.listens_for(backend.engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        backend.engine.dispose()  # connections from before
    return backend


def _shown(storage: str) -> str:
    """A URL without its password."""
    import sqlalchemy.engine
    import sqlalchemy.exc

    if storage.startswith(JOURNAL):
        return storage
    try:
        return sqlalchemy.engine.make_url(storage).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return repr(storage.partition("@")[2] or storage)
