"""AG-UI and MCP on PostgreSQL: the thread and the task of a server that was killed are found by the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from psycopg.conninfo import conninfo_to_dict

from stepwell import PostgresCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from stepwell.server import app, running
from stepwell.worker import Worker
from tests.server.processes import HEADERS, TOKEN, ServerProcess, server
from tests.server.test_ag_ui import read_events, run_input
from tests.server.test_mcp import TaskResult, ask, connected, wait_for
from tests.support.postgres_server import fresh_database, own_server
from tests.worker.samples import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def one() -> Iterator[ServerProcess]:
    """A server, with a worker, on an empty database."""
    with fresh_database() as dsn:
        parts = conninfo_to_dict(dsn)
        name = parts.pop("dbname")
        with server(f"postgresql:///{name}?{urlencode(parts)}", "--work", "tests.server.flows:refunds") as process:
            yield process


def test_a_thread_of_ag_ui_is_resumed_at_another_server(one: ServerProcess) -> None:
    url = f"{one.address}/ag-ui/refunds"
    asked = read_events(httpx.post(url, json=run_input("t", "400"), headers=HEADERS, timeout=30).text)
    (interrupt,) = asked[-1][1]["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["message"]) == ("approval", "refund 400?")
    one.kill()
    one.start()
    entry = {"interruptId": "approval", "status": "resolved", "payload": True}
    resumed = httpx.post(url, json=run_input("t", resume=[entry]), headers=HEADERS, timeout=30)
    events = [event for _, event in read_events(resumed.text)]
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["refunded"]
    assert events[-1]["outcome"] == {"type": "success"}


async def test_a_task_of_mcp_is_completed_at_another_server(one: ServerProcess) -> None:
    port = int(one.address.rpartition(":")[2])
    async with connected(port, token=TOKEN, tasks=True) as client:
        (tool,) = (await client.list_tools()).tools
        (name,) = tool.input_schema["properties"]
        called = await client.session.call_tool("refunds", {name: 400}, allow_claimed=True, allow_input_required=True)
        # A task if the call was slow, otherwise the question; the run is the same.
        assert isinstance(called, TaskResult | types.InputRequiredResult)
        task_id = called.task_id if isinstance(called, TaskResult) else str(called.request_state)
    one.kill()
    one.start()
    async with connected(port, token=TOKEN, tasks=True) as client:
        document = await wait_for(client, task_id, "input_required")
        ((key, request),) = document["inputRequests"].items()
        params = request["params"]
        assert params["message"] == "refund 400?"
        (field,) = params["requestedSchema"]["properties"]
        responses = {key: {"action": "accept", "content": {field: True}}}
        await ask(client, "tasks/update", taskId=task_id, inputResponses=responses)
        document = await wait_for(client, task_id, "completed")
        assert document["result"]["content"][0]["text"] == "refunded"


async def test_streams_outlast_a_crash_of_the_database_and_calls_say_that_it_is_away() -> None:
    gate = asyncio.Event()

    @executor(id="waiter")
    async def wait(text: str, ctx: WorkflowContext[None, str]) -> None:
        await gate.wait()
        ctx.set_state("said", text)
        await ctx.yield_output(text)

    with own_server() as database:
        async with PostgresCheckpointStorage(database.dsn, timeout=3) as storage:
            workflow = WorkflowBuilder(name="waiting", start_executor=wait, checkpoint_storage=storage).build()
            application = app(storage, [workflow], auth=TOKEN, worker=Worker(storage, [workflow]))
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(application), base_url="http://127.0.0.1", headers=HEADERS
            )
            async with running(application), client, connected(application, token=TOKEN, tasks=True) as agent:
                body = run_input("t", "hello")
                watching = asyncio.create_task(client.post("/ag-ui/waiting", json=body, timeout=60))
                await eventually(lambda: is_driven(storage))
                await asyncio.to_thread(database.stop, "immediate")
                with pytest.raises(MCPError, match="start the server again") as away:
                    await ask(agent, "tasks/get", taskId="t")
                assert away.value.error.code == types.INTERNAL_ERROR
                database.start()
                gate.set()
                events = read_events((await watching).text)
                ids = [id for id, _ in events if id is not None]
                assert len(ids) == len(set(ids)) > 0
                assert events[-1][1]["outcome"] == {"type": "success"}
                assert [e["delta"] for _, e in events if e["type"] == "STATE_DELTA"] == [
                    [{"op": "add", "path": "/said", "value": "hello"}]
                ]
                document = await wait_for(agent, "t", "completed")
                assert document["result"]["content"][0]["text"] == "hello"


async def is_driven(storage: PostgresCheckpointStorage) -> bool:
    return [run.standing for run in await storage.list_runs()] == ["running"]
