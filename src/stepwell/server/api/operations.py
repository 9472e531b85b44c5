"""What somebody who looks after a store asks: what was spent, what the loaded code can continue, what is damaged.

Each answer reads as much as it was asked for and no more, and says whether there is more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from stepwell.admin.costs import Consumption, sum_costs
from stepwell.admin.deploy_check import check
from stepwell.admin.doctor.examination import Examined, examine
from stepwell.model.status_words import Standing
from stepwell.server.api.operation import ApiCall, operation
from stepwell.server.api.runs import split_tag
from stepwell.server.identity import Role
from stepwell.server.problems import RequestRefused
from stepwell.worker.slices import workflow_of

_MOST_FINDINGS = 200  # in one answer
_MOST_GROUPS = 100  # tags, workflows or days


class CostQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which runs."""

    workflow: str | None = None
    tag: list[Annotated[str, Meta(description="Each NAME=VALUE.")]] = []
    since: Annotated[datetime, Meta(tz=True, description="Runs started then or later.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="How many runs are read: the newest.")] = 200


class CostItem(msgspec.Struct, frozen=True):
    """What model calls consumed."""

    name: str  # of the group: a workflow, NAME=VALUE, or a date
    runs: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    unpriced: int  # calls whose cost is unknown


class CostDocument(msgspec.Struct, frozen=True):
    """What the model calls of runs consumed, in all and by group: the dearest first, days newest first."""

    total: CostItem
    workflows: list[CostItem]
    tags: list[CostItem]
    days: list[CostItem]  # UTC
    runs: int  # that were read
    is_whole: bool  # False: there are more runs, commits or groups


@operation("GET", "/costs", Role.SEE)
async def get_costs(call: ApiCall[CostQuery, None]) -> CostDocument:
    """Add up the tokens and the cost of model calls: by workflow, by tag and by day."""
    query = call.query
    report = await sum_costs(
        call.services.storage,
        workflow_name=query.workflow,
        tags=dict(split_tag(tag) for tag in query.tag),
        since=query.since,
        limit=query.limit,
    )
    most = max(len(report.workflows), len(report.tags), len(report.days))
    days = sorted(_cost_items(report.days), key=lambda item: item.name, reverse=True)
    return CostDocument(
        _cost_item("", report.total),
        _dearest(report.workflows),
        tags=_dearest(report.tags),
        days=days[:_MOST_GROUPS],
        runs=report.runs,
        is_whole=report.is_whole and most <= _MOST_GROUPS,
    )


def _dearest(groups: Mapping[str, Consumption]) -> list[CostItem]:
    items = _cost_items(groups)
    return sorted(items, key=lambda item: (-item.cost, -item.input_tokens - item.output_tokens, item.name))[
        :_MOST_GROUPS
    ]


def _cost_items(groups: Mapping[str, Consumption]) -> list[CostItem]:
    return [_cost_item(name, spent) for name, spent in groups.items()]


def _cost_item(name: str, spent: Consumption) -> CostItem:
    return CostItem(
        name,
        spent.runs,
        calls=spent.calls,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=float(spent.cost),
        unpriced=spent.unpriced,
    )


class CheckQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which workflow, and how many runs."""

    workflow: Annotated[str, Meta(min_length=1, description="One that can be started here.")]
    limit: Annotated[int, Meta(ge=1, le=500, description="How many runs are checked.")] = 100


class CheckedItem(msgspec.Struct, frozen=True):
    """Whether the code can continue a run, and why not."""

    run_id: str
    status: Standing
    number: int
    verdict: str  # compatible, migrates, incompatible
    why: list[str]
    suggestions: list[str]


class CheckDocument(msgspec.Struct, frozen=True):
    """Which unfinished runs of a workflow the loaded code can continue."""

    workflow: str
    version: int
    runs: list[CheckedItem]
    is_whole: bool  # False: there are more unfinished runs


@operation("GET", "/check", Role.OPERATE)
async def check_code(call: ApiCall[CheckQuery, None]) -> CheckDocument:
    """Check which unfinished runs the loaded code of a workflow can continue, and why not the others."""
    served = call.services.workflows.get(call.query.workflow)
    if served is None:
        raise RequestRefused(
            HTTPStatus.NOT_FOUND,
            f"the code of workflow {call.query.workflow!r} is not loaded here",
            "GET /api/v1/workflows lists what is; `stepwell check module:workflow` checks any other",
        )
    checked = await check(call.services.storage, workflow_of(served), limit=call.query.limit)
    runs = [
        CheckedItem(
            run.run_id,
            run.standing,
            run.number,
            verdict=run.verdict,
            why=list(run.why),
            suggestions=list(run.suggestions),
        )
        for run in checked.runs
    ]
    return CheckDocument(checked.workflow, checked.version, runs, checked.is_whole)


class ExaminationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how long."""

    seconds: Annotated[float, Meta(gt=0, le=60, description="After which the examination stops.")] = 10.0


class FindingItem(msgspec.Struct, frozen=True):
    """A problem in the store. An error means that a run cannot continue, or that data is not what was written."""

    severity: str  # error or warning
    what: str
    run_id: str | None
    number: int | None  # of a commit


class Examination(msgspec.Struct, frozen=True):
    """What was found wrong, and how much was read."""

    findings: list[FindingItem]
    runs: int
    records: int
    bytes: int
    seconds: float
    is_whole: bool  # False: time was over, or there are more findings


@operation("GET", "/examination", Role.OPERATE)
async def examine_store(call: ApiCall[ExaminationQuery, None]) -> Examination:
    """Read everything in the store, newest runs first, for some seconds, and list what is damaged."""
    findings, totals, is_whole = list[FindingItem](), Examined(), False

    def keep(examined: Examined) -> None:
        nonlocal totals
        totals = examined

    try:
        async with (
            asyncio.timeout(call.query.seconds),
            aclosing(examine(call.services.storage, progress=keep)) as examination,
        ):
            async for item in examination:
                if isinstance(item, Examined):
                    totals, is_whole = item, True
                elif len(findings) == _MOST_FINDINGS:
                    break
                else:
                    findings.append(FindingItem(item.severity, item.what, item.run_id, item.number))
    except TimeoutError:
        pass  # what was read until now is the answer, and says that it is not everything
    return Examination(
        findings, totals.runs, totals.records, bytes=totals.bytes, seconds=totals.seconds, is_whole=is_whole
    )


OPERATIONS = (get_costs, check_code, examine_store)
