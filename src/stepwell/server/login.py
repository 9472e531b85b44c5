"""Exchanges a token in an address for a cookie, so that a browser does not keep the token in its history."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from stepwell.server.identity import COOKIE, Tokens, Unauthorized
from stepwell.server.services import RouteSet, Services


def make_routes(services: Services) -> RouteSet:
    """Return the route of the exchange, if callers are known by tokens."""
    auth = services.auth
    if not isinstance(auth, Tokens):
        return RouteSet([])

    async def log_in(request: Request) -> Response:
        token = request.query_params.get("token", "")
        if auth.find(token) is None:
            raise Unauthorized("this server has no such token; `stepwell serve` prints the address with its own")
        # Only to a path of this server, below where it is mounted.
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}/", status_code=303)
        response.set_cookie(
            COOKIE, token, path=f"{root}/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return response

    return RouteSet([Route("/login", log_in)])
