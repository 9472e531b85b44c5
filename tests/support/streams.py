"""Reading the events of a run."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import TypeVar

from stepwell import WorkflowEvent
from stepwell.workflows import WorkflowErrorDetails

T = TypeVar("T")


async def collect(stream: AsyncIterable[T], events: list[T]) -> None:
    """Append each event to the list; if the stream fails, those before the failure are there."""
    async for event in stream:
        events.append(event)


def details_of(event: WorkflowEvent) -> WorkflowErrorDetails:
    """The error that the event is about; it must have one."""
    assert event.details is not None, event
    return event.details
