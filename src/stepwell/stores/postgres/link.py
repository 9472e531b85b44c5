"""Connections to one server that may go away and come back."""

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
"""Done on a connection. The second argument says that it may have been done already, and the answer was lost."""

UNLESS_SAID_OTHERWISE = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "5",  # with the next two: a server whose machine is gone is noticed after 11 seconds
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "11000",
    "fallback_application_name": "stepwell",
}
IN_THE_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT", "fallback_application_name": "PGAPPNAME"}
HASTE = 2  # seconds, the shortest time that libpq knows
ATTEMPTS = 3  # a server that is there and refuses us so often means it
SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks whether the server is back


class Link:
    """Open connections, each lent to one user at a time."""

    def __init__(self, dsn: str, schema: str, patience: float) -> None:
        """Raises ValueError if that cannot be a dsn or a schema. Connects at the first use."""
        quote_schema(schema)
        try:
            said = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:  # its words may show a part of the dsn, and that may be the password
            raise ValueError(
                "that is no dsn of PostgreSQL: it looks like 'postgresql://user:password@host/database' "
                "or 'host=... dbname=... user=... password=...'"
            ) from None
        self.where = _where(said, schema)
        self._dsn = make_conninfo(dsn, **{k: v for k, v in UNLESS_SAID_OTHERWISE.items() if not _is_said(k, said)})
        self._schema, self._patience = schema, Patience(patience)
        probing = make_conninfo(self._dsn, application_name="stepwell probe")
        self._watch = Watch(
            self._patience, lambda: Probe(ask_about_sessions(probing, self._watch)), on_silence=self._forget_idle
        )
        self._lock = threading.Lock()
        self._idle: list[Ours] = []
        self._closed = self._known = self._pooled = False

    def use(self, work: Work[T], *, asked: float | None = None, best_effort: bool = False, in_doubt: bool = False) -> T:
        """What the work gives; done again on another connection if the server went away meanwhile.

        Raises StoreUnavailable if it stays away longer than our patience. Errors of the driver come out translated.
        `asked` is when the work was asked for. A best-effort call has no patience of its own.
        `in_doubt`: some of it was sent before, and nobody said how that went.
        """

        def on_a_connection(again: bool) -> T:
            with self._lend() as db:
                return work(db, again)

        return self._patiently(on_a_connection, asked=asked, best_effort=best_effort, in_doubt=in_doubt)

    def guest(self) -> Guest:
        """A connection for one use that is not ours: as the driver makes it, and nothing is set."""
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
                found = work(again)
            except Passing as trouble:
                again = again or trouble.sent
                since = trouble.since if since is None else since
                lasted = self._patience.note_failure(trouble.cause, since)
                if lasted is not None:
                    raise away(trouble.cause, self.where, lasted, in_doubt=again or in_doubt) from trouble.cause
            else:
                self._patience.note_answer()
                return found
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(max(pause * 1.5, SHORTEST), LONGEST)

    def close(self) -> None:
        """Close every connection that is not in use; those that are, when they come back."""
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
            trouble = self._part_with(db, error)
            if trouble is None:
                raise translate(error, self.where) from error
            raise trouble from error
        except BaseException:
            db.close()  # in the midst of something
            raise
        self.take_back(db)

    def idle(self, suits: Callable[[Ours], bool]) -> Ours | None:
        """One that is open and suits, without waiting. To be given back, or parted with."""
        with self._lock:
            found = next((db for db in self._idle if suits(db)), None)
            if found is not None:
                self._idle.remove(found)
            return found

    def is_in_doubt(self, db: Ours, error: psycopg.Error) -> bool:
        """Part with a connection on which something failed. Whether it was sent, and nobody said how it went."""
        trouble = self._part_with(db, error)
        return trouble is not None and trouble.sent

    def _part_with(self, db: Ours, error: psycopg.Error) -> Passing | None:
        if db.line.lost is not None:
            error = psycopg.OperationalError(db.line.lost)
        trouble = passing(error, broken=db.closed or db.line.lost is not None)
        if trouble is not None and db.line.silent_since is not None:
            trouble.since = db.line.silent_since
        db.close()
        if trouble is not None and trouble.sent:
            self._forget_idle()  # they are of the same age, and most likely broken too
        return trouble

    def take_back(self, db: Ours) -> None:
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
        """A connection in autocommit mode that prepares nothing by itself: a pooler may stand in between."""
        db = self._reach(Ours)
        try:
            db.adapters.register_dumper(list, ListBinaryDumper)  # as text, every quote in a body would be escaped
            db.served_by(prepare(db, self._schema, self.where, known=self._known))
        except psycopg.Error as error:
            trouble = self._part_with(db, error)
            if trouble is None:
                raise translate(error, self.where) from error
            trouble.sent = False  # what was sent was the preparing, and that is done anew
            raise trouble from error
        except BaseException:
            db.close()
            raise
        self._known, self._pooled = True, db.is_pooled
        self._patience.note_answer()
        return db

    def _reach(self, kind: type[C]) -> C:
        """A new connection. An attempt takes as long as there is patience left, at most."""
        for attempt in range(ATTEMPTS):
            now = time.monotonic()
            try:
                return within(self._patience.deadline(now) - now, lambda: kind.open(self._dsn, self._watch))
            except psycopg.Error as error:
                if is_refused_for_good(error):
                    raise translate_refusal(error, self.where) from error
                if not self._is_there(error) or any(words in str(error) for words in CROWDED):
                    raise Passing(error, sent=False, since=now) from error
                if attempt == ATTEMPTS - 1:
                    raise translate_refusal(error, self.where) from error
        raise AssertionError

    def _is_there(self, error: psycopg.Error) -> bool:
        """Whether there is a server behind the failure of an attempt to connect."""
        if isinstance(error, errors.ConnectionTimeout):
            return False
        hasty = make_conninfo(self._dsn, connect_timeout=HASTE).encode()
        return PGconn.ping(hasty) in (Ping.OK, Ping.NO_ATTEMPT)


def _where(said: dict[str, Any], schema: str) -> str:
    """The store in words. Not the dsn: that holds a password."""
    host, name = said.get("host") or said.get("hostaddr"), said.get("dbname")
    database = "the PostgreSQL database" + (f" {name!r}" if name else "") + (f" on {host}" if host else "")
    return f"schema {schema!r} of {database}"


def _is_said(name: str, said: dict[str, Any]) -> bool:
    """Whether somebody has set an option: in the dsn, or in the environment."""
    return name in said or IN_THE_ENVIRONMENT.get(name, "") in os.environ
