"""Print a run at one checkpoint: what `stepwell show` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.lookup import NotFound, find_checkpoint, find_run, load_checkpoint
from stepwell.cli.views.output import print_document, print_lines
from stepwell.cli.views.progress import compute_progress
from stepwell.cli.views.requests import format_requests
from stepwell.cli.views.text import format_moment, printable, tree
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.status_words import status_word
from stepwell.storage.wire.format import read_commit

if TYPE_CHECKING:
    from stepwell.model.checkpoint import Checkpoint
    from stepwell.model.commit import Commit
    from stepwell.storage.built_in_storage import BuiltInStorage

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
    at, commit, commits = await _read_checkpoint(storage, name, None if full else RECENT)
    progress = compute_progress(at, commits)
    document = document_of(at)
    if json:
        status = status_word(at.status, wake=at.wake)
        print_document(**_make_header(at, commit), progress=progress.as_dict(), **{**document, "status": status})
        return
    print_lines(_format_heading(at, commit))
    print_lines(["", *progress.describe()])
    print_lines(_separate(format_requests(at.requests.values(), full=full)))
    print_lines(_format_section("state", document["state"], full))
    # Most executors keep no state of their own.
    executors = {id: state for id, state in document["executors"].items() if state != {}}
    print_lines(_format_section("executors", executors, full))


async def _read_checkpoint(
    storage: BuiltInStorage, name: str, recent: int | None
) -> tuple[Checkpoint, Commit, list[Commit]]:
    """Return the checkpoint, its commit, and the stored commits up to it, or the last `recent`."""
    at, commit = await load_checkpoint(storage._store, await find_checkpoint(storage, name))
    after = -1 if recent is None else max(at.number - recent, -1)
    records = await storage._store.history(at.run_id, after=after, upto=at.number)
    return at, commit, [read_commit(record, DEFAULT_CODEC)[0] for record in records]


def _make_header(at: Checkpoint, commit: Commit) -> dict[str, Any]:
    header = at.header
    failed = [f"{failure.error_type}: {failure.message}" for failure in commit.failures]
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
        "failures": failed,
    }


def _format_heading(at: Checkpoint, commit: Commit) -> Iterator[str]:
    header = _make_header(at, commit)
    fields = {
        "run": f"{header['run_id']}@{at.number}",
        "workflow": header["workflow"],
        "status": status_word(at.status, wake=at.wake),
        "checkpoint": header["checkpoint_id"],
        "committed": f"{format_moment(header['at'])} UTC ({header['kind']})",
        "tags": " ".join(f"{name}={value}" for name, value in sorted(header["tags"].items())),
        "forked from": f"{header['parent_run']}@{header['parent_number']}" if header["parent_run"] else "",
        "called by": header["caller"] or "",
        "sleeps until": "" if at.wake is None else f"{format_moment(at.wake)} UTC",
    }
    yield from (f"{name:<12}  {printable(value)}" for name, value in fields.items() if value)
    yield from (f"{'failed':<12}  {printable(failure)}" for failure in header["failures"])


def _separate(section: Iterable[str]) -> list[str]:
    """Put an empty line before a section that is not empty."""
    inside = list(section)
    return ["", *inside] if inside else []


def _format_section(title: str, values: dict[str, Any], full: bool) -> Iterator[str]:
    if values:
        yield from ["", title, *(f"  {line}" for line in tree(values, full=full))]
