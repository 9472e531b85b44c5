"""Serves a store over HTTP: what `serve` and `studio` share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.type_names import BuiltInStorage
from stepwell.error_ids import ErrorId

if TYPE_CHECKING:
    from stepwell.worker.slices import Served


NOTHING_DRIVEN = "no run is driven here: pass --work MODULE:WORKFLOW, or start `stepwell worker`"


async def serve_store(
    storage: BuiltInStorage,
    workflows: Sequence[Served],
    *,
    secret: str | None,
    host: str,
    port: int,
    announce: Callable[[str], None],
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    url: str | None = None,
    key: bytes | None = None,
) -> None:
    """Serve until a signal stops it, with a worker if there are workflows. `announce` gets the address of the page."""
    try:
        from stepwell.server import Anyone, app  # lazy: it loads the engine and Starlette
        from stepwell.server.process import bind, serve  # lazy: it loads uvicorn
    except ModuleNotFoundError as error:
        problem = f"the server needs {error.name}, which is not installed"
        raise CommandFailed(ErrorId.NOT_INSTALLED, problem, "pip install 'stepwell[server]'", USAGE) from None
    from stepwell.worker.worker import Worker  # lazy: it loads the engine

    worker = Worker(storage, workflows) if workflows else None
    application = app(
        storage,
        workflows,
        auth=secret or Anyone(),
        worker=worker,
        hosts=(host, *hosts),
        origins=origins,
        url=url,
        key=key,
    )
    listener = bind(host, port, application.state.services)
    number = listener.getsockname()[1]
    address = f"http://[{host}]:{number}" if ":" in host else f"http://{host}:{number}"
    home = address if secret is None else f"{address}/login?token={secret}"
    await serve(application, listener, lambda: announce(home))
