"""Sample records, strings and requests for the store rules, and helpers to make and compare what is stored."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from stepwell.errors import CommitConflict
from stepwell.model.event import CheckpointInfo
from stepwell.storage.filters import ALL_RUNS, RunFilter
from stepwell.storage.ids import checkpoint_id
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    CommitEffects,
    Entry,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    RunMetadata,
)
from stepwell.testing.clock import FakeClock

# Ids that break naive stores: file names and paths, names that some file systems treat as equal,
# NULs, and more characters than a file name may have.
ODD_IDS = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "NUL",
    ".new",
    ".lock",
    "memory",
    "-",
    "a~b",
    "Run",
    "run",
    "RUN",
    "é",
    "e\u0301",
    "日本語",
    "x" * 300,
    "x" * 299 + "y",
    "a b",
    "a_b",
    "%2e%2e",
    "\n",
    "a\0b",
]


def text(content: object) -> bytes:
    """Return a body with this content: like every body, a JSON object without blanks."""
    return json.dumps(content if isinstance(content, dict) else {"said": content}, separators=(",", ":")).encode()


def record(run_id: str, number: int, *, workflow: str = "w", body: object = None, **changes: Any) -> Record:
    """Return a record that differs from those of all other runs and numbers.

    `changes` are fields of its entry.
    """
    entry = Entry(
        run_id=run_id,
        number=number,
        checkpoint_id=id_of(run_id, number),
        workflow=workflow,
        status="running",
        iteration=number,
        at="2026-01-01T00:00:00Z",
        is_snapshot=True,
        outputs=False,
    )
    return Record(replace(entry, **changes), text({"n": number} if body is None else body))


def id_of(run_id: str, number: int) -> str:
    """Return the id of a sample record, which says its place as the ids of real checkpoints do."""
    return checkpoint_id(run_id, 0, number)


def question(
    run_id: str, request_id: str, *, at: str = "2026-01-01T00:00:00+00:00", workflow: str = "w"
) -> RequestEntry:
    """Return an open request; the fields that do not matter are the same for all."""
    return RequestEntry(
        run_id=run_id,
        request_id=request_id,
        workflow=workflow,
        executor="approver",
        request_type="Invoice",
        response_type="bool",
        schema='{"type":"boolean"}',
        at=at,
    )


def on(day: int) -> str:
    """Return a day of January 2026 as a stored time."""
    return f"2026-01-{day:02}T00:00:00+00:00"


def run_metadata(
    caller: str | None = None, *, priority: int = 0, parent: tuple[str, int] | None = None, **tags: str
) -> RunMetadata:
    """Return the metadata of a run; `parent` is the run and the number that it was forked from."""
    origin = None if parent is None else CheckpointInfo(parent[0], id_of(*parent), parent[1])
    return RunMetadata(tags, caller, priority, origin)


def run_entry(
    newest: Record,
    *,
    began: str | None = None,
    metadata: RunMetadata | None = None,
    wake: str | None = None,
    signalled: bool = False,
) -> RunEntry:
    """Return how a run with this newest record is listed, if nobody has a lease."""
    entry = newest.entry
    return RunEntry(
        entry.run_id,
        entry.workflow,
        status=entry.status,
        number=entry.number,
        checkpoint_id=entry.checkpoint_id,
        iteration=entry.iteration,
        at=entry.at,
        began=began or entry.at,
        metadata=metadata or RunMetadata(),
        wake=wake,
        signalled=signalled,
    )


# What rules do again and again.


async def append_all(store: Store, records: Iterable[Record], effects: CommitEffects = NO_EFFECTS) -> None:
    """Append records, each with these effects."""
    for each in records:
        await store.append(each, effects)


async def fill(store: Store, run_id: str, count: int, **changes: Any) -> None:
    """Append so many sample records to a run, all with these changes."""
    await append_all(store, (record(run_id, number, **changes) for number in range(count)))


async def store_sample_run(store: Store, run_id: str, *, workflow: str = "w") -> dict[str, object]:
    """Store a run that has something of everything; return the `contents` of a store that has only this run.

    Two snapshots and a delta between them, tags, two open requests, a wake-up time, a consumed and a
    pending signal, and an entry in its superstep log.
    """
    records = [record(run_id, n, workflow=workflow, is_snapshot=n != 1, at=on(1 + n)) for n in range(3)]
    first, second = (question(run_id, request_id, workflow=workflow) for request_id in ("q", "q2"))
    await store.send(run_id, "used", text(0))
    await store.append(records[0], CommitEffects(asked=(first,), metadata=run_metadata(team="red")))
    await store.append(records[1], CommitEffects(consumed=("used",)))
    await store.append(records[2], CommitEffects(asked=(second,), wake=on(5)))
    await store.send(run_id, "k", text(1))
    await store.write_log(run_id, 2, "k", text(1))
    return expected_contents(
        records,
        metadata=run_metadata(team="red"),
        requests=[first, second],
        wake=on(5),
        log={(2, "k"): text(1)},
        signals=[("k", text(1))],
    )


async def acquire(store: Store, run_id: str, drive: str = "mine", *, seconds: float = 60) -> int:
    """Acquire a run for a drive of this very process: it is alive, so nobody takes its lease over early."""
    return await store.acquire(run_id, this_process(drive), seconds=seconds)


async def take_over(store: Store, run_id: str) -> int:
    """Acquire a run for another drive, after the lease of its driver has expired; return the fence."""
    with after(minutes=2):
        return await acquire(store, run_id, "other", seconds=600)


async def open_for(store: Store, run_id: str, drive: str = "mine", *, seconds: float = 60) -> tuple[OpenedRun, int]:
    """Open and acquire a run for a drive of this process; return it, and the fence."""
    opened = await store.open(run_id, owner=this_process(drive), seconds=seconds)
    assert opened.fence is not None
    return opened, opened.fence


async def release(store: Store, run_id: str, drive: str = "mine", *, stalls: bool = False) -> None:
    await store.release(run_id, this_process(drive), stalls=stalls)


async def renew(store: Store, fences: Mapping[str, int], *, seconds: float | None = 60) -> tuple[list[str], list[str]]:
    """Renew leases; return the runs that another process has acquired, and those with signals."""
    report = await asyncio.to_thread(store.renew, fences, seconds=seconds)
    return sorted(report.lost), sorted(report.signalled)


async def expect_error(kind: type[Exception], call: Awaitable[object], saying: str = "") -> Any:
    """Await a call that must raise an error of this kind, with a message that matches `saying`; return the error.

    `pytest.raises`, without pytest.
    """
    try:
        await call
    except kind as error:
        if re.search(saying, str(error)):
            return error
        raise AssertionError(f"the message does not match {saying!r}: {error}") from error
    raise AssertionError(f"no {kind.__name__} was raised")


async def check_refused_appends(store: Store, effects: CommitEffects) -> None:
    """Check that an append with these effects changes nothing, for every reason to refuse it.

    The store then has the sample run "r", and no run "new".
    """
    stored = await store_sample_run(store, "r")
    for reason, stale in {
        "its number is used": record("r", 2, status="done", at=on(9)),
        "it leaves a gap": record("r", 4, status="done", at=on(9)),
        "the run belongs to another workflow": record("r", 3, workflow="another"),
        "a new run starts with number 0": record("new", 1),
    }.items():
        await expect_error(CommitConflict, store.append(stale, effects))
        assert await contents(store, "r") == stored, f"the append was refused because {reason}"


@contextmanager
def after(*, minutes: float) -> Iterator[None]:
    """Advance the clock inside the block."""
    with FakeClock() as later:
        later(minutes=minutes)
        yield


# Helpers that reduce what was read to what an assert compares.


async def contents(store: Store, *run_ids: str) -> dict[str, object]:
    """Return all that a store lists, except for leases, and all that it has of these runs."""
    return {
        "runs": await listed(store),
        "checkpoints": await store.checkpoints(),
        "requests": await store.requests(),
        "records": {run_id: meanings(await store.history(run_id)) for run_id in run_ids},
        "logs": {run_id: await log_of(store, run_id) for run_id in run_ids},
        "signals": {run_id: await signals_of(store, run_id) for run_id in run_ids},
    }


def expected_contents(
    records: Sequence[Record],
    *,
    began: str | None = None,
    metadata: RunMetadata | None = None,
    requests: Sequence[RequestEntry] = (),
    wake: str | None = None,
    log: Mapping[tuple[int, str], bytes] | None = None,
    signals: Sequence[tuple[str, bytes]] = (),
) -> dict[str, object]:
    """Return the `contents` of a store that has only this run."""
    run = run_entry(
        records[-1],
        began=began or records[0].entry.at,
        metadata=metadata,
        wake=wake,
        signalled=bool(signals),
    )
    return {
        "runs": [run],
        "checkpoints": [each.entry for each in records],
        "requests": list(requests),
        "records": {run.run_id: meanings(records)},
        "logs": {run.run_id: log or {}},
        "signals": {run.run_id: list(signals)},
    }


async def run_ids(store: Store, **criteria: Any) -> list[str]:
    """Return the ids of the runs that a filter with these criteria finds."""
    return [run.run_id for run in await store.runs(RunFilter(**criteria))]


async def listed(store: Store) -> list[RunEntry]:
    """Return the list of all runs, without leases: the times at which they end are not exact."""
    return [replace(run, lease=None) for run in await store.runs(ALL_RUNS)]


async def wakes(store: Store) -> dict[str, str]:
    """Return from when on runs can be driven, by their ids; those without a time are left out."""
    return {run.run_id: run.wake for run in await store.runs(ALL_RUNS) if run.wake is not None}


async def head(store: Store, run_id: str) -> Record | None:
    """Return the newest record of a run."""
    records = await store.read(run_id)
    return records[-1] if records else None


async def log_of(store: Store, run_id: str) -> dict[tuple[int, str], bytes]:
    """Return the superstep log of a run, by place and key."""
    return {(row.place, row.key): row.body for row in (await store.open(run_id)).log}


async def logged(store: Store, run_id: str, place: int) -> dict[str, bytes]:
    """Return what the superstep log of a run has at one place, by key."""
    return {key: body for (at, key), body in (await log_of(store, run_id)).items() if at == place}


async def signals_of(store: Store, run_id: str) -> list[tuple[str, bytes]]:
    return [(signal.key, signal.body) for signal in await store.pending_signals(run_id)]


def meaning(record: Record | None) -> object:
    assert record is not None
    return record.entry, json.loads(record.body)


def meanings(records: Sequence[Record]) -> list[object]:
    return [meaning(record) for record in records]


def numbers(records: Sequence[Record]) -> list[int]:
    return [record.entry.number for record in records]


def places(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    return [(entry.run_id, entry.number) for entry in entries]


def names(requests: Sequence[RequestEntry]) -> list[tuple[str, str]]:
    return [(request.run_id, request.request_id) for request in requests]
