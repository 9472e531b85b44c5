"""One server for programs, pages and agents of others.

It is an ASGI application over one storage. It holds nothing of its own: every answer is read from
the store, every change is written to it, and the process that drives the run finds it there. So it
works while the program that started a run is dead, any number of servers may share a store, and one
that is killed loses nothing. It drives no run, unless it is given a worker to run beside it.

    application.py  the routes, put together behind the gate
    gate.py         what every request passes: host, origin, identity, limits, headers of the answer
    identity.py     who calls, and what they may do; login.py makes a token a cookie
    services.py     what every route works with
    problems.py     errors of the library as problem details (RFC 9457)
    run_start.py    starts runs; run_driver.py says who moves them; responses.py sends responses
    run_feed.py     what streams send of runs; event_stream.py sends it, open_streams.py counts them
    api/            the HTTP API
    response_links/ pages for people who answer one request
    process.py      the server process, with uvicorn
    ag_ui/          AG-UI: threads and interrupts
    mcp.py          MCP: tools, tasks and resources
    webhook_messages.py  delivers webhooks while it runs

Starlette comes with the extra `server`; a protocol with an extra of its own is served if that is
installed, and its module alone imports it.
"""

from stepwell.codec import modules as _modules

_HOMES = {
    "Anyone": "server.identity",
    "Identity": "server.identity",
    "ServerLimits": "server.services",
    "Role": "server.identity",
    "Tokens": "server.identity",
    "app": "server.application",
    "running": "server.application",
}

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES)
