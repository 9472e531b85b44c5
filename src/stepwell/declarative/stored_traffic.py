"""Which arrows a stored run of named agents took, read without any of its classes.

Its messages go to and from the conductor. The routes that a node took are in the state of the node:
those of its latest turn, so an arrow that only an earlier round of a loop took is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.declarative.conductor import NODES
from stepwell.declarative.stored_run import read_fields
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.viz.diagram import END, START, Diagram
from stepwell.viz.traffic import Ends, Traffic


def find_traffic(at: Checkpoint, diagram: Diagram) -> Traffic:
    """Return the arrows of the diagram of a run of named agents that it took."""
    nodes = {key.removeprefix(NODES): read_fields(value) for key, value in at.state.items() if key.startswith(NODES)}
    taken = frozenset(_find_taken(nodes, diagram, is_over=at.status is WorkflowRunState.IDLE))
    running = {id for id, fields in nodes.items() if fields.get("status") == "running"}
    return Traffic(taken, frozenset(ends for ends in taken if ends[1] in running))


def _find_taken(nodes: dict[str, dict[str, object]], diagram: Diagram, *, is_over: bool) -> Iterator[Ends]:
    for arrow in diagram.arrows:
        source, target = nodes.get(arrow.source, {}), nodes.get(arrow.target, {})
        # A key is `number:source>target`, and an id may contain anything.
        routes = {str(key).partition(":")[2] for key in _list_of(source.get("taken"))}
        if (
            f"{arrow.source}>{arrow.target}" in routes
            or (arrow.source == START and target.get("runs"))
            or (arrow.target == END and is_over and source.get("status") == "succeeded")
            or target.get("instead_of") == arrow.source
        ):
            yield arrow.source, arrow.target


def _list_of(stored: object) -> list[object]:
    """Return the items of a stored tuple."""
    items = stored.get("v") if isinstance(stored, dict) else stored
    return items if isinstance(items, list) else []
