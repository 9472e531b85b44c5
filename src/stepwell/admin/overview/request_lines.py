"""Format the open requests of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.overview.request_documents import value_of
from stepwell.admin.phrases import FormatMoment, format_age, format_deadline, pluralise
from stepwell.admin.questions import sentence_for
from stepwell.admin.values import TEXT, to_line, to_lines
from stepwell.model.request import Request
from stepwell.model.visible_text import visible
from stepwell.storage import clock
from stepwell.storage.answers import Response
from stepwell.storage.checked_reads import read_moment


def format_requests(
    requests: Iterable[Request],
    pending: Mapping[str, Response] | None = None,
    *,
    moment: FormatMoment,
    full: bool = False,
) -> Iterator[str]:
    """Yield the number of requests, then each with its question and its response, if that has arrived."""
    requests, now = list(requests), clock.now()
    if requests:
        yield pluralise(len(requests), "open request")
    for request in requests:
        due = None if request.deadline is None else read_moment(request.deadline, f"request {request.id!r}")
        until = "" if due is None else f", deadline {format_deadline(due, now)}"
        wanted = f"from {request.executor}, {format_age(request.at, now)}, expects {request.response_type}"
        yield f"  {visible(request.id)}: {visible(wanted)}{until}"
        stored = plain_value(request.payload)
        if (sentence := sentence_for(stored)) is not None:
            yield f"    {sentence}"
        # What reads as a sentence is shown in parts only if all of it is wanted.
        if sentence is None or full:
            yield from (f"    {line}" for line in to_lines(stored, full=full))
        if pending and (answer := pending.get(request.id)) is not None:
            by = f" by {answer.by}" if answer.by else ""
            when = f" at {moment(answer.at)}" if answer.at else ""
            yield f"    answered{visible(by)}{when}; the response is not applied yet"
            yield f"    response: {to_line(value_of(answer), longest=None if full else TEXT)}"
            if answer.comment:
                yield f"    comment: {visible(answer.comment)}"
