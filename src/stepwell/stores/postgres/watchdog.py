"""Detection of dead connections: failover without a reset, hanging server, lossy firewall.

Nothing reports such a connection. When a statement has had no answer for a while, a second
connection asks the server what its sessions are doing. A session that works on a statement of that
age is a sign of life, however long the statement takes. If the server answers but does not work for
this connection, the connection is lost; if it does not answer at all, its time runs out. Both end
the wait with an error of a broken connection, and what handles lost answers takes over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from stepwell.stores.postgres.connection import Connection

SHORTEST_LIMIT = 1.0  # seconds that an answer may always take, even with a shorter timeout
SUSPECT_AFTER = 3.0  # seconds without an answer; a third of the limit if that is less
PROBE_SECONDS = 5.0  # after which a probe has failed, and another one is sent
# How often in a row the server must deny that it works for a connection. Once is not enough: the
# answer may be on its way.
DENIALS = 2
STANDSTILL = 2.0  # seconds between two looks that mean this process was stopped, or its machine asleep

# A session that waits for its client is not working. With track_activities off the state is
# 'disabled' and says nothing, so such a session counts as working. Behind a pooler the session is
# not known ($1 is NULL); then one with a statement of about that age counts. A server and its
# client may disagree by a second about the age of a statement.
IS_AT_WORK = b"""
SELECT EXISTS (
    SELECT FROM pg_stat_activity,
        coalesce(extract(epoch FROM clock_timestamp() - query_start), $2::float8) AS age
    WHERE pid <> pg_backend_pid() AND pid = coalesce($1::int, pid)
        AND (state = 'disabled' OR state = 'active' AND wait_event_type IS DISTINCT FROM 'Client')
        AND age <= $2::float8 + 1 AND ($1::int IS NOT NULL OR age >= $2::float8 - 1))
"""

Probe = Callable[[int | None, float, float], bool | None]
"""Asks whether a session works on what was sent at that moment, within some seconds; None: no answer."""


class Watchdog:
    """Judges the connections of a store that wait for an answer."""

    def __init__(self, timeout: float, probe: Probe | None = None) -> None:
        """Create a watchdog. Without a probe, the timeout is all that counts."""
        self.limit = max(timeout, SHORTEST_LIMIT)
        self.suspect_after = min(SUSPECT_AFTER, self.limit / 3)
        self._probe = probe
        self._probing = threading.Lock()  # one probe at a time: a server may have few connections

    def check(self, db: Connection) -> None:
        """Raise OperationalError if the server does not work for a connection that waits."""
        now = time.monotonic()
        # If this process itself stood still, the silence is not the server's.
        if now - db.looked > STANDSTILL:
            db.heard = now
        if now - db.heard >= self.suspect_after:
            self._ask(db, now)
        db.looked = time.monotonic()
        silence = db.looked - db.heard
        if silence >= self.limit:
            raise psycopg.OperationalError(f"the server was silent for {silence:.1f} s")

    def _ask(self, db: Connection, now: float) -> None:
        seconds = min(PROBE_SECONDS, max(db.heard + self.limit - now, 0.1))
        if self._probe is None or not self._probing.acquire(timeout=seconds):
            return
        try:
            works = self._probe(db.session, db.sent, seconds)
        finally:
            self._probing.release()
        if works:
            db.heard, db.denials = now, 0
        elif works is not None:
            db.denials += 1
            if db.denials >= DENIALS:
                raise psycopg.OperationalError("the server has lost the connection without closing it")
