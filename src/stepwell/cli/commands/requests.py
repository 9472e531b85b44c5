"""`stepwell requests`: list the open requests of all runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from shlex import quote
from typing import Any

import click

from stepwell import admin
from stepwell.admin.lookup import has_prefix
from stepwell.admin.overview.request_documents import pending_request_to_dict
from stepwell.admin.phrases import format_deadline, format_span
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_span_option
from stepwell.cli.type_names import BuiltInStorage, PendingRequest
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.storage import clock
from stepwell.viz.markup import shorten

_SHOWN = 100  # characters of a question in the table


@click.command("requests")
@click.option("--workflow", metavar="NAME", help="Only requests of runs of this workflow.")
@click.option("--run", metavar="RUN", help="Only requests of this run.")
@click.option("--older-than", callback=parse_span_option, metavar="SPAN", help="Only requests older than SPAN.")
@click.option("--overdue", is_flag=True, help="Only requests past their deadline, the earliest deadline first.")
@click.option(
    "--due-within",
    callback=parse_span_option,
    metavar="SPAN",
    help="Only requests with a deadline within SPAN, including overdue ones.",
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Maximum number of requests.")
@click.option("--after", metavar="RUN/REQUEST", help="Start after this request: the next page.")
@json_option
@common_options
def command(
    workflow: str | None,
    run: str | None,
    older_than: timedelta | None,
    overdue: bool,
    due_within: timedelta | None,
    limit: int,
    after: str | None,
    json: bool,
) -> None:
    """List the open requests of all runs.

    The oldest come first. One that is answered is listed until its run has applied the response. A
    SPAN is 30d, 12h, 90min, 45s or 1h30min.
    """
    if overdue and due_within is not None:
        raise click.UsageError("pass --overdue or --due-within, not both: overdue requests are due within any span")

    now = clock.now()
    is_filtered = bool(workflow or run or older_than or overdue or due_within or after)
    # Both filters are points in time, computed from one `now`, so that the page and the ages agree.
    asked_until = None if older_than is None else now - older_than
    due_until = now if overdue else None if due_within is None else now + due_within
    if (server := find_server()) is not None:
        times = {
            "asked_until": asked_until and asked_until.isoformat(),
            "due_until": due_until and due_until.isoformat(),
        }
        answer = server.get("requests", workflow=workflow, run=run, after=after, limit=limit, **times)
        _print(answer["requests"], answer["next"], json, now=now, is_filtered=is_filtered)
        return

    async def work(storage: BuiltInStorage) -> None:
        requests = await storage.pending_requests(
            workflow_name=workflow,
            run_id=None if run is None else (await admin.find_run(storage, run)).run_id,
            asked_until=asked_until,
            due_until=due_until,
            after=None if after is None else await _find_last(storage, after),
            limit=limit + 1,
        )
        page, more = requests[:limit], len(requests) > limit
        following = f"{page[-1].run_id}/{page[-1].request_id}" if more else None
        documents = [pending_request_to_dict(request, now) for request in page]
        _print(documents, following, json, now=now, is_filtered=is_filtered)

    run_on_store(work)


def _print(
    requests: list[dict[str, Any]], following: str | None, json: bool, *, now: datetime, is_filtered: bool
) -> None:
    if json:
        print_document(requests=requests, next=following)
        return
    if requests:
        columns = ["request", "run", "workflow", "executor", "question", "expects", "age", "deadline", "answered"]
        optional = ("executor", "expects", "workflow", "deadline", "answered")
        print_table(columns, [_make_row(request, now) for request in requests], optional=optional, elastic="question")
    else:
        print_note("no request matches" if is_filtered else "there are no open requests")
    if following is not None:
        print_note(f"more requests: --after {quote(following)}")


async def _find_last(storage: BuiltInStorage, name: str) -> PendingRequest:
    """Return the last request of the previous page; both ids may be shortened.

    Raises NotFound if it is no longer open, Ambiguous if several match.
    """
    # Both ids may contain slashes, so every slash may be the one between them.
    splits = [(name[:n], name[n + 1 :]) for n in range(len(name)) if name[n] == "/"]
    for run, request_id in splits:
        for request in await storage.pending_requests(run_id=run):
            if request.request_id == request_id:
                return request
    matching: list[PendingRequest] = []
    unclear: admin.Ambiguous | None = None
    for run, prefix in splits:
        try:
            run_id = (await admin.find_run(storage, run)).run_id
        except admin.NotFound:
            continue
        except admin.Ambiguous as error:  # another slash may be the right one
            unclear = error
            continue
        matching += [r for r in await storage.pending_requests(run_id=run_id) if has_prefix(r.request_id, prefix)]
    if len(matching) > 1:
        ids = [f"{request.run_id}/{request.request_id}" for request in matching[:5]]
        raise admin.Ambiguous(f"{name!r} matches {', '.join(ids)}; use more characters of the ids", ids)
    if matching:
        return matching[0]
    raise unclear or admin.NotFound(
        f"request {name!r} is no longer open, so the next page is unknown; start again without --after"
    )


def _make_row(request: dict[str, Any], now: datetime) -> list[str]:
    by = request["answered_by"]
    deadline = request["deadline"]
    return [
        request["request_id"],
        request["run_id"],
        request["workflow"],
        request["executor"],
        # Without its key, a question is not known.
        shorten(request["question"] or request["request_type"], _SHOWN),
        request["response_type"],
        format_span(now - datetime.fromisoformat(request["asked_at"])),
        format_deadline(None if deadline is None else datetime.fromisoformat(deadline), now),
        "-" if not request["answered"] else "yes" if by is None else f"by {by}",
    ]
