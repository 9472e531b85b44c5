"""Durable events of a run as events of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from stepwell.admin.calls import calls_of
from stepwell.admin.event_documents import data_of
from stepwell.admin.values import main_part, to_data
from stepwell.model.event import WorkflowEvent


class Translator:
    """Turns the durable events of a run into those of the protocol, always the same ones.

    A step is what one handler call did: its tool calls, its outputs as messages. It is known when it
    is committed.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._commit: int | None = None
        self._place = 0  # of the last event among those of its commit
        self._outputs: list[WorkflowEvent] = []  # of the handler call whose completion comes next

    def translate(self, event: WorkflowEvent) -> Iterator[tuple[int, BaseEvent]]:
        """Yield the events for one of ours, each with its place among those of its commit."""
        if event.commit != self._commit:
            self._commit, self._place, self._outputs = event.commit, 0, []
        for translated in self._translate(event):
            self._place += 1
            yield self._place, translated

    def _translate(self, event: WorkflowEvent) -> Iterator[BaseEvent]:
        match event.type:
            case "output" | "intermediate":
                self._outputs.append(event)
            case "executor_completed":
                name, executor = f"{self._run_id}/{event.delivery}", event.executor_id or ""
                yield StepStartedEvent(step_name=executor)
                yield from _translate_tools(name, event)
                for place, output in enumerate(self._outputs):
                    yield from _translate_text(f"{name}/{place}", output)
                yield StepFinishedEvent(step_name=executor)
                self._outputs = []
            case "request_answered":
                yield CustomEvent(name="stepwell.request_answered", value={"id": event.request_id, "by": event.by})
            case "restored" | "migrated" | "warning":
                yield CustomEvent(name=f"stepwell.{event.type}", value=to_data(data_of(event)))


def _translate_tools(name: str, event: WorkflowEvent) -> Iterator[BaseEvent]:
    for place, call in enumerate(call for call in calls_of(event.steps) if call.kind == "tool"):
        id = f"{name}/tool/{place}"
        yield ToolCallStartEvent(tool_call_id=id, tool_call_name=call.name)
        if call.summary.arguments:
            yield ToolCallArgsEvent(tool_call_id=id, delta=call.summary.arguments)
        yield ToolCallEndEvent(tool_call_id=id)
        content = call.summary.error or call.summary.result
        yield ToolCallResultEvent(message_id=f"{id}/result", tool_call_id=id, content=content, role="tool")


def _translate_text(message_id: str, event: WorkflowEvent) -> Iterator[BaseEvent]:
    data = to_data(main_part(data_of(event)))
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    yield TextMessageStartEvent(message_id=message_id, role="assistant", name=event.executor_id)
    if text:
        yield TextMessageContentEvent(message_id=message_id, delta=text)
    yield TextMessageEndEvent(message_id=message_id)
