"""The outbox: messages for webhooks, stored in the commit that caused them.

A protocol of its own, beside the six of the port: a store without it works, but has no webhooks.

A commit carries nothing extra for it. A store writes the messages from what the commit says anyway
(the requests that it asks, the status that it leads to) and from `effects.expired`, for each webhook
that wants them, in the same transaction. Where no webhook is registered, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from stepwell.storage.stored_values import Entry, RequestEntry

MessageKind = Literal["request.asked", "request.expired", "run.completed", "run.failed", "run.cancelled"]
"""What a message is about."""

RUN_ENDS: dict[str, MessageKind] = {"IDLE": "run.completed", "FAILED": "run.failed", "CANCELLED": "run.cancelled"}
"""The message of a run that comes to this status."""


class WebhookRow(msgspec.Struct, frozen=True):
    """A webhook as it is stored."""

    id: str
    workflow: str | None  # None: of all workflows
    kinds: tuple[str, ...]  # none: all
    is_stopped: bool  # gets no new messages, and those it has wait
    body: bytes  # where it sends to, a JSON object

    def wants(self, workflow: str, kind: str) -> bool:
        return not self.is_stopped and self.workflow in (None, workflow) and (not self.kinds or kind in self.kinds)


class OutboxRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that is not delivered yet."""

    webhook: str
    run_id: str
    position: int  # the order in its run
    number: int  # of the commit that caused it; that of the next one, if the commit is still to come
    kind: MessageKind
    workflow: str
    at: str  # UTC, ISO 8601
    request: RequestEntry | None = None
    attempts: int = 0
    due: str | None = None  # when the next attempt is; None: there is none, and the message is set aside
    error: str | None = None  # why the last attempt failed


class Attempt(msgspec.Struct, frozen=True):
    """How a delivery failed, and when the next one is; None: the message is set aside."""

    attempts: int
    due: str | None
    error: str | None


@runtime_checkable
class Outbox(Protocol):
    """What a store implements that can have webhooks."""

    async def put_webhook(self, webhook: WebhookRow) -> None:
        """Store a webhook, in place of the one with its id. Commits that begin later write its messages."""

    async def remove_webhook(self, webhook_id: str) -> bool:
        """Delete a webhook and its messages; False if there is none."""

    async def webhooks(self) -> list[WebhookRow]:
        """Return all webhooks, by id."""

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        """Return the messages of a webhook, those of each run in their order.

        With `due_by`, only the first of each run that is not set aside, if it is due by then, the
        longest due first. The cost grows with the messages of the webhook.
        """

    async def settle(self, message: OutboxRow, attempt: Attempt | None = None) -> None:
        """Delete a message that was delivered, or store the attempt that failed; nothing, if it is gone."""


def find_messages(
    webhooks: Sequence[WebhookRow],
    *,
    before: str | None,
    entry: Entry,
    expired: Iterable[RequestEntry],
    asked: Iterable[RequestEntry],
    ends: bool = True,
) -> Iterator[OutboxRow]:
    """Yield the messages that a commit causes, with the position 0.

    `before` is the status of the run before it, and `ends` whether the end of the run counts: that of
    a run that works for another one does not.
    """
    causes: list[tuple[MessageKind, RequestEntry | None]] = [("request.expired", each) for each in expired]
    causes += [("request.asked", each) for each in asked]
    if ends and is_end(before, entry.status):
        causes.append((RUN_ENDS[entry.status], None))
    for kind, request in causes:
        for webhook in webhooks:
            if webhook.wants(entry.workflow, kind):
                yield OutboxRow(
                    webhook=webhook.id,
                    run_id=entry.run_id,
                    position=0,
                    number=entry.number,
                    kind=kind,
                    workflow=entry.workflow,
                    at=entry.at,
                    request=request,
                    due=entry.at,
                )


def is_end(before: str | None, status: str) -> bool:
    """Return whether a commit ends a run. A run that fails again fails; one that is completed stays so."""
    return status in RUN_ENDS and (status != before or status == "FAILED")


def find_due(messages: Iterable[OutboxRow], due_by: str | None, limit: int | None) -> list[OutboxRow]:
    """Return one page of messages, given in the order of their runs: see `Outbox.outbox`."""
    rows = list(messages)
    if due_by is not None:
        heads: dict[str, OutboxRow] = {}
        for row in rows:
            if row.due is not None:
                heads.setdefault(row.run_id, row)
        rows = sorted((row for row in heads.values() if (row.due or "") <= due_by), key=lambda row: row.due or "")
    return rows[:limit]
