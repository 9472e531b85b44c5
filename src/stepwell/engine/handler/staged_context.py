"""What a handler does at once through its context: everything is staged here until the commit."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Generator, Mapping
from datetime import timedelta
from typing import Any

from stepwell.engine.events.watchers import WATCHERS, key_of
from stepwell.engine.handler.drive_scope import DriveScope
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.engine.handler.time_limits import TimeLimit
from stepwell.engine.intake.timers import check_timer, time_after_delay
from stepwell.graph.graph import OutputKind
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.event import RESERVED_EVENT_TYPES, WorkflowEvent, WorkflowRunState
from stepwell.model.message import Delivery, Output, Sent
from stepwell.model.state import StateView
from stepwell.storage import ids
from stepwell.storage.limits import check_tag


class Ready:
    """An awaitable for what has already happened.

    `send_message` and its like act when called; what they return is there for `await` to be allowed,
    and a forgotten `await` loses nothing.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    # The `yield` that is never reached makes this a generator, which `__await__` must return.
    def __await__(self) -> Generator[None, None, Any]:
        return self._value
        yield


DONE = Ready(None)


class StagedContext(InternalContext):
    """The part of a context that waits for nothing. `HandlerContext` sets its attributes."""

    __slots__ = (
        "_at",
        "_children",
        "_limit",
        "_open",
        "_outputs",
        "_returned",
        "_sent",
        "_state",
        "_tags",
        "_timers",
        "attempt",
        "delivery",
        "has_updates",
        "scope",
    )

    scope: DriveScope
    delivery: Delivery
    attempt: int
    has_updates: bool
    _state: StateView
    _at: Checkpoint
    _limit: TimeLimit | None
    _children: dict[str, Child | None]
    _sent: list[Sent]
    _outputs: list[Output]
    _tags: Mapping[str, str | None]
    _timers: Mapping[str, str | None]
    _open: bool
    _returned: bool

    @property
    def _internal(self) -> InternalContext:
        return self

    @property
    def run_id(self) -> str:
        return self.scope.run_id

    @property
    def root_run_id(self) -> str:
        return self.scope.options.root or self.scope.run_id

    @property
    def executor_id(self) -> str:
        return self.delivery.executor

    @property
    def idempotency_key(self) -> str:
        return ids.idempotency_key(self.scope.run_id, self.scope.epoch, self.delivery.id)

    @property
    def source_executor_ids(self) -> list[str]:
        return list(self.delivery.sources)

    def get_source_executor_id(self) -> str | None:
        if len(self.delivery.sources) > 1:
            raise RuntimeError(
                f"the message to {self.executor_id!r} came from several executors "
                f"({', '.join(self.delivery.sources)}): use source_executor_ids"
            )
        return self.delivery.sources[0] if self.delivery.sources else None

    def send_message(self, message: Any, target_id: str | None = None) -> Awaitable[None]:
        self._check_open("send_message")
        self._sent.append(Sent(self.scope.pack(message, "$.message"), target_id))
        return DONE

    def yield_output(self, output: Any) -> Awaitable[None]:
        self._check_open("yield_output")
        kind = self.scope.graph.output_kind(self.delivery.executor)
        if kind is not None:
            self.yield_as(kind, output)
        return DONE

    def yield_as(self, kind: OutputKind, output: Any) -> None:
        self._outputs.append(Output(kind, self.scope.pack(output, "$.output")))

    @property
    def request_id(self) -> str | None:
        return self.delivery.reply.request_id if self.delivery.reply else None

    @property
    def at(self) -> Checkpoint:
        return self._at

    @property
    def children(self) -> Mapping[str, Child]:
        return self._at.children

    def keep_child(self, key: str, child: Child | None) -> None:
        self._children[key] = child

    def add_event(self, event: WorkflowEvent) -> Awaitable[None]:
        self._check_open("add_event")
        if event.type in RESERVED_EVENT_TYPES:
            raise ValueError(f"events of type {event.type!r} are emitted by the engine only; choose another type")
        # The handler may add the same object again, even in another run.
        emitted = copy.copy(event)
        emitted.executor_id = event.executor_id or self.delivery.executor
        emitted.state = event.state or WorkflowRunState.IN_PROGRESS
        emitted.run_id = self.scope.run_id
        self.scope.emit(emitted)
        return DONE

    def emit_update(self, data: Any) -> None:
        self._check_open("emit_update")
        self.has_updates = True
        self._emit("update", data, attempt=self.attempt, delivery=self.delivery.id)

    def emit_withdrawal(self, data: Any) -> None:
        self._emit("withdrawn", data, attempt=self.attempt, delivery=self.delivery.id)

    def _emit(self, type: str, data: Any, **attributes: Any) -> None:
        state = WorkflowRunState.IN_PROGRESS
        self.scope.emit(
            WorkflowEvent(type, data, state=state, executor_id=self.executor_id, run_id=self.run_id, **attributes)
        )

    def state_keys(self) -> list[str]:
        return self._state.keys()

    def state_length(self, key: str) -> int:
        return self._state.length(key)

    def get_state(self, key: str, default: Any = None) -> Any:
        self.keep_alive()
        return self._state.get(key, default)

    def set_tag(self, name: str, value: str | None) -> None:
        self._check_open("set_tag")
        check_tag(name, "" if value is None else value)
        self._tags = {**self._tags, name: value}

    def set_timer(self, name: str, delay: float | timedelta) -> None:
        self._check_open("set_timer")
        due = time_after_delay(delay)
        check_timer(self.scope.graph.executors[self.executor_id], name)
        self._timers = {**self._timers, name: due}

    def cancel_timer(self, name: str) -> None:
        self._check_open("cancel_timer")
        check_timer(self.scope.graph.executors[self.executor_id], name)
        self._timers = {**self._timers, name: None}

    def set_state(self, key: str, value: Any) -> None:
        self._check_open("set_state")
        self._state.set(key, value)

    def delete_state(self, key: str) -> None:
        self._check_open("delete_state")
        self._state.delete(key)

    def append_state(self, key: str, *items: Any) -> None:
        self._check_open("append_state")
        self._state.append(key, items)

    @property
    def private(self) -> Mapping[str, Any]:
        return self.scope.private

    def is_streaming(self) -> bool:
        return self.scope.streaming or key_of(self.scope.archive, self.scope.run_id) in WATCHERS

    def get_sent_messages(self) -> list[Any]:
        return [sent.payload.open() for sent in self._sent]

    def get_yielded_outputs(self) -> list[Any]:
        return [output.payload.open() for output in self._outputs]

    def _check_open(self, what: str) -> None:
        if self._open:
            if self._limit is not None:
                self._limit.keep_alive()
            return
        call = f"{what} was called after the handler of {self.delivery.executor!r}"
        if self._returned:
            raise RuntimeError(f"{call} had returned; await what you start inside a handler")
        raise RuntimeError(f"{call} had failed or was given up; it has no effect any more")

    def keep_alive(self) -> None:
        if self._limit is not None:
            self._limit.keep_alive()
