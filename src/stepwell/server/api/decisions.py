"""What people decided, as it is on record."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from stepwell.admin.decisions import DecisionKind, list_decisions
from stepwell.admin.lookup import complete_run_id
from stepwell.server.api.documents import DecisionItem, DecisionPage
from stepwell.server.api.operation import ApiCall, operation
from stepwell.server.api.runs import PageSize
from stepwell.server.identity import Role


class DecisionListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which decisions; each criterion that is given must be met."""

    run: Annotated[str, Meta(description="The id of a run, or its beginning.")] | None = None
    workflow: str | None = None
    by: Annotated[str, Meta(description="Who decided.")] | None = None
    kind: list[DecisionKind] = []
    since: Annotated[datetime, Meta(tz=True, description="Decided then or later.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Decided before.")] | None = None
    after: Annotated[str, Meta(description="The `next` of the previous page.")] | None = None
    limit: PageSize = 50


@operation("GET", "/decisions", Role.SEE)
async def get_decisions(call: ApiCall[DecisionListQuery, None]) -> DecisionPage:
    """List what people decided, newest first: answers, cancels, forks, restores, retries, with who and when."""
    query, storage = call.query, call.services.storage
    decisions = await list_decisions(
        storage,
        run_id=None if query.run is None else await complete_run_id(storage, query.run),
        workflow_name=query.workflow,
        by=query.by,
        kinds=query.kind,
        since=query.since,
        until=query.until,
        after=query.after,
        limit=query.limit + 1,  # one more than is shown, to know whether there is another page
    )
    page = decisions[: query.limit]
    items = [msgspec.convert(decision.to_dict(), DecisionItem) for decision in page]
    return DecisionPage(items, page[-1].position if len(decisions) > len(page) else None)


OPERATIONS = (get_decisions,)
