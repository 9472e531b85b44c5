"""The application: routes behind the gate."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from stepwell.errors import DefinitionError, StepwellError
from stepwell.server import login
from stepwell.server.api import routes as api_routes
from stepwell.server.api.runs import read_page
from stepwell.server.damaged_entries import KeptSurvey
from stepwell.server.gate import Gate
from stepwell.server.identity import Authenticator, Identity, Role, Tokens
from stepwell.server.kept_metrics import KeptMetrics
from stepwell.server.open_streams import OpenStreams
from stepwell.server.page_looks import PageLooks
from stepwell.server.problems import handle_bug, handle_error
from stepwell.server.response_links import routes as link_routes
from stepwell.server.run_driver import RunDrivers
from stepwell.server.services import RouteSet, ServerLimits, Services
from stepwell.server.studio import page
from stepwell.server.webhook_messages import delivering
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker.slices import Served, workflow_of
from stepwell.worker.worker import Worker

_LOG = logging.getLogger("stepwell")
_SHORTEST_KEY = 32  # bytes

# Protocols of others: the library that each needs, and the module here that alone imports it. Its
# `make_routes(services)` returns a RouteSet.
_PROTOCOLS: tuple[tuple[str, str], ...] = (
    ("ag_ui", "stepwell.server.ag_ui"),
    ("mcp", "stepwell.server.mcp"),
)


def app(
    storage: BuiltInStorage,
    workflows: Sequence[Served] = (),
    *,
    auth: Authenticator | str | None = None,
    worker: Worker | None = None,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    limits: ServerLimits | None = None,
    url: str | None = None,
    key: bytes | None = None,
) -> Starlette:
    """Return an ASGI application over the runs of a storage, to be served, or mounted under any path.

    `workflows` can be started through it; runs of all others can be seen, answered and moved as
    well. It drives no run itself; `worker` is one to run beside it. A program that mounts the
    application enters `running` for that in its own lifespan.

    `auth` is a token, whose holder may do everything, or a function that says who calls; without
    it, a token is made up and written to the log. `hosts` are the names under which the server is
    reached, besides those of this machine; `origins` are sites whose pages may use it. Webhooks are
    delivered while it runs; their messages hold response links if `url` says where people reach it.
    `key` is what response links are signed with: a secret of 32 bytes or more. Servers with the same
    one honour each other's links, also after a restart. Without it, the key is derived from `auth` if
    that is a token, and new with each process otherwise.

    Raises DefinitionError for a storage or workflows that cannot be served, for a `url` that is not
    one of http, and for a short `key`.
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise DefinitionError(f"the url {url!r} is not of the form https://HOST/PATH")
    services = _make_services(storage, workflows, auth=auth, limits=limits or ServerLimits(), key=key)
    reached_at = () if url is None else (urlsplit(url).hostname or "",)
    middleware = [Middleware(Gate, services, (*hosts, *reached_at), origins)]
    if origins:
        cors = Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
        middleware.insert(0, cors)

    own = (api_routes, login, link_routes, page)
    route_sets = [*(module.make_routes(services) for module in own), *_make_protocols(services)]

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if worker is not None:
                await stack.enter_async_context(_working(worker))
            await stack.enter_async_context(delivering(services, url))
            for route_set in route_sets:
                if route_set.lifespan is not None:
                    await stack.enter_async_context(route_set.lifespan())
            yield

    application = Starlette(
        routes=[route for route_set in route_sets for route in route_set.routes],
        middleware=middleware,
        exception_handlers={StepwellError: handle_error, Exception: handle_bug},
        lifespan=lifespan,
    )
    application.state.services = services
    return application


@asynccontextmanager
async def running(application: Starlette) -> AsyncIterator[None]:
    """Run what works beside an application that is mounted in another one, inside the block."""
    async with application.router.lifespan_context(application):
        yield


def _make_services(
    storage: BuiltInStorage,
    workflows: Sequence[Served],
    *,
    auth: Authenticator | str | None,
    limits: ServerLimits,
    key: bytes | None,
) -> Services:
    """Check what `app` was passed, and return it as every route gets it."""
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(f"a server needs a built-in storage, not an instance of {type(storage).__name__}")
    if key is not None and len(key) < _SHORTEST_KEY:
        raise DefinitionError(f"a key of response links has {_SHORTEST_KEY} bytes or more, not {len(key)}")
    if auth is None:
        auth = secrets.token_urlsafe(24)
        _LOG.warning("the token of the server is %s", auth)
    survey = KeptSurvey(storage)
    return Services(
        storage,
        {workflow_of(served).name: served for served in workflows},
        auth=Tokens({auth: Identity("operator", Role.OPERATE)}) if isinstance(auth, str) else auth,
        limits=limits,
        streams=OpenStreams(limits.streams, limits.streams_each),
        drivers=RunDrivers(storage),
        looks=PageLooks(partial(read_page, storage, survey)),
        survey=survey,
        metrics=KeptMetrics(storage),
        key=_link_key(auth) if key is None else key,
    )


def _link_key(auth: Authenticator | str) -> bytes:
    # Links outlive the process if the token does, and hold for every server with the same one.
    return hashlib.sha256(b"response links\0" + auth.encode()).digest() if isinstance(auth, str) else os.urandom(32)


def _make_protocols(services: Services) -> list[RouteSet]:
    """Return the routes of every protocol whose library is installed."""
    modules = [module for library, module in _PROTOCOLS if find_spec(library) is not None]
    return [import_module(module).make_routes(services) for module in modules]


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        await task
