"""AG-UI and MCP on PostgreSQL: the thread and the task of a server that was killed are found by the next one."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import mcp_types as types
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.server.processes import HEADERS, TOKEN, ServerProcess, server
from tests.server.test_ag_ui import read_events, run_input
from tests.server.test_mcp import TaskResult, ask, connected, wait_for
from tests.support.postgres_server import fresh_database

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
