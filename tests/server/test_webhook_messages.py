"""A server delivers webhooks, and the link in a message leads to the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from stepwell import InMemoryCheckpointStorage, SQLiteCheckpointStorage
from stepwell.webhooks import add_webhook
from tests.server.clients import serving
from tests.server.processes import server
from tests.support.operating_runs import Order, asking
from tests.webhooks.conftest import eventually_received
from tests.webhooks.receiver import Receiver, receiving


async def test_the_link_of_a_message_answers_its_request() -> None:
    storage = InMemoryCheckpointStorage()
    with receiving(Receiver()) as receiver:
        await add_webhook(storage, receiver.url, kinds=["request.asked"])
        await asking(storage).run(Order(7, ["a hat"]), run_id="r")
        async with serving(storage, url="http://127.0.0.1/") as client:
            await eventually_received(receiver, 1)
            link = receiver.messages[0]["data"]["request"]["respond_at"]
            async with httpx.AsyncClient(transport=client._transport, base_url="http://127.0.0.1") as stranger:
                assert (await stranger.get(link)).status_code == 200
                assert (await stranger.post(link, data={"value": "true"})).status_code == 200
    (request,) = await storage.pending_requests(run_id="r")
    assert request.answered is not None
    assert request.answered.by == "webhook"


@pytest.mark.process
def test_links_of_a_server_process_hold_after_a_restart_with_another_token(tmp_path: Path) -> None:
    store, key = tmp_path / "runs.db", tmp_path / "key"
    key.write_text("a secret of the tests that signs links\n")

    async def fill(url: str) -> None:
        async with SQLiteCheckpointStorage(store) as storage:
            await add_webhook(storage, url, kinds=["request.asked"])
            await asking(storage).run(Order(7, ["a hat"]), run_id="r")

    options = ("--url", "https://shop.example.org/runs", "--key-file", str(key))
    with receiving(Receiver()) as receiver:
        asyncio.run(fill(receiver.url))
        with server(str(store), *options):
            asyncio.run(eventually_received(receiver, 1))
    link = receiver.messages[0]["data"]["request"]["respond_at"]
    assert link.startswith("https://shop.example.org/runs/respond/")
    at = link.removeprefix("https://shop.example.org/runs")
    host = {"host": "shop.example.org"}  # as a proxy passes it on
    with server(str(store), *options, "--token", "another token of the tests") as again:
        assert httpx.get(again.address + at, headers=host).status_code == 200
    with server(str(store)) as without_the_key:
        assert httpx.get(without_the_key.address + at).status_code == 404
