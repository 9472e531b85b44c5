"""The graph of a run, with how far each executor is. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from stepwell.admin.overview.branches import BranchProgress
from stepwell.admin.overview.run_overview import RunOverview
from stepwell.declarative.stored_diagram import diagram_of_run
from stepwell.declarative.stored_run import find_node, find_skipped_nodes, is_of_named_agents, without_conductor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.viz.diagram import Diagram
from stepwell.viz.placed import PlacedDiagram, place
from stepwell.viz.progress import Progress, progress_of
from stepwell.viz.workflow_diagram import diagram_of

DRAWN = 300  # nodes: nobody can read a larger graph


def place_run(overview: RunOverview) -> PlacedDiagram | None:
    """Return the graph of a run with positions and states; its `to_data` is JSON data for a page.

    None if it has more than 300 nodes.
    """
    diagram = run_diagram(overview.at)
    if len(diagram.nodes) > DRAWN:
        return None
    return place(diagram, run_progress(overview.at, overview.commits, overview.branches))


def run_diagram(at: Checkpoint) -> Diagram:
    """Return the graph that a run has; of named agents, their nodes and conditions."""
    return diagram_of_run(at) or diagram_of(at.header.signature)


def run_progress(at: Checkpoint, commits: Iterable[Commit], branches: Sequence[BranchProgress] = ()) -> Progress:
    """Return how far each executor is, given the commits that led to a checkpoint and the superstep in progress."""
    if not is_of_named_agents(at):
        return progress_of(at, commits).with_calls(_states(branches))
    progress = progress_of(at, map(without_conductor, commits))
    return dataclasses.replace(
        progress,
        waiting=_nodes(progress.waiting),
        following=_nodes(progress.following),
        skipped=find_skipped_nodes(at),
    ).with_calls(_states(branches))


def _nodes(executors: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(None, map(find_node, executors)))


def _states(branches: Sequence[BranchProgress]) -> list[tuple[str, str, float | None]]:
    return [(b.executor, b.state, None if b.time is None else b.time.seconds) for b in branches]
