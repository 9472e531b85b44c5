"""The events of a run on a server, as `events` and `tail` print them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepwell.cli.server_client import ServerClient
from stepwell.cli.views.output import print_json_line, print_lines

_COMMITS = 100  # on a page of events
_HIDDEN = "checkpoint"  # an event that only repeats the commit


def print_history(server: ServerClient, run: str, *, json: bool) -> None:
    """Print the events of a run, oldest first."""
    after: int | None = -1
    while after is not None:
        page = server.get("runs", run, "events", after=after, lines=not json)
        for document in page["events"]:
            _print(document, json=json)
        after = page["next"]


def print_latest(server: ServerClient, run: str, count: int, *, json: bool) -> tuple[str, int]:
    """Print the latest events of a run; return its id, and the number of the newest commit."""
    newest = server.get("runs", run, "checkpoints", limit=1)
    run_id, number = newest["run_id"], newest["checkpoints"][0]["number"]
    latest: list[dict[str, Any]] = []
    last = number
    while last >= 0 and len(latest) < count:
        after = max(last - _COMMITS, -1)
        page = server.get("runs", run_id, "events", after=after, lines=not json)
        latest = [document for document in page["events"] if document["commit"] <= last] + latest
        last = after
    for document in latest[-count:] if count else ():
        if document["type"] != _HIDDEN:
            _print(document, json=json)
    return run_id, number


def follow_on_server(server: ServerClient, run_id: str, after: int, *, wait: bool, json: bool) -> str:
    """Print new events of a run until it stops; return its final status. With `wait`, waiting is not stopping."""
    for document in _follow(server, run_id, after, rest=not wait, lines=not json):
        name = document.pop("event")
        if name == "end":
            return str(document["status"])
        if document["type"] != _HIDDEN:
            _print(document, json=json)
    raise AssertionError("a stream ends with an event that says so")


def _follow(server: ServerClient, run_id: str, after: int, *, rest: bool, lines: bool) -> Iterator[dict[str, Any]]:
    return server.stream("runs", run_id, "events", "stream", after=after, rest=rest, lines=lines)


def _print(document: dict[str, Any], *, json: bool) -> None:
    from stepwell.cli.views.events import format_lines  # lazy: 80 ms

    if json:
        print_json_line(**document)
    elif document["lines"]:
        print_lines(format_lines(document["commit"], document["at"], document["lines"]))
