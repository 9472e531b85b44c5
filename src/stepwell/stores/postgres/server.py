"""The server of a store: how it is reached, and how it is asked for a sign of life."""

from __future__ import annotations

import os
import time
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, Ping

from stepwell.stores.postgres.connection import Connection, within
from stepwell.stores.postgres.errors import CROWDED, Transient, is_refused_for_good, translate_refusal
from stepwell.stores.postgres.pipeline import Call, Statement
from stepwell.stores.postgres.values import encode
from stepwell.stores.postgres.watchdog import IS_AT_WORK, Watchdog

C = TypeVar("C", bound=Connection)

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


class Server:
    """A server, its database, and one schema in it."""

    def __init__(self, dsn: str, schema: str, timeout: float) -> None:
        """Check the dsn; raises ValueError if it is none."""
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
        self.dsn = make_conninfo(dsn, **{k: v for k, v in DEFAULT_OPTIONS.items() if not _is_set(k, options)})
        self.watchdog = Watchdog(timeout, self._probe)

    def connect(self, kind: type[C], seconds: float) -> C:
        """Return a new connection, within some seconds.

        Raises Transient if the server is away, and StoreUnavailable if it refuses us.
        """
        for attempt in range(ATTEMPTS):
            try:
                return within(seconds, lambda: kind.open(self.dsn, self.watchdog), undo=kind.close)
            except psycopg.Error as error:
                # No server, or one without a free connection: transient. A running server that
                # refuses may be starting up or failing over, so it is asked a few times before the
                # refusal is believed.
                if not is_refused_for_good(error):
                    if not self._is_there(error) or _is_crowded(error):
                        raise Transient(error, sent=False) from error
                    if attempt < ATTEMPTS - 1:
                        continue
                raise translate_refusal(error, self.where) from error
        raise AssertionError

    def _is_there(self, error: psycopg.Error) -> bool:
        """Return whether a server is running although the attempt to connect failed."""
        if isinstance(error, errors.ConnectionTimeout):
            return False
        ping_dsn = make_conninfo(self.dsn, connect_timeout=PING_TIMEOUT).encode()
        return PGconn.ping(ping_dsn) in (Ping.OK, Ping.NO_ATTEMPT)

    def _probe(self, session: int | None, sent: float, seconds: float) -> bool | None:
        def ask() -> bool | None:
            dsn = make_conninfo(self.dsn, application_name="stepwell probe")
            try:
                db = Connection.open(dsn, Watchdog(seconds))
            except psycopg.Error as error:
                # A server that refuses the connection, for any reason, is alive.
                return True if is_refused_for_good(error) or _is_crowded(error) else None
            with db:
                ((is_at_work,),) = db.call(Call(Statement(IS_AT_WORK), encode(session, time.monotonic() - sent)))[0]
                return bool(is_at_work)

        try:
            return within(seconds, ask)
        except psycopg.Error as error:
            # An error with an SQLSTATE comes from the server, so it is alive; all others come from
            # the driver.
            return True if error.sqlstate else None


def _is_crowded(error: psycopg.Error) -> bool:
    return any(phrase in str(error) for phrase in CROWDED)


def _where(options: dict[str, Any], schema: str) -> str:
    """Describe the store for error messages. Not by its dsn, which may contain a password."""
    host, name = options.get("host") or options.get("hostaddr"), options.get("dbname")
    database = "the PostgreSQL database" + (f" {name!r}" if name else "") + (f" on {host}" if host else "")
    return f"schema {schema!r} of {database}"


def _is_set(name: str, options: dict[str, Any]) -> bool:
    """Return whether the user has set an option, in the dsn or in the environment."""
    return name in options or ENVIRONMENT_VARIABLES.get(name, "") in os.environ
