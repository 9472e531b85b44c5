"""Sorting and paging of open requests, for stores that hold all of them in memory."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.storage.port import Pending


def page_of(
    requests: Sequence[Pending], asked_by: str | None, due_by: str | None, past: Pending | None, limit: int | None
) -> list[Pending]:
    """Return one page of the requests that match, as `Store.pending` promises.

    Requests of one run must be passed in the order in which the run asked them.
    """
    matching = [request for request in requests if asked_by is None or request.at <= asked_by]
    if due_by is not None:
        matching = [request for request in matching if request.deadline is not None and request.deadline <= due_by]
    # The sort is stable: requests that a run asked at the same moment stay in the order of asking.
    ordered = sorted(matching, key=lambda request: _sort_key(request, due_by))
    if past is not None:
        ordered = _after(ordered, past, due_by)
    return ordered[:limit]


def _after(ordered: Sequence[Pending], past: Pending, due_by: str | None) -> list[Pending]:
    last_key = _sort_key(past, due_by)
    rest = [request for request in ordered if _sort_key(request, due_by) >= last_key]
    # If `past` was closed meanwhile, its exact position is unknown: requests with the same key come
    # again rather than being skipped.
    same = [
        n for n, request in enumerate(rest) if (request.run_id, request.request_id) == (past.run_id, past.request_id)
    ]
    # If `past` was closed meanwhile, its neighbours with the same key come again: better twice than
    # never.
    return rest[same[0] + 1 :] if same else rest


def _sort_key(request: Pending, due_by: str | None) -> tuple[str, str]:
    return (request.at if due_by is None else request.deadline or "", request.run_id)
