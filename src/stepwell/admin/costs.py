"""What the model calls of a store consumed: tokens and cost, by workflow, by tag and by day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from stepwell.admin.calls import HandlerCall, calls_of
from stepwell.admin.lookup import pages_of_runs
from stepwell.admin.retention.inventory import gather_in_batches
from stepwell.admin.run_history import read_commits
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RunFilter
from stepwell.storage.stored_values import RunEntry

MOST_COMMITS = 1000  # that are read of one run: the newest


@dataclass(frozen=True, slots=True)
class Consumption:
    """What model calls consumed."""

    runs: int = 0  # that made them
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0  # calls whose cost is unknown

    def __add__(self, other: Consumption) -> Consumption:
        return Consumption(
            self.runs + other.runs,
            self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            unpriced=self.unpriced + other.unpriced,
        )


@dataclass(slots=True)
class CostReport:
    """What model calls consumed, in all and by group. A run with several tags counts under each."""

    total: Consumption = field(default_factory=Consumption)
    workflows: dict[str, Consumption] = field(default_factory=dict)
    tags: dict[str, Consumption] = field(default_factory=dict)  # by NAME=VALUE
    days: dict[str, Consumption] = field(default_factory=dict)  # by the date of the commit, UTC
    runs: int = 0  # that were read, with model calls or without
    is_whole: bool = True  # False: there are more runs, or more commits of one

    def _add(self, entry: RunEntry, days: Mapping[str, Consumption]) -> None:
        self.runs += 1
        self.is_whole = self.is_whole and entry.number < MOST_COMMITS
        if not days:
            return
        spent = replace(sum(days.values(), Consumption()), runs=1)
        self.total += spent
        _add_to(self.workflows, {entry.workflow: spent})
        _add_to(self.tags, {f"{name}={value}": spent for name, value in entry.metadata.tags.items()})
        _add_to(self.days, days)


async def sum_costs(
    storage: BuiltInStorage,
    *,
    workflow_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    since: datetime | None = None,
    limit: int = 200,
) -> CostReport:
    """Add up what the model calls of runs consumed, as their commits say.

    Only of one workflow, of runs with these tags, of runs started at `since` or later; runs of sub-workflows are
    included, under their own names. Reads the newest `limit` of these runs, and of each the newest 1,000 commits:
    what was pruned, and what is not committed yet, is not counted.
    """
    wanted = RunFilter(
        workflow=workflow_name,
        tags=tags or {},
        children=True,
        since=None if since is None else clock.stored_moment(since),
    )
    report = CostReport()
    async for page in pages_of_runs(storage._store, wanted, limit + 1):
        report.is_whole = len(page) <= limit
        runs = page[:limit]
        for entry, days in zip(runs, await gather_in_batches(_read(storage, run) for run in runs), strict=True):
            report._add(entry, days)
        break
    return report


async def _read(storage: BuiltInStorage, run: RunEntry) -> dict[str, Consumption]:
    """Return what the model calls of a run consumed on each day."""
    days: dict[str, Consumption] = {}
    for commit in await read_commits(storage, run.run_id, run.number - MOST_COMMITS, run.number):
        for done in commit.done:
            if spent := _sum_calls(call for call in calls_of(done.steps) if call.kind == "model"):
                _add_to(days, {commit.stamp.at[:10]: spent})
    return {day: replace(spent, runs=1) for day, spent in days.items()}


def _sum_calls(calls: Iterable[HandlerCall]) -> Consumption | None:
    spent = [
        Consumption(
            calls=1,
            input_tokens=call.summary.input_tokens,
            output_tokens=call.summary.output_tokens,
            cost=Decimal(call.summary.cost or 0),
            unpriced=int(not call.summary.cost),
        )
        for call in calls
    ]
    return sum(spent, Consumption()) if spent else None


def _add_to(sums: dict[str, Consumption], more: Mapping[str, Consumption]) -> None:
    for name, spent in more.items():
        sums[name] = sums.get(name, Consumption()) + spent
