"""Delivers webhooks while a server runs, with links by which people answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from stepwell.server.response_links.signature import ResponseLink, sign
from stepwell.server.services import Services
from stepwell.storage import clock
from stepwell.storage.checked_reads import read_moment
from stepwell.storage.stored_values import RequestEntry
from stepwell.webhooks.deliverer import WebhookDeliverer

_LINK_FOR = 7 * 86_400  # seconds


@asynccontextmanager
async def delivering(services: Services, url: str | None) -> AsyncIterator[None]:
    """Deliver inside the block; messages hold links below `url`, if there is one."""

    def make_link(request: RequestEntry) -> str:
        expires = int(clock.seconds()) + _LINK_FOR
        asked_at = read_moment(request.at, f"request {request.request_id!r}").isoformat()
        link = ResponseLink(request.run_id, request.request_id, asked_at=asked_at, by="webhook", expires=expires)
        return f"{(url or '').rstrip('/')}/respond/{sign(link, services.key)}"

    deliverer = WebhookDeliverer(services.storage, make_link=None if url is None else make_link)
    task = asyncio.create_task(deliverer.serve())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
