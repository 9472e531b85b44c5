"""The diagram of a stored run of named agents, read without any of its classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwell.declarative.diagram import describe_route, diagram_of_nodes
from stepwell.declarative.files.reader import from_json
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.stored_run import find_node, is_of_named_agents, read_fields, read_stored
from stepwell.errors import DefinitionError
from stepwell.model.checkpoint import Checkpoint
from stepwell.viz.diagram import Arrow, Diagram, DiagramNode


def diagram_of_run(at: Checkpoint) -> Diagram | None:
    """Return the diagram of the definition that a run started with; None if it is not a run of named agents.

    If its definition was not stored or cannot be read, the diagram has no conditions.
    """
    if not is_of_named_agents(at):
        return None
    try:
        return diagram_of_nodes(NodeGraph(from_json(_definition_text(at))))
    except DefinitionError:
        ids = [id for id in map(str, at.header.signature.get("executors", ())) if find_node(id) == id]
        arrows = tuple(_read_routes(at, ids))
        nodes = tuple(map(DiagramNode, ids))
        return Diagram(nodes, arrows, ids[0] if ids else "", tuple(map(describe_route, arrows)))


def _definition_text(at: Checkpoint) -> str:
    if "definition" in at.state:
        return str(read_stored(at.state["definition"]))
    # The conductor has not handled the first message yet, so it is still in flight.
    values = [read_fields(message.payload) for message in at.messages]
    return next((str(fields["definition"]) for fields in values if "definition" in fields), "")


def _read_routes(at: Checkpoint, ids: Sequence[str]) -> Iterator[Arrow]:
    """Yield the routes that a run has stored, without their conditions."""
    begun = read_fields(at.state["begun"]) if "begun" in at.state else {}
    routes = begun.get("ways")
    # A key is `number:source>target`. An id may contain anything, so every pair is tried.
    keys = {f"{source}>{target}": (source, target) for source in ids for target in ids}
    for key in map(str, routes.get("v", ()) if isinstance(routes, dict) else ()):
        if ends := keys.get(key.partition(":")[2]):
            yield Arrow(*ends)
