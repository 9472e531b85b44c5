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

import psycopg

from stepwell.errors import StoreUnavailable
from stepwell.storage.conflicts import check_fence
from stepwell.storage.ids import run_hash
from stepwell.storage.limits import LARGEST
from stepwell.stores.postgres.connection import StepConnection
from stepwell.stores.postgres.database import PostgresDatabase
from stepwell.stores.postgres.errors import first_line
from stepwell.stores.postgres.pipeline import Call, Statement
from stepwell.stores.postgres.queries import LOGGED
from stepwell.stores.postgres.values import encode

# SQLSTATEs. The first three are our own, raised by the function `finish_step`; the last one means
# that a statement of this transaction has failed.
FENCED, LOGGED_BEFORE, ENDED, ABORTED = "HF001", "HF002", "HF003", "25P02"


class PostgresTransaction:
    """One transaction, on a connection that is opened for it alone."""

    def __init__(
        self, db: PostgresDatabase, schema: str, run_id: str, *, place: int, key: str, fence: int | None
    ) -> None:
        """Prepare a transaction. `schema` is quoted already."""
        self._db, self._run_id, self._place, self._key, self._fence = db, run_id, place, key, fence
        self._find = Statement(LOGGED.replace("{schema}", schema).encode())
        self._finish_step = Statement.of_function(schema, "finish_step", 7, body=5)
        self._given_up = threading.Event()
        self._connection: StepConnection | None = None

    def do(self, work: Callable[[Any], bytes]) -> bytes | None:
        """Call `work` in the transaction and commit it with its result.

        Returns None, or the stored result if the step was done before. Raises CommitConflict if the
        lease was lost, and StoreUnavailable if the transaction could not be committed.
        """
        result = self._find_result()
        if result is not None:
            return result
        with self._db.step_connection() as db:
            self._connection = db
            # A mark that ends with this transaction. If it is missing at the end, the step has
            # committed by itself and we are in another transaction.
            step = uuid.uuid4().hex
            self._begin(db, step)
            body = self._run_work(work, db)
            if self._given_up.is_set():
                raise StoreUnavailable(f"{self} finished after it was given up, and was undone")
            return self._finish(db, step, body)

    def give_up(self) -> None:
        """Cancel the running statement and let nothing be committed.

        May be called from any thread.
        """
        self._given_up.set()
        if (db := self._connection) is not None:
            # In a thread of its own, because cancelling connects to the server and may take a
            # while.
            threading.Thread(target=_cancel_quietly, args=(db,), daemon=True).start()

    def _begin(self, db: StepConnection, step: str) -> None:
        if self._given_up.is_set():
            raise StoreUnavailable(f"{self} was given up and undone")
        try:
            db.execute(f"BEGIN; SET LOCAL stepwell.step = '{step}'".encode())
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"{self} could not run in a transaction: {first_line(error)}; start the server again, or check the "
                f"network"
            ) from error

    def _run_work(self, work: Callable[[Any], bytes], db: StepConnection) -> bytes:
        try:
            return work(db)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None or db.broken:
                raise
            # Raised by the watchdog: the connection is silent.
            raise StoreUnavailable(
                f"{self} was undone: {first_line(error)}; start the server again, or check the network"
            ) from error

    def _finish(self, db: StepConnection, step: str, body: bytes) -> bytes | None:
        values = encode(step, self._run_id, run_hash(self._run_id), self._place, self._key, body, self._fence)
        try:
            # One message with all statements: between two messages this process could be paused,
            # with the row of the run locked.
            db.call(
                Call(Statement(b"SET client_encoding = 'UTF8'")),
                Call(self._finish_step, values),
                Call(Statement(b"COMMIT")),
            )
        except psycopg.Error as error:
            if db.broken or error.sqlstate is None:
                return self._find_outcome(body, first_line(error))
            return self._find_reason(error)
        return None

    def _find_reason(self, error: psycopg.Error) -> bytes | None:
        """Return the stored result if the step was done before; otherwise raise why it was undone."""
        if error.sqlstate == FENCED:
            check_fence(self._run_id, self._fence, LARGEST)
        if error.sqlstate == ENDED:
            raise RuntimeError(
                f"{self} ended its transaction by itself: what it committed stays, and the next attempt may repeat "
                f"it; remove COMMIT and ROLLBACK from the step"
            )
        if error.sqlstate == ABORTED:
            raise RuntimeError(
                f"{self} continued after a statement had failed, so all of it was undone; put statements that may "
                f"fail into `with connection.transaction():`"
            )
        stored = self._find_result() if error.sqlstate == LOGGED_BEFORE else None
        if stored is None:
            raise error
        return stored

    def _find_outcome(self, body: bytes, reason: str) -> bytes | None:
        """Find out what became of a commit whose answer was lost: None if it was made."""
        stored = self._find_result(best_effort=True)
        if stored is None:
            raise StoreUnavailable(
                f"the connection broke while {self} was being committed ({reason}); "
                f"either all of it was undone, or the next attempt finds it done"
            )
        return None if stored == body else stored

    def _find_result(self, *, best_effort: bool = False) -> bytes | None:
        rows = self._db.call(self._find, encode(self._run_id, self._place, self._key), best_effort=best_effort)
        return rows[0][0] if rows else None

    def __str__(self) -> str:
        return f"the step {self._key!r} of run {self._run_id!r}"


def _cancel_quietly(db: StepConnection) -> None:
    """Cancel the running statement, if there is one.

    Without one, the step is undone when it returns.
    """
    with suppress(psycopg.Error):
        db.cancel_safe()
