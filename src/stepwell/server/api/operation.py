"""What an operation of the API is; how it is found by method and path, called and answered."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stepwell.admin.lookup import find_run
from stepwell.error_ids import ErrorId
from stepwell.errors import StepwellError
from stepwell.model.valid_text import is_text
from stepwell.server.api.repetition import CallKey, FirstCall
from stepwell.server.identity import Identity, Role, require
from stepwell.server.problems import RequestRefused, answer_problem
from stepwell.server.services import Services

QueryT = TypeVar("QueryT", bound=msgspec.Struct)
BodyT = TypeVar("BodyT")

IDEMPOTENCY_KEY = "idempotency-key"
_LONGEST_KEY = 255
Name = Annotated[str, Meta(min_length=1, max_length=500)]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[QueryT, BodyT]):
    """One call of an operation: `query` has the parameters of the path and of the query."""

    services: Services
    identity: Identity
    query: QueryT
    body: BodyT
    headers: Mapping[str, str] = field(repr=False)
    key: CallKey | None = None  # the idempotency key
    first: FirstCall | None = None  # what was noted of the first call with it, if this one repeats it

    def derive_id(self, purpose: str) -> str | None:
        """Return an id for what the call makes, the same for all calls with its key; None without a key."""
        return None if self.key is None else self.key.derive_id(purpose)


Act = Callable[[ApiCall[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A function of the API: where it is found, who may call it, and the types of its call and its answer."""

    method: str
    path: str  # below /api/v1, such as /runs/{run_id}
    role: Role
    act: Act
    query: type[msgspec.Struct]
    body: type[msgspec.Struct] | None
    answer: Any  # a struct; a Response is made by the operation itself
    status: HTTPStatus
    media_type: str
    writes: bool  # whether it changes what is stored

    @property
    def name(self) -> str:
        return self.act.__name__

    @property
    def parameters_in_path(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.act) or "").partition("\n")[0]


def operation(
    method: str,
    path: str,
    role: Role,
    *,
    status: HTTPStatus = HTTPStatus.OK,
    media_type: str = "application/json",
    writes: bool | None = None,
) -> Callable[[Act], Operation]:
    """Make an operation from a function; the types are those of its signature."""

    def make(act: Act) -> Operation:
        hints = get_type_hints(act)
        query, body = get_args(hints["call"])
        assert get_origin(hints["call"]) is ApiCall
        return Operation(
            method,
            path,
            role,
            act,
            query=query,
            body=None if body is type(None) else body,
            answer=hints["return"],
            status=status,
            media_type=media_type,
            writes=method == "POST" if writes is None else writes,
        )

    return make


class Api:
    """An ASGI application that calls operations."""

    def __init__(self, services: Services, operations: Sequence[Operation]) -> None:
        self._services = services
        self._operations = [(one, one.path.strip("/").split("/")) for one in operations]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except StepwellError as error:
            response = answer_problem(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        operation, in_path = self._find(request)
        identity = require(request, operation.role)
        call = ApiCall(
            self._services,
            identity,
            _read_query(operation, request, in_path),
            await _read_body(operation, request),
            request.headers,
        )
        try:
            key = _read_key(request) if operation.writes else None
            if key is not None:
                content = await self._act_once(operation, call, CallKey(self._services.storage, identity.name, key))
                return Response(content, operation.status, media_type=operation.media_type)
            answer = await operation.act(call)
        except ValueError as error:
            # What the library refuses is a plain ValueError or one of its own errors. Subclasses of
            # others are bugs.
            if isinstance(error, StepwellError) or type(error) is not ValueError:
                raise
            raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code=ErrorId.WRONG_USAGE) from None
        if isinstance(answer, Response):
            return answer
        return Response(msgspec.json.encode(answer), operation.status, media_type=operation.media_type)

    async def _act_once(self, operation: Operation, call: ApiCall[Any, Any], key: CallKey) -> bytes:
        run_id: str | None = getattr(call.query, "run_id", None)

        async def find_head() -> int | None:
            return None if run_id is None else (await find_run(self._services.storage, run_id)).number

        async def act(first: FirstCall) -> Any:
            return await operation.act(replace(call, key=key, first=first if first.is_repeated else None))

        content = msgspec.json.encode([operation.name, call.query, call.body], order="deterministic")
        return await key.answer(content, find_head, act)

    def _find(self, request: Request) -> tuple[Operation, dict[str, str]]:
        parts = _path_parts(request.scope)
        others = set[str]()
        for operation, pattern in self._operations:
            in_path = _match(pattern, parts)
            if in_path is None:
                continue
            # An event stream has no end that a HEAD could be answered with.
            has_head = operation.method == "GET" and operation.media_type != "text/event-stream"
            if operation.method == request.method or (has_head and request.method == "HEAD"):
                return operation, in_path
            others.add(operation.method)
        path = request.url.path
        if others:
            allowed = ", ".join(sorted(others))
            raise RequestRefused(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{path} cannot be used with {request.method}",
                f"use {allowed}",
                headers={"allow": allowed},
            )
        raise RequestRefused(
            HTTPStatus.NOT_FOUND, f"there is no {path} here", "GET /api/v1/openapi.json lists what there is"
        )


def _path_parts(scope: Scope) -> list[str]:
    """Return the parts of the path below the API, decoded: an id may contain a slash, sent as %2F."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    raw = scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    for start, letter in enumerate(raw):
        if letter == "/" and unquote(raw[start:]) == path:
            return [unquote(part) for part in raw[start:].strip("/").split("/")]
    return path.strip("/").split("/")


def _match(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    in_path = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            in_path[expected[1:-1]] = part
        elif expected != part:
            return None
    return in_path


def _read_query(operation: Operation, request: Request, in_path: Mapping[str, str]) -> msgspec.Struct:
    parameters: dict[str, Any] = {}
    lists = {one.name for one in msgspec.structs.fields(operation.query) if get_origin(one.type) is list}
    for name, text in request.query_params.multi_items():
        if name in lists:
            parameters.setdefault(name, []).append(text)
        elif name in parameters or name in in_path:
            raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the parameter {name!r} is given twice")
        else:
            parameters[name] = text
    try:
        return msgspec.convert({**parameters, **in_path}, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"a parameter is wrong: {error}") from None


async def _read_body(operation: Operation, request: Request) -> Any:
    if operation.body is None:
        return None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    text = await request.body()
    if text and content_type != "application/json":
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body is {content_type or 'of no type'!r}, not JSON",
            "send it with the header `Content-Type: application/json`",
        )
    try:
        return msgspec.json.decode(text or b"{}", type=operation.body)
    except msgspec.ValidationError as error:
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the body is wrong: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None


def _read_key(request: Request) -> str | None:
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and is_text(key)):
        raise RequestRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"an idempotency key has 1 to {_LONGEST_KEY} characters, not {len(key)}"
        )
    return key
