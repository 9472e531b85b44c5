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
from starlette.applications import Starlette

from stepwell import InMemoryCheckpointStorage, SQLiteCheckpointStorage, admin
from stepwell.server import app, running
from stepwell.server.mcp import routes
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker
from tests.server.shop import make_orders
from tests.server.shop_processes import TOKEN, free_port, server, worker


class TaskResult(types.Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str


class TaskClient(ClientExtension):
    """Tells the server that this client knows tasks."""

    identifier = routes.TASKS

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
async def connected(
    server: int | Starlette, *, token: str = TOKEN, tasks: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """A client of a server, which is an application or listens at a port."""
    inside = None if isinstance(server, int) else httpx2.ASGITransport(server)
    http = httpx2.AsyncClient(transport=inside, headers={"authorization": f"Bearer {token}"}, timeout=30)
    port = server if isinstance(server, int) else 80
    transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
    extensions = [TaskClient()] if tasks else []
    async with http, Client(transport, extensions=extensions, **options) as client:
        yield client


@asynccontextmanager
async def open_shop() -> AsyncIterator[tuple[Starlette, BuiltInStorage]]:
    """A server in this process, with a worker, and its storage."""
    storage = InMemoryCheckpointStorage()
    orders = make_orders(storage)
    application = app(storage, [orders], auth=TOKEN, worker=Worker(storage, [orders]))
    async with running(application):
        yield application, storage


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


async def read_run(client: Client, run_id: str) -> dict[str, Any]:
    (contents,) = (await client.read_resource(f"stepwell://runs/{run_id}")).contents
    assert isinstance(contents, types.TextResourceContents)
    document: dict[str, Any] = json.loads(contents.text)
    return document


async def test_a_workflow_is_a_tool_and_its_runs_are_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_shop() as (application, _), connected(application) as client:
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

        assert (await read_run(client, run_id))["status"] == "completed"
        with pytest.raises(MCPError):
            await client.read_resource("stepwell://runs/nobody")
        monkeypatch.setattr(routes, "_LISTED", 1)
        pages, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            pages += [resource.uri for resource in page.resources]
            if (cursor := page.next_cursor) is None:
                break
        assert len(set(pages)) == 2
        assert f"stepwell://runs/{run_id}" in pages


async def test_people_are_asked_in_the_middle_of_a_call() -> None:
    asked: list[types.ElicitRequestFormParams] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        asked.append(params)
        note = "ask again" if len(asked) == 1 else ""
        return types.ElicitResult(action="accept", content={"granted": True, "note": note})

    async with open_shop() as (application, _), connected(application, elicitation_callback=answer) as client:
        result = await client.call_tool("orders", {"item": "hats", "amount": 2})
        assert text_of(result) == "passed"
        assert [params.message for params in asked] == ["May 2 hats pass?", "Once more: may it pass?"]
        assert set(asked[0].requested_schema["properties"]) == {"granted", "note"}


async def test_a_call_reports_its_progress_to_a_client_that_asks_for_it() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with open_shop() as (application, _), connected(application) as client:
        await client.call_tool("orders", {"item": "hat"}, progress_callback=hear)
    assert heard == [(1, None, "desk has finished")]


async def test_a_client_of_an_earlier_version_calls_again_when_somebody_has_answered() -> None:
    call: dict[str, Any] = {"item": "hats", "amount": 2}
    meta: Any = {"stepwell/idempotencyKey": "order-7"}
    async with open_shop() as (application, storage), connected(application, mode="legacy") as client:
        assert text_of(await client.call_tool("orders", {"item": "hat"})) == "one hat"
        waiting = await client.call_tool("orders", call, meta=meta)
        assert waiting.is_error
        assert "waits for people: pass; this client cannot ask them" in text_of(waiting)
        (request,) = await storage.pending_requests()
        await admin.respond(storage, request.run_id, "pass", {"granted": True})
        assert text_of(await client.call_tool("orders", call, meta=meta)) == "passed"


async def test_tasks_need_the_extension_and_a_failed_run_is_a_tool_that_reports_an_error() -> None:
    async with open_shop() as (application, storage):
        async with connected(application) as client:
            assert (await client.call_tool("orders", {"item": "hat", "amount": 11})).is_error
            (run,) = await storage.list_runs()
            with pytest.raises(MCPError, match="declare the extension") as refused:
                await ask(client, "tasks/get", taskId=run.run_id)
            assert refused.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert refused.value.error.data == {"requiredCapabilities": {"extensions": {routes.TASKS: {}}}}
        async with connected(application, tasks=True) as client:
            document = await ask(client, "tasks/get", taskId=run.run_id)
            assert (document["status"], document["result"]["isError"]) == ("completed", True)
            assert "ValueError: 11 are too many" in document["result"]["content"][0]["text"]


async def test_a_request_that_is_asked_again_has_another_key() -> None:
    async with open_shop() as (application, _), connected(application, tasks=True) as client:
        call = {"item": "hats", "amount": 2}
        asked = await client.session.call_tool("orders", call, allow_input_required=True, allow_claimed=True)
        task_id = asked.task_id if isinstance(asked, TaskResult) else str(getattr(asked, "request_state", None))
        ((first, _),) = (await wait_for(client, task_id, "input_required"))["inputRequests"].items()
        content = {"granted": True, "note": "ask again"}
        said = {first: {"action": "accept", "content": content}}
        await ask(client, "tasks/update", taskId=task_id, inputResponses=said)
        async with asyncio.timeout(20):
            while True:
                document = await ask(client, "tasks/get", taskId=task_id)
                ((second, _),) = document.get("inputRequests", {first: None}).items()
                if second != first:
                    break
                await asyncio.sleep(0.02)
        # The answer to the first question, sent again, is not one to the second.
        await ask(client, "tasks/update", taskId=task_id, inputResponses=said)
        assert (await ask(client, "tasks/get", taskId=task_id))["inputRequests"].keys() == {second}


async def test_who_declines_cancels_the_run_and_who_puts_it_off_leaves_it_open() -> None:
    action: Literal["decline", "cancel"] = "cancel"

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    async with (
        open_shop() as (application, storage),
        connected(application, elicitation_callback=answer) as client,
    ):
        put_off = await client.call_tool("orders", {"item": "hats", "amount": 2})
        assert "waits until somebody responds" in text_of(put_off)
        assert [run.standing for run in await storage.list_runs()] == ["waiting"]
        action = "decline"
        assert "was cancelled" in text_of(await client.call_tool("orders", {"item": "hats", "amount": 2}))


async def test_a_task_of_one_server_is_answered_at_a_second_one(tmp_path: Path) -> None:
    first, second = (SQLiteCheckpointStorage(tmp_path / "runs.db") for _ in range(2))
    orders = make_orders(first)
    one = app(first, [orders], auth=TOKEN, worker=Worker(first, [orders]))
    other = app(second, [make_orders(second)], auth=TOKEN)
    async with running(one), running(other), connected(one) as here, connected(other, tasks=True) as there:
        call = {"item": "hats", "amount": 2}
        asked = await here.session.call_tool("orders", call, allow_input_required=True)
        task_id = str(getattr(asked, "request_state", None))
        ((key, _),) = (await wait_for(there, task_id, "input_required"))["inputRequests"].items()
        said = {key: {"action": "accept", "content": {"granted": True}}}
        await ask(there, "tasks/update", taskId=task_id, inputResponses=said)
        document = await wait_for(there, task_id, "completed")
        assert document["result"]["content"][0]["text"] == "passed"
    await first.close()
    await second.close()


async def list_runs(port: int) -> list[str]:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers) as api:
        runs = (await api.get(f"http://127.0.0.1:{port}/api/v1/runs")).json()["runs"]
        return [run["run_id"] for run in runs]


async def call_until_the_connection_breaks(port: int, arguments: dict[str, Any], meta: Any) -> bool:
    """Return whether it broke before there was an answer."""
    try:
        async with connected(port) as client:
            await client.call_tool("orders", arguments, meta=meta)
    except* (MCPError, httpx2.HTTPError):
        pass
    else:
        return False
    return True


@pytest.mark.process
async def test_a_call_that_is_repeated_after_its_server_was_killed_starts_one_run(tmp_path: Path) -> None:
    port, order = free_port(), {"item": "hat"}
    meta: Any = {"stepwell/idempotencyKey": "order-7"}
    with server(tmp_path, port) as first:
        calling = asyncio.create_task(call_until_the_connection_breaks(port, order, meta))
        async with asyncio.timeout(20):
            while not (started := await list_runs(port)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        first.kill()  # before it has answered: nobody drives the run
        first.wait()
        assert await calling
    with server(tmp_path, port), worker(tmp_path):
        async with connected(port) as client:
            assert text_of(await client.call_tool("orders", order, meta=meta)) == "one hat"
            again = await client.call_tool("orders", order, meta=meta)
            assert again.structured_content["run_id"] == started[0]
            assert await list_runs(port) == started
            with pytest.raises(MCPError, match="was started with another input"):
                await client.call_tool("orders", {"item": "cap"}, meta=meta)
            wrong: Any = {"stepwell/idempotencyKey": 7}
            with pytest.raises(MCPError, match="must be a text, not 7"):
                await client.call_tool("orders", order, meta=wrong)
            await client.call_tool("orders", order)
            assert len(await list_runs(port)) == 2


@pytest.mark.process
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
            ((key, request),) = document["inputRequests"].items()
            assert request["params"]["message"] == "May 3 hats pass?"
            said = {key: {"action": "accept", "content": {"granted": True}}}
            await ask(client, "tasks/update", taskId=task.task_id, inputResponses=said)
            document = await wait_for(client, task.task_id, "completed")
            assert document["result"]["content"][0]["text"] == "passed"
            # Sent again, by a client that lost the connection: nothing happens.
            await ask(client, "tasks/update", taskId=task.task_id, inputResponses=said)

            other = await client.session.call_tool(
                "orders", {"item": "hats", "amount": 4}, allow_claimed=True, allow_input_required=True
            )
            assert isinstance(other, types.InputRequiredResult)  # it was not long
            run_id = str(other.request_state)
            await ask(client, "tasks/cancel", taskId=run_id)
            assert (await wait_for(client, run_id, "cancelled"))["taskId"] == run_id
            with pytest.raises(MCPError, match="there is no run 'nobody'"):
                await ask(client, "tasks/get", taskId="nobody")


@pytest.mark.process
async def test_who_has_no_token_is_refused_and_a_call_that_nobody_drives_says_so(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port):
        async with httpx.AsyncClient() as stranger:
            assert (await stranger.post(f"http://127.0.0.1:{port}/mcp", json={})).status_code == 401
        async with connected(port) as client:
            result = await client.call_tool("orders", {"item": "hat"})
            assert result.is_error
            assert "stepwell worker MODULE:WORKFLOW" in text_of(result)
