"""Format the open requests of a run, as lines and as JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.values import to_data, to_lines
from stepwell.cli.type_names import Request
from stepwell.cli.views.text import format_moment, pluralise, printable


def format_requests(requests: Iterable[Request], *, full: bool = False) -> Iterator[str]:
    """Yield the number of requests, then each with its payload; nothing if there are none."""
    requests = list(requests)
    if requests:
        yield pluralise(len(requests), "open request")
    for request in requests:
        wanted = f"from {request.executor} at {format_moment(request.at)}, expects {request.response_type}"
        until = f", deadline {format_moment(request.deadline)}" if request.deadline else ""
        yield f"  {printable(request.id)}: {printable(wanted)}{until}"
        yield from (f"    {line}" for line in to_lines(plain_value(request.payload), full=full))


def request_to_dict(request: Request) -> dict[str, Any]:
    """Return the request as JSON."""
    return {
        "request_id": request.id,
        "executor": request.executor,
        "request_type": request.request_type,
        "response_type": request.response_type,
        "response_schema": msgspec.json.decode(request.schema),
        "asked_at": request.at,
        "deadline": request.deadline,
        "question": to_data(plain_value(request.payload)),
    }
