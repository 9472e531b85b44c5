"""What the tests of handles share."""

from __future__ import annotations

from typing import Any

from stepwell import (
    WorkflowRunState,
)
from stepwell.workflows import RunHandle

IDLE, WAITING = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


FAILED, IN_PROGRESS = WorkflowRunState.FAILED, WorkflowRunState.IN_PROGRESS


async def everything(handle: RunHandle, **options: Any) -> list[Any]:
    return [event async for event in handle.events(**options)]
