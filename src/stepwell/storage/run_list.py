"""The list of runs, as users see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwell.model.event import WorkflowRunState
from stepwell.storage.damage import damage_error
from stepwell.storage.port import RunEntry

_STATES = frozenset(WorkflowRunState)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What can be known of a run without reading its state: where it is now. The times are UTC, ISO 8601."""

    run_id: str
    workflow_name: str
    status: WorkflowRunState
    checkpoint_id: str  # of its newest checkpoint
    number: int  # of its newest commit
    iteration_count: int
    began_at: str
    changed_at: str
    tags: Mapping[str, str]
    _entry: RunEntry = field(repr=False, compare=False)  # where the next page begins


def run_info(entry: RunEntry) -> RunInfo:
    if entry.status not in _STATES:
        raise damage_error(f"the list of runs, at run {entry.run_id!r},", f"{entry.status!r} is no status")
    return RunInfo(
        entry.run_id,
        entry.workflow,
        WorkflowRunState(entry.status),
        entry.checkpoint_id,
        entry.number,
        entry.iteration,
        entry.began,
        entry.at,
        dict(entry.metadata.tags),
        entry,
    )
