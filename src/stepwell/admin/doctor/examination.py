"""Is everything in a store as it must be? Every record, note and letter is read, and lists are compared with them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from stepwell.admin.deploy_check import find_incompatibilities
from stepwell.admin.doctor.findings import Examined as Examined
from stepwell.admin.doctor.findings import Finding as Finding
from stepwell.admin.doctor.findings import check_tags, find_unknown_executors, remove_duplicates
from stepwell.admin.retention.inventory import gather_in_batches
from stepwell.admin.transfer.redaction import LOCK
from stepwell.admin.transfer.snapshots import PAGE, PARTLY_HERE, Snapshot, is_listed_right, take_snapshot
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CodecError, DurabilityError, NewerFormat, StoreUnavailable
from stepwell.kernel.lifecycle import apply
from stepwell.model.event import WorkflowRunState
from stepwell.model.superstep import Checkpoint, Child
from stepwell.storage.archive import parent_of
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.limits import entry_flaws, flaw_in_count, flaw_in_time
from stepwell.storage.port import DamagedRun, Entry, Record, RunEntry, Store, Survey
from stepwell.storage.record import pending_of, wake_of
from stepwell.storage.signals import read_signal
from stepwell.storage.wire.format import header_of, read_commit, read_log_entry, read_outcome
from stepwell.workflows.workflow import Workflow

_RUNS = 200  # of the list, at a time
_TRIES = 3
_NOBODY = "no run has this id"
_decode = msgspec.json.Decoder().decode


async def examine(
    storage: BuiltInStorage,
    *,
    workflows: Iterable[Workflow] = (),
    progress: Callable[[Examined], None] | None = None,
) -> AsyncIterator[Finding | Examined]:
    """Read everything in a storage, and tell what is not as it must be; the last thing told is what was looked at.

    `progress` is called now and then with what was looked at so far.

    Nothing is changed, and runs may be moved on meanwhile. No class of the program is needed. For the runs of
    `workflows` it is found out, too, whether these could go on with them: by their graphs, and by reading what the
    heads hold.
    """
    totals, began = Examined(), time.perf_counter()
    by_name = {workflow.name: workflow for workflow in workflows}

    def report_progress() -> None:
        totals.seconds = time.perf_counter() - began
        if progress is not None:
            progress(totals)

    examination = _Examination(storage.store, totals, by_name, report_progress)
    try:
        async for finding in examination.findings():
            totals.errors += finding.severity == "error"
            totals.warnings += finding.severity == "warning"
            yield finding
    except DurabilityError as error:
        totals.errors += 1
        problem = "cannot be reached" if _may_be_away(error) else "cannot be read any further"
        yield Finding("error", f"the store {problem}: {error}")
    totals.seconds = time.perf_counter() - began
    yield totals


class _Examination:
    def __init__(
        self, store: Store, totals: Examined, workflows: Mapping[str, Workflow], report_progress: Callable[[], None]
    ) -> None:
        self._store, self._totals, self._workflows, self._report_progress = store, totals, workflows, report_progress
        self._wakes: Mapping[str, str] | None = None  # None: they cannot be read

    async def findings(self) -> AsyncIterator[Finding]:
        for finding in [*await self._check_store(), *await self._read_wakes()]:
            yield finding
        past: RunEntry | None = None
        done: set[str] = set()
        try:
            while page := await self._store.runs(inner=True, past=past, limit=_RUNS):
                for run_findings in await gather_in_batches(self._check_run(entry) for entry in page):
                    for finding in run_findings:
                        yield finding
                done |= {entry.run_id for entry in page}
                past = page[-1]
        except DurabilityError as error:
            survey = await self._survey_runs(error)
        else:
            return
        for runs in _pages([run for run in survey.runs if run.run_id not in done]):
            for run_findings in await gather_in_batches(self._check_run(entry) for entry in runs):
                for finding in run_findings:
                    yield finding
        for damaged in survey.damaged:
            for finding in await self._check_damaged_run(damaged):
                yield finding

    async def _survey_runs(self, error: DurabilityError) -> Survey:
        """All runs, if they cannot be listed one page after the other. Raises the error if that cannot be done."""
        inner = getattr(self._store, "inner", self._store)
        if not hasattr(inner, "survey") or await self._is_away(error):
            raise error
        survey: Survey = await inner.survey()
        return survey

    async def _check_damaged_run(self, damaged: DamagedRun) -> list[Finding]:
        """A run that cannot be listed: what of it can be read is looked at."""
        self._totals.runs += 1
        findings = [Finding("error", damaged.why, damaged.run_id)]
        if damaged.run_id is not None:
            findings += [*await self._check_records(damaged.run_id), *await self._check_signals(damaged.run_id)]
        return remove_duplicates(findings)

    async def _check_store(self) -> list[Finding]:
        """What a store that can look at itself finds."""
        inner = getattr(self._store, "inner", self._store)
        try:
            return [Finding("error", problem) for problem in await inner.flaws()] if hasattr(inner, "flaws") else []
        except DurabilityError as error:
            return [await self._finding(error, None)]

    async def _read_wakes(self) -> list[Finding]:
        try:
            self._wakes = {wake.run_id: wake.at for wake in await self._store.wakes()}
        except DurabilityError as error:
            return [await self._finding(error, None)]
        return []

    async def _check_run(self, entry: RunEntry) -> list[Finding]:
        self._totals.runs += 1
        self._totals.statuses[entry.status] += 1
        damage = await self._check_records(entry.run_id)
        findings = [*damage, *await self._check_signals(entry.run_id)]
        if damage:
            # its head may not be readable, and what is said of it would be said twice
            return remove_duplicates(findings)
        try:
            snapshot = await take_snapshot(self._store, entry.run_id, "run")
            if snapshot is None:
                return findings  # it was deleted while we looked
            return [
                *findings,
                *self._check_superstep_log(snapshot),
                *await self._check_listing(entry, snapshot),
                *await self._check_head(snapshot),
            ]
        except DurabilityError as error:
            return remove_duplicates([*findings, await self._finding(error, entry.run_id)])

    async def _read_numbers(self, run_id: str) -> tuple[list[int], list[Finding]]:
        """The numbers of the records of a run, and what is wrong with them."""
        findings: list[Finding] = []
        try:
            numbers = [entry.number for entry in await self._store.entries(run_id=run_id)]
        except DurabilityError as error:
            findings.append(await self._finding(error, run_id))
            inner = getattr(self._store, "inner", self._store)
            numbers = await inner.numbers(run_id) if hasattr(inner, "numbers") else []
        flaws = {number: flaw_in_count(number) for number in numbers}
        findings += [
            Finding("error", f"the number of a commit {why}", run_id) for why in flaws.values() if why is not None
        ]
        return sorted(number for number, why in flaws.items() if why is None), findings

    async def _check_records(self, run_id: str) -> list[Finding]:
        numbers, findings = await self._read_numbers(run_id)
        before: Checkpoint | None = None
        for begin in range(0, len(numbers), PAGE):
            async for number, record in self._read_records(run_id, numbers[begin : begin + PAGE]):
                try:
                    before = self._check_record(record, before)
                except DurabilityError as error:
                    findings.append(await self._finding(error, run_id, number))
                    before = None
            self._report_progress()
        return findings

    async def _read_records(
        self, run_id: str, numbers: list[int]
    ) -> AsyncIterator[tuple[int, Record | DurabilityError]]:
        """A page of records; if one of them cannot be read, the others are read one by one."""
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
        """Where a record leads. Raises what kept it from being read, CheckpointCorrupt or CodecError if it is not as it
        must be."""
        if isinstance(record, DurabilityError):
            raise record
        self._totals.records += 1
        self._totals.bytes += len(record.body)
        commit, shape = read_commit(record, DEFAULT_CODEC)
        entry = record.entry
        self._totals.formats[shape.format] += 1
        what = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
        for part, why in entry_flaws(entry):
            raise CodecError(f"{what} is listed with a {part} that {why}", path="$")
        check_tags(_decode(record.body), what)
        if not is_listed_right(entry, commit, is_snapshot=shape.run is not None):
            raise CodecError(f"{what} is listed as something else than it is", path="$")
        if shape.run is not None:
            return self._check_workflow(entry, apply(header_of(shape), None, commit, previous_id=shape.previous_id))
        if before is not None and before.number == commit.number - 1:
            return self._check_workflow(entry, apply(before.header, before, commit))
        if entry.fleeting and entry.outputs:
            return None  # kept for its outputs alone
        raise CodecError(f"{what} tells only what changed, and what it changed from is missing", path="$")

    def _check_workflow(self, entry: Entry, checkpoint: Checkpoint) -> Checkpoint:
        if entry.workflow != checkpoint.header.workflow:
            problem = (
                f"is listed as one of workflow {entry.workflow!r}, and its run is of {checkpoint.header.workflow!r}"
            )
            raise CodecError(f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r} {problem}", path="$")
        return checkpoint

    async def _check_signals(self, run_id: str) -> list[Finding]:
        try:
            signals = await self._store.pending_signals(run_id)
        except DurabilityError as error:
            return [await self._finding(error, run_id)]
        findings = []
        for key, body in signals:
            self._totals.letters += 1
            if key == PARTLY_HERE:
                continue  # whoever looks at the run as a whole says so
            try:
                read_signal(run_id, key, body)
            except DurabilityError as error:
                findings.append(Finding("error", str(error), run_id))
        return findings

    def _check_superstep_log(self, snapshot: Snapshot) -> Iterator[Finding]:
        for key, body in snapshot.superstep_log.items():
            self._totals.memory += 1
            try:
                if "/" in key:
                    read_log_entry(snapshot.run_id, key, body, DEFAULT_CODEC)
                else:
                    read_outcome(snapshot.run_id, key, body, DEFAULT_CODEC)
            except DurabilityError as error:
                yield Finding("error", str(error), snapshot.run_id)

    async def _check_listing(self, entry: RunEntry, snapshot: Snapshot) -> list[Finding]:
        """Whether lists say of a run what its head says. If it was moved on meanwhile, it is looked at again."""
        for _ in range(_TRIES):
            findings = await self._compare_listing(entry, snapshot.at)
            if not findings:
                return []
            again = await take_snapshot(self._store, snapshot.run_id, "run")
            listed = await self._store.run(snapshot.run_id)
            if again is None or listed is None:
                return []  # it was deleted while we looked
            if (again.at.number, listed) == (snapshot.at.number, entry):
                return findings
            snapshot, entry = again, listed
        return []

    async def _compare_listing(self, entry: RunEntry, head: Checkpoint) -> list[Finding]:
        run_id = head.run_id
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
                f"the list of runs says commit {entry.number}, {entry.status}, and its head is commit {head.number}, "
            )
            findings.append(Finding("error", f"{problem}{head.status.value}", run_id))
        if (why := flaw_in_time(entry.began)) is not None:
            findings.append(Finding("error", f"the list of runs says when it began, and that {why}", run_id))
        if not await self._is_located(head.stamp.checkpoint_id):
            findings.append(Finding("error", "its newest checkpoint is not found by its id", run_id, head.number))
        listed = {request.request_id: request for request in await self._store.pending(run_id=run_id)}
        asked = {request.request_id: request for request in pending_of(head.header, head.requests.values())}
        if listed != asked:
            names = ", ".join(sorted(id for id in {**listed, **asked} if listed.get(id) != asked.get(id)))
            findings.append(
                Finding("error", f"the list of open questions and its head do not agree on {names}", run_id)
            )
        if self._wakes is not None and self._wakes.get(run_id) != wake_of(head):
            findings += await self._read_wakes()  # that was known when we began
        if self._wakes is not None and self._wakes.get(run_id) != wake_of(head):
            problem = f"it is listed to be woken at {self._wakes.get(run_id)}, and wants to be at {wake_of(head)}"
            findings.append(Finding("error", problem, run_id))
        return findings

    async def _is_located(self, checkpoint_id: str) -> bool:
        """Whether a checkpoint is found by its id. A directory looks through all runs: a damaged one is named where it
        is looked at."""
        try:
            return await self._store.locate(checkpoint_id) is not None
        except DurabilityError as error:
            if await self._is_away(error):
                raise
            return True

    async def _check_head(self, snapshot: Snapshot) -> list[Finding]:
        """Whether a run could go on from its head, as far as that can be seen."""
        head, run_id = snapshot.at, snapshot.run_id
        self._totals.questions += len(head.requests) if head.header.caller is None else 0
        if LOCK in head.executors:
            return [Finding("warning", LOCK, run_id)]
        findings = [Finding("error", problem, run_id, head.number) for problem in find_unknown_executors(head)]
        for child in head.children.values():
            findings += await self._check_child(head, child)
        parent = await parent_of(self._store, head.header)
        if head.header.parent_id is not None and (parent is None or await self._store.run(parent[0]) is None):
            problem = (
                f"it was forked from checkpoint {head.header.parent_id}, whose run is gone: what that told is, too"
            )
            findings.append(Finding("warning", problem, run_id))
        if head.header.caller is not None and await self._store.run(head.header.caller) is None:
            problem = f"it works for run {head.header.caller!r}, which is not stored: nobody will ever go on with it"
            findings.append(Finding("warning", problem, run_id))
        workflow = self._workflows.get(head.header.workflow)
        if workflow is None or head.status is WorkflowRunState.IDLE:  # one that is done needs nobody to go on with it
            return findings
        obstacles = await find_incompatibilities(self._store, run_id, workflow)
        problem = f"this code cannot go on with it: {'; '.join(obstacles)}"
        return [*findings, Finding("error", problem, run_id, head.number)] if obstacles else findings

    async def _check_child(self, head: Checkpoint, child: Child) -> list[Finding]:
        if not await self._is_located(child.checkpoint_id) and await self._store.run(child.run_id) is None:
            problem = f"it waits for run {child.run_id!r} inside {child.executor!r}, which is not stored: answers fail"
            return [Finding("error", problem, head.run_id, head.number)]
        return []

    async def _is_away(self, error: DurabilityError) -> bool:
        """Whether the store cannot be asked any more. One that answers another question has only lost this answer."""
        if not _may_be_away(error):
            return False
        try:
            await self._store.head(_NOBODY)
        except DurabilityError as another:
            return _may_be_away(another)
        return False

    async def _finding(self, error: DurabilityError, run_id: str | None, number: int | None = None) -> Finding:
        """What was found instead of what was looked for. Raises the error again if the store is away."""
        if await self._is_away(error):
            raise error
        return Finding("error", str(error), run_id, number)


def _pages(runs: Sequence[RunEntry]) -> Iterator[Sequence[RunEntry]]:
    return (runs[begin : begin + _RUNS] for begin in range(0, len(runs), _RUNS))


def _may_be_away(error: DurabilityError) -> bool:
    """That something in a store is too new says nothing of the rest."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, NewerFormat)
