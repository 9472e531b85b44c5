"""MCP at `/mcp`: a workflow is a tool, a call of it is a run, a task is a run by its id.

A call that is not done soon becomes a task, for clients that declared the extension for them;
others wait, and hear of its progress if they asked for that. A request of the run is an elicitation:
in a task its status is `input_required`, in a call the answer says so, and the client calls again
with what people said (`requestState` is the id of the run). All of it is in the store: a server that
is killed is replaced by any other.

    routes.py  tools, tasks and resources
    forms.py   requests as forms with plain fields
"""

from stepwell.server.mcp.routes import make_routes

__all__ = ["make_routes"]
