"""What every route works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute

from stepwell.server.damaged_entries import KeptSurvey
from stepwell.server.identity import Authenticator
from stepwell.server.kept_metrics import KeptMetrics
from stepwell.server.open_streams import OpenStreams
from stepwell.server.page_looks import PageLooks
from stepwell.server.run_driver import RunDrivers
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker.slices import Served


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """How much one server accepts."""

    body: int = 4 * 1024 * 1024  # bytes of a request
    page: int = 500  # items on a page
    streams: int = 1000  # event streams that are open
    streams_each: int = 500  # of one caller
    writes: float = 200.0  # requests per second that change something, of one caller, or one address without a token
    patience: float = 15.0  # seconds for a request to arrive, and for a client to read what its stream sends
    heartbeat: float = 15.0  # seconds of silence after which a stream sends a comment


@dataclass(frozen=True, slots=True)
class Services:
    """What a server was made from."""

    storage: BuiltInStorage
    workflows: Mapping[str, Served]
    auth: Authenticator
    limits: ServerLimits
    streams: OpenStreams
    drivers: RunDrivers
    looks: PageLooks[Any]
    survey: KeptSurvey
    metrics: KeptMetrics
    key: bytes  # that response links are signed with


@dataclass(frozen=True, slots=True)
class RouteSet:
    """The routes of one protocol, and what must run while they are served."""

    routes: Sequence[BaseRoute]
    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None
