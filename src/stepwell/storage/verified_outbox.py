"""An outbox whose webhooks and requests are protected as all bodies are."""

from __future__ import annotations

import msgspec

from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.outbox import Attempt, Outbox, OutboxRow, WebhookRow


class VerifiedOutbox:
    """The outbox of a store that is guarded by a `VerifiedStore`, which has protected the requests."""

    def __init__(self, inner: Outbox, guard: VerifiedStore) -> None:
        self._inner, self._guard = inner, guard

    async def put_webhook(self, webhook: WebhookRow) -> None:
        body = self._guard.protect_webhook(webhook.id, webhook.body)
        await self._inner.put_webhook(msgspec.structs.replace(webhook, body=body))

    async def remove_webhook(self, webhook_id: str) -> bool:
        return await self._inner.remove_webhook(webhook_id)

    async def webhooks(self) -> list[WebhookRow]:
        return [
            msgspec.structs.replace(webhook, body=self._guard.verify_webhook(webhook.id, webhook.body))
            for webhook in await self._inner.webhooks()
        ]

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        rows = await self._inner.outbox(webhook_id, due_by=due_by, limit=limit)
        return [
            row
            if row.request is None
            else msgspec.structs.replace(row, request=self._guard.verify_request(row.request))
            for row in rows
        ]

    async def settle(self, message: OutboxRow, attempt: Attempt | None = None) -> None:
        await self._inner.settle(message, attempt)
