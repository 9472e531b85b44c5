"""Records as rows of a SQLite file, and the other way round."""

from __future__ import annotations

from typing import Any

from stepwell.errors import CommitConflict
from stepwell.storage.port import Entry, Record


def row_of(record: Record) -> tuple[str | int, ...]:
    e = record.entry
    fields = (e.run_id, e.number, e.checkpoint_id, e.workflow, e.status, e.iteration, e.at)
    return (*fields, e.is_snapshot, e.outputs, e.fleeting, record.body.decode())


def entry_in(row: tuple[Any, ...]) -> Entry:
    return Entry(*row[:7], *map(bool, row[7:]))


def refuse_another_workflow(workflow: str, entry: Entry) -> None:
    """Raises CommitConflict unless the entry is of the workflow that its run is of."""
    if workflow != entry.workflow:
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {workflow!r} and cannot go on as one of "
            f"{entry.workflow!r}; give the new run another id"
        )
