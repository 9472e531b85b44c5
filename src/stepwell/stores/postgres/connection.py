"""Connections as the driver makes them, with a line that is watched while somebody waits on it."""

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

# A session that waits for its client works for nobody; one of a server that does not keep track may be working.
SESSIONS = """
SELECT pid, extract(epoch FROM clock_timestamp() - query_start)::float8,
    state = 'disabled' OR state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state IS NOT NULL
"""


class Watched(psycopg.Connection[tuple[Any, ...]]):
    """One whose waits have an end. May be dropped without being closed, in a forked child or when the program ends."""

    line: WatchedLine

    @classmethod
    def open(cls, dsn: str, watch: Watch) -> Self:
        db = cls.connect(dsn, autocommit=True, prepare_threshold=None, client_encoding="UTF8")
        try:
            db.line = watch.add(db.pgconn.socket)
        except OSError as error:  # too many open files
            db.close()
            raise psycopg.OperationalError(str(error)) from error
        return db

    def wait(self, *args: Any, **options: Any) -> Any:
        """Where every statement of the driver waits for its answer."""
        with self.line:
            return super().wait(*args, **options)

    def close(self) -> None:
        """Waits for nothing: libpq says goodbye if there is room on the line."""
        super().close()
        if hasattr(self, "line"):
            self.line.close()

    def __del__(self, _: Any = None, /) -> None:
        """Nothing to say: libpq closes the socket, and only in the process that opened it."""


class Ours(Watched):
    """One for our own statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = RawCursor

    @property
    def is_pooled(self) -> bool:
        """Whether each statement may be done by another session: a pooler stands in between."""
        return self.line.backend is None

    def served_by(self, pid: int) -> None:
        """The session that did a statement says who it is. A pooler invents a process for its clients."""
        self.line.backend = pid if pid == self.pgconn.backend_pid else None


class Guest(Watched):
    """One that is given to somebody else's function, inside a transaction that is ours to end."""

    def commit(self) -> None:
        raise RuntimeError(
            "what a step writes is committed with its result: return, and it is; raise, and it is undone"
        )

    def rollback(self) -> None:
        raise RuntimeError("what a step writes is undone if it raises; use `with connection.transaction():` for a part")

    def canceller(self) -> Callable[[], None]:
        """Stops the statement that is under way. May be called from any thread, at any time."""
        try:
            return self.pgconn.cancel_conn().blocking
        except psycopg.NotSupportedError:  # an older libpq
            return self.pgconn.get_cancel().cancel

    def leave(self) -> None:
        """Undo what is not committed, and end."""
        self.pgconn.finish()
        self.line.close()


def within(seconds: float, connect: Callable[[], C]) -> C:
    """The connection, made in a thread that is left alone if it takes longer: names are looked up there, too."""
    made: Future[C] = Future()

    def work() -> None:
        try:
            made.set_result(connect())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            made.set_exception(error)

    try:
        threading.Thread(target=work, name="stepwell-connect", daemon=True).start()
    except RuntimeError:  # Python starts no thread any more when it is about to end
        work()
    try:
        return made.result(seconds)
    except TimeoutError:
        made.add_done_callback(_close_late)
        raise errors.ConnectionTimeout(f"the server did not answer for {seconds:.1f} s") from None


def _close_late(made: Future[C]) -> None:
    if made.exception() is None:
        made.result().close()


def ask_about_sessions(dsn: str, watch: Watch) -> Callable[[Probe], Sessions | None]:
    """What a probe does: on a connection of its own, and never longer than it is waited for."""

    def ask(probe: Probe) -> Sessions | None:
        try:
            db = Watched.open(dsn, watch)
        except psycopg.Error as error:
            is_there = is_refused_for_good(error) or any(words in str(error) for words in CROWDED)
            return ANSWERED if is_there else None
        try:
            probe.on_line(db.line)
            return [Session(*row) for row in db.execute(SESSIONS).fetchall()]
        except psycopg.Error as error:
            return None if db.closed or db.line.lost else ANSWERED if error.sqlstate else None
        finally:
            db.close()

    return ask
