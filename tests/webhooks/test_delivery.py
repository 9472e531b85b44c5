"""Messages arrive: signed, in order per run, at least once, whatever the receiver does."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stepwell import Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler, response_handler
from stepwell.errors import DefinitionError, HandlerFailed, RequestExpired
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.webhooks import (
    BadSignature,
    DeliveryFailed,
    UnknownWebhook,
    add_webhook,
    list_deliveries,
    list_webhooks,
    remove_webhook,
    retry_deliveries,
    rotate_secret,
    send_test,
    verify_signature,
)
from stepwell.webhooks.deliverer import MOST_ATTEMPTS, plan_retry
from stepwell.webhooks.signature import sign
from stepwell.workflows.workflow import Workflow
from tests.conftest import Later
from tests.webhooks.conftest import delivering, eventually_received
from tests.webhooks.receiver import Receiver, receiving
from tests.worker.samples import eventually

pytestmark = pytest.mark.usefixtures("hurried")


class Clerk(Executor):
    """Asks whether an order may pass, by its number; 0 fails."""

    @handler
    async def take(self, order: int, ctx: WorkflowContext[None, str]) -> None:
        if order == 0:
            raise ValueError("an order of nothing")
        options: dict[str, Any] = {"deadline": timedelta(minutes=5)} if order > 100 else {}
        if order > 200:
            options["default"] = False
        await ctx.request_info(f"May order {order} pass?", bool, request_id=f"pass-{order}", **options)

    @response_handler
    async def answered(self, original_request: str, response: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("passed" if response else "held")


def orders(storage: BuiltInStorage) -> Workflow:
    return WorkflowBuilder(start_executor=Clerk("clerk"), checkpoint_storage=storage, name="orders").build()


async def test_each_kind_of_message_arrives_signed_and_in_order(storage: BuiltInStorage, receiver: Receiver) -> None:
    webhook = await add_webhook(storage, receiver.url)
    workflow = orders(storage)
    await workflow.run(7, run_id="a")
    await workflow.run(run_id="a", responses={"pass-7": True})
    with pytest.raises(HandlerFailed):
        await workflow.run(0, run_id="b")
    await workflow.run(8, run_id="c")
    await workflow.attach("c").cancel()
    async with delivering(storage, make_link=lambda request: f"https://x/{request.run_id}/{request.request_id}"):
        await eventually_received(receiver, 5)
    receiver.verify_all(*webhook.secrets)
    by_run: dict[str, list[dict[str, Any]]] = {}
    for message in receiver.messages:
        by_run.setdefault(message["data"]["run_id"], []).append(message)
    assert {run_id: [m["type"] for m in messages] for run_id, messages in by_run.items()} == {
        "a": ["request.asked", "run.completed"],
        "b": ["run.failed"],
        "c": ["request.asked", "run.cancelled"],
    }
    asked = by_run["a"][0]["data"]
    assert (asked["workflow"], asked["request"]["question"]) == ("orders", "May order 7 pass?")
    assert asked["request"]["response_schema"] == {"type": "boolean"}
    assert asked["request"]["respond_at"] == "https://x/a/pass-7"
    assert (
        by_run["b"][0]["data"]["errors"]
        == [{"type": "builtins.ValueError", "message": "an order of nothing", "executor": "clerk"}]
        or by_run["b"][0]["data"]["errors"][0]["message"] == "an order of nothing"
    )
    assert len({message["id"] for message in receiver.messages}) == 5
    assert await list_deliveries(storage) == []


async def test_a_request_that_expires_is_told(receiver: Receiver, later: Later) -> None:
    storage = InMemoryCheckpointStorage()
    await add_webhook(storage, receiver.url, kinds=["request.expired", "run.failed"])
    workflow = orders(storage)
    await workflow.run(101, run_id="without a default")
    await workflow.run(201, run_id="with one")
    later(minutes=6)
    with pytest.raises(RequestExpired):
        await workflow.run(run_id="without a default")
    await workflow.run(run_id="with one")
    async with delivering(storage):
        await eventually_received(receiver, 3)
    told = {(message["type"], message["data"]["run_id"]) for message in receiver.messages}
    assert told == {
        ("request.expired", "without a default"),
        ("run.failed", "without a default"),
        ("request.expired", "with one"),
    }
    expired = next(m for m in receiver.messages if m["data"]["run_id"] == "with one")
    assert expired["data"]["request"]["id"] == "pass-201"


async def test_an_answer_in_time_that_is_applied_late_is_no_expiry(receiver: Receiver, later: Later) -> None:
    storage = InMemoryCheckpointStorage()
    await add_webhook(storage, receiver.url, kinds=["request.expired", "run.completed"])
    workflow = orders(storage)
    await workflow.run(201, run_id="r")
    await workflow.attach("r", drive=False).respond({"pass-201": True})
    later(minutes=6)
    assert (await workflow.run(run_id="r")).get_outputs() == ["passed"]
    async with delivering(storage):
        await eventually_received(receiver, 1)
    assert receiver.types() == ["run.completed"]


async def test_a_receiver_that_fails_gets_everything_in_order_when_it_works_again(
    storage: BuiltInStorage, receiver: Receiver
) -> None:
    await add_webhook(storage, receiver.url)
    workflow = orders(storage)
    failures = Counter[str]()

    def fail_twice(message: dict[str, Any]) -> int:
        failures[message["id"]] += 1
        return 200 if failures[message["id"]] > 2 else 503

    receiver.answer = fail_twice
    async with delivering(storage):
        for number in (1, 2, 3):
            await workflow.run(number, run_id=str(number))
            await workflow.run(run_id=str(number), responses={f"pass-{number}": True})
        await eventually_received(receiver, 6)
    assert set(failures.values()) == {3}
    for number in (1, 2, 3):
        told = [m["type"] for m in receiver.messages if m["data"]["run_id"] == str(number)]
        assert told == ["request.asked", "run.completed"]


def answer_late(message: dict[str, Any]) -> int:
    time.sleep(3)
    return 200


async def test_a_receiver_that_hangs_keeps_no_other_waiting(receiver: Receiver) -> None:
    storage = InMemoryCheckpointStorage()
    with receiving(Receiver()) as slow:
        slow.answer = answer_late
        await add_webhook(storage, slow.url)
        await add_webhook(storage, receiver.url)
        await orders(storage).run(1, run_id="r")
        async with delivering(storage, timeout=0.3):
            await eventually_received(receiver, 1)
            await asyncio.sleep(0.5)
        (waiting,) = await list_deliveries(storage)
        assert waiting.last_error == "no answer within 0.3 s"
        assert waiting.attempts >= 1


async def test_a_receiver_that_is_gone_and_comes_back_has_missed_nothing(receiver: Receiver) -> None:
    storage, away = InMemoryCheckpointStorage(), Receiver()
    with receiving(away):
        webhook = await add_webhook(storage, away.url)
    await orders(storage).run(1, run_id="r")
    async with delivering(storage):
        await asyncio.sleep(0.3)
        (waiting,) = await list_deliveries(storage, webhook.id)
        assert waiting.attempts >= 1
        assert "Connect" in (waiting.last_error or "")
        with receiving(away):
            await eventually_received(away, 1)


async def is_stopped(storage: BuiltInStorage) -> bool:
    return (await list_webhooks(storage))[0].stopped_because is not None


async def test_410_stops_a_webhook_until_somebody_retries(storage: BuiltInStorage, receiver: Receiver) -> None:
    webhook = await add_webhook(storage, receiver.url)
    workflow = orders(storage)
    receiver.answer = lambda message: 410
    await workflow.run(1, run_id="a")
    async with delivering(storage):
        await eventually(lambda: is_stopped(storage))
        assert (await list_webhooks(storage))[0].stopped_because == "HTTP 410 what happened [31m here"
        await workflow.run(2, run_id="b")  # nothing is written for it
        attempts = len(receiver.attempts)
        await asyncio.sleep(0.2)
        assert len(receiver.attempts) == attempts
        receiver.answer = lambda message: 200
        assert await retry_deliveries(storage, webhook.id) == 1
        await eventually_received(receiver, 1)
    assert [message["data"]["run_id"] for message in receiver.messages] == ["a"]


async def test_redirects_are_not_followed(receiver: Receiver) -> None:
    storage = InMemoryCheckpointStorage()
    webhook = await add_webhook(storage, receiver.url)
    receiver.answer, receiver.extra = (lambda message: 302), {"Location": receiver.url}
    with pytest.raises(DeliveryFailed, match=r"HTTP 302 .*redirects are not followed"):
        await send_test(storage, webhook.id)
    assert len(receiver.attempts) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "without an answer"),
        (b"nonsense\r\n\r\n", "not one of HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, "more than 32768 bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\n\r\n" + b"y" * 10_000_000, "HTTP 500 y{200}$"),
    ],
)
async def test_what_is_read_of_an_answer_is_bounded(answer: bytes, error: str) -> None:
    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(answer_all, "127.0.0.1", 0) as server:
        storage = InMemoryCheckpointStorage()
        webhook = await add_webhook(storage, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(DeliveryFailed, match=error):
            await send_test(storage, webhook.id)


async def test_while_a_secret_is_replaced_both_count(receiver: Receiver) -> None:
    storage = InMemoryCheckpointStorage()
    first = await add_webhook(storage, receiver.url)
    second = await rotate_secret(storage, first.id)
    await send_test(storage, first.id)
    receiver.verify_all(first.secrets[0])
    receiver.verify_all(second.secrets[0])
    await rotate_secret(storage, first.id)
    await send_test(storage, first.id)
    with pytest.raises(BadSignature):
        verify_signature(receiver.bodies[1], receiver.headers[1], first.secrets)


async def test_a_message_that_was_changed_or_kept_for_long_is_refused(receiver: Receiver, later: Later) -> None:
    storage = InMemoryCheckpointStorage()
    webhook = await add_webhook(storage, receiver.url)
    await send_test(storage, webhook.id)
    body, headers, secret = receiver.bodies[0], receiver.headers[0], webhook.secrets[0]
    verify_signature(body, headers, secret)
    with pytest.raises(BadSignature):
        verify_signature(body + b" ", headers, secret)
    with pytest.raises(BadSignature):
        verify_signature(body, headers | {"webhook-signature": "v1,\xe9"}, secret)
    with pytest.raises(BadSignature):
        verify_signature(body, {}, secret)
    later(minutes=6)
    with pytest.raises(BadSignature, match="too far from now"):
        verify_signature(body, headers, secret)


def test_the_signature_is_that_of_the_specification(later: Later) -> None:
    # The example with which the libraries of Standard Webhooks are tested.
    body, secret, at = b'{"test": 2432232314}', "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330
    headers = sign("msg_p5jXN8AQM9LWM0D4loKWxJek", body, [secret], at)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    later(seconds=at - time.time())
    several = {"webhook-signature": f"v1a,x v1,bm9wZQ== {headers['webhook-signature']}"}
    assert verify_signature(body, headers | several, secret) == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    without_version = {"webhook-signature": headers["webhook-signature"].removeprefix("v1,")}
    with pytest.raises(BadSignature):
        verify_signature(body, headers | without_version, secret)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/hook", "not encrypted"),
        ("ftp://example.com", "not an address of the form"),
        ("https://", "not an address of the form"),
        ("https://exa mple.com", "not an address of the form"),
        ("https://user:pw@example.com", "user or password"),
        ("https://example.com:99999", "not an address"),
        ("http://[::1", "not an address"),
    ],
)
async def test_addresses_that_are_refused(url: str, why: str) -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(DefinitionError, match=why):
        await add_webhook(storage, url)
    assert await list_webhooks(storage) == []


async def test_addresses_that_are_allowed() -> None:
    storage = InMemoryCheckpointStorage()
    for url in ("https://example.com:8443/a?b=c", "http://localhost:1", "http://[::1]:1/x"):
        await add_webhook(storage, url)
    await add_webhook(storage, "http://example.com", allow_http=True)
    assert len(await list_webhooks(storage)) == 4
    with pytest.raises(DefinitionError, match=r"run\.done.*is not a kind of message"):
        await add_webhook(storage, "https://example.com", kinds=["run.done"])
    with pytest.raises(DefinitionError, match="24 to 64 random bytes"):
        await add_webhook(storage, "https://example.com", secret="whsec_c2hvcnQ=")
    with pytest.raises(UnknownWebhook, match="there is no webhook 'x'"):
        await remove_webhook(storage, "x")


async def test_pauses_grow_and_end(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    storage = InMemoryCheckpointStorage()
    await add_webhook(storage, receiver.url)
    await orders(storage).run(1, run_id="r")
    assert storage._outbox is not None
    (webhook,) = await list_webhooks(storage)
    pauses: list[float] = []
    for _ in range(12):
        (row,) = await storage._outbox.outbox(webhook.id)
        attempt = plan_retry(row, "no")
        await storage._outbox.settle(row, attempt)
        assert attempt.due is not None
        pauses.append(round(clock.until(attempt.due).total_seconds()))
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    (row,) = await storage._outbox.outbox(webhook.id)
    assert plan_retry(msgspec.structs.replace(row, attempts=MOST_ATTEMPTS - 1), "no").due is None


async def test_two_deliverers_send_each_message_once_and_in_order(storage: BuiltInStorage, receiver: Receiver) -> None:
    await add_webhook(storage, receiver.url)
    workflow = orders(storage)
    async with delivering(storage), delivering(storage):
        for number in range(1, 6):
            await workflow.run(number, run_id=str(number))
            await workflow.run(run_id=str(number), responses={f"pass-{number}": True})
        await eventually_received(receiver, 10)
        await asyncio.sleep(0.1)
    assert len(receiver.attempts) == 10
    for number in range(1, 6):
        told = [m["type"] for m in receiver.messages if m["data"]["run_id"] == str(number)]
        assert told == ["request.asked", "run.completed"]
