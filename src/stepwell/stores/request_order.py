"""Open questions in order and page by page, for stores that have them all at hand."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.storage.port import Pending


def page_of(
    questions: Sequence[Pending], asked_by: str | None, due_by: str | None, past: Pending | None, limit: int | None
) -> list[Pending]:
    """Those that match, as the port says. They are given in the order in which each run asked."""
    matching = [request for request in questions if asked_by is None or request.at <= asked_by]
    if due_by is not None:
        matching = [request for request in matching if request.deadline is not None and request.deadline <= due_by]
    line = sorted(matching, key=lambda request: _place(request, due_by))
    if past is not None:
        line = _after(line, past, due_by)
    return line[:limit]


def _after(line: Sequence[Pending], past: Pending, due_by: str | None) -> list[Pending]:
    last = _place(past, due_by)
    rest = [request for request in line if _place(request, due_by) >= last]
    same = [
        n for n, request in enumerate(rest) if (request.run_id, request.request_id) == (past.run_id, past.request_id)
    ]
    return rest[same[0] + 1 :] if same else rest


def _place(request: Pending, due_by: str | None) -> tuple[str, str]:
    return (request.at if due_by is None else request.deadline or "", request.run_id)
