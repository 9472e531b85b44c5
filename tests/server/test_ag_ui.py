"""AG-UI: a thread is a run, an interrupt is a request, and every event is one of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import pytest
from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter

from stepwell import (
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)
from stepwell.agents import Calls, ScriptedAgent
from stepwell.server.ag_ui.thread_stream import ThreadStream
from stepwell.server.run_driver import RunDrivers
from stepwell.server.run_feed import EventCursor
from stepwell.worker import Worker
from tests.server.clients import BOB, EVE, serving, with_token
from tests.server.shop_processes import TOKEN, free_port, server, worker
from tests.support.operating_runs import asking, counting
from tests.worker.samples import serving as serving_worker

READ = TypeAdapter[Any](Event)


def run_input(thread: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    messages = [] if text is None else [{"id": "m1", "role": "user", "content": text}]
    return {"threadId": thread, "runId": "r1", "messages": messages, **more}


def read_events(stream: str) -> list[tuple[str | None, dict[str, Any]]]:
    """Return the events of a stream with their ids, each checked by the protocol's types."""
    events: list[tuple[str | None, dict[str, Any]]] = []
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            event = json.loads(fields["data"])
            READ.validate_python(event)
            events.append((fields.get("id"), event))
    return events


async def post(client: httpx.AsyncClient, workflow: str, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    answer = await client.post(f"/ag-ui/{workflow}", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [event for _, event in read_events(answer.text)]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_a_thread_runs_and_its_state_is_a_snapshot_and_patches() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    async with serving(storage, [workflow], worker=Worker(storage, [workflow])) as client:
        events = await post(client, "counting", run_input("t", "1"))
    assert types(events)[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]
    assert types(events).count("STEP_STARTED") == types(events).count("STEP_FINISHED") == 3
    state = events[1]["snapshot"]
    for event in events:
        if event["type"] == "STATE_DELTA":
            state = jsonpatch.apply_patch(state, event["delta"])
    assert state == {"numbers": [1, 2, 3], "about": {"last": 3, "odd": [1]}}
    (text,) = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert json.loads(text) == [1, 2, 3]
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events[-1]["outcome"] == {"type": "success"}


STATES: list[dict[str, Any]] = [
    {"a/b~c": 1, "list": [1, 2, 3], "deep": {"x": {"y": 1}, "z": None}, "none": 0},
    {"a/b~c": True, "list": [2, 3, 4], "deep": {"x": {"y": None}}, "none": None},
    {"a/b~c": 1.0, "list": [], "deep": [], "new ☃": None, "big": 2**53},
    {"list": [{"n": 1}, {"n": 2}], "deep": {"": {"": 1}}},
    {"list": [{"n": 2, "m": None}], "deep": {"": {"": 2, "~1": "/"}}},
]


async def test_deltas_lead_from_one_snapshot_to_the_next() -> None:
    may_go_on = asyncio.Semaphore(0)

    @executor(id="editor")
    async def edit(number: int, ctx: WorkflowContext[int]) -> None:
        await may_go_on.acquire()
        before = STATES[number - 1] if number else {}
        for key in before.keys() - STATES[number].keys():
            ctx.delete_state(key)
        for key, value in STATES[number].items():
            ctx.set_state(key, value)
        if number + 1 < len(STATES):
            await ctx.send_message(number + 1)

    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(name="editing", start_executor=edit, checkpoint_storage=storage)
    workflow = builder.add_edge(edit, edit).build()
    await workflow.submit(0, run_id="t")
    snapshots: list[Any] = []
    async with asyncio.timeout(30), serving_worker(Worker(storage, [workflow])):
        async for event in read_thread(storage):
            if event["type"] == "STATE_SNAPSHOT":
                snapshots.append(event["snapshot"])
                may_go_on.release()
            elif event["type"] == "STATE_DELTA":
                snapshots.append(jsonpatch.apply_patch(snapshots[-1], event["delta"]))
                may_go_on.release()
        again = [event async for event in read_thread(storage) if event["type"].startswith("STATE_")]
    # As text, in which 1, 1.0 and true differ.
    assert list(map(as_text, snapshots)) == list(map(as_text, ({}, *STATES)))
    # Opened again, it has one snapshot, which is as of now: the past changes nothing.
    assert [as_text(event["snapshot"]) for event in again] == [as_text(snapshots[-1])]


async def read_thread(storage: Any) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of the thread `t`, as a client reads them."""
    thread = RunAgentInput.model_validate(run_input("t"))
    async with aclosing(ThreadStream(storage, RunDrivers(storage), thread, EventCursor()).items()) as items:
        async for item in items:
            ((_, event),) = read_events(item.encode().decode())
            yield event


def as_text(state: Any) -> str:
    return json.dumps(state, sort_keys=True)


async def test_a_further_message_of_the_user_continues_the_run_once() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    async with serving(storage, [workflow], worker=Worker(storage, [workflow])) as client:
        first = await post(client, "counting", run_input("t", "1"))
        # Opened again with what it was started with: nothing is sent, and it is shown from its beginning.
        assert types(await post(client, "counting", run_input("t", "1"))).count("STEP_STARTED") == 3
        number = (await client.get("/api/v1/runs/t")).json()["number"]
        further = run_input("t", "1")
        further["messages"].append({"id": "m2", "role": "user", "content": "2"})
        second = await post(client, "counting", further)
        assert 0 < types(second).count("STEP_STARTED") < types(first).count("STEP_STARTED")
        assert second[-1]["outcome"] == {"type": "success"}
        run = (await client.get("/api/v1/runs/t")).json()
        assert run["number"] > number
        # The same message again, by a client that lost the answer.
        assert types(await post(client, "counting", further)).count("STEP_STARTED") > 3
        assert (await client.get("/api/v1/runs/t")).json()["number"] == run["number"]
        further["messages"].append({"id": "m3", "role": "user", "content": "not a number"})
        assert (await client.post("/ag-ui/counting", json=further)).status_code == 422
        further["messages"][-1]["content"] = "2"
        refused = await client.post("/ag-ui/counting", json=further, headers=with_token(BOB))
        assert refused.status_code == 403


async def test_an_interrupt_has_a_schema_and_a_deadline_and_is_answered() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(storage, timedelta(hours=1))
    order = {"id": 7, "lines": ["a hat"]}
    async with serving(storage, [workflow], worker=Worker(storage, [workflow])) as client:
        events = await post(client, "refunds", run_input("t", forwardedProps={"input": order}))
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert interrupt["id"] == "refund-7"
        assert interrupt["responseSchema"] == {"type": "boolean"}
        assert interrupt["expiresAt"] > "2026"
        assert interrupt["metadata"]["request"] == order

        wrong = run_input("t", resume=[{"interruptId": "refund-7", "status": "resolved", "payload": "maybe"}])
        refused = await client.post("/ag-ui/refunds", json=wrong)
        assert (refused.status_code, '"maybe" is not a boolean' in refused.json()["detail"]) == (422, True)
        right = run_input("t", resume=[{"interruptId": "refund-7", "status": "resolved", "payload": True}])
        events = await post(client, "refunds", right)
        assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["a hat: refunded"]
        answered = next(event for event in events if event["type"] == "CUSTOM")
        assert answered["value"] == {"id": "refund-7", "by": "ada"}
        assert events[-1]["outcome"] == {"type": "success"}

        await post(client, "refunds", run_input("u", json.dumps(order)))  # an object as text
        left = run_input("u", resume=[{"interruptId": "refund-7", "status": "cancelled"}])
        for _ in range(2):  # the second time by a client that lost the answer
            assert (await post(client, "refunds", left))[-1]["outcome"] == {"type": "cancelled"}
        assert (await post(client, "refunds", right))[-1]["outcome"] == {"type": "success"}  # and so does this one


async def test_tool_calls_of_agents_are_messages() -> None:
    storage = InMemoryCheckpointStorage()

    def weather(city: str, of: list[str]) -> str:
        return f"rain in {city}"

    question = {"city": "Leeds", "of": ["rain"] * 100}
    script: list[str | Calls] = [Calls(("weather", question)), "Take an umbrella."]
    agent = ScriptedAgent("teller", script, tools={"weather": weather})
    workflow = WorkflowBuilder(name="chat", start_executor=agent, checkpoint_storage=storage).build()
    async with serving(storage, [workflow], worker=Worker(storage, [workflow])) as client:
        events = await post(client, "chat", run_input("t", "And the weather?"))
    start = next(event for event in events if event["type"] == "TOOL_CALL_START")
    assert start["toolCallName"] == "weather"
    (arguments,) = [event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS"]
    assert json.loads(arguments) == question  # whole, however long
    (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert (result["content"], result["toolCallId"]) == ("rain in Leeds", start["toolCallId"])
    assert "Take an umbrella." in [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]


async def test_what_is_refused() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(storage)
    await counting(storage).run(1, run_id="another")

    async def status(client: httpx.AsyncClient, body: object, workflow: str = "refunds", **headers: str) -> int:
        return (await client.post(f"/ag-ui/{workflow}", json=body, headers=headers)).status_code

    async with serving(storage, [workflow]) as client:
        assert await status(client, {"threadId": "t"}) == 422
        assert await status(client, run_input("t")) == 422
        assert await status(client, run_input("t", "no order")) == 422
        assert await status(client, run_input("t", "x"), "unknown") == 404
        assert await status(client, run_input("another", "x")) == 409
        resume = run_input("t", resume=[{"interruptId": "q", "status": "resolved"}])
        assert await status(client, resume) == 404
        assert await status(client, run_input("t", "x"), **with_token(EVE)) == 403
        assert await status(client, run_input("t", "x"), **with_token(BOB)) == 403
        assert await status(client, run_input("t", "x"), **{"last-event-id": "x"}) == 422
    assert {run.run_id for run in await storage.list_runs()} == {"another"}


async def test_a_thread_is_continued_and_answered_at_a_second_server(tmp_path: Path) -> None:
    order = run_input("t", forwardedProps={"input": {"id": 7, "lines": ["a hat"]}})
    first, second = (SQLiteCheckpointStorage(tmp_path / "runs.db") for _ in range(2))
    ours, theirs = asking(first), asking(second)
    async with (
        serving(first, [ours], worker=Worker(first, [ours])) as client,
        serving(second, [theirs]) as other,
    ):
        seen = read_events((await client.post("/ag-ui/refunds", json=order)).text)
        last = next(id for id, _ in seen if id is not None)
        continued = read_events((await other.post("/ag-ui/refunds", json=order, headers={"last-event-id": last})).text)
        with_ids = [item for item in seen if item[0] is not None]
        assert [item for item in continued if item[0] is not None] == with_ids[1:]
        assert continued[-1][1]["outcome"] == seen[-1][1]["outcome"]
        answer = run_input("t", resume=[{"interruptId": "refund-7", "status": "resolved", "payload": True}])
        events = await post(other, "refunds", answer)
        assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["a hat: refunded"]
    await first.close()
    await second.close()


def read_until(answer: httpx.Response, wanted: str) -> list[tuple[str | None, dict[str, Any]]]:
    """Return the events of a stream up to the first of a type."""
    events: list[tuple[str | None, dict[str, Any]]] = []
    block = ""
    for line in answer.iter_lines():
        block += line + "\n"
        if line == "":
            events += read_events(block)
            block = ""
            if events and events[-1][1]["type"] == wanted:
                break
    return events


@pytest.mark.process
def test_a_client_continues_at_a_server_that_was_killed_and_started_again(tmp_path: Path) -> None:
    port = free_port()
    url, headers = f"http://127.0.0.1:{port}/ag-ui/orders", {"authorization": f"Bearer {TOKEN}"}
    body = run_input("t", json.dumps({"item": "hats", "amount": 3}))
    with server(tmp_path, port) as first:
        with httpx.stream("POST", url, json=body, headers=headers, timeout=30) as answer:
            note = read_until(answer, "CUSTOM")[-1][1]
        assert (note["name"], note["value"]["command"][1]) == ("stepwell.not_driven", "worker")
        with worker(tmp_path), httpx.stream("POST", url, json=body, headers=headers, timeout=30) as answer:
            seen = read_until(answer, "STEP_STARTED")
            first.kill()
            first.wait()
            last = seen[-1][0]
            assert last is not None
            with server(tmp_path, port):
                continued = httpx.post(url, json=body, headers=headers | {"last-event-id": last}, timeout=30)
                more = read_events(continued.text)
                ids = [id for id, _ in (*seen, *more) if id is not None]
                assert len(set(ids)) == len(ids)  # no event twice
                assert "STEP_FINISHED" in [event["type"] for _, event in more]
                (interrupt,) = more[-1][1]["outcome"]["interrupts"]
                assert set(interrupt["responseSchema"]["properties"]) == {"granted", "note"}

                entry = {"interruptId": "pass", "status": "resolved", "payload": {"granted": True}}
                resumed = httpx.post(url, json=run_input("t", resume=[entry]), headers=headers, timeout=30)
                events = [event for _, event in read_events(resumed.text)]
                assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["passed"]

                failing = run_input("u", json.dumps({"item": "hats", "amount": 30}))
                failed = read_events(httpx.post(url, json=failing, headers=headers, timeout=30).text)[-1][1]
                assert failed["type"] == "RUN_ERROR"
                assert (failed["message"], failed["code"]) == ("30 are too many", "ValueError")
