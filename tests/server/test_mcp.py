"""MCP, with the official client over HTTP: workflows are tools, runs are tasks and resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import Field

from stepwell.server.mcp import TASKS
from tests.server.shop_processes import TOKEN, free_port, server, worker

pytestmark = pytest.mark.process


class TaskResult(types.Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str


class TaskClient(ClientExtension):
    """Tells the server that this client knows tasks."""

    identifier = TASKS

    def claims(self) -> list[ResultClaim[Any]]:
        async def resolve(result: TaskResult, ctx: ClaimContext) -> types.CallToolResult:
            raise AssertionError("the tests look at tasks themselves")

        return [ResultClaim(result_type="task", model=TaskResult, resolve=resolve)]


class TaskRequest(types.Request[Any, str]):
    """A request about a task."""


class TaskDocument(types.Result):
    """What the server says of a task."""

    model_config = {"extra": "allow"}


@asynccontextmanager
async def connected(port: int, *, token: str = TOKEN, tasks: bool = False, **options: Any) -> AsyncIterator[Client]:
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30)
    transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
    extensions = [TaskClient()] if tasks else []
    async with http, Client(transport, extensions=extensions, **options) as client:
        yield client


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    request = TaskRequest(method=method, params=params)
    answer = await client.session.send_request(request, TaskDocument)
    return answer.model_dump(by_alias=True)


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def wait_for(client: Client, task_id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (document := await ask(client, "tasks/get", taskId=task_id))["status"] != status:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return document


async def test_a_workflow_is_a_tool_and_its_runs_are_resources(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port), worker(tmp_path):
        async with connected(port) as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.name == "orders"
            assert tool.input_schema["required"] == ["item"]
            assert set(tool.input_schema["properties"]) == {"item", "amount"}
            result = await client.call_tool("orders", {"item": "hat"})
            assert not result.is_error
            assert text_of(result) == "one hat"
            run_id = result.structured_content["run_id"]
            failed = await client.call_tool("orders", {"item": "hat", "amount": 11})
            assert failed.is_error
            assert "ValueError: 11 are too many" in text_of(failed)
            with pytest.raises(MCPError, match="does not match Order"):
                await client.call_tool("orders", {"amount": "many"})
            with pytest.raises(MCPError, match="no workflow 'refunds'"):
                await client.call_tool("refunds", {})

            listed = (await client.list_resources()).resources
            assert run_id in {resource.name for resource in listed}
            uri = next(resource.uri for resource in listed if resource.name == run_id)
            (contents,) = (await client.read_resource(uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert json.loads(contents.text)["status"] == "completed"
            with pytest.raises(MCPError):
                await client.read_resource("stepwell://runs/nobody")


async def test_people_are_asked_in_the_middle_of_a_call(tmp_path: Path) -> None:
    asked: list[types.ElicitRequestParams] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"granted": len(asked) == 1, "note": "fine"})

    port = free_port()
    with server(tmp_path, port), worker(tmp_path):
        async with connected(port, elicitation_callback=answer) as client:
            result = await client.call_tool("orders", {"item": "hats", "amount": 2})
            assert text_of(result) == "passed"
            assert isinstance(asked[0], types.ElicitRequestFormParams)
            assert asked[0].message == "May 2 hats pass?"
            assert set(asked[0].requested_schema["properties"]) == {"granted", "note"}


async def test_a_task_is_found_again_after_the_server_was_killed(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port) as first:
        async with connected(port, tasks=True) as client:
            task = await client.session.call_tool("orders", {"item": "hats", "amount": 3}, allow_claimed=True)
            assert isinstance(task, TaskResult)
            assert task.status == "working"
            assert "nobody drives" in (await ask(client, "tasks/get", taskId=task.task_id))["statusMessage"]
        first.kill()
        first.wait()
    with server(tmp_path, port), worker(tmp_path):
        async with connected(port, tasks=True) as client:
            document = await wait_for(client, task.task_id, "input_required")
            params = document["inputRequests"]["pass"]["params"]
            assert params["message"] == "May 3 hats pass?"
            said = {"pass": {"action": "accept", "content": {"granted": True}}}
            await ask(client, "tasks/update", taskId=task.task_id, inputResponses=said)
            document = await wait_for(client, task.task_id, "completed")
            assert document["result"]["content"][0]["text"] == "passed"

            other = await client.session.call_tool(
                "orders", {"item": "hats", "amount": 4}, allow_claimed=True, allow_input_required=True
            )
            assert isinstance(other, types.InputRequiredResult)  # it was not long
            run_id = str(other.request_state)
            await ask(client, "tasks/cancel", taskId=run_id)
            assert (await wait_for(client, run_id, "cancelled"))["taskId"] == run_id
            with pytest.raises(MCPError, match="there is no task 'nobody'"):
                await ask(client, "tasks/get", taskId="nobody")


async def test_who_has_no_token_is_refused_and_a_call_that_nobody_drives_says_so(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port):
        async with httpx.AsyncClient() as stranger:
            assert (await stranger.post(f"http://127.0.0.1:{port}/mcp", json={})).status_code == 401
        async with connected(port) as client:
            result = await client.call_tool("orders", {"item": "hat"})
            assert result.is_error
            assert "stepwell worker MODULE:WORKFLOW" in text_of(result)
