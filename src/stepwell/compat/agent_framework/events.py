"""Stepwell's events as events of Agent Framework."""

from __future__ import annotations

import logging
from typing import Any

from agent_framework import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource

from stepwell.compat.agent_framework.nodes import CANCELLED, LIVE_EVENT, RunServices
from stepwell.model.event import WorkflowEvent as NativeEvent

_LOG = logging.getLogger("stepwell")
_FRAMEWORK = WorkflowEventSource.FRAMEWORK


def translate(event: NativeEvent, services: RunServices, first_iteration: int) -> WorkflowEvent[Any] | None:
    """Return the framework's event for one of ours; None if it has none, or shows something from before this run.

    `first_iteration` is how many supersteps the run had taken before: the framework counts those of a call.
    """
    if event.replayed or event.path:
        return None
    id = event.executor_id or ""
    match event.type:
        case "superstep_started" | "superstep_completed":
            return WorkflowEvent(event.type, iteration=(event.iteration or 0) - first_iteration)
        case "executor_invoked" if event.data == CANCELLED:
            return None
        case "executor_invoked" | "executor_bypassed":
            return WorkflowEvent(event.type, executor_id=id, data=event.data, origin=_FRAMEWORK)
        case "executor_completed":
            completed = services.completed.pop(event.delivery or "", None)
            return completed or WorkflowEvent("executor_completed", executor_id=id, data=event.data, origin=_FRAMEWORK)
        case "executor_failed":
            return services.failed.pop(id, None) or WorkflowEvent.executor_failed(id, _details(event))
        case "output" | "intermediate":
            return WorkflowEvent(event.type, executor_id=id, data=event.data, origin=_FRAMEWORK)
        case "request_info":
            response_type = services.response_types.get(event.request_id, object)
            return WorkflowEvent.request_info(event.request_id, event.source_executor_id, event.data, response_type)
        case "warning":
            _LOG.warning("%s", event.data)
        case _ if event.type == LIVE_EVENT:
            emitted: WorkflowEvent[Any] = event.data
            return emitted
    return None


def _details(event: NativeEvent) -> WorkflowErrorDetails:
    details = event.details
    assert details is not None
    return WorkflowErrorDetails(details.error_type, details.message, details.traceback)
