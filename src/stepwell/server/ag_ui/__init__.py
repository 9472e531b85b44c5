"""AG-UI at `/ag-ui/{workflow}`: a thread is a run, an interrupt is a request.

`POST` takes a RunAgentInput and answers with a stream of events, each made and checked by the
protocol's own types. The thread's id is the id of the run. A thread that is new is stored, and
somebody who drives runs drives it; one that exists is followed. Answers to interrupts are responses
to requests. Nothing is held here: a client that lost its connection continues with `Last-Event-ID`,
at any server on the store.

Events of commits have an id, their commit and their place among its events. State, and what is said
about drivers, is as of now, has no id, and is sent anew to whom continues.

    routes.py         what an input asks for
    thread_stream.py  the stream of one request
    translation.py    durable events as those of the protocol
    live_text.py      text of agents while they write it
"""

from stepwell.server.ag_ui.routes import make_routes

__all__ = ["make_routes"]
