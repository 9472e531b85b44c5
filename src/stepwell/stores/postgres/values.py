"""Values as they are sent and stored.

PostgreSQL cannot store a NUL in a text. In ids and keys it becomes DLE ("data link escape", 0x10)
and "0"; a DLE becomes DLE and "1".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.model.event import CheckpointInfo
from stepwell.storage import clock
from stepwell.storage.checked_reads import damage_error
from stepwell.storage.conflicts import check_chain
from stepwell.storage.ids import run_hash, says_its_location
from stepwell.storage.lease import Lease, Owner
from stepwell.storage.outbox import Attempt, OutboxRow
from stepwell.storage.stored_values import (
    NO_LOG_EFFECTS,
    CommitEffects,
    Entry,
    LogEffects,
    LogRow,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    RunMetadata,
    SignalRow,
)

Row = tuple[Any, ...]
Encoded = Sequence[bytes | None]
to_json = msgspec.json.Encoder().encode


def escape(text: str) -> str:
    """Return a string as it is stored, different for different strings."""
    return text.replace("\x10", "\x101").replace("\0", "\x100") if "\0" in text or "\x10" in text else text


def unescape(text: str) -> str:
    """Return the original of a stored string."""
    return text.replace("\x100", "\0").replace("\x101", "\x10") if "\x10" in text else text


def encode(*values: object) -> list[bytes | None]:
    """Return values as the server reads them: bytes as they are, strings escaped, lists and objects as JSON."""
    return [_encode(value) for value in values]


def _encode(value: object) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return escape(value).encode()
        case bool():
            return b"t" if value else b"f"
        case int() | float():
            return repr(value).encode()
        case _:
            return to_json(value)


def encode_append(record: Record, effects: CommitEffects) -> list[bytes | None]:
    """Return the arguments of the function `append`. Written out, because every commit needs it."""
    entry = record.entry
    has_more = (
        effects.consumed
        or effects.asked
        or effects.closed
        or effects.metadata
        or effects.drop_below
        or effects.reduced
        or effects.expired
    )
    return [
        b"f",
        escape(entry.run_id).encode(),
        b"%d" % run_hash(entry.run_id),
        b"%d" % entry.number,
        escape(entry.checkpoint_id).encode(),
        b"f" if says_its_location(entry) else b"t",
        escape(entry.workflow).encode(),
        escape(entry.status).encode(),
        b"%d" % entry.iteration,
        escape(entry.at).encode(),
        b"t" if entry.is_snapshot else b"f",
        b"t" if entry.outputs else b"f",
        b"t" if entry.latest_only else b"f",
        b"t" if entry.decisions else b"f",
        record.body,
        None if effects.drop_log_through is None else b"%d" % effects.drop_log_through,
        None if effects.wake is None else effects.wake.encode(),
        None if effects.fence is None else b"%d" % effects.fence,
        b"t" if effects.release else b"f",
        to_json(plain_effects(effects)) if has_more else None,
    ]


def plain_effects(effects: CommitEffects) -> dict[str, Any]:
    """Return the rarer effects of a record as the functions read them, without those that are empty."""
    parts = {
        "consumed": list({escape(key): None for key in effects.consumed}),
        "closed": [escape(request_id) for request_id in effects.closed],
        "asked": list({request.request_id: _plain(request) for request in effects.asked}.values()),
        "metadata": None if effects.metadata is None else _plain_metadata(effects.metadata),
        "reduced": [plain_record(record) for record in effects.reduced],
        "drop_below": effects.drop_below,
        "expired": [escape(request_id) for request_id in effects.expired],
    }
    return {name: value for name, value in parts.items() if value not in (None, [])}


def plain_log_effects(effects: LogEffects) -> dict[str, Any]:
    """Return the effects of a log entry as the functions read them."""
    if effects == NO_LOG_EFFECTS:
        return {}
    return plain_effects(
        CommitEffects(consumed=effects.consumed, asked=effects.asked, closed=effects.closed, expired=effects.expired)
    )


def plain_record(record: Record) -> dict[str, Any]:
    """Return a record as the functions read it."""
    return {**_plain(record.entry), "foreign_id": not says_its_location(record.entry), "body": record.body.decode()}


def plain_attempt(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as the function `settle` reads it."""
    error = None if attempt.error is None else escape(attempt.error)
    return {"attempts": attempt.attempts, "due": attempt.due, "error": error}


