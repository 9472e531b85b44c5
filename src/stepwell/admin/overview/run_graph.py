"""The graph of a run, with how far each executor is, and the graphs of the sub-workflows it called."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from stepwell.admin.overview.ancestry import read_ancestors
from stepwell.admin.overview.branches import BranchProgress
from stepwell.admin.overview.run_overview import RECENT, RunOverview, load_overview
from stepwell.declarative.stored_diagram import diagram_of_run
from stepwell.declarative.stored_run import find_node, find_skipped_nodes, is_of_named_agents, without_conductor
from stepwell.declarative.stored_traffic import find_traffic
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import child_run_id
from stepwell.viz.diagram import Diagram
from stepwell.viz.placed_diagram import CalledRun, PlacedDiagram, place
from stepwell.viz.progress import Progress, progress_of
from stepwell.viz.traffic import Traffic, traffic_of
from stepwell.viz.workflow_diagram import diagram_of

DRAWN = 300  # nodes: nobody can read a larger graph
_CALLS = 3  # latest calls of an executor, in which a run that it called is looked for


async def place_run(
    storage: BuiltInStorage, overview: RunOverview, opened: Collection[str] = ()
) -> PlacedDiagram | None:
    """Return the graph of a run with positions and states; its `to_data` is JSON data for a page.

    None if it has more than 300 nodes. In the graph of a fork, what only ran before the fork has run,
    and names the run it ran in. A node that called a sub-workflow knows the latest run of it, and
    contains its graph if that run is among those `opened`.
    """
    diagram = run_diagram(overview.at)
    if len(diagram.nodes) > DRAWN:
        return None
    called = {
        executor: CalledRun(run_id, await _place_inner(storage, run_id, opened) if run_id in opened else None)
        for executor, run_id in (await _find_called_runs(storage, overview)).items()
    }
    before = await read_ancestors(storage._store, overview.run.parent, limit=RECENT - len(overview.commits))
    progress = run_progress(overview.at, overview.commits, overview.branches)
    for run_id, commits in before:
        progress = progress.with_ancestor(run_progress(overview.at, commits), run_id)
    older = [commit for _, commits in reversed(before) for commit in commits]
    return place(diagram, progress, called, _run_traffic(overview.at, [*older, *overview.commits], diagram))


async def _place_inner(storage: BuiltInStorage, run_id: str, opened: Collection[str]) -> PlacedDiagram | None:
    return await place_run(storage, await load_overview(storage, run_id), opened)


async def _find_called_runs(storage: BuiltInStorage, overview: RunOverview) -> dict[str, str]:
    """Return the latest run that each executor called as a sub-workflow, by executor."""
    at, deliveries = overview.at, dict[str, list[str]]()
    for _, done in overview.calls:
        deliveries.setdefault(done.executor, []).append(done.delivery)
    for branch in overview.branches:
        deliveries.setdefault(branch.executor, []).append(branch.delivery)
    runs = {child.executor: child.run_id for child in at.children.values()}
    for executor, calls in deliveries.items():
        # What an executor is, is not stored. The id is derived, so whether it calls a sub-workflow shows in
        # whether such a run exists; a delivery that is an answer to one has none.
        for delivery in calls[: -_CALLS - 1 : -1]:
            run_id = child_run_id(at.run_id, at.header.epoch, delivery)
            if executor not in runs and await storage._store.run(run_id) is not None:
                runs[executor] = run_id
    return runs


def run_diagram(at: Checkpoint) -> Diagram:
    """Return the graph that a run has; of named agents, their nodes and conditions."""
    return diagram_of_run(at) or diagram_of(at.header.signature)


def _run_traffic(at: Checkpoint, commits: Iterable[Commit], diagram: Diagram) -> Traffic:
    return find_traffic(at, diagram) if is_of_named_agents(at) else traffic_of(at, commits)


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
