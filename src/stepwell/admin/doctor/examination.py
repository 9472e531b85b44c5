"""Is everything in a store as it must be? Every record, note and letter is read, and lists are compared with them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from stepwell.admin.deploy_check import why_stranded
from stepwell.admin.doctor.findings import Examined as Examined
from stepwell.admin.doctor.findings import Finding as Finding
from stepwell.admin.doctor.findings import check_tags, each_once, unknown_executors
from stepwell.admin.retention.inventory import together
from stepwell.admin.transfer.redaction import LOCK
from stepwell.admin.transfer.snapshots import PAGE, PARTLY_HERE, Snapshot, is_listed_right, snapshot
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
from stepwell.storage.wire.format import header_of, read_commit, read_note, read_outcome
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
    seen, began = Examined(), time.perf_counter()
    known = {workflow.name: workflow for workflow in workflows}

    def looked() -> None:
        seen.seconds = time.perf_counter() - began
        if progress is not None:
            progress(seen)

    looking = _Examination(storage.store, seen, known, looked)
    try:
        async for finding in looking.findings():
            seen.errors += finding.severity == "error"
            seen.warnings += finding.severity == "warning"
            yield finding
    except DurabilityError as error:
        seen.errors += 1
        words = "cannot be reached" if _may_be_away(error) else "cannot be read any further"
        yield Finding("error", f"the store {words}: {error}")
    seen.seconds = time.perf_counter() - began
    yield seen


class _Examination:
    def __init__(
        self, store: Store, seen: Examined, workflows: Mapping[str, Workflow], looked: Callable[[], None]
    ) -> None:
        self._store, self._seen, self._workflows, self._looked = store, seen, workflows, looked
        self._wakes: Mapping[str, str] | None = None  # None: they cannot be read

    async def findings(self) -> AsyncIterator[Finding]:
        for finding in [*await self._flaws(), *await self._read_wakes()]:
            yield finding
        past: RunEntry | None = None
        done: set[str] = set()
        try:
            while page := await self._store.runs(inner=True, past=past, limit=_RUNS):
                for found in await together(self._run(entry) for entry in page):
                    for finding in found:
                        yield finding
                done |= {entry.run_id for entry in page}
                past = page[-1]
        except DurabilityError as error:
            survey = await self._survey(error)
        else:
            return
        for runs in _pages([one for one in survey.runs if one.run_id not in done]):
            for found in await together(self._run(entry) for entry in runs):
                for finding in found:
                    yield finding
        for damaged in survey.damaged:
            for finding in await self._damaged_run(damaged):
                yield finding

    async def _survey(self, error: DurabilityError) -> Survey:
        """All runs, if they cannot be listed one page after the other. Raises the error if that cannot be done."""
        inner = getattr(self._store, "inner", self._store)
        if not hasattr(inner, "survey") or await self._is_away(error):
            raise error
        survey: Survey = await inner.survey()
        return survey

    async def _damaged_run(self, damaged: DamagedRun) -> list[Finding]:
        """A run that cannot be listed: what of it can be read is looked at."""
        self._seen.runs += 1
        found = [Finding("error", damaged.why, damaged.run_id)]
        if damaged.run_id is not None:
            found += [*await self._records(damaged.run_id), *await self._mail(damaged.run_id)]
        return each_once(found)

    async def _flaws(self) -> list[Finding]:
        """What a store that can look at itself finds."""
        inner = getattr(self._store, "inner", self._store)
        try:
            return [Finding("error", words) for words in await inner.flaws()] if hasattr(inner, "flaws") else []
        except DurabilityError as error:
            return [await self._finding(error, None)]

    async def _read_wakes(self) -> list[Finding]:
        try:
            self._wakes = {one.run_id: one.at for one in await self._store.wakes()}
        except DurabilityError as error:
            return [await self._finding(error, None)]
        return []

    async def _run(self, entry: RunEntry) -> list[Finding]:
        self._seen.runs += 1
        self._seen.statuses[entry.status] += 1
        damage = await self._records(entry.run_id)
        found = [*damage, *await self._mail(entry.run_id)]
        if damage:
            return each_once(found)  # its head may not be readable, and what is said of it would be said twice
        try:
            one = await snapshot(self._store, entry.run_id, "run")
            if one is None:
                return found  # it was deleted while we looked
            return [*found, *self._memory(one), *await self._listed(entry, one), *await self._head(one)]
        except DurabilityError as error:
            return each_once([*found, await self._finding(error, entry.run_id)])

    async def _numbers(self, run_id: str) -> tuple[list[int], list[Finding]]:
        """The numbers of the records of a run, and what is wrong with them."""
        found: list[Finding] = []
        try:
            stored = [entry.number for entry in await self._store.entries(run_id=run_id)]
        except DurabilityError as error:
            found.append(await self._finding(error, run_id))
            inner = getattr(self._store, "inner", self._store)
            stored = await inner.numbers(run_id) if hasattr(inner, "numbers") else []
        wrong = {number: flaw_in_count(number) for number in stored}
        found += [
            Finding("error", f"the number of a commit {why}", run_id) for why in wrong.values() if why is not None
        ]
        return sorted(number for number, why in wrong.items() if why is None), found

    async def _records(self, run_id: str) -> list[Finding]:
        numbers, damage = await self._numbers(run_id)
        before: Checkpoint | None = None
        for begin in range(0, len(numbers), PAGE):
            async for number, found in self._read(run_id, numbers[begin : begin + PAGE]):
                try:
                    before = self._checked(found, before)
                except DurabilityError as error:
                    damage.append(await self._finding(error, run_id, number))
                    before = None
            self._looked()
        return damage

    async def _read(self, run_id: str, numbers: list[int]) -> AsyncIterator[tuple[int, Record | DurabilityError]]:
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

    def _checked(self, record: Record | DurabilityError, before: Checkpoint | None) -> Checkpoint | None:
        """Where a record leads. Raises what kept it from being read, CheckpointCorrupt or CodecError if it is not as it
        must be."""
        if isinstance(record, DurabilityError):
            raise record
        self._seen.records += 1
        self._seen.bytes += len(record.body)
        commit, shape = read_commit(record, DEFAULT_CODEC)
        entry = record.entry
        self._seen.formats[shape.format] += 1
        what = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
        for part, why in entry_flaws(entry):
            raise CodecError(f"{what} is listed with a {part} that {why}", path="$")
        check_tags(_decode(record.body), what)
        if not is_listed_right(entry, commit, framed=shape.run is not None):
            raise CodecError(f"{what} is listed as something else than it is", path="$")
        if shape.run is not None:
            return self._of_its_workflow(entry, apply(header_of(shape), None, commit, previous_id=shape.previous_id))
        if before is not None and before.number == commit.number - 1:
            return self._of_its_workflow(entry, apply(before.header, before, commit))
        if entry.fleeting and entry.outputs:
            return None  # kept for its outputs alone
        raise CodecError(f"{what} tells only what changed, and what it changed from is missing", path="$")

    def _of_its_workflow(self, entry: Entry, at: Checkpoint) -> Checkpoint:
        if entry.workflow != at.header.workflow:
            words = f"is listed as one of workflow {entry.workflow!r}, and its run is of {at.header.workflow!r}"
            raise CodecError(f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r} {words}", path="$")
        return at

    async def _mail(self, run_id: str) -> list[Finding]:
        try:
            letters = await self._store.mail(run_id)
        except DurabilityError as error:
            return [await self._finding(error, run_id)]
        found = []
        for key, body in letters:
            self._seen.letters += 1
            if key == PARTLY_HERE:
                continue  # whoever looks at the run as a whole says so
            try:
                read_signal(run_id, key, body)
            except DurabilityError as error:
                found.append(Finding("error", str(error), run_id))
        return found

    def _memory(self, one: Snapshot) -> Iterator[Finding]:
        for key, body in one.memory.items():
            self._seen.memory += 1
            try:
                if "/" in key:
                    read_note(one.run_id, key, body, DEFAULT_CODEC)
                else:
                    read_outcome(one.run_id, key, body, DEFAULT_CODEC)
            except DurabilityError as error:
                yield Finding("error", str(error), one.run_id)

    async def _listed(self, entry: RunEntry, one: Snapshot) -> list[Finding]:
        """Whether lists say of a run what its head says. If it was moved on meanwhile, it is looked at again."""
        for _ in range(_TRIES):
            found = await self._differences(entry, one.at)
            if not found:
                return []
            again, listed = await snapshot(self._store, one.run_id, "run"), await self._store.run(one.run_id)
            if again is None or listed is None:
                return []  # it was deleted while we looked
            if (again.at.number, listed) == (one.at.number, entry):
                return found
            one, entry = again, listed
        return []

    async def _differences(self, entry: RunEntry, at: Checkpoint) -> list[Finding]:
        run_id = at.run_id
        found = []
        listed_as = (entry.number, entry.status, entry.checkpoint_id, entry.iteration, entry.at, entry.workflow)
        stored_as = (at.number, at.status.value, at.stamp.checkpoint_id, at.iteration, at.stamp.at, at.header.workflow)
        if listed_as != stored_as:
            words = f"the list of runs says commit {entry.number}, {entry.status}, and its head is commit {at.number}, "
            found.append(Finding("error", f"{words}{at.status.value}", run_id))
        if (why := flaw_in_time(entry.began)) is not None:
            found.append(Finding("error", f"the list of runs says when it began, and that {why}", run_id))
        if not await self._is_located(at.stamp.checkpoint_id):
            found.append(Finding("error", "its newest checkpoint is not found by its id", run_id, at.number))
        listed = {one.request_id: one for one in await self._store.pending(run_id=run_id)}
        asked = {one.request_id: one for one in pending_of(at.header, at.requests.values())}
        if listed != asked:
            names = ", ".join(sorted(id for id in {**listed, **asked} if listed.get(id) != asked.get(id)))
            found.append(Finding("error", f"the list of open questions and its head do not agree on {names}", run_id))
        if self._wakes is not None and self._wakes.get(run_id) != wake_of(at):
            found += await self._read_wakes()  # that was known when we began
        if self._wakes is not None and self._wakes.get(run_id) != wake_of(at):
            words = f"it is listed to be woken at {self._wakes.get(run_id)}, and wants to be at {wake_of(at)}"
            found.append(Finding("error", words, run_id))
        return found

    async def _is_located(self, checkpoint_id: str) -> bool:
        """Whether a checkpoint is found by its id. A directory looks through all runs: a damaged one is named where it
        is looked at."""
        try:
            return await self._store.locate(checkpoint_id) is not None
        except DurabilityError as error:
            if await self._is_away(error):
                raise
            return True

    async def _head(self, one: Snapshot) -> list[Finding]:
        """Whether a run could go on from its head, as far as that can be seen."""
        at, run_id = one.at, one.run_id
        self._seen.questions += len(at.requests) if at.header.caller is None else 0
        if LOCK in at.executors:
            return [Finding("warning", LOCK, run_id)]
        found = [Finding("error", words, run_id, at.number) for words in unknown_executors(at)]
        for child in at.children.values():
            found += await self._child(at, child)
        parent = await parent_of(self._store, at.header)
        if at.header.parent_id is not None and (parent is None or await self._store.run(parent[0]) is None):
            words = f"it was forked from checkpoint {at.header.parent_id}, whose run is gone: what that told is, too"
            found.append(Finding("warning", words, run_id))
        if at.header.caller is not None and await self._store.run(at.header.caller) is None:
            words = f"it works for run {at.header.caller!r}, which is not stored: nobody will ever go on with it"
            found.append(Finding("warning", words, run_id))
        workflow = self._workflows.get(at.header.workflow)
        if workflow is None or at.status is WorkflowRunState.IDLE:  # one that is done needs nobody to go on with it
            return found
        why = await why_stranded(self._store, run_id, workflow)
        words = f"this code cannot go on with it: {'; '.join(why)}"
        return [*found, Finding("error", words, run_id, at.number)] if why else found

    async def _child(self, at: Checkpoint, child: Child) -> list[Finding]:
        if not await self._is_located(child.checkpoint_id) and await self._store.run(child.run_id) is None:
            words = f"it waits for run {child.run_id!r} inside {child.executor!r}, which is not stored: answers fail"
            return [Finding("error", words, at.run_id, at.number)]
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