def _plain(value: Entry | RequestEntry) -> dict[str, Any]:
    return {
        name: escape(field) if isinstance(field, str) else field
        for name, field in msgspec.structs.asdict(value).items()
    }


def _plain_metadata(metadata: RunMetadata) -> dict[str, Any]:
    tags = {escape(name): escape(value) for name, value in metadata.tags.items()}
    caller = None if metadata.caller is None else escape(metadata.caller)
    plain: dict[str, Any] = {"tags": tags, "caller": caller, "priority": metadata.priority}
    if (parent := metadata.parent) is not None:
        plain |= {"parent_run": escape(parent.run_id), "parent_id": escape(parent.checkpoint_id)}
        plain["parent_number"] = parent.number
    return plain


# ---------------------------------------------------------------------- rows


def unescape_row(row: Row) -> Row:
    return tuple(map(_unescape_any, row))


def read_message(row: Row) -> OutboxRow:
    request = row[7]
    try:
        read = None if request is None else RequestEntry(**{name: _unescape_any(v) for name, v in request.items()})
    except (AttributeError, TypeError) as error:
        raise damage_error(f"a message of run {row[1]!r} to webhook {row[0]!r}", error) from error
    return OutboxRow(*(*unescape_row(row[:7]), read, *unescape_row(row[8:])))


def _unescape_any(value: Any) -> Any:
    return unescape(value) if isinstance(value, str) else value


def read_record(row: Row) -> Record:
    return Record(Entry(*unescape_row(row[:-1])), row[-1])


def read_run(row: Row) -> RunEntry:
    *columns, wake, signalled, tags, caller, priority, parent_run, parent_id, parent_number, owner, left = row
    try:
        tags = {unescape(name): unescape(value) for name, value in tags.items()}
        parent = None
        if parent_run is not None:
            parent = CheckpointInfo(unescape(parent_run), unescape(parent_id), parent_number)
        metadata = RunMetadata(tags, caller and unescape(caller), priority, parent)
    except (AttributeError, TypeError) as error:
        raise damage_error(f"the entry of run {row[0]!r} in the list of runs", error) from error
    lease = None if owner is None else read_lease(row[0], owner, None if left is None else left - clock_ahead())
    return RunEntry(*(*unescape_row(tuple(columns)), metadata, wake, signalled, lease))


def read_lease(run_id: str, owner: Any, left: float | None) -> Lease:
    """Return a lease that ends in `left` seconds, with its end by the clock of the owner; None: its owner ended it."""
    try:
        holder = msgspec.convert(owner, Owner)
        return Lease(holder, 0.0 if left is None else holder.clock() + left)
    except (TypeError, ValueError) as error:
        raise damage_error(f"the lease of run {run_id!r}", error) from error


def clock_ahead() -> float:
    """Return by how many seconds a test has advanced our clock; without a test, about zero.

    Leases are timed by the clock of the database, the same for all machines. This is added to it.
    """
    return clock.seconds() - time.time()


def read_opened(run_id: str, parts: Sequence[Row]) -> OpenedRun:
    """Return what the functions `read` and `acquire` have read of a run.

    Raises CheckpointCorrupt if a record is missing.
    """
    records, log, signals, fence, has_outputs, takeovers = [], [], [], None, True, 0
    for kind, number, name, workflow, *rest, body in parts:
        match kind:
            case "record":
                records.append(Record(Entry(run_id, number, *unescape_row((name, workflow, *rest))), body))
            case "log":
                log.append(LogRow(number, unescape(name), body))
            case "signal":
                signals.append(SignalRow(unescape(name), body))
            case _:
                fence, takeovers, has_outputs = number, rest[1], rest[4] is not False
    if records:
        check_chain(run_id, records[-1].entry.number, records)
    return OpenedRun(records, log, signals, fence, has_outputs, takeovers)
