"""Classification of the driver's errors, and their translation into errors that say what to do."""

from __future__ import annotations

import psycopg
from psycopg import errors

from stepwell.errors import CheckpointCorrupt, DurabilityError, StoreUnavailable

# The statement was prepared in another session: a pooler is in between.
POOLED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
# Nothing was done, because of a concurrent statement or a pooler: send it again.
UNDONE = (errors.SerializationFailure, errors.DeadlockDetected, *POOLED)
# The server has closed the connection, or is about to.
GONE = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)
# Errors in the data of one call: the other calls of its transaction may succeed without it.
CALL_ERRORS = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded)
DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)

# Messages of a server that will refuse us again, with advice. libpq reports no SQLSTATE while
# connecting.
REFUSED = {
    "password authentication failed": "check the user and the password in the dsn",
    "no password supplied": "add a password to the dsn, or set PGPASSWORD",
    "no pg_hba.conf entry": "the server does not allow such connections; have a line added to its pg_hba.conf",
    "pg_hba.conf rejects": "the server does not allow such connections; have its pg_hba.conf changed",
    "is not permitted to log in": "use another user, or ALTER ROLE ... LOGIN",
    '" does not exist': "create it, or correct the dsn",
}

ADVICE: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "grant it to the user of the dsn, or choose a schema which that user owns",
    errors.ReadOnlySqlTransaction: "this server is read-only; connect to the primary, or add "
    "target_session_attrs=read-write to the dsn",
    errors.DiskFull: "the disk of the server is full; free some space, then resume",
    errors.OutOfMemory: "the server is out of memory; give it more, then resume",
    errors.UndefinedTable: "tables of the store were removed by hand; restore them from a backup",
    errors.UndefinedFunction: "functions of the store were removed, or its schema was renamed, by hand; "
    "restore them from a backup, or rename it back",
    errors.InvalidSchemaName: "the schema was removed by hand; restore it from a backup",
    errors.ProgramLimitExceeded: "the id of a run, workflow, checkpoint or request is too long",
    errors.QueryCanceled: "a statement_timeout of the server, or an administrator, cancelled the statement; resume",
}


class Transient(Exception):
    """An error that passes: the server went away, or could not do it right now."""

    def __init__(self, cause: psycopg.Error, *, sent: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.sent = sent  # a statement was sent, and its outcome is unknown


def as_transient(error: BaseException, *, is_broken: bool) -> Transient | None:
    """Return the error of a statement as a transient one, None if it is permanent."""
    if isinstance(error, psycopg.Error) and (is_broken or isinstance(error, (*UNDONE, *GONE))):
        return Transient(error, sent=not isinstance(error, UNDONE))
    return None


def translate(error: psycopg.Error, where: str) -> DurabilityError:
    """Return the Stepwell error for a permanent error of a statement."""
    message = first_line(error)
    if isinstance(error, DAMAGED):
        return CheckpointCorrupt(f"{where} is damaged ({message}); restore it from a backup")
    advice = next((text for kind, text in ADVICE.items() if isinstance(error, kind)), None)
    return StoreUnavailable(f"{where} cannot be used: {message}" + (f"; {advice}" if advice else ""))


def refusal_error(error: psycopg.Error, where: str) -> StoreUnavailable | None:
    """The error for a server that will never accept the connection; None if it may do so later."""
    message = str(error)
    advice = next((advice for phrase, advice in REFUSED.items() if phrase in message), None)
    # With several hosts in the dsn, another host may still accept it.
    if advice is None or "Multiple connection attempts" in message:
        return None
    return StoreUnavailable(f"{where} cannot be used: {first_line(error)}; {advice}")


def unreachable_error(cause: Exception, where: str, seconds: float, *, in_doubt: bool) -> StoreUnavailable:
    """The error for a server that has been away too long.

    `in_doubt`: a statement was sent and not answered.
    """
    unknown = "; whether the last write was stored is not known, a resumed run finds out" if in_doubt else ""
    return StoreUnavailable(
        f"{where} could not be reached for {seconds:.1f} s: {first_line(cause)}; "
        f"start the server again, or check the network and the dsn{unknown}"
    )


def first_line(error: Exception) -> str:
    """Return the first line of a message; the others repeat the statement and its values."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
