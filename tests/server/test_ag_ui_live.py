"""AG-UI: text of agents that are driven elsewhere is sent while they write it, and only what is stored stays."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from ag_ui.core import (
    Event,
    RunAgentInput,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from pydantic import TypeAdapter

from stepwell import RetryPolicy, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.scripted import Fails, ScriptedAgent
from stepwell.engine.events.watchers import WATCHERS
from stepwell.model.event import WorkflowEvent
from stepwell.server.ag_ui.live_text import LiveText
from stepwell.server.ag_ui.thread_stream import ThreadStream
from stepwell.server.run_driver import RunDrivers
from stepwell.server.run_feed import EventCursor, read_cursor
from stepwell.worker import Worker
from tests.server.test_live import until

READ = TypeAdapter[Any](Event)


class Writer(ScriptedAgent):
    """An agent that finishes its answer only when somebody has read all of it."""

    def __init__(self) -> None:
        super().__init__("clerk", [Fails(ConnectionError("gone"), after="half a sent"), "all of it"])
        self.is_read = asyncio.Event()

    async def _speak(self, *arguments: Any) -> Any:
        reply = await super()._speak(*arguments)
        await self.is_read.wait()
        return reply


def writing(agent: Writer) -> Workflow:
    @executor(id="door")
    async def wait_for_a_watcher(text: str, ctx: WorkflowContext[str]) -> None:
        await until(lambda: bool(WATCHERS))
        await ctx.send_message(text)

    clerk = AgentExecutor(agent, retry=RetryPolicy(max_attempts=2, initial_interval=0.5))
    return (
        WorkflowBuilder(name="writing", start_executor=wait_for_a_watcher).add_edge(wait_for_a_watcher, clerk).build()
    )


async def read_thread(storage: Any, agent: Writer, after: EventCursor | None = None) -> list[tuple[str | None, Any]]:
    """Return the events of the thread `r`, each checked by the protocol's types, with their ids."""
    run_input = RunAgentInput.model_validate({"threadId": "r", "runId": "1", "messages": []})
    items = []
    async with aclosing(ThreadStream(storage, RunDrivers(storage), run_input, after or EventCursor()).items()) as feed:
        async for item in feed:
            READ.validate_python(item.data)
            items.append((item.id, item.data))
            if item.data.get("delta") == "it ":
                agent.is_read.set()
    return items


async def test_text_is_sent_while_it_is_written_and_the_commit_completes_it(everywhere: Any) -> None:
    here = everywhere()
    there = here if type(here).__name__.startswith("InMemory") else everywhere()
    agent = Writer()
    workflow = writing(agent)
    worker = Worker(there, [workflow])
    working = asyncio.create_task(worker.serve())
    async with asyncio.timeout(30):
        await workflow.submit("go", run_id="r", checkpoint_storage=there)
        items = await read_thread(here, agent)
        again = await read_thread(here, agent)
    worker.stop(at_once=True)
    await working
    of_text = [
        (id, event) for id, event in items if event.get("messageId") or event.get("name") == "stepwell.withdrawn"
    ]
    first, second = (event["messageId"] for _, event in of_text if event["type"] == "TEXT_MESSAGE_START")
    assert first != second
    assert [(event["type"], event.get("delta")) for _, event in of_text] == [
        ("TEXT_MESSAGE_START", None),
        ("TEXT_MESSAGE_CONTENT", "half a sent"),
        ("TEXT_MESSAGE_END", None),
        ("CUSTOM", None),
        ("TEXT_MESSAGE_START", None),
        ("TEXT_MESSAGE_CONTENT", "all "),
        ("TEXT_MESSAGE_CONTENT", "of "),
        ("TEXT_MESSAGE_CONTENT", "it "),
        ("TEXT_MESSAGE_END", None),
    ]
    withdrawn = next(event for _, event in of_text if event["type"] == "CUSTOM")
    assert (withdrawn["name"], withdrawn["value"]) == ("stepwell.withdrawn", {"messageId": first})
    assert [id is None for id, _ in of_text] == [True] * 8 + [False]  # only the durable end can be continued from
    assert items[-1][1]["outcome"] == {"type": "success"}

    # Opened again, the thread comes from the store.
    (durable,) = [event for _, event in again if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert durable["delta"] == "all of it"
    assert durable["messageId"] not in (first, second)
    # Whoever lost the connection in the middle gets the durable message as a whole.
    stored = [(id, event) for id, event in again if id is not None]
    place = next(n for n, (_, event) in enumerate(stored) if event["type"] == "TEXT_MESSAGE_START")
    resumed = await read_thread(here, agent, read_cursor(str(stored[place - 1][0])))
    assert [(id, event) for id, event in resumed if id is not None] == stored[place:]
    await here.close()
    await there.close()


def update(text: str, *, call: int = 1, path: tuple[str, ...] = ()) -> dict[str, Any]:
    data = {"text": text, "kind": "text", "call": call}
    return {"type": "update", "executor": "clerk", "delivery": "d", "path": list(path), "data": data}


@pytest.mark.parametrize("path", [(), ("inner",)])
def test_text_that_does_not_become_durable_is_withdrawn_when_the_run_rests(path: tuple[str, ...]) -> None:
    live = LiveText("r")
    (start, _) = live.translate(update("half", path=path))
    (more,) = live.translate(update(" a sent", path=path))
    assert more.message_id == start.message_id  # type: ignore[attr-defined]
    (second, _) = live.translate(update("of another call", call=2, path=path))
    assert second.message_id != start.message_id  # type: ignore[attr-defined]
    ended = [event.model_dump() for event in live.end()]
    assert [event["type"] for event in ended] == ["TEXT_MESSAGE_END", "CUSTOM"] * 2
    assert list(live.end()) == []
    assert LiveText("r")._prefix != live._prefix  # ids of two streams differ


def complete(live: LiveText, text: str) -> list[tuple[int | None, str, str | None]]:
    """Return what is sent when the handler call is committed with this output."""
    durable = [
        TextMessageStartEvent(message_id="m", role="assistant"),
        TextMessageContentEvent(message_id="m", delta=text),
        TextMessageEndEvent(message_id="m"),
    ]
    event = WorkflowEvent("executor_completed", executor_id="clerk", delivery="d", commit=2)
    joined = live.join(event, enumerate(durable, 1))
    return [(place, item.type.value, getattr(item, "delta", None)) for place, item in joined]


def test_a_commit_sends_the_rest_of_a_text_and_what_arrives_later_is_dropped() -> None:
    live = LiveText("r")
    list(live.translate(update("all of ")))
    sent = complete(live, "all of it")
    assert sent == [(None, "TEXT_MESSAGE_CONTENT", "it"), (3, "TEXT_MESSAGE_END", None)]
    assert list(live.translate(update("it"))) == []
    assert list(live.end()) == []


def test_a_text_of_which_the_beginning_was_missed_is_replaced_by_the_durable_one() -> None:
    live = LiveText("r")
    list(live.translate(update("of it")))
    assert [(place, type) for place, type, _ in complete(live, "all of it")] == [
        (None, "TEXT_MESSAGE_END"),
        (None, "CUSTOM"),
        (1, "TEXT_MESSAGE_START"),
        (2, "TEXT_MESSAGE_CONTENT"),
        (3, "TEXT_MESSAGE_END"),
    ]
