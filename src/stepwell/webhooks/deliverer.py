"""Delivers what is due: in order per run, again and again until the receiver accepts it.

One process does it at a time. It holds a lease, as the driver of a run does; if it dies, another one
acquires the lease and continues with what the outbox still holds. A message whose delivery could not
be noted any more is sent again: at least once, under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from stepwell.errors import CheckpointCorrupt, DurabilityError, RunBusy
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.storage.outbox import Attempt, OutboxRow
from stepwell.webhooks.http_post import TIMEOUT, DeliveryFailed, send
from stepwell.webhooks.payload import MakeLink, build_payload, message_id
from stepwell.webhooks.signature import sign
from stepwell.webhooks.webhook import Webhook, list_webhooks, outbox_of, stop_webhook

_LOG = logging.getLogger("stepwell")

LEASE_NAME = "stepwell:webhooks"  # in place of the id of a run
_LEASE = 30.0  # seconds; longer than a request may take
_LOOK_EVERY = 1.0  # seconds between two looks at the outbox, and between two attempts to get the lease
_NONE_EVERY = 5.0  # seconds between two looks if there is no webhook
_AT_ONCE = 8  # requests to one receiver
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0  # seconds after a failed attempt: doubled each time
MOST_ATTEMPTS = 80  # of one message: about three days


class WebhookDeliverer:
    """Sends the messages of the webhooks of a storage, while it holds the lease for that.

    `make_link` makes the address at which a request can be answered. A worker has a deliverer of its own.
    """

    def __init__(self, storage: BuiltInStorage, *, make_link: MakeLink | None = None, timeout: float = TIMEOUT) -> None:
        self._storage, self._make_link, self._timeout = storage, make_link, timeout
        self._owner = this_process(f"webhooks-{uuid4().hex}")
        self._held_until = 0.0  # monotonic
        self._last_trouble = ""

    async def serve(self) -> None:
        """Deliver what is due until cancelled; never raises while the store is away."""
        while self._storage._outbox is not None:
            try:
                await self._serve_for_a_while()
            except RunBusy:  # another process delivers
                await asyncio.sleep(_LOOK_EVERY)
            except DurabilityError as error:
                if str(error) != self._last_trouble:  # once: it may last, as a missing key does
                    _LOG.warning("webhooks are not delivered for now: %s", error)
                self._last_trouble = str(error)
                await asyncio.sleep(_NONE_EVERY)

    async def _serve_for_a_while(self) -> None:
        """Deliver until there is no webhook, or the lease is lost. Raises RunBusy if another process has it."""
        if not await list_webhooks(self._storage):
            await asyncio.sleep(_NONE_EVERY)
            return
        store, asked_at = self._storage._store, time.monotonic()
        fence = await store.acquire(LEASE_NAME, self._owner, seconds=_LEASE)
        self._held_until = asked_at + _LEASE
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while self._is_held():
                webhooks = {webhook.id: webhook for webhook in await list_webhooks(self._storage)}
                for webhook in webhooks.values():
                    if webhook.id not in tasks or tasks[webhook.id].done():
                        tasks[webhook.id] = asyncio.create_task(self._serve_webhook(webhook))
                await asyncio.sleep(_LOOK_EVERY)
                if self._held_until - time.monotonic() < _LEASE * 2 / 3:
                    await self._renew(fence)
                for task in tasks.values():
                    if task.done() and (error := task.exception()) is not None:
                        raise error
                if not webhooks:
                    return
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            with suppress(DurabilityError):  # it ends by itself
                await store.release(LEASE_NAME, self._owner)

    def _is_held(self) -> bool:
        """Return whether we hold the lease for longer than a request takes."""
        return time.monotonic() + self._timeout < self._held_until

    async def _renew(self, fence: int) -> None:
        asked_at = time.monotonic()
        report = await asyncio.to_thread(self._storage._store.renew, {LEASE_NAME: fence}, seconds=_LEASE)
        self._held_until = 0.0 if LEASE_NAME in report.lost else asked_at + _LEASE

    async def _serve_webhook(self, webhook: Webhook) -> None:
        """Deliver what is due to one receiver, until nothing is. A slow receiver keeps nobody else waiting."""
        outbox = outbox_of(self._storage)
        while webhook.stopped_because is None and self._is_held():
            due = await outbox.outbox(webhook.id, due_by=clock.stamp(), limit=_AT_ONCE)
            if not due:
                return
            errors = await asyncio.gather(*(self._deliver(webhook, message) for message in due))
            gone = next((error for error in errors if error is not None and error.is_gone), None)
            if gone is not None:
                _LOG.error("webhook %s is stopped: its receiver wants no more messages (%s)", webhook.id, gone)
                await stop_webhook(self._storage, webhook, str(gone))
                return

    async def _deliver(self, webhook: Webhook, message: OutboxRow) -> DeliveryFailed | None:
        """Send one message and note what became of it."""
        try:
            await deliver(self._storage, webhook, message, self._make_link, self._timeout)
        except (DeliveryFailed, CheckpointCorrupt) as error:
            await outbox_of(self._storage).settle(message, plan_retry(message, str(error)))
            return error if isinstance(error, DeliveryFailed) else None
        await outbox_of(self._storage).settle(message)
        return None


async def deliver(
    storage: BuiltInStorage, webhook: Webhook, message: OutboxRow, make_link: MakeLink | None, timeout: float = TIMEOUT
) -> None:
    """Send one message, once. Raises DeliveryFailed."""
    body = await build_payload(storage, message, make_link)
    try:
        destination = webhook.destination
    except ValueError as error:
        raise DeliveryFailed(str(error)) from error
    headers = sign(message_id(message), body, webhook.secrets, int(clock.seconds()))
    await send(destination, headers, body, timeout=timeout)


def plan_retry(message: OutboxRow, why: str) -> Attempt:
    """Return when a message is sent again after a failure; after too many, it is set aside."""
    attempts = message.attempts + 1
    if attempts >= MOST_ATTEMPTS:
        _LOG.error("the message %s to webhook %s is set aside: %s", message_id(message), message.webhook, why)
        return Attempt(attempts, None, why)
    pause = min(FIRST_PAUSE * 2 ** min(message.attempts, 20), LONGEST_PAUSE)
    return Attempt(attempts, clock.stored_moment(clock.now() + timedelta(seconds=pause)), why)
