"""A run as one JSON document: what `stepwell show --json` prints and a page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Any

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.overview.commit_items import commit_items
from stepwell.admin.overview.next_command import command_of
from stepwell.admin.overview.request_documents import answer_to_dict, request_to_dict
from stepwell.admin.overview.run_graph import place_run
from stepwell.admin.overview.run_overview import RunOverview, load_overview
from stepwell.admin.overview.sentence import sentence_of
from stepwell.admin.overview.timeline import timeline_of
from stepwell.admin.overview.turns import turns_of
from stepwell.admin.phrases import FormatMoment, format_utc
from stepwell.admin.tracebacks import shorten_traceback
from stepwell.admin.values import main_part, to_data
from stepwell.declarative.stored_run import find_node, values_of
from stepwell.model.event import WorkflowErrorDetails
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage

_FRAMES = 30  # lines of a traceback


async def describe_run(
    storage: BuiltInStorage,
    name: str,
    *,
    every_commit: bool = False,
    opened: Collection[str] = (),
    moment: FormatMoment = format_utc,
) -> dict[str, Any]:
    """Return all that a page shows of a run as JSON data: the overview, the turns of agents, timeline and graph.

    `name` is that of a run, or of one of its checkpoints, as `find_checkpoint` takes it. Reads the
    latest 500 commits up to it, unless `every_commit`: `commits` lists them, and `newest` is the number
    of the newest one. `timeline` is None if nothing has run, `graph` if it has more than 300 nodes.
    The graph of a sub-workflow is part of it if the id of its run is among those `opened`. The `input`
    of a fork is that of the run `input_run`, which it descends from. Raises NotFound or Ambiguous.
    """
    overview = await load_overview(storage, name, every_commit=every_commit)
    timeline, placed = timeline_of(overview.at, overview.commits), await place_run(storage, overview, opened)
    return {
        **overview_to_dict(overview, now=clock.now(), moment=moment),
        "timeline": None if timeline is None else timeline.to_dict(),
        "graph": None if placed is None else placed.to_data(),
        "commits": [item.to_dict() for item in commit_items(overview)],
        "newest": overview.run.number,
    }


def overview_to_dict(overview: RunOverview, *, now: datetime, moment: FormatMoment = format_utc) -> dict[str, Any]:
    """Return an overview as JSON data. `moment` formats the times in its sentence; all others are UTC, ISO 8601."""
    at, commit, header = overview.at, overview.commit, overview.at.header
    document = to_data(document_of(at))
    run = overview.run if overview.is_head else None
    document["status"] = overview.standing
    document["requests"] = {
        id: request_to_dict(request, overview.pending.get(id)) for id, request in overview.requests.items()
    }
    turns = [turn.to_dict() for turn in turns_of(overview)]
    command = command_of(overview)
    return {
        "run_id": header.run_id,
        "workflow": header.workflow,
        "sentence": sentence_of(overview, now=now, moment=moment),
        "command": None if command is None else command.to_list(),
        "workers": [worker.name for worker in overview.workers],
        "number": at.number,
        "checkpoint_id": at.stamp.checkpoint_id,
        "at": at.stamp.at,
        "kind": commit.kind.value,
        "by": commit.by,
        "reason": commit.reason,
        "owner": None if run is None else run.owner,
        "until": None if run is None else run.until,
        "since": None if run is None else run.since,
        "tags": dict(header.tags),
        "priority": header.priority,
        "parent_run": header.parent_run,
        "parent_number": header.parent_number,
        "caller": header.caller,
        "input": to_data(overview.input),
        "input_run": overview.input_run,
        "outputs": [to_data(_data_of_output(overview, output)) for output in overview.outputs],
        "failures": [f"{failure.error_type}: {failure.message}" for failure in overview.failures],
        "error": _error_to_dict(overview.failures[0]) if overview.failures else None,
        "answers": [
            {**answer_to_dict(answer), "commit": commit.number}
            for commit in overview.commits
            for answer in commit.answers
        ],
        "branches": [branch.to_dict() for branch in overview.branches],
        "calls": [
            {"executor": turn["executor"], "commit": turn["commit"], **call} for turn in turns for call in turn["calls"]
        ],
        "turns": turns,
        "progress": compute_progress(overview),
        **document,
        **({"values": values_of(document["state"])} if overview.of_named_agents else {}),
    }


def compute_progress(overview: RunOverview) -> dict[str, Any]:
    """Return how often each executor was called, which ones are next, and which were never called."""
    at, commits = overview.at, overview.commits
    called = Counter(done.executor for _, done in overview.calls)
    following = overview.following
    asking = list(dict.fromkeys(request.executor for request in overview.requests.values()))
    under_way = [branch.executor for branch in overview.branches]
    executors = [str(id) for id in at.header.signature.get("executors", ())]
    if overview.of_named_agents:
        executors = [id for id in executors if find_node(id) == id]
    return {
        "iteration": at.iteration,
        "called": dict(called),
        "next": following,
        "asking": asking,
        "not_called": [id for id in executors if id not in {*called, *following, *asking, *under_way}],
        # The calls before a fork are in the history of its parent, which is not read here.
        "history_is_whole": overview.is_whole and at.header.parent_run is None,
        "counted_since": commits[0].number if commits else at.number,
    }


def _data_of_output(overview: RunOverview, output: Any) -> Any:
    # Named agents yield one outcome with everything in it; its output is what the run is for.
    return main_part(output) if overview.of_named_agents else output


def _error_to_dict(failure: WorkflowErrorDetails) -> dict[str, Any]:
    lines, _ = shorten_traceback(failure.traceback or "", most=_FRAMES)
    return {
        "type": failure.error_type,
        "message": failure.message,
        "executor": failure.executor_id,
        "traceback": failure.traceback,
        "own_frames": "\n".join(lines) or None,  # without those of this package
    }
