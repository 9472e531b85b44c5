"""Clients of a server in this process, which compare every answer of the API with its OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import httpx
import jsonschema_rs

from stepwell.server import Identity, Role, ServerLimits, Tokens, app
from stepwell.server.api.openapi import make_document
from stepwell.server.api.routes import OPERATIONS
from stepwell.worker.slices import Served

ADA, BOB, EVE = "ada-may-do-everything", "bob-may-respond-only", "eve-may-see-and-no-more"
IDENTITIES = {
    ADA: Identity("ada", Role.OPERATE),
    BOB: Identity("bob", Role.RESPOND),
    EVE: Identity("eve", Role.SEE),
}
DOCUMENT = make_document(OPERATIONS)
called: set[str] = set()  # operations whose answers were compared


def with_token(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def compare(response: httpx.Response) -> None:
    """Raise unless an answer of the API is one that the document describes."""
    path = response.request.url.raw_path.decode().partition("?")[0]
    if "/api/v1" not in path or response.headers.get("content-type", "").startswith("text/event-stream"):
        return
    await response.aread()
    below = path.split("/api/v1", 1)[1]
    for pattern, methods in DOCUMENT["paths"].items():
        operation = methods.get(response.request.method.lower())
        if operation is None or re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), below) is None:
            continue
        answers = operation["responses"]
        described = answers.get(str(response.status_code), answers["default"])
        media_type = response.headers["content-type"].partition(";")[0]
        schema = described["content"][media_type].get("schema")
        if schema is not None:
            jsonschema_rs.validate({**schema, "components": DOCUMENT["components"]}, response.json())
        if response.is_success:
            called.add(operation["operationId"])
        return
    assert response.status_code in (401, 404, 405, 413, 421, 403), unquote(path)


@asynccontextmanager
async def serving(
    storage: Any,
    workflows: Sequence[Served] = (),
    *,
    token: str = ADA,
    host: str = "127.0.0.1",
    limits: ServerLimits | None = None,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server on this storage, with the token of somebody."""
    served = app(storage, workflows, **{"auth": Tokens(IDENTITIES), "limits": limits, **options})
    async with (
        served.router.lifespan_context(served),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(served),
            base_url=f"http://{host}",
            headers=with_token(token),
            event_hooks={"response": [compare]},
        ) as client,
    ):
        yield client
