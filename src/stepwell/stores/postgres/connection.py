"""Connections of the driver, each with a socket that is watched while a caller waits for an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import psycopg
from psycopg import RawCursor, errors

from stepwell.stores.postgres.errors import CROWDED, is_refused_for_good
from stepwell.stores.postgres.silence import ANSWERED, Probe, Session, Sessions, Watch, WatchedLine

T = TypeVar("T")
C = TypeVar("C", bound="Watched")

# A session that waits for its client is not working. With track_activities off the state is
# 'disabled' and says nothing, so such a session counts as working.
SESSIONS = """
SELECT pid, extract(epoch FROM clock_timestamp() - query_start)::float8,
    state = 'disabled' OR state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state IS NOT NULL
"""


class Watched(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose waits have an end.

    It may be dropped without being closed, in a forked child or when the program exits.
    """

    line: WatchedLine

    @classmethod
    def open(cls, dsn: str, watch: Watch) -> Self:
        """Connect in autocommit mode.

        Nothing is prepared automatically: a pooler may be in between.
        """
        db = cls.connect(dsn, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
        try:
            db.line = watch.add(db.pgconn.socket)
        except OSError as error:  # too many open files
            db.close()
            raise psycopg.OperationalError(str(error)) from error
        return db

    def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the answer to a statement. Everything that the driver sends waits here."""
        with self.line:
            return super().wait(*args, **options)

    def close(self) -> None:
        """Close without waiting: libpq sends its goodbye only if the socket accepts it at once."""
        super().close()
        if hasattr(self, "line"):
            self.line.close()

    def __del__(self, _: Any = None, /) -> None:
        """Do nothing.

        The driver would warn here; libpq closes the socket, only in the process that opened it.
        """


class Ours(Watched):
    """A connection for the store's own statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = RawCursor

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler is in between, so that each statement may run in another session."""
        return self.line.backend is None

    def note_backend(self, pid: int) -> None:
        """Note the process id of the session that ran a statement.

        A pooler gives its clients an invented process id; if the two differ, there is a pooler.
        """
        self.line.backend = pid if pid == self.pgconn.backend_pid else None


class Guest(Watched):
    """A connection for a user's step, inside a transaction that the store ends."""

    def commit(self) -> None:
        raise RuntimeError(
            "a step must not commit: its writes are committed with its result when it returns; "
            "raise an exception to undo them"
        )

    def rollback(self) -> None:
        raise RuntimeError(
            "a step must not roll back: its writes are undone if it raises; "
            "to undo only some of them, use `with connection.transaction():`"
        )

    def canceller(self) -> Callable[[], None]:
        """Return a function that cancels the running statement, from any thread, at any time."""
        try:
            return self.pgconn.cancel_conn().blocking
        except psycopg.NotSupportedError:  # libpq before version 17
            return self.pgconn.get_cancel().cancel

    def leave(self) -> None:
        """Disconnect. What is not committed is rolled back."""
        self.pgconn.finish()
        self.line.close()


def within(seconds: float, connect: Callable[[], C]) -> C:
    """Return a new connection, or raise ConnectionTimeout after so many seconds.

    It is made in a thread that is abandoned if it takes longer: libpq looks up host names with a
    blocking call that no timeout covers.
    """
    made: Future[C] = Future()

    def work() -> None:
        try:
            made.set_result(connect())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            made.set_exception(error)

    try:
        threading.Thread(target=work, name="stepwell-connect", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down and starts no threads
        work()
    try:
        return made.result(seconds)
    except TimeoutError:
        made.add_done_callback(_close_late)
        raise errors.ConnectionTimeout(f"the server did not answer for {seconds:.1f} s") from None


def _close_late(made: Future[C]) -> None:
    """Close a connection that was made after its caller gave up."""
    if made.exception() is None:
        made.result().close()


def ask_about_sessions(dsn: str, watch: Watch) -> Callable[[Probe], Sessions | None]:
    """Return the function a probe runs: it asks the server what its sessions are doing."""

    def ask(probe: Probe) -> Sessions | None:
        try:
            db = Watched.open(dsn, watch)
        except psycopg.Error as error:
            # A server that refuses the connection, for any reason, is alive.
            is_there = is_refused_for_good(error) or any(phrase in str(error) for phrase in CROWDED)
            return ANSWERED if is_there else None
        try:
            probe.on_line(db.line)
            return [Session(*row) for row in db.execute(SESSIONS).fetchall()]
        except psycopg.Error as error:
            # An error with an SQLSTATE comes from the server, so it is alive; all others come from
            # the driver.
            return None if db.closed or db.line.lost else ANSWERED if error.sqlstate else None
        finally:
            db.close()

    return ask
