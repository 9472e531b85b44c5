"""Operations on the runs of a server: the functions of `admin`, over its HTTP API.

They take and return the values of those functions, so that a command reports one result, wherever it
comes from, and raise the same errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from stepwell import admin
from stepwell.cli.failures import CommandFailed
from stepwell.cli.server_client import ServerClient
from stepwell.error_ids import ErrorId
from stepwell.model.event import CheckpointInfo

_PAGE = 500  # requests


@dataclass(frozen=True)
class ChangedRun:
    """The place of a run after a change, and who drives it then."""

    place: CheckpointInfo
    driver: str


def find_checkpoint(server: ServerClient, name: str, *, run: str | None = None) -> CheckpointInfo:
    """Return the checkpoint that `name` means; of a run, `name` may be its number."""
    place = server.get("checkpoint", name=name, run=run)
    return CheckpointInfo(place["run_id"], place["checkpoint_id"], place["number"])


def load_requests(server: ServerClient, place: CheckpointInfo) -> list[admin.OpenRequest]:
    """Return the requests that were open at a checkpoint. Their data is plain JSON."""
    run = server.get("runs", place.run_id, at=place.number)
    return [_open_request(place.run_id, document) for document in run["requests"].values()]


def open_requests(server: ServerClient, run: str | None = None) -> Iterator[admin.OpenRequest]:
    """Yield the open requests of a run, or of all, oldest first."""
    after: str | None = ""
    while after is not None:
        page = server.get("requests", run=run, stored=True, after=after or None, limit=_PAGE)
        for document in page["requests"]:
            yield _open_request(document["run_id"], document)
        after = page["next"]


def _open_request(run_id: str, document: Mapping[str, Any]) -> admin.OpenRequest:
    from stepwell.storage.answers import PendingAnswer  # lazy: 40 ms, and few commands read requests

    is_answered = document.get("answered", False)
    return admin.OpenRequest(
        run_id,
        document["request_id"],
        document["executor"],
        document["data"],
        request_type=document["request_type"],
        response_type=document["response_type"],
        response_schema=document["response_schema"],
        asked_at=document["asked_at"],
        deadline=document["deadline"],
        answered=PendingAnswer(document["answered_by"], document["answered_at"]) if is_answered else None,
        _key="",
    )


def fork(server: ServerClient, place: CheckpointInfo, **wanted: Any) -> ChangedRun:
    """Create a new run from a checkpoint of another."""
    return _read_changed_run(server.post("runs", place.run_id, "fork", number=place.number, **wanted))


def preview_fork(server: ServerClient, place: CheckpointInfo, **wanted: Any) -> Mapping[str, Any]:
    """Return what `fork` would change."""
    query = {"stored": True, "lines": True}
    return server.post("runs", place.run_id, "fork", "preview", query=query, number=place.number, **wanted)


def diff(server: ServerClient, before: str | None, after: str, *, full: bool) -> Mapping[str, Any]:
    """Return the difference between two checkpoints; without the first, from the parent of a fork."""
    return server.get("diff", before=before, after=after, stored=True, lines=True, full=full)


def restore(server: ServerClient, place: CheckpointInfo) -> ChangedRun:
    """Move a run back to one of its checkpoints."""
    return _read_changed_run(server.post("runs", place.run_id, "restore", number=place.number))


def prune(
    server: ServerClient,
    *,
    runs: Sequence[str],
    last: int | None,
    age: timedelta | None,
    standings: Sequence[str],
    entirely: bool,
    compact: bool,
    dry_run: bool,
) -> tuple[admin.PruneReport, int]:
    """Prune or delete runs; return what was removed, and by how many bytes the store shrank."""
    pruned = server.post(
        "prune",
        runs=list(runs),
        keep_last=last,
        keep_for_seconds=None if age is None else age.total_seconds(),
        status=list(standings),
        entirely=entirely,
        compact=compact,
        dry_run=dry_run,
    )
    if pruned["not_compacted"] is not None:
        raise not_compacted_error(pruned["not_compacted"])
    checkpoints = [
        CheckpointInfo(run, "", number) for run, numbers in pruned["checkpoints"].items() for number in numbers
    ]
    report = admin.PruneReport(
        tuple(pruned["runs"]), tuple(checkpoints), pruned["bytes"], dry_run=pruned["dry_run"], stays=pruned["stays"]
    )
    return report, pruned["given_back"]


def not_compacted_error(why: str) -> CommandFailed:
    """Return the error for a store that could not be shrunk after runs were deleted."""
    problem = f"the runs and checkpoints are deleted, but their disk space could not be freed: {why}"
    return CommandFailed(ErrorId.NOT_COMPACTED, problem, "the store reuses the space")


def _read_changed_run(answer: Mapping[str, Any]) -> ChangedRun:
    place = CheckpointInfo(answer["run_id"], answer["checkpoint_id"], answer["number"])
    return ChangedRun(place, answer["driver"]["sentence"])
