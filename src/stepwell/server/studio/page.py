"""The routes of the page: `/`, and its files under `/studio`."""

from __future__ import annotations

from pathlib import Path

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

    return RouteSet([Route("/", open_page), Mount("/studio", StaticFiles(directory=_FILES))])
