"""A pool of connections to a server that may go away and come back."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, Ping
from psycopg.types.array import ListBinaryDumper

from stepwell.stores.postgres.connection import Guest, Ours, Watched, ask_about_sessions, within
from stepwell.stores.postgres.errors import (
    CROWDED,
    Passing,
    away,
    is_refused_for_good,
    passing,
    translate,
    translate_refusal,
)
from stepwell.stores.postgres.patience import Patience
from stepwell.stores.postgres.schema import prepare, quote_schema
from stepwell.stores.postgres.silence import Probe, Watch

T = TypeVar("T")
C = TypeVar("C", bound=Watched)
Work = Callable[[Ours, bool], T]
"""Work on a connection.

The second argument is True if it may have been done already: the answer was lost.
"""

# Unless the dsn or the environment sets them.
DEFAULT_OPTIONS = {
    "connect_timeout": "10",
    "keepalives": "1",
    # The next three: the loss of the server's machine is noticed after 5 + 3 * 2 = 11 seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "11000",
    "fallback_application_name": "stepwell",
}
ENVIRONMENT_VARIABLES = {"connect_timeout": "PGCONNECT_TIMEOUT", "fallback_application_name": "PGAPPNAME"}
PING_TIMEOUT = 2  # seconds, the shortest that libpq accepts
ATTEMPTS = 3  # a running server that refuses so often is believed
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts to reach a server that is away


class Link:
    """A pool of connections, each lent to one user at a time, that outlives outages of the server."""

    def __init__(self, dsn: str, schema: str, patience: float) -> None:
        """Check the settings; connects at the first use.

        Raises ValueError for a bad dsn or schema.
        """
        quote_schema(schema)
        try:
            options = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # Neither the message nor the dsn is repeated, and no cause is kept: they may contain
            # the password.
            raise ValueError(
                "this is not a PostgreSQL dsn; write 'postgresql://user:password@host/database' "
                "or 'host=... dbname=... user=... password=...'"
            ) from None
        self.where = _where(options, schema)
        self._dsn = make_conninfo(dsn, **{k: v for k, v in DEFAULT_OPTIONS.items() if not _is_set(k, options)})
        self._schema, self._patience = schema, Patience(patience)
        probing = make_conninfo(self._dsn, application_name="stepwell probe")
        self._watch = Watch(
            self._patience, lambda: Probe(ask_about_sessions(probing, self._watch)), on_silence=self._forget_idle
        )
        self._lock = threading.Lock()
        self._idle: list[Ours] = []
        self._closed = self._was_prepared = self._pooled = False

    def use(self, work: Work[T], *, asked: float | None = None, best_effort: bool = False, in_doubt: bool = False) -> T:
        """Return what `work` returns; retry it on another connection if the server goes away.

        Raises StoreUnavailable if the server stays away longer than our patience. Errors of the driver
        are raised translated. `asked` is when the caller asked for the work. A best-effort call does
        not wait for a server that was already given up. `in_doubt`: some of the work was sent before,
        and its outcome is unknown.
        """

        def on_a_connection(again: bool) -> T:
            with self._lend() as db:
                return work(db, again)

        return self._patiently(on_a_connection, asked=asked, best_effort=best_effort, in_doubt=in_doubt)

    def guest(self) -> Guest:
        """Return a new connection for the user's statements, with the driver's defaults."""
        guest = self._patiently(lambda again: self._reach(Guest))
        guest.line.backend = None if self._pooled else guest.pgconn.backend_pid
        return guest

    def _patiently(
        self,
        work: Callable[[bool], T],
        *,
        asked: float | None = None,
        best_effort: bool = False,
        in_doubt: bool = False,
    ) -> T:
        hopeless = self._patience.find_outage(time.monotonic() if asked is None else asked, best_effort=best_effort)
        if hopeless is not None:
            cause, seconds = hopeless
            raise away(cause, self.where, seconds, in_doubt=in_doubt) from cause
        again, since, pause = False, None, 0.0
        while True:
            try:
                result = work(again)
            except Passing as trouble:
                again = again or trouble.sent
                since = trouble.since if since is None else since
                lasted = self._patience.note_failure(trouble.cause, since)
                if lasted is not None:
                    raise away(trouble.cause, self.where, lasted, in_doubt=again or in_doubt) from trouble.cause
            else:
                self._patience.note_answer()
                return result
            # With jitter, so that many processes do not all knock at the same moment when a server
            # comes back.
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(max(pause * 1.5, SHORTEST_PAUSE), LONGEST_PAUSE)

    def close(self) -> None:
        """Close every idle connection now, and those in use when they are returned."""
        with self._lock:
            self._closed = True
        self._forget_idle()

    @contextmanager
    def _lend(self) -> Iterator[Ours]:
        with self._lock:
            db = self._idle.pop() if self._idle else None
        if db is None:
            db = self._connect()
        try:
            yield db
        except psycopg.Error as error:
            trouble = self._discard(db, error)
            if trouble is None:
                raise translate(error, self.where) from error
            raise trouble from error
        except BaseException:
            db.close()  # interrupted in the middle of a statement, so it cannot be reused
            raise
        self.take_back(db)

    def idle(self, suits: Callable[[Ours], bool]) -> Ours | None:
        """Take an idle connection that suits, without waiting; None if there is none.

        The caller returns it with `take_back`, or discards it with `is_in_doubt`.
        """
        with self._lock:
            suitable = next((db for db in self._idle if suits(db)), None)
            if suitable is not None:
                self._idle.remove(suitable)
            return suitable

    def is_in_doubt(self, db: Ours, error: psycopg.Error) -> bool:
        """Discard a connection after an error; return whether the outcome is unknown."""
        trouble = self._discard(db, error)
        return trouble is not None and trouble.sent

    def _discard(self, db: Ours, error: psycopg.Error) -> Passing | None:
        # If our own watch has cut the connection, its reason says more than the driver's error.
        if db.line.lost is not None:
            error = psycopg.OperationalError(db.line.lost)
        trouble = passing(error, broken=db.closed or db.line.lost is not None)
        if trouble is not None and db.line.silent_since is not None:
            trouble.since = db.line.silent_since
        db.close()
        if trouble is not None and trouble.sent:
            self._forget_idle()  # they are as old as this one, and most likely broken too
        return trouble

    def take_back(self, db: Ours) -> None:
        """Return a connection to the pool."""
        with self._lock:
            if not self._closed:
                self._idle.append(db)
                return
        db.close()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _connect(self) -> Ours:
        """Return a new connection to a schema that is ready for use."""
        db = self._reach(Ours)
        try:
            db.adapters.register_dumper(list, ListBinaryDumper)  # as text, each quote in a body would be escaped
            db.note_backend(prepare(db, self._schema, self.where, must_exist=self._was_prepared))
        except psycopg.Error as error:
            trouble = self._discard(db, error)
            if trouble is None:
                raise translate(error, self.where) from error
            trouble.sent = False  # only the preparation was sent, not the caller's work
            raise trouble from error
        except BaseException:
            db.close()
            raise
        self._was_prepared, self._pooled = True, db.is_pooled
        self._patience.note_answer()
        return db

    def _reach(self, kind: type[C]) -> C:
        """Return a new connection. Waits no longer than the patience that is left."""
        for attempt in range(ATTEMPTS):
            now = time.monotonic()
            try:
                return within(self._patience.deadline(now) - now, lambda: kind.open(self._dsn, self._watch))
            except psycopg.Error as error:
                if is_refused_for_good(error):
                    raise translate_refusal(error, self.where) from error
                # No server, or one without a free connection: transient. A running server that
                # refuses may be starting up or failing over, so it is asked a few times before the
                # refusal is believed.
                if not self._is_there(error) or any(phrase in str(error) for phrase in CROWDED):
                    raise Passing(error, sent=False, since=now) from error
                if attempt == ATTEMPTS - 1:
                    raise translate_refusal(error, self.where) from error
        raise AssertionError

    def _is_there(self, error: psycopg.Error) -> bool:
        """Return whether a server is running although the attempt to connect failed."""
        if isinstance(error, errors.ConnectionTimeout):
            return False
        ping_dsn = make_conninfo(self._dsn, connect_timeout=PING_TIMEOUT).encode()
        return PGconn.ping(ping_dsn) in (Ping.OK, Ping.NO_ATTEMPT)


def _where(options: dict[str, Any], schema: str) -> str:
    """Describe the store for error messages. Not by its dsn, which may contain a password."""
    host, name = options.get("host") or options.get("hostaddr"), options.get("dbname")
    database = "the PostgreSQL database" + (f" {name!r}" if name else "") + (f" on {host}" if host else "")
    return f"schema {schema!r} of {database}"


def _is_set(name: str, options: dict[str, Any]) -> bool:
    """Return whether the user has set an option, in the dsn or in the environment."""
    return name in options or ENVIRONMENT_VARIABLES.get(name, "") in os.environ
