"""The words people read for the status of a run: the only place that maps statuses to words.

Programs see `WorkflowRunState`, which also tells a run that has asked something from one that has
not. People read one of six words: running, waiting, sleeping, completed, failed, cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from stepwell.model.event import WorkflowRunState

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

`sleeping` is missing: it is a running status with a time to wake up.
"""

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
