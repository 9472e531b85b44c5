"""The words people read for how a run stands: the only place that maps statuses to words.

Programs see `WorkflowRunState`, which also tells a run that has asked something from one that has
not. People read one of eight words: running, queued, stalled, waiting, sleeping, completed, failed
or cancelled. The last commit of a run says `running` for the first three: which of them it is
depends on who drives it now, and a storage knows that (`RunInfo.standing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal, get_args

from stepwell.model.event import WorkflowRunState

Standing = Literal["running", "queued", "stalled", "waiting", "sleeping", "completed", "failed", "cancelled"]
"""How a run stands: `running` if a process drives it; `queued` if it has something to do and nobody drives it;
`stalled` if its driver died or left in the middle; `waiting` for responses; `sleeping` until a time; or stopped."""

STANDINGS: tuple[str, ...] = get_args(Standing)
SLEEPING = "sleeping"

STATUSES_BY_WORD: Mapping[str, tuple[WorkflowRunState, ...]] = MappingProxyType(
    {
        "running": (
            WorkflowRunState.IN_PROGRESS,
            WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS,
            WorkflowRunState.STARTED,
        ),
        "waiting": (WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,),
        "completed": (WorkflowRunState.IDLE,),
        "failed": (WorkflowRunState.FAILED,),
        "cancelled": (WorkflowRunState.CANCELLED,),
    }
)
"""The statuses behind each word.

Three words are missing, because a status alone does not tell them from `running`: `queued`,
`stalled` and `sleeping`.
"""

IN_PROGRESS = STATUSES_BY_WORD["running"]
# A signal gives a run something to do, even if it sleeps; one that failed or was cancelled is resumed by
# a person or not at all.
SIGNALLED = (WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, *IN_PROGRESS)

STATUSES_BY_STANDING: Mapping[str, tuple[WorkflowRunState, ...]] = MappingProxyType(
    {
        **STATUSES_BY_WORD,
        "running": tuple(WorkflowRunState),  # a run that rests, too, while its driver continues it
        "queued": SIGNALLED,
        "stalled": IN_PROGRESS,
        "sleeping": IN_PROGRESS,
    }
)
"""The statuses that a run which stands so may have."""

_WORDS = {status.value: word for word, statuses in STATUSES_BY_WORD.items() for status in statuses}


def status_word(status: WorkflowRunState | str, *, wake: datetime | str | None = None) -> str:
    """Return the word people read for a status: running, waiting, sleeping, completed, failed or cancelled.

    `wake` is the time before which the run has nothing to do, such as `wakes_at` of a result; None if
    there is none.

    A string that is not a status is returned as it is: it may come from a damaged list.
    """
    word = _WORDS.get(str(status), str(status))
    # Parking a run changes no status: only the time to wake up tells a sleeping run from a running
    # one.
    return SLEEPING if wake is not None and word == "running" else word


def standing_of(
    status: WorkflowRunState | str,
    *,
    is_driven: bool,
    was_left: bool,
    is_signalled: bool,
    wake: str | None,
    now: str,
) -> Standing:
    """Return how a run stands.

    `is_driven`: a process holds its lease. `was_left`: one is recorded as its driver, and no longer
    drives it. `is_signalled`: it has pending signals. `wake`: from when on it can be driven.
    """
    if status in IN_PROGRESS:
        if is_driven:
            return "running"
        if wake is not None and wake > now:
            return "queued" if is_signalled else "sleeping"
        return "stalled" if was_left else "queued"
    if status in SIGNALLED and (is_signalled or (wake is not None and wake <= now)):
        return "running" if is_driven else "queued"
    if is_driven and status not in SIGNALLED:  # somebody resumes it, and nothing is committed yet
        return "running"
    match status:
        case WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            return "waiting"
        case WorkflowRunState.IDLE:
            return "completed"
        case WorkflowRunState.FAILED:
            return "failed"
        case _:
            return "cancelled"
