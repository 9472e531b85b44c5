"""An entry in the list of runs, as users see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from stepwell.model.event import CheckpointInfo, WorkflowRunState
from stepwell.model.status_words import STATUSES_BY_STANDING, Standing, standing_of
from stepwell.storage import clock
from stepwell.storage.checked_reads import damage_error, read_moment
from stepwell.storage.filters import RunFilter
from stepwell.storage.lease import Lease
from stepwell.storage.port import Store
from stepwell.storage.stored_values import RunEntry

_STATES = frozenset(WorkflowRunState)
_RESTING = (WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS)
_PAGE = 200  # runs that are read at a time


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Where a run is now, known without reading its state. Times are UTC, ISO 8601."""

    run_id: str
    workflow_name: str
    status: WorkflowRunState  # of its newest commit
    checkpoint_id: str  # of its newest checkpoint
    number: int  # of its newest commit
    iteration_count: int
    began_at: str
    changed_at: str
    tags: Mapping[str, str]
    priority: int  # of several ready runs, those with the highest are driven first
    parent: CheckpointInfo | None  # the checkpoint it was forked from, which may be deleted by now
    # How it stands at the moment of the call: running, queued, stalled, waiting, sleeping, completed,
    # failed or cancelled.
    standing: Standing
    owner: str | None  # the process that drives it or, if it is stalled, that drove it last
    # running: when the lease of its driver ends, unless renewed; sleeping: when it wakes up; waiting: when
    # a deadline is reached or a timer is due, if there is one
    until: str | None
    # queued: from when on it could be driven, if that is known; stalled: its newest commit
    since: str | None
    _entry: RunEntry = field(repr=False, compare=False)  # from which the next page continues

    @property
    def has_driver(self) -> bool:
        """Whether a driver is recorded, dead or alive: a stopped run that has one is being resumed."""
        return self._entry.lease is not None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data; `status` is how the run stands."""
        return {
            "run_id": self.run_id,
            "workflow": self.workflow_name,
            "status": self.standing,
            "owner": self.owner,
            "until": self.until,
            "since": self.since,
            "number": self.number,
            "checkpoint_id": self.checkpoint_id,
            "iteration": self.iteration_count,
            "began_at": self.began_at,
            "changed_at": self.changed_at,
            "tags": dict(self.tags),
            "priority": self.priority,
            "parent_run": None if self.parent is None else self.parent.run_id,
            "parent_number": None if self.parent is None else self.parent.number,
        }


async def find_standing(
    store: Store, run_filter: RunFilter, standing: Standing, *, past: RunEntry | None, limit: int | None
) -> list[RunInfo]:
    """Return the runs that match a filter and stand so, latest start first: at most `limit`, continuing after `past`.

    Looks at every run that may stand so, by what the store knows: only a lease itself says whether it is over.
    """
    runs: list[RunInfo] = []
    for narrowed in _narrow(run_filter, standing):
        matching: list[RunInfo] = []
        after = past
        while limit is None or len(matching) < limit:
            page = await store.runs(narrowed, past=after, limit=_PAGE)
            matching += [run for run in map(run_info, page) if run.standing == standing]
            if len(page) < _PAGE:
                break
            after = page[-1]
        runs += matching
    runs.sort(key=lambda run: (run.began_at, run.run_id), reverse=True)
    return runs[:limit]


def _narrow(run_filter: RunFilter, standing: Standing) -> list[RunFilter]:
    """Return filters that no two runs share, and that together find every run that stands so."""
    now = clock.stamp()
    if standing == "queued":  # few of the runs in any of its statuses
        return [replace(run_filter, due_by=now)]
    if standing in ("running", "stalled"):
        run_filter = replace(run_filter, owned=True)
    elif standing == "sleeping":
        run_filter = replace(run_filter, asleep_at=now)
    statuses = [status for status in STATUSES_BY_STANDING[standing] if run_filter.status in (None, status)]
    filters = [replace(run_filter, status=status.value) for status in statuses]
    if standing == "running":  # few of the runs that rest have something to do, which is why they are driven
        filters = [replace(each, due_by=now) if each.status in _RESTING else each for each in filters]
    return filters


def run_info(entry: RunEntry) -> RunInfo:
    """Return an entry as users see it. Raises CheckpointCorrupt if its status or its wake-up time is damaged."""
    what = f"the entry of run {entry.run_id!r} in the list of runs"
    if entry.status not in _STATES:
        raise damage_error(what, f"{entry.status!r} is not a status")
    if entry.wake is not None:
        read_moment(entry.wake, what)
    lease, status = entry.lease, WorkflowRunState(entry.status)
    is_over = lease is not None and lease.is_over()
    now = clock.stamp()
    standing = standing_of(
        status,
        is_driven=lease is not None and not is_over,
        was_left=is_over,
        is_signalled=entry.signalled,
        wake=entry.wake,
        now=now,
    )
    owner = until = since = None
    if lease is not None and standing in ("running", "stalled"):
        owner = str(lease.owner)
        until = _end_of(lease) if standing == "running" else None
        # When the process died, nobody knows; that nothing was committed since is certain.
        since = entry.at if standing == "stalled" else None
    elif standing in ("sleeping", "waiting"):
        until = entry.wake
    elif standing == "queued" and entry.wake is not None and entry.wake <= now:
        since = entry.wake
    return RunInfo(
        run_id=entry.run_id,
        workflow_name=entry.workflow,
        status=status,
        checkpoint_id=entry.checkpoint_id,
        number=entry.number,
        iteration_count=entry.iteration,
        began_at=entry.began,
        changed_at=entry.at,
        tags=dict(entry.metadata.tags),
        priority=entry.metadata.priority,
        parent=entry.metadata.parent,
        standing=standing,
        owner=owner,
        until=until,
        since=since,
        _entry=entry,
    )


def _end_of(lease: Lease) -> str:
    """Return when a lease ends or ended, by the clock of its owner."""
    return datetime.fromtimestamp(lease.until, UTC).isoformat()
