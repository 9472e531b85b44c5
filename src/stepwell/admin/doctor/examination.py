"""Examines a store.

Every record, log entry and signal is read, and the lists of the store are compared with them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain

import msgspec

from stepwell.admin.deploy_check import find_incompatibilities
from stepwell.admin.doctor.findings import Examined as Examined
from stepwell.admin.doctor.findings import Finding as Finding
from stepwell.admin.doctor.findings import check_tags, find_unknown_executors, remove_duplicates
from stepwell.admin.lookup import pages_of_runs
from stepwell.admin.retention.inventory import entries_of, gather_in_batches
from stepwell.admin.transfer.redaction import LOCK
from stepwell.admin.transfer.run_copy import PAGE, PARTLY_HERE, RunCopy, check_log_entry, check_record, read_run_copy
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointCorrupt, CodecError, DurabilityError, NewerFormat, StoreUnavailable
from stepwell.kernel.requests import open_requests
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.status_words import status_word
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS, RequestFilter
from stepwell.storage.limits import entry_flaws, flaw_in_count, flaw_in_time
from stepwell.storage.port import Store
from stepwell.storage.record import pending_of, wake_of
from stepwell.storage.run_list import run_info
from stepwell.storage.signals import read_signal
from stepwell.storage.store_archive import parent_of, read_log
from stepwell.storage.stored_values import DamagedRun, Record, RunEntry, ready_from
from stepwell.workflows.workflow import Workflow

_RUNS = 200  # runs per page of the list
_TRIES = 3
_UNUSED_ID = "no run has this id"
_decode = msgspec.json.Decoder().decode


async def examine(
    storage: BuiltInStorage,
    *,
    workflows: Iterable[Workflow] = (),
    progress: Callable[[Examined], None] | None = None,
) -> AsyncGenerator[Finding | Examined]:
    """Read everything in a storage and yield a Finding for each problem.

    The last item is the Examined totals.

    `progress` is called from time to time with the totals so far.

    Nothing is changed, and runs may be driven meanwhile. No classes of the program are needed. For
    each run of one of the `workflows`, the examination also checks whether that workflow can
    continue the run.
    """
    totals, began = Examined(), time.perf_counter()
    by_name = {workflow.name: workflow for workflow in workflows}

    def report_progress() -> None:
        totals.seconds = time.perf_counter() - began
        if progress is not None:
            progress(totals)

    examination = _Examination(storage._store, totals, by_name, report_progress)
    try:
        async for finding in examination.findings():
            totals.errors += finding.severity == "error"
            totals.warnings += finding.severity == "warning"
            yield finding
    except DurabilityError as error:
        # The store itself failed: report that as the last finding instead of raising, so that a
        # caller keeps the findings and the totals it already has.
        totals.errors += 1
        problem = "cannot be reached" if _may_be_away(error) else "cannot be read any further"
        yield Finding("error", f"the store {problem}: {error}")
    totals.seconds = time.perf_counter() - began
    yield totals


def _word_for(entry: RunEntry) -> str:
    try:
        return run_info(entry).standing
    except CheckpointCorrupt:  # the list has an unknown status, which is reported elsewhere
        return entry.status


class _Examination:
    def __init__(
        self, store: Store, totals: Examined, workflows: Mapping[str, Workflow], report_progress: Callable[[], None]
    ) -> None:
        self._store, self._totals, self._workflows, self._report_progress = store, totals, workflows, report_progress

    async def findings(self) -> AsyncIterator[Finding]:
        flaws: list[Finding] = []
        async with self._collect_errors(flaws):
            flaws += [Finding("error", problem) for problem in (await self._store.survey()).flaws]
        for finding in flaws:
            yield finding
        async for finding in self._check_runs():
            yield finding

    async def _check_runs(self) -> AsyncIterator[Finding]:
        done: set[str] = set()
        try:
            async for page in pages_of_runs(self._store, ALL_RUNS, _RUNS):
                for finding in await self._check_page(page):
                    yield finding
                done |= {entry.run_id for entry in page}
            return
        except DurabilityError as error:
            # One damaged entry breaks the whole page. A survey lists the readable entries and the
            # damaged ones.
            if await self._is_away(error):
                raise
            survey = await self._store.survey()
        left = [run for run in survey.runs if run.run_id not in done]
        for begin in range(0, len(left), _RUNS):
            for finding in await self._check_page(left[begin : begin + _RUNS]):
                yield finding
        for damaged in survey.damaged:
            for finding in await self._check_damaged_run(damaged):
                yield finding

    async def _check_page(self, runs: Sequence[RunEntry]) -> list[Finding]:
        return list(chain.from_iterable(await gather_in_batches(self._check_run(entry) for entry in runs)))

    async def _check_damaged_run(self, damaged: DamagedRun) -> list[Finding]:
        """Check what can still be read of a run that cannot be listed."""
        self._totals.runs += 1
        findings = [Finding("error", damaged.why, damaged.run_id)]
        if damaged.run_id is not None:
            findings += [*await self._check_records(damaged.run_id), *await self._check_signals(damaged.run_id)]
        return remove_duplicates(findings)

    async def _check_run(self, entry: RunEntry) -> list[Finding]:
        self._totals.runs += 1
        self._totals.statuses[_word_for(entry)] += 1
        run_id = entry.run_id
        damage = await self._check_records(run_id)
        findings = [*damage, *await self._check_signals(run_id)]
        # The head is folded from the records: with damaged ones, checking it would fail, or report
        # the same damage again.
        async with self._collect_errors(findings, run_id):
            run_copy = None if damage else await read_run_copy(self._store, run_id, "run")
            if run_copy is not None:  # it may have been deleted meanwhile
                for key, body in run_copy.superstep_log.items():
                    self._totals.log_entries += 1
                    async with self._collect_errors(findings, run_id):
                        check_log_entry(run_id, key, body)
                findings += [*await self._check_listing(entry, run_copy), *await self._check_head(run_copy)]
        return remove_duplicates(findings)

    async def _check_records(self, run_id: str) -> list[Finding]:
        findings: list[Finding] = []
        async with self._collect_errors(findings, run_id):
            entries = await entries_of(self._store, run_id)
        stored = await self._store.numbers(run_id) if findings else [entry.number for entry in entries]
        flaws = {number: flaw_in_count(number) for number in stored}
        findings += [Finding("error", f"a commit number {why}", run_id) for why in flaws.values() if why is not None]
        numbers = sorted(number for number, why in flaws.items() if why is None)
        after: Checkpoint | None = None
        for begin in range(0, len(numbers), PAGE):
            async for number, record in self._read_records(run_id, numbers[begin : begin + PAGE]):
                # The deltas after a damaged record have no base: each is reported until the next
                # snapshot.
                before, after = after, None
                async with self._collect_errors(findings, run_id, number):
                    after = self._check_record(record, before)
            self._report_progress()
        return findings

    async def _read_records(
        self, run_id: str, numbers: list[int]
    ) -> AsyncIterator[tuple[int, Record | DurabilityError]]:
        """Yield a page of records, or for a record that cannot be read, its error.

        If the page as a whole cannot be read, its records are read one by one.
        """
        try:
            for record in await self._store.history(run_id, after=numbers[0] - 1, upto=numbers[-1]):
                yield record.entry.number, record
            return
        except DurabilityError as error:
            if await self._is_away(error):
                raise
        for number in numbers:
            try:
                for record in await self._store.history(run_id, after=number - 1, upto=number):
                    yield number, record
            except DurabilityError as error:
                yield number, error

    def _check_record(self, record: Record | DurabilityError, before: Checkpoint | None) -> Checkpoint | None:
        """Return the checkpoint a record leads to.

        Raises the error that kept it from being read, or CheckpointCorrupt or CodecError if its
        content is wrong.
        """
        if isinstance(record, DurabilityError):
            raise record
        self._totals.records += 1
        self._totals.bytes += len(record.body)
        after, _, shape = check_record(before, record)
        entry = record.entry
        self._totals.formats[shape.format] += 1
        subject = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
        for part, why in entry_flaws(entry):
            raise CodecError(f"the list entry of {subject} has a {part} that {why}", path="$")
        check_tags(_decode(record.body), subject)
        if after is not None and entry.workflow != after.header.workflow:
            problem = f"is listed under workflow {entry.workflow!r}, but belongs to {after.header.workflow!r}"
            raise CodecError(f"{subject} {problem}", path="$")
        return after

    async def _check_signals(self, run_id: str) -> list[Finding]:
        findings: list[Finding] = []
        async with self._collect_errors(findings, run_id):
            for row in await self._store.pending_signals(run_id):
                self._totals.signals += 1
                async with self._collect_errors(findings, run_id):
                    # The mark of an unfinished import: read_run_copy() reports it.
                    if row.key != PARTLY_HERE:
                        read_signal(run_id, row)
        return findings

    async def _check_listing(self, entry: RunEntry, run_copy: RunCopy) -> list[Finding]:
        """Compare what the lists of the store say about a run with its head.

        A run that commits between the two reads looks inconsistent, so a difference counts only if
        neither side has changed when both are read again.
        """
        for _ in range(_TRIES):
            findings = await self._compare_listing(entry, run_copy)
            if not findings:
                return []
            again = await read_run_copy(self._store, run_copy.run_id, "run")
            listed = await self._store.run(run_copy.run_id)
            if again is None or listed is None:
                return []  # deleted meanwhile
            if (again.at.number, listed.number) == (run_copy.at.number, entry.number):
                return findings
            run_copy, entry = again, listed
        # A run that is always busy proves nothing.
        return []

    async def _compare_listing(self, entry: RunEntry, run_copy: RunCopy) -> list[Finding]:
        head, run_id = run_copy.at, run_copy.run_id
        findings = []
        listed_as = (entry.number, entry.status, entry.checkpoint_id, entry.iteration, entry.at, entry.workflow)
        stored_as = (
            head.number,
            head.status.value,
            head.stamp.checkpoint_id,
            head.iteration,
            head.stamp.at,
            head.header.workflow,
        )
        if listed_as != stored_as:
            problem = (
                f"the list of runs shows commit {entry.number}, {status_word(entry.status)}, "
                f"but its head is commit {head.number}, {status_word(head.status)}"
            )
            findings.append(Finding("error", problem, run_id))
        if (why := flaw_in_time(entry.began)) is not None:
            findings.append(Finding("error", f"the start time of the run in the list of runs {why}", run_id))
        if not await self._is_located(head.stamp.checkpoint_id):
            findings.append(
                Finding("error", "the head of the run cannot be found by its checkpoint id", run_id, head.number)
            )
        every = RequestFilter(run_id=run_id, stopped=True)
        listed = {request.request_id: request for request in await self._store.requests(every)}
        requests = open_requests(head, read_log(run_id, run_copy.superstep_log, DEFAULT_CODEC))
        asked = {request.request_id: request for request in pending_of(head.header, requests.values())}
        if listed != asked:
            names = ", ".join(sorted(id for id in {**listed, **asked} if listed.get(id) != asked.get(id)))
            findings.append(
                Finding("error", f"the list of open requests and the head of the run disagree on {names}", run_id)
            )
        if entry.wake != ready_from(entry.wake, wake_of(head), head.stamp.at):
            problem = (
                f"the list of runs shows the wake-up time {entry.wake or 'none'}, "
                f"but its head has {wake_of(head) or 'none'}"
            )
            findings.append(Finding("error", problem, run_id))
        return findings

    async def _is_located(self, checkpoint_id: str) -> bool:
        """Return whether a checkpoint is found by its id."""
        try:
            return await self._store.locate(checkpoint_id) is not None
        except DurabilityError as error:
            if await self._is_away(error):
                raise
            # A directory searches all runs, and another run may be damaged. That one gets its own
            # finding.
            return True

    async def _check_head(self, run_copy: RunCopy) -> list[Finding]:
        """Check whether a run could continue from its head."""
        head, run_id = run_copy.at, run_copy.run_id
        self._totals.requests += len(head.requests) if head.header.caller is None else 0
        if LOCK in head.executors:
            return [Finding("warning", LOCK, run_id)]
        findings = [Finding("error", problem, run_id, head.number) for problem in find_unknown_executors(head)]
        findings += [
            Finding(
                "error",
                f"the run waits for run {child.run_id!r} of sub-workflow {child.executor!r}, which is not stored: "
                f"it cannot be answered",
                run_id,
                head.number,
            )
            for child in head.children.values()
            if not await self._is_located(child.checkpoint_id) and await self._store.run(child.run_id) is None
        ]
        parent = await parent_of(self._store, head.header)
        if head.header.parent_id is not None and (parent is None or await self._store.run(parent[0]) is None):
            problem = (
                f"the run that this run was forked from (checkpoint {head.header.parent_id}) is not stored any more, "
                f"so the outputs from before the fork are lost"
            )
            findings.append(Finding("warning", problem, run_id))
        if head.header.caller is not None and await self._store.run(head.header.caller) is None:
            problem = f"the caller of the run, {head.header.caller!r}, is not stored, so the run will never continue"
            findings.append(Finding("warning", problem, run_id))
        workflow = self._workflows.get(head.header.workflow)
        # A completed run needs no code.
        if workflow is None or head.status is WorkflowRunState.IDLE:
            return findings
        obstacles = await find_incompatibilities(self._store, run_id, workflow)
        problem = f"this code cannot continue the run: {'; '.join(obstacles)}"
        return [*findings, Finding("error", problem, run_id, head.number)] if obstacles else findings

    async def _is_away(self, error: DurabilityError) -> bool:
        """Return whether the store has become unreachable: then the examination cannot continue."""
        if not _may_be_away(error):
            return False
        # A store that answers a trivial query is there, and only what we asked for is unreadable.
        try:
            await self._store.run(_UNUSED_ID)
        except DurabilityError as another:
            return _may_be_away(another)
        return False

    @asynccontextmanager
    async def _collect_errors(
        self, findings: list[Finding], run_id: str | None = None, number: int | None = None
    ) -> AsyncIterator[None]:
        """Turn an error of the block into a finding, unless the store has become unreachable."""
        try:
            yield
        except DurabilityError as error:
            if await self._is_away(error):
                raise
            findings.append(Finding("error", str(error), run_id, number))


def _may_be_away(error: DurabilityError) -> bool:
    """Return whether an error may mean that the store is unreachable."""
    # NewerFormat is a StoreUnavailable, too, but is about one item.
    return isinstance(error, StoreUnavailable) and not isinstance(error, NewerFormat)
