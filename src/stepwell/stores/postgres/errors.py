"""What the driver raises, in our words: what happened, and what to do."""

from __future__ import annotations

import time

import psycopg
from psycopg import errors

from stepwell.errors import CheckpointCorrupt, DurabilityError, StoreUnavailable

UNDONE = (errors.SerializationFailure, errors.DeadlockDetected)
"""Nothing was done, for no fault of ours: to be done again."""

GONE = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)
"""The server ends the connection, or is about to."""

CROWDED = ("too many clients", "remaining connection slots", "too many connections", "no more connections")
"""What a server says that takes no more connections just now. While connecting, its words are all there is."""

REFUSED = {
    "password authentication failed": "the password of the dsn is not that of the user",
    "no password supplied": "add a password to the dsn, or set PGPASSWORD",
    "no pg_hba.conf entry": "the server lets nobody in like this; ask for a line in its pg_hba.conf",
    "pg_hba.conf rejects": "the server lets nobody in like this; ask for another line in its pg_hba.conf",
    "is not permitted to log in": "name a user that may, or ALTER ROLE ... LOGIN",
    '" does not exist': "create it, or correct the dsn",
}
"""What a server says that will say so again, and what to do. While connecting, its words are all there is."""

ONES_OWN = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded)
"""What one job is to blame for, not the server: others may be done."""

DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)

ADVICE: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "grant it to the user of the dsn, or name a schema that user owns",
    errors.ReadOnlySqlTransaction: "this server takes no writes; name the primary, or add "
    "target_session_attrs=read-write to the dsn",
    errors.DiskFull: "the disk of the server is full; make room, then resume",
    errors.OutOfMemory: "the server has no memory left; give it more, then resume",
    errors.UndefinedTable: "tables of the store were removed by hand; restore them from a backup",
    errors.UndefinedFunction: "functions of the store were removed, or its schema was renamed by hand; "
    "restore them from a backup, or rename it back",
    errors.InvalidSchemaName: "the schema was removed by hand; restore it from a backup",
    errors.ProgramLimitExceeded: "a run, workflow, checkpoint or request has an id that is too long",
    errors.QueryCanceled: "somebody, or a statement_timeout of the server, stopped the statement; resume",
}


class Passing(Exception):
    """Trouble that passes: the server went away, or could not do it just now."""

    def __init__(self, cause: psycopg.Error, *, sent: bool, since: float | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.sent = sent  # a statement was sent, and nobody said how it went
        self.since = time.monotonic() if since is None else since  # when the server was missed


def passing(error: psycopg.Error, *, broken: bool) -> Passing | None:
    """The error of a statement as trouble that passes; None if it stays."""
    if isinstance(error, UNDONE):
        return Passing(error, sent=False)
    return Passing(error, sent=True) if broken or isinstance(error, GONE) else None


def translate(error: psycopg.Error, where: str) -> DurabilityError:
    """The error of a statement that stays however often it is sent."""
    message = first_line(error)
    if isinstance(error, DAMAGED):
        return CheckpointCorrupt(f"{where} is damaged ({message}); restore it from a backup")
    advice = next((text for kind, text in ADVICE.items() if isinstance(error, kind)), None)
    return StoreUnavailable(f"{where} cannot be used: {message}" + (f"; {advice}" if advice else ""))


def is_refused_for_good(error: psycopg.Error) -> bool:
    """Whether a server has refused us in words that leave no hope. Of several servers, another one may let us in."""
    message = str(error)
    return "Multiple connection attempts" not in message and any(phrase in message for phrase in REFUSED)


def translate_refusal(error: psycopg.Error, where: str) -> StoreUnavailable:
    """The error of a server that is there and does not let us in."""
    message = first_line(error)
    advice = next(
        (advice for phrase, advice in REFUSED.items() if phrase in message),
        "check the database, user and password of the dsn, and what the server allows (pg_hba.conf)",
    )
    return StoreUnavailable(f"{where} cannot be used: {message}; {advice}")


def away(cause: Exception, where: str, seconds: float, *, in_doubt: bool) -> StoreUnavailable:
    """The error of a server that has been away for too long. In doubt: something was sent, and not answered."""
    unknown = "; whether the last write was stored is not known, a resumed run finds out" if in_doubt else ""
    return StoreUnavailable(
        f"{where} could not be reached for {seconds:.1f} s: {first_line(cause)}; "
        f"start the server again, or check the network and the dsn{unknown}"
    )


def first_line(error: Exception) -> str:
    """What the server said, without the parts that repeat the statement and its values."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
