"""A transaction on the database of the store in which somebody else writes, and the store remembers what that came to.

The last statement remembers and commits, in one message: whoever dies or is paused before it has done nothing, and
nobody can be left with the row of the run locked. The key of the memory is unique, so of two that do the same only
one can commit, whatever became of the other's connection.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, Escaping, ExecStatus
from psycopg.pq.abc import PGresult

from stepwell.errors import StoreUnavailable
from stepwell.storage.port import fence_error
from stepwell.stores.postgres.access import PostgresDatabase
from stepwell.stores.postgres.connection import Guest
from stepwell.stores.postgres.errors import first_line
from stepwell.stores.postgres.tables import FORMAT

KNOWN = "SELECT convert_to(body, 'UTF8') FROM {schema}.memory WHERE run_id = $1 AND place = $2 AND key = $3"
FENCED, REMEMBERED, ENDED, SPOILT = "HF001", "HF002", "HF003", "25P02"  # the first three are our own


class PostgresTransaction:
    """One use of a connection that was opened for it."""

    def __init__(self, db: PostgresDatabase, schema: str, run_id: str, job: dict[str, Any], fence: int | None) -> None:
        """`schema` is quoted, and what is in the job is as it is stored."""
        self._db, self._schema = db, schema
        self._run_id, self._job, self._fence = run_id, job, fence
        self._given_up = threading.Event()
        self._cancel: Callable[[], None] | None = None

    def do(self, work: Callable[[Any], bytes]) -> bytes | None:
        result = self._find_result()
        if result is not None:
            return result
        with self._db.guest() as guest:
            self._cancel = guest.canceller()
            step = uuid.uuid4().hex
            self._go_on(guest, f"BEGIN; SET LOCAL stepwell.step = '{step}'".encode())  # gone with this transaction
            body = self._run_work(work, guest)
            return self._finish(guest, step, body)

    def _run_work(self, work: Callable[[Any], bytes], guest: Guest) -> bytes:
        try:
            return work(guest)
        except psycopg.OperationalError as error:
            if guest.line.lost is None:
                raise
            raise StoreUnavailable(
                f"{self} was undone: {guest.line.lost}; start the server again, or check the network"
            ) from error

    def give_up(self) -> None:
        self._given_up.set()
        if self._cancel is not None:
            threading.Thread(target=_quietly, args=(self._cancel,), daemon=True).start()

    def _go_on(self, guest: Guest, statements: bytes) -> None:
        if self._given_up.is_set():
            raise StoreUnavailable(f"{self} was given up, and all of it was undone")
        with guest.line:
            result = guest.pgconn.exec_(statements)
        if result.status != ExecStatus.COMMAND_OK:
            error = psycopg.errors.error_from_result(result, guest.info.encoding)
            raise StoreUnavailable(f"{self} could not be done in a transaction: {first_line(error)}") from error

    def _finish(self, guest: Guest, step: str, body: bytes) -> bytes | None:
        jobs = msgspec.json.encode([{"do": "finish", "step": step, **self._job}])
        if guest.pgconn.parameter_status(b"client_encoding") != b"UTF8":
            self._go_on(guest, b"SET client_encoding = 'UTF8'")
        if self._given_up.is_set():
            raise StoreUnavailable(f"{self} came too late, and all of it was undone")
        quoted = Escaping(guest.pgconn).escape_literal
        work = f"SELECT {self._schema}.work({FORMAT}, ".encode()
        with guest.line:
            result = guest.pgconn.exec_(work + quoted(jobs) + b", ARRAY[" + quoted(body) + b"]::text[]); COMMIT")
        if result.status == ExecStatus.COMMAND_OK:
            return None
        if guest.pgconn.status == ConnStatus.BAD:
            return self._find_outcome(guest, body)
        return self._translate_refusal(result, guest)

    def _translate_refusal(self, result: PGresult, guest: Guest) -> bytes | None:
        state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        if state == FENCED and self._fence is not None:
            raise fence_error(self._run_id, self._fence)
        if state == ENDED:
            raise RuntimeError(
                f"{self} ended its transaction by itself: what it committed stands, and may be done again; "
                f"leave COMMIT and ROLLBACK out"
            )
        if state == SPOILT:
            raise RuntimeError(
                f"{self} went on after a statement had failed, so all of it was undone; put what may fail into "
                f"`with connection.transaction():`"
            )
        stored = self._find_result() if state == REMEMBERED else None
        if stored is None:
            raise psycopg.errors.error_from_result(result, guest.info.encoding)
        return stored

    def _find_outcome(self, guest: Guest, body: bytes) -> bytes | None:
        """What became of a commit whose answer was lost."""
        stored = self._find_result(best_effort=True)
        if stored is None:
            reason = guest.line.lost or guest.pgconn.error_message.decode("utf-8", "replace").strip()
            raise StoreUnavailable(
                f"the connection broke when {self} was being committed ({reason}); "
                f"all of it was undone, or the next attempt finds it done"
            )
        return None if stored == body else stored

    def _find_result(self, *, best_effort: bool = False) -> bytes | None:
        place = [self._job["run_id"], self._job["place"], self._job["key"]]
        read = self._db.read_best_effort if best_effort else self._db.read_blocking
        rows = read(KNOWN.replace("{schema}", self._schema).encode(), place)
        return bytes(rows[0][0]) if rows else None

    def __str__(self) -> str:
        return f"the step {self._job['key']!r} of run {self._run_id!r}"


def _quietly(cancel: Callable[[], None]) -> None:
    """Stop the statement that is under way, if there is one. Otherwise all is undone when the function comes back."""
    with suppress(psycopg.Error):
        cancel()
