"""A server delivers webhooks, and the link in a message leads to the answer."""

from __future__ import annotations

import httpx

from stepwell import InMemoryCheckpointStorage
from stepwell.webhooks import add_webhook
from tests.server.clients import serving
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
