"""A transaction for a user's step: it writes to the user's tables and logs the step's result.

The last message to the server logs the result and commits. A process that dies or is paused before
that has changed nothing and holds no lock on the run. The key in the superstep log is unique, so of
two processes that do the same step only one can commit, whatever happens to their connections.
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

LOGGED_RESULT = "SELECT convert_to(body, 'UTF8') FROM {schema}.memory WHERE run_id = $1 AND place = $2 AND key = $3"
# SQLSTATEs. The first three are our own, raised by the function `finish`; the last one means that a
# statement of this transaction has failed.
FENCED, REMEMBERED, ENDED, ABORTED = "HF001", "HF002", "HF003", "25P02"


class PostgresTransaction:
    """One transaction, on a connection that is opened for it alone."""

    def __init__(self, db: PostgresDatabase, schema: str, run_id: str, job: dict[str, Any], fence: int | None) -> None:
        """Prepare a transaction. `schema` is quoted already, and the strings in `job` are escaped."""
        self._db, self._schema = db, schema
        self._run_id, self._job, self._fence = run_id, job, fence
        self._given_up = threading.Event()
        self._cancel: Callable[[], None] | None = None

    def do(self, work: Callable[[Any], bytes]) -> bytes | None:
        """Call `work` in the transaction and commit it with its result.

        Returns None, or the stored result if the step was done before. Raises CommitConflict if the
        lease was lost, and StoreUnavailable if the transaction could not be committed.
        """
        result = self._find_result()
        if result is not None:
            return result
        with self._db.guest() as guest:
            self._cancel = guest.canceller()
            # A mark that ends with this transaction. If it is missing at the end, the step has
            # committed by itself and we are in another transaction.
            step = uuid.uuid4().hex
            self._execute(guest, f"BEGIN; SET LOCAL stepwell.step = '{step}'".encode())
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
        """Cancel the running statement and let nothing be committed.

        May be called from any thread.
        """
        self._given_up.set()
        if self._cancel is not None:
            # In a thread of its own, because cancelling connects to the server and may take a
            # while.
            threading.Thread(target=_cancel_quietly, args=(self._cancel,), daemon=True).start()

    def _execute(self, guest: Guest, statements: bytes) -> None:
        if self._given_up.is_set():
            raise StoreUnavailable(f"{self} was given up and undone")
        with guest.line:
            result = guest.pgconn.exec_(statements)
        if result.status != ExecStatus.COMMAND_OK:
            error = psycopg.errors.error_from_result(result, guest.info.encoding)
            raise StoreUnavailable(f"{self} could not run in a transaction: {first_line(error)}") from error

    def _finish(self, guest: Guest, step: str, body: bytes) -> bytes | None:
        jobs = msgspec.json.encode([{"do": "finish", "step": step, **self._job}])
        if guest.pgconn.parameter_status(b"client_encoding") != b"UTF8":
            self._execute(guest, b"SET client_encoding = 'UTF8'")
        if self._given_up.is_set():
            raise StoreUnavailable(f"{self} finished after it was given up, and was undone")
        # One message with both statements: between two messages this process could be paused, with
        # the row of the run locked. Several statements in one message cannot have parameters, so
        # the values are quoted.
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
                f"{self} ended its transaction by itself: what it committed stays, and the next attempt may repeat "
                f"it; remove COMMIT and ROLLBACK from the step"
            )
        if state == ABORTED:
            raise RuntimeError(
                f"{self} continued after a statement had failed, so all of it was undone; put statements that may "
                f"fail into `with connection.transaction():`"
            )
        stored = self._find_result() if state == REMEMBERED else None
        if stored is None:
            raise psycopg.errors.error_from_result(result, guest.info.encoding)
        return stored

    def _find_outcome(self, guest: Guest, body: bytes) -> bytes | None:
        """Find out what became of a commit whose answer was lost: None if it was made."""
        stored = self._find_result(best_effort=True)
        if stored is None:
            reason = guest.line.lost or guest.pgconn.error_message.decode("utf-8", "replace").strip()
            raise StoreUnavailable(
                f"the connection broke while {self} was being committed ({reason}); "
                f"either all of it was undone, or the next attempt finds it done"
            )
        return None if stored == body else stored

    def _find_result(self, *, best_effort: bool = False) -> bytes | None:
        place = [self._job["run_id"], self._job["place"], self._job["key"]]
        read = self._db.read_best_effort if best_effort else self._db.read_blocking
        rows = read(LOGGED_RESULT.replace("{schema}", self._schema).encode(), place)
        return bytes(rows[0][0]) if rows else None

    def __str__(self) -> str:
        return f"the step {self._job['key']!r} of run {self._run_id!r}"


def _cancel_quietly(cancel: Callable[[], None]) -> None:
    """Cancel the running statement, if there is one.

    Without one, the step is undone when it returns.
    """
    with suppress(psycopg.Error):
        cancel()
