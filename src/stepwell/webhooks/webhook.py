"""Webhooks as users see them: adding, listing, removing, and what waits to be delivered."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import msgspec

from stepwell.errors import DefinitionError, StepwellError
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.outbox import Attempt, MessageKind, OutboxRow, WebhookRow
from stepwell.storage.verified_outbox import VerifiedOutbox
from stepwell.webhooks.destination import Destination, parse_destination
from stepwell.webhooks.http_post import send
from stepwell.webhooks.payload import message_id
from stepwell.webhooks.signature import make_secret, read_secret, sign

KINDS: tuple[str, ...] = get_args(MessageKind)


class UnknownWebhook(StepwellError):
    """There is no webhook with that id."""


class _Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a stored webhook."""

    url: str
    secrets: tuple[str, ...]  # the newest first
    allow_http: bool = False
    stopped_because: str | None = None


_decode_settings = msgspec.json.Decoder(_Settings).decode


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address, and which messages are sent to it."""

    id: str
    url: str
    workflow: str | None  # None: of all workflows
    kinds: tuple[str, ...]  # none: all
    secrets: tuple[str, ...] = field(repr=False)  # the newest first
    allow_http: bool = False
    stopped_because: str | None = None  # why nothing is sent; None: it is

    @property
    def destination(self) -> Destination:
        return parse_destination(self.url, allow_http=self.allow_http)


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is not delivered yet. Times are UTC, ISO 8601."""

    webhook_id: str
    message_id: str
    kind: str
    run_id: str
    at: str
    attempts: int
    next_attempt: str | None  # None: it is set aside until somebody retries it
    last_error: str | None


async def add_webhook(
    storage: BuiltInStorage,
    url: str,
    *,
    workflow: str | None = None,
    kinds: Sequence[str] = (),
    secret: str | None = None,
    allow_http: bool = False,
) -> Webhook:
    """Store a webhook and return it. Commits from now on write messages for it.

    `kinds` are some of request.asked, request.expired, run.completed, run.failed and run.cancelled; all
    unless you say which. `secret` signs the messages; without it, one is made up. Raises DefinitionError
    if the address, a kind or the secret cannot be used.
    """
    problems = [
        f"{kind!r} is not a kind of message; those are {', '.join(KINDS)}" for kind in kinds if kind not in KINDS
    ]
    signing_secret = make_secret() if secret is None else secret
    try:
        parse_destination(url, allow_http=allow_http)
        read_secret(signing_secret)
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise DefinitionError(problems)
    chosen = tuple(kind for kind in KINDS if kind in kinds)
    webhook = Webhook(f"wh_{secrets.token_hex(6)}", url, workflow, chosen, (signing_secret,), allow_http)
    await _put(storage, webhook)
    return webhook


async def list_webhooks(storage: BuiltInStorage) -> list[Webhook]:
    """Return the webhooks of a storage, by id."""
    return [] if storage._outbox is None else [_read(row) for row in await storage._outbox.webhooks()]


async def find_webhook(storage: BuiltInStorage, webhook_id: str) -> Webhook:
    """Return a webhook. Raises UnknownWebhook."""
    webhooks = await list_webhooks(storage)
    for webhook in webhooks:
        if webhook.id == webhook_id:
            return webhook
    ids = ", ".join(webhook.id for webhook in webhooks) or "none"
    raise UnknownWebhook(f"there is no webhook {webhook_id!r}; there are: {ids}")


async def remove_webhook(storage: BuiltInStorage, webhook_id: str) -> None:
    """Delete a webhook, with what it has not delivered. Raises UnknownWebhook."""
    if not await outbox_of(storage).remove_webhook(webhook_id):
        await find_webhook(storage, webhook_id)


async def rotate_secret(storage: BuiltInStorage, webhook_id: str, secret: str | None = None) -> Webhook:
    """Replace the secret of a webhook; messages are signed with the new one and the one before it.

    Give the new one to the receiver, and call this again when the old one must not count any more.
    Raises UnknownWebhook, and DefinitionError if the secret cannot be used.
    """
    webhook = await find_webhook(storage, webhook_id)
    new = make_secret() if secret is None else secret
    try:
        read_secret(new)
    except ValueError as error:
        raise DefinitionError(str(error)) from error
    changed = replace(webhook, secrets=(new, webhook.secrets[0]))
    await _put(storage, changed)
    return changed


async def stop_webhook(storage: BuiltInStorage, webhook: Webhook, why: str) -> None:
    """Send nothing more through a webhook, and write no messages for it, until somebody retries."""
    await _put(storage, replace(webhook, stopped_because=why))


async def list_deliveries(storage: BuiltInStorage, webhook_id: str | None = None) -> list[WaitingMessage]:
    """Return what is not delivered yet, of one webhook or all. Raises UnknownWebhook."""
    webhooks = await list_webhooks(storage) if webhook_id is None else [await find_webhook(storage, webhook_id)]
    rows = [row for webhook in webhooks for row in await outbox_of(storage).outbox(webhook.id)]
    return [_describe(row) for row in rows]


async def retry_deliveries(storage: BuiltInStorage, webhook_id: str) -> int:
    """Make everything that a webhook has not delivered due now, and start it if it was stopped.

    Return how many messages that is. What was set aside is then delivered after later messages of its
    run that did not wait for it. Raises UnknownWebhook.
    """
    webhook, outbox = await find_webhook(storage, webhook_id), outbox_of(storage)
    if webhook.stopped_because is not None:
        await _put(storage, replace(webhook, stopped_because=None))
    rows = await outbox.outbox(webhook_id)
    for row in rows:
        await outbox.settle(row, Attempt(0, clock.stamp(), row.error))
    return len(rows)


async def send_test(storage: BuiltInStorage, webhook_id: str) -> str:
    """Send a message of the type `test` at once, and return its id. Raises UnknownWebhook or DeliveryFailed."""
    webhook, test_id = await find_webhook(storage, webhook_id), f"msg_{secrets.token_hex(16)}"
    content = {"id": test_id, "type": "test", "timestamp": clock.stamp(), "data": {"webhook": webhook.id}}
    body = msgspec.json.encode(content)
    await send(webhook.destination, sign(test_id, body, webhook.secrets, int(clock.seconds())), body)
    return test_id


def outbox_of(storage: BuiltInStorage) -> VerifiedOutbox:
    """Return the outbox of a storage. Raises DefinitionError if its store has none."""
    if storage._outbox is None:
        raise DefinitionError(f"the store of this {type(storage).__name__} has no outbox, so it cannot have webhooks")
    return storage._outbox


async def _put(storage: BuiltInStorage, webhook: Webhook) -> None:
    settings = _Settings(webhook.url, webhook.secrets, webhook.allow_http, webhook.stopped_because)
    row = WebhookRow(
        webhook.id,
        webhook.workflow,
        webhook.kinds,
        webhook.stopped_because is not None,
        msgspec.json.encode(settings),
    )
    await outbox_of(storage).put_webhook(row)


def _read(row: WebhookRow) -> Webhook:
    settings = decode_stored(_decode_settings, row.body, f"webhook {row.id!r}")
    return Webhook(
        row.id,
        settings.url,
        workflow=row.workflow,
        kinds=row.kinds,
        secrets=settings.secrets,
        allow_http=settings.allow_http,
        stopped_because=settings.stopped_because,
    )


def _describe(row: OutboxRow) -> WaitingMessage:
    return WaitingMessage(
        row.webhook,
        message_id(row),
        kind=row.kind,
        run_id=row.run_id,
        at=row.at,
        attempts=row.attempts,
        next_attempt=row.due,
        last_error=row.error,
    )
