"""Is everything in a store as it must be? Every record, note and letter is read, and lists are compared with them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ..core.errors import CodecError, DurabilityError, NewerFormat, StoreUnavailable
from ..core.events import WorkflowRunState
from ..core.model import Checkpoint, Child
from ..durable.archive import parent_of
from ..durable.codec import DEFAULT_CODEC
from ..durable.letters import read_letter
from ..durable.ports import Record, RunEntry, Store
from ..durable.records import pending_of, wake_of
from ..durable.storage import BuiltInStorage
from ..durable.wire import header_of, read_commit, read_note, read_outcome
from ..kernel.history import apply
from ..workflow.workflow import Workflow
from .checking import why_stranded
from .gathering import together
from .redacting import LOCK
from .snapshots import PAGE, PARTLY_HERE, Snapshot, is_listed_right, snapshot

_RUNS = 200  # of the list, at a time
_TRIES = 3
_decode = msgspec.json.Decoder().decode

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must be. An error: a run cannot go on, or what is read is not what was written."""

    severity: Severity
    what: str
    run_id: str | None = None
    number: int | None = None  # of a commit


@dataclass(slots=True)
class Examined:
    """What was looked at, and how long it took."""

    runs: int = 0
    records: int = 0
    bytes: int = 0
    memory: int = 0
    letters: int = 0
    questions: int = 0
    errors: int = 0
    warnings: int = 0
    seconds: float = 0.0
    formats: Counter[int] = field(default_factory=Counter)  # records by the format they are of
    statuses: Counter[str] = field(default_factory=Counter)  # runs by where they are

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


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
        words = "cannot be reached" if _is_away(error) else "cannot be read any further"
        yield Finding("error", f"the store {words}: {error}")
    seen.seconds = time.perf_counter() - began
    yield seen


