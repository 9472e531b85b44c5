"""Text of agents while they write it, as messages that are not durable yet.

What one model call writes is a message of its own, with an id that holds for this stream alone. The
commit decides: a message that becomes an output is completed; every other one, such as that of an
attempt that failed, is ended and withdrawn. So what stays on a page is what is stored.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)

from stepwell.model.event import WorkflowEvent

_LATE = 1000  # handler calls whose text may still arrive after their commit


@dataclass(slots=True)
class LiveMessage:
    """What one model call of a handler call wrote so far."""

    id: str
    delivery: str
    path: tuple[str, ...]  # the executors that lead to the sub-workflow of the handler
    call: int
    text: str = ""

    def is_continued_by(self, text: str) -> bool:
        """Tell whether a durable text is this one, or the whole of it."""
        return text.startswith(self.text) or text.rstrip() == self.text.rstrip()


class LiveText:
    """The messages of one stream that are not durable yet."""

    def __init__(self, run_id: str) -> None:
        # Another stream of the thread must not continue a message of this one.
        self._prefix = f"{run_id}/live/{secrets.token_hex(4)}"
        self._count = 0
        self._messages: list[LiveMessage] = []
        self._committed: deque[str] = deque(maxlen=_LATE)

    def translate(self, document: dict[str, Any]) -> Iterator[BaseEvent]:
        """Yield the events for a live event of the run."""
        delivery, data = document.get("delivery") or "", document.get("data")
        path, update = tuple(document.get("path") or ()), data if isinstance(data, dict) else {}
        if document["type"] == "withdrawn":
            void = [message for message in self._messages if (message.delivery, message.path) == (delivery, path)]
            yield from self._withdraw(each for each in void if update.get("call") in (None, each.call))
        elif document["type"] == "update" and update.get("kind") == "text" and update.get("text"):
            if not path and delivery in self._committed:  # it was on its way while the message was completed
                return
            message = self._find(delivery, path, update.get("call") or 0)
            if message is None:
                self._count += 1
                id = f"{self._prefix}/{self._count}"
                message = LiveMessage(id, delivery, path, update.get("call") or 0)
                self._messages.append(message)
                yield TextMessageStartEvent(message_id=id, role="assistant", name=document.get("executor"))
            message.text += update["text"]
            yield TextMessageContentEvent(message_id=message.id, delta=update["text"])

    def join(
        self, event: WorkflowEvent, translated: Iterable[tuple[int, BaseEvent]]
    ) -> Iterator[tuple[int | None, BaseEvent]]:
        """Yield the events of a durable one, with their places; a message that was begun live is completed.

        Until it ends, none of its events has a place: a client that continues before gets it as a whole.
        """
        items = list(translated)
        if event.type != "executor_completed" or event.path:
            yield from items
            return
        self._committed.append(event.delivery or "")
        of_call = [
            message
            for message in self._messages
            if (message.delivery == event.delivery and not message.path) or message.path[:1] == (event.executor_id,)
        ]
        begun: dict[str, LiveMessage] = {}
        for _, item in items:
            if isinstance(item, TextMessageContentEvent):
                same = (message for message in reversed(of_call) if message.is_continued_by(item.delta))
                if (message := next(same, None)) is not None:
                    begun[item.message_id] = message
                    of_call.remove(message)
                    self._messages.remove(message)
        yield from ((None, item) for item in self._withdraw(of_call))
        for place, item in items:
            message = begun.get(getattr(item, "message_id", ""))
            if message is None:
                yield place, item
            elif isinstance(item, TextMessageContentEvent) and (rest := item.delta[len(message.text) :]):
                yield None, TextMessageContentEvent(message_id=message.id, delta=rest)
            elif isinstance(item, TextMessageEndEvent):
                yield place, TextMessageEndEvent(message_id=message.id)

    def end(self) -> Iterator[BaseEvent]:
        """Yield the events that withdraw what did not become durable: the run rests."""
        yield from self._withdraw(self._messages)

    def _find(self, delivery: str, path: tuple[str, ...], call: int) -> LiveMessage | None:
        same = (each for each in self._messages if (each.delivery, each.path, each.call) == (delivery, path, call))
        return next(same, None)

    def _withdraw(self, messages: Iterable[LiveMessage]) -> Iterator[BaseEvent]:
        for message in list(messages):
            self._messages.remove(message)
            yield TextMessageEndEvent(message_id=message.id)
            yield CustomEvent(name="stepwell.withdrawn", value={"messageId": message.id})
