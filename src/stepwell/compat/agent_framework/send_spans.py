"""The spans in which messages were sent: that of the handler that gets a message has a link to them."""

from __future__ import annotations

from collections.abc import Iterable

from agent_framework import WorkflowMessage

_KEPT = 2  # supersteps of an executor: the last, and the one whose messages are being delivered


class SendSpans:
    """The spans in which the executors of a workflow sent messages, as trace contexts and span ids.

    They are known to the process that sent the messages, and are not stored.
    """

    def __init__(self) -> None:
        self._sent: dict[str, dict[int, list[tuple[dict[str, str], str]]]] = {}

    def add(self, executor_id: str, iteration: int, message: WorkflowMessage) -> None:
        """Keep the spans of a message that an executor sends."""
        spans = list(zip(message.trace_contexts or (), message.source_span_ids or (), strict=True))
        if not spans:
            return
        by_iteration = self._sent.setdefault(executor_id, {})
        by_iteration.setdefault(iteration, []).extend(spans)
        for old in sorted(by_iteration)[:-_KEPT]:
            del by_iteration[old]

    def find(self, sources: Iterable[str], iteration: int) -> tuple[list[dict[str, str]], list[str]]:
        """Return the contexts and the ids of what the sources sent last, before this superstep."""
        contexts: list[dict[str, str]] = []
        ids: list[str] = []
        for source in sources:
            by_iteration = self._sent.get(source, {})
            latest = max((sent for sent in by_iteration if sent < iteration), default=None)
            for context, id in () if latest is None else by_iteration[latest]:
                contexts.append(context)
                ids.append(id)
        return contexts, ids
