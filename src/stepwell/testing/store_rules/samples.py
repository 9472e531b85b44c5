"""Sample records, strings and requests for the store rules, and helpers to compare what is read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from stepwell.storage.filters import RunFilter
from stepwell.storage.ids import checkpoint_id
from stepwell.storage.port import Store
from stepwell.storage.stored_values import Entry, Record, RequestEntry, RunEntry, RunMetadata
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
]
ODD_IDS += [
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


def run_metadata(caller: str | None = None, **tags: str) -> RunMetadata:
    return RunMetadata(tags, caller)


def run_entry(newest: Record, *, began: str | None = None, metadata: RunMetadata | None = None) -> RunEntry:
    """Return how a run with this newest record is listed."""
    entry = newest.entry
    metadata = RunMetadata() if metadata is None else metadata
    return RunEntry(
        entry.run_id,
        entry.workflow,
        status=entry.status,
        number=entry.number,
        checkpoint_id=entry.checkpoint_id,
        iteration=entry.iteration,
        at=entry.at,
        began=began or entry.at,
        metadata=metadata,
    )


# Helpers that reduce what was read to what an assert compares.


async def run_ids(store: Store, **criteria: Any) -> list[str]:
    """Return the ids of the runs that a filter with these criteria finds."""
    return [run.run_id for run in await store.runs(RunFilter(**criteria))]


async def head(store: Store, run_id: str) -> Record | None:
    """Return the newest record of a run."""
    records = await store.read(run_id)
    return records[-1] if records else None


async def logged(store: Store, run_id: str, place: int) -> dict[str, bytes]:
    """Return what the superstep log of a run has at one place, by key."""
    return {row.key: row.body for row in (await store.open(run_id)).log if row.place == place}


async def signals_of(store: Store, run_id: str) -> list[tuple[str, bytes]]:
    return [(signal.key, signal.body) for signal in await store.pending_signals(run_id)]


async def fill(store: Store, run_id: str, count: int, *, workflow: str = "w") -> None:
    """Append so many sample records to a run."""
    for number in range(count):
        await store.append(record(run_id, number, workflow=workflow))


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


class refused:  # noqa: N801 - reads as a word: `with refused(CommitConflict):`
    """Expects an error of this kind whose message matches `saying`.

    `pytest.raises`, without pytest.
    """

    def __init__(self, kind: type[Exception], saying: str = "") -> None:
        self._kind, self._saying = kind, saying
        self.error: Any = None  # what was raised

    def __enter__(self) -> refused:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        assert error is not None, f"no {self._kind.__name__} was raised"
        if not isinstance(error, self._kind):
            return False
        self.error = error
        assert re.search(self._saying, str(error)), f"the message does not match {self._saying!r}: {error}"
        return True


@contextmanager
def after(*, minutes: float) -> Iterator[None]:
    """Advance the clock inside the block."""
    with FakeClock() as later:
        later(minutes=minutes)
        yield
