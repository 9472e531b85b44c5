"""An entry in the list of runs, as users see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwell.model.event import WorkflowRunState
from stepwell.storage.checked_reads import damage_error
from stepwell.storage.stored_values import RunEntry

_STATES = frozenset(WorkflowRunState)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Where a run is now, known without reading its state. Times are UTC, ISO 8601."""

    run_id: str
    workflow_name: str
    status: WorkflowRunState
    checkpoint_id: str  # of its newest checkpoint
    number: int  # of its newest commit
    iteration_count: int
    began_at: str
    changed_at: str
    tags: Mapping[str, str]
    _entry: RunEntry = field(repr=False, compare=False)  # from which the next page continues


def run_info(entry: RunEntry) -> RunInfo:
    """Return an entry as users see it. Raises CheckpointCorrupt if its status is unknown."""
    if entry.status not in _STATES:
        raise damage_error(
            f"the entry of run {entry.run_id!r} in the list of runs", f"{entry.status!r} is not a status"
        )
    return RunInfo(
        run_id=entry.run_id,
        workflow_name=entry.workflow,
        status=WorkflowRunState(entry.status),
        checkpoint_id=entry.checkpoint_id,
        number=entry.number,
        iteration_count=entry.iteration,
        began_at=entry.began,
        changed_at=entry.at,
        tags=dict(entry.metadata.tags),
        _entry=entry,
    )
