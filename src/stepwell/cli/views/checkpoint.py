"""Print a run at one checkpoint: what `stepwell show` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.lookup import NotFound, find_checkpoint, find_run, load_checkpoint
from stepwell.admin.values import to_data, to_lines
from stepwell.cli.type_names import BuiltInStorage, Checkpoint, Commit
from stepwell.cli.views.output import print_document, print_lines
from stepwell.cli.views.requests import format_requests
from stepwell.cli.views.text import format_moment, pluralise, printable
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.status_words import status_word
from stepwell.storage.wire.format import read_commit

RECENT = 500  # commits in which calls are counted: `show` must not get slower as a run grows


async def find_inside(storage: BuiltInStorage, run: str, checkpoint: str) -> str:
    """Return the name of a checkpoint of this run. Raises NotFound if it belongs to another run."""
    run_id = (await find_run(storage, run)).run_id
    # A number counts from the start of the run, or from its end if it is negative.
    if checkpoint.lstrip("-").isdigit():
        return f"{run_id}@{checkpoint}"
    info = await find_checkpoint(storage, checkpoint)
    if info.run_id != run_id:
        raise NotFound(f"checkpoint {info.checkpoint_id!r} belongs to run {info.run_id!r}, not to run {run_id!r}")
    return info.checkpoint_id


async def print_checkpoint(storage: BuiltInStorage, name: str, *, full: bool, json: bool) -> None:
    """Print a checkpoint, for a person or as JSON."""
    at, commit = await load_checkpoint(storage._store, await find_checkpoint(storage, name))
    after = -1 if full else max(at.number - RECENT, -1)
    records = await storage._store.history(at.run_id, after=after, upto=at.number)
    commits = [read_commit(record, DEFAULT_CODEC)[0] for record in records]
    header, progress, document = _make_header(at, commit), _compute_progress(at, commits), document_of(at)
    document["status"] = status_word(at.status, wake=at.wake)
    run = await storage.get_run(at.run_id)
    # How the run stands now is that of its newest checkpoint; an older one shows how it was then.
    if run is not None and run.number == at.number:
        header |= {"owner": run.owner, "until": run.until, "since": run.since}
        document["status"] = run.standing
    if json:
        print_document(**header, progress=progress, **to_data(document))
        return
    print_lines(_format_heading(header, document))
    print_lines(["", *_format_progress(progress)])
    if at.requests:
        print_lines(["", *format_requests(at.requests.values(), full=full)])
    # Most executors keep no state of their own.
    executors = {id: state for id, state in document["executors"].items() if state != {}}
    for title, values in (("state", document["state"]), ("executors", executors)):
        if values:
            print_lines(["", title, *(f"  {line}" for line in to_lines(values, full=full))])


def _make_header(at: Checkpoint, commit: Commit) -> dict[str, Any]:
    header = at.header
    return {
        "run_id": header.run_id,
        "workflow": header.workflow,
        "number": at.number,
        "checkpoint_id": at.stamp.checkpoint_id,
        "at": at.stamp.at,
        "kind": commit.kind.value,
        "tags": dict(header.tags),
        "parent_run": header.parent_run,
        "parent_number": header.parent_number,
        "caller": header.caller,
        "failures": [f"{failure.error_type}: {failure.message}" for failure in commit.failures],
        **dict.fromkeys(("owner", "until", "since")),
    }


def _format_heading(header: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    fields = {
        "run": f"{header['run_id']}@{header['number']}",
        "workflow": header["workflow"],
        "status": document["status"] + (f" since {format_moment(header['since'])}" if header["since"] else ""),
        "driven by": header["owner"] if document["status"] == "running" else "",
        "left by": header["owner"] if document["status"] == "stalled" else "",
        "checkpoint": header["checkpoint_id"],
        "committed": f"{format_moment(header['at'])} ({header['kind']})",
        "tags": " ".join(f"{name}={value}" for name, value in sorted(header["tags"].items())),
        "forked from": f"{header['parent_run']}@{header['parent_number']}" if header["parent_run"] else "",
        "called by": header["caller"] or "",
        "sleeps until": "" if document["wake"] is None else f"{format_moment(document['wake'])}",
    }
    yield from (f"{name:<12}  {printable(value)}" for name, value in fields.items() if value)
    yield from (f"{'failed':<12}  {printable(failure)}" for failure in header["failures"])


def _compute_progress(at: Checkpoint, commits: Sequence[Commit]) -> dict[str, Any]:
    """Return how often each executor was called, which ones are next, and which were never called."""
    # Calls that a restore has undone do not count.
    called = Counter(delivery.executor for commit in drop_undone(commits) for delivery in commit.done)
    following = list(dict.fromkeys(taker for message in at.messages for taker in message.takers))
    asking = list(dict.fromkeys(request.executor for request in at.requests.values()))
    executors = [str(id) for id in at.header.signature.get("executors", ())]
    # Pruned commits leave gaps in the numbers.
    all_kept = [commit.number for commit in commits] == list(range(at.number + 1))
    return {
        "iteration": at.iteration,
        "called": dict(called),
        "next": following,
        "asking": asking,
        "not_called": [id for id in executors if id not in {*called, *following, *asking}],
        # The calls before a fork are in the history of its parent, which is not read here.
        "history_is_whole": all_kept and at.header.parent_run is None,
        "counted_since": commits[0].number if commits else at.number,
    }


def _format_progress(progress: dict[str, Any]) -> Iterator[str]:
    is_whole = progress["history_is_whole"]
    scope = "" if is_whole else f" since commit {progress['counted_since']}, in the commits that are stored"
    yield f"progress: {pluralise(progress['iteration'], 'superstep')}"
    for title, names, more in (
        ("called", [f"{id} ({pluralise(n, 'time')})" for id, n in progress["called"].items()], scope),
        ("next", progress["next"], ""),
        ("waiting for a response", progress["asking"], ""),
        ("not called", progress["not_called"] if is_whole else [], ""),
    ):
        if names:
            yield f"  {title}: {printable(', '.join(names))}{more}"
