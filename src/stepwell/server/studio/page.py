"""The routes of the page: `/`, and its files under `/studio`."""

from __future__ import annotations

from pathlib import Path

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from stepwell.server.identity import Role, require
from stepwell.server.services import RouteSet, Services

_FILES = Path(__file__).parent / "static"


def make_routes(services: Services) -> RouteSet:
    """Return the routes. The files hold nothing of the store, so everybody may read them."""

    async def open_page(request: Request) -> Response:
        require(request, Role.SEE)
        return FileResponse(_FILES / "index.html")

    # Only the files are compressed: an event stream has to leave at once.
    files = Mount("/studio", StaticFiles(directory=_FILES), middleware=[Middleware(GZipMiddleware)])
    return RouteSet([Route("/", open_page), files])
