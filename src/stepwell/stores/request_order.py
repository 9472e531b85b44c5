"""Open questions in order and page by page, for stores that have them all at hand."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.storage.port import Pending


def page_of(
    questions: Sequence[Pending], asked_by: str | None, due_by: str | None, past: Pending | None, limit: int | None
) -> list[Pending]:
    """Those that match, as the port says. They are given in the order in which each run asked."""
    found = [one for one in questions if asked_by is None or one.at <= asked_by]
    if due_by is not None:
        found = [one for one in found if one.deadline is not None and one.deadline <= due_by]
    line = sorted(found, key=lambda one: _place(one, due_by))
    if past is not None:
        line = _after(line, past, due_by)
    return line[:limit]


def _after(line: Sequence[Pending], past: Pending, due_by: str | None) -> list[Pending]:
    last = _place(past, due_by)
    rest = [one for one in line if _place(one, due_by) >= last]
    same = [n for n, one in enumerate(rest) if (one.run_id, one.request_id) == (past.run_id, past.request_id)]
    return rest[same[0] + 1 :] if same else rest


def _place(one: Pending, due_by: str | None) -> tuple[str, str]:
    return (one.at if due_by is None else one.deadline or "", one.run_id)
