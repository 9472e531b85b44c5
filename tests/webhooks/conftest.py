"""Storages and a receiver for webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.webhooks import WebhookDeliverer, deliverer
from tests.webhooks.receiver import Receiver, receiving
from tests.worker.conftest import storage as storage


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(Receiver()) as made:
        yield made


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a deliverer are short."""
    monkeypatch.setattr(deliverer, "_LOOK_EVERY", 0.02)
    monkeypatch.setattr(deliverer, "_NONE_EVERY", 0.02)
    monkeypatch.setattr(deliverer, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(deliverer, "LONGEST_PAUSE", 0.1)


@asynccontextmanager
async def delivering(storage: BuiltInStorage, **options: object) -> AsyncIterator[None]:
    """Deliver inside the block."""
    task = asyncio.create_task(WebhookDeliverer(storage, **options).serve())  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventually_received(receiver: Receiver, count: int) -> None:
    await asyncio.to_thread(receiver.wait_for, count)
    assert len(receiver.messages) >= count, receiver.attempts
