"""The route of the protocol: workflows as tools, runs as tasks and resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field
from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import stepwell
from stepwell.admin.cancellation import cancel
from stepwell.admin.lookup import NotFound
from stepwell.admin.overview.run_document import describe_run
from stepwell.admin.overview.run_overview import load_overview
from stepwell.admin.values import main_part, to_data
from stepwell.errors import StepwellError, StoreUnavailable
from stepwell.server.identity import Forbidden, Identity, Role, require
from stepwell.server.mcp.forms import make_form, read_form
from stepwell.server.responses import send_checked_response
from stepwell.server.run_start import derive_run_id, find_workflow, input_schema, start_run
from stepwell.server.services import RouteSet, Services
from stepwell.storage.pending_requests import PendingRequest
from stepwell.storage.run_list import RunInfo

TASKS = "io.modelcontextprotocol/tasks"
_SCHEME = "stepwell://runs/"
_SOON = 2.0  # seconds after which a call becomes a task
_POLL = 500  # milliseconds between two looks at a task
_LISTED = 100  # runs on a page of the list of resources
_IDEMPOTENCY_KEY = "stepwell/idempotencyKey"  # in the metadata of a call
# A run that failed is a tool that has reported an error; a task fails only if the protocol does.
_STATUSES = {"completed": "completed", "failed": "completed", "cancelled": "cancelled", "waiting": "input_required"}

Context = ServerRequestContext[Any, Any]


class TaskParams(types.RequestParams):
    """Which task."""

    task_id: str = Field(alias="taskId")


class TaskUpdateParams(TaskParams):
    """What people said to the requests of a task."""

    input_responses: dict[str, types.ElicitResult] = Field(alias="inputResponses", default_factory=dict)


def make_routes(services: Services) -> RouteSet:
    """Return the route of the protocol, and what must run while it is served."""
    door = _Door()

    @asynccontextmanager
    async def serve() -> AsyncIterator[None]:
        # A manager runs once, and a program may start its application again.
        manager = StreamableHTTPSessionManager(Tools(services).make_server(), stateless=True)
        async with manager.run():
            door.manager = manager
            yield
        door.manager = None

    return RouteSet([Route("/mcp", door, methods=["GET", "POST", "DELETE"])], serve)


class _Door:
    """The ASGI application of the protocol; callers that nobody knows are refused before it."""

    manager: StreamableHTTPSessionManager | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        require(HTTPConnection(scope), Role.SEE)
        if self.manager is None:
            raise RuntimeError("MCP is not served: enter `stepwell.server.running(app)` in your lifespan")
        await self.manager.handle_request(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Tools:
    """The workflows of a server as tools, and its runs as tasks and resources."""

    services: Services

    def make_server(self) -> Server[Any]:
        server: Server[Any] = Server(
            "stepwell",
            version=stepwell.__version__,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        server.add_request_handler("tasks/get", TaskParams, self._get_task)
        server.add_request_handler("tasks/update", TaskUpdateParams, self._update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel_task)
        server.extensions[TASKS] = {}
        return server

    # ---------------------------------------------------------------- tools

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=f"Start a run of the workflow {name!r} and return its outputs.",
                    input_schema=_object_schema(self._input_schema(name), "input"),
                )
                for name in self.services.workflows
            ]
        )

    def _input_schema(self, name: str) -> Mapping[str, Any]:
        return input_schema(find_workflow(self.services, name))

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        with _refusals():
            run_id = params.request_state
            if run_id is None:
                run_id = await self._start(params, _require(ctx, Role.OPERATE))
            else:
                responses, identity = params.input_responses or {}, _require(ctx, Role.RESPOND)
                if not await self._apply(run_id, responses, identity, params.name):
                    return _error(f"the run {run_id!r} waits until somebody responds")
            resting = asyncio.create_task(self._report_until_rest(ctx, run_id))
            try:
                await asyncio.wait((resting,), timeout=_SOON)
                if not resting.done():
                    if _knows_tasks(ctx):
                        return {"resultType": "task", **await self._describe_task(run_id)}
                    driver = await self.services.drivers.find(run_id)
                    if not driver.is_driven:
                        command = " ".join(driver.command or [])
                        return _error(f"the run {run_id!r} is stored, and {driver.sentence}: {command}")
                await resting
            finally:
                resting.cancel()
            return await self._finish(ctx, run_id)

    async def _start(self, params: types.CallToolRequestParams, identity: Identity) -> str:
        arguments: Any = params.arguments or {}
        if "input" in arguments and not _is_object(self._input_schema(params.name)):
            arguments = arguments["input"]
        key: Any = (params.meta or {}).get(_IDEMPOTENCY_KEY)
        if key is not None and (not isinstance(key, str) or not key):
            raise MCPError(types.INVALID_PARAMS, f"{_IDEMPOTENCY_KEY} must be a text, not {key!r}")
        run_id = None if key is None else derive_run_id(params.name, identity.name, key)
        return await start_run(self.services, params.name, arguments, by=identity.name, run_id=run_id)

    async def _report_until_rest(self, ctx: Context, run_id: str) -> None:
        """Report each handler call that is committed, to clients that asked for progress, until the run rests."""
        done = 0
        async for event in self.services.storage.follow(run_id, until_rest=True):
            if event.type == "executor_completed" and not event.path:
                done += 1
                await ctx.session.report_progress(done, message=f"{event.executor_id} has finished")

    async def _finish(self, ctx: Context, run_id: str) -> types.CallToolResult | types.InputRequiredResult:
        """Return what a call of a tool came to, of a run that rests."""
        run = await self._find(run_id)
        if run.standing != "waiting":
            return await self._result_of(run)
        requests = await self._find_requests(run_id)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            open_ids = ", ".join(request.request_id for request in requests)
            return _error(
                f"the run {run_id!r} waits for people: {open_ids}; this client cannot ask them. Call again, with the "
                f"same {_IDEMPOTENCY_KEY} in its metadata, when somebody has responded elsewhere"
            )
        asked: dict[str, types.InputRequest] = {_key(request): _elicit(request) for request in requests}
        return types.InputRequiredResult(input_requests=asked, request_state=run_id)

    async def _result_of(self, run: RunInfo) -> types.CallToolResult:
        if run.standing == "cancelled":
            return _error(f"the run {run.run_id!r} was cancelled")
        overview = await load_overview(self.services.storage, run.run_id)
        if run.standing == "failed":
            why = "; ".join(f"{failure.error_type}: {failure.message}" for failure in overview.failures)
            return _error(f"the run {run.run_id!r} failed: {why}")
        outputs = [to_data(main_part(output)) for output in overview.outputs]
        texts = [output if isinstance(output, str) else json.dumps(output) for output in outputs]
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text) for text in texts],
            structured_content={"run_id": run.run_id, "outputs": outputs},
        )

    # ---------------------------------------------------------------- requests of runs

    async def _find(self, run_id: str) -> RunInfo:
        run = await self.services.storage.get_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id!r}")
        return run

    async def _find_requests(self, run_id: str) -> list[PendingRequest]:
        requests = await self.services.storage.pending_requests(run_id=run_id)
        return [request for request in requests if request.answered is None]

    async def _apply(
        self, run_id: str, responses: Mapping[str, Any], identity: Identity, workflow: str | None = None
    ) -> bool:
        """Send what people said to the requests of a run; False if somebody put off an answer.

        Who declines to answer, and may, cancels the run. What is not open, because it was answered, is
        ignored: a client that lost the connection sends it again.
        """
        run, storage = await self._find(run_id), self.services.storage
        if workflow not in (None, run.workflow_name):
            raise NotFound(f"the run {run_id!r} is not one of {workflow!r}")
        open_requests = {_key(request): request for request in await self._find_requests(run_id)}
        is_complete = True
        for key, response in responses.items():
            request = open_requests.get(key)
            if request is None:
                continue
            request_id = request.request_id
            if not isinstance(response, types.ElicitResult):
                raise MCPError(types.INVALID_PARAMS, f"the response to {request_id!r} is not that of an elicitation")
            if response.action == "accept":
                value = read_form(request.response_schema, response.content or {})
                await send_checked_response(storage, run_id, request_id, value, by=identity.name)
            elif response.action == "decline":
                if not identity.role.includes(Role.OPERATE):
                    raise Forbidden(f"{identity.name!r} may not cancel runs, and so has to answer {request_id!r}")
                await cancel(storage, run_id, reason=f"the request {request_id} was declined", by=identity.name)
            else:
                is_complete = False
        return is_complete

    # ---------------------------------------------------------------- tasks

    async def _describe_task(self, run_id: str) -> dict[str, Any]:
        run = await self._find(run_id)
        document: dict[str, Any] = {
            "taskId": run_id,
            "status": _STATUSES.get(run.standing, "working"),
            "createdAt": run.began_at,
            "lastUpdatedAt": run.changed_at,
            "ttlMs": None,
            "pollIntervalMs": _POLL,
        }
        if document["status"] == "working":
            document["statusMessage"] = (await self.services.drivers.find(run_id)).sentence
        elif document["status"] == "input_required":
            requests = await self._find_requests(run_id)
            document["inputRequests"] = {_key(request): _dump(_elicit(request)) for request in requests}
        elif document["status"] == "completed":
            document["result"] = _dump(await self._result_of(run))
        return document

    async def _get_task(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        with _refusals():
            _require_tasks(ctx, Role.SEE)
            return {"resultType": "complete", **await self._describe_task(params.task_id)}

    async def _update_task(self, ctx: Context, params: TaskUpdateParams) -> dict[str, Any]:
        with _refusals():
            await self._apply(params.task_id, params.input_responses, _require_tasks(ctx, Role.RESPOND))
            return {"resultType": "complete"}

    async def _cancel_task(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        with _refusals():
            identity = _require_tasks(ctx, Role.OPERATE)
            await self._find(params.task_id)
            await cancel(self.services.storage, params.task_id, reason="the task was cancelled", by=identity.name)
            return {"resultType": "complete"}

    # ---------------------------------------------------------------- resources

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with _refusals():
            cursor = None if params is None else params.cursor
            after = None if cursor is None else await self._find(cursor)
            runs = await self.services.storage.list_runs(limit=_LISTED, after=after)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{_SCHEME}{quote(run.run_id, safe='')}",
                    name=run.run_id,
                    description=f"a run of {run.workflow_name}, {run.standing}",
                    mime_type="application/json",
                )
                for run in runs
            ],
            next_cursor=runs[-1].run_id if len(runs) == _LISTED else None,
        )

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=f"{_SCHEME}{{run_id}}", name="run", description="a run", mime_type="application/json"
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        with _refusals():
            uri = str(params.uri)
            if not uri.startswith(_SCHEME):
                raise NotFound(f"there is no resource {uri!r}; those here start with {_SCHEME}")
            document = await describe_run(self.services.storage, unquote(uri.removeprefix(_SCHEME)))
            contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(document))
            return types.ReadResourceResult(contents=[contents])


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn errors of the library into those of the protocol, with their sentence."""
    try:
        yield
    except StoreUnavailable as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from error
    except StepwellError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error


def _require(ctx: Context, role: Role) -> Identity:
    assert ctx.request is not None
    return require(ctx.request, role)


def _knows_tasks(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and TASKS in (capabilities.extensions or {})


def _require_tasks(ctx: Context, role: Role) -> Identity:
    if not _knows_tasks(ctx):
        required: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"declare the extension {TASKS}", data=required)
    return _require(ctx, role)


def _error(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def _dump(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _object_schema(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a schema of an object: that itself, or an object that holds it under a name."""
    if _is_object(schema):
        return dict(schema)
    return {"type": "object", "properties": {name: dict(schema)}, "required": [name]}


def _key(request: PendingRequest) -> str:
    """Return a name for a request that no other one of its run has, even if it is asked again."""
    return f"{request.request_id}@{request.asked_at.isoformat()}"


def _elicit(request: PendingRequest) -> types.ElicitRequest:
    form = make_form(request.response_schema)
    params = types.ElicitRequestFormParams(message=request.question, requested_schema=form)
    return types.ElicitRequest(params=params)
