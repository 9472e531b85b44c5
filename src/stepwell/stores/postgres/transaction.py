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
from stepwell.stores.postgres.connection import Call, StepConnection, function_call
from stepwell.stores.postgres.database import PostgresDatabase
from stepwell.stores.postgres.errors import first_line
from stepwell.stores.postgres.pool import BEST_EFFORT
from stepwell.stores.postgres.queries import LOGGED
from stepwell.stores.postgres.values import encode

# SQLSTATEs of our own, raised by the function `finish_step`.
FENCED, LOGGED_BEFORE = "HF001", "HF002"
# Mistakes of the step, by the SQLSTATE that shows them.
MISTAKES = {
    "HF003": "ended its transaction by itself: what it committed stays, and the next attempt may repeat it; remove "
    "COMMIT and ROLLBACK from the step",
    "25P02": "continued after a statement had failed, so all of it was undone; put statements that may fail into "
    "`with connection.transaction():`",
}


class PostgresTransaction:
    """One transaction, on a connection that is opened for it alone."""

    def __init__(
        self, db: PostgresDatabase, schema: str, run_id: str, *, place: int, key: str, fence: int | None
    ) -> None:
        """Prepare a transaction. `schema` is quoted already."""
        self._db, self._schema = db, schema
        self._run_id, self._place, self._key, self._fence = run_id, place, key, fence
        self._is_given_up = False
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
            self._check_wanted()
            try:
                db.execute(f"BEGIN; SET LOCAL stepwell.step = '{step}'".encode())
                body = work(db)
            except psycopg.OperationalError as error:
                if error.sqlstate is not None or db.broken:
                    raise
                # The server is silent.
                raise StoreUnavailable(
                    f"{self} was undone: {first_line(error)}; start the server again, or check the network"
                ) from error
            self._check_wanted()
            return self._finish(db, step, body)

    def give_up(self) -> None:
        """Cancel the running statement and let nothing be committed.

        May be called from any thread.
        """
        self._is_given_up = True
        if (db := self._connection) is not None:
            # In a thread of its own, because cancelling connects to the server and may take a
            # while.
            threading.Thread(target=_cancel_quietly, args=(db,), daemon=True).start()

    def _check_wanted(self) -> None:
        if self._is_given_up:
            raise StoreUnavailable(f"{self} was given up, and undone")

    def _finish(self, db: StepConnection, step: str, body: bytes) -> bytes | None:
        """Log the result and commit; return what is logged if that was done before."""
        where = (self._run_id, run_hash(self._run_id), self._place, self._key)
        values = encode(step, *where, body, self._fence)
        finish = function_call(self._schema, "finish_step", len(values), 5)._replace(values=values)
        try:
            # One message with all statements: between two messages this process could be paused,
            # with the row of the run locked.
            db.call(Call(b"SET client_encoding = 'UTF8'"), finish, Call(b"COMMIT"))
        except psycopg.Error as error:
            if db.broken or error.sqlstate is None:
                return self._find_outcome(body, first_line(error))
            if error.sqlstate in MISTAKES:
                raise RuntimeError(f"{self} {MISTAKES[error.sqlstate]}") from error
            if error.sqlstate == FENCED:
                check_fence(self._run_id, self._fence, LARGEST)
            stored = self._find_result() if error.sqlstate == LOGGED_BEFORE else None
            if stored is None:
                raise
            return stored
        return None

    def _find_outcome(self, body: bytes, reason: str) -> bytes | None:
        """Find out what became of a commit whose answer was lost: None if it was made."""
        stored = self._find_result(BEST_EFFORT)
        if stored is None:
            raise StoreUnavailable(
                f"the connection broke while {self} was being committed ({reason}); "
                f"either all of it was undone, or the next attempt finds it done"
            )
        return None if stored == body else stored

    def _find_result(self, asked: float | None = None) -> bytes | None:
        query = LOGGED.replace("{schema}", self._schema).encode()
        rows = self._db.call(Call(query, encode(self._run_id, self._place, self._key)), asked=asked)
        return rows[0][0] if rows else None

    def __str__(self) -> str:
        return f"the step {self._key!r} of run {self._run_id!r}"


def _cancel_quietly(db: StepConnection) -> None:
    """Cancel the running statement, if there is one.

    Without one, the step is undone when it returns.
    """
    with suppress(psycopg.Error):
        db.cancel_safe()
