"""All operations of the API, as one application."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import Mount

from stepwell.server.api import (
    decisions,
    differences,
    operations,
    pruning,
    requests,
    run_changes,
    runs,
    service,
    streams,
)
from stepwell.server.api.openapi import make_document
from stepwell.server.api.operation import Api, ApiCall, Nothing, Operation, operation
from stepwell.server.identity import Role
from stepwell.server.services import RouteSet, Services

PATH = "/api/v1"


@operation("GET", "/openapi.json", Role.SEE)
async def get_openapi(call: ApiCall[Nothing, None]) -> Response:
    """Return this document."""
    document: dict[str, Any] = make_document(OPERATIONS)
    return Response(msgspec.json.encode(document), media_type="application/json")


OPERATIONS: tuple[Operation, ...] = (
    *service.OPERATIONS,
    *runs.OPERATIONS,
    *run_changes.OPERATIONS,
    *differences.OPERATIONS,
    *pruning.OPERATIONS,
    *requests.OPERATIONS,
    *decisions.OPERATIONS,
    *operations.OPERATIONS,
    *streams.OPERATIONS,
    get_openapi,
)


def make_routes(services: Services) -> RouteSet:
    """Return the routes of the API."""
    return RouteSet([Mount(PATH, Api(services, OPERATIONS))])