class _Examination:
    def __init__(
        self, store: Store, seen: Examined, workflows: Mapping[str, Workflow], looked: Callable[[], None]
    ) -> None:
        self._store, self._seen, self._workflows, self._looked = store, seen, workflows, looked
        self._wakes: Mapping[str, str] = {}

    async def findings(self) -> AsyncIterator[Finding]:
        past: RunEntry | None = None
        for finding in await self._flaws():
            yield finding
        await self._read_wakes()
        while page := await self._store.runs(inner=True, past=past, limit=_RUNS):
            for found in await together(self._run(entry) for entry in page):
                for finding in found:
                    yield finding
            past = page[-1]

    async def _flaws(self) -> list[Finding]:
        """What a store that can look at itself finds."""
        inner = getattr(self._store, "inner", self._store)
        try:
            return [Finding("error", words) for words in await inner.flaws()] if hasattr(inner, "flaws") else []
        except DurabilityError as error:
            if _is_away(error):
                raise
            return [Finding("error", str(error))]

    async def _read_wakes(self) -> None:
        self._wakes = {one.run_id: one.at for one in await self._store.wakes()}

    async def _run(self, entry: RunEntry) -> list[Finding]:
        self._seen.runs += 1
        self._seen.statuses[entry.status] += 1
        damage = await self._records(entry.run_id)
        found = [*damage, *await self._mail(entry.run_id)]
        if damage:
            return found  # its head may not be readable, and what is said of it would be said twice
        try:
            one = await snapshot(self._store, entry.run_id, "run")
            if one is None:
                return found  # it was deleted while we looked
            return [*found, *self._memory(one), *await self._listed(entry, one), *await self._head(one)]
        except DurabilityError as error:
            return [*found, _finding(error, entry.run_id)]

    async def _records(self, run_id: str) -> list[Finding]:
        numbers = sorted(entry.number for entry in await self._store.entries(run_id=run_id))
        before: Checkpoint | None = None
        damage: list[Finding] = []
        for begin in range(0, len(numbers), PAGE):
            async for number, found in self._read(run_id, numbers[begin : begin + PAGE]):
                try:
                    before = self._checked(found, before)
                except DurabilityError as error:
                    damage.append(_finding(error, run_id, number))
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
            if _is_away(error):
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
        _check_tags(_decode(record.body), what)
        if not is_listed_right(entry, commit, framed=shape.run is not None):
            raise CodecError(f"{what} is listed as something else than it is", path="$")
        if shape.run is not None:
            return apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        if before is not None and before.number == commit.number - 1:
            return apply(before.header, before, commit)
        if entry.fleeting and entry.outputs:
            return None  # kept for its outputs alone
        raise CodecError(f"{what} tells only what changed, and what it changed from is missing", path="$")

    async def _mail(self, run_id: str) -> list[Finding]:
        try:
            letters = await self._store.mail(run_id)
        except DurabilityError as error:
            return [_finding(error, run_id)]
        found = []
        for key, body in letters:
            self._seen.letters += 1
            if key == PARTLY_HERE:
                continue  # whoever looks at the run as a whole says so
            try:
                read_letter(run_id, key, body)
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
            again = await snapshot(self._store, one.run_id, "run")
            if again is None or again.at.number == one.at.number == entry.number:
                return found
            one = again
            head = await self._store.head(one.run_id)
            if head is not None:
                changed = {"status": head.entry.status, "number": head.entry.number}
                entry = msgspec.structs.replace(entry, checkpoint_id=head.entry.checkpoint_id, **changed)
        return []

    async def _differences(self, entry: RunEntry, at: Checkpoint) -> list[Finding]:
        run_id = at.run_id
        found = []
        if (entry.number, entry.status, entry.checkpoint_id) != (at.number, at.status.value, at.stamp.checkpoint_id):
            words = f"the list of runs says commit {entry.number}, {entry.status}, and its head is commit {at.number}, "
            found.append(Finding("error", f"{words}{at.status.value}", run_id))
        if await self._store.locate(at.stamp.checkpoint_id) is None:
            found.append(Finding("error", "its newest checkpoint is not found by its id", run_id, at.number))
        listed = {one.request_id: one for one in await self._store.pending(run_id=run_id)}
        asked = {one.request_id: one for one in pending_of(at.header, at.requests.values())}
        if listed != asked:
            names = ", ".join(sorted(id for id in {**listed, **asked} if listed.get(id) != asked.get(id)))
            found.append(Finding("error", f"the list of open questions and its head do not agree on {names}", run_id))
        if self._wakes.get(run_id) != wake_of(at):
            await self._read_wakes()  # that was known when we began
        if self._wakes.get(run_id) != wake_of(at):
            words = f"it is listed to be woken at {self._wakes.get(run_id)}, and wants to be at {wake_of(at)}"
            found.append(Finding("error", words, run_id))
        return found

    async def _head(self, one: Snapshot) -> list[Finding]:
        """Whether a run could go on from its head, as far as that can be seen."""
        at, run_id = one.at, one.run_id
        self._seen.questions += len(at.requests) if at.header.caller is None else 0
        if LOCK in at.executors:
            return [Finding("warning", LOCK, run_id)]
        found = [Finding("error", words, run_id, at.number) for words in _unknown_executors(at)]
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
        if await self._store.locate(child.checkpoint_id) is None and await self._store.run(child.run_id) is None:
            words = f"it waits for run {child.run_id!r} inside {child.executor!r}, which is not stored: answers fail"
            return [Finding("error", words, at.run_id, at.number)]
        return []


def _is_away(error: DurabilityError) -> bool:
    """Whether the store cannot be asked any more. That something in it is too new says nothing of the rest."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, NewerFormat)


def _finding(error: DurabilityError, run_id: str, number: int | None = None) -> Finding:
    """What was found instead of what was looked for. Raises the error again if the store is away."""
    if _is_away(error):
        raise error
    return Finding("error", str(error), run_id, number)


def _unknown_executors(at: Checkpoint) -> Iterator[str]:
    """Executors a checkpoint names that its own graph does not have."""
    known = set(at.header.signature.get("executors", ()))
    named = [*at.executors, *(r.executor for r in at.requests.values()), *(t for m in at.messages for t in m.takers)]
    for name in dict.fromkeys(named):
        if name not in known:
            yield f"its head names the executor {name!r}, which the graph it was stored with does not have"


def _check_tags(tree: Any, what: str) -> None:
    """Raises CodecError if something is marked as a value of a class and does not say of which."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if not isinstance(one.get("$", ""), str):
                raise CodecError(f"{what} holds a value of no class", path="$")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
