"""Conversion of records to rows of the SQLite file and back."""

from __future__ import annotations

from typing import Any

from stepwell.errors import CommitConflict
from stepwell.storage.port import Entry, Record


def row_of(record: Record) -> tuple[str | int, ...]:
    """Return the values of a record in the order of `queries.ENTRY`, and the body."""
    e = record.entry
    fields = (e.run_id, e.number, e.checkpoint_id, e.workflow, e.status, e.iteration, e.at)
    return (*fields, e.is_snapshot, e.outputs, e.fleeting, record.body.decode())


def entry_in(row: tuple[Any, ...]) -> Entry:
    """Return the entry in a row of `queries.ENTRY`.

    SQLite has no booleans: the last columns are integers.
    """
    return Entry(*row[:7], *map(bool, row[7:]))


def refuse_another_workflow(workflow: str, entry: Entry) -> None:
    """Raise CommitConflict unless the entry has the workflow of its run."""
    if workflow != entry.workflow:
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {workflow!r} and cannot continue as a run of "
            f"{entry.workflow!r}; give the new run another id"
        )
